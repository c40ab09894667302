/* The layout of the slab between the host and a kernel: gpunet/queue has the same for Go, and its tests compare both.
 *
 *	0     struct gpunet_slab, written by the host before the kernel starts
 *	4096  block 0: queue down, queue up, rings       block 1 ...
 *
 * A queue is that of sharedring.h. down carries entries from the host, up from the block. The rings of connection i of a block are
 * two times ring bytes: those to the block, and those from it. Byte n of a stream is at n modulo ring. */
#ifndef MILLRACE_GPUNET_SLAB_H
#define MILLRACE_GPUNET_SLAB_H

#include "../../gpukern/cuda/sharedqueue.cuh"

enum {
	GPUNET_MAGIC   = 0x4d52474e,
	GPUNET_VERSION = 1,
	GPUNET_PAGE    = 4096,
};

struct gpunet_slab {
	u32 magic, version;
	u32 blocks;
	u32 connections; /* of each block */
	u32 slots;       /* of each queue, a power of two */
	u32 ring;        /* bytes of a ring, a power of two */
	u64 stride;      /* bytes of the region of a block */
};

/* Operations of entries. DATA has the bytes in the entry; RING has a position and a count, and the bytes are in the ring. CREDIT has a
 * position: bytes before it were consumed, and their part of the ring is free. */
enum {
	/* to the block */
	GPUNET_ACCEPT = 1, /* address of the peer: 16 bytes, port: 2 bytes */
	GPUNET_FIN,        /* the peer sends no more */
	GPUNET_RESET,      /* u32: the errno */
	GPUNET_LISTENING,  /* u32: 0 or the errno, for LISTEN */
	GPUNET_STOP,       /* the kernel is to end */
	/* both ways */
	GPUNET_DATA,
	GPUNET_RING,
	GPUNET_CREDIT,
	/* from the block */
	GPUNET_LISTEN, /* u32: the port */
	GPUNET_SHUTDOWN,
	GPUNET_CLOSE,
	GPUNET_EXIT, /* the block ends, and all its connections with it */
};

/* connection of entries that belong to a block, not to a connection */
#define GPUNET_NONE 0xffffffffu

/* The states of a connection and what changes them: state.go describes them. */
enum {
	GPUNET_FREE, GPUNET_OPEN, GPUNET_PEER_SHUT, GPUNET_SHUT, GPUNET_DONE, GPUNET_FAILED,
	GPUNET_STATES,
	GPUNET_INVALID = 255,
};

enum { GPUNET_ON_ACCEPT, GPUNET_ON_FIN, GPUNET_ON_RESET, GPUNET_ON_SHUTDOWN, GPUNET_ON_CLOSE, GPUNET_CHANGES };

GK_CONST u8 gpunet_transitions[GPUNET_STATES][GPUNET_CHANGES] = {
	/* accept          fin               reset           shutdown        close */
	{GPUNET_OPEN,    GPUNET_INVALID,   GPUNET_INVALID, GPUNET_INVALID, GPUNET_INVALID}, /* FREE */
	{GPUNET_INVALID, GPUNET_PEER_SHUT, GPUNET_FAILED,  GPUNET_SHUT,    GPUNET_FREE},    /* OPEN */
	{GPUNET_INVALID, GPUNET_INVALID,   GPUNET_FAILED,  GPUNET_DONE,    GPUNET_FREE},    /* PEER_SHUT */
	{GPUNET_INVALID, GPUNET_DONE,      GPUNET_FAILED,  GPUNET_INVALID, GPUNET_FREE},    /* SHUT */
	{GPUNET_INVALID, GPUNET_INVALID,   GPUNET_FAILED,  GPUNET_INVALID, GPUNET_FREE},    /* DONE */
	{GPUNET_INVALID, GPUNET_INVALID,   GPUNET_FAILED,  GPUNET_FAILED,  GPUNET_FREE},    /* FAILED */
};

GK_FN u64 gpunet_queue_size(const struct gpunet_slab *s)
{
	return sizeof(struct gk_share_queue) + (u64)s->slots * sizeof(struct gk_share_entry);
}

GK_FN u64 gpunet_down_at(const struct gpunet_slab *s, u32 block) { return GPUNET_PAGE + block * s->stride; }

GK_FN u64 gpunet_up_at(const struct gpunet_slab *s, u32 block) { return gpunet_down_at(s, block) + gpunet_queue_size(s); }

/* gpunet_ring_at is where the ring to the block is; the one from it follows. */
GK_FN u64 gpunet_ring_at(const struct gpunet_slab *s, u32 block, u32 connection)
{
	u64 queues = (2 * gpunet_queue_size(s) + GPUNET_PAGE - 1) / GPUNET_PAGE * GPUNET_PAGE;
	return gpunet_down_at(s, block) + queues + (u64)connection * 2 * s->ring;
}

#endif
