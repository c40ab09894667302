/*
 * pending.c - errors of datagrams that wait to be taken: SO_ERROR, and the queue of errors (IP_RECVERR).
 *
 * The node has them. While one stands there is a notice of it in the socket, so that poll(2), epoll(7) and select(2) wake: a message without
 * bytes and with a descriptor, for which there is no space here. Whoever takes a notice reports that with its next request, and the
 * node sends another one if an error still stands. An error that was taken behind unread datagrams leaves a stale notice: whoever meets it
 * asks the node.
 */

#include "datagram.h"

#include <linux/sockios.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <time.h>

#define ERROR_PAUSE 1000000 /* ns: how often a send looks whether one before has failed */

bool is_notice(long n, const struct msghdr *got)
{
	return n == 0 && (got->msg_flags & MSG_CTRUNC) != 0;
}

enum next { NEXT_NONE, NEXT_DATAGRAM, NEXT_NOTICE };

/* next_of returns what a call would receive, and keeps errno. */
static enum next next_of(int fd)
{
	struct msghdr none = {0};
	int saved = errno;
	long n = KERNEL(recvmsg, fd, &none, MSG_PEEK | MSG_DONTWAIT);
	errno = saved;
	if (n < 0)
		return NEXT_NONE;
	return is_notice(n, &none) ? NEXT_NOTICE : NEXT_DATAGRAM;
}

int take_notices(int fd)
{
	int taken = 0, saved = errno;
	while (taken < SHIM_NOTICES && next_of(fd) == NEXT_NOTICE) {
		KERNEL(recvfrom, fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
		taken++;
	}
	errno = saved;
	return taken;
}

int ask_pending(int fd, int arg, bool *stands)
{
	struct shim_request q = {.op = SHIM_PENDING, .arg = arg};
	struct shim_reply reply;
	struct shim_pending p = {0, 0};
	int saved = errno;
	if (request(&q, fd, &reply, NULL) == 0 && reply.error == 0 && reply.len == sizeof p)
		memcpy(&p, reply.value, sizeof p);
	else if ((arg & SHIM_TAKE) != 0) { /* the node has gone: the kernel has the word */
		int kernel = 0;
		socklen_t len = sizeof kernel;
		KERNEL(getsockopt, fd, SOL_SOCKET, SO_ERROR, &kernel, &len);
		p.error = (uint32_t)kernel;
	}
	if (stands != NULL)
		*stands = p.stands != 0;
	errno = saved;
	return (int)p.error;
}

int datagram_error(int fd)
{
	return ask_pending(fd, SHIM_TAKE | take_notices(fd), NULL);
}

/*
 * failed_before takes the error that ICMP has reported of a datagram before, which is the result of the next send of a socket that is connected,
 * or has a queue of errors (udp(7)). To look costs a system call, so that sends in quick succession do not.
 */
bool failed_before(int fd)
{
	static _Atomic uint64_t last;
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	uint64_t now = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
	if (now - atomic_exchange_explicit(&last, now, memory_order_relaxed) < ERROR_PAUSE || next_of(fd) != NEXT_NOTICE)
		return false;
	int cause = datagram_error(fd);
	if (cause != 0)
		errno = cause;
	return cause != 0;
}

/* bytes_wait reports whether a socket has unread bytes. A datagram without any, of a connected socket, does not show. */
static bool bytes_wait(int fd)
{
	int n = 0, saved = errno;
	bool wait = KERNEL(ioctl, fd, SIOCINQ, &n) == 0 && n > 0;
	errno = saved;
	return wait;
}

short pending_events(int fd)
{
	if (data_mark(fd, true).kind < DATAGRAM)
		return POLLIN;
	bool stands = false;
	enum next next = next_of(fd);
	/* Only with a queue may an error stand that no notice announces before the datagrams: to ask costs as much as to receive some. */
	if (next != NEXT_NOTICE && (form_of(fd) & SHIM_FORM_QUEUE) == 0)
		return POLLIN;
	ask_pending(fd, 0, &stands);
	if (!stands && next == NEXT_NOTICE) {
		ask_pending(fd, take_notices(fd), &stands); /* one may have come between */
		next = next_of(fd);
	}
	bool data = next == NEXT_DATAGRAM || (next == NEXT_NOTICE && bytes_wait(fd));
	return (short)((stands ? POLLERR : 0) | (data ? POLLIN : 0));
}

bool datagram_waits(int fd)
{
	return next_of(fd) == NEXT_DATAGRAM;
}

/* put_parts copies n bytes into the parts of a message. It returns how many had space. */
static size_t put_parts(const struct msghdr *m, const uint8_t *data, size_t n)
{
	size_t put = 0;
	for (size_t i = 0; i < m->msg_iovlen && put < n; i++) {
		size_t some = m->msg_iov[i].iov_len < n - put ? m->msg_iov[i].iov_len : n - put;
		if (some > 0)
			memcpy(m->msg_iov[i].iov_base, data + put, some);
		put += some;
	}
	return put;
}

ssize_t receive_error(int fd, const struct mark *mark, struct msghdr *m)
{
	struct shim_request q = {.op = SHIM_ERRORS};
	struct shim_reply reply = {0};
	struct shim_error e;
	if (mark->kind == STREAM) { /* nothing that fills it can be set */
		errno = EAGAIN;
		return -1;
	}
	q.arg = take_notices(fd);
	if (ask(&q, fd, &reply) != 0)
		return -1;
	if (reply.len < sizeof e || reply.len > sizeof reply.value) {
		errno = EPROTO;
		return -1;
	}
	memcpy(&e, reply.value, sizeof e);
	size_t left = reply.len - sizeof e, put = put_parts(m, reply.value + sizeof e, left);
	m->msg_flags = MSG_ERRQUEUE | (put < left ? MSG_TRUNC : 0);
	if (m->msg_name != NULL && reply.remote.family != 0)
		encode_address(&reply.remote, mark->family, m->msg_name, &m->msg_namelen);
	else
		m->msg_namelen = 0;
	write_error(m, &e, &reply.local, mark->family);
	return (ssize_t)put;
}
