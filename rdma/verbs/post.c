#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>

#include "library.h"

/* ours are the operations of the node for those of verbs; ABSENT ones are refused. */
enum { ABSENT = 255 };
static const uint8_t ours[WR_KINDS] = {
	[WR_WRITE] = SEND_OP_WRITE, [WR_WRITE_IMM] = SEND_OP_WRITE_IMM, [WR_SEND] = SEND_OP_SEND, [WR_SEND_IMM] = SEND_OP_SEND_IMM, [WR_READ] = SEND_OP_READ,
	[WR_CMP_SWAP] = SEND_OP_CMP_SWAP, [WR_FETCH_ADD] = SEND_OP_FETCH_ADD, [WR_LOCAL_INV] = SEND_OP_LOCAL_INV, [WR_BIND_MW] = SEND_OP_BIND, [WR_SEND_INV] = SEND_OP_SEND_INV,
};

static bool carries_payload(uint8_t op) { return op <= SEND_OP_WRITE_IMM; }

/* permitted reports whether the bytes of a list lie in regions of the queue pair's domain, so that they may be copied here. The node checks
 * all others, and completes the request with an error. */
static bool permitted(struct qp *qp, const struct ibv_sge *list, int n)
{
	struct context *c = context_of(qp->ex.qp_base.context);
	for (int i = 0; i < n; i++) {
		const struct ibv_mr *mr = atomic_load(&c->regions[list[i].lkey >> 8 & (PLACES - 1)]);
		uint64_t from = list[i].addr, base = mr ? (uintptr_t)mr->addr : 0;
		if (!mr || mr->lkey != list[i].lkey || mr->pd != qp->ex.qp_base.pd || from < base || from - base > mr->length ||
			list[i].length > mr->length - (from - base))
			return false;
	}
	return true;
}

static uint64_t total(const struct ibv_sge *list, int n)
{
	uint64_t sum = 0;
	for (int i = 0; i < n; i++)
		sum += list[i].length;
	return sum;
}

/* translate_bind is translate for windows. The rights are those of verbs' access flags. */
static int translate_bind(const struct ibv_send_wr *w, struct send *s)
{
	const struct ibv_mw_bind_info *b = &w->bind_mw.bind_info;
	if (!w->bind_mw.mw || (!b->mr && b->length) || b->mw_access_flags > 31)
		return EINVAL;
	s->rkey = (w->bind_mw.mw->rkey & ~0xffu) | (w->bind_mw.rkey & 0xff); /* programs choose the tag */
	s->imm = b->mr ? b->mr->rkey : 0;
	s->remote = b->addr, s->compare = b->length, s->swap = b->mw_access_flags;
	return 0;
}

/* translate makes the node's form of a request. *copies is that its bytes are copied now. */
static int translate(struct qp *qp, const struct ibv_send_wr *w, struct send *s, bool *copies)
{
	unsigned op = (unsigned)w->opcode;
	if (op >= WR_KINDS || ours[op] == ABSENT || w->num_sge < 0 || (uint32_t)w->num_sge > qp->cap.max_send_sge)
		return EINVAL;
	*s = (struct send){.id = w->wr_id, .op = ours[op]};
	if (qp->sq_sig_all || w->send_flags & SEND_SIGNALED)
		s->flags |= SEND_FLAG_SIGNALED;
	if (w->send_flags & SEND_FENCE)
		s->flags |= SEND_FLAG_FENCE;
	if (w->send_flags & SEND_SOLICITED)
		s->flags |= SEND_FLAG_SOLICITED;
	s->imm = op == WR_SEND_INV || op == WR_LOCAL_INV ? w->imm_data : ntohl(w->imm_data);
	if (op == WR_BIND_MW || op == WR_LOCAL_INV) {
		*copies = false;
		return qp->ex.qp_base.qp_type == QPT_UD || w->num_sge ? EINVAL : op == WR_BIND_MW ? translate_bind(w, s) : 0;
	}
	if (qp->ex.qp_base.qp_type == QPT_UD) {
		if (!w->wr.ud.ah)
			return EINVAL;
		s->compare = w->wr.ud.ah->handle | (uint64_t)w->wr.ud.remote_qpn << 32;
		s->swap = w->wr.ud.remote_qkey & 1u << 31 ? qp->attr.qkey : w->wr.ud.remote_qkey; /* a controlled key is the queue pair's own */
	} else if (op == WR_CMP_SWAP || op == WR_FETCH_ADD) {
		s->remote = w->wr.atomic.remote_addr, s->rkey = w->wr.atomic.rkey;
		s->compare = w->wr.atomic.compare_add;
		s->swap = op == WR_CMP_SWAP ? w->wr.atomic.swap : w->wr.atomic.compare_add;
	} else if (op != WR_SEND && op != WR_SEND_IMM && op != WR_SEND_INV) {
		s->remote = w->wr.rdma.remote_addr, s->rkey = w->wr.rdma.rkey;
	}
	uint64_t sum = total(w->sg_list, w->num_sge);
	*copies = w->send_flags & SEND_INLINE;
	if (*copies && (!carries_payload(s->op) || sum > qp->cap.max_inline_data))
		return EINVAL;
	if (!*copies)
		*copies = carries_payload(s->op) && sum <= MAX_INLINE && permitted(qp, w->sg_list, w->num_sge);
	if (*copies)
		s->inlined = 1, s->length = (uint32_t)sum;
	else
		s->elements = (uint8_t)w->num_sge;
	return 0;
}

