/*
 * poll.c - POLLERR of sockets of datagrams in poll(2). The node's notice of an error is a message, which the kernel shows as POLLIN; programs
 * take the queue of errors for POLLERR alone (traceroute). select(2) has no word for it: Linux shows such a socket as readable, too.
 */

#include "datagram.h"

#include <dlfcn.h>
#include <poll.h>
#include <time.h>

#define READ (POLLIN | POLLRDNORM)
#define LOOK 10000000 /* ns: how often a call looks for errors behind datagrams that its program does not wait for */
#define BLIND 1024    /* entries of a call for which it does */

static int (*libc_poll)(struct pollfd *, nfds_t, int);
static int (*libc_ppoll)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);

/* Signal handlers may call poll(2), and dlsym(3) is not for them. libc's functions end a thread that is cancelled, which system calls do not. */
__attribute__((constructor)) static void find(void)
{
	void *found = dlsym(RTLD_NEXT, "poll"), *other = dlsym(RTLD_NEXT, "ppoll");
	memcpy(&libc_poll, &found, sizeof libc_poll);
	memcpy(&libc_ppoll, &other, sizeof libc_ppoll);
}

/*
 * The entries of a call whose program does not ask for POLLIN: POLLERR is reported to it all the same. They wait for POLLIN, by which notices
 * come, as long as no datagram is unread.
 */
struct blind {
	uint64_t bits[BLIND / 64];
	bool any;
};

static bool is_blind(const struct blind *b, nfds_t i)
{
	return b->any && i < BLIND && (b->bits[i / 64] >> (i % 64) & 1) != 0;
}

static void find_blind(struct blind *b, const struct pollfd *p, nfds_t n)
{
	memset(b, 0, sizeof *b);
	for (nfds_t i = 0; i < n && i < BLIND; i++) {
		if (!maybe_datagram(p[i].fd) || (p[i].events & READ) != 0 || data_mark(p[i].fd, true).kind < DATAGRAM)
			continue;
		b->bits[i / 64] |= 1ull << (i % 64);
		b->any = true;
	}
}

static void ask_for(const struct blind *b, struct pollfd *p, nfds_t n, bool on)
{
	for (nfds_t i = 0; b->any && i < n && i < BLIND; i++)
		if (is_blind(b, i))
			p[i].events = (short)(on ? p[i].events | POLLIN : p[i].events & ~POLLIN);
}

/*
 * errors_of shows the errors among what is ready, and returns how many entries have events. *unread is that datagrams wait at an entry that is
 * blind. Only numbers that have been sockets of datagrams are looked at.
 */
static int errors_of(struct pollfd *p, nfds_t n, const struct blind *b, bool *unread)
{
	int ready = 0, saved = errno;
	*unread = false;
	for (nfds_t i = 0; i < n; i++) {
		short read = p[i].revents & READ, shown;
		if (read != 0 && (p[i].revents & POLLHUP) == 0 && maybe_datagram(p[i].fd)) {
			shown = pending_events(p[i].fd);
			if (is_blind(b, i)) {
				*unread = *unread || shown == POLLIN;
				shown &= POLLERR;
			}
			p[i].revents = (short)((p[i].revents & ~READ) | (shown & POLLERR) | ((shown & POLLIN) != 0 ? read : 0));
		}
		ready += p[i].revents != 0;
	}
	errno = saved;
	return ready;
}

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* wait_for is poll for at most limit ns, negative is without end. Where a stale notice was all that came it waits again. */
static int wait_for(struct pollfd *p, nfds_t n, int64_t limit, const sigset_t *mask)
{
	struct blind b;
	bool unread = false;
	int64_t end = limit >= 0 ? now() + limit : 0;
	find_blind(&b, p, n);
	for (;;) {
		int64_t left = limit >= 0 ? end - now() : INT64_MAX;
		left = left > 0 ? left : 0;
		int64_t some = unread && left > LOOK ? LOOK : left;
		const struct timespec t = {(time_t)(some / 1000000000), (long)(some % 1000000000)};
		ask_for(&b, p, n, !unread);
		int ready = libc_ppoll(p, n, some == INT64_MAX ? NULL : &t, mask);
		ask_for(&b, p, n, false);
		if (ready < 0)
			return ready;
		ready = errors_of(p, n, &b, &unread);
		if (ready > 0 || (limit >= 0 && now() >= end))
			return ready;
	}
}

static bool has_datagrams(const struct pollfd *p, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++)
		if (maybe_datagram(p[i].fd))
			return true;
	return false;
}

INTERPOSED int poll(struct pollfd *p, nfds_t n, int ms)
{
	if (libc_poll == NULL)
		find();
	if (no_memory(p, n * sizeof *p) || !has_datagrams(p, n))
		return libc_poll(p, n, ms);
	return wait_for(p, n, (int64_t)ms * 1000000, NULL);
}

INTERPOSED int ppoll(struct pollfd *p, nfds_t n, const struct timespec *limit, const sigset_t *mask)
{
	if (libc_ppoll == NULL)
		find();
	if (no_memory(p, n * sizeof *p) || (limit != NULL && no_memory(limit, sizeof *limit)) || !has_datagrams(p, n))
		return libc_ppoll(p, n, limit, mask);
	if (limit != NULL && (limit->tv_sec < 0 || limit->tv_nsec < 0 || limit->tv_nsec >= 1000000000))
		return libc_ppoll(p, n, limit, mask); /* EINVAL */
	bool ends = limit != NULL && limit->tv_sec < INT32_MAX;
	return wait_for(p, n, ends ? (int64_t)limit->tv_sec * 1000000000 + limit->tv_nsec : -1, mask);
}

/* The forms of a program that was compiled with _FORTIFY_SOURCE. */
INTERPOSED int __poll_chk(struct pollfd *p, nfds_t n, int ms, size_t space)
{
	if (space / sizeof *p < n)
		__builtin_trap(); /* libc ends the program, too */
	return poll(p, n, ms);
}

INTERPOSED int __ppoll_chk(struct pollfd *p, nfds_t n, const struct timespec *limit, const sigset_t *mask, size_t space)
{
	if (space / sizeof *p < n)
		__builtin_trap();
	return ppoll(p, n, limit, mask);
}
