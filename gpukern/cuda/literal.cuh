/* Search of texts for a set of literals: package gpukern/literal, for a warp. tables.go there says how the
 * set lies and what a position is asked; here stands how a warp goes about it.
 *
 * A text is cut into tiles of 512 bytes, which begin on a boundary of 128: lane i reads the 16 bytes that
 * are its, so that the warp reads whole lines. Each lane asks the filter about the 16 windows that begin in
 * its bytes. The few that pass, wherever they are, go into a queue, and whenever that holds 32 all lanes
 * look at one each: a text that is full of near misses in one place costs no more than one that is so
 * evenly. What matches goes into a list in the order that is told.
 *
 * The bytes that comparisons need lie in shared memory, since frames are read once, over PCIe:
 *
 *	| 64: end of the tile before | tile, 512 | 64: begin of the next |
 *
 * A text may go on from a tail, the last up to 63 bytes before it. They are put in front of its first byte
 * there; positions count through, from the begin of the first tile. */
#ifndef MILLRACE_GK_LITERAL_CUH
#define MILLRACE_GK_LITERAL_CUH

#include "gk.h"
#include "text.h"

struct gk_slot {
	u32 tag, at;
};

/* A set, as literal.Set.Image lays it out. */
struct gk_literals {
	const u32 *filter;             /* 1 << bits words, for shared memory */
	const struct gk_slot *slots;
	const struct gk_quad *records;
	u32 bits;
	u32 slot_shift;
	u32 slot_mask;
	u32 classes; /* bits 0, 1, 2: there are anchors of 3, 4, 8 bytes; 0 is a set of nothing */
};

enum {
	GK_TILE  = 16 * GK_WARP,
	GK_REACH = 64,                             /* bytes around a window that a pattern may have */
	GK_STAGE = GK_REACH + GK_TILE + GK_REACH, /* the tile and what is around it */
	GK_QUEUE = 2 * GK_WARP,
	GK_TAIL  = 64, /* bytes of a tail: 63, and how many of them there are */
};

/* What a warp has in shared memory, in this order:
 *
 *	stage  GK_STAGE and 16 bytes behind it, which are read and mean nothing
 *	queue  GK_QUEUE windows: offset in the stage << 1 | whether it may be an anchor of 8 bytes
 *	list   limit + 1 matches: end << 32 | rule, sorted, each once
 */
enum { GK_LITERAL_WARP = GK_STAGE + 16 + 2 * GK_QUEUE };

GK_FN u32 gk_literal_warp(u32 limit) { return GK_LITERAL_WARP + ((limit + 1) * 8 + 15) / 16 * 16; }

/* One warp's search. Positions count from the begin of the first tile. */
struct gk_search {
	struct gk_literals set;
	const u32 *filter; /* in shared memory */
	u8 *stage;
	u16 *queue;
	u64 *list;
	u32 most;   /* of the list: limit + 1 */
	u32 told;   /* matches in the list */
	u32 queued;
	u32 first;  /* position of the first byte, of the tail where there is one */
	u32 begin;  /* of the text */
	u32 end;
	u32 tile;   /* of the tile at hand */
};

GK_FN struct gk_search gk_search(const struct gk_literals *set, const u32 *filter, u8 *memory, u32 limit)
{
	struct gk_search s;

	s.set = *set;
	s.filter = filter;
	s.stage = memory;
	s.queue = (u16 *)(memory + GK_STAGE + 16);
	s.list = (u64 *)(memory + GK_LITERAL_WARP);
	s.most = limit + 1;
	s.told = s.queued = s.first = s.begin = s.end = s.tile = 0;
	return s;
}

/* gk_match_add puts a match, the same in all lanes, in its place in the list, unless it is there already
 * or comes behind all that will be told. */
GK_FN void gk_match_add(struct gk_search *s, u64 match)
{
	u32 lane = gk_lane(), before = 0, same = 0;

	for (u32 i = 0; i < s->told; i += GK_WARP) {
		u64 m = i + lane < s->told ? s->list[i + lane] : ~(u64)0;
		before += gk_popc(gk_ballot(m < match));
		same |= gk_ballot(m == match);
	}
	if (same || before >= s->most)
		return;
	if (s->told < s->most)
		s->told++;
	for (u32 last = s->told - 1; last > before;) { /* the last 32 that move, then those before */
		u32 i = last - lane;
		u64 m = 0;
		if (lane < last - before)
			m = s->list[i - 1];
		gk_warp_sync();
		if (lane < last - before)
			s->list[i] = m;
		gk_warp_sync();
		last -= gk_min(GK_WARP, last - before);
	}
	gk_warp_sync(); /* all have read what lies there */
	if (lane == 0)
		s->list[before] = match;
	gk_warp_sync();
}

