/*
 * directread.c - bytes from the ring of another program (direct.c).
 */
#include "cursor.h"
#include "doorbell.h"

#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>

static bool has_bytes(const struct rings *r)
{
	uint32_t n;
	return !direct_used(r, &n) || n > 0;
}

/*
 * arm asks for a doorbell byte with the next bytes, and returns the notifier. A thread that sleeps by futex(2) has to wait by the
 * socket then.
 */
static uint64_t arm(struct direct_direction *d)
{
	uint64_t notifier = atomic_load(&d->notifier);
	for (int i = 0; i < DIRECT_TRIES && state_of(notifier) != DIRECT_GONE; i++) {
		uint64_t next = armed(notifier);
		if (!atomic_compare_exchange_strong(&d->notifier, &notifier, next))
			continue;
		if (state_of(notifier) == DIRECT_ASLEEP)
			wake_all(state_word(d));
		return next;
	}
	return notifier;
}

/*
 * settle takes the doorbell bytes out of the socket, because the ring is empty. False is that it is not: what has come since is
 * announced by the byte of before, if there is one, or will be. The lock is held.
 */
static bool settle(struct rings *r, int fd)
{
	struct direct_direction *d = incoming(r);
	uint64_t notifier = arm(d);
	uint32_t left = count_of(notifier) - r->side->taken;
	if (has_bytes(r)) {
		if (left > 0 && state_of(notifier) == DIRECT_ARMED)
			change_notifier(d, &notifier, DIRECT_DISARMED, 0);
		return false;
	}
	direct_drain(r, fd, left);
	for (int i = 0; i < DIRECT_TRIES && count_of(notifier) != r->side->taken; i++) {
		sched_yield(); /* one is on its way: it would make the socket readable for nothing */
		direct_drain(r, fd, count_of(notifier) - r->side->taken);
	}
	return true;
}

/* free_space tells a producer that waits for it when half of the ring is free. The lock is held. */
static void free_space(struct rings *r, int fd)
{
	struct direct_direction *d = incoming(r);
	uint32_t used;
	if (atomic_load(&d->space) != 0 && direct_used(r, &used) && used <= r->size / 2)
		direct_free(r, fd, used > 0);
}

/* copy_out copies up to want bytes. It returns how many, or -1 if the other breaks the protocol. */
static long copy_out(struct rings *r, struct cursor *to, size_t want, int flags)
{
	uint32_t have;
	struct iovec from[2];
	if (!direct_used(r, &have))
		return -1;
	uint32_t n = want < have ? (uint32_t)want : have;
	if (n > 0 && (flags & MSG_TRUNC) == 0) {
		pieces(r, 1 - r->number, r->side->head, n, from);
		copy_pieces(to, from, false);
	}
	return n;
}

/* peek leaves the bytes in the ring. What comes after all of them has a doorbell byte of its own, for an edge of epoll(7). */
static long peek(struct rings *r, struct cursor *to, size_t want, int flags)
{
	struct cursor begin = *to;
	uint32_t have;
	for (int i = 0;; i++) {
		*to = begin;
		long n = copy_out(r, to, want, flags);
		if (n <= 0 || (size_t)n == want || i == DIRECT_TRIES)
			return n;
		arm(incoming(r));
		if (!direct_used(r, &have) || have == (uint32_t)n)
			return n;
	}
}

/* advance frees n bytes. 0 is that the producer has put them into the socket, and -1 that it breaks the protocol. */
static int advance(struct rings *r, uint32_t n)
{
	uint32_t head = r->side->head, next = (head + n) & DIRECT_INDEX;
	if (!atomic_compare_exchange_strong(&incoming(r)->head, &head, next))
		return head == (r->side->head | DIRECT_LEFT) ? 0 : -1;
	r->side->head = next;
	return 1;
}

/*
 * take copies what the ring has. If it returns less than want, the ring was empty, and the next bytes make the socket readable
 * again: programs that use edges of epoll(7) rely on a short read. The lock is held.
 */
static long take(struct rings *r, int fd, struct cursor *to, size_t want, int flags)
{
	size_t done = 0;
	while (done < want) {
		struct cursor before = *to;
		long n = copy_out(r, to, want - done, flags);
		int moved = n > 0 ? advance(r, (uint32_t)n) : 0;
		if (n < 0 || moved < 0)
			return -1;
		if (moved == 0) {
			*to = before;
			break;
		}
		done += (size_t)n;
		if (!has_bytes(r) && (settle(r, fd) || done == want))
			break;
	}
	free_space(r, fd);
	return (long)done;
}

