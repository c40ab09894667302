/* What the header pass keeps from batch to batch: the flow table (flow.cuh). gpukern.State lays these structs
 * out; a layout test compares. It lies where every thread of the device writes it, so it is read by gk_load_*
 * and changed by atomics. */
#ifndef MILLRACE_GK_STATE_H
#define MILLRACE_GK_STATE_H

#include "gk.h"

/* One flow, both directions: a cache line. Words are as the CPU has them.
 *
 *	0      8      16     24     32            40    44      48            56
 *	+------+------+------+------+-------------+-----+-------+-------------+-------------+
 *	| end a       | end b       | rest        |first|packets| memo[0]     | memo[1]     |
 *	+------+------+------+------+-------------+-----+-------+-------------+-------------+
 *
 * a is the lower end. rest: ports of a << 48 | of b << 32 | protocol << 16 | IPv4 << 8 | GK_KNOWS_...
 * memo: what the tables of a generation say about a direction: rule | next hop << 16 | generation << 32. */
struct gk_flow_entry {
	u64 key[5];
	u32 first;   /* epoch of its first packet */
	u32 packets; /* modulo 2^32 */
	u64 memo[2];
};

/* The flow table: lines of sixteen tags, and an entry for each tag. A tag is 0 where no flow ever was, 1
 * where one was deleted, else hash << 16 | busy << 15 | epoch of the flow's last packet. */
struct gk_flows {
	u32 *tags;
	struct gk_flow_entry *entries;
	u64 *counts; /* enum gk_flow_count */
	u32 lines;   /* 0 is no table */
	u32 idle;    /* epochs without a packet that let an entry be taken over */
	u32 key[10]; /* of the hash */
};

enum gk_flow_count { GK_FLOW_INSERTS, GK_FLOW_TAKEN_OVER, GK_FLOW_FULL, GK_FLOW_DELETES };

struct gk_state {
	struct gk_flows flows;
};

#endif
