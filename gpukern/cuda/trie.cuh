/* The trie of gpukern/trie.go: the longest prefix of an address, six bits a node, rows of 2^wide nodes
 * where prefixes are dense, buckets of one or two nodes where they are sparse.
 *
 *	      wide          6              wide         6
 *	row[00101...] -> slot -> child -> row[01...] -> slot -> leaf, or bucket
 *
 * A step is one dependent load of a node, one sector of 32 bytes. Nodes without anything below and with
 * few values have them inside, and so have buckets (one or two sectors, read at once); else a leaf is one
 * load more. */
#ifndef MILLRACE_GK_TRIE_H
#define MILLRACE_GK_TRIE_H

#include "gk.h"

enum { GK_BUCKET = 32 }; /* in gk_node.wide: below are buckets, of 1 << (wide & 31) nodes */

/* gpukern.node. */
struct __attribute__((aligned(16))) gk_node {
	u64 inner, runs;       /* slots that go on; slots where a run of leaves begins */
	u32 child, leaf, wide; /* first row or bucket below, first run, 1 << wide nodes in a row below */
	u32 pad;
};
static_assert(sizeof(struct gk_node) == 32, "gpukern.node has 32 bytes");

/* gk_above returns the upper n bits of v, n from 0 to 63. */
GK_FN u64 gk_above(u64 v, u32 n) { return v >> 1 >> (63 - n); }

/* gk_half returns one of the eight halves of words in q, gk_word one of the four words, without memory that
 * is indexed. */
GK_FN u32 gk_word(struct gk_quad q, u32 i) { return i & 2 ? (i & 1 ? q.w[3] : q.w[2]) : (i & 1 ? q.w[1] : q.w[0]); }
GK_FN u32 gk_half(struct gk_quad q, u32 i) { return gk_word(q, i >> 1) >> ((i & 1) * 16) & 0xffff; }

/* gk_in_bucket returns the value of v in the bucket that begins with node at: the number of keys that are
 * not above v is the value's. Values have two bytes (wide16) or four. */
GK_FN u32 gk_in_bucket(const struct gk_node *at, u32 nodes, u32 v, int wide16)
{
	u32 keys = wide16 ? nodes * 5 : nodes * 4 - 1, n = 0;
#pragma unroll
	for (u32 i = 0; i < 3; i++) { /* of the fourth there are values only */
		if (i * 4 >= keys)
			break;
		struct gk_quad q = gk_table_quad((const u8 *)at + 16 * i);
#pragma unroll
		for (u32 k = 0; k < 4; k++)
			n += i * 4 + k < keys && v >= q.w[k];
	}
	const u8 *values = (const u8 *)at + keys * 4;
	return wide16 ? ((const u16 *)values)[n] : ((const u32 *)values)[n];
}

/* gk_from returns the 64 bits of an address from depth on, which is less than 128. */
GK_FN u64 gk_from(u64 hi, u64 lo, u32 depth)
{
	return depth < 64 ? hi << depth | gk_above(lo, depth) : lo << (depth - 64);
}

/* gk_find returns the value of an address, from the row of 1 << wide nodes at index row on. Values, in nodes and
 * in leaves, have two bytes (wide16) or four. The address is cut anew at each step: that takes fewer
 * registers than to shift it. */
GK_FN u32 gk_find(const struct gk_node *nodes, const void *leaves, u32 row, u32 wide, u64 hi, u64 lo, int wide16)
{
	for (u32 depth = 0;;) {
		u64 v = gk_from(hi, lo, depth);
		const struct gk_node *n = nodes + row + (u32)gk_above(v, wide);
		struct gk_quad maps = gk_table_quad(n), next = gk_table_quad(&n->child);
		u64 inner = gk_low(maps), runs = gk_high(maps);
		u32 slot = (u32)(v << wide >> 58);
		u64 up_to = ((u64)2 << slot) - 1;
		if (!(inner >> slot & 1)) {
			u32 rank = gk_popcll(runs & up_to);
			if (!(inner | (runs & 1)))
				return wide16 ? gk_half(next, rank) : gk_word(next, rank);
			rank += next.w[1] - 1;
			return wide16 ? ((const u16 *)leaves)[rank] : ((const u32 *)leaves)[rank];
		}
		depth += wide + 6;
		wide = next.w[2];
		row = next.w[0] + ((gk_popcll(inner & up_to) - 1) << (wide & 31));
		if (wide & GK_BUCKET)
			return gk_in_bucket(nodes + row, 1 << (wide & 31), (u32)(gk_from(hi, lo, depth) >> 32), wide16);
	}
}

#endif
