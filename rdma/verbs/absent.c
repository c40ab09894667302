#include <errno.h>
#include <stddef.h>

#include "library.h"

/* What the device does not have: the functions exist, as programs and librdmacm link them, and fail. */

#define NO_OBJECT(name) \
	EXPORT void *name(void) \
	{ \
		errno = EOPNOTSUPP; \
		return NULL; \
	}
#define NO_OPERATION(name) \
	EXPORT int name(void) { return errno = EOPNOTSUPP; }
#define NOTHING(name) \
	EXPORT void name(void) {}

NO_OBJECT(ibv_import_device)
NO_OBJECT(ibv_import_pd)
NO_OBJECT(ibv_import_mr)
NO_OBJECT(ibv_import_dm)
NO_OBJECT(ibv_reg_dmabuf_mr)
NO_OPERATION(ibv_attach_mcast)
NO_OPERATION(ibv_detach_mcast)
NO_OPERATION(ibv_query_ece)
NO_OPERATION(ibv_set_ece)
NO_OPERATION(ibv_resolve_eth_l2_from_gid)
NOTHING(ibv_unimport_pd)
NOTHING(ibv_unimport_mr)
NOTHING(ibv_unimport_dm)
NOTHING(ibv_register_driver)
NOTHING(ibv_copy_ah_attr_from_kern)
NOTHING(ibv_copy_path_rec_from_kern)
NOTHING(ibv_copy_path_rec_to_kern)
NOTHING(ibv_copy_qp_attr_from_kern)

/* ibv_rereg_mr: the error code is that of a region that stays as it is */
EXPORT int ibv_rereg_mr(void)
{
	errno = EOPNOTSUPP;
	return -1;
}

EXPORT int ibv_query_qp_data_in_order(void) { return 0; }

/* memory is not pinned, and a child has no end of the queues: fork needs nothing */
EXPORT int ibv_fork_init(void) { return 0; }
EXPORT int ibv_is_fork_initialized(void) { return 2; /* IBV_FORK_UNNEEDED */ }
EXPORT int ibv_dontfork_range(void) { return 0; }
EXPORT int ibv_dofork_range(void) { return 0; }
