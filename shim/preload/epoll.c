/*
 * epoll.c - EPOLLERR of sockets of datagrams. The kernel shows a notice of an error as EPOLLIN, and an event has what the program has given
 * with the descriptor, not the descriptor: so the process remembers which sockets of datagrams are in which instance. Of those that it has
 * not seen (entered by io_uring, or before exec) it knows the ones whose data is their descriptor. Others show as readable, and the
 * next call that receives has the error.
 */

#include "datagram.h"
#include "rebind.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <time.h>

#define SETS 128 /* places are found by a hash of the instance and the data */
#define WAYS 4   /* in each set */
#define READ (EPOLLIN | EPOLLRDNORM)
#define LOOK 20 /* ms: how often a wait looks for errors behind datagrams that the program does not wait for */

struct place {
	_Atomic uint64_t key;    /* instance and socket; 0 is free */
	_Atomic uint64_t data;   /* of the program */
	_Atomic uint32_t events; /* that it has asked for */
	_Atomic bool unread;     /* it does not ask for EPOLLIN, and datagrams wait: the kernel is not asked for it either, or would report it again and again */
};

static struct place places[SETS * WAYS];
static _Atomic int unread_left; /* places with unread: an upper bound */
static atomic_flag busy = ATOMIC_FLAG_INIT;

static int (*libc_wait)(int, struct epoll_event *, int, int);
static int (*libc_pwait)(int, struct epoll_event *, int, int, const sigset_t *);
static int (*libc_pwait2)(int, struct epoll_event *, int, const struct timespec *, const sigset_t *);

__attribute__((constructor)) static void find_libc(void)
{
	void *wait = dlsym(RTLD_NEXT, "epoll_wait"), *pwait = dlsym(RTLD_NEXT, "epoll_pwait"), *pwait2 = dlsym(RTLD_NEXT, "epoll_pwait2");
	memcpy(&libc_wait, &wait, sizeof libc_wait);
	memcpy(&libc_pwait, &pwait, sizeof libc_pwait);
	memcpy(&libc_pwait2, &pwait2, sizeof libc_pwait2);
}

static uint64_t key_of(int epoll, int fd)
{
	return (uint64_t)((uint32_t)epoll + 1) << 32 | (uint32_t)fd;
}

static struct place *set_of(int epoll, uint64_t data)
{
	uint64_t hash = (data ^ (uint64_t)(uint32_t)epoll) * 0x9e3779b97f4a7c15u; /* 2^64 by the golden ratio */
	return &places[(hash >> 57) * WAYS];
}

/* place_of finds what an event of an instance stands for; NULL is another file. The hash table is read without its lock: what it says is
   compared with the socket. */
static struct place *place_of(int epoll, uint64_t data)
{
	struct place *set = set_of(epoll, data);
	for (int i = 0; i < WAYS; i++)
		if (atomic_load(&set[i].key) >> 32 == (uint64_t)((uint32_t)epoll + 1) && atomic_load(&set[i].data) == data)
			return &set[i];
	return NULL;
}

static void forget(uint64_t key)
{
	for (struct place *p = places; p < places + SETS * WAYS; p++)
		if (atomic_load(&p->key) == key)
			atomic_store(&p->key, 0);
}

/* note remembers a socket in an instance. In a full set it takes the place of another. */
static void note(int epoll, int fd, const struct epoll_event *e)
{
	static unsigned victim;
	struct place *set = set_of(epoll, e->data.u64), *p = NULL;
	for (int i = 0; i < WAYS && p == NULL; i++)
		if (atomic_load(&set[i].key) == 0)
			p = &set[i];
	if (p == NULL)
		p = &set[victim++ % WAYS];
	atomic_store(&p->key, 0); /* none meanwhile */
	atomic_store(&p->data, e->data.u64);
	atomic_store(&p->events, e->events);
	if (atomic_exchange(&p->unread, false))
		atomic_fetch_sub(&unread_left, 1);
	atomic_store(&p->key, key_of(epoll, fd));
}

/*
 * is_blind reports whether the program does not ask for EPOLLIN: EPOLLERR is reported to it all the same, by notices. The kernel changes no
 * entry that is exclusive, and an entry of one event would be spent by a datagram.
 */
static bool is_blind(uint32_t events)
{
	return (events & (READ | EPOLLEXCLUSIVE | EPOLLONESHOT)) == 0;
}

INTERPOSED int epoll_ctl(int epoll, int op, int fd, struct epoll_event *e)
{
	if (!maybe_datagram(fd) || (op != EPOLL_CTL_DEL && no_memory(e, sizeof *e)) || data_mark(fd, true).kind < DATAGRAM)
		return (int)KERNEL(epoll_ctl, epoll, op, fd, e);
	struct epoll_event with = {0};
	if (op != EPOLL_CTL_DEL)
		with = *e;
	if (is_blind(with.events))
		with.events |= EPOLLIN;
	int result = (int)KERNEL(epoll_ctl, epoll, op, fd, &with);
	if (result != 0)
		return result;
	while (atomic_flag_test_and_set_explicit(&busy, memory_order_acquire))
		KERNEL(sched_yield, 0);
	forget(key_of(epoll, fd));
	if (op != EPOLL_CTL_DEL)
		note(epoll, fd, e);
	atomic_flag_clear_explicit(&busy, memory_order_release);
	return 0;
}