/* gk_stage_quad and gk_stage_put read and write sixteen bytes of the stage on a boundary of sixteen: as
 * vectors, or the lanes of a warp would get into each other's way. */
typedef u32 gk_stage_vector __attribute__((vector_size(16), may_alias));

GK_FN struct gk_quad gk_stage_quad(const u8 *stage, u32 at)
{
	gk_stage_vector v = *(const gk_stage_vector *)(stage + at);
	struct gk_quad q = {{v[0], v[1], v[2], v[3]}};
	return q;
}

GK_FN void gk_stage_put(u8 *stage, u32 at, struct gk_quad q)
{
	gk_stage_vector v = {q.w[0], q.w[1], q.w[2], q.w[3]};
	*(gk_stage_vector *)(stage + at) = v;
}

/* gk_stage_word reads four bytes of the stage from any offset. */
GK_FN u32 gk_stage_word(const u8 *stage, u32 at)
{
	const u32 *w = (const u32 *)(stage + (at & ~3u));
	return gk_funnel(w[0], w[1], 8 * (at & 3));
}

/* Multipliers and salts of package literal. */
enum : u32 { GK_MUL4 = 0x9e3b24c5, GK_MUL8 = 0x85ebca6b, GK_MUL_TAG = 0xc2b2ae35, GK_SALT3 = 0x3c6ef372, GK_SALT8 = 0xa54ff53a };
enum : u32 { GK_CLASS3 = 1, GK_CLASS4 = 2, GK_CLASS8 = 4 };

/* One lane's look at a window. */
struct gk_probe {
	u32 at;      /* offset of the window in the stage */
	u32 classes; /* that are still to be looked up */
	u32 h4, h8;
	u32 record;  /* the quad of the next record; 0 is none */
};

/* gk_filter_word returns the filter's word for a window. */
GK_FN u32 gk_filter_word(const struct gk_search *s, u32 h4)
{
	u32 at = h4 << 8 >> (30 - s->set.bits) & ((4u << s->set.bits) - 4);
	return *(const u32 *)((const u8 *)s->filter + at);
}

/* gk_probe reads a window from the queue's entry. An anchor of 3 bytes has set all bits of its word. */
GK_FN struct gk_probe gk_probe(const struct gk_search *s, u32 entry)
{
	struct gk_probe p;

	p.at = entry >> 1;
	p.h4 = (gk_stage_word(s->stage, p.at) | 0x20202020) * GK_MUL4;
	p.h8 = p.h4 + (gk_stage_word(s->stage, p.at + 4) | 0x20202020) * GK_MUL8;
	p.classes = GK_CLASS8;
	if (!(entry & 1))
		p.classes = gk_filter_word(s, p.h4) == ~0u ? GK_CLASS3 | GK_CLASS4 : GK_CLASS4;
	p.classes &= s->set.classes;
	p.record = 0;
	return p;
}

/* gk_probe_slot looks up the next class of a window. */
GK_FN void gk_probe_slot(const struct gk_search *s, struct gk_probe *p)
{
	u32 class_ = p->classes & (0 - p->classes), h;

	p->classes ^= class_;
	h = class_ == GK_CLASS8 ? p->h8 ^ GK_SALT8 : class_ == GK_CLASS4 ? p->h4 : p->h4 << 8 ^ GK_SALT3;
	h ^= h >> 15;
	h *= GK_MUL_TAG;
	h ^= h >> 16;
	for (u32 i = h >> s->set.slot_shift;; i = (i + 1) & s->set.slot_mask) {
		struct gk_slot slot = s->set.slots[i];
		if (slot.at == 0)
			return;
		if (slot.tag == h) {
			p->record = slot.at;
			return;
		}
	}
}

/* gk_fold_word spreads four bits of a record's fold to the bytes that they stand for, as 0x20. */
GK_FN u32 gk_fold_word(u32 bits) { return (bits & 15) * 0x00204081u << 5 & 0x20202020; }

/* gk_record_equal compares the pattern of a record with the bytes of the stage from at on. */
GK_FN int gk_record_equal(const struct gk_search *s, u32 record, u32 at, u32 len, u64 fold)
{
	for (u32 i = 0; i < len; i += 16) {
		struct gk_quad q = gk_table_quad(&s->set.records[++record]);
		u32 differ = 0;
#pragma unroll
		for (u32 k = 0; k < 4; k++) {
			u32 left = len - i - gk_min(4 * k, len - i); /* bytes of the pattern from here on */
			u32 mask = left >= 4 ? ~0u : (1u << 8 * left) - 1;
			u32 text = gk_stage_word(s->stage, at + i + 4 * k);
			differ |= ((text | gk_fold_word((u32)(fold >> (i + 4 * k)))) ^ q.w[k]) & mask;
		}
		if (differ)
			return 0;
	}
	return 1;
}

