#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct cm_id *table[MAX_IDS];

void enter_id(struct cm_id *id)
{
	pthread_mutex_lock(&table_lock);
	table[id->number % MAX_IDS] = id;
	pthread_mutex_unlock(&table_lock);
}

/* find_id returns the identifier with a number. It does not end while it has an event that the program has not acknowledged. */
struct cm_id *find_id(uint32_t number)
{
	pthread_mutex_lock(&table_lock);
	struct cm_id *id = number < MAX_IDS ? table[number] : NULL;
	pthread_mutex_unlock(&table_lock);
	return id;
}

struct cm_id *new_id(struct rdma_event_channel *channel, void *context, int ps, int qp_type)
{
	struct cm_id *id = calloc(1, sizeof *id);
	if (!id)
		return NULL;
	id->abi.channel = channel, id->abi.context = context, id->abi.ps = ps, id->abi.qp_type = qp_type;
	id->number = NONE;
	pthread_mutex_init(&id->lock, NULL);
	pthread_cond_init(&id->acknowledged, NULL);
	return id;
}

void free_id(struct cm_id *id)
{
	pthread_mutex_destroy(&id->lock);
	pthread_cond_destroy(&id->acknowledged);
	free(id->passive_attr);
	free(id);
}

bool is_ud(const struct cm_id *id) { return id->abi.qp_type == QPT_UD; }

/* simple_call does a request that has no field but the identifier. */
int simple_call(struct cm_id *id, uint32_t op, struct cm_reply *r)
{
	struct cm_request q = {.op = op, .object = id->number};
	struct cm_reply ignored;
	return cm_call(&q, r ? r : &ignored, NULL, 0);
}

static void to_sockaddr(struct sockaddr_storage *to, const struct endpoint *e)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	if (e->any)
		return;
	memset(to, 0, sizeof *to);
	if (!memcmp(e->addr, mapped, sizeof mapped)) {
		struct sockaddr_in *a = (struct sockaddr_in *)to;
		a->sin_family = AF_INET, a->sin_port = htons(e->port);
		memcpy(&a->sin_addr, e->addr + 12, 4);
		return;
	}
	struct sockaddr_in6 *a = (struct sockaddr_in6 *)to;
	a->sin6_family = AF_INET6, a->sin6_port = htons(e->port);
	memcpy(&a->sin6_addr, e->addr, 16);
}

static int from_sockaddr(struct endpoint *to, const struct sockaddr *a)
{
	*to = (struct endpoint){.any = 1};
	if (!a)
		return 0;
	if (a->sa_family == AF_INET) {
		const struct sockaddr_in *v = (const struct sockaddr_in *)a;
		to->port = ntohs(v->sin_port), to->any = v->sin_addr.s_addr == INADDR_ANY;
		to->addr[10] = to->addr[11] = 0xff;
		memcpy(to->addr + 12, &v->sin_addr, 4);
		return 0;
	}
	if (a->sa_family == AF_INET6) {
		const struct sockaddr_in6 *v = (const struct sockaddr_in6 *)a;
		to->port = ntohs(v->sin6_port), to->any = IN6_IS_ADDR_UNSPECIFIED(&v->sin6_addr);
		memcpy(to->addr, &v->sin6_addr, 16);
		return 0;
	}
	return fail(EAFNOSUPPORT);
}

/* take_addresses copies what the node knows to where programs look. */
void take_addresses(struct cm_id *id, const struct cm_reply *r)
{
	struct rdma_addr *a = &id->abi.route.addr;
	to_sockaddr(&a->src_storage, &r->local);
	to_sockaddr(&a->dst_storage, &r->remote);
	memcpy(a->addr.sgid.raw, r->local.addr, 16);
	memcpy(a->addr.dgid.raw, r->remote.addr, 16);
	a->addr.pkey = 0xffff;
	unsigned mtu = 1;
	while (mtu < 5 && 256u << mtu <= r->mtu)
		mtu++;
	id->path = (struct ibv_sa_path_rec){
		.dgid = a->addr.dgid, .sgid = a->addr.sgid, .hop_limit = 64, .traffic_class = r->tos, .reversible = 1, .numb_path = 1, .pkey = 0xffff,
		.mtu_selector = 2, .mtu = (uint8_t)mtu, .rate_selector = 2, .rate = 3, .packet_life_time_selector = 2, .packet_life_time = 14,
	};
}

/* bind_device gives an identifier the device. */
void bind_device(struct cm_id *id)
{
	id->abi.verbs = device();
	id->abi.port_num = 1;
}

/* create_id makes an identifier, on a channel of its own where the program gives none. */
int create_id(struct rdma_event_channel *channel, struct rdma_cm_id **to, void *context, int ps, int qp_type)
{
	bool sync = !channel;
	if (sync && !(channel = rdma_create_event_channel()))
		return -1;
	struct cm_id *id = new_id(channel, context, ps, qp_type);
	struct cm_request q = {.op = OP_CM_CREATE_ID, .channel = ((struct event_channel *)channel)->number, .space = (uint32_t)ps, .service = (uint32_t)qp_type};
	struct cm_reply r;
	if (!id || cm_call(&q, &r, NULL, 0)) {
		int e = id ? errno : ENOMEM;
		if (id)
			free_id(id);
		if (sync)
			rdma_destroy_event_channel(channel);
		return fail(e);
	}
	id->number = r.object, id->sync = sync;
	enter_id(id);
	*to = &id->abi;
	return 0;
}

EXPORT int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **to, void *context, int ps)
{
	return create_id(channel, to, context, ps, ps == PS_UDP || ps == PS_IPOIB ? QPT_UD : QPT_RC);
}

