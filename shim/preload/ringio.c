/*
 * ringio.c - bytes between a program and the rings of a socket.
 *
 * The program's socket holds a doorbell byte exactly while the ring to the program has bytes, so that poll(2) is right.
 * The call that empties the ring takes it out. Both sides count doorbell bytes (doorbells, taken), because one may
 * be on its way when the bytes that it announces have been read.
 */

#include "cursor.h"
#include "rings.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>

/* how long a blocking read looks for bytes before it sleeps, in ns: see look */
#define LOOK_LEAST 2000
#define LOOK_MOST 50000
#define LOOK_WAKEUP 30000

#define FILL 16384 /* a quarter of the socket's send buffer (ringSendBuffer of the node) */

static const char zeros[FILL];

/* pieces returns the n bytes of a ring from index at on. */
static void pieces(const struct rings *r, int direction, uint32_t at, uint32_t n, struct iovec to[2])
{
	uint32_t size = r->page->size, from = at & (size - 1);
	uint32_t first = n < size - from ? n : size - from;
	to[0] = (struct iovec){r->data[direction] + from, first};
	to[1] = (struct iovec){r->data[direction], n - first};
}

static uint32_t used(const struct ring_direction *d)
{
	return atomic_load(&d->tail) - atomic_load(&d->head);
}

static bool empty(const struct rings *r)
{
	return used(&r->page->direction[TO_PROGRAM]) == 0;
}

