#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"

/* Requests that a program makes field by field (ibv_wr_start ... ibv_wr_complete). They are collected, and posted together: all or
 * none, as the interface promises. The queue pair's mutex is held from start to complete. */

static struct build *last(struct ibv_qp_ex *x) { return &((struct qp *)x)->builds[((struct qp *)x)->built - 1]; }

static void start(struct ibv_qp_ex *x)
{
	struct qp *qp = (struct qp *)x;
	pthread_mutex_lock(&x->qp_base.mutex);
	qp->built = 0, qp->build_error = 0;
}

/* begin appends a request of an operation. Without memory the next ones go to the same place, and complete fails. */
static struct ibv_send_wr *begin(struct ibv_qp_ex *x, int opcode)
{
	struct qp *qp = (struct qp *)x;
	if (qp->built == qp->capacity) {
		uint32_t n = qp->capacity * 2;
		struct build *more = realloc(qp->builds, n * sizeof *more);
		if (more)
			qp->builds = more, qp->capacity = n;
		else
			qp->build_error = ENOMEM, qp->built--;
	}
	struct ibv_send_wr *w = &qp->builds[qp->built++].wr;
	*w = (struct ibv_send_wr){.wr_id = x->wr_id, .opcode = opcode, .send_flags = x->wr_flags};
	return w;
}

static struct ibv_send_wr *begin_rdma(struct ibv_qp_ex *x, int opcode, uint32_t rkey, uint64_t remote)
{
	struct ibv_send_wr *w = begin(x, opcode);
	w->wr.rdma.remote_addr = remote, w->wr.rdma.rkey = rkey;
	return w;
}

static void rdma_read(struct ibv_qp_ex *x, uint32_t rkey, uint64_t remote) { begin_rdma(x, WR_READ, rkey, remote); }
static void rdma_write(struct ibv_qp_ex *x, uint32_t rkey, uint64_t remote) { begin_rdma(x, WR_WRITE, rkey, remote); }

static void rdma_write_imm(struct ibv_qp_ex *x, uint32_t rkey, uint64_t remote, uint32_t imm)
{
	begin_rdma(x, WR_WRITE_IMM, rkey, remote)->imm_data = imm;
}

static void send_plain(struct ibv_qp_ex *x) { begin(x, WR_SEND); }
static void send_imm(struct ibv_qp_ex *x, uint32_t imm) { begin(x, WR_SEND_IMM)->imm_data = imm; }
static void send_inv(struct ibv_qp_ex *x, uint32_t key) { begin(x, WR_SEND_INV)->imm_data = key; }

static void local_inv(struct ibv_qp_ex *x, uint32_t key) { begin(x, WR_LOCAL_INV)->imm_data = key; }

static void atomic_swap(struct ibv_qp_ex *x, uint32_t rkey, uint64_t remote, uint64_t compare, uint64_t swap)
{
	struct ibv_send_wr *w = begin(x, WR_CMP_SWAP);
	w->wr.atomic.remote_addr = remote, w->wr.atomic.rkey = rkey, w->wr.atomic.compare_add = compare, w->wr.atomic.swap = swap;
}

static void atomic_add(struct ibv_qp_ex *x, uint32_t rkey, uint64_t remote, uint64_t add)
{
	struct ibv_send_wr *w = begin(x, WR_FETCH_ADD);
	w->wr.atomic.remote_addr = remote, w->wr.atomic.rkey = rkey, w->wr.atomic.compare_add = add;
}

static void set_ud(struct ibv_qp_ex *x, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct ibv_send_wr *w = &last(x)->wr;
	w->wr.ud.ah = ah, w->wr.ud.remote_qpn = qpn, w->wr.ud.remote_qkey = qkey;
}

static void set_list(struct ibv_qp_ex *x, size_t n, const struct ibv_sge *list)
{
	struct build *b = last(x);
	if (n > MAX_ELEMENTS) {
		((struct qp *)x)->build_error = EINVAL;
		return;
	}
	memcpy(b->list, list, n * sizeof *list);
	b->wr.num_sge = (int)n;
}

static void set_sge(struct ibv_qp_ex *x, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge one = {addr, length, lkey};
	set_list(x, 1, &one);
}

/* the bytes are copied now; their place in the build is known when it is posted */
static void set_inline_list(struct ibv_qp_ex *x, size_t n, const struct ibv_data_buf *list)
{
	struct build *b = last(x);
	size_t sum = 0;
	for (size_t i = 0; i < n; i++) {
		if (list[i].length > MAX_INLINE - sum) {
			((struct qp *)x)->build_error = ENOMEM;
			return;
		}
		memcpy(b->inlined + sum, list[i].addr, list[i].length);
		sum += list[i].length;
	}
	b->wr.send_flags |= SEND_INLINE;
	b->wr.num_sge = 1;
	b->list[0].length = (uint32_t)sum;
}

static void set_inline(struct ibv_qp_ex *x, void *addr, size_t length)
{
	struct ibv_data_buf one = {addr, length};
	set_inline_list(x, 1, &one);
}

static int complete(struct ibv_qp_ex *x)
{
	struct qp *qp = (struct qp *)x;
	struct ibv_send_wr *bad;
	int e = qp->build_error;
	if (!e && qp->built > qp->cap.max_send_wr - (qp->sends - atomic_load(&qp->sends_done)))
		e = ENOMEM;
	for (uint32_t i = 0; !e && i < qp->built; i++) {
		struct build *b = &qp->builds[i];
		b->wr.sg_list = b->list;
		b->wr.next = i + 1 < qp->built ? &qp->builds[i + 1].wr : NULL;
		if (b->wr.send_flags & SEND_INLINE)
			b->list[0].addr = (uintptr_t)b->inlined;
	}
	if (!e && qp->built)
		e = post_send(&x->qp_base, &qp->builds[0].wr, &bad);
	pthread_mutex_unlock(&x->qp_base.mutex);
	return e;
}

static void give_up(struct ibv_qp_ex *x) { pthread_mutex_unlock(&x->qp_base.mutex); }

/* begin_builds gives a queue pair these functions. */
void begin_builds(struct qp *qp)
{
	struct ibv_qp_ex *x = &qp->ex;
	qp->builds = malloc(8 * sizeof *qp->builds);
	if (!qp->builds)
		return; /* ibv_qp_to_qp_ex returns NULL then */
	qp->capacity = 8;
	x->wr_start = start, x->wr_complete = complete, x->wr_abort = give_up;
	x->wr_atomic_cmp_swp = atomic_swap, x->wr_atomic_fetch_add = atomic_add;
	x->wr_rdma_read = rdma_read, x->wr_rdma_write = rdma_write, x->wr_rdma_write_imm = rdma_write_imm;
	x->wr_local_inv = local_inv;
	x->wr_send = send_plain, x->wr_send_imm = send_imm, x->wr_send_inv = send_inv;
	x->wr_set_ud_addr = set_ud, x->wr_set_sge = set_sge, x->wr_set_sge_list = set_list;
	x->wr_set_inline_data = set_inline, x->wr_set_inline_data_list = set_inline_list;
}
