#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"

static uint32_t at_least_one(uint32_t n) { return n ? n : 1; }

static int check_caps(const struct ibv_qp_init_attr_ex *a)
{
	const struct ibv_qp_cap *k = &a->cap;
	if (a->qp_type != QPT_RC && a->qp_type != QPT_UC && a->qp_type != QPT_UD)
		return EOPNOTSUPP;
	if (!a->pd || !a->send_cq || !a->recv_cq || k->max_send_wr > 1 << 15 || k->max_recv_wr > 1 << 15 || k->max_send_sge > MAX_ELEMENTS ||
		k->max_recv_sge > MAX_ELEMENTS || k->max_inline_data > MAX_INLINE)
		return EINVAL;
	return 0;
}

/* bits of send_ops_flags: writes, sends, READ and atomics; SEND with and local invalidation. Without TSO, and without binds of windows: the one
 * test of rdma-core for those binds more bytes than its region has. */
#define SEND_OPS ((uint64_t)0x2ff)

struct ibv_qp *create_qp_ex(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *a)
{
	struct context *c = context_of(ctx);
	struct reply r;
	int e = a->comp_mask & ~(uint32_t)(CREATE_PD | CREATE_SEND_OPS) || !(a->comp_mask & CREATE_PD) ? EOPNOTSUPP : check_caps(a);
	if (!e && a->comp_mask & CREATE_SEND_OPS && a->send_ops_flags & ~SEND_OPS)
		e = EOPNOTSUPP;
	struct qp *qp = e ? NULL : calloc(1, sizeof *qp);
	if (!e && !qp)
		e = ENOMEM;
	if (!e) {
		a->cap.max_send_wr = at_least_one(a->cap.max_send_wr), a->cap.max_send_sge = at_least_one(a->cap.max_send_sge);
		struct request q = {
			.op = OP_CREATE_QP, .pd = a->pd->handle, .service = (uint32_t)a->qp_type, .depth = a->cap.max_send_wr, .recv_depth = a->cap.max_recv_wr,
			.send_cq = a->send_cq->handle, .recv_cq = a->recv_cq->handle, .srq = a->srq ? a->srq->handle : NONE,
		};
		e = call(c, &q, &r, NULL, 0);
	}
	if (e) {
		free(qp);
		errno = e;
		return NULL;
	}
	struct ibv_qp *x = &qp->ex.qp_base;
	*x = (struct ibv_qp){
		.context = ctx, .qp_context = a->qp_context, .pd = a->pd, .send_cq = a->send_cq, .recv_cq = a->recv_cq, .srq = a->srq, .handle = r.object,
		.qp_num = r.key, .state = QPS_RESET, .qp_type = a->qp_type,
	};
	pthread_mutex_init(&x->mutex, NULL);
	pthread_cond_init(&x->cond, NULL);
	if (a->cap.max_inline_data < 256)
		a->cap.max_inline_data = 256;
	qp->cap = a->cap, qp->sq_sig_all = a->sq_sig_all, qp->generation = r.generation;
	if (a->comp_mask & CREATE_SEND_OPS)
		begin_builds(qp);
	pthread_mutex_lock(&c->tables);
	c->qps[x->handle] = qp;
	pthread_mutex_unlock(&c->tables);
	return x;
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct ibv_qp_init_attr_ex x = {.comp_mask = CREATE_PD};
	memcpy(&x, a, offsetof(struct ibv_qp_init_attr_ex, comp_mask));
	x.pd = pd;
	struct ibv_qp *qp = create_qp_ex(pd->context, &x);
	if (qp)
		a->cap = x.cap;
	return qp;
}

EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp) { return qp_of(qp)->ex.wr_start ? &qp_of(qp)->ex : NULL; }

EXPORT int ibv_destroy_qp(struct ibv_qp *abi)
{
	struct context *c = context_of(abi->context);
	struct qp *qp = qp_of(abi);
	struct request q = {.op = OP_DESTROY_QP, .object = abi->handle};
	struct reply r;
	int e = call(c, &q, &r, NULL, 0);
	if (e)
		return e;
	pthread_mutex_lock(&c->tables);
	c->qps[abi->handle] = NULL;
	pthread_mutex_unlock(&c->tables);
	pthread_mutex_lock(&abi->mutex);
	while (abi->events_completed != qp->async_events)
		pthread_cond_wait(&abi->cond, &abi->mutex);
	pthread_mutex_unlock(&abi->mutex);
	free(qp->builds);
	free(qp);
	return 0;
}

/* required are the attributes that a change to a state needs (IBTA 10.3, table 96). */
static int required(int type, int from, int to)
{
	int common = ATTR_PKEY | ATTR_PORT;
	if (from == QPS_RESET && to == QPS_INIT)
		return common | (type == QPT_UD ? ATTR_QKEY : ATTR_ACCESS);
	if (from == QPS_INIT && to == QPS_RTR && type != QPT_UD) {
		common = ATTR_AV | ATTR_MTU | ATTR_DEST_QPN | ATTR_RQ_PSN;
		return type == QPT_RC ? common | ATTR_MAX_DEST_RD | ATTR_MIN_RNR : common;
	}
	if (from == QPS_RTR && to == QPS_RTS)
		return type == QPT_RC ? ATTR_SQ_PSN | ATTR_TIMEOUT | ATTR_RETRY | ATTR_RNR_RETRY | ATTR_MAX_RD : ATTR_SQ_PSN;
	return 0;
}

