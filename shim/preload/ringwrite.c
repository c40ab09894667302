/* ringwrite.c - bytes from the program, or a file, to a ring. */

#include "ringend.h"

#include <sched.h>

/* begin takes the lock if the ring may be written. */
static enum outcome begin(struct rings *r, int fd)
{
	if (r->tier->answer != NULL)
		r->tier->answer(r, fd);
	if (!ring_lock_send(r, fd)) {
		errno = EAGAIN; /* this is a signal handler, in the middle of a call */
		return BUSY;
	}
	enum outcome o = has_flag(r, SIDE_SHUT | SIDE_BROKEN | SIDE_RESET | SIDE_ENDED) ? ENDED : r->tier->may_send(r);
	if (o != MAY_SEND && o != WAITS)
		lock_give(&r->side->send);
	return o;
}

/* free_pieces returns the free pieces of the ring, at most n bytes. It reads the other end's index where the last one does not suffice. */
static long free_pieces(struct rings *r, size_t n, struct iovec to[2])
{
	long space = ring_space(r, n);
	if (space > 0 && n < (size_t)space)
		space = (long)n;
	if (space > 0)
		pieces(r, r->number, r->side->tail, (uint32_t)space, to);
	return space;
}

/*
 * publish makes n bytes the other end's. tail is stored once they are in the ring, and is the only word that makes them valid: a process
 * that is killed before leaves bytes that do not count. 0: it takes no more from the ring. -1: it has ended, or breaks the protocol.
 */
static int publish(struct rings *r, int fd, size_t n)
{
	struct ring_direction *d = outgoing(r);
	uint64_t before = r->side->tail;
	/* A hint for the reader: it cannot spin on the CPU of the writer. Without busy polling it is stored only where it changes. */
	if (r->tier->sleeps) {
		uint32_t core = (uint32_t)sched_getcpu() + 1;
		if (busy_poll() > 0 || atomic_load_explicit(&d->core, memory_order_relaxed) != core)
			atomic_store_explicit(&d->core, core, memory_order_relaxed);
	}
	atomic_store(&d->tail, before + n);
	r->side->tail = before + n;
	if (r->tier->refused != NULL && atomic_load(&d->gone) == 1)
		return r->tier->refused(r, fd, before);
	int announced = has_flag(r, SIDE_CLOSED) ? ring_doorbell(r, fd) : ring_announce(r, fd, false);
	return announced == 0 ? 1 : r->tier->unheard(r, before);
}

/* A source of bytes: the program's buffers, or a file. */
struct source {
	struct cursor from;
	int file; /* -1: from */
	off_t *at;
	bool ended; /* the file */
};

/* read_source copies space bytes from the source to the ring. It returns how many there were, or -1. */
static long read_source(struct source *s, const struct iovec to[2], long space)
{
	if (s->file < 0) {
		copy_pieces(&s->from, to, true);
		return space;
	}
	long got = s->at == NULL ? KERNEL(readv, s->file, to, 2) : KERNEL(preadv, s->file, to, 2, (long)*s->at, 0);
	s->ended = got >= 0 && got < space;
	return got;
}

/* put moves up to n bytes to the ring. It returns how many, and changes *o if no more will be. The lock is held. */
static long put(struct rings *r, int fd, struct source *s, size_t n, enum outcome *o)
{
	struct iovec to[2];
	struct cursor before = s->from;
	long space = free_pieces(r, n, to);
	if (space < 0) {
		ring_fail(r, fd);
		*o = ENDED;
	}
	if (space <= 0)
		return 0;
	long got = read_source(s, to, space);
	if (got <= 0)
		return got;
	int done = publish(r, fd, (size_t)got);
	if (done > 0) {
		if (s->at != NULL)
			*s->at += got;
		return got;
	}
	*o = done == 0 ? MOVED : ENDED; /* these bytes go by the socket, or nowhere: the source is as before them */
	s->from = before;
	if (s->file >= 0 && s->at == NULL)
		lseek(s->file, -got, SEEK_CUR);
	return 0;
}

/* has_space reports whether the other end has read since the last look. */
static bool has_space(struct rings *r)
{
	return ring_space(r, r->size) > 0;
}

/*
 * await_space waits until the ring has space: by futex(2) first, and then as the socket does. 1: there may be some. 0: the other end
 * has closed its socket. It unlocks.
 */
static int await_space(struct rings *r, int fd, int flags, bool partial, bool *rested)
{
	struct ring_direction *d = outgoing(r);
	bool blocking = blocks(r, flags);
	if (r->tier->sleeps && blocking && !*rested && !may_have_ended(r) && !has_flag(r, SIDE_TIMED)) {
		uint32_t freed = atomic_load(&d->freed);
		ring_ask_space(d, RING_SPACE_SLEEPS);
		bool free = has_space(r) || is_asked(r);
		lock_give(&r->side->send);
		*rested = true;
		return free || sleep_on(&d->freed, freed, longest_sleep(r)) == 0 ? 1 : -1;
	}
	bool ended = ring_fill(r, fd) != 0, free = !ended && (has_space(r) || is_asked(r));
	lock_give(&r->side->send);
	*rested = false;
	if (free)
		return 1;
	if (ended)
		return 0;
	errno = EAGAIN;
	return blocking && wait_writable(fd, partial) > 0 ? 1 : -1;
}

/* await_open waits for the end of the handshake, which makes the socket writable. It unlocks. */
static int await_open(struct rings *r, int fd, int flags)
{
	lock_give(&r->side->send);
	errno = EAGAIN;
	return blocks(r, flags) && wait_writable(fd, false) > 0 ? 1 : -1;
}

static ssize_t send_from(struct rings *r, int fd, struct source *s, size_t want, int flags)
{
	size_t done = 0;
	bool rested = false;
	for (;;) {
		enum outcome o = begin(r, fd);
		long got = 0;
		int more = 1;
		if (o == WAITS) {
			more = want > 0 ? await_open(r, fd, flags) : (lock_give(&r->side->send), 1);
		} else if (o == MAY_SEND) {
			got = put(r, fd, s, want - done, &o);
			done += got > 0 ? (size_t)got : 0;
			if (o == MAY_SEND && got == 0 && done < want && !s->ended)
				more = await_space(r, fd, flags, done > 0, &rested);
			else
				lock_give(&r->side->send);
		}
		if (o == MOVED && s->file < 0 && done > 0)
			return (ssize_t)done + send_rest(fd, &s->from, want - done, flags);
		if (o == MOVED)
			return done > 0 ? (ssize_t)done : RINGS_MOVED;
		if (o == BUSY || got < 0 || more < 0)
			return done > 0 ? (ssize_t)done : -1;
		if (o == ENDED || more == 0)
			return done > 0 ? (ssize_t)done : r->tier->end_of_writing(r, fd, flags);
		if (done == want || s->ended)
			return (ssize_t)done;
	}
}

ssize_t rings_send(struct rings *r, int fd, const struct iovec *parts, size_t n, int flags)
{
	struct source s = {{parts, n, 0}, -1, NULL, false};
	return send_from(r, fd, &s, total(parts, n), flags);
}

ssize_t rings_sendfile(struct rings *r, int fd, int from, off_t *at, size_t n)
{
	struct source s = {{NULL, 0, 0}, from, at, false};
	return send_from(r, fd, &s, n, 0);
}