/* gk_bar returns what matches must come before to be told: a list that is full has no room behind its last. */
GK_FN u64 gk_bar(const struct gk_search *s) { return s->told == s->most ? s->list[s->most - 1] : ~(u64)0; }

/* gk_probe_next returns the window's next match before the bar, 0 where there is no more. */
GK_FN u64 gk_probe_next(const struct gk_search *s, struct gk_probe *p, u64 bar)
{
	for (;;) {
		u32 record = p->record, len, position, end;
		struct gk_quad q;

		if (!record) {
			if (!p->classes)
				return 0;
			gk_probe_slot(s, p);
			continue;
		}
		q = gk_table_quad(&s->set.records[record]);
		len = q.w[1] & 0xff;
		p->record = q.w[1] >> 16 & 1 ? record + (q.w[1] >> 24) : 0;
		position = s->tile + p->at - GK_REACH - (q.w[1] >> 8 & 0xff); /* of the pattern's first byte */
		end = position + len;
		if ((i32)(position - s->first) < 0 || end > s->end || end <= s->begin)
			continue;
		if (((u64)end << 32 | q.w[0]) >= bar)
			continue;
		if (gk_record_equal(s, record, p->at - (q.w[1] >> 8 & 0xff), len, gk_high(q)))
			return (u64)end << 32 | q.w[0];
	}
}

/* gk_search_queued looks at the last n windows of the queue, at most one for each lane, and takes them out.
 * Where the list is full, few windows can still matter: a text that matches everywhere costs little. */
GK_FN void gk_search_queued(struct gk_search *s, u32 n)
{
	u32 lane = gk_lane();
	struct gk_probe p = {};
	u32 some;

	s->queued -= n;
	gk_warp_sync();
	if (lane < n)
		p = gk_probe(s, s->queue[s->queued + lane]);
	gk_warp_sync();
	if ((u64)(s->tile + p.at - GK_REACH + 3) > gk_bar(s) >> 32)
		p.classes = 0;
	do {
		u64 match = gk_probe_next(s, &p, gk_bar(s));
		some = gk_ballot(match != 0);
		for (u32 left = some; left; left &= left - 1) {
			u32 from = gk_ctz(left);
			u32 end = gk_shfl((u32)(match >> 32), from), rule = gk_shfl((u32)match, from);
			gk_match_add(s, (u64)end << 32 | rule);
		}
	} while (some);
}

/* gk_filter asks the filter about the windows that begin in a lane's 16 bytes: w holds those and the 8
 * behind them, with bit 0x20 set in each. Bit i of the result says that window i may be an anchor of 8
 * bytes, bit 16+i that it may be one of 4 or 3. */
GK_FN u32 gk_filter(const struct gk_search *s, const u32 w[6])
{
	u32 window[20], hits = 0;

#pragma unroll
	for (u32 i = 0; i < 20; i++)
		window[i] = i % 4 ? gk_funnel(w[i / 4], w[i / 4 + 1], 8 * (i % 4)) : w[i / 4];
#pragma unroll
	for (u32 i = 0; i < 16; i++) {
		u32 h4 = window[i] * GK_MUL4;
		u32 h8 = h4 + window[i + 4] * GK_MUL8;
		u32 word = gk_filter_word(s, h4);
		u32 may8 = gk_rotate(word, h8 >> 27) & gk_rotate(word, h8 >> 22);
		u32 may4 = gk_rotate(word, h4 >> 27) & gk_rotate(word, h4 >> 24);
		hits |= (may8 & 1) << i | (may4 & 1) << (16 + i);
	}
	return hits;
}

/* gk_below returns the bits below i; all 16 from there on. */
GK_FN u32 gk_below(i32 i) { return i <= 0 ? 0 : i >= 16 ? 0xffff : (1u << i) - 1; }

/* gk_tile_hits returns which windows of a lane's bytes, which begin at a position, the filter passes. Only
 * windows that lie in the tail and the text count. */
GK_FN u32 gk_tile_hits(const struct gk_search *s, struct gk_quad mine, u32 position)
{
	u64 behind = *(const u64 *)(s->stage + GK_REACH + 16 * (gk_lane() + 1));
	u32 w[6] = {mine.w[0], mine.w[1], mine.w[2], mine.w[3], (u32)behind, (u32)(behind >> 32)};
	u32 in8 = 0, in3 = 0, from;

	from = gk_below((i32)(s->first - position));
	if (s->set.classes & GK_CLASS8)
		in8 = gk_below((i32)(s->end - position) - 7) & ~from;
	if (s->set.classes & (GK_CLASS3 | GK_CLASS4))
		in3 = gk_below((i32)(s->end - position) - 2) & ~from;
#pragma unroll
	for (u32 i = 0; i < 6; i++)
		w[i] |= 0x20202020;
	return gk_filter(s, w) & (in8 | in3 << 16);
}

