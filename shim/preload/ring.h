/*
 * ring.h - the shared memory of a connection whose bytes travel by rings. shim/ring has the same layout for the node.
 *
 * Each direction has one producer and one consumer. Indexes count bytes since the beginning, modulo 2^32.
 * The page belongs to one connection. All processes that share its descriptor by fork have it mapped.
 */
#ifndef MILLRACE_SHIM_RING_H
#define MILLRACE_SHIM_RING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#define RING_MAGIC 0x4d52494e
#define RING_VERSION 1
#define RING_HEADER 4096 /* before the bytes of the first ring */

/* How the bytes of the socket travel. The node writes it. */
enum {
	RING_CONNECTING, /* the handshake is not complete */
	RING_OPEN,       /* by the rings */
	RING_MOVED,      /* by the AF_UNIX socket, for good */
	RING_CLOSED,     /* the node's end is closed: what is in the ring may still be read */
	RING_FAILED,     /* the connection has failed: writes fail, and what came before goes on to come */
};

/* What the consumer wants to be woken for. Any other value is as RING_DISARMED. */
enum {
	RING_ARMED,      /* the next byte */
	RING_DISARMED,   /* nothing: it has been woken, or polls */
	RING_SUPPRESSED, /* more than want bytes: it spins, and takes that many */
	RING_ASLEEP,     /* the next byte, and once more if there are more than want: it takes one doorbell byte by read(2) */
	RING_WOKEN,      /* as RING_ASLEEP, of which the first has been */
};

struct ring_direction {
	_Alignas(64) _Atomic uint32_t head; /* the consumer's: bytes that were read */
	_Atomic uint32_t want;
	_Atomic uint32_t taken; /* doorbell bytes that it took out of its socket */

	_Alignas(64) _Atomic uint32_t tail; /* the producer's: bytes that were written */
	_Atomic uint32_t doorbells;         /* doorbell bytes that it wrote, or is about to */

	_Alignas(64) _Atomic uint32_t notifier; /* of both */

	_Alignas(64) _Atomic uint32_t space; /* the producer waits for space: the consumer has to write it a doorbell byte */
	_Atomic uint32_t fill;               /* the producer has filled its socket, so that it is not writable */
};

/* The locks of one side. The node never takes one. They are robust: a process may be killed that holds one. */
struct ring_locks {
	_Alignas(64) pthread_mutex_t send;
	_Alignas(64) pthread_mutex_t receive;
};

struct ring_page {
	uint32_t magic;
	uint32_t version;
	uint32_t size; /* of each ring, a power of two */
	_Alignas(64) _Atomic uint32_t state;
	_Atomic uint32_t shut; /* the program has shut down its direction: what is in the ring is the last */
	_Atomic uint32_t fin; /* the last byte of the peer is in the ring: who reads it shuts the socket down */
	_Alignas(256) struct ring_direction direction[2]; /* from the program, to the program */
	_Alignas(2048) struct ring_locks locks[2];
};

_Static_assert(sizeof(struct ring_direction) == 256, "direction");
_Static_assert(sizeof(struct ring_page) == RING_HEADER, "page");

#endif
