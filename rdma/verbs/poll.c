#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "library.h"

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
	struct request q = {.op = OP_CREATE_CHANNEL};
	struct reply r;
	int fd = -1;
	struct channel *ch = calloc(1, sizeof *ch);
	int e = ch ? call(context_of(ctx), &q, &r, &fd, 1) : ENOMEM;
	if (e) {
		free(ch);
		errno = e;
		return NULL;
	}
	*ch = (struct channel){{.context = ctx, .fd = fd}, r.object};
	return &ch->abi;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *abi)
{
	struct channel *ch = CONTAINER(abi, struct channel, abi);
	struct request q = {.op = OP_DESTROY_CHANNEL, .object = ch->number};
	struct reply r;
	int e = call(context_of(abi->context), &q, &r, NULL, 0);
	if (!e) {
		close(abi->fd);
		free(ch);
	}
	return e;
}

static struct cq *create_cq(struct ibv_context *ctx, int cqe, void *cq_context, struct ibv_comp_channel *channel)
{
	struct context *c = context_of(ctx);
	struct request q = {.op = OP_CREATE_CQ, .depth = (uint32_t)cqe, .channel = channel ? CONTAINER(channel, struct channel, abi)->number : NONE};
	struct reply r;
	int fd = -1;
	struct cq *cq = calloc(1, sizeof *cq);
	int e = !cq ? ENOMEM : cqe < 1 ? EINVAL : call(c, &q, &r, &fd, 1);
	if (!e && (!(cq->queue = map_queue(fd, r.slots, 0, &cq->size)) || r.object >= MAX_OBJECTS))
		e = ENOMEM;
	if (e) {
		free(cq);
		errno = e;
		return NULL;
	}
	struct ibv_cq_ex *x = &cq->abi;
	x->context = ctx, x->channel = channel, x->cq_context = cq_context, x->handle = r.object, x->cqe = (int)r.slots;
	pthread_mutex_init(&x->mutex, NULL);
	pthread_cond_init(&x->cond, NULL);
	pthread_mutex_init(&cq->lock, NULL);
	cq->slots = r.slots, cq->generation = r.generation;
	pthread_mutex_lock(&c->tables);
	c->cqs[r.object] = cq;
	if (channel)
		channel->refcnt++;
	pthread_mutex_unlock(&c->tables);
	return cq;
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *cq_context, struct ibv_comp_channel *channel, int vector)
{
	if (vector < 0 || vector >= ctx->num_comp_vectors) {
		errno = EINVAL;
		return NULL;
	}
	return (struct ibv_cq *)create_cq(ctx, cqe, cq_context, channel);
}

EXPORT int ibv_destroy_cq(struct ibv_cq *abi)
{
	struct cq *cq = cq_of(abi);
	struct context *c = context_of(abi->context);
	struct request q = {.op = OP_DESTROY_CQ, .object = abi->handle};
	struct reply r;
	int e = call(c, &q, &r, NULL, 0);
	if (e)
		return e;
	pthread_mutex_lock(&c->tables);
	c->cqs[abi->handle] = NULL;
	if (abi->channel)
		abi->channel->refcnt--;
	pthread_mutex_unlock(&c->tables);
	pthread_mutex_lock(&abi->mutex); /* until the program has acknowledged what it got */
	while (abi->comp_events_completed != cq->events || abi->async_events_completed != cq->async_events)
		pthread_cond_wait(&abi->cond, &abi->mutex);
	pthread_mutex_unlock(&abi->mutex);
	munmap(cq->queue, cq->size);
	free(cq);
	return 0;
}

/* the queue is shared with the node, which writes to it at any time */
EXPORT int ibv_resize_cq(void) { return EOPNOTSUPP; }

/* completed notes that requests of the queue pair have completed, so that others may be posted. */
static void completed(struct context *c, uint32_t number, const struct completion *k)
{
	struct qp *qp = number < MAX_OBJECTS ? c->qps[number] : NULL;
	if (!qp || qp->ex.qp_base.qp_num != k->qpn) /* it has been destroyed meanwhile */
		return;
	if (!(k->flags & COMPLETION_RECV))
		atomic_store_explicit(&qp->sends_done, k->done, memory_order_release);
	else if (qp->ex.qp_base.srq)
		atomic_fetch_add(&srq_of(qp->ex.qp_base.srq)->done, 1);
	else
		atomic_store_explicit(&qp->recvs_done, k->done, memory_order_release);
}

/* next takes one completion. The queue's lock is held. */
static bool next(struct cq *cq, struct ibv_wc *wc)
{
	static const uint8_t opcodes[] = {
		[SEND_OP_WRITE] = 1, [SEND_OP_WRITE_IMM] = 1, [SEND_OP_READ] = 2, [SEND_OP_CMP_SWAP] = 3, [SEND_OP_FETCH_ADD] = 4,
		[SEND_OP_BIND] = 5, [SEND_OP_LOCAL_INV] = 6,
	};
	struct completion k;
	uint32_t number;
	if (!take_entry(cq, &number, &k, sizeof k))
		return false;
	completed(context_of(cq->abi.context), number, &k);
	*wc = (struct ibv_wc){
		.wr_id = k.id, .status = (int)k.status, .opcode = (int)(k.op < sizeof opcodes ? opcodes[k.op] : k.op), .byte_len = k.bytes,
		.qp_num = k.qpn, .src_qp = k.src_qp,
	};
	if (k.flags & COMPLETION_IMM)
		wc->imm_data = htonl(k.imm), wc->wc_flags |= WC_FLAG_IMM;
	if (k.flags & COMPLETION_INV)
		wc->imm_data = k.imm, wc->wc_flags |= WC_FLAG_INV;
	if (k.flags & COMPLETION_GRH)
		wc->wc_flags |= WC_FLAG_GRH;
	return true;
}

