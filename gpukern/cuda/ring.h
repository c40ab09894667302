/* The words that a persistent kernel and the host share (docs/design/007-offload-engine.md). They lie in
 * host memory that the device maps: the host writes its lines and reads the device's out of its own
 * caches, the device reads the host's over the bus. No line is written by both.
 *
 * A slot belongs to one block, and passes through FREE, READY, DONE and ERROR:
 *
 *	FREE   seq == done, nobody waits for it         the host may write the next batch
 *	READY  seq == done + 1                          the block takes it, or the next launch's does
 *	DONE   seq == done, status 0                    the host takes the results
 *	ERROR  seq == done, status not 0                nothing was done; status says why
 *
 * The batch comes with the number that announces it: three words of sixteen bytes, read by one request of
 * the warp. Each word is one load and has the number in it, so that no order between them is needed. The
 * fourth is what the host says to the block at any time. Each slot has its own: blocks that read the same
 * line of host memory wait for one another, 16 of them for 70 us.
 *
 *	     0          4          8                    16
 *	    +----------+----------+--------------------+
 *	  0 | seq      | n, ops   | desc               |
 *	    +----------+----------+--------------------+
 *	 16 | seq      | epoch    | tables             |
 *	    +----------+----------+--------------------+
 *	 32 | seq      | generat. |                    |
 *	    +----------+----------+--------------------+
 *	 48 | stop     | beat     |                    |
 *	    +----------+----------+--------------------+ */
#ifndef MILLRACE_GK_RING_H
#define MILLRACE_GK_RING_H

#include "pass.h"

enum {
	GK_RING_MAX     = 256,     /* packets of a batch */
	GK_RING_WORDS   = 3,
	GK_RING_BEAT_NS = 1000000, /* between two beats of a block that has nothing to do */
};

/* Why a slot is in state ERROR. */
enum { GK_RING_OK, GK_RING_BAD_COUNT, GK_RING_BAD_ADDRESS };

struct gk_ring_slot {
	/* The host's line. */
	u32 seq0;       /* of the batch, written last */
	u32 n_ops;      /* packets; operations << 16 */
	u64 desc;       /* address of the descriptors, on a boundary of sixteen */
	u32 seq1;
	u32 epoch;      /* of the flow table */
	u64 tables;
	u32 seq2;
	u32 generation; /* of the tables */
	u64 spare;
	u32 stop;       /* not 0: end at once, and take no batch any more */
	u32 alive;      /* goes up while the host lives */
	u32 rest_host[18];
	/* The device's line. */
	u32 done;   /* seq of the last batch that is finished, written last */
	u32 status; /* of that batch */
	u32 beat;   /* goes up while the block waits */
	u32 ended;  /* number of the last launch whose block has ended */
	u32 rest_device[28];
};

/* The parameters of a launch. Times are nanoseconds of the device's clock. */
struct gk_ring {
	struct gk_ring_slot *slots; /* one for each block */
	u8 *mem; /* the arena */
	u64 size;
	struct gk_state *state;
	u64 lifetime; /* a block ends after it, between two batches */
	u64 patience; /* a block ends when the host's beat has not changed for it */
	u32 shift;    /* of the arena's frames */
	u32 launch;   /* number of the launch, from 1 */
};

#endif
