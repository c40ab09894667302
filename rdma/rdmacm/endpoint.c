#define _GNU_SOURCE
#include <stdlib.h>

#include "library.h"

/* Endpoints: identifiers whose calls wait, from a result of rdma_getaddrinfo. */

EXPORT void rdma_destroy_ep(struct rdma_cm_id *abi)
{
	if (abi->qp)
		rdma_destroy_qp(abi);
	if (abi->srq)
		rdma_destroy_srq(abi);
	rdma_destroy_id(abi);
}

/* set_passive keeps the attributes of queue pairs for rdma_get_request. */
static int set_passive(struct cm_id *id, struct ibv_pd *pd, const struct ibv_qp_init_attr *a)
{
	if (!a)
		return 0;
	id->passive_attr = malloc(sizeof *a);
	if (!id->passive_attr)
		return fail(ENOMEM);
	*id->passive_attr = *a;
	id->passive_attr->qp_type = id->abi.qp_type;
	id->abi.pd = pd;
	return 0;
}

EXPORT int rdma_create_ep(struct rdma_cm_id **to, struct rdma_addrinfo *res, struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct rdma_cm_id *abi;
	int e;
	if (create_id(NULL, &abi, NULL, res->ai_port_space, res->ai_qp_type))
		return -1;
	if (res->ai_flags & RAI_PASSIVE) {
		e = rdma_bind_addr(abi, res->ai_src_addr) || set_passive(id_of(abi), pd, a);
	} else {
		e = rdma_resolve_addr(abi, res->ai_src_addr, res->ai_dst_addr, 2000) || rdma_resolve_route(abi, 2000);
		if (!e && a) {
			a->qp_type = abi->qp_type;
			e = rdma_create_qp(abi, pd, a);
		}
	}
	if (e) {
		e = errno;
		rdma_destroy_ep(abi);
		return fail(e);
	}
	*to = abi;
	return 0;
}

EXPORT int rdma_get_request(struct rdma_cm_id *listener, struct rdma_cm_id **to)
{
	struct cm_id *l = id_of(listener);
	struct rdma_cm_event *event;
	if (!l->sync)
		return fail(EINVAL);
	if (listener->event) {
		rdma_ack_cm_event(listener->event);
		listener->event = NULL;
	}
	if (rdma_get_cm_event(listener->channel, &event))
		return -1;
	if (event->status || event->event != CM_CONNECT_REQUEST) {
		int e = event->status < 0 ? -event->status : EINVAL;
		rdma_ack_cm_event(event);
		return fail(e);
	}
	struct rdma_cm_id *abi = event->id;
	if (l->passive_attr) {
		struct ibv_qp_init_attr a = *l->passive_attr;
		a.qp_type = abi->qp_type;
		if (rdma_create_qp(abi, listener->pd, &a)) {
			int e = errno;
			rdma_ack_cm_event(event);
			rdma_reject(abi, NULL, 0);
			rdma_destroy_id(abi);
			return fail(e);
		}
	}
	abi->event = event;
	*to = abi;
	return 0;
}
