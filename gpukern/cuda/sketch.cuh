/* The sketches: gpukern/sketch.go says what they are. Counters are sums and registers are maxima, so that it
 * does not matter who counts first. */
#ifndef MILLRACE_GK_SKETCH_CUH
#define MILLRACE_GK_SKETCH_CUH

#include "flow.cuh"

/* gk_sketch_hash is Sketch.hash. */
GK_FN u64 gk_sketch_hash(const struct gk_sketches *s, const struct gk_tuple *t)
{
	return gk_finish((t->src_hi ^ s->key[t->v4 ? 0 : 1]) * s->key[2]);
}

/* gk_sketch counts a packet with a number of bytes, those of all its descriptors. */
GK_FN void gk_sketch(const struct gk_pass *p, const struct gk_tuple *t, const struct mr_desc *d, u32 bytes)
{
	const struct gk_sketches *s = &p->state->sketches;

	(void)d;
	if (s->width == 0 || t->known == GK_KNOWS_NOTHING)
		return;
	u64 h = gk_sketch_hash(s, t);
	u32 at = (u32)h, step = (u32)(h >> 32) | 1;
#pragma unroll
	for (u32 row = 0; row < 4; row++, at += step) {
		struct gk_cell *c = &s->cells[row * s->width + (at & (s->width - 1))];
		gk_atomic_add_u64(&c->packets, 1);
		gk_atomic_add_u64(&c->bytes, bytes);
	}
	u32 rank = gk_clzll(h << s->precision | (u64)1 << (s->precision - 1)) + 1;
	u32 *reg = &s->registers[h >> (64 - s->precision)];
	if (gk_load_u32(reg) < rank)
		gk_atomic_max(reg, rank);
}

#endif
