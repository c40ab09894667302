/*
 * directwrite.c - bytes to the ring of another program (direct.c).
 */
#include "cursor.h"
#include "doorbell.h"

#include <sched.h>
#include <signal.h>

enum outcome { OPEN, MOVED, ENDED, BUSY };

/* begin takes the lock if the ring may be written. */
static enum outcome begin(struct rings *r, int fd)
{
	direct_asked(r, fd);
	if (!direct_lock_send(r)) {
		errno = EAGAIN;
		return BUSY;
	}
	enum outcome o = OPEN;
	if ((atomic_load(&r->side->flags) & (SIDE_SHUT | SIDE_BROKEN | SIDE_RESET | SIDE_ENDED)) != 0)
		o = ENDED;
	else if (gave_up(r))
		o = MOVED;
	if (o != OPEN)
		direct_unlock(&r->side->send);
	return o;
}

/* free_pieces returns the free pieces of the ring, at most n bytes. It reads the other's index where the last one does not suffice. */
static long free_pieces(struct rings *r, size_t n, struct iovec to[2])
{
	long space = direct_space(r, n);
	if (space > 0 && n < (size_t)space)
		space = (long)n;
	if (space > 0)
		pieces(r, r->number, r->side->tail, (uint32_t)space, to);
	return space;
}

/* publish makes n bytes the other's. 0 is that it takes no more from the ring, and -1 that it has ended, or breaks the protocol. */
static int publish(struct rings *r, int fd, size_t n)
{
	struct direct_direction *d = outgoing(r);
	uint32_t tail = r->side->tail, before = tail, next = (tail + (uint32_t)n) & DIRECT_INDEX, cpu = (uint32_t)sched_getcpu() + 1;
	if (busy_poll() > 0 || atomic_load_explicit(&d->cpu, memory_order_relaxed) != cpu)
		atomic_store_explicit(&d->cpu, cpu, memory_order_relaxed);
	if (!atomic_compare_exchange_strong(&d->tail, &tail, next)) {
		if (tail == (r->side->tail | DIRECT_LEFT))
			return 0;
		direct_fail(r, fd);
		return -1;
	}
	r->side->tail = next;
	if (direct_announce(r, fd, false) == 0)
		return 1;
	bool late = (atomic_load(&d->head) & DIRECT_INDEX) == before && (atomic_load(&r->side->flags) & SIDE_BROKEN) == 0;
	atomic_fetch_or(&r->side->flags, late ? SIDE_ENDED | SIDE_LATE : SIDE_ENDED);
	return late ? 1 : -1; /* as with TCP: the answer to these bytes is the reset */
}

/*
 * fill makes the socket not writable, because the ring is full. The other empties it when half of the ring is free. -1 is that it
 * has closed its socket: none is freed then, and the socket is writable from there on.
 */
static int fill(struct rings *r, int fd)
{
	struct direct_direction *d = outgoing(r);
	if ((atomic_fetch_or(&d->space, DIRECT_FILLED) & DIRECT_FILLED) != 0)
		return hung_up(fd) ? -1 : 0;
	uint64_t notifier = atomic_load(&d->notifier);
	for (int i = 0; i < DIRECT_TRIES && state_of(notifier) != DIRECT_GONE; i++) {
		uint32_t state = state_of(notifier) == DIRECT_ARMED ? DIRECT_DISARMED : state_of(notifier);
		if (change_notifier(d, &notifier, state, DIRECT_FILL))
			return direct_write(r, fd, DIRECT_FILL);
	}
	return 0;
}

/*
 * end_of_writing says why nothing can be written: ECONNRESET if the kernel knows of one, or EPIPE with its signal.
 */
static ssize_t end_of_writing(struct rings *r, int fd, int flags)
{
	if ((atomic_load(&r->side->flags) & SIDE_SHUT) == 0) {
		int cause = 0;
		socklen_t len = sizeof cause;
		KERNEL(getsockopt, fd, SOL_SOCKET, SO_ERROR, &cause, &len);
		if (cause == ECONNRESET) {
			errno = cause;
			return -1;
		}
	}
	if ((flags & MSG_NOSIGNAL) == 0)
		raise(SIGPIPE);
	errno = EPIPE;
	return -1;
}

