/* Longest prefix match: the trie of gpukern/lpm.go, whose leaves are next hops of 16 bits.
 *
 * With a million routes of IPv4 the first row takes 24 bits: half of the look-ups take one load of 32
 * bytes (a node with its values), the others a second one; some 11 MB in all, which the second-level cache
 * holds beside the other tables. A plain table of 2^24 next hops would save that second load and be
 * three times as large. With 200 000 routes of IPv6, 8 MB, a look-up is three to four dependent loads and
 * about as many sectors, of which the first is hot. */
#ifndef MILLRACE_GK_LPM_H
#define MILLRACE_GK_LPM_H

#include "trie.cuh"

/* The routes of one family; no nodes where it has none. */
struct gk_lpm {
	const struct gk_node *nodes;
	const u16 *leaves;
	u32 wide; /* of the first row */
	u32 pad;
};

/* gk_lpm returns the next hop of an address, 0 for none. An IPv4 address fills the upper half of hi. */
GK_FN u32 gk_lpm(const struct gk_lpm *l, u64 hi, u64 lo)
{
	if (!l->nodes)
		return 0;
	return gk_find(l->nodes, l->leaves, 0, l->wide, hi, lo, 1);
}

#endif
