#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>

#include "library.h"

EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *a)
{
	struct context *c = context_of(pd->context);
	struct request q = {.op = OP_CREATE_SRQ, .pd = pd->handle, .depth = a->attr.max_wr};
	struct reply r;
	struct srq *s = calloc(1, sizeof *s);
	int e = !s ? ENOMEM : a->attr.max_sge > MAX_ELEMENTS ? EINVAL : call(c, &q, &r, NULL, 0);
	if (e) {
		free(s);
		errno = e;
		return NULL;
	}
	if (!a->attr.max_sge)
		a->attr.max_sge = 1;
	s->abi = (struct ibv_srq){.context = pd->context, .srq_context = a->srq_context, .pd = pd, .handle = r.object};
	pthread_mutex_init(&s->abi.mutex, NULL);
	pthread_cond_init(&s->abi.cond, NULL);
	s->attr = a->attr, s->attr.srq_limit = 0, s->generation = r.generation;
	pthread_mutex_lock(&c->tables);
	c->srqs[r.object] = s;
	pthread_mutex_unlock(&c->tables);
	return &s->abi;
}

struct ibv_srq *create_srq_ex(struct ibv_context *ctx, struct ibv_srq_init_attr_ex *a)
{
	(void)ctx;
	if (a->comp_mask & ~(uint32_t)(SRQ_TYPE | SRQ_PD) || !(a->comp_mask & SRQ_PD) || (a->comp_mask & SRQ_TYPE && a->srq_type != SRQ_BASIC)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	struct ibv_srq_init_attr basic = {a->srq_context, a->attr};
	struct ibv_srq *s = ibv_create_srq(a->pd, &basic);
	a->attr = basic.attr;
	return s;
}

int get_srq_num(struct ibv_srq *s, uint32_t *n)
{
	*n = s->handle;
	return 0;
}

enum { SRQ_MAX_WR = 1, SRQ_LIMIT = 2 };

EXPORT int ibv_modify_srq(struct ibv_srq *abi, struct ibv_srq_attr *a, int mask)
{
	struct srq *s = srq_of(abi);
	struct request q = {.op = OP_MODIFY_SRQ, .object = abi->handle, .depth = a->srq_limit};
	struct reply r;
	if (mask & ~SRQ_LIMIT)
		return mask & SRQ_MAX_WR ? EOPNOTSUPP : EINVAL;
	if (!mask)
		return 0;
	if (a->srq_limit > s->attr.max_wr)
		return EINVAL;
	int e = call(context_of(abi->context), &q, &r, NULL, 0);
	if (!e)
		s->attr.srq_limit = a->srq_limit;
	return e;
}

EXPORT int ibv_query_srq(struct ibv_srq *s, struct ibv_srq_attr *a)
{
	*a = srq_of(s)->attr;
	return 0;
}

EXPORT int ibv_destroy_srq(struct ibv_srq *abi)
{
	struct srq *s = srq_of(abi);
	struct context *c = context_of(abi->context);
	struct request q = {.op = OP_DESTROY_SRQ, .object = abi->handle};
	struct reply r;
	int e = call(c, &q, &r, NULL, 0);
	if (e)
		return e;
	pthread_mutex_lock(&c->tables);
	c->srqs[abi->handle] = NULL;
	pthread_mutex_unlock(&c->tables);
	pthread_mutex_lock(&abi->mutex);
	while (abi->events_completed != s->async_events)
		pthread_cond_wait(&abi->cond, &abi->mutex);
	pthread_mutex_unlock(&abi->mutex);
	free(s);
	return 0;
}
