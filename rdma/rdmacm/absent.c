#include "library.h"

/* What the device does not have: the functions exist, as programs link them, and fail. */

#define NO_OPERATION(name) \
	EXPORT int name(void) { return fail(EOPNOTSUPP); }

NO_OPERATION(rdma_join_multicast)
NO_OPERATION(rdma_join_multicast_ex)
NO_OPERATION(rdma_leave_multicast)
NO_OPERATION(rdma_set_local_ece)
NO_OPERATION(rdma_get_remote_ece)

NO_OPERATION(riomap)
NO_OPERATION(riounmap)
NO_OPERATION(riowrite)
