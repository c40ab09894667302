#define _GNU_SOURCE
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "library.h"

/* taken is an event that the program has; the private data lie behind it. */
struct taken {
	struct rdma_cm_event abi;
	struct cm_id *counts; /* whose end waits for the acknowledgement */
	uint8_t private[CM_PRIVATE];
};

EXPORT struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct event_channel *c = calloc(1, sizeof *c);
	struct cm_request q = {.op = OP_CM_CREATE_CHANNEL};
	struct cm_reply r;
	if (!c || cm_call(&q, &r, &c->abi.fd, 1)) {
		free(c);
		return NULL;
	}
	c->number = r.object;
	return &c->abi;
}

EXPORT void rdma_destroy_event_channel(struct rdma_event_channel *abi)
{
	struct event_channel *c = (struct event_channel *)abi;
	struct cm_request q = {.op = OP_CM_DESTROY_CHANNEL, .channel = c->number};
	struct cm_reply r;
	cm_call(&q, &r, NULL, 0);
	close(abi->fd);
	free(c);
}

/* forget_events takes count bytes from the descriptor of a channel, whose events are not reported any more. Another thread may have
 * taken some, and will find no event. */
void forget_events(struct rdma_event_channel *c, uint32_t count)
{
	struct pollfd p = {.fd = c->fd, .events = POLLIN};
	char one;
	while (count-- && poll(&p, 1, 0) == 1 && p.revents & POLLIN)
		if (read(c->fd, &one, 1) != 1)
			return;
}

/* accept_request makes the identifier of a peer's request. */
static struct cm_id *accept_request(struct cm_id *listener, const struct cm_reply *r)
{
	struct cm_id *id = new_id(listener->abi.channel, listener->abi.context, listener->abi.ps, listener->abi.qp_type);
	if (!id)
		return NULL;
	id->number = r->object;
	id->accepts = true, id->resources = r->connection.resources, id->depth = r->connection.depth;
	enter_id(id);
	take_addresses(id, r);
	bind_device(id);
	if (listener->sync && rdma_migrate_id(&id->abi, NULL)) {
		int e = errno;
		rdma_destroy_id(&id->abi);
		errno = e;
		return NULL;
	}
	return id;
}

static void fill_param(struct taken *e, const struct cm_reply *r, bool ud)
{
	const struct connection *c = &r->connection;
	memcpy(e->private, c->private, sizeof e->private);
	const void *private = c->private_len ? e->private : NULL;
	if (ud) {
		struct rdma_ud_param *p = &e->abi.param.ud;
		*p = (struct rdma_ud_param){.private_data = private, .private_data_len = (uint8_t)c->private_len, .qp_num = c->qpn, .qkey = c->qkey};
		p->ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64, .traffic_class = r->tos}};
		memcpy(p->ah_attr.grh.dgid.raw, r->remote.addr, sizeof r->remote.addr);
		return;
	}
	e->abi.param.conn = (struct rdma_conn_param){
		.private_data = private, .private_data_len = (uint8_t)c->private_len, .responder_resources = c->resources, .initiator_depth = c->depth,
		.flow_control = c->flow_control, .retry_count = c->retries, .rnr_retry_count = c->rnr_retries, .srq = c->srq, .qp_num = c->qpn,
	};
}

/* take makes the event of a reply. It returns false where the program does not see it. */
static bool take(struct taken *e, struct cm_id *id, const struct cm_reply *r)
{
	e->abi.id = &id->abi, e->abi.event = (int)r->kind, e->abi.status = r->status;
	e->counts = id;
	fill_param(e, r, is_ud(id));
	switch (r->kind) {
	case CM_ADDR_RESOLVED:
		take_addresses(id, r);
		bind_device(id);
		break;
	case CM_ROUTE_RESOLVED:
		id->abi.route.path_rec = &id->path;
		id->abi.route.num_paths = 1;
		break;
	case CM_CONNECT_REQUEST:
		e->abi.listen_id = &id->abi;
		id = accept_request(id, r);
		if (!id) {
			struct cm_request q = {.op = OP_CM_DESTROY_ID, .object = r->object}; /* which rejects it */
			struct cm_reply ignored;
			cm_call(&q, &ignored, NULL, 0);
			return false;
		}
		e->abi.id = &id->abi;
		break;
	case CM_CONNECT_RESPONSE:
		if (!id->abi.qp)
			break; /* the program leads its queue pair, and calls rdma_establish */
		e->abi.event = CM_ESTABLISHED;
		if (modify_connected(id) || rdma_establish(&id->abi)) {
			e->abi.event = CM_CONNECT_ERROR, e->abi.status = -errno;
			rdma_reject(&id->abi, NULL, 0);
			modify_error(id);
		}
		break;
	case CM_CONNECT_ERROR:
	case CM_UNREACHABLE:
	case CM_REJECTED:
		modify_error(id);
		break;
	}
	return true;
}