/* A program that polls takes the CPU which the node's loop may need. Where nothing else waits for it, a yield is a system call of 0.3 us. */
enum { POLLS_BEFORE_YIELD = 32 };

int poll_cq(struct ibv_cq *abi, int n, struct ibv_wc *wc)
{
	struct cq *cq = cq_of(abi);
	int got = 0;
	pthread_mutex_lock(&cq->lock);
	while (got < n && next(cq, &wc[got]))
		got++;
	if (got)
		free_entries(cq);
	bool idle = !got && ++cq->empty > POLLS_BEFORE_YIELD;
	if (got)
		cq->empty = 0;
	pthread_mutex_unlock(&cq->lock);
	if (idle)
		sched_yield();
	return got;
}

int req_notify_cq(struct ibv_cq *abi, int solicited_only)
{
	struct cq *cq = cq_of(abi);
	pthread_mutex_lock(&cq->lock);
	cq->epoch = (cq->epoch + 1) & (UINT32_MAX >> RING_QUEUE_WAKE_BITS);
	uint32_t kind = solicited_only ? RING_QUEUE_WAKE_SOLICITED : RING_QUEUE_WAKE_ANY;
	atomic_store(&cq->queue->arm, cq->epoch << RING_QUEUE_WAKE_BITS | kind);
	pthread_mutex_unlock(&cq->lock);
	return 0;
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	struct context *c = context_of(channel->context);
	for (;;) {
		struct event e;
		ssize_t n = read(channel->fd, &e, sizeof e);
		if (n != sizeof e) {
			if (n >= 0)
				errno = EIO; /* the node has gone */
			return -1;
		}
		pthread_mutex_lock(&c->tables);
		struct cq *q = e.object < MAX_OBJECTS ? c->cqs[e.object] : NULL;
		bool known = q && q->generation == e.generation;
		if (known) {
			pthread_mutex_lock(&q->abi.mutex);
			q->events++;
			pthread_mutex_unlock(&q->abi.mutex);
			*cq = (struct ibv_cq *)q;
			*cq_context = q->abi.cq_context;
		}
		pthread_mutex_unlock(&c->tables);
		if (known)
			return 0;
	}
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += n;
	pthread_cond_broadcast(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}

/* the queue with fields that are read one by one */

static int next_poll(struct ibv_cq_ex *x)
{
	struct cq *cq = (struct cq *)x;
	if (!next(cq, &cq->current))
		return ENOENT;
	x->status = cq->current.status;
	x->wr_id = cq->current.wr_id;
	return 0;
}

static int start_poll(struct ibv_cq_ex *x, struct ibv_poll_cq_attr *a)
{
	struct cq *cq = (struct cq *)x;
	if (a->comp_mask)
		return EINVAL;
	pthread_mutex_lock(&cq->lock);
	int e = next_poll(x);
	cq->empty = e ? cq->empty + 1 : 0;
	if (e)
		pthread_mutex_unlock(&cq->lock);
	if (e && cq->empty > POLLS_BEFORE_YIELD)
		sched_yield();
	return e;
}

static void end_poll(struct ibv_cq_ex *x)
{
	struct cq *cq = (struct cq *)x;
	free_entries(cq);
	pthread_mutex_unlock(&cq->lock);
}

#define READ(name, type, field) \
	static type name(struct ibv_cq_ex *x) { return (type)((struct cq *)x)->current.field; }
READ(read_opcode, int, opcode)
READ(read_vendor_err, uint32_t, vendor_err)
READ(read_byte_len, uint32_t, byte_len)
READ(read_imm_data, uint32_t, imm_data)
READ(read_qp_num, uint32_t, qp_num)
READ(read_src_qp, uint32_t, src_qp)
READ(read_wc_flags, unsigned, wc_flags)
READ(read_slid, uint32_t, slid)
READ(read_sl, uint8_t, sl)
READ(read_dlid_path_bits, uint8_t, dlid_path_bits)

enum { CQ_FIELDS = 0x7f, CQ_INIT_FLAGS = 1, CQ_SINGLE_THREADED = 1, CQ_IGNORE_OVERRUN = 2 };

struct ibv_cq_ex *create_cq_ex(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *a)
{
	if (a->comp_mask & ~(uint32_t)CQ_INIT_FLAGS || a->wc_flags & ~(uint64_t)CQ_FIELDS ||
		(a->comp_mask & CQ_INIT_FLAGS && a->flags & ~(uint32_t)(CQ_SINGLE_THREADED | CQ_IGNORE_OVERRUN))) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (a->comp_vector >= (uint32_t)ctx->num_comp_vectors) {
		errno = EINVAL;
		return NULL;
	}
	struct cq *cq = create_cq(ctx, (int)a->cqe, a->cq_context, a->channel);
	if (!cq)
		return NULL;
	struct ibv_cq_ex *x = &cq->abi;
	x->start_poll = start_poll, x->next_poll = next_poll, x->end_poll = end_poll;
	x->read_opcode = read_opcode, x->read_vendor_err = read_vendor_err, x->read_byte_len = read_byte_len, x->read_imm_data = read_imm_data;
	x->read_qp_num = read_qp_num, x->read_src_qp = read_src_qp, x->read_wc_flags = read_wc_flags, x->read_slid = read_slid, x->read_sl = read_sl;
	x->read_dlid_path_bits = read_dlid_path_bits;
	return x;
}
