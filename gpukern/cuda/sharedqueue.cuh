/* The ends of a shared queue in a kernel: see sharedring.h for the layout, and docs/design/049-one-ring.md. One thread calls them. An
 * entry is polled by one load of 16 bytes, and nothing is written but slots and the own line. Positions are kept by the caller. */
#ifndef MILLRACE_GK_SHAREDQUEUE_CUH
#define MILLRACE_GK_SHAREDQUEUE_CUH

#include "sharedring.h"

/* An entry, as it lies in a slot, without the sequences. */
struct gk_share_item {
	u32 connection, meta, offset; /* meta: generation, operation << 16, length << 24 */
	u32 data[GK_SHARE_QUEUE_INLINE / 4];
};

GK_FN u32 gk_share_length(const struct gk_share_item *e) { return e->meta >> 24; }

/* gk_share_sequence is that of the lap of a position: 1 for the first, and never 0. slots is 1 << shift. */
GK_FN u32 gk_share_sequence(u64 position, u32 shift) { return (u32)((position >> shift) % 0xffffffffu) + 1; }

GK_FN u8 *gk_share_slot(struct gk_share_queue *q, u64 position, u32 shift)
{
	return (u8 *)q + sizeof *q + (position & ((1ull << shift) - 1)) * sizeof(struct gk_share_entry);
}

/* gk_share_take reads the entry at *position and frees its slot. 0: it is not there. A length that cannot be is 0 bytes. */
GK_FN int gk_share_take(struct gk_share_queue *q, u64 *position, u32 shift, struct gk_share_item *e)
{
	const u8 *slot = gk_share_slot(q, *position, shift);
	u32 sequence = gk_share_sequence(*position, shift);
	struct gk_quad w = gk_load_quad(gk_fresh(slot));
	if (w.w[3] != sequence)
		return 0;
	e->connection = w.w[0];
	e->meta = w.w[1];
	e->offset = w.w[2];
	if (gk_share_length(e) > GK_SHARE_QUEUE_INLINE)
		e->meta &= 0xffffff;
	for (u32 i = 0; i * GK_SHARE_QUEUE_CHUNK < gk_share_length(e); i++) {
		w = gk_load_quad(gk_fresh(slot + (i + 1) * sizeof w));
		if (w.w[3] != sequence)
			return 0;
		for (u32 j = 0; j < 3; j++)
			e->data[3 * i + j] = w.w[j];
	}
	gk_fence_acquire(); /* the loads are over before the slot is free */
	gk_store_u64(&q->consumed, ++*position);
	return 1;
}

/* gk_share_put writes an entry at *position. 0: no slot is free. *consumed is what the other end had taken when it was looked at last. */
GK_FN int gk_share_put(struct gk_share_queue *q, u64 *position, u64 *consumed, u32 shift, const struct gk_share_item *e)
{
	u8 *slot = gk_share_slot(q, *position, shift);
	u32 sequence = gk_share_sequence(*position, shift);
	if ((*position - *consumed) >> shift != 0)
		*consumed = gk_load_u64(&q->consumed);
	if ((*position - *consumed) >> shift != 0)
		return 0;
	for (u32 i = 0; i * GK_SHARE_QUEUE_CHUNK < gk_share_length(e); i++) {
		struct gk_quad w = {{e->data[3 * i], e->data[3 * i + 1], e->data[3 * i + 2], sequence}};
		gk_store_quad(slot + (i + 1) * sizeof w, w);
	}
	struct gk_quad head = {{e->connection, e->meta, e->offset, sequence}};
	gk_store_quad(slot, head);
	++*position;
	return 1;
}

#endif
