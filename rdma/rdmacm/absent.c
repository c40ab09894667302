#include "library.h"

/* What the device does not have: the functions exist, as programs link them, and fail. */

#define NO_OPERATION(name) \
	EXPORT int name(void) { return fail(EOPNOTSUPP); }

NO_OPERATION(rdma_join_multicast)
NO_OPERATION(rdma_join_multicast_ex)
NO_OPERATION(rdma_leave_multicast)
NO_OPERATION(rdma_set_local_ece)
NO_OPERATION(rdma_get_remote_ece)

NO_OPERATION(raccept)
NO_OPERATION(rbind)
NO_OPERATION(rclose)
NO_OPERATION(rconnect)
NO_OPERATION(rfcntl)
NO_OPERATION(rgetpeername)
NO_OPERATION(rgetsockname)
NO_OPERATION(rgetsockopt)
NO_OPERATION(riomap)
NO_OPERATION(riounmap)
NO_OPERATION(riowrite)
NO_OPERATION(rlisten)
NO_OPERATION(rpoll)
NO_OPERATION(rread)
NO_OPERATION(rreadv)
NO_OPERATION(rrecv)
NO_OPERATION(rrecvfrom)
NO_OPERATION(rrecvmsg)
NO_OPERATION(rselect)
NO_OPERATION(rsend)
NO_OPERATION(rsendmsg)
NO_OPERATION(rsendto)
NO_OPERATION(rsetsockopt)
NO_OPERATION(rshutdown)
NO_OPERATION(rsocket)
NO_OPERATION(rwrite)
NO_OPERATION(rwritev)
