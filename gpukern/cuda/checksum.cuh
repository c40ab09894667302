/* Checksums (RFC 1071): sums of what lies in a packet's row by its thread, of what lies behind by the warp.
 *
 * Bytes are added as little-endian words at their place in memory, which costs no swap per word: the sum of
 * bytes that begin on an odd address comes out with its two bytes exchanged (RFC 1071 2(B)). Sums are kept so
 * wide that nothing is lost, because a sum of 0 (nothing but zeros) is not one of 0xffff. */
#ifndef MILLRACE_GK_CHECKSUM_CUH
#define MILLRACE_GK_CHECKSUM_CUH

#include "parse.cuh"

/* gk_fold reduces a sum to sixteen bits: 0 only where all was 0. */
GK_FN u32 gk_fold(u64 sum)
{
	u32 s = (u32)(sum & 0xffff) + (u32)(sum >> 16 & 0xffff) + (u32)(sum >> 32 & 0xffff) + (u32)(sum >> 48);
	s = (s & 0xffff) + (s >> 16);
	return (s & 0xffff) + (s >> 16);
}

GK_FN u32 gk_swap16(u32 v) { return (v >> 8 | v << 8) & 0xffff; }

/* gk_placed is gk_fold of a sum whose first byte lies at an address. */
GK_FN u32 gk_placed(u64 sum, u32 address) { return address & 1 ? gk_swap16(gk_fold(sum)) : gk_fold(sum); }

/* gk_row_sum adds up bytes from to to of a row, one at least. */
GK_FN u64 gk_row_sum(const u32 *row, u32 from, u32 to)
{
	u32 w = from / 4, last = (to - 1) / 4;
	u32 keep = ~0u >> (8 * (3 - ((to - 1) & 3))); /* of the last word */
	u32 v = row[w] & ~0u << (8 * (from & 3));
	u64 sum = 0;

	while (w != last) {
		sum += v;
		v = row[++w];
	}
	return sum + (v & keep);
}

/* gk_far_sum adds up bytes of a frame one by one, an even number. Few packets come here. */
GK_SLOW u32 gk_far_sum(const u8 *from, u32 n)
{
	u32 sum = 0;
	for (u32 i = 0; i < n; i += 2)
		sum += gk_load_u8(from + i) | gk_load_u8(from + i + 1) << 8;
	return gk_fold(sum);
}

/* gk_header_sum adds up the IPv4 header at an offset. */
GK_FN u32 gk_header_sum(const struct gk_view *v, u32 at)
{
	const u8 *h = v->frame + at;
	u32 n = ((at < v->have ? gk_word(v->row, v->skip + at) >> 24 : gk_load_u8(h)) & 15) * 4;

	if (at + n > v->have)
		return gk_far_sum(h, n);
	return gk_placed(gk_row_sum(v->row, v->skip + at, v->skip + at + n), v->skip + at);
}

/* Bytes of the arena that are still to be added to a packet's sum. */
struct gk_rest {
	u32 from; /* offset in the arena */
	u32 n;
};

/* gk_quad_sum adds up what lies between bytes skip and span of sixteen bytes that begin at byte at. */
GK_FN u64 gk_quad_sum(struct gk_quad q, u32 at, u32 skip, u32 span)
{
	if (at >= span)
		return 0;
	if (at >= skip && at + 16 <= span)
		return (u64)q.w[0] + q.w[1] + q.w[2] + q.w[3];
	u64 sum = 0;
#pragma unroll
	for (u32 i = 0; i < 16; i++)
		if (at + i >= skip && at + i < span)
			sum += (u64)(q.w[i / 4] & 0xffu << 8 * (i & 3));
	return sum;
}

enum {
	GK_TEAM = 8,  /* lanes that read one packet together, 128 bytes in a row */
	GK_AHEAD = 4, /* reads of each lane that are under way at once */
};

/* gk_team_sum adds up the rest of the packet of lane owner by the eight lanes of a team, GK_WARP for none; all
 * teams call it at once. It returns the sum, folded, to every lane of the team. */
GK_FN u32 gk_team_sum(const u8 *mem, struct gk_rest r, u32 owner)
{
	u32 from = gk_shfl(r.from, owner), n = gk_shfl(r.n, owner);
	if (owner == GK_WARP)
		n = 0;
	u32 skip = from & 15, span = n ? skip + n : 0, sub = gk_lane() % GK_TEAM;
	const u8 *base = mem + (from - skip);
	u64 sum = 0;

	for (u32 at = sub * 16; gk_ballot(at < span); at += GK_AHEAD * GK_TEAM * 16) {
		struct gk_quad q[GK_AHEAD] = {};
		if (n) { /* a team without work reads nothing; others read the last bytes twice rather than too far */
#pragma unroll
			for (u32 k = 0; k < GK_AHEAD; k++)
				q[k] = gk_load_quad(base + gk_min(at + k * GK_TEAM * 16, (span - 1) & ~15u));
		}
#pragma unroll
		for (u32 k = 0; k < GK_AHEAD; k++)
			sum += gk_quad_sum(q[k], at + k * GK_TEAM * 16, skip, span);
	}
	u32 folded = gk_fold(sum);
#pragma unroll
	for (u32 step = 1; step < GK_TEAM; step *= 2)
		folded += gk_shfl(folded, gk_lane() ^ step);
	return gk_fold(folded);
}

/* gk_rest_sum adds up the rest of every lane's packet, as it lies in memory. All lanes call it. */
GK_FN u32 gk_rest_sum(const u8 *mem, struct gk_rest r)
{
	u32 mine = 0;

	for (u32 left = gk_ballot(r.n != 0); left != 0;) {
		u32 next[GK_WARP / GK_TEAM], owner = GK_WARP;
#pragma unroll
		for (u32 team = 0; team < GK_WARP / GK_TEAM; team++) {
			next[team] = left ? gk_ctz(left) : (u32)GK_WARP;
			left &= left - 1;
			if (gk_lane() / GK_TEAM == team)
				owner = next[team];
		}
		u32 sum = gk_team_sum(mem, r, owner);
#pragma unroll
		for (u32 team = 0; team < GK_WARP / GK_TEAM; team++) {
			u32 v = gk_shfl(sum, team * GK_TEAM);
			if (gk_lane() == next[team])
				mine = v;
		}
	}
	return mine;
}

#endif
