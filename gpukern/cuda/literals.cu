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
 * gk_literal_warp for each warp (literalShared in literals.go). Warps take some texts at a time
 * from *next, which is 0 at the launch; where next is null they take every so manieth some.
 *
 * Results: counts[i] says how many matches text i has, at most limit + 1, and matches[i * (limit + 1)] and
 * following are those: rule << 32 | offset behind the match from the descriptor's first byte, which is
 * literal.Match of Go; sorted. The one beyond the limit says only that it exists. All of counts is written,
 * of matches only what counts says. */
#include "../../packet/desc.h"
#include "literal.cuh"

enum {
	GK_LITERAL_THREADS = 1024,
	GK_SHARE           = 8, /* texts that a warp takes at a time, at most */
	GK_SHARES          = 4, /* a warp comes back for more so many times, that all end at about the same time */
};

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

/* gk_two_bytes reads a number of two bytes in network order, which may lie across two words. */
GK_FN u32 gk_two_bytes(const u8 *at)
{
	uintptr_t odd = (uintptr_t)at & 3;
	u32 word = gk_load_u32(at - odd) >> 8 * odd;

	if (odd == 3)
		word |= gk_load_u8(at + 1) << 8;
	return (word & 0xff) << 8 | (word >> 8 & 0xff);
}

/* gk_text_of returns the text of a packet, of whose descriptor it takes words 0 to 2 and the flags: textBounds
 * in gpukern. It believes no field that would lead out of the packet's bytes. */
GK_FN struct gk_text gk_text_of(const struct gk_literal_pass *p, u32 off, u32 len_l3, u32 l4_payload, u32 flags)
{
	u32 len = len_l3 & 0xffff, l3 = len_l3 >> 24, start = l4_payload >> 16, end;
	struct gk_text t = gk_no_text();
	const u8 *ip = p->mem + off + l3;

	if (!start)
		start = l4_payload & 0xffff;
	if (!start || l3 + 6 > len || off + (u64)len > p->size)
		return t;
	if (flags & MR_FLAG_IPV4)
		end = l3 + gk_two_bytes(ip + 2);
	else
		end = l3 + 40 + gk_two_bytes(ip + 4);
	end = gk_min(end, len);
	if (start >= end)
		return t;
	t.off = off;
	t.from = (u16)start;
	t.len = (u16)(end - start);
	return t;
}

/* gk_texts_of returns the texts of the packets from first on, n at most, one to each lane. Each line of
 * descriptors is read once, by one request: warps that read parts of a line wait for one another. */
GK_FN struct gk_text gk_texts_of(const struct gk_literal_pass *p, u32 first, u32 n)
{
	const u8 *from = (const u8 *)(p->desc + first);
	u32 lane = gk_lane(), last = 2 * n - 1, in = 2 * lane & (GK_WARP - 1), word[4];
	struct gk_quad a = gk_load_quad(from + 16 * gk_min(lane, last));
	struct gk_quad b = gk_load_quad(from + 16 * gk_min(lane + GK_WARP, last));

#pragma unroll
	for (u32 i = 0; i < 4; i++) { /* words 0, 1, 2 of the first half and 3 of the second */
		u32 of = in + (i == 3), low = gk_shfl(a.w[i], of), high = gk_shfl(b.w[i], of);
		word[i] = lane < GK_WARP / 2 ? low : high;
	}
	if (lane >= n)
		return gk_no_text();
	return gk_text_of(p, word[0], word[1], word[2], word[3] & 0xffff);
}

/* gk_texts_at returns the texts of the list from first on, n at most, one to each lane. */
GK_FN struct gk_text gk_texts_at(const struct gk_literal_pass *p, u32 first, u32 n)
{
	struct gk_quad q = gk_load_quad(&p->texts[first + gk_min(gk_lane(), n - 1)]);
	struct gk_text t = gk_no_text();

	if (gk_lane() >= n || q.w[0] + (u64)(q.w[1] & 0xffff) + (q.w[1] >> 16) > p->size)
		return t;
	t.off = q.w[0];
	t.from = (u16)q.w[1];
	t.len = (u16)(q.w[1] >> 16);
	t.tail = q.w[2];
	return t;
}

/* gk_text_from returns the text that a lane has. */
GK_FN struct gk_text gk_text_from(const struct gk_text *t, u32 lane)
{
	u32 from_len = gk_shfl((u32)t->from | (u32)t->len << 16, lane);
	struct gk_text its = gk_no_text();

	its.off = gk_shfl(t->off, lane);
	its.from = (u16)from_len;
	its.len = (u16)(from_len >> 16);
	its.tail = gk_shfl(t->tail, lane);
	return its;
}

/* gk_share is how many texts a warp takes at a time: GK_SHARE, or fewer where there are few for so many warps. */
GK_FN u32 gk_share(u32 n)
{
	u32 warps = gk_threads() / GK_WARP;

	return gk_max(1, gk_min(GK_SHARE, n / (GK_SHARES * warps)));
}

/* gk_take returns the next text for the warp, which takes share of them; last is the one before, ~0 at
 * first. */
GK_FN u32 gk_take(const struct gk_literal_pass *p, u32 last, u32 share)
{
	u32 i = 0;

	if (!p->next)
		return last == ~0u ? gk_global_thread() / GK_WARP * share : last + gk_threads() / GK_WARP * share;
	if (gk_lane() == 0)
		i = gk_atomic_add(p->next, share);
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
	u32 share = gk_share(p->n);
	for (u32 first = gk_take(p, ~0u, share); first < p->n; first = gk_take(p, first, share)) {
		u32 n = gk_min(share, p->n - first);
		struct gk_text texts = p->desc ? gk_texts_of(p, first, n) : gk_texts_at(p, first, n);
		for (u32 i = 0; i < n; i++) {
			struct gk_text t = gk_text_from(&texts, i);
			s.told = 0;
			if (t.len && quads)
				gk_search_text(&s, p->mem + t.off + t.from, t.len, t.tail ? p->tails + (u64)(t.tail - 1) * GK_TAIL : nullptr);
			gk_tell(p, &s, first + i, t.from);
		}
	}
}
