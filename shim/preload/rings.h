/*
 * rings.h - sockets of this process whose bytes travel by shared memory.
 */
#ifndef MILLRACE_SHIM_RINGS_H
#define MILLRACE_SHIM_RINGS_H


#include "library.h"

#include <sys/uio.h>

#include "lock.h"
#include "ring.h"

/* What a descriptor of this process is mapped to. There is one for each number, so that it is never freed. */
struct rings {
	_Atomic uint32_t users; /* twice the calls that use it, and 1 while the descriptor is open; see rings.c */
	struct ring_page *page;
	uint8_t *data[2];
	_Atomic int error; /* what the socket had while bytes were in the ring */
	_Atomic uint32_t look; /* how long a blocking read looks for bytes before it sleeps, in ns */

	struct direct_page *direct; /* not NULL: rings to another program (direct.h), and page is NULL */
	struct direct_side *side;
	uint32_t size, number; /* of a ring; of this side, which writes to data[number] */
};

enum { TO_NODE, TO_PROGRAM };

#define RINGS_DESCRIPTORS 65536
extern struct rings rings_of[RINGS_DESCRIPTORS];
extern _Atomic int rings_numbers; /* none of these or above has ever had rings */

/* rings_wanted is the bit of CONNECT and LISTEN, 0 without --rings. */
int rings_wanted(void);

/*
 * rings_attach maps memory for fd, and closes it. Without success the socket is of tier 0: the node has to know, or another
 * program. memory is NO_NUMBER where the process had no number for the descriptor. connects is that fd is not an accepted one. The
 * result is the number of the connection, which of an accepted one may be another.
 */
int rings_attach(int fd, int memory, bool connects);

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

/* rings_forget is that fd is closed, or another file from now on. */
void rings_forget(int fd);

/*
 * rings_renew is that the kernel has given the number to a new descriptor: what had it was closed, perhaps by a call that the
 * library has not seen.
 */
void rings_renew(int fd);

/* rings_copy is that other is a new number for the socket fd. */
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

/* rings_sandbox does so for a process that is about to install a seccomp filter. */
void rings_sandbox(void);

/* Result of the following: the socket is of tier 0 by now, and nothing was done. */
#define RINGS_MOVED (-2)

ssize_t rings_receive(struct rings *r, int fd, const struct iovec *parts, size_t n, int flags);
ssize_t rings_send(struct rings *r, int fd, const struct iovec *parts, size_t n, int flags);
ssize_t rings_sendfile(struct rings *r, int fd, int from, off_t *at, size_t n);
size_t rings_unread(struct rings *r);

/*
 * rings_shut ends the direction to the node. False is that the socket does not carry doorbell bytes: shutdown(2) does it.
 * Otherwise the socket stays open in that direction, for doorbell bytes that say that the other ring has space.
 */
bool rings_shut(struct rings *r, int fd);

/* stream_receive and stream_send are recvmsg and sendmsg on a socket with rings. False is that fd is none: nothing was done. */
bool stream_receive(int fd, const struct iovec *parts, size_t n, int flags, ssize_t *result);
bool stream_send(int fd, const struct iovec *parts, size_t n, int flags, ssize_t *result);

/* rings_leave_passed moves the sockets that a message passes to another process. */
void rings_leave_passed(const struct msghdr *m);

/* rings_lock takes a lock of this side. False is that this thread has it: a signal handler in the middle of a call. */
bool rings_lock(pthread_mutex_t *lock);
void rings_unlock(pthread_mutex_t *lock);

/* busy_poll is how long a blocking read looks for bytes before it sleeps, in ns. */
uint64_t busy_poll(void);

#endif