EXPORT int rdma_destroy_id(struct rdma_cm_id *abi)
{
	struct cm_id *id = id_of(abi);
	struct cm_reply r;
	if (simple_call(id, OP_CM_DESTROY_ID, &r))
		return -1;
	forget_events(abi->channel, r.removed);
	if (abi->event)
		rdma_ack_cm_event(abi->event);
	pthread_mutex_lock(&id->lock);
	while (id->acks < r.reported)
		pthread_cond_wait(&id->acknowledged, &id->lock);
	pthread_mutex_unlock(&id->lock);
	pthread_mutex_lock(&table_lock);
	if (table[id->number % MAX_IDS] == id) /* else the number has been given again */
		table[id->number % MAX_IDS] = NULL;
	pthread_mutex_unlock(&table_lock);
	if (id->sync)
		rdma_destroy_event_channel(abi->channel);
	free_id(id);
	return 0;
}

EXPORT int rdma_migrate_id(struct rdma_cm_id *abi, struct rdma_event_channel *channel)
{
	struct cm_id *id = id_of(abi);
	bool sync = !channel;
	if (id->sync && sync)
		return fail(EINVAL);
	if (sync && !(channel = rdma_create_event_channel()))
		return -1;
	struct cm_request q = {.op = OP_CM_MIGRATE, .object = id->number, .channel = ((struct event_channel *)channel)->number};
	struct cm_reply r;
	if (cm_call(&q, &r, NULL, 0)) {
		int e = errno;
		if (sync)
			rdma_destroy_event_channel(channel);
		return fail(e);
	}
	forget_events(abi->channel, r.removed);
	if (id->sync) {
		if (abi->event) {
			rdma_ack_cm_event(abi->event);
			abi->event = NULL;
		}
		rdma_destroy_event_channel(abi->channel);
	}
	abi->channel = channel;
	id->sync = sync;
	return 0;
}

EXPORT int rdma_bind_addr(struct rdma_cm_id *abi, struct sockaddr *a)
{
	struct cm_id *id = id_of(abi);
	struct cm_request q = {.op = OP_CM_BIND, .object = id->number};
	struct cm_reply r;
	if (!a)
		return fail(EINVAL);
	if (from_sockaddr(&q.local, a) || cm_call(&q, &r, NULL, 0))
		return -1;
	if (!q.local.any) {
		take_addresses(id, &r);
		bind_device(id);
		return 0;
	}
	/* a wildcard address stays one, and belongs to no device yet */
	memcpy(&abi->route.addr.src_storage, a, a->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
	abi->route.addr.src_sin.sin_port = htons(r.local.port); /* at the same place in both versions */
	return 0;
}

EXPORT int rdma_resolve_addr(struct rdma_cm_id *abi, struct sockaddr *from, struct sockaddr *to, int timeout_ms)
{
	struct cm_id *id = id_of(abi);
	struct cm_request q = {.op = OP_CM_RESOLVE, .object = id->number, .timeout = timeout_ms < 0 ? 0 : (uint32_t)timeout_ms};
	struct cm_reply r;
	if (!to)
		return fail(EINVAL);
	if (from_sockaddr(&q.local, from) || from_sockaddr(&q.remote, to) || cm_call(&q, &r, NULL, 0))
		return -1;
	return complete(id);
}

EXPORT int rdma_resolve_route(struct rdma_cm_id *abi, int timeout_ms)
{
	(void)timeout_ms;
	struct cm_id *id = id_of(abi);
	return simple_call(id, OP_CM_RESOLVE_ROUTE, NULL) ? -1 : complete(id);
}

EXPORT int rdma_listen(struct rdma_cm_id *abi, int backlog)
{
	struct cm_id *id = id_of(abi);
	struct cm_request q = {.op = OP_CM_LISTEN, .object = id->number, .backlog = backlog < 0 ? 0 : (uint32_t)backlog};
	struct cm_reply r;
	if (cm_call(&q, &r, NULL, 0))
		return -1;
	if (!abi->route.addr.src_addr.sa_family)
		abi->route.addr.src_sin = (struct sockaddr_in){.sin_family = AF_INET};
	abi->route.addr.src_sin.sin_port = htons(r.local.port);
	return 0;
}

static uint16_t port_of(const struct sockaddr *a)
{
	return a->sa_family == AF_INET || a->sa_family == AF_INET6 ? ((const struct sockaddr_in *)a)->sin_port : 0;
}

EXPORT uint16_t rdma_get_src_port(struct rdma_cm_id *id) { return port_of(&id->route.addr.src_addr); }
EXPORT uint16_t rdma_get_dst_port(struct rdma_cm_id *id) { return port_of(&id->route.addr.dst_addr); }

EXPORT int rdma_set_option(struct rdma_cm_id *abi, int level, int option, void *value, size_t size)
{
	struct cm_id *id = id_of(abi);
	struct cm_request q = {.op = OP_CM_SET_OPTION, .object = id->number, .option = (uint32_t)option};
	struct cm_reply r;
	int number;
	if (level != OPTION_ID)
		return fail(ENOSYS); /* paths of InfiniBand */
	switch (option) {
	case OPTION_ID_TOS:
	case OPTION_ID_ACK_TIMEOUT:
		if (size != 1)
			return fail(EINVAL);
		q.value = *(uint8_t *)value;
		break;
	case OPTION_ID_REUSEADDR:
	case OPTION_ID_AFONLY:
		if (size != sizeof number)
			return fail(EINVAL);
		memcpy(&number, value, sizeof number);
		q.value = number != 0;
		if (option == OPTION_ID_AFONLY)
			return 0; /* the device has one address, of one version */
		break;
	}
	return cm_call(&q, &r, NULL, 0);
}
