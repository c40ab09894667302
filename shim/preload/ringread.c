/* ringread.c - bytes from a ring to the program. */

#include "ringend.h"

#include <sched.h>
#include <sys/ioctl.h>

/*
 * free_space wakes a producer that waits for space when half of the ring is free. Waking it for each byte would make the two take turns:
 * two switches for each few bytes. The lock is held.
 */
static void free_space(struct rings *r, int fd)
{
	struct ring_direction *d = incoming(r);
	uint32_t used, left, space = atomic_load(&d->space);
	if (space >> RING_EPOCH_SHIFT == (atomic_load_explicit(&d->freed, memory_order_relaxed) & RING_EPOCH_MASK))
		return;
	left = doorbells(r); /* and then tail: the next byte may announce what comes now */
	if (ring_used(r, &used) && used <= r->size / 2)
		ring_answer_space(r, fd, used > 0 && left > 0 ? left - 1 : left);
}

/* copy_out copies up to want bytes. It returns how many, or -1 if the other end breaks the protocol. */
static long copy_out(struct rings *r, struct cursor *to, size_t want, int flags)
{
	uint32_t have;
	struct iovec from[2];
	if (!ring_used(r, &have))
		return -1;
	uint32_t n = want < have ? (uint32_t)want : have;
	if (n > 0 && (flags & MSG_TRUNC) == 0) {
		pieces(r, 1 - r->number, r->side->head, n, from);
		copy_pieces(to, from, false);
	}
	return n;
}

/*
 * peek leaves the bytes in the ring. A program that has seen all of them may wait for an edge of epoll(7), so that what comes
 * after them has a doorbell byte of its own.
 */
static long peek(struct rings *r, struct cursor *to, size_t want, int flags)
{
	struct cursor begin = *to;
	uint32_t have;
	for (int i = 0;; i++) {
		*to = begin;
		long n = copy_out(r, to, want, flags);
		if (n <= 0 || (size_t)n == want || i == RING_TRIES)
			return n;
		ring_arm(incoming(r));
		if (!ring_used(r, &have) || have == (uint32_t)n)
			return n;
	}
}

/*
 * contested is called when the producer takes back what is unread, perhaps with the bytes from head to next, which were just read. Its
 * last word is the index of the first byte that it took back. 0: the bytes are in the socket. 1: they are not. -1: there is no such word.
 */
static int contested(struct rings *r, int fd, uint64_t head, uint64_t next)
{
	struct ring_direction *d = incoming(r);
	uint64_t tail, end = now() + RING_SLEEP;
	while (((tail = atomic_load(&d->tail)) & RING_TAIL_FINAL) == 0) {
		if (hung_up(fd)) /* it was killed before it took any */
			return 1;
		if (now() > end)
			return -1;
		sched_yield();
	}
	if ((tail & RING_INDEX_MASK) == next)
		return 1;
	if ((tail & RING_INDEX_MASK) != head)
		return -1;
	r->side->head = head;
	atomic_store(&d->head, head);
	return 0;
}

/*
 * advance frees n bytes. 0: the producer has put them into the socket. -1: it breaks the protocol.
 *
 * head is stored before tail is loaded, and the producer stores TAIL_LEFT before it loads head: at least one of the two sees the other.
 * If both do, contested decides by the index that the producer publishes last.
 */
static int advance(struct rings *r, int fd, uint32_t n)
{
	struct ring_direction *d = incoming(r);
	uint64_t head = r->side->head, next = head + n;
	atomic_store(&d->head, next);
	r->side->head = next;
	return (atomic_load(&d->tail) & RING_TAIL_LEFT) == 0 ? 1 : contested(r, fd, head, next);
}

/*
 * take copies what the ring has. If it returns less than want, the ring was empty, and the next bytes make the socket readable
 * again: programs that use edges of epoll(7) rely on a short read. The lock is held.
 */
static long take(struct rings *r, int fd, struct cursor *to, size_t want, int flags)
{
	size_t done = 0;
	bool empty = false;
	while (done < want && !empty) {
		struct cursor before = *to;
		long n = copy_out(r, to, want - done, flags);
		int kept = n > 0 ? advance(r, fd, (uint32_t)n) : 0;
		if (n < 0 || kept < 0)
			return -1;
		if (kept == 0) {
			*to = before;
			empty = true;
		} else {
			done += (size_t)n;
			empty = !has_bytes(r) && drain_doorbells(r, fd);
		}
	}
	if (empty && r->tier->emptied != NULL)
		r->tier->emptied(r, fd);
	free_space(r, fd);
	return (long)done;
}

/* await waits for bytes as the socket does: with its timeout, and its signals. 1: there may be some. 0: the end. */
static ssize_t await(struct rings *r, int fd, int flags)
{
	char first;
	int wait = blocks(r, flags) ? 0 : MSG_DONTWAIT;
	ssize_t n = KERNEL(recvfrom, fd, &first, 1, MSG_PEEK | wait, NULL, NULL);
	if (n == 1) {
		if (!has_bytes(r))
			discard_spurious_doorbell(r, fd);
		return 1;
	}
	int cause = n < 0 ? errno : 0;
	if (cause == ECONNRESET) /* the kernel reports it once */
		r->tier->reset(r, fd);
	if (has_bytes(r))
		return 1; /* they came before the end */
	if (n < 0 && cause != ECONNRESET) {
		errno = cause;
		return -1;
	}
	return r->tier->end_of_reading(r, fd);
}

