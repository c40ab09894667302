#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "library.h"

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	struct request q = {.op = OP_ALLOC_PD};
	struct reply r;
	struct ibv_pd *pd = calloc(1, sizeof *pd);
	if (!pd)
		return NULL;
	int e = call(context_of(ctx), &q, &r, NULL, 0);
	if (e) {
		free(pd);
		errno = e;
		return NULL;
	}
	*pd = (struct ibv_pd){.context = ctx, .handle = r.object};
	return pd;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	struct request q = {.op = OP_DEALLOC_PD, .object = pd->handle};
	struct reply r;
	int e = call(context_of(pd->context), &q, &r, NULL, 0);
	if (!e)
		free(pd);
	return e;
}

/* present makes pages exist as a device that pins them does, and finds those that are not there or not writable. */
static int present(void *addr, size_t length, bool writes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)addr & ~(page - 1);
	size_t size = ((uintptr_t)addr + length - first + page - 1) & ~(page - 1);
	if (madvise((void *)first, size, writes ? 23 : 22 /* MADV_POPULATE_WRITE, _READ */) == 0)
		return 0;
	return errno == EFAULT || errno == ENOMEM ? errno : 0; /* a kernel before 5.14, or memory of a device */
}

enum { ACCESS_KNOWN = 31, ACCESS_ZERO_BASED = 1 << 5, ACCESS_ON_DEMAND = 1 << 6, ACCESS_OPTIONAL = 0x3ff00000 };

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	struct context *c = context_of(pd->context);
	struct request q = {.op = OP_REG_MR, .pd = pd->handle, .addr = (uintptr_t)addr, .length = length, .va = iova, .access = access & ACCESS_KNOWN};
	struct reply r;
	int e = 0;
	if (access & (ACCESS_ZERO_BASED | ACCESS_ON_DEMAND))
		e = EOPNOTSUPP;
	else if (access & ~(unsigned)(ACCESS_KNOWN | ACCESS_OPTIONAL | 1 << 8 /* HUGETLB is a hint */))
		e = EINVAL;
	struct ibv_mr *mr = e ? NULL : calloc(1, sizeof *mr);
	if (!e && !mr)
		e = ENOMEM;
	if (!e && length)
		e = present(addr, length, access & 1);
	if (!e)
		e = call(c, &q, &r, NULL, 0);
	if (e) {
		free(mr);
		errno = e;
		return NULL;
	}
	*mr = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = addr, .length = length, .handle = r.object, .lkey = r.key, .rkey = r.key};
	if (iova == (uintptr_t)addr) /* others are left to the node */
		atomic_store(&c->regions[r.key >> 8 & (PLACES - 1)], mr);
	return mr;
}

EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned)access);
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct context *c = context_of(mr->context);
	struct request q = {.op = OP_DEREG_MR, .object = mr->handle};
	struct reply r;
	struct ibv_mr *old = mr;
	atomic_compare_exchange_strong(&c->regions[mr->lkey >> 8 & (PLACES - 1)], &old, NULL);
	int e = call(c, &q, &r, NULL, 0);
	if (!e)
		free(mr);
	return e;
}

struct ibv_mw *alloc_mw(struct ibv_pd *pd, int type)
{
	struct request q = {.op = OP_ALLOC_MW, .pd = pd->handle, .service = (uint32_t)type};
	struct reply r;
	struct ibv_mw *mw = calloc(1, sizeof *mw);
	int e = mw ? call(context_of(pd->context), &q, &r, NULL, 0) : ENOMEM;
	if (e) {
		free(mw);
		errno = e;
		return NULL;
	}
	*mw = (struct ibv_mw){.context = pd->context, .pd = pd, .rkey = r.key, .handle = r.object, .type = type};
	return mw;
}

int dealloc_mw(struct ibv_mw *mw)
{
	struct request q = {.op = OP_DEALLOC_MW, .object = mw->handle};
	struct reply r;
	int e = call(context_of(mw->context), &q, &r, NULL, 0);
	if (!e)
		free(mw);
	return e;
}

/* bind_mw is for windows of type 1, whose keys the library chooses: the present one with the next tag. */
int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *b)
{
	uint32_t rkey = (mw->rkey & ~0xffu) | ((mw->rkey + 1) & 0xff);
	struct ibv_send_wr w = {
		.wr_id = b->wr_id, .opcode = WR_BIND_MW, .send_flags = b->send_flags, .bind_mw = {mw, rkey, b->bind_info},
	}, *bad;
	int e = post_send(qp, &w, &bad);
	if (!e)
		mw->rkey = rkey;
	return e;
}

/* handle is an address handle with what the transport names it by. */
struct handle {
	struct ibv_ah abi;
	uint32_t number;
};

EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *a)
{
	struct request q = {.op = OP_CREATE_AH, .pd = pd->handle};
	struct reply r;
	struct handle *h = calloc(1, sizeof *h);
	int e = !h ? ENOMEM : !a->is_global || a->port_num != 1 || a->grh.sgid_index != 0 ? EINVAL : 0;
	memcpy(q.gid, a->grh.dgid.raw, sizeof q.gid);
	if (!e)
		e = call(context_of(pd->context), &q, &r, NULL, 0);
	if (e) {
		free(h);
		errno = e;
		return NULL;
	}
	*h = (struct handle){{.context = pd->context, .pd = pd, .handle = r.key}, r.object}; /* requests name the path */
	return &h->abi;
}

EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
	struct handle *h = CONTAINER(ah, struct handle, abi);
	struct request q = {.op = OP_DESTROY_AH, .object = h->number};
	struct reply r;
	int e = call(context_of(ah->context), &q, &r, NULL, 0);
	if (!e)
		free(h);
	return e;
}

/* ibv_init_ah_from_wc makes the attributes of the way back to the sender of a datagram. Of IPv4, the 40 bytes end with its header. */
EXPORT int ibv_init_ah_from_wc(struct ibv_context *ctx, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh, struct ibv_ah_attr *a)
{
	(void)ctx;
	*a = (struct ibv_ah_attr){.port_num = port, .sl = wc->sl, .is_global = 1, .grh.hop_limit = 64};
	if (!(wc->wc_flags & WC_FLAG_GRH)) {
		errno = EINVAL;
		return -1;
	}
	const unsigned char *b = (const unsigned char *)grh;
	if (b[0] >> 4 == 6) {
		a->grh.dgid = grh->sgid;
		return 0;
	}
	a->grh.dgid.raw[10] = a->grh.dgid.raw[11] = 0xff;
	memcpy(a->grh.dgid.raw + 12, b + 20 + 12, 4);
	return 0;
}

EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr a;
	return ibv_init_ah_from_wc(pd->context, port, wc, grh, &a) ? NULL : ibv_create_ah(pd, &a);
}
