#define _GNU_SOURCE
#include <errno.h>
#include <unistd.h>

#include "library.h"

/* find makes the event of the program's for one of the node's; the object counts it until it is acknowledged. false is that the object
 * has been destroyed. The tables are locked. */
static bool find(struct context *c, const struct event *e, struct ibv_async_event *to)
{
	if (e->object >= MAX_OBJECTS)
		return false;
	struct cq *cq = c->cqs[e->object];
	struct qp *qp = c->qps[e->object];
	struct srq *srq = c->srqs[e->object];
	switch (e->kind) {
	case EVENT_OVERRUN:
		if (!cq || cq->generation != e->generation)
			return false;
		*to = (struct ibv_async_event){{.cq = (struct ibv_cq *)cq}, EVENT_CQ_ERR};
		cq->async_events++;
		return true;
	case EVENT_FATAL:
		if (!qp || qp->generation != e->generation)
			return false;
		*to = (struct ibv_async_event){{.qp = &qp->ex.qp_base}, EVENT_QP_FATAL};
		qp->async_events++;
		return true;
	case EVENT_LIMIT:
		if (!srq || srq->generation != e->generation)
			return false;
		*to = (struct ibv_async_event){{.srq = &srq->abi}, EVENT_SRQ_LIMIT};
		srq->attr.srq_limit = 0;
		srq->async_events++;
		return true;
	}
	return false;
}

EXPORT int ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *to)
{
	struct context *c = context_of(ctx);
	for (;;) {
		struct event e;
		ssize_t n = read(ctx->async_fd, &e, sizeof e);
		if (n == 0 && !c->lost) { /* the node has ended */
			c->lost = true;
			*to = (struct ibv_async_event){{.port_num = 1}, EVENT_DEVICE_FATAL};
			return 0;
		}
		if (n != sizeof e) {
			if (n >= 0)
				errno = EIO;
			return -1;
		}
		pthread_mutex_lock(&c->tables);
		bool known = find(c, &e, to);
		pthread_mutex_unlock(&c->tables);
		if (known)
			return 0;
	}
}

static void acknowledge(pthread_mutex_t *m, pthread_cond_t *cond, uint32_t *count)
{
	pthread_mutex_lock(m);
	++*count;
	pthread_cond_broadcast(cond);
	pthread_mutex_unlock(m);
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *e)
{
	struct ibv_cq *cq = e->element.cq;
	struct ibv_qp *qp = e->element.qp;
	struct ibv_srq *srq = e->element.srq;
	switch (e->event_type) {
	case EVENT_CQ_ERR:
		acknowledge(&cq->mutex, &cq->cond, &cq->async_events_completed);
		break;
	case EVENT_QP_FATAL:
		acknowledge(&qp->mutex, &qp->cond, &qp->events_completed);
		break;
	case EVENT_SRQ_LIMIT:
		acknowledge(&srq->mutex, &srq->cond, &srq->events_completed);
		break;
	}
}