/* ended returns the result of a call that waits for an event on a channel whose other end is closed: the node has ended; or another thread
 * has destroyed the channel, and then the call never returns but for a signal, as programs that do so expect. */
static int ended(void)
{
	struct ibv_context *c = device();
	struct pollfd p = {.fd = c ? c->cmd_fd : -1, .events = POLLRDHUP};
	if (!c || (poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR)))
		return fail(ENODEV);
	return pause();
}

EXPORT int rdma_get_cm_event(struct rdma_event_channel *abi, struct rdma_cm_event **event)
{
	struct event_channel *c = (struct event_channel *)abi;
	if (!event)
		return fail(EINVAL);
	for (;;) {
		char one;
		ssize_t n = read(abi->fd, &one, 1);
		if (n <= 0)
			return n < 0 ? -1 : ended();
		struct cm_request q = {.op = OP_CM_GET_EVENT, .channel = c->number};
		struct cm_reply r;
		if (cm_call(&q, &r, NULL, 0))
			return -1;
		if (r.object == NONE)
			continue; /* it has been withdrawn */
		struct taken *e = calloc(1, sizeof *e);
		struct cm_id *id = find_id(r.listener == NONE ? r.object : r.listener);
		if (!e || !id) {
			free(e);
			return fail(ENOMEM);
		}
		if (take(e, id, &r)) {
			*event = &e->abi;
			return 0;
		}
		rdma_ack_cm_event(&e->abi);
	}
}

EXPORT int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	if (!event)
		return fail(EINVAL);
	struct taken *e = (struct taken *)event;
	pthread_mutex_lock(&e->counts->lock);
	e->counts->acks++;
	pthread_cond_broadcast(&e->counts->acknowledged);
	pthread_mutex_unlock(&e->counts->lock);
	free(e);
	return 0;
}

/* complete waits for the event of the last call of an identifier without a channel of the program's, and returns its result. */
int complete(struct cm_id *id)
{
	if (!id->sync)
		return 0;
	if (id->abi.event) {
		rdma_ack_cm_event(id->abi.event);
		id->abi.event = NULL;
	}
	if (rdma_get_cm_event(id->abi.channel, &id->abi.event))
		return -1;
	int status = id->abi.event->status;
	if (!status)
		return 0;
	if (id->abi.event->event == CM_REJECTED)
		return fail(ECONNREFUSED);
	return fail(status < 0 ? -status : status);
}

EXPORT const char *rdma_event_str(int event)
{
	static const char *const names[CM_EVENTS] = {
		"RDMA_CM_EVENT_ADDR_RESOLVED", "RDMA_CM_EVENT_ADDR_ERROR", "RDMA_CM_EVENT_ROUTE_RESOLVED", "RDMA_CM_EVENT_ROUTE_ERROR",
		"RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE", "RDMA_CM_EVENT_CONNECT_ERROR", "RDMA_CM_EVENT_UNREACHABLE",
		"RDMA_CM_EVENT_REJECTED", "RDMA_CM_EVENT_ESTABLISHED", "RDMA_CM_EVENT_DISCONNECTED", "RDMA_CM_EVENT_DEVICE_REMOVAL",
		"RDMA_CM_EVENT_MULTICAST_JOIN", "RDMA_CM_EVENT_MULTICAST_ERROR", "RDMA_CM_EVENT_ADDR_CHANGE", "RDMA_CM_EVENT_TIMEWAIT_EXIT",
	};
	return event >= 0 && event < CM_EVENTS ? names[event] : "UNKNOWN EVENT";
}
