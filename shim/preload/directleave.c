/*
 * directleave.c - the return of rings between two programs to the socket: of what we write, and of what we read.
 */

#include "doorbell.h"
#include "cursor.h"

#include <fcntl.h>
#include <poll.h>

#define PATIENCE 1000000000ull /* ns: for a program whose bytes we have not read, until it makes a call */

static const char zero;

static void raise_buffer(int fd)
{
	int bytes = 208 << 10; /* sendBuffer of the node */
	KERNEL(setsockopt, fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

/* takes reports whether the socket takes n bytes and the doorbell bytes before them. */
static bool takes(int fd, uint32_t n)
{
	int have = 0;
	socklen_t len = sizeof have;
	raise_buffer(fd);
	return KERNEL(getsockopt, fd, SOL_SOCKET, SO_SNDBUF, &have, &len) == 0 && (uint32_t)have >= 2 * n + 4 * DIRECT_FILL;
}

int direct_return(struct rings *r, int fd)
{
	struct direct_direction *d = outgoing(r);
	struct direct_side *s = r->side;
	if (gave_up(r))
		return 0;
	if (!takes(fd, (s->tail - atomic_load(&d->head)) & DIRECT_INDEX))
		return -1;
	direct_silence(d);
	uint32_t head = atomic_fetch_or(&d->head, DIRECT_LEFT) & DIRECT_INDEX, left = (s->tail - head) & DIRECT_INDEX;
	s->back = 1;
	if (left > r->size)
		return direct_fail(r, fd);
	while (left > 0) {
		uint32_t at = head & (r->size - 1), n = left < r->size - at ? left : r->size - at;
		long sent = KERNEL(sendto, fd, r->data[r->number] + at, n, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			return errno == EAGAIN ? direct_fail(r, fd) : 0; /* else the other has closed its socket */
		head += (uint32_t)sent;
		left -= (uint32_t)sent;
	}
	return 0;
}

void direct_asked(struct rings *r, int fd)
{
	struct direct_direction *d = outgoing(r);
	if (atomic_load_explicit(&d->asked, memory_order_relaxed) != 1 || !direct_lock_send(r))
		return;
	int saved = errno;
	direct_return(r, fd);
	direct_unlock(&r->side->send);
	atomic_store(&d->asked, 2);
	wake_all(&d->asked);
	errno = saved;
}

/*
 * renounce ends the use of the ring to us. That needs nothing if it is empty; otherwise the other program puts the bytes into the
 * socket, with its next call. False is that it has not for PATIENCE, or has ended. Both locks are held.
 */
static bool renounce(struct rings *r, int fd)
{
	struct direct_direction *d = incoming(r);
	uint64_t end = now() + PATIENCE;
	while (!by_socket(d)) {
		uint32_t head = r->side->head;
		if (atomic_compare_exchange_strong(&d->tail, &head, head | DIRECT_LEFT)) {
			direct_silence(d);
			break;
		}
		if (atomic_exchange(&d->asked, 1) != 1)
			direct_announce(r, fd, true);
		direct_free(r, fd, 1); /* it may wait for space */
		if (hung_up(fd) || now() > end)
			return false;
		sleep_on(&d->asked, 1, DIRECT_PAUSE);
	}
	direct_free(r, fd, 0);
	for (int stripped; (stripped = direct_strip(r, fd)) != 1;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		struct timespec pause = {0, DIRECT_PAUSE};
		if (stripped < 0 || hung_up(fd) || now() > end)
			return false;
		KERNEL(ppoll, &p, 1, &pause, NULL, 0); /* the last one is on its way */
	}
	return true;
}

/*
 * successor makes a socket that has what is unread, and then the end of the stream, or a reset if the other program was still
 * there. Other processes that share the end go on with the rings. -1 is that there is none.
 */
static int successor(struct rings *r, int fd)
{
	bool ended = hung_up(fd);
	int pair[2], priority = 0;
	socklen_t len = sizeof priority;
	uint32_t left, head = r->side->head;
	if (!direct_used(r, &left) || KERNEL(socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
		direct_fail(r, fd);
		return -1;
	}
	KERNEL(getsockopt, fd, SOL_SOCKET, SO_PRIORITY, &priority, &len);
	KERNEL(setsockopt, pair[0], SOL_SOCKET, SO_PRIORITY, &priority, sizeof priority);
	raise_buffer(pair[1]);
	while (left > 0) {
		uint32_t at = head & (r->size - 1), n = left < r->size - at ? left : r->size - at;
		long sent = KERNEL(sendto, pair[1], r->data[1 - r->number] + at, n, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
		if (sent <= 0)
			ended = false;
		if (sent <= 0)
			break;
		head += (uint32_t)sent;
		left -= (uint32_t)sent;
	}
	if (!ended) /* unread at its end: the close of that is a reset */
		KERNEL(sendto, pair[0], &zero, 1, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
	KERNEL(close, pair[1]);
	KERNEL(fcntl, pair[0], F_SETFL, KERNEL(fcntl, fd, F_GETFL));
	KERNEL(fcntl, pair[0], F_SETFD, KERNEL(fcntl, fd, F_GETFD));
	return pair[0];
}

/* replace makes fd the socket next, if there is one. It returns what remains. */
static int replace(int fd, int next)
{
	if (next < 0)
		return fd;
	KERNEL(dup3, next, fd, (KERNEL(fcntl, fd, F_GETFD) & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0);
	KERNEL(close, next);
	return fd;
}

/* leave returns the number of what has the stream from now on, which is fd if the program knows that. */
static int leave(struct rings *r, int fd, bool known)
{
	int next = fd;
	if ((atomic_load(&r->side->flags) & SIDE_BROKEN) != 0 || !direct_lock_send(r))
		return fd;
	if (direct_lock_receive(r, fd)) {
		bool left = renounce(r, fd); /* before the other way is that of the socket: it may need doorbell bytes */
		if (direct_return(r, fd) != 0)
			direct_fail(r, fd);
		else if (!left)
			next = known ? replace(fd, successor(r, fd)) : successor(r, fd);
		direct_unlock(&r->side->receive);
	}
	direct_unlock(&r->side->send);
	return next;
}

void direct_leave(struct rings *r, int fd)
{
	leave(r, fd, true);
}

int direct_decline(struct rings *r, int fd)
{
	int next = leave(r, fd, false);
	if (next < 0 || next == fd)
		return fd;
	KERNEL(close, fd);
	return next;
}
