/* ringend.c - the locks and indexes of an end of rings, and its sleeps. */

#include "ringend.h"

#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>

static _Bool old_futex; /* there is no futex_waitv(2), or a filter may forbid it */

__attribute__((constructor)) static void find_filter(void)
{
	old_futex = prctl(PR_GET_SECCOMP) > 0;
}

void ring_sandbox(void)
{
	__atomic_store_n(&old_futex, 1, __ATOMIC_RELAXED);
}

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

struct waiter { /* struct futex_waitv */
	uint64_t value, address;
	uint32_t flags, reserved;
};

/*
 * futex_waitv(2) has an absolute time, so that the kernel restarts it after a signal whose handler has SA_RESTART, as recv(2).
 * futex(2) with a time never is: there all handlers of the process have to have it.
 */
int sleep_on(_Atomic uint32_t *word, uint32_t value, uint32_t ns)
{
	uint64_t end = now() + ns;
	struct timespec at = {(time_t)(end / 1000000000), (long)(end % 1000000000)};
	struct waiter w = {value, (uintptr_t)word, 2 /* FUTEX2_SIZE_U32 */, 0};
	if (!__atomic_load_n(&old_futex, __ATOMIC_RELAXED)) {
		if (KERNEL(futex_waitv, &w, 1, 0, &at, CLOCK_MONOTONIC) >= 0)
			return 0;
		if (errno != ENOSYS && errno != EPERM)
			return errno == EINTR ? -1 : 0;
		__atomic_store_n(&old_futex, 1, __ATOMIC_RELAXED);
	}
	struct timespec time = {ns / 1000000000, ns % 1000000000};
	if (KERNEL(futex, word, FUTEX_WAIT, value, &time, NULL, 0) >= 0 || errno != EINTR || restarts())
		return 0;
	return -1;
}

void wake_all(_Atomic uint32_t *word)
{
	KERNEL(futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

ssize_t ring_end_of_writing(int cause, int flags)
{
	bool pipe = cause == 0 || cause == EPIPE;
	if (pipe && (flags & MSG_NOSIGNAL) == 0)
		raise(SIGPIPE);
	errno = pipe ? EPIPE : cause;
	return -1;
}

void ring_unmap(struct rings *r)
{
	KERNEL(munmap, r->page, RING_HEADER + 2 * (size_t)r->size);
}

/* was_left reports whether a call that had the lock was left in the middle: e is the result of lock_take. */
static bool was_left(struct ring_side *s, uint32_t flag, int e)
{
	bool jumped = (atomic_load_explicit(&s->flags, memory_order_relaxed) & flag) != 0;
	return jumped ? (atomic_fetch_and(&s->flags, ~flag), true) : e == EOWNERDEAD;
}

bool ring_lock_send(struct rings *r, int fd)
{
	struct ring_side *s = r->side;
	int e = lock_take(&s->send, &s->flags, SIDE_LEFT_SEND);
	if (e != 0 && e != EOWNERDEAD)
		return false;
	if (was_left(s, SIDE_LEFT_SEND, e)) {
		uint64_t tail = atomic_load(&outgoing(r)->tail);
		uint64_t notified = atomic_load(&outgoing(r)->notified);
		if (tail - s->tail <= r->size)
			s->tail = tail;
		if (state_of(notified) == RING_ANSWER_PENDING)
			atomic_compare_exchange_strong(&outgoing(r)->notified, &notified, (notified & ~0xffull) | RING_ANSWER_NONE);
		if (r->tier->recovered != NULL)
			r->tier->recovered(r, fd);
	}
	return true;
}

bool ring_lock_receive(struct rings *r, int fd)
{
	struct ring_side *s = r->side;
	int e = lock_take(&s->receive, &s->flags, SIDE_LEFT_RECEIVE), have = 0;
	if (e != 0 && e != EOWNERDEAD)
		return false;
	if (!was_left(s, SIDE_LEFT_RECEIVE, e))
		return true;
	uint64_t head = atomic_load(&incoming(r)->head), notified = atomic_load(&incoming(r)->notified);
	if (head - s->head <= r->size)
		s->head = head;
	if (state_of(notified) != RING_ANSWER_ENDED && KERNEL(ioctl, fd, FIONREAD, &have) == 0)
		s->taken += doorbells(r) - (uint32_t)have;
	return true;
}