/*
 * read_rest reads from the socket what follows the last bytes of the ring: done bytes were read. MSG_WAITALL promises all of the bytes in
 * one call (recv(2)), also where the rings end in the middle of them.
 */
static ssize_t read_rest(int fd, struct cursor *to, const struct iovec *end, size_t done, int flags)
{
	for (; to->part < end; to->part++, to->at = 0) {
		size_t want = to->part->iov_len - to->at;
		ssize_t n = want > 0 ? KERNEL(recvfrom, fd, (char *)to->part->iov_base + to->at, want, flags, NULL, NULL) : 0;
		done += n > 0 ? (size_t)n : 0;
		if (n < (ssize_t)want)
			break;
	}
	return (ssize_t)done;
}

/* A read that is under way. */
struct reading {
	struct cursor to;
	const struct iovec *end;
	size_t want, done;
	int flags;
	bool rested;    /* beside the socket: it is the socket's turn */
	uint64_t since; /* it waits, or 0 */
};

/* What comes after some bytes were taken, or none. */
enum next { DONE, SOCKET, REST };

/* take_some takes what there is, with the lock, and decides what is next. result is that of DONE. */
static enum next take_some(struct rings *r, int fd, struct reading *g, struct plan *p, ssize_t *result)
{
	bool peeks = (g->flags & MSG_PEEK) != 0;
	enum carrier by = r->tier->carrier(r, fd);
	long got = by != BY_RING ? 0 : peeks ? peek(r, &g->to, g->want, g->flags) : take(r, fd, &g->to, g->want - g->done, g->flags);
	g->done += got > 0 ? (size_t)got : 0;
	*result = (ssize_t)g->done;
	bool enough = g->want == 0 || (g->done > 0 && (peeks || (g->flags & MSG_WAITALL) == 0 || g->done == g->want));
	if (got < 0 || by == BY_NOTHING) {
		ring_fail(r, fd);
		*result = g->done > 0 ? *result : -1;
		return DONE;
	}
	if (by == BY_SOCKET && g->done == 0) {
		*result = RINGS_MOVED;
		return DONE;
	}
	if (enough)
		return DONE;
	if (by == BY_SOCKET) { /* MSG_WAITALL, and the ring had a part */
		if ((g->flags & MSG_TRUNC) == 0)
			*result = read_rest(fd, &g->to, g->end, g->done, g->flags);
		return DONE;
	}
	uint32_t closes = atomic_load(&incoming(r)->closes); /* before the end is looked for */
	bool rests = by == BY_RING && !g->rested && blocks(r, g->flags) && r->tier->plan(r, p) && ring_lie_down(r, g->want - g->done, p);
	if (!rests) /* the socket shows whether that was the end */
		r->side->closes = closes;
	return rests ? REST : SOCKET;
}

/* wait_for_bytes waits as take_some has decided. 1: there may be bytes, 0: the end, -1: an error. */
static ssize_t wait_for_bytes(struct rings *r, int fd, struct reading *g, enum next next, const struct plan *p)
{
	if (r->tier->waited != NULL && g->since == 0 && blocks(r, g->flags))
		g->since = now();
	if (next == REST) {
		g->rested = true;
		return ring_rest(r, p) == 0 ? 1 : -1;
	}
	ssize_t found = await(r, fd, g->flags);
	if (g->since != 0)
		r->tier->waited(r, now() - g->since);
	g->rested = false;
	g->since = 0;
	return found;
}

ssize_t rings_receive(struct rings *r, int fd, const struct iovec *parts, size_t n, int flags)
{
	struct reading g = {.to = {parts, n, 0}, .end = parts + n, .want = total(parts, n), .flags = flags};
	for (;;) {
		struct plan p = {0};
		ssize_t result = -1;
		if (r->tier->answer != NULL)
			r->tier->answer(r, fd);
		if (!ring_lock_receive(r, fd)) {
			errno = EAGAIN; /* this is a signal handler, in the middle of a call: waiting would be for itself */
			return -1;
		}
		enum next next = take_some(r, fd, &g, &p, &result);
		lock_give(&r->side->receive); /* before the wait: another thread may read meanwhile, as with a socket */
		if (next == DONE)
			return result;
		ssize_t found = wait_for_bytes(r, fd, &g, next, &p);
		if (found <= 0)
			return g.done > 0 ? (ssize_t)g.done : found;
	}
}

size_t rings_unread(struct rings *r, int fd)
{
	uint32_t n = 0;
	int socket = 0;
	if (!ring_lock_receive(r, fd))
		return 0;
	enum carrier by = r->tier->carrier(r, fd);
	if (by == BY_RING && ring_used(r, &n) && n > 0) { /* see peek */
		ring_arm(incoming(r));
		ring_used(r, &n);
	} else if (by == BY_SOCKET) {
		KERNEL(ioctl, fd, FIONREAD, &socket);
		n = (uint32_t)socket;
	}
	lock_give(&r->side->receive);
	return n;
}
