/*
 * direct.c - the memory and doorbells of rings between two programs. Bytes are in directread.c and directwrite.c, the return to the
 * socket in directleave.c.
 */

#include "doorbell.h"
#include "cursor.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#define SIDE_SIZE 4096

static const char zeros[DIRECT_FILL];

static _Bool old_futex; /* there is no futex_waitv(2), or a filter may forbid it */

__attribute__((constructor)) static void look_for_filter(void)
{
	old_futex = prctl(PR_GET_SECCOMP) > 0;
}

void direct_sandbox(void)
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

bool direct_attach(struct rings *r, int fd, int memory, bool connects)
{
	struct stat st;
	if (fstat(memory, &st) != 0 || st.st_size <= DIRECT_HEADER)
		return false;
	size_t bytes = (size_t)st.st_size;
	long p = KERNEL(mmap, NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	if (p == -1)
		return false;
	struct direct_page *page = (struct direct_page *)p;
	uint32_t size = *(volatile uint32_t *)&page->size;
	long s = -1;
	if (page->magic == DIRECT_MAGIC && page->version == DIRECT_VERSION && size != 0 && (size & (size - 1)) == 0 && size <= 1u << 30 &&
	    bytes == DIRECT_HEADER + 2 * (uint64_t)size)
		s = KERNEL(mmap, NULL, SIDE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s == -1) {
		KERNEL(munmap, p, bytes);
		return false;
	}
	r->direct = page;
	r->side = (struct direct_side *)s;
	r->size = size;
	r->number = connects ? 0 : 1;
	r->data[0] = (uint8_t *)page + DIRECT_HEADER;
	r->data[1] = r->data[0] + size;
	lock_make(&r->side->send);
	lock_make(&r->side->receive);
	if ((KERNEL(fcntl, fd, F_GETFL) & O_NONBLOCK) != 0)
		atomic_store(&r->side->flags, SIDE_NONBLOCKING);
	return true;
}

bool direct_share(const struct rings *r, struct rings *other)
{
	size_t bytes = DIRECT_HEADER + 2 * (size_t)r->size;
	/* An old size of 0 makes a second mapping of shared pages: mremap(2). */
	long p = KERNEL(mremap, r->direct, 0, bytes, MREMAP_MAYMOVE), s = -1;
	if (p != -1)
		s = KERNEL(mremap, r->side, 0, SIDE_SIZE, MREMAP_MAYMOVE);
	if (s == -1) {
		if (p != -1)
			KERNEL(munmap, p, bytes);
		return false;
	}
	other->direct = (struct direct_page *)p;
	other->side = (struct direct_side *)s;
	other->size = r->size;
	other->number = r->number;
	other->data[0] = (uint8_t *)p + DIRECT_HEADER;
	other->data[1] = other->data[0] + r->size;
	return true;
}

void direct_unmap(struct rings *r)
{
	KERNEL(munmap, r->direct, DIRECT_HEADER + 2 * (size_t)r->size);
	KERNEL(munmap, r->side, SIDE_SIZE);
	r->direct = NULL;
}

/* left reports whether a call that had the lock was left in the middle: e is the result of lock_take. */
static bool left(struct direct_side *s, uint32_t flag, int e)
{
	bool jumped = (atomic_load_explicit(&s->flags, memory_order_relaxed) & flag) != 0;
	return jumped ? (atomic_fetch_and(&s->flags, ~flag), true) : e == EOWNERDEAD;
}

bool direct_lock_send(struct rings *r)
{
	struct direct_side *s = r->side;
	int e = lock_take(&s->send, &s->flags, SIDE_LEFT_SEND);
	if (e != 0 && e != EOWNERDEAD)
		return false;
	if (left(s, SIDE_LEFT_SEND, e)) {
		uint32_t tail = atomic_load(&outgoing(r)->tail) & DIRECT_INDEX;
		if (((tail - s->tail) & DIRECT_INDEX) <= r->size)
			s->tail = tail;
	}
	return true;
}

bool direct_lock_receive(struct rings *r, int fd)
{
	struct direct_side *s = r->side;
	int e = lock_take(&s->receive, &s->flags, SIDE_LEFT_RECEIVE), have = 0;
	if (e != 0 && e != EOWNERDEAD)
		return false;
	if (!left(s, SIDE_LEFT_RECEIVE, e))
		return true;
	uint32_t head = atomic_load(&incoming(r)->head) & DIRECT_INDEX;
	if (((head - s->head) & DIRECT_INDEX) <= r->size)
		s->head = head;
	uint64_t notifier = atomic_load(&incoming(r)->notifier);
	if (state_of(notifier) != DIRECT_GONE && KERNEL(ioctl, fd, FIONREAD, &have) == 0)
		s->taken = count_of(notifier) - (uint32_t)have;
	return true;
}

int direct_fail(struct rings *r, int fd)
{
	atomic_fetch_or(&r->side->flags, SIDE_BROKEN);
	KERNEL(shutdown, fd, SHUT_RDWR);
	direct_wake(r);
	errno = ECONNRESET;
	return -1;
}

bool direct_used(const struct rings *r, uint32_t *n)
{
	struct direct_direction *d = incoming(r);
	*n = 0;
	if ((atomic_load(&d->head) & DIRECT_LEFT) != 0)
		return true; /* the other has put it into the socket */
	*n = ((atomic_load(&d->tail) & DIRECT_INDEX) - r->side->head) & DIRECT_INDEX;
	return *n <= r->size;
}

long direct_space(struct rings *r, size_t n)
{
	struct direct_side *s = r->side;
	uint32_t space = r->size - ((s->tail - s->seen) & DIRECT_INDEX);
	if (space >= n)
		return space;
	uint32_t head = atomic_load(&outgoing(r)->head) & DIRECT_INDEX, used = (s->tail - head) & DIRECT_INDEX;
	if (used > r->size)
		return -1;
	s->seen = head;
	return r->size - used;
}

void direct_drain(struct rings *r, int fd, uint32_t n)
{
	char dropped[4096];
	for (n = n < DIRECT_DOORBELLS ? n : DIRECT_DOORBELLS; n > 0;) {
		long got = KERNEL(recvfrom, fd, dropped, n < sizeof dropped ? n : sizeof dropped, MSG_DONTWAIT, NULL, NULL);
		if (got <= 0) /* on its way: the next call takes it */
			return;
		r->side->taken += (uint32_t)got;
		n -= (uint32_t)got;
	}
}

void direct_free(struct rings *r, int fd, uint32_t keep)
{
	struct direct_direction *d = incoming(r);
	uint32_t space = atomic_exchange(&d->space, 0), left = count_of(atomic_load(&d->notifier)) - r->side->taken;
	if ((space & DIRECT_SLEEPS) != 0)
		wake_all(&d->space);
	if ((space & DIRECT_FILLED) != 0 && left > keep)
		direct_drain(r, fd, left - keep);
}

int direct_strip(struct rings *r, int fd)
{
	uint64_t notifier = atomic_load(&incoming(r)->notifier);
	uint32_t left = count_of(notifier) - r->side->taken;
	if (state_of(notifier) != DIRECT_GONE || left > DIRECT_DOORBELLS)
		return -1;
	direct_drain(r, fd, left);
	return count_of(notifier) == r->side->taken;
}

void direct_silence(struct direct_direction *d)
{
	uint64_t notifier = atomic_load(&d->notifier);
	for (int i = 0; i < DIRECT_TRIES && state_of(notifier) != DIRECT_GONE; i++)
		if (change_notifier(d, &notifier, DIRECT_GONE, 0)) {
			if (state_of(notifier) == DIRECT_ASLEEP)
				wake_all(state_word(d));
			return;
		}
}

int direct_write(struct rings *r, int fd, uint32_t n)
{
	struct direct_direction *d = outgoing(r);
	long sent;
	do
		sent = KERNEL(sendto, fd, zeros, n, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
	while (sent < 0 && errno == EINTR);
	int cause = errno;
	if (sent < (long)n) {
		uint64_t notifier = atomic_load(&d->notifier);
		uint32_t less = n - (sent > 0 ? (uint32_t)sent : 0);
		for (int i = 0; i < DIRECT_TRIES && !change_notifier(d, &notifier, state_of(notifier), -less); i++)
			;
	}
	return sent >= 0 || cause == EAGAIN ? 0 : -1;
}

int direct_announce(struct rings *r, int fd, bool other)
{
	struct direct_direction *d = outgoing(r);
	uint64_t notifier = atomic_load(&d->notifier);
	for (int i = 0; i < DIRECT_TRIES; i++) {
		uint32_t state = state_of(notifier), want = atomic_load(&d->want);
		/* How much there is has to be known where that is more than want, or could be nothing. */
		long space = direct_space(r, state == DIRECT_ARMED || want >= r->size ? r->size : r->size - want);
		if (space < 0)
			return direct_fail(r, fd);
		bool more = r->size - (uint32_t)space > want;
		if (space == (long)r->size && !other && state == DIRECT_ARMED)
			return 0; /* a byte now would make the socket readable for nothing */
		if (state == DIRECT_DISARMED || state >= DIRECT_GONE || (!more && (state == DIRECT_SPINNING || state == DIRECT_WOKEN)))
			return 0;
		bool byte = more || state == DIRECT_ARMED;
		if (!change_notifier(d, &notifier, byte ? DIRECT_DISARMED : DIRECT_WOKEN, byte))
			continue;
		if (state == DIRECT_ASLEEP)
			wake_all(state_word(d));
		return byte ? direct_write(r, fd, 1) : 0;
	}
	return 0;
}

void direct_wake(struct rings *r)
{
	struct direct_direction *d = outgoing(r);
	atomic_fetch_add(&d->closes, 1);
	uint64_t notifier = atomic_load(&d->notifier);
	for (int i = 0; i < DIRECT_TRIES && state_of(notifier) == DIRECT_ASLEEP; i++)
		if (change_notifier(d, &notifier, DIRECT_WOKEN, 0)) {
			wake_all(state_word(d));
			break;
		}
	if ((atomic_fetch_and(&incoming(r)->space, ~DIRECT_SLEEPS) & DIRECT_SLEEPS) != 0)
		wake_all(&incoming(r)->space);
}

/* What exit(3) closes is seen at once. The node tells the other of what _exit(2) and SIGKILL close. */
__attribute__((destructor)) static void wake_at_exit(void)
{
	for (int fd = 0; fd < atomic_load(&rings_numbers); fd++) {
		struct rings *r = rings_hold(fd);
		if (r != NULL && r->direct != NULL)
			direct_wake(r);
		if (r != NULL)
			rings_release(r);
	}
}

int direct_shut(struct rings *r, int fd, int how)
{
	if (how == SHUT_RD || !direct_lock_send(r))
		return (int)KERNEL(shutdown, fd, how);
	direct_return(r, fd);
	atomic_fetch_or(&r->side->flags, SIDE_SHUT);
	int result = (int)KERNEL(shutdown, fd, how);
	direct_unlock(&r->side->send);
	direct_wake(r);
	return result;
}

static void set_flag(int fd, uint32_t flag, bool on)
{
	struct rings *r = rings_hold(fd);
	if (r == NULL)
		return;
	if (r->direct != NULL && on)
		atomic_fetch_or(&r->side->flags, flag);
	else if (r->direct != NULL)
		atomic_fetch_and(&r->side->flags, ~flag);
	rings_release(r);
}

void direct_nonblocking(int fd, bool on)
{
	set_flag(fd, SIDE_NONBLOCKING, on);
}

void direct_timed(int fd)
{
	set_flag(fd, SIDE_TIMED, true);
}
