#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <string.h>

#include "rsocket.h"

static int copy_name(const struct sockaddr_storage *from, struct sockaddr *to, socklen_t *size)
{
	socklen_t n = from->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
	memcpy(to, from, *size < n ? *size : n);
	*size = n;
	return 0;
}

EXPORT int rgetpeername(int fd, struct sockaddr *a, socklen_t *size)
{
	struct rsocket *s = rsocket_of(fd);
	if (!s)
		return -1;
	if (s->state < RS_ACCEPTING)
		return fail(ENOTCONN);
	return copy_name(&s->id->route.addr.dst_storage, a, size);
}

EXPORT int rgetsockname(int fd, struct sockaddr *a, socklen_t *size)
{
	struct rsocket *s = rsocket_of(fd);
	return s ? copy_name(&s->id->route.addr.src_storage, a, size) : -1;
}

EXPORT int rfcntl(int fd, int command, ...)
{
	struct rsocket *s = rsocket_of(fd);
	va_list more;
	va_start(more, command);
	int value = va_arg(more, int);
	va_end(more);
	if (!s)
		return -1;
	switch (command) {
	case F_GETFL:
		return s->flags;
	case F_SETFL:
		/* of the channel, which calls for connections read; those for data look at the flag */
		if (s->state < RS_CONNECTED && fcntl(s->id->channel->fd, F_SETFL, value & O_NONBLOCK))
			return -1;
		s->flags = value & O_NONBLOCK;
		return 0;
	}
	return fail(EOPNOTSUPP);
}

#define LEVEL_RDMA 0x10000
enum { RDMA_SEND_DEPTH, RDMA_RECV_DEPTH, RDMA_INLINE };

/* an option is a word of a socket, within bounds. Those of the queue pair are read when it connects. */
struct option {
	int level, name;
	size_t at;
	uint32_t least, most;
	bool early;
};

static const struct option options[] = {
	{SOL_SOCKET, SO_SNDBUF, offsetof(struct rsocket, send_size), 2 * LOW_WATER, 1 << 26, true},
	{SOL_SOCKET, SO_RCVBUF, offsetof(struct rsocket, recv_size), 2 * LOW_WATER, 1 << 26, true},
	{IPPROTO_TCP, TCP_NODELAY, offsetof(struct rsocket, nodelay), 0, 1, false}, /* nothing is held back */
	{LEVEL_RDMA, RDMA_SEND_DEPTH, offsetof(struct rsocket, send_depth), 16, 8192, true},
	{LEVEL_RDMA, RDMA_RECV_DEPTH, offsetof(struct rsocket, recv_depth), 16, 8192, true},
	{LEVEL_RDMA, RDMA_INLINE, offsetof(struct rsocket, inlined), 64, 1024, true},
};

static const struct option *find(int level, int name)
{
	for (size_t i = 0; i < sizeof options / sizeof *options; i++)
		if (options[i].level == level && options[i].name == name)
			return &options[i];
	return NULL;
}

EXPORT int rsetsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
	struct rsocket *s = rsocket_of(fd);
	const struct option *o = find(level, name);
	uint32_t v;
	if (!s)
		return -1;
	if (size < sizeof v)
		return fail(EINVAL);
	memcpy(&v, value, sizeof v);
	if (level == SOL_SOCKET && name == SO_REUSEADDR)
		return rdma_set_option(s->id, OPTION_ID, OPTION_ID_REUSEADDR, &v, sizeof v);
	if (!o)
		return fail(ENOPROTOOPT);
	if (o->early && s->state > RS_LISTENING)
		return fail(EINVAL);
	v = v < o->least ? o->least : v > o->most ? o->most : v;
	*(uint32_t *)((char *)s + o->at) = o->at == offsetof(struct rsocket, recv_size) ? v & ~(uint32_t)1 : v; /* two halves */
	return 0;
}

EXPORT int rgetsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
	struct rsocket *s = rsocket_of(fd);
	const struct option *o = find(level, name);
	uint32_t v;
	if (!s)
		return -1;
	if (*size < sizeof v)
		return fail(EINVAL);
	if (level == SOL_SOCKET && name == SO_ERROR) {
		v = (uint32_t)s->error;
		s->error = 0;
	} else if (o) {
		v = *(uint32_t *)((char *)s + o->at);
	} else {
		return fail(ENOPROTOOPT);
	}
	memcpy(value, &v, sizeof v);
	*size = sizeof v;
	return 0;
}
