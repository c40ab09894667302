/* The trie of gpukern/trie.go: the longest prefix of an address, six bits a node, rows of 2^wide nodes
 * where prefixes are dense.
 *
 *	      wide          6              wide         6
 *	row[00101...] -> slot -> child -> row[01...] -> slot -> leaf
 *
 * A step is one dependent load of a node, one sector of 32 bytes; a leaf is one more. */
#ifndef MILLRACE_GK_TRIE_H
#define MILLRACE_GK_TRIE_H

#include "gk.h"

/* gpukern.node. */
struct __attribute__((aligned(16))) gk_node {
	u64 inner, runs;       /* slots that go on; slots where a run of leaves begins */
	u32 child, leaf, wide; /* first row below, first run, 1 << wide nodes in a row below */
	u32 pad;
};
static_assert(sizeof(struct gk_node) == 32, "gpukern.node has 32 bytes");

/* gk_above returns the upper n bits of v, n from 0 to 63. */
GK_FN u64 gk_above(u64 v, u32 n) { return v >> 1 >> (63 - n); }

/* gk_walk returns where the leaf of an address lies that goes on from row, whose nodes are 1 << wide. */
GK_FN u32 gk_walk(const struct gk_node *nodes, u32 row, u32 wide, u64 hi, u64 lo)
{
	for (;;) {
		const struct gk_node *n = nodes + row + (u32)gk_above(hi, wide);
		struct gk_quad maps = gk_table_quad(n), next = gk_table_quad(&n->child);
		u64 inner = gk_low(maps), runs = gk_high(maps);
		hi = hi << wide | gk_above(lo, wide);
		lo <<= wide;
		u32 slot = (u32)(hi >> 58);
		u64 up_to = ((u64)2 << slot) - 1;
		if (!(inner >> slot & 1))
			return next.w[1] + gk_popcll(runs & up_to) - 1;
		hi = hi << 6 | lo >> 58;
		lo <<= 6;
		wide = next.w[2];
		row = next.w[0] + ((gk_popcll(inner & up_to) - 1) << wide);
	}
}

#endif
