/*
 * direct.h - rings between two programs of one host, which have an AF_UNIX pair as their socket.
 *
 * The node makes the memory and has no part in what follows. The page can be written by both programs, so neither relies on what
 * it says: each keeps its own indexes in memory that only processes with its own end share, and checks those of the other against
 * the size of a ring each time. docs/design/039-direct-rings.md has the protocol, and shim/ring the layout for the node.
 *
 * Indexes count bytes modulo 2^31. The bit above says that the direction goes on by the socket.
 */
#ifndef MILLRACE_SHIM_DIRECT_H
#define MILLRACE_SHIM_DIRECT_H

#include "rings.h"

#define DIRECT_MAGIC 0x4d444952
#define DIRECT_VERSION 1
#define DIRECT_HEADER 4096 /* before the bytes of the first ring */

#define DIRECT_LEFT 0x80000000u
#define DIRECT_INDEX 0x7fffffffu

/*
 * What the consumer wants to be woken by: the low byte of notifier. The 24 bits above change each time when it arms, and the high half
 * counts the bytes that were written to its socket.
 */
enum {
	DIRECT_ARMED,    /* a byte in its socket, with the next bytes */
	DIRECT_DISARMED, /* nothing: such a byte is there, or about to be */
	DIRECT_SPINNING, /* a byte in its socket, if there are more than want bytes: it polls, and takes that many */
	DIRECT_ASLEEP,   /* as DIRECT_SPINNING, and in any case futex(2): it sleeps there */
	DIRECT_WOKEN,    /* as DIRECT_SPINNING, after futex(2) */
	DIRECT_GONE,     /* nothing any more: the bytes of the stream follow those that were counted */
};

/* What the producer waits for, in bits: that half of the ring is free. */
enum {
	DIRECT_SLEEPS = 1, /* it sleeps by futex(2) */
	DIRECT_FILLED = 2, /* it has filled its socket, so that it is not writable */
};

struct direct_direction {
	_Alignas(64) _Atomic uint64_t notifier; /* of both */
	_Atomic uint32_t tail;              /* the producer's; DIRECT_LEFT is from the consumer, who has seen the ring empty */
	_Atomic uint32_t want;              /* the consumer's */
	_Atomic uint32_t cpu;               /* the producer's, of its last bytes, and 1: a hint */
	_Atomic uint32_t closes;            /* how often the producer has closed its descriptor, or one of them: a hint to look */

	_Alignas(64) _Atomic uint32_t head; /* the consumer's; DIRECT_LEFT is from the producer, who has the rest in the socket */
	_Atomic uint32_t space;             /* of both */

	_Alignas(64) _Atomic uint32_t asked; /* the consumer asks the producer to do that: apart, as the producer looks at it in each call */
};

struct direct_page {
	uint32_t magic;
	uint32_t version;
	uint32_t size; /* of each ring, a power of two */
	_Alignas(64) _Atomic uint32_t ended; /* the node's: the socket of one is closed */
	_Alignas(256) struct direct_direction direction[2]; /* from the program that has called connect(2), and to it */
	uint8_t rest[DIRECT_HEADER - 640];
};

_Static_assert(sizeof(struct direct_direction) == 192, "direction");
_Static_assert(sizeof(struct direct_page) == DIRECT_HEADER, "page");

/* One end, for all processes that share its descriptor by fork. The other program does not see it. */
struct direct_side {
	_Alignas(64) pthread_mutex_t send;
	uint32_t tail; /* as it was published */
	uint32_t seen; /* the last head of the other that was looked at, and checked */
	uint32_t back; /* as DIRECT_LEFT of our head: what was unread is in the socket */
	_Alignas(64) pthread_mutex_t receive;
	uint32_t head;
	uint32_t taken;  /* doorbell bytes that were taken out of the socket */
	uint32_t closes; /* of the other, when we looked last */
	_Alignas(64) _Atomic uint32_t flags;
	_Atomic int error; /* what the socket had while bytes were in the ring */
};

/* direct_attach maps memory for the end fd of a pair. connects is that it has called connect(2). */
bool direct_attach(struct rings *r, int fd, int memory, bool connects);

/* direct_share gives fd, a duplicate of the socket of r, rings of its own to the same memory. */
bool direct_share(const struct rings *r, struct rings *other);

void direct_unmap(struct rings *r);

ssize_t direct_receive(struct rings *r, int fd, const struct iovec *parts, size_t n, int flags);
ssize_t direct_send(struct rings *r, int fd, const struct iovec *parts, size_t n, int flags);
ssize_t direct_sendfile(struct rings *r, int fd, int from, off_t *at, size_t n);
size_t direct_unread(struct rings *r, int fd);

/* direct_shut is shutdown(2) of the direction to the other: what it has not read goes to the socket first. */
int direct_shut(struct rings *r, int fd, int how);

/*
 * direct_leave makes the bytes of both directions travel by the socket. The other program has to help if we have not read all: it
 * does with its next call. After a second without one fd becomes a socket of this process that has those bytes, and then
 * ECONNRESET.
 */
void direct_leave(struct rings *r, int fd);

/*
 * direct_decline does so for a connection whose number the program does not know yet, and returns its number: that of the new
 * socket, where there is one. So it needs no dup3(2), which a seccomp filter of the program may forbid.
 */
int direct_decline(struct rings *r, int fd);

/* direct_sandbox is that the program is about to install a seccomp filter: futex_waitv(2) may be none of its calls. */
void direct_sandbox(void);

/* direct_wake makes the other program look at its socket: ours is about to be closed. */
void direct_wake(struct rings *r);

/* What the library knows about the descriptor, so that it need not ask. */
void direct_nonblocking(int fd, bool on);
void direct_timed(int fd);

#endif