/* write_counted writes n bytes that wake the node. The result is -1 if it has closed its end. */
static int write_counted(struct rings *r, int fd, uint32_t n)
{
	struct ring_direction *d = &r->page->direction[TO_NODE];
	long sent;
	do
		sent = KERNEL(sendto, fd, zeros, n, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
	while (sent < 0 && errno == EINTR);
	int cause = errno;
	if (sent < (long)n)
		atomic_fetch_sub(&d->doorbells, n - (sent > 0 ? (uint32_t)sent : 0));
	return sent >= 0 || cause == EAGAIN ? 0 : -1;
}

static int write_doorbell(struct rings *r, int fd, uint32_t n)
{
	atomic_fetch_add(&r->page->direction[TO_NODE].doorbells, n);
	return write_counted(r, fd, n);
}

/* published wakes the consumer of the ring to the node, if it wants that. The lock is held. */
static int published(struct rings *r, int fd)
{
	struct ring_direction *d = &r->page->direction[TO_NODE];
	uint32_t notifier = atomic_load(&d->notifier);
	for (;;) {
		bool more = used(d) > atomic_load(&d->want);
		uint32_t next = RING_DISARMED, n = 1;
		if (notifier != RING_ARMED && notifier != RING_ASLEEP && !(more && (notifier == RING_SUPPRESSED || notifier == RING_WOKEN)))
			return 0;
		if (notifier == RING_ASLEEP && more)
			n = 2;
		else if (notifier == RING_ASLEEP)
			next = RING_WOKEN;
		if (atomic_compare_exchange_weak(&d->notifier, &notifier, next))
			return write_doorbell(r, fd, n);
	}
}

/* arm asks for a doorbell byte with the next bytes, and returns how many there are already, of which it says nothing. */
static uint32_t arm(struct ring_direction *d)
{
	atomic_store(&d->notifier, RING_ARMED);
	return used(d);
}

/*
 * settle takes the doorbell bytes out of the socket, because the ring to the program is empty. False is that it is not:
 * the byte of before announces what has come. The lock is held.
 */
static bool settle(int fd, struct ring_direction *d)
{
	uint32_t doorbells = atomic_load(&d->doorbells);
	if (arm(d) != 0) {
		atomic_store(&d->notifier, RING_DISARMED);
		return false;
	}
	for (uint32_t left = doorbells - atomic_load(&d->taken); left > 0;) {
		char dropped[64];
		long n = KERNEL(recvfrom, fd, dropped, left < sizeof dropped ? left : sizeof dropped, MSG_DONTWAIT, NULL, NULL);
		if (n <= 0) /* on its way: the next call takes it */
			return true;
		atomic_fetch_add(&d->taken, (uint32_t)n);
		left -= (uint32_t)n;
	}
	return true;
}

/* copy_out copies up to want bytes from index at on. It returns how many. */
static uint32_t copy_out(struct rings *r, struct cursor *to, uint32_t at, size_t want, int flags)
{
	uint32_t have = atomic_load(&r->page->direction[TO_PROGRAM].tail) - at;
	struct iovec from[2];
	if (have > r->page->size)
		return 0;
	uint32_t n = want < have ? (uint32_t)want : have;
	if (n > 0 && (flags & MSG_TRUNC) == 0) {
		pieces(r, TO_PROGRAM, at, n, from);
		copy_pieces(to, from, false);
	}
	return n;
}

/*
 * peek leaves the bytes in the ring. A program that has seen all of them may wait for an edge of epoll(7), so that what comes
 * now has a doorbell byte of its own.
 */
static size_t peek(struct rings *r, struct cursor *to, size_t want, int flags)
{
	struct ring_direction *d = &r->page->direction[TO_PROGRAM];
	struct cursor begin = *to;
	for (;;) {
		uint32_t n = copy_out(r, to, atomic_load(&d->head), want, flags);
		if (n == 0 || n == want || arm(d) == n)
			return n;
		*to = begin;
	}
}

/*
 * take copies what the ring to the program has. If it returns less than want, the ring was empty, and the next bytes make the
 * socket readable again: programs that use edges of epoll(7) rely on a short read. The lock is held.
 */
static size_t take(struct rings *r, int fd, struct cursor *to, size_t want, int flags)
{
	struct ring_direction *d = &r->page->direction[TO_PROGRAM];
	size_t done = 0;
	for (;;) {
		uint32_t head = atomic_load(&d->head), n = copy_out(r, to, head, want - done, flags);
		if (n == 0)
			break;
		atomic_store(&d->head, head + n);
		done += n;
		if (used(d) != 0 && done == want)
			break;
		if (used(d) == 0 && (settle(fd, d) || done == want))
			break;
	}
	if (used(d) == 0 && atomic_load(&r->page->fin) != 0 && atomic_exchange(&r->page->fin, 0) != 0) {
		KERNEL(shutdown, fd, SHUT_RD); /* the end of the stream, for poll(2) and read(2) */
		write_doorbell(r, fd, 1);
	}
	if (atomic_load(&d->space) != 0 && used(d) <= r->page->size / 2 && atomic_exchange(&d->space, 0) != 0)
		write_doorbell(r, fd, 1); /* a node that has ended shows later */
	return done;
}

size_t rings_unread(struct rings *r)
{
	struct ring_direction *d = &r->page->direction[TO_PROGRAM];
	size_t n = used(d);
	if (n != 0 && rings_lock(&r->page->locks[0].receive)) {
		if ((n = used(d)) != 0)
			n = arm(d); /* see peek */
		rings_unlock(&r->page->locks[0].receive);
	}
	return n;
}

bool rings_shut(struct rings *r, int fd)
{
	if (!rings_lock(&r->page->locks[0].send))
		return false;
	uint32_t state = atomic_load(&r->page->state);
	bool open = state == RING_OPEN || state == RING_FAILED;
	if (open && atomic_exchange(&r->page->shut, 1) == 0)
		write_doorbell(r, fd, 1); /* a node that has ended shows later */
	rings_unlock(&r->page->locks[0].send);
	return open;
}

static bool blocking(int fd, int flags)
{
	return (flags & MSG_DONTWAIT) == 0 && (KERNEL(fcntl, fd, F_GETFL) & O_NONBLOCK) == 0;
}

/* stop_spinning makes the producer write a doorbell byte with the next bytes. */
static void stop_spinning(void *direction)
{
	struct ring_direction *d = direction;
	uint32_t suppressed = RING_SUPPRESSED;
	atomic_compare_exchange_strong(&d->notifier, &suppressed, RING_ARMED);
}

/*
 * spin looks for bytes for ns at most. The producer writes no doorbell byte meanwhile, unless it has more than the caller
 * takes: what would be left has to be announced. With share the node gets the CPU between two looks, if it is on this one.
 */
static bool spin(struct rings *r, size_t want, uint64_t ns, bool share)
{
	struct ring_direction *d = &r->page->direction[TO_PROGRAM];
	uint32_t armed = RING_ARMED;
	if (!rings_lock(&r->page->locks[0].receive))
		return false;
	bool mine = atomic_load(&d->notifier) == RING_ARMED;
	if (mine) {
		atomic_store(&d->want, want < UINT32_MAX ? (uint32_t)want : UINT32_MAX);
		mine = atomic_compare_exchange_strong(&d->notifier, &armed, RING_SUPPRESSED);
	}
	rings_unlock(&r->page->locks[0].receive);
	uint64_t end = now() + ns;
	if (mine)
		wait_begin(stop_spinning, d);
	while (used(d) == 0 && atomic_load(&r->page->state) == RING_OPEN && now() < end) {
		for (int i = 0; i < 32 && used(d) == 0; i++)
			pause_cpu();
		if (share && used(d) == 0)
			sched_yield();
	}
	if (mine) {
		stop_spinning(d);
		wait_end();
	}
	return used(d) != 0;
}

/*
 * stale takes a doorbell byte whose bytes have been read. Its count may have been taken already, by a process that was
 * killed before it took the byte: a byte that is there while the ring is empty, in this order, announces nothing.
 */
static void stale(struct rings *r, int fd)
{
	struct ring_direction *d = &r->page->direction[TO_PROGRAM];
	char first;
	if (!rings_lock(&r->page->locks[0].receive))
		return;
	if (atomic_load(&r->page->state) == RING_OPEN && used(d) == 0) {
		if (atomic_load(&d->doorbells) != atomic_load(&d->taken))
			settle(fd, d);
		else if (KERNEL(recvfrom, fd, &first, 1, MSG_PEEK | MSG_DONTWAIT, NULL, NULL) == 1 && used(d) == 0)
			KERNEL(recvfrom, fd, &first, 1, MSG_DONTWAIT, NULL, NULL);
	}
	rings_unlock(&r->page->locks[0].receive);
}

/*
 * look spins before a call blocks, as long as the answers to this socket have been worth it: a sleep and its wakeup cost as much as
 * LOOK_MOST. It follows what the waits before took (looked).
 */
static bool look(struct rings *r, size_t want)
{
	uint32_t ns = atomic_load_explicit(&r->look, memory_order_relaxed);
	if (busy_poll() > 0)
		return spin(r, want, busy_poll(), false);
	return ns >= LOOK_LEAST && spin(r, want, ns, true);
}

/* looked notes how long a wait took, of which all was a sleep or a look in vain before it. */
static void looked(struct rings *r, uint64_t took)
{
	uint32_t ns = atomic_load_explicit(&r->look, memory_order_relaxed);
	ns = took <= LOOK_MOST + LOOK_WAKEUP ? LOOK_MOST : ns / 2;
	atomic_store_explicit(&r->look, ns, memory_order_relaxed);
}

/* await waits for bytes, as the socket does: with its timeout, and its signals. 1 is that there may be some, 0 the end. */
static ssize_t await(struct rings *r, int fd, size_t want, int flags)
{
	char first;
	uint64_t since = 0;
	if (blocking(fd, flags)) {
		since = now();
		if (look(r, want))
			return 1;
	}
	ssize_t n = KERNEL(recvfrom, fd, &first, 1, MSG_PEEK | (flags & MSG_DONTWAIT), NULL, NULL);
	if (since != 0)
		looked(r, now() - since);
	if (n == 1) {
		if (empty(r))
			stale(r, fd);
		return 1;
	}
	if (n < 0 && errno != ECONNRESET)
		return !empty(r) ? 1 : n;
	if (n < 0) { /* the kernel says so once, and for every end but FIN: the node knows which */
		int cause = socket_error(fd);
		uint32_t open = RING_OPEN;
		atomic_store(&r->error, cause != 0 ? cause : ECONNRESET);
		atomic_compare_exchange_strong(&r->page->state, &open, RING_CLOSED); /* a node that was killed has not */
	}
	if (!empty(r))
		return 1; /* they came before the end */
	int cause = atomic_exchange(&r->error, 0);
	if (cause == 0)
		return 0;
	errno = cause;
	return -1;
}

ssize_t rings_receive(struct rings *r, int fd, const struct iovec *parts, size_t n, int flags)
{
	struct cursor to = {parts, n, 0};
	size_t want = total(parts, n), done = 0;
	for (;;) {
		if (!rings_lock(&r->page->locks[0].receive)) {
			errno = EAGAIN;
			return -1;
		}
		bool moved = atomic_load(&r->page->state) == RING_MOVED;
		if (!moved && (flags & MSG_PEEK) != 0)
			done = peek(r, &to, want, flags);
		else if (!moved)
			done += take(r, fd, &to, want - done, flags);
		rings_unlock(&r->page->locks[0].receive);
		if (moved && done == 0)
			return RINGS_MOVED;
		if (moved || want == 0 || (done > 0 && ((flags & MSG_WAITALL) == 0 || done == want || (flags & MSG_PEEK) != 0)))
			return (ssize_t)done;
		ssize_t found = await(r, fd, want - done, flags);
		if (found <= 0)
			return done > 0 ? (ssize_t)done : found;
	}
}

/*
 * fill_socket makes the socket not writable, because the ring is full: the node empties it when half of the ring is free.
 * The last byte is apart, as it becomes the guard byte. The lock is held.
 */
static int fill_socket(struct rings *r, int fd)
{
	struct ring_direction *d = &r->page->direction[TO_NODE];
	if (atomic_exchange(&d->fill, 1) != 0)
		return 0;
	atomic_fetch_add(&d->doorbells, FILL + 1); /* both: the node goes on until it has read all */
	return write_counted(r, fd, FILL) != 0 ? -1 : write_counted(r, fd, 1);
}

/* free_pieces returns the free pieces of the ring to the node, at most n bytes. */
static size_t free_pieces(struct rings *r, size_t n, struct iovec to[2])
{
	struct ring_direction *d = &r->page->direction[TO_NODE];
	uint32_t size = r->page->size, have = used(d);
	uint32_t space = have < size ? size - have : 0;
	space = n < space ? (uint32_t)n : space;
	pieces(r, TO_NODE, atomic_load(&d->tail), space, to);
	return space;
}

static int publish(struct rings *r, int fd, size_t n)
{
	if (n == 0)
		return 0;
	atomic_fetch_add(&r->page->direction[TO_NODE].tail, (uint32_t)n);
	return published(r, fd);
}

enum outcome { WROTE, MOVED, ENDED, BUSY };

/*
 * begin_send takes the lock if the ring may be written. Who was killed with it may have noted that the node is woken, and not have
 * written the doorbell byte: nobody else would.
 */
static enum outcome begin_send(struct rings *r, int fd)
{
	int e = lock_take(&r->page->locks[0].send, NULL, 0);
	if (e != 0 && e != EOWNERDEAD) {
		errno = EAGAIN; /* this is a signal handler, in the middle of a call */
		return BUSY;
	}
	if (e == EOWNERDEAD)
		write_doorbell(r, fd, 1);
	uint32_t state = atomic_load(&r->page->state);
	if (state <= RING_OPEN && atomic_load(&r->page->shut) == 0)
		return WROTE;
	rings_unlock(&r->page->locks[0].send);
	return state == RING_MOVED ? MOVED : ENDED;
}

/* put copies to the ring what there is space for. ended is that the node has closed the socket. */
static size_t put(struct rings *r, int fd, struct cursor *from, size_t n, bool *ended)
{
	struct iovec to[2];
	uint32_t state = atomic_load(&r->page->state);
	size_t space = state == RING_OPEN ? free_pieces(r, n, to) : 0;
	if (space > 0)
		copy_pieces(from, to, true);
	*ended = state > RING_OPEN || publish(r, fd, space) != 0; /* it may have ended since begin_send */
	if (!*ended && space < n && state == RING_OPEN)
		*ended = fill_socket(r, fd) != 0;
	return *ended ? 0 : space; /* without a reader they are lost */
}

/*
 * end_of_stream says why nothing can be written: EPIPE, with its signal, or once what the kernel or the node knows, such as
 * ECONNRESET. After shutdown(2) and a reset with bytes to come the socket itself is open, for doorbell bytes, and it may be for a
 * moment before the node closes its end.
 */
static ssize_t end_of_stream(struct rings *r, int fd, int flags)
{
	bool shut = atomic_load(&r->page->shut) != 0, open = shut || atomic_load(&r->page->state) == RING_FAILED;
	if (!open && KERNEL(sendto, fd, zeros, 1, MSG_NOSIGNAL | MSG_DONTWAIT, NULL, 0) < 0 && errno == ECONNRESET)
		return -1;
	int cause = shut ? 0 : atomic_exchange(&r->error, 0);
	if (cause == 0 && !shut)
		cause = socket_error(fd);
	if (cause != 0 && cause != EPIPE) {
		errno = cause;
		return -1;
	}
	if ((flags & MSG_NOSIGNAL) == 0)
		raise(SIGPIPE);
	errno = EPIPE;
	return -1;
}

ssize_t rings_send(struct rings *r, int fd, const struct iovec *parts, size_t n, int flags)
{
	struct cursor from = {parts, n, 0};
	size_t want = total(parts, n), done = 0;
	for (;;) {
		bool ended = false;
		enum outcome o = begin_send(r, fd);
		if (o == WROTE) {
			done += put(r, fd, &from, want - done, &ended);
			rings_unlock(&r->page->locks[0].send);
		}
		if (o == MOVED)
			return done > 0 ? (ssize_t)done + send_rest(fd, &from, want - done, flags) : RINGS_MOVED;
		if (o == BUSY)
			return done > 0 ? (ssize_t)done : -1;
		if (o == ENDED || ended)
			return done > 0 ? (ssize_t)done : end_of_stream(r, fd, flags);
		if (done == want)
			return (ssize_t)done;
		if (!blocking(fd, flags)) {
			errno = EAGAIN;
			return done > 0 ? (ssize_t)done : -1;
		}
		if (wait_writable(fd, done > 0) <= 0)
			return done > 0 ? (ssize_t)done : -1;
	}
}

/* put_file reads a file into the ring: one copy. It returns what it has read, or -1. full is that there was no more space. */
static ssize_t put_file(struct rings *r, int fd, int file, off_t *at, size_t n, bool *full, bool *ended)
{
	struct iovec to[2];
	size_t space = free_pieces(r, n, to);
	ssize_t got = 0;
	if (space > 0)
		got = at == NULL ? KERNEL(readv, file, to, 2) : KERNEL(preadv, file, to, 2, (long)*at, 0);
	if (got > 0 && at != NULL)
		*at += got;
	*ended = publish(r, fd, got > 0 ? (size_t)got : 0) != 0;
	*full = space < n && (got == (ssize_t)space);
	if (!*ended && *full)
		*ended = fill_socket(r, fd) != 0;
	return got;
}

ssize_t rings_sendfile(struct rings *r, int fd, int file, off_t *at, size_t n)
{
	size_t done = 0;
	while (done < n) {
		bool full = false, ended = false;
		enum outcome o = begin_send(r, fd);
		ssize_t got = 0;
		if (o == WROTE) {
			got = put_file(r, fd, file, at, n - done, &full, &ended);
			rings_unlock(&r->page->locks[0].send);
		}
		if (o == MOVED)
			return done > 0 ? (ssize_t)done : RINGS_MOVED;
		if (got < 0)
			return done > 0 ? (ssize_t)done : -1;
		done += (size_t)got;
		if (o == BUSY)
			return done > 0 ? (ssize_t)done : -1;
		if (o == ENDED || ended)
			return done > 0 ? (ssize_t)done : end_of_stream(r, fd, 0);
		if (!full && got == 0)
			break; /* the end of the file */
		if (full && done < n && (!blocking(fd, 0) || wait_writable(fd, done > 0) <= 0)) {
			if (done == 0)
				errno = EAGAIN;
			return done > 0 ? (ssize_t)done : -1;
		}
	}
	return (ssize_t)done;
}