static void ask_kernel(struct place *p, bool read)
{
	uint64_t key = atomic_load(&p->key);
	struct epoll_event e = {.events = atomic_load(&p->events) | (read ? EPOLLIN : 0), .data.u64 = atomic_load(&p->data)};
	if (key != 0)
		KERNEL(epoll_ctl, (int)(uint32_t)((key >> 32) - 1), EPOLL_CTL_MOD, (int)(uint32_t)key, &e);
}

/* ask_again lets sockets wait for notices whose program has read the datagrams before. It returns whether others are left. */
static bool ask_again(int epoll)
{
	bool left = false;
	if (atomic_load_explicit(&unread_left, memory_order_relaxed) == 0)
		return false;
	for (struct place *p = places; p < places + SETS * WAYS; p++) {
		uint64_t key = atomic_load(&p->key);
		if (key >> 32 != (uint64_t)((uint32_t)epoll + 1) || !atomic_load(&p->unread))
			continue;
		int fd = (int)(uint32_t)key;
		if (datagram_waits(fd) && (pending_events(fd) & EPOLLERR) == 0) {
			left = true;
			continue;
		}
		if (atomic_exchange(&p->unread, false))
			atomic_fetch_sub(&unread_left, 1);
		ask_kernel(p, true);
	}
	return left;
}

/* shown changes an event of a socket of datagrams to what Linux shows. False is that nothing is left of it. */
static bool shown(struct place *p, struct epoll_event *e)
{
	uint32_t events = atomic_load(&p->events), read = e->events & READ;
	uint32_t now = (uint32_t)pending_events((int)(uint32_t)atomic_load(&p->key)); /* the numbers are those of poll(2) */
	if (is_blind(events) && now == EPOLLIN && (events & EPOLLET) == 0 && !atomic_exchange(&p->unread, true)) {
		atomic_fetch_add(&unread_left, 1);
		ask_kernel(p, false);
	}
	if (is_blind(events))
		now &= EPOLLERR;
	e->events = (e->events & ~READ) | (now & EPOLLERR) | ((now & EPOLLIN) != 0 ? read : 0);
	return e->events != 0;
}

/*
 * guess shows the error of a socket that was entered unseen, if the data of its event is its descriptor, as libuv has it. The description of
 * the instance says whether it is, which costs more than to ask for errors first.
 */
static void guess(int epoll, struct epoll_event *e)
{
	struct epoll_event is;
	int fd = (int)e->data.u32;
	if (fd < 0 || !maybe_datagram(fd))
		return;
	uint32_t now = (uint32_t)pending_events(fd), read = e->events & READ;
	if ((now & EPOLLERR) == 0 || !entry_of(epoll, fd, &is) || is.data.u64 != e->data.u64)
		return;
	e->events = (e->events & ~READ) | EPOLLERR | ((now & EPOLLIN) != 0 ? read : 0);
}

/* errors_of changes n events, and returns how many are left. */
static int errors_of(int epoll, struct epoll_event *e, int n)
{
	int left = 0, saved = errno;
	for (int i = 0; i < n; i++) {
		bool reads = (e[i].events & READ) != 0 && (e[i].events & EPOLLHUP) == 0;
		struct place *p = reads ? place_of(epoll, e[i].data.u64) : NULL;
		if (p == NULL && reads)
			guess(epoll, &e[i]);
		if (p == NULL || shown(p, &e[i]))
			e[left++] = e[i];
	}
	errno = saved;
	return left;
}

static int64_t milliseconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* wait_for waits for at most ms, negative is without end. Where stale notices were all that came it waits again. */
static int wait_for(int epoll, struct epoll_event *e, int most, int64_t ms, const sigset_t *mask)
{
	int64_t end = milliseconds() + ms;
	for (;;) {
		bool looks = ask_again(epoll);
		int64_t left = ms < 0 ? INT32_MAX : end - milliseconds();
		left = left > 0 ? left : 0;
		int some = looks && left > LOOK ? LOOK : ms < 0 ? -1 : (int)left;
		int n = libc_pwait(epoll, e, most, some, mask);
		if (n < 0)
			return n;
		n = errors_of(epoll, e, n);
		if (n > 0 || (ms >= 0 && milliseconds() >= end))
			return n;
	}
}

INTERPOSED int epoll_wait(int epoll, struct epoll_event *e, int most, int ms)
{
	if (libc_wait == NULL)
		find_libc();
	if (!some_datagram())
		return libc_wait(epoll, e, most, ms);
	return wait_for(epoll, e, most, ms, NULL);
}

INTERPOSED int epoll_pwait(int epoll, struct epoll_event *e, int most, int ms, const sigset_t *mask)
{
	if (libc_pwait == NULL)
		find_libc();
	if (!some_datagram())
		return libc_pwait(epoll, e, most, ms, mask);
	return wait_for(epoll, e, most, ms, mask);
}

INTERPOSED int epoll_pwait2(int epoll, struct epoll_event *e, int most, const struct timespec *limit, const sigset_t *mask)
{
	if (libc_pwait == NULL)
		find_libc();
	if (libc_pwait2 == NULL) {
		errno = ENOSYS;
		return -1;
	}
	int n = libc_pwait2(epoll, e, most, limit, mask);
	if (n <= 0 || !some_datagram())
		return n;
	n = errors_of(epoll, e, n);
	if (n > 0)
		return n;
	int64_t ms = limit != NULL && limit->tv_sec < INT32_MAX / 1000 ? (int64_t)limit->tv_sec * 1000 + (limit->tv_nsec + 999999) / 1000000 : -1;
	return wait_for(epoll, e, most, ms, mask);
}