/* merge takes over the attributes of mask. */
static void merge(struct ibv_qp_attr *to, const struct ibv_qp_attr *a, int mask)
{
#define TAKE(bit, field) \
	if (mask & (bit)) \
		to->field = a->field
	TAKE(ATTR_ACCESS, qp_access_flags);
	TAKE(ATTR_PKEY, pkey_index);
	TAKE(ATTR_PORT, port_num);
	TAKE(ATTR_QKEY, qkey);
	TAKE(ATTR_AV, ah_attr);
	TAKE(ATTR_MTU, path_mtu);
	TAKE(ATTR_TIMEOUT, timeout);
	TAKE(ATTR_RETRY, retry_cnt);
	TAKE(ATTR_RNR_RETRY, rnr_retry);
	TAKE(ATTR_RQ_PSN, rq_psn);
	TAKE(ATTR_SQ_PSN, sq_psn);
	TAKE(ATTR_MAX_RD, max_rd_atomic);
	TAKE(ATTR_MAX_DEST_RD, max_dest_rd_atomic);
	TAKE(ATTR_MIN_RNR, min_rnr_timer);
	TAKE(ATTR_DEST_QPN, dest_qp_num);
#undef TAKE
}

static int check_attr(const struct ibv_qp_attr *a, int mask)
{
	if (mask & (ATTR_ALT_PATH | ATTR_CAP))
		return EOPNOTSUPP;
	if (mask & ATTR_PKEY && a->pkey_index != 0)
		return EINVAL;
	if (mask & ATTR_PORT && a->port_num != 1)
		return EINVAL;
	if (mask & ATTR_AV && (!a->ah_attr.is_global || a->ah_attr.grh.sgid_index != 0))
		return EINVAL;
	if (mask & ATTR_MTU && (a->path_mtu < 1 || a->path_mtu > 5))
		return EINVAL;
	if ((mask & ATTR_MAX_RD && a->max_rd_atomic > 16) || (mask & ATTR_MAX_DEST_RD && a->max_dest_rd_atomic > 16))
		return EINVAL;
	return 0;
}

EXPORT int ibv_modify_qp(struct ibv_qp *abi, struct ibv_qp_attr *a, int mask)
{
	struct context *c = context_of(abi->context);
	struct qp *qp = qp_of(abi);
	int to = mask & ATTR_STATE ? a->qp_state : abi->state;
	int e = check_attr(a, mask);
	if (mask & ATTR_CUR_STATE && (a->cur_qp_state < 0 || a->cur_qp_state >= QPS_KINDS))
		e = EINVAL;
	if (to < 0 || to >= QPS_KINDS || to == QPS_SQE || required(abi->qp_type, abi->state, to) & ~mask)
		e = EINVAL;
	if (e)
		return e;
	struct ibv_qp_attr v = qp->attr;
	merge(&v, a, mask);
	struct request q = {
		.op = OP_MODIFY_QP, .object = abi->handle, .state = (uint32_t)to, .access = v.qp_access_flags, .qkey = v.qkey,
		.mtu = abi->qp_type == QPT_UD ? c->max_mtu : 128u << v.path_mtu, .dest_qp = v.dest_qp_num & 0xffffff, .recv_psn = v.rq_psn & 0xffffff,
		.send_psn = v.sq_psn & 0xffffff, .max_dest_reads = v.max_dest_rd_atomic, .max_reads = v.max_rd_atomic, .rnr_timer = v.min_rnr_timer & 31,
		.timeout = v.timeout & 31, .retries = v.retry_cnt & 7, .rnr_retries = v.rnr_retry & 7,
	};
	memcpy(q.gid, v.ah_attr.grh.dgid.raw, sizeof q.gid);
	struct reply r;
	if ((e = call(c, &q, &r, NULL, 0)))
		return e;
	qp->attr = v;
	abi->state = (int)r.state;
	if (to == QPS_RESET) { /* what was posted is forgotten, without completions */
		pthread_mutex_lock(&c->submission.lock);
		qp->sends = r.sends_done, qp->recvs = r.recvs_done;
		atomic_store(&qp->sends_done, r.sends_done);
		atomic_store(&qp->recvs_done, r.recvs_done);
		memset(&qp->attr, 0, sizeof qp->attr);
		pthread_mutex_unlock(&c->submission.lock);
	}
	return 0;
}

EXPORT int ibv_query_qp(struct ibv_qp *abi, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	(void)mask;
	struct qp *qp = qp_of(abi);
	struct request q = {.op = OP_QUERY_QP, .object = abi->handle};
	struct reply r;
	int e = call(context_of(abi->context), &q, &r, NULL, 0);
	if (e)
		return e;
	*a = qp->attr;
	abi->state = (int)r.state;
	a->qp_state = a->cur_qp_state = abi->state;
	a->cap = qp->cap;
	*init = (struct ibv_qp_init_attr){
		.qp_context = abi->qp_context, .send_cq = abi->send_cq, .recv_cq = abi->recv_cq, .srq = abi->srq, .cap = qp->cap, .qp_type = abi->qp_type,
		.sq_sig_all = qp->sq_sig_all,
	};
	return 0;
}