/* gk_search_tile searches the windows of the tile that lies in the stage. */
GK_FN void gk_search_tile(struct gk_search *s, struct gk_quad mine)
{
	u32 lane = gk_lane(), below = (1u << lane) - 1;
	u32 hits = gk_tile_hits(s, mine, s->tile + 16 * lane);

	for (;;) {
		u32 some = gk_ballot(hits != 0);
		if (!some && !s->queued)
			return;
		if (hits) {
			u32 i = gk_ctz(hits);
			hits &= hits - 1;
			s->queue[s->queued + gk_popc(some & below)] =
				(u16)((GK_REACH + 16 * lane + (i & 15)) << 1 | (i < 16));
		}
		s->queued += gk_popc(some);
		if (!some || s->queued >= GK_WARP)
			gk_search_queued(s, gk_min(s->queued, GK_WARP));
	}
}

/* gk_read_tile reads a lane's part of the tile that begins at a position; at is the address of position 0.
 * Bytes of the arena that belong to no text come along where they lie in the same 16. */
GK_FN struct gk_quad gk_read_tile(const struct gk_search *s, uintptr_t at, u32 tile)
{
	u32 position = tile + 16 * gk_lane();
	struct gk_quad q = {};

	if (position + 16 > s->begin && position < s->end)
		q = gk_load_quad((const void *)(at + position));
	return q;
}

/* gk_read_first is gk_read_tile for the first tile of a text, of which line, where there is one, has what lies
 * from address of on. */
GK_FN struct gk_quad gk_read_first(const struct gk_search *s, uintptr_t at, const u8 *line, uintptr_t of)
{
	u32 position = 16 * gk_lane();
	struct gk_quad q = {};

	if (line && at + position - of < GK_TEXT_LINE)
		at = (uintptr_t)line + at - of;
	if (position + 16 > s->begin && position < s->end)
		q = gk_load_quad((const void *)(at + position));
	return q;
}

/* gk_put_tail puts a tail in front of the text's first byte, in the first tile, and returns what is then
 * the lane's part of it. */
GK_FN struct gk_quad gk_put_tail(const struct gk_search *s, const u8 *tail)
{
	u32 n = s->begin - s->first;

	gk_warp_sync();
	for (u32 i = gk_lane(); i < n; i += GK_WARP)
		s->stage[GK_REACH + s->first + i] = (u8)gk_load_u8(tail + i);
	gk_warp_sync();
	return gk_stage_quad(s->stage, GK_REACH + 16 * gk_lane());
}

/* gk_search_text searches len bytes, at any address, that go on from a tail of GK_TAIL bytes, or from
 * nothing where that is null; line, which may be null, has the GK_TEXT_LINE bytes from address of on, a
 * boundary of sixteen at or before the text. Afterwards s->list holds s->told matches: positions, from which the caller
 * takes s->begin for offsets in the text. All lanes call it with the same arguments. */
GK_FN void gk_search_text(struct gk_search *s, const u8 *text, u32 len, const u8 *tail,
			  const u8 *line, uintptr_t of)
{
	u32 lane = gk_lane(), before = tail ? gk_load_u8(tail + GK_TAIL - 1) : 0;
	uintptr_t at = ((uintptr_t)text - (before ? GK_TAIL : 0)) & ~(uintptr_t)127;
	struct gk_quad mine, next;

	s->told = 0;
	s->begin = (u32)((uintptr_t)text - at);
	s->first = s->begin - before;
	s->end = s->begin + len;
	mine = gk_read_first(s, at, line, of);
	gk_warp_sync(); /* nobody reads the text before any more */
	for (s->tile = 0;; s->tile += GK_TILE) {
		next = gk_read_tile(s, at, s->tile + GK_TILE);
		gk_stage_put(s->stage, GK_REACH + 16 * lane, mine);
		if (lane < GK_REACH / 16)
			gk_stage_put(s->stage, GK_REACH + GK_TILE + 16 * lane, next);
		if (s->tile == 0 && before)
			mine = gk_put_tail(s, tail);
		gk_warp_sync();
		gk_search_tile(s, mine);
		if (s->tile + GK_TILE >= s->end || gk_bar(s) >> 32 < s->tile + GK_TILE + 3)
			return;
		gk_warp_sync();
		if (lane >= GK_WARP - GK_REACH / 16)
			gk_stage_put(s->stage, 16 * (lane - (GK_WARP - GK_REACH / 16)), mine);
		mine = next;
	}
}

#endif