/* A source of bytes: the program's buffers, or a file. */
struct source {
	struct cursor from;
	int file; /* -1: from */
	off_t *at;
	bool ended; /* the file */
};

/* put moves up to n bytes to the ring. It returns how many, and in *o what else is to be said. The lock is held. */
static long put(struct rings *r, int fd, struct source *s, size_t n, enum outcome *o)
{
	struct iovec to[2];
	struct cursor before = s->from;
	long space = free_pieces(r, n, to), got = space;
	if (space < 0) {
		direct_fail(r, fd);
		*o = ENDED;
	}
	if (space <= 0)
		return 0;
	if (s->file < 0) {
		copy_pieces(&s->from, to, true);
	} else {
		got = s->at == NULL ? KERNEL(readv, s->file, to, 2) : KERNEL(preadv, s->file, to, 2, (long)*s->at, 0);
		s->ended = got >= 0 && got < space;
		if (got <= 0)
			return got;
	}
	int done = publish(r, fd, (size_t)got);
	if (done <= 0) {
		s->from = before;
		*o = done == 0 ? MOVED : ENDED;
		if (s->file >= 0 && s->at == NULL)
			lseek(s->file, -got, SEEK_CUR);
		return 0;
	}
	if (s->at != NULL)
		*s->at += got;
	return got;
}

/* has_room reports whether the other has read since the last look. */
static bool has_room(struct rings *r)
{
	struct iovec none[2];
	return free_pieces(r, r->size, none) > 0;
}

/*
 * await_room waits until the ring has space: by futex(2) first, and then as the socket does. 1 is that there may be some. It
 * unlocks.
 */
static int await_room(struct rings *r, int fd, int flags, bool partial, bool *rested)
{
	struct direct_direction *d = outgoing(r);
	bool blocking = blocks(r, flags);
	if (blocking && !*rested && !may_have_ended(r) && (atomic_load(&r->side->flags) & SIDE_TIMED) == 0) {
		uint32_t space = atomic_fetch_or(&d->space, DIRECT_SLEEPS) | DIRECT_SLEEPS;
		bool free = has_room(r) || is_asked(r);
		direct_unlock(&r->side->send);
		*rested = true;
		return free || sleep_on(&d->space, space, DIRECT_SLEEP) == 0 ? 1 : -1;
	}
	bool ended = fill(r, fd) != 0, free = !ended && (has_room(r) || is_asked(r));
	direct_unlock(&r->side->send);
	*rested = false;
	if (free)
		return 1;
	if (ended) {
		errno = EPIPE;
		return 0;
	}
	errno = EAGAIN;
	return blocking ? (wait_writable(fd, partial) > 0 ? 1 : -1) : -1;
}

static ssize_t send_from(struct rings *r, int fd, struct source *s, size_t want, int flags)
{
	size_t done = 0;
	bool rested = false;
	for (;;) {
		enum outcome o = begin(r, fd);
		long got = 0;
		int more = 1;
		if (o == OPEN) {
			got = put(r, fd, s, want - done, &o);
			done += got > 0 ? (size_t)got : 0;
			if (o == OPEN && got == 0 && done < want && !s->ended)
				more = await_room(r, fd, flags, done > 0, &rested);
			else
				direct_unlock(&r->side->send);
		}
		if (o == MOVED && s->file < 0 && done > 0)
			return (ssize_t)done + send_rest(fd, &s->from, want - done, flags);
		if (o == MOVED)
			return done > 0 ? (ssize_t)done : RINGS_MOVED;
		if (o == BUSY || got < 0 || more < 0)
			return done > 0 ? (ssize_t)done : -1;
		if (o == ENDED || more == 0)
			return done > 0 ? (ssize_t)done : end_of_writing(r, fd, flags);
		if (done == want || s->ended)
			return (ssize_t)done;
	}
}

ssize_t direct_send(struct rings *r, int fd, const struct iovec *parts, size_t n, int flags)
{
	struct source s = {{parts, n, 0}, -1, NULL, false};
	return send_from(r, fd, &s, total(parts, n), flags);
}

ssize_t direct_sendfile(struct rings *r, int fd, int from, off_t *at, size_t n)
{
	struct source s = {{NULL, 0, 0}, from, at, false};
	return send_from(r, fd, &s, n, 0);
}