/*
 * lie_down announces that the caller waits beside the socket, and takes want bytes then. False is that another thread does, or a
 * doorbell byte is there. The lock is held.
 */
static bool lie_down(struct rings *r, size_t want, uint32_t state)
{
	struct direct_direction *d = incoming(r);
	uint64_t notifier = atomic_load(&d->notifier);
	if (state_of(notifier) != DIRECT_ARMED)
		return false;
	atomic_store(&d->want, want < UINT32_MAX ? (uint32_t)want : UINT32_MAX);
	return change_notifier(d, &notifier, state, 0);
}

/* get_up undoes that. A jump out of the wait calls it, too: poll(2) would not see the bytes that come next. */
static void get_up(void *direction)
{
	struct direct_direction *d = direction;
	uint64_t notifier = atomic_load(&d->notifier);
	for (int i = 0; i < DIRECT_TRIES; i++)
		if (state_of(notifier) == DIRECT_ARMED || state_of(notifier) == DIRECT_DISARMED || state_of(notifier) == DIRECT_GONE ||
		    change_notifier(d, &notifier, DIRECT_ARMED, 0))
			return;
}

static bool waits(struct rings *r)
{
	return !has_bytes(r) && !by_socket(incoming(r)) && !is_asked(r) && !may_have_ended(r);
}

/* spin polls for as long as busy_poll permits. Bytes of a program on the same CPU do not come meanwhile. */
static void spin(struct rings *r)
{
	struct direct_direction *d = incoming(r);
	uint32_t cpu = atomic_load_explicit(&d->cpu, memory_order_relaxed);
	if (cpu == (uint32_t)sched_getcpu() + 1)
		return;
	uint64_t end = now() + busy_poll();
	while (waits(r) && now() < end)
		for (int i = 0; i < 32 && (atomic_load_explicit(&d->tail, memory_order_acquire) & DIRECT_INDEX) == r->side->head; i++)
			pause_cpu();
}

/* sleep_for_bytes waits for bytes after lie_down: it spins, and sleeps for a while. -1 is EINTR. */
static int sleep_for_bytes(struct rings *r, uint32_t state)
{
	struct direct_direction *d = incoming(r);
	int result = 0;
	wait_begin(get_up, d);
	if (state == DIRECT_SPINNING) {
		spin(r);
		uint64_t now = atomic_load(&d->notifier);
		if (state_of(now) == DIRECT_SPINNING && waits(r))
			change_notifier(d, &now, DIRECT_ASLEEP, 0);
	}
	uint64_t notifier = atomic_load(&d->notifier);
	if (state_of(notifier) == DIRECT_ASLEEP && waits(r))
		result = sleep_on(state_word(d), (uint32_t)notifier, DIRECT_SLEEP);
	get_up(d);
	wait_end();
	return result < 0 && !has_bytes(r) ? -1 : 0;
}

/*
 * stale takes doorbell bytes whose bytes have been read. A process may have been killed before it counted what it took: a byte
 * that is there while the ring is empty, in this order, announces nothing.
 */
static void stale(struct rings *r, int fd)
{
	struct direct_direction *d = incoming(r);
	char first;
	if (!direct_lock_receive(r, fd))
		return;
	if (!has_bytes(r) && !by_socket(d)) {
		if (count_of(atomic_load(&d->notifier)) != r->side->taken)
			settle(r, fd);
		else if (KERNEL(recvfrom, fd, &first, 1, MSG_PEEK | MSG_DONTWAIT, NULL, NULL) == 1 && !has_bytes(r) && !by_socket(d) &&
			 count_of(atomic_load(&d->notifier)) == r->side->taken) /* it asks for nothing either */
			KERNEL(recvfrom, fd, &first, 1, MSG_DONTWAIT, NULL, NULL);
	}
	direct_unlock(&r->side->receive);
}

/*
 * end_of is how the stream has ended, which has an errno in failed, or 0. The kernel makes a close with a doorbell byte unread a reset, and
 * one without the end of the stream: what counts are our bytes that the other has not read (RFC 2525, 2.17).
 */
