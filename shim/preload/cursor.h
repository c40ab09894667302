/*
 * cursor.h - the program's buffers, in order, and what loops that wait need.
 */
#ifndef MILLRACE_SHIM_CURSOR_H
#define MILLRACE_SHIM_CURSOR_H

#include "library.h"

#include <sys/uio.h>
#include <time.h>

/* cursor is a position in the program's buffers. */
struct cursor {
	const struct iovec *part;
	size_t parts, at;
};

static inline size_t total(const struct iovec *parts, size_t n)
{
	size_t sum = 0;
	for (size_t i = 0; i < n; i++)
		sum += parts[i].iov_len;
	return sum;
}

/* copy moves n bytes between the cursor and one piece of a ring. */
static inline void copy(struct cursor *c, uint8_t *ring, size_t n, bool to_ring)
{
	while (n > 0) {
		size_t m = c->part->iov_len - c->at;
		m = m < n ? m : n;
		char *own = (char *)c->part->iov_base + c->at;
		if (m > 0 && to_ring)
			memcpy(ring, own, m);
		else if (m > 0)
			memcpy(own, ring, m);
		ring += m;
		n -= m;
		c->at += m;
		if (c->at == c->part->iov_len) {
			c->part++;
			c->at = 0;
		}
	}
}

static inline void copy_pieces(struct cursor *c, const struct iovec ring[2], bool to_ring)
{
	copy(c, ring[0].iov_base, ring[0].iov_len, to_ring);
	copy(c, ring[1].iov_base, ring[1].iov_len, to_ring);
}

/* send_rest writes what a ring has not taken before the socket was moved. */
static inline ssize_t send_rest(int fd, struct cursor *from, size_t n, int flags)
{
	size_t done = 0;
	while (done < n) {
		size_t m = from->part->iov_len - from->at;
		ssize_t got = KERNEL(sendto, fd, (char *)from->part->iov_base + from->at, m, flags, NULL, 0);
		if (got < 0)
			break;
		done += (size_t)got;
		from->at += (size_t)got;
		if (from->at == from->part->iov_len) {
			from->part++;
			from->at = 0;
		}
	}
	return (ssize_t)done;
}

static inline uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline void pause_cpu(void)
{
#if defined __x86_64__ || defined __i386__
	__builtin_ia32_pause();
#elif defined __aarch64__
	__asm__ volatile("yield");
#endif
}

#endif
