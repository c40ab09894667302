/* gk_literals searches the texts of a batch: OpLiterals of gpukern on a device. It runs after the header
 * pass, in the same stream or behind an event.
 *
 * Which texts: either those that the descriptors of a batch tell, each packet one text of its own (desc),
 * or those of a list that the host made (texts). The list is for batches with pieces of packets
 * (MR_FLAG_MORE) and for streams: what a text goes on from is known only in the order of arrival, one text
 * after the other, which a core does faster than a device would. Without either, the device reads the
 * descriptors itself, where they lie, and the host does nothing. No kernel of its own makes a list of them:
 * it would read the descriptors and headers once more and write what the search then reads.
 *
 * Launch: blocks of GK_LITERAL_THREADS or fewer threads, whole warps; as many blocks as the device runs at
 * once, or fewer where there are fewer texts; shared memory for the filter, 4 << bits bytes, and
 * gk_literal_warp for each warp (literalShared in literals.go). Warps take texts from *next, one at a
 * time, which is 0 at the launch; where next is null they take every so manieth.
 *
 * Results: counts[i] says how many matches text i has, at most limit + 1, and matches[i * (limit + 1)] and
 * following are those: rule << 32 | offset behind the match from the descriptor's first byte, which is
 * literal.Match of Go; sorted. The one beyond the limit says only that it exists. All of counts is written,
 * of matches only what counts says. */
#include "../../packet/desc.h"
#include "literal.cuh"

enum { GK_LITERAL_THREADS = 1024 };

/* A text of the list: a packet's, or the piece of it that a descriptor has. */
struct gk_text {
	u32 off;  /* of the descriptor's first byte, from the start of the arena */
	u16 from; /* of the text's first byte, from there */
	u16 len;
	u32 tail; /* what it goes on from: one more than the index in tails; 0 is nothing */
	u32 mark; /* of the host */
};

struct gk_literal_pass {
	const u8 *mem; /* the arena; on a boundary of 128 bytes */
	u64 size;      /* its bytes, a multiple of 16; nothing behind them is read */
	const struct mr_desc *desc;  /* n descriptors after the header pass; null where there is a list */
	const struct gk_text *texts; /* n texts */
	const u8 *tails;             /* GK_TAIL bytes each: the bytes, and last how many of them there are */
	const struct gk_literals *set;
	u32 *next;
	u32 *counts;
	u64 *matches;
	u32 n;
	u32 limit; /* matches that are told of a text, below 256 */
};

/* gk_no_text is what a packet without a text has. */
GK_FN struct gk_text gk_no_text(void)
{
	struct gk_text t = {};
	return t;
}

/* gk_text_of returns the text of a packet: textBounds in gpukern. It believes no field that would lead out
 * of the packet's bytes. */
GK_FN struct gk_text gk_text_of(const struct gk_literal_pass *p, u32 i)
{
	struct gk_quad a = gk_load_quad(&p->desc[i]);
	u32 flags = gk_load_u32(&p->desc[i].flags) & 0xffff;
	u32 off = a.w[0], len = a.w[1] & 0xffff, l3 = a.w[1] >> 24, start = a.w[2] >> 16, end;
	struct gk_text t = gk_no_text();
	const u8 *ip = p->mem + off + l3;

	if (!start)
		start = a.w[2] & 0xffff;
	if (!start || l3 + 6 > len || off + (u64)len > p->size)
		return t;
	if (flags & MR_FLAG_IPV4)
		end = l3 + (gk_load_u8(ip + 2) << 8 | gk_load_u8(ip + 3));
	else
		end = l3 + 40 + (gk_load_u8(ip + 4) << 8 | gk_load_u8(ip + 5));
	end = gk_min(end, len);
	if (start >= end)
		return t;
	t.off = off;
	t.from = (u16)start;
	t.len = (u16)(end - start);
	return t;
}

/* gk_text_at reads text i of the list. */
GK_FN struct gk_text gk_text_at(const struct gk_literal_pass *p, u32 i)
{
	struct gk_quad q = gk_load_quad(&p->texts[i]);
	struct gk_text t = gk_no_text();

	if (q.w[0] + (u64)(q.w[1] & 0xffff) + (q.w[1] >> 16) > p->size)
		return t;
	t.off = q.w[0];
	t.from = (u16)q.w[1];
	t.len = (u16)(q.w[1] >> 16);
	t.tail = q.w[2];
	return t;
}

/* gk_take returns the next text for the warp; last is the one before, ~0 at first. */
GK_FN u32 gk_take(const struct gk_literal_pass *p, u32 last)
{
	u32 i = 0;

	if (!p->next)
		return last == ~0u ? gk_global_thread() / GK_WARP : last + gk_threads() / GK_WARP;
	if (gk_lane() == 0)
		i = gk_atomic_add(p->next, 1);
	return gk_shfl(i, 0);
}

/* gk_tell writes what was found in text i. */
GK_FN void gk_tell(const struct gk_literal_pass *p, const struct gk_search *s, u32 i, u32 from)
{
	if (gk_lane() == 0)
		p->counts[i] = s->told;
	for (u32 k = gk_lane(); k < s->told; k += GK_WARP) {
		u64 m = s->list[k];
		u64 end = (m >> 32) - s->begin + from;
		p->matches[(u64)i * s->most + k] = m << 32 | (u32)end;
	}
	gk_warp_sync();
}

GK_KERNEL(gk_literals, struct gk_literal_pass, GK_LITERAL_THREADS)
{
	u8 *shared = gk_dynamic_shared();
	u32 quads = p->set->classes ? 1u << p->set->bits >> 2 : 0;
	u32 warp = gk_thread() / GK_WARP;
	struct gk_search s = gk_search(p->set, (const u32 *)shared, shared + 16 * quads + warp * gk_literal_warp(p->limit), p->limit);

	for (u32 i = gk_thread(); i < quads; i += gk_block_size())
		gk_stage_put(shared, 16 * i, gk_table_quad((const struct gk_quad *)p->set->filter + i));
	gk_block_sync();
	for (u32 i = gk_take(p, ~0u); i < p->n; i = gk_take(p, i)) {
		struct gk_text t = p->desc ? gk_text_of(p, i) : gk_text_at(p, i);
		s.told = 0;
		if (t.len && quads)
			gk_search_text(&s, p->mem + t.off + t.from, t.len, t.tail ? p->tails + (u64)(t.tail - 1) * GK_TAIL : nullptr);
		gk_tell(p, &s, i, t.from);
	}
}