static ssize_t end_of(struct rings *r, int fd, int failed)
{
	struct direct_side *s = r->side;
	struct direct_direction *d = outgoing(r);
	bool late = (atomic_load(&s->flags) & SIDE_LATE) != 0;
	bool ring = !by_socket(d), unread = !late && ((s->tail - atomic_load(&d->head)) & DIRECT_INDEX) != 0;
	if (ring && failed == ECONNRESET && !unread)
		failed = 0;
	if (ring && failed == 0 && unread && hung_up(fd))
		failed = ECONNRESET;
	if ((atomic_load(&s->flags) & SIDE_BROKEN) != 0)
		failed = ECONNRESET;
	if (hung_up(fd))
		arm(d); /* the next bytes find out: a reader that was killed in its sleep has not asked for a byte */
	if (failed == 0 || (atomic_fetch_or(&s->flags, SIDE_RESET) & SIDE_RESET) != 0)
		return 0;
	errno = failed;
	return -1;
}

/* await waits for bytes as the socket does: with its timeout, and its signals. 1 is that there may be some, 0 the end. */
static ssize_t await(struct rings *r, int fd, int flags)
{
	char first;
	int wait = blocks(r, flags) ? 0 : MSG_DONTWAIT;
	ssize_t n = KERNEL(recvfrom, fd, &first, 1, MSG_PEEK | wait, NULL, NULL);
	if (n == 1) {
		if (!has_bytes(r))
			stale(r, fd);
		return 1;
	}
	int cause = n < 0 ? errno : 0;
	if (cause == ECONNRESET)
		atomic_store(&r->side->error, cause); /* the kernel says so once */
	if (has_bytes(r))
		return 1; /* they came before the end */
	if (n < 0 && cause != ECONNRESET) {
		errno = cause;
		return -1;
	}
	return end_of(r, fd, atomic_exchange(&r->side->error, 0));
}

/* rest reads from the socket what follows the last bytes of the ring: done bytes were read. */
static ssize_t rest(int fd, struct cursor *to, const struct iovec *end, size_t done, int flags)
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

ssize_t direct_receive(struct rings *r, int fd, const struct iovec *parts, size_t n, int flags)
{
	struct cursor to = {parts, n, 0};
	size_t want = total(parts, n), done = 0;
	bool peeks = (flags & MSG_PEEK) != 0, rested = false;
	for (;;) {
		uint32_t state = busy_poll() > 0 ? DIRECT_SPINNING : DIRECT_ASLEEP;
		int stripped = 0;
		direct_asked(r, fd);
		if (!direct_lock_receive(r, fd)) {
			errno = EAGAIN; /* this is a signal handler, in the middle of a call */
			return -1;
		}
		long got = peeks ? peek(r, &to, want, flags) : take(r, fd, &to, want - done, flags);
		bool left = got >= 0 && by_socket(incoming(r)) && !has_bytes(r);
		if (left)
			stripped = direct_strip(r, fd);
		done += got > 0 ? (size_t)got : 0;
		bool enough = want == 0 || (done > 0 && (peeks || (flags & MSG_WAITALL) == 0 || done == want));
		bool lies = !left && !rested && !enough && blocks(r, flags) && (atomic_load(&r->side->flags) & SIDE_TIMED) == 0 &&
			    !may_have_ended(r) && lie_down(r, want - done, state);
		r->side->closes = atomic_load(&incoming(r)->closes); /* the socket says whether that was the end */
		direct_unlock(&r->side->receive);
		if (got < 0 || stripped < 0) {
			direct_fail(r, fd);
			return done > 0 ? (ssize_t)done : -1;
		}
		if (stripped && done == 0)
			return RINGS_MOVED;
		if (stripped && done < want && !peeks && (flags & MSG_TRUNC) == 0)
			return rest(fd, &to, parts + n, done, enough ? MSG_DONTWAIT : flags);
		if (enough || stripped)
			return (ssize_t)done;
		if (lies) {
			if (sleep_for_bytes(r, state) < 0)
				return done > 0 ? (ssize_t)done : -1;
			rested = true;
			continue;
		}
		ssize_t found = await(r, fd, flags);
		if (found <= 0)
			return done > 0 ? (ssize_t)done : found;
		rested = false;
	}
}

size_t direct_unread(struct rings *r, int fd)
{
	uint32_t n = 0;
	int socket = 0;
	if (!direct_lock_receive(r, fd))
		return 0;
	if (direct_used(r, &n) && n > 0) { /* see peek */
		arm(incoming(r));
		direct_used(r, &n);
	} else if (by_socket(incoming(r)) && direct_strip(r, fd) == 1) {
		KERNEL(ioctl, fd, FIONREAD, &socket);
		n = (uint32_t)socket;
	}
	direct_unlock(&r->side->receive);
	return n <= r->size || socket > 0 ? n : 0;
}
