/* option.c - setsockopt and getsockopt. */

#include "datagram.h"
#include "rebind.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <stdatomic.h>

/* kept_by_kernel names the options that have their effect on the AF_UNIX socket itself. */
static bool kept_by_kernel(int level, int name)
{
	if (level != SOL_SOCKET)
		return false;
	switch (name) {
	case SO_RCVTIMEO:
	case SO_SNDTIMEO:
	case SO_RCVLOWAT:
#if defined SO_RCVTIMEO_NEW && SO_RCVTIMEO_NEW != SO_RCVTIMEO
	case SO_RCVTIMEO_NEW:
	case SO_SNDTIMEO_NEW:
#endif
		return true;
	}
	return false;
}

/* is_registered reports whether the node has the other end of a socket. */
static bool is_registered(int fd)
{
	struct ucred peer = {0, (uid_t)-1, (gid_t)-1};
	socklen_t len = sizeof peer;
	return KERNEL(getsockopt, fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0 || peer.uid != (uid_t)-1;
}

/*
 * keep_early keeps an option that is set before the node knows the socket in the socket itself, where the node finds it with the
 * first request: a round trip to the node costs as much as the rest of connect(2). SO_INCOMING_CPU means nothing to AF_UNIX. False is
 * that the node has to be asked: it knows the socket, or another thread is about to.
 */
static bool keep_early(int fd, int level, int name, const void *value, socklen_t len)
{
	static atomic_flag busy = ATOMIC_FLAG_INIT;
	int bit = -1, on, kept = 0;
	socklen_t size = sizeof kept;
	if (level == IPPROTO_TCP && name == TCP_NODELAY)
		bit = SHIM_EARLY_NODELAY;
	if (level == SOL_SOCKET && name == SO_KEEPALIVE)
		bit = SHIM_EARLY_KEEPALIVE;
	if (bit < 0 || len < sizeof on || atomic_flag_test_and_set(&busy))
		return false;
	memcpy(&on, value, sizeof on);
	bool done = KERNEL(getsockopt, fd, SOL_SOCKET, SO_INCOMING_CPU, &kept, &size) == 0;
	if ((kept & SHIM_EARLY_MASK) != SHIM_EARLY)
		kept = SHIM_EARLY;
	kept = (kept & ~(3 << bit)) | (on != 0 ? 3 : 1) << bit;
	done = done && KERNEL(setsockopt, fd, SOL_SOCKET, SO_INCOMING_CPU, &kept, sizeof kept) == 0;
	atomic_flag_clear(&busy);
	return done && !is_registered(fd); /* in this order: it may be registered meanwhile */
}

INTERPOSED int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	struct mark m = read_mark(fd);
	if (m.kind != NOT_OURS && kept_by_kernel(level, name))
		rings_timed(fd);
	if (m.kind == NOT_OURS || kept_by_kernel(level, name))
		return (int)KERNEL(setsockopt, fd, level, name, value, len);
	struct shim_request q = {.op = SHIM_SETOPT, .level = level, .name = name, .len = len};
	struct shim_reply reply;
	if (no_memory(value, len))
		return bad_address();
	if (len > sizeof q.value) {
		errno = EINVAL;
		return -1;
	}
	if (len != 0)
		memcpy(q.value, value, len);
	if (level == IPPROTO_UDP && name == UDP_CORK)
		cork_used();
	int result = m.kind == STREAM && !m.connected && keep_early(fd, level, name, value, len) ? 0 : ask(&q, fd, &reply);
	if (result == 0 && !m.connected)
		remember_option(fd, level, name, value, len);
	return result;
}

/* known answers what the mark says. */
static bool known(const struct mark *m, int level, int name, int *value)
{
	if (level != SOL_SOCKET)
		return false;
	switch (name) {
	case SO_DOMAIN:
		*value = m->family;
		return true;
	case SO_TYPE:
		*value = m->kind == STREAM ? SOCK_STREAM : SOCK_DGRAM;
		return true;
	case SO_PROTOCOL:
		*value = m->kind == STREAM ? IPPROTO_TCP : IPPROTO_UDP;
		return true;
	}
	return false;
}

static void copy_value(const void *from, socklen_t have, void *to, socklen_t *len)
{
	socklen_t n = have < *len ? have : *len;
	memcpy(to, from, n);
	*len = n;
}

/*
 * intact reports whether a connection, or one that begins, has not failed: nothing has to be asked of the node then. The kernel
 * refuses an empty write if either end is closed, or the node has ended the program's direction, as it does after a reset.
 * nginx asks for SO_ERROR before each request that it passes on.
 */
static bool intact(int fd, const struct mark *m)
{
	return m->kind == STREAM && m->connected && KERNEL(sendto, fd, NULL, 0, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0) == 0;
}

/* A closed channel shows at the end of the node before a socket does, or behind: the kernel has the second word. */
int socket_error(int fd)
{
	struct shim_request q = {.op = SHIM_GETOPT, .level = SOL_SOCKET, .name = SO_ERROR, .len = sizeof(int)};
	struct shim_reply reply;
	int cause = 0, kernel = 0;
	socklen_t len = sizeof kernel;
	KERNEL(getsockopt, fd, SOL_SOCKET, SO_ERROR, &kernel, &len); /* ECONNRESET: the node has closed its end */
	if (request(&q, fd, &reply, NULL) == 0 && reply.error == 0 && reply.len == sizeof cause)
		memcpy(&cause, reply.value, sizeof cause);
	return cause != 0 ? cause : kernel;
}

INTERPOSED int getsockopt(int fd, int level, int name, void *restrict value, socklen_t *restrict len)
{
	struct mark m = read_mark(fd);
	if (m.kind == NOT_OURS || kept_by_kernel(level, name))
		return (int)KERNEL(getsockopt, fd, level, name, value, len);
	if (no_memory(len, sizeof *len))
		return bad_address();
	if (*len > INT32_MAX) { /* negative, as the kernel sees it */
		errno = EINVAL;
		return -1;
	}
	if (no_memory(value, *len))
		return bad_address();
	int fixed;
	if (known(&m, level, name, &fixed)) {
		copy_value(&fixed, sizeof fixed, value, len);
		return 0;
	}
	if (level == SOL_SOCKET && name == SO_ERROR) {
		fixed = intact(fd, &m) ? 0 : m.kind == STREAM ? socket_error(fd) : datagram_error(fd);
		copy_value(&fixed, sizeof fixed, value, len);
		return 0;
	}
	struct shim_reply reply;
	uint32_t most = *len < sizeof reply.value ? *len : sizeof reply.value; /* a longer buffer is no error: *len has the length */
	struct shim_request q = {.op = SHIM_GETOPT, .level = level, .name = name, .len = most};
	if (ask(&q, fd, &reply) != 0)
		return -1;
	copy_value(reply.value, reply.len <= sizeof reply.value ? reply.len : 0, value, len);
	return 0;
}
