/* The symmetric Toeplitz hash: hash.go in gpukern, by tables of half bytes instead of whole ones. They
 * take 4.5 KiB, which stay in the first-level cache, and the entries for one half byte lie in half a
 * line, so that a warp reads any 32 of them at once. */
#ifndef MILLRACE_GK_HASH_CUH
#define MILLRACE_GK_HASH_CUH

#include "pass.h"

/* gk_hash.half has sixteen entries for each half byte of the input, 72 in an IPv6 tuple: what it adds to
 * the hash. */
struct gk_hash {
	const u32 *half;
};

/* gk_hash_word hashes four bytes of the input, the first of them at index i. */
GK_FN u32 gk_hash_word(const struct gk_hash *h, u32 i, u32 v)
{
	const u32 *half = h->half + i * 32;
	u32 sum = 0;
#pragma unroll
	for (u32 k = 0; k < 8; k++)
		sum ^= half[k * 16 + (v >> (28 - 4 * k) & 15)];
	return sum;
}

GK_FN u32 gk_hash_pair(const struct gk_hash *h, u32 i, u64 v)
{
	return gk_hash_word(h, i, (u32)(v >> 32)) ^ gk_hash_word(h, i + 4, (u32)v);
}

/* gk_after reports whether the source end of t comes after the destination end. */
GK_FN int gk_after(const struct gk_tuple *t, u32 ports)
{
	if (t->src_hi != t->dst_hi)
		return t->src_hi > t->dst_hi;
	if (t->src_lo != t->dst_lo)
		return t->src_lo > t->dst_lo;
	return ports >> 16 > (ports & 0xffff);
}

/* gk_hash hashes the ends of t in ascending order; ports are those to hash, 0 for none. */
GK_FN u32 gk_hash(const struct gk_hash *h, const struct gk_tuple *t, u32 ports)
{
	int swap = gk_after(t, ports);
	u64 a_hi = swap ? t->dst_hi : t->src_hi, b_hi = swap ? t->src_hi : t->dst_hi;
	u32 both = swap ? ports >> 16 | ports << 16 : ports;

	if (t->v4)
		return gk_hash_word(h, 0, (u32)(a_hi >> 32)) ^ gk_hash_word(h, 4, (u32)(b_hi >> 32)) ^
		       gk_hash_word(h, 8, both);
	return gk_hash_pair(h, 0, a_hi) ^ gk_hash_pair(h, 8, swap ? t->dst_lo : t->src_lo) ^
	       gk_hash_pair(h, 16, b_hi) ^ gk_hash_pair(h, 24, swap ? t->src_lo : t->dst_lo) ^
	       gk_hash_word(h, 32, both);
}

#endif
