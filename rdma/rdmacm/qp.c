#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "library.h"

/* lead_to changes the state of the queue pair, by the attributes of the connection. */
int lead_to(struct cm_id *id, int state)
{
	struct ibv_qp_attr a = {.qp_state = state};
	int mask;
	if (rdma_init_qp_attr(&id->abi, &a, &mask))
		return -1;
	if (id->accepts) /* the node learns them with the reply, which leaves when the queue pair is ready */
		a.max_dest_rd_atomic = id->resources, a.max_rd_atomic = id->depth;
	int e = ibv_modify_qp(id->abi.qp, &a, mask);
	return e ? fail(e) : 0;
}

static struct verbs_context *table_of(struct ibv_context *c) { return CONTAINER(c, struct verbs_context, context); }

static void destroy_cqs(struct cm_id *id)
{
	struct rdma_cm_id *x = &id->abi;
	if (id->own_recv_cq) {
		ibv_destroy_cq(x->recv_cq);
		ibv_destroy_comp_channel(x->recv_cq_channel);
		x->recv_cq = NULL, x->recv_cq_channel = NULL;
	}
	if (id->own_send_cq) {
		ibv_destroy_cq(x->send_cq);
		ibv_destroy_comp_channel(x->send_cq_channel);
		x->send_cq = NULL, x->send_cq_channel = NULL;
	}
	id->own_recv_cq = id->own_send_cq = false;
}

/* create_cq makes a completion queue for a program that names none: rdma_get_send_comp and its like wait for its channel. */
static int create_cq(struct cm_id *id, uint32_t depth, struct ibv_comp_channel **channel, struct ibv_cq **cq, bool *own)
{
	*channel = ibv_create_comp_channel(id->abi.verbs);
	if (!*channel)
		return -1;
	*cq = ibv_create_cq(id->abi.verbs, depth ? (int)depth : 1, &id->abi, *channel, 0);
	if (!*cq) {
		int e = errno;
		ibv_destroy_comp_channel(*channel);
		*channel = NULL;
		return fail(e);
	}
	*own = true;
	return 0;
}

EXPORT int rdma_create_qp_ex(struct rdma_cm_id *abi, struct ibv_qp_init_attr_ex *a)
{
	struct cm_id *id = id_of(abi);
	if (abi->qp || !abi->verbs || (unsigned)a->qp_type != (unsigned)abi->qp_type)
		return fail(EINVAL);
	if (!(a->comp_mask & CREATE_PD) || !a->pd) {
		a->comp_mask |= CREATE_PD;
		a->pd = abi->pd ? abi->pd : default_pd();
	}
	if (!a->pd)
		return -1;
	if (a->pd->context != abi->verbs)
		return fail(EINVAL);
	if (!a->srq)
		a->srq = abi->srq;
	if (!a->recv_cq && (abi->recv_cq || !create_cq(id, a->cap.max_recv_wr, &abi->recv_cq_channel, &abi->recv_cq, &id->own_recv_cq)))
		a->recv_cq = abi->recv_cq;
	if (!a->send_cq && (abi->send_cq || !create_cq(id, a->cap.max_send_wr, &abi->send_cq_channel, &abi->send_cq, &id->own_send_cq)))
		a->send_cq = abi->send_cq;
	struct ibv_qp *qp = a->send_cq && a->recv_cq ? table_of(abi->verbs)->create_qp_ex(abi->verbs, a) : NULL;
	abi->qp = qp;
	if (!qp || lead_to(id, QPS_INIT) || (is_ud(id) && (lead_to(id, QPS_RTR) || lead_to(id, QPS_RTS)))) {
		int e = errno;
		if (qp)
			ibv_destroy_qp(qp);
		abi->qp = NULL;
		destroy_cqs(id);
		return fail(e);
	}
	abi->pd = a->pd;
	return 0;
}

EXPORT int rdma_create_qp(struct rdma_cm_id *abi, struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct ibv_qp_init_attr_ex x = {0};
	memcpy(&x, a, sizeof *a);
	x.comp_mask = pd ? CREATE_PD : 0, x.pd = pd;
	int e = rdma_create_qp_ex(abi, &x);
	if (!e)
		memcpy(a, &x, sizeof *a);
	return e;
}

EXPORT void rdma_destroy_qp(struct rdma_cm_id *abi)
{
	if (abi->qp)
		ibv_destroy_qp(abi->qp);
	abi->qp = NULL;
	destroy_cqs(id_of(abi));
}

EXPORT int rdma_create_srq_ex(struct rdma_cm_id *abi, struct ibv_srq_init_attr_ex *a)
{
	if (abi->srq || !abi->verbs)
		return fail(EINVAL);
	if (!(a->comp_mask & SRQ_PD) || !a->pd) {
		a->comp_mask |= SRQ_PD;
		a->pd = abi->pd ? abi->pd : default_pd();
	}
	if (!a->pd)
		return -1;
	if (a->pd->context != abi->verbs)
		return fail(EINVAL);
	struct ibv_srq *srq = table_of(abi->verbs)->create_srq_ex(abi->verbs, a);
	if (!srq)
		return -1;
	abi->srq = srq, abi->pd = a->pd;
	return 0;
}

EXPORT int rdma_create_srq(struct rdma_cm_id *abi, struct ibv_pd *pd, struct ibv_srq_init_attr *a)
{
	struct ibv_srq_init_attr_ex x = {.srq_context = a->srq_context, .attr = a->attr, .comp_mask = SRQ_TYPE, .srq_type = SRQ_BASIC};
	if (pd)
		x.comp_mask |= SRQ_PD, x.pd = pd;
	int e = rdma_create_srq_ex(abi, &x);
	if (!e)
		a->attr = x.attr;
	return e;
}

EXPORT void rdma_destroy_srq(struct rdma_cm_id *abi)
{
	if (abi->srq)
		ibv_destroy_srq(abi->srq);
	abi->srq = NULL;
}
