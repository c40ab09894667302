/* gk_literals searches the texts of a batch: OpLiterals of gpukern on a device. It runs after the header
 * pass, in the same stream or behind an event.
 *
 * Which texts: those of a list (text.h), each packet one text of its own where the header pass makes it, in the
 * device's memory, and leaves their first lines there: the rest of the frames is all that is then read over
 * the bus. The host makes the list for batches with
 * pieces of packets (MR_FLAG_MORE) and for streams: what a text goes on from is known only in the order of
 * arrival, one text after the other, which a core does faster than a device would.
 *
 * Launch: blocks of GK_LITERAL_THREADS or fewer threads, whole warps; as many blocks as the device runs at
 * once, or fewer where there are fewer texts; shared memory for the filter, 4 << bits bytes, and
 * gk_literal_warp for each warp (literalShared in literals.go). Warps take some texts at a time
 * from counters->next; all of the counters are 0 at the first launch, and each launch leaves them so.
 *
 * Results: found[0] to found[result->words - 1], one piece for each text that has matches, as warps come to
 * them:
 *
 *	text << 32 | n, then n words: rule << 32 | offset behind the match from the descriptor's first byte
 *
 * The words are literal.Match of Go, sorted; n is at most limit + 1, and the one beyond the limit says only
 * that it exists. The host reads what was found, one line after the other, and nothing of the texts that have
 * no matches: 2 + limit words for each text are room enough. */
#include "literal.cuh"

enum {
	GK_LITERAL_THREADS = 1024,
	GK_SHARE           = 8, /* texts that a warp takes at a time, at most */
	GK_SHARES          = 4, /* a warp comes back for more so many times, that all end at about the same time */
};

/* What the warps of a launch count together. */
struct gk_literal_counters {
	u32 next;   /* texts that are taken */
	u32 words;  /* of found that are taken */
	u32 ended;  /* warps */
	u32 pieces; /* set by the header pass: packets in pieces are among the texts */
};

/* What a launch leaves for the host. */
struct gk_literal_result {
	u32 words;  /* of found */
	u32 pieces; /* of the counters: what was found is not all, the host has to list the texts */
};

struct gk_literal_pass {
	const u8 *mem; /* the arena; on a boundary of 128 bytes */
	u64 size;      /* its bytes, a multiple of 16; nothing behind them is read */
	const struct gk_text *texts; /* n texts */
	const u8 *lines;             /* GK_TEXT_LINE bytes of each, where the header pass has listed them; or null */
	const u8 *tails;             /* GK_TAIL bytes each: the bytes, and last how many of them there are */
	const struct gk_literals *set;
	struct gk_literal_counters *counters;
	struct gk_literal_result *result;
	u64 *found;
	u32 n;
	u32 limit; /* matches that are told of a text, below 256 */
};

/* gk_texts_at returns the texts of the list from first on, n at most, one to each lane. */
GK_FN struct gk_text gk_texts_at(const struct gk_literal_pass *p, u32 first, u32 n)
{
	struct gk_quad q = gk_load_quad(&p->texts[first + gk_min(gk_lane(), n - 1)]);
	struct gk_text t = {};

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
	struct gk_text its = {};

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

/* gk_take returns the next text for the warp, which takes share of them. */
GK_FN u32 gk_take(const struct gk_literal_pass *p, u32 share)
{
	u32 i = 0;

	if (gk_lane() == 0)
		i = gk_atomic_add(&p->counters->next, share);
	return gk_shfl(i, 0);
}

/* gk_tell writes what was found in text i, if anything. */
GK_FN void gk_tell(const struct gk_literal_pass *p, const struct gk_search *s, u32 i, u32 from)
{
	u32 at = 0;

	if (s->told == 0)
		return;
	if (gk_lane() == 0)
		at = gk_atomic_add(&p->counters->words, s->told + 1);
	at = gk_shfl(at, 0);
	if (gk_lane() == 0)
		p->found[at] = (u64)i << 32 | s->told;
	for (u32 k = gk_lane(); k < s->told; k += GK_WARP) {
		u64 m = s->list[k];
		u64 end = (m >> 32) - s->begin + from;
		p->found[at + 1 + k] = m << 32 | (u32)end;
	}
	gk_warp_sync();
}

/* gk_end is what each warp does last. The last of all tells the host, and leaves zeros for the next launch. */
GK_FN void gk_end(const struct gk_literal_pass *p)
{
	struct gk_literal_counters *c = p->counters;

	if (gk_lane() != 0)
		return;
	gk_fence_device();
	if (gk_atomic_add(&c->ended, 1) + 1 < gk_threads() / GK_WARP)
		return;
	gk_fence_device();
	p->result->words = gk_load_u32(&c->words);
	p->result->pieces = gk_load_u32(&c->pieces);
	c->next = c->words = c->ended = c->pieces = 0;
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
	for (u32 first = gk_take(p, share); first < p->n; first = gk_take(p, share)) {
		u32 n = gk_min(share, p->n - first);
		struct gk_text texts = gk_texts_at(p, first, n);
		for (u32 i = 0; i < n; i++) {
			struct gk_text t = gk_text_from(&texts, i);
			s.told = 0;
			const u8 *tail = t.tail ? p->tails + (u64)(t.tail - 1) * GK_TAIL : nullptr;
			const u8 *line = p->lines ? p->lines + (u64)(first + i) * GK_TEXT_LINE : nullptr;
			if (t.len && quads)
				gk_search_text(&s, p->mem + t.off + t.from, t.len, tail, line, (uintptr_t)(p->mem + t.off) & ~(uintptr_t)15);
			gk_tell(p, &s, first + i, t.from);
		}
	}
	gk_end(p);
}
