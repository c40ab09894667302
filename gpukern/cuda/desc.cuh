/* Descriptors in memory and in registers. */
#ifndef MILLRACE_GK_DESC_CUH
#define MILLRACE_GK_DESC_CUH

#include "pass.h"

enum { GK_DESC_WORDS = sizeof(struct mr_desc) / 4 };

/* gk_inside reports whether what a descriptor points to lies in the arena and within one frame. Nothing else
 * is ever read, whatever a descriptor says. */
GK_FN int gk_inside(const struct gk_pass *p, u32 off, u32 len)
{
	u32 frame = 1u << p->shift;
	return (u64)off + len <= p->size && (off & (frame - 1)) + len <= frame;
}

GK_FN u32 gk_desc_word(const struct gk_pass *p, u32 i, u32 word)
{
	return gk_load_u32((const u32 *)(p->desc + i) + word);
}

/* gk_chain_rest returns the bytes of a packet behind its first descriptor, of which i is the next; ~0 where a
 * descriptor points outside. */
GK_FN u32 gk_chain_rest(const struct gk_pass *p, u32 i)
{
	u32 n = 0;

	for (u32 more = 1; more && i < p->n; i++) {
		u32 len = gk_desc_word(p, i, 1) & 0xffff;
		if (!gk_inside(p, gk_desc_word(p, i, 0), len))
			return ~0u;
		n += len;
		more = gk_desc_word(p, i, GK_DESC_WORDS - 1) & MR_FLAG_MORE;
	}
	return n;
}

/* gk_desc_of returns the fields of a descriptor's two quads. */
GK_FN struct mr_desc gk_desc_of(const struct gk_quad *q)
{
	struct mr_desc d = {};

	d.off = q[0].w[0];
	d.len = (u16)q[0].w[1];
	d.flow = q[1].w[0];
	d.rule = (u16)q[1].w[1];
	d.next_hop = (u16)(q[1].w[1] >> 16);
	d.flags = (u16)q[1].w[3];
	d.proto = (u8)(q[1].w[3] >> 16);
	return d;
}

#endif
