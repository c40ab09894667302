/*
 * ringleave.c - the return of rings between two programs to the socket: of what this end writes, and of what it reads. This needs
 * no node. docs/design/039-direct-rings.md, "Back to the socket".
 */

#include "ringend.h"

#include <fcntl.h>

#define PATIENCE 1000000000ull /* ns: for a program whose bytes we have not read, until it makes a call */

static const char zero;

static void raise_buffer(int fd)
{
	int bytes = 208 << 10; /* sendBuffer of the node */
	KERNEL(setsockopt, fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

/*
 * takes reports whether the socket takes n bytes and the doorbell bytes before them. It is asked before anything is published: once the
 * ring is left there is no way back, and bytes that fit nowhere would be lost. The kernel counts its own overhead in SO_SNDBUF, which
 * getsockopt(2) returns doubled (socket(7)), hence the factor.
 */
static bool takes(int fd, uint64_t n)
{
	int have = 0;
	socklen_t len = sizeof have;
	raise_buffer(fd);
	return KERNEL(getsockopt, fd, SOL_SOCKET, SO_SNDBUF, &have, &len) == 0 && (uint64_t)have >= 2 * n + 4 * RING_FILL;
}

/* send_piece writes the n bytes of a ring from *at on, as far as they go in one call, and counts what was written. */
static long send_piece(const struct rings *r, int fd, uint32_t direction, uint64_t *at, uint32_t *n)
{
	struct iovec piece[2];
	pieces(r, direction, *at, *n, piece);
	long sent;
	do
		sent = KERNEL(sendto, fd, piece[0].iov_base, piece[0].iov_len, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
	while (sent < 0 && errno == EINTR);
	*at += sent > 0 ? (uint64_t)sent : 0;
	*n -= sent > 0 ? (uint32_t)sent : 0;
	return sent;
}

/*
 * peer_return puts what the other end has not read into the socket, in five steps whose order is the protocol:
 *
 *  1. End the doorbells, so that no byte of theirs follows among those of the stream.
 *  2. Publish TAIL_LEFT with the tail of before. A consumer that reads from now on sees it and stops advancing head.
 *  3. Load head: what is before it was read, and all that is behind it goes to the socket.
 *  4. Publish the same head as FINAL. The consumer reads the ring up to there, and the socket from there on.
 *  5. Write the bytes.
 *
 * Loading head before step 2 would let the consumer read bytes that are sent again: the stream would have them twice.
 */
int peer_return(struct rings *r, int fd)
{
	struct ring_direction *d = outgoing(r);
	struct ring_side *s = r->side;
	if (s->back != 0)
		return 0;
	if (!takes(fd, s->tail - atomic_load(&d->head)))
		return -1;
	ring_end_doorbells(r);
	atomic_store(&d->tail, s->tail | RING_TAIL_LEFT); /* and then head: see contested */
	uint64_t head = atomic_load(&d->head);
	uint32_t left = (uint32_t)(s->tail - head);
	s->back = 1;
	atomic_store(&d->tail, (head & RING_INDEX_MASK) | RING_TAIL_LEFT | RING_TAIL_FINAL);
	if (s->tail - head > r->size)
		return ring_fail(r, fd);
	while (left > 0)
		if (send_piece(r, fd, r->number, &head, &left) <= 0)
			return errno == EAGAIN ? ring_fail(r, fd) : 0; /* else the other has closed its socket */
	wake_all(notified_word(d)); /* a consumer that has asked waits there */
	return 0;
}

/* The consumer may have left between the check and the store of tail. Bytes that it has not read are taken back, or sent by the socket. */
int peer_refused(struct rings *r, int fd, uint64_t before)
{
	struct ring_direction *d = outgoing(r);
	if (atomic_load(&d->head) != before)
		return peer_return(r, fd) == 0 ? 1 : ring_fail(r, fd);
	ring_end_doorbells(r);
	r->side->tail = before;
	r->side->back = 1;
	atomic_store(&d->tail, before | RING_TAIL_LEFT | RING_TAIL_FINAL);
	return 0;
}

/* is_returned reports whether there is nothing to read in the ring to this end, which has gone. */
static bool is_returned(const struct rings *r)
{
	uint64_t tail = atomic_load(&incoming(r)->tail);
	return (tail & RING_TAIL_FINAL) != 0 || (tail & RING_INDEX_MASK) == r->side->head;
}

/*
 * renounce ends the use of the ring to this end. That needs nothing if it is empty; otherwise the other program puts the bytes into the
 * socket, with its next call. False: it has not for PATIENCE, or has ended. Both locks are held.
 */
static bool renounce(struct rings *r, int fd)
{
	struct ring_direction *d = incoming(r);
	uint64_t end = now() + PATIENCE;
	atomic_store(&d->gone, 1); /* and then tail */
	for (bool first = true; !is_returned(r); first = false) {
		uint64_t notified = atomic_load(&d->notified);
		if (first)
			ring_announce(r, fd, true);
		uint32_t left = doorbells(r);
		ring_answer_space(r, fd, left > 0 ? left - 1 : 0); /* it may wait for space */
		bool late = hung_up(fd) || now() > end;
		if (is_returned(r)) /* in this order: it does no more */
			break;
		if (late)
			return false;
		sleep_on(notified_word(d), (uint32_t)notified, RING_PAUSE);
	}
	ring_answer_space(r, fd, doorbells(r));
	for (;;) {
		bool late = hung_up(fd) || now() > end;
		enum carrier by = r->tier->carrier(r, fd);
		struct pollfd p = {.fd = fd, .events = POLLIN};
		struct timespec pause = {0, RING_PAUSE};
		if (by == BY_SOCKET)
			break;
		if (by == BY_NOTHING || late)
			return false;
		KERNEL(ppoll, &p, 1, &pause, NULL, 0); /* the last doorbell byte is on its way */
	}
	return true;
}

/*
 * successor makes a socket that has what is unread, and then the end of the stream, or a reset if the other program was still
 * there. Other processes that share the end get the rest from the other program, if it ever makes a call. -1: there is none.
 */
static int successor(struct rings *r, int fd)
{
	bool ended = hung_up(fd);
	int pair[2], priority = 0;
	socklen_t len = sizeof priority;
	uint64_t head = r->side->head, tail = atomic_load(&incoming(r)->tail);
	uint32_t left = (tail & RING_TAIL_LEFT) != 0 ? 0 : (uint32_t)(tail - head);
	if (left > r->size || KERNEL(socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
		ring_fail(r, fd);
		return -1;
	}
	KERNEL(getsockopt, fd, SOL_SOCKET, SO_PRIORITY, &priority, &len);
	KERNEL(setsockopt, pair[0], SOL_SOCKET, SO_PRIORITY, &priority, sizeof priority);
	raise_buffer(pair[1]);
	while (left > 0 && send_piece(r, pair[1], 1 - r->number, &head, &left) > 0)
		;
	if (!ended || left > 0) /* unread at its end: the close of that is a reset */
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
	if (has_flag(r, SIDE_BROKEN) || !ring_lock_send(r, fd))
		return fd;
	if (ring_lock_receive(r, fd)) {
		bool left = renounce(r, fd); /* before the other way is that of the socket: it may need doorbell bytes */
		if (peer_return(r, fd) != 0)
			ring_fail(r, fd);
		else if (!left)
			next = known ? replace(fd, successor(r, fd)) : successor(r, fd);
		lock_give(&r->side->receive);
	}
	lock_give(&r->side->send);
	return next;
}

bool peer_leave(struct rings *r, int fd)
{
	leave(r, fd, true);
	return true;
}

/*
 * peer_refuse does so for a connection whose number the program does not know yet, if that has not called connect(2), and returns its
 * number: that of the new socket, where there is one. So it needs no dup3(2), which a seccomp filter of the program may forbid.
 */
int peer_refuse(struct rings *r, int fd, bool connects)
{
	int next = leave(r, fd, connects);
	if (next < 0 || next == fd)
		return fd;
	KERNEL(close, fd);
	return next;
}
