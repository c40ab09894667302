/*
 * rings.h - sockets of this process whose bytes travel by shared memory.
 *
 * There are three tiers. Without an entry in rings_of the socket carries the bytes (tier 0). The others have one protocol
 * (ring.h, docs/design/049-one-ring.md) and a table of what differs with the other end, which is the node or another program.
 */
#ifndef MILLRACE_SHIM_RINGS_H
#define MILLRACE_SHIM_RINGS_H

#include "library.h"

#include <stdatomic.h>
#include <sys/uio.h>

struct tier;
struct ring_page;
struct ring_side;

/* What a descriptor of this process is mapped to. There is one for each number, so that it is never freed. */
struct rings {
	_Atomic uint32_t users; /* twice the calls that use it, and 1 while the descriptor is open; see rings.c */
	const struct tier *tier;
	struct ring_page *page;
	struct ring_side *side; /* shared by the processes that have this end by fork */
	uint8_t *data[2];
	uint32_t size, number;  /* of a ring; of the direction that this end writes */
	_Atomic uint32_t spin;  /* how long a blocking read polls before it sleeps, in ns: see node_plan */
};

#ifndef RINGS_DESCRIPTORS /* tests make it smaller */
#define RINGS_DESCRIPTORS 65536
#endif
extern struct rings rings_of[RINGS_DESCRIPTORS];
extern _Atomic int rings_numbers; /* none of these or above has ever had rings */

/* rings_wanted is the bit of CONNECT and LISTEN, 0 without --rings. */
int rings_wanted(void);

/*
 * rings_attach maps memory for fd, and closes it. of is what the node has said of it. Without success the socket is of tier 0: the
 * node has to know, or another program. memory is NO_NUMBER where the process had no number for the descriptor. connects reports
 * that fd is not an accepted one. The result is the number of the connection, which of an accepted one may be another.
 */
int rings_attach(int fd, int memory, const struct shim_memory *of, bool connects);

/* rings_hold returns the rings of fd, NULL if it has none. rings_release undoes it. */
static inline struct rings *rings_hold(int fd)
{
	if ((unsigned)fd >= RINGS_DESCRIPTORS)
		return NULL;
	struct rings *r = &rings_of[fd];
	uint32_t users = atomic_load_explicit(&r->users, memory_order_acquire);
	while ((users & 1) != 0)
		if (atomic_compare_exchange_weak_explicit(&r->users, &users, users + 2, memory_order_acquire, memory_order_acquire))
			return r;
	return NULL;
}
void rings_release(struct rings *r);

/* rings_forget removes fd from the table: it is closed, another file from now on, or of tier 0. */
void rings_forget(int fd);

/* rings_closing is rings_forget before fd is closed or replaced: another program is to look at its socket. */
void rings_closing(int fd);

/* rings_shareable reports whether a second number of fd can have its rings. */
bool rings_shareable(int fd);

/* rings_copy is called when other has become a second number of the socket fd. */
void rings_copy(int fd, int other);

/* rings_leave moves the bytes of fd to the socket, for good: something will use it that knows no rings. */
void rings_leave(int fd);

/* rings_leave_all does so for all sockets, or for those that stay open in the next program. */
void rings_leave_all(bool inherited);

/*
 * rings_end moves all, and those to come have none: the process uses sockets in a way that no library sees,
 * or may be about to forbid itself what rings need. A listener of before still offers some: they end at accept(2).
 */
void rings_end(void);

/* Result of the following: the socket is of tier 0 by now, and nothing was done. */
#define RINGS_MOVED (-2)

ssize_t rings_receive(struct rings *r, int fd, const struct iovec *parts, size_t n, int flags);
ssize_t rings_send(struct rings *r, int fd, const struct iovec *parts, size_t n, int flags);
ssize_t rings_sendfile(struct rings *r, int fd, int from, off_t *at, size_t n);

/* rings_unread is FIONREAD. */
size_t rings_unread(struct rings *r, int fd);

/* rings_shut is shutdown(2). */
int rings_shut(struct rings *r, int fd, int how);

/* rings_nonblocking and rings_timed keep what the program has set, so that calls need not ask the kernel. */
void rings_nonblocking(int fd, bool on);
void rings_timed(int fd);

/* Calls on a socket that may have rings. False: the socket carries the bytes, and nothing was done. */
bool stream_receive(int fd, const struct iovec *parts, size_t n, int flags, ssize_t *result);
bool stream_send(int fd, const struct iovec *parts, size_t n, int flags, ssize_t *result);
bool stream_sendfile(int to, int from, off_t *at, size_t n, ssize_t *result);

/* Of leave.c: a number that the kernel has given to a new descriptor, sockets that a message passes, a seccomp filter to come. */
void rings_renew(int fd);
void rings_leave_passed(const struct msghdr *m);
void rings_sandbox(void);

/* ring_sandbox makes sleeps use futex(2): a filter may not permit futex_waitv(2). */
void ring_sandbox(void);

#endif
