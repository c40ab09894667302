/*
 * rebind.c - listeners and bound sockets of datagrams that are made again once another node runs (docs/design/052-rebind.md).
 *
 * The program notices nothing but a pause: accept(2) and recv(2), which find that the node is gone, put a socket of the next node in
 * the place of the old one. Each process that shares a listener makes one of its own, by SO_REUSEPORT, because the kernel
 * connects an AF_UNIX socket once. One that never accepts, as the master of workers, keeps the old one.
 */

#include "remember.h"
#include "rings.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/time.h>
#include <time.h>

#define PAUSE 100000000 /* ns between two tries of a process */
#define BACKLOG 4096    /* of a listener that came by exec: the most that a node gives by default */

static _Atomic uint64_t maker; /* the lock of the thread that makes a socket again */
static _Atomic uint64_t next_try;

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* pause_until sleeps until a time, and longer if it is none. False is that a signal has ended that, which ends the call. */
static bool pause_until(uint64_t end)
{
	for (uint64_t is; (is = now()) < end;) {
		uint64_t left = end - is;
		struct timespec t = {(time_t)(left / 1000000000), (long)(left % 1000000000)};
		if (KERNEL(nanosleep, &t, NULL) != 0 && !restarts())
			return false;
	}
	return true;
}

static bool hung_up(int fd)
{
	const struct timespec at_once = {0, 0};
	struct pollfd p = {.fd = fd};
	return KERNEL(ppoll, &p, 1, &at_once, NULL, 0) == 1 && (p.revents & POLLHUP) != 0;
}

/* begins asks the node that runs now, and returns its number; 0 is that none does, or that it is about to end. */
static uint32_t begins(int fd)
{
	struct shim_request q = {.op = SHIM_NAMES};
	struct shim_reply reply;
	uint32_t instance = 0;
	if (request(&q, fd, &reply, NULL) == 0 && reply.error == 0 && reply.len == sizeof instance)
		memcpy(&instance, reply.value, sizeof instance);
	return instance;
}

/* known fills in what is known of a socket. A listener that came by exec has its name. */
static bool known(int fd, struct remembered *r)
{
	struct shim_name name;
	uint64_t cookie = cookie_of(fd);
	bool remembered = recall(cookie, r), named = own_name(fd, &name) && name.remote.family == 0;
	if (!remembered)
		memset(r, 0, sizeof *r);
	r->cookie = cookie;
	if (named) {
		r->instance = name.process;
		if (r->addr.family == 0)
			r->addr = name.local;
		if (r->backlog == 0)
			r->backlog = BACKLOG;
	}
	return r->addr.family != 0 && r->addr.port != 0;
}

static bool set(int fd, int level, int name, const void *value, uint32_t len)
{
	struct shim_request q = {.op = SHIM_SETOPT, .level = level, .name = name, .len = len};
	struct shim_reply reply;
	memcpy(q.value, value, len);
	return ask(&q, fd, &reply) == 0;
}

/* prepare gives a new socket what the program has given the old one. */
static bool prepare(int next, const struct mark *m, const struct remembered *r)
{
	int one = 1;
	struct shim_request bind = {.op = SHIM_BIND, .addr = r->addr}, listen = {.op = SHIM_LISTEN, .arg = r->backlog, .name = rings_wanted()};
	struct shim_reply reply;
	if (set_mark(next, m->family) != 0)
		return false;
	for (unsigned i = 0; i < r->options; i++)
		set(next, r->option[i].level, r->option[i].name, r->option[i].value, r->option[i].len);
	/* Other processes that share the socket make one of their own. The address may be in use by connections, too. */
	if (!set(next, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one) || (m->kind == STREAM && !set(next, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one)))
		return false;
	if (r->permitted) {
		memcpy(bind.value, r->permit, sizeof r->permit);
		bind.len = sizeof r->permit;
	}
	return ask(&bind, next, &reply) == 0 && (m->kind != STREAM || ask(&listen, next, &reply) == 0);
}

/* report_refusal writes why the next node does not let the program have its port. */
static void report_refusal(const struct shim_addr *a, int cause)
{
	char text[160];
	snprintf(text, sizeof text, "port %u cannot be had again: %s; it is tried again", a->port, strerrordesc_np(cause));
	report_once(text);
}

/* make puts a socket of the node with that number in the place of fd. */
static bool make(int fd, const struct mark *m, const struct remembered *r, uint32_t instance)
{
	int next = (int)KERNEL(socket, AF_UNIX, (m->kind == STREAM ? SOCK_STREAM : SOCK_SEQPACKET) | SOCK_CLOEXEC, 0);
	if (next < 0)
		return false;
	rings_renew(next);
	copy_times(fd, next);
	bool done = prepare(next, m, r);
	if (!done)
		report_refusal(&r->addr, errno);
	else if (replace(fd, next)) {
		replaced(r, fd, instance);
		report_once("the node is back: listeners and bound sockets are made again");
	}
	KERNEL(close, next);
	return done;
}

/* try_again is make_again once. */
static enum again try_again(int fd, const struct mark *m)
{
	struct remembered r;
	if (!hold(&maker)) {
		pause_until(now() + 1000000);
		return AGAIN_LATER;
	}
	enum again result = AGAIN_DONE;
	if (hung_up(fd)) { /* otherwise another thread has made it again meanwhile */
		uint32_t instance = known(fd, &r) ? begins(fd) : r.instance;
		result = AGAIN_LATER;
		if (instance == r.instance)
			result = AGAIN_NEVER; /* a process has shut it down, or it has no port */
		else if (instance != 0 && make(fd, m, &r, instance))
			result = AGAIN_DONE;
	}
	let_go(&maker);
	return result;
}

enum again make_again(int fd, const struct mark *m, bool waits)
{
	struct timeval limit = {0};
	socklen_t len = sizeof limit;
	if (!own_memory())
		return AGAIN_NEVER;
	KERNEL(getsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, &limit, &len);
	uint64_t most = (uint64_t)limit.tv_sec * 1000000000 + (uint64_t)limit.tv_usec * 1000, end = most != 0 ? now() + most : UINT64_MAX;
	report_once("the node has ended: listeners and bound sockets are made again when it is back (--on-node-loss=rebind)");
	for (;;) {
		bool signalled = !pause_until(atomic_load(&next_try));
		atomic_store(&next_try, now() + PAUSE);
		enum again result = try_again(fd, m);
		if (result == AGAIN_DONE)
			atomic_store(&next_try, 0); /* others follow at once */
		if (result != AGAIN_LATER)
			return result;
		if (!waits || signalled || now() >= end) {
			if (!waits)
				rearm(fd);
			errno = signalled && waits ? EINTR : EAGAIN;
			return result;
		}
	}
}