static int post_one(struct qp *qp, const struct ibv_send_wr *w)
{
	struct send s;
	bool copies;
	if (qp->ex.qp_base.state < QPS_RTS)
		return EINVAL;
	int e = translate(qp, w, &s, &copies);
	if (e)
		return e;
	if (qp->sends - atomic_load_explicit(&qp->sends_done, memory_order_acquire) >= qp->cap.max_send_wr)
		return ENOMEM;
	struct context *c = context_of(qp->ex.qp_base.context);
	e = put_entries(c, qp->ex.qp_base.handle, SUBMIT_SEND, &s, sizeof s, w->sg_list, SEND_ELEMENTS, copies ? 0 : w->num_sge, w->sg_list,
		copies ? w->num_sge : 0);
	if (!e)
		qp->sends++;
	return e;
}

int post_send(struct ibv_qp *abi, struct ibv_send_wr *w, struct ibv_send_wr **bad)
{
	struct submission *s = &context_of(abi->context)->submission;
	int e = 0;
	pthread_mutex_lock(&s->lock);
	for (; w && !(e = post_one(qp_of(abi), w)); w = w->next)
		;
	pthread_mutex_unlock(&s->lock);
	if (e)
		*bad = w;
	return e;
}

static int put_recv(struct context *c, uint32_t object, int op, const struct ibv_recv_wr *w)
{
	struct recv v = {.id = w->wr_id, .elements = (uint32_t)w->num_sge};
	return put_entries(c, object, op, &v, sizeof v, w->sg_list, RECV_ELEMENTS, w->num_sge, NULL, 0);
}

int post_recv(struct ibv_qp *abi, struct ibv_recv_wr *w, struct ibv_recv_wr **bad)
{
	struct context *c = context_of(abi->context);
	struct qp *qp = qp_of(abi);
	int e = 0;
	pthread_mutex_lock(&c->submission.lock);
	for (; w; w = w->next) {
		if (abi->state == QPS_RESET || abi->srq || w->num_sge < 0 || (uint32_t)w->num_sge > qp->cap.max_recv_sge)
			e = EINVAL;
		else if (qp->recvs - atomic_load_explicit(&qp->recvs_done, memory_order_acquire) >= qp->cap.max_recv_wr)
			e = ENOMEM;
		else if (!(e = put_recv(c, abi->handle, SUBMIT_RECV, w)))
			qp->recvs++;
		if (e)
			break;
	}
	pthread_mutex_unlock(&c->submission.lock);
	if (e)
		*bad = w;
	return e;
}

int post_srq_recv(struct ibv_srq *abi, struct ibv_recv_wr *w, struct ibv_recv_wr **bad)
{
	struct context *c = context_of(abi->context);
	struct srq *srq = srq_of(abi);
	int e = 0;
	pthread_mutex_lock(&c->submission.lock);
	for (; w; w = w->next) {
		if (w->num_sge < 0 || (uint32_t)w->num_sge > srq->attr.max_sge)
			e = EINVAL;
		else if (srq->posted - atomic_load(&srq->done) >= srq->attr.max_wr)
			e = ENOMEM;
		else if (!(e = put_recv(c, abi->handle, SUBMIT_SHARED, w)))
			srq->posted++;
		if (e)
			break;
	}
	pthread_mutex_unlock(&c->submission.lock);
	if (e)
		*bad = w;
	return e;
}
