/* Regular expressions: the automata of gpukern/expression over pieces of streams, a thread for each stream and
 * automaton.
 *
 * An automaton is a chain of loads that wait for each other, so that speed comes from how many are under way. A block
 * has one automaton and a stream for each thread, and keeps the table in shared memory: the lanes of a
 * warp read it at as many places as they have streams. Texts are read from global memory, sixteen bytes at a time, once
 * for each automaton that is awake. Filtered automata, the first of them, sleep through blocks of a piece without a mark:
 * gk_expression_marks sets the marks before, a warp for each piece.
 *
 * Contract of a launch of gk_expressions: n_which x ceil(streams / threads) blocks of at most GK_EXPRESSION_THREADS threads,
 * and dynamic shared memory for the classes, the table and the masks of the largest of the automata. Nothing but rows, found,
 * hits and count changes meanwhile. */
#include "gk.h"

enum {
	GK_EXPRESSION_THREADS = 512,
	GK_MARK_THREADS = 256,
	GK_CLASSES = 256, /* bytes in front of the table: the class of each byte */
	GK_BLOCK_SHIFT = 7,
	GK_BLOCK_BYTES = 1 << GK_BLOCK_SHIFT, /* of a piece: a mark each */
	GK_GRAM = 4,                          /* bytes of a literal of the filter */
	GK_QUAD = 16,
};

#define GK_FOLD 0x20202020u
#define GK_BLOOM_HASH 0x9e3779b1u
#define GK_SLOT_HASH 0x85ebca6bu

/* One automaton (group in gpukern/expression): row = next[row + class_of[byte]]. */
struct gk_group {
	const u16 *next;
	const u8 *class_of;
	const u32 *masks; /* expressions that ended before the byte that led to a row, from row accept on */
	const u32 *final; /* expressions that end with the text, of all rows */
	const u16 *idle;  /* the row behind a byte, by its class, where nothing of a match has been read */
	u32 stride;       /* words of a row */
	u32 accept;
	u32 words;      /* of next */
	u32 rest;       /* rows below have read nothing of a match; row 0 never will */
	u32 reciprocal; /* of stride: (n * reciprocal) >> 32 is n / stride */
	u32 full;       /* the mask of all expressions */
	u32 tail;       /* of a filtered one: where it wakes up before the end of a piece */
	u32 n_masks;
};

/* The literals that filtered automata wait for. */
struct gk_filter {
	const u32 *bloom;
	const struct gk_slot *slots;
	const u32 *uses; /* automaton << 8 | bytes between the begin of a match and the literal */
	u32 bloom_shift, slot_shift;
};

struct gk_slot {
	u32 gram, first, n, spare; /* n is 0 where nothing is */
};

/* A piece of a stream, on a boundary of sixteen; the bytes up to the next boundary may be read. */
struct gk_piece {
	u32 off, len;
	u32 ends; /* 1: the stream ends with it */
	u32 mark; /* its first word of marks */
};

struct gk_hit {
	u32 piece, end, group, bit;
};

struct gk_expressions {
	const u8 *bytes;
	const struct gk_piece *pieces; /* those of a stream one behind the other */
	const u32 *first;              /* of each stream its first piece, and behind the last how many there are */
	const struct gk_group *groups;
	const u32 *which; /* the automata of the launch */
	const struct gk_filter *filter;
	u32 *marks; /* by filtered automaton, then by piece: a bit for each block in which a match may begin */
	u16 *rows;  /* by stream, then by group */
	u32 *found; /* likewise */
	struct gk_hit *hits;
	u32 *count; /* of hits; more than room where some were left out */
	u32 n_streams, n_groups;
	u32 n_filtered, n_marks; /* words of marks of an automaton */
	u32 n_pieces;
	u32 n_which;
	u32 room;
	u32 spare;
};

/* gk_mark sets the marks of the automata that wait for a literal, if it is one. */
GK_SLOW void gk_mark(const struct gk_filter *f, u32 *marks, u32 n_marks, u32 gram, u32 at)
{
	u32 last = (1u << (32 - f->slot_shift)) - 1;

	for (u32 i = gram * GK_SLOT_HASH >> f->slot_shift;; i = (i + 1) & last) {
		const struct gk_slot *s = f->slots + i;
		if (s->n == 0)
			return;
		if (s->gram != gram)
			continue;
		for (u32 k = s->first; k < s->first + s->n; k++) {
			u32 use = f->uses[k], begin = at - (use & 255);
			if (at < (use & 255)) /* the automaton was awake at the end of the piece before */
				continue;
			begin >>= GK_BLOCK_SHIFT;
			gk_atomic_or(&marks[(use >> 8) * n_marks + begin / 32], 1u << (begin & 31));
		}
		return;
	}
}

/* The pieces are dealt to the warps of any grid; dynamic shared memory holds the bloom filter. */
GK_KERNEL(gk_expression_marks, struct gk_expressions, GK_MARK_THREADS)
{
	const struct gk_filter *f = p->filter;
	u32 shift = f->bloom_shift;
	u32 *bloom = (u32 *)gk_dynamic_shared();

	for (u32 i = gk_thread(); i < (1u << (32 - shift)) / 32; i += gk_block_size())
		bloom[i] = f->bloom[i];
	gk_block_sync();
	for (u32 i = gk_global_thread() / GK_WARP; i < p->n_pieces; i += gk_threads() / GK_WARP) {
		struct gk_piece t = p->pieces[i];
		const u8 *text = p->bytes + t.off;
		for (u32 at = gk_lane() * GK_QUAD; at + GK_GRAM <= t.len; at += GK_WARP * GK_QUAD) {
			struct gk_quad q = gk_table_quad(text + at);
			u32 w[5] = {q.w[0], q.w[1], q.w[2], q.w[3], 0};
			if (at + GK_QUAD < t.len)
				w[4] = *(const u32 *)(text + at + GK_QUAD);
#pragma unroll
			for (u32 k = 0; k < GK_QUAD; k++) {
				u32 gram = gk_funnel(w[k / 4], w[k / 4 + 1], 8 * (k & 3)) | GK_FOLD;
				u32 h = gram * GK_BLOOM_HASH >> shift;
				if (bloom[h / 32] >> (h & 31) & 1 && at + k + GK_GRAM <= t.len)
					gk_mark(f, p->marks + t.mark, p->n_marks, gram, at + k);
			}
		}
	}
}

/* gk_report appends the expressions of a mask. */
GK_FN void gk_report(const struct gk_expressions *p, u32 mask, u32 piece, u32 end, u32 group)
{
	u32 at = gk_atomic_add(p->count, gk_popc(mask));

	for (; mask != 0; mask &= mask - 1, at++) {
		struct gk_quad q = {{piece, end, group, gk_ctz(mask)}};
		if (at < p->room)
			gk_store_quad(&p->hits[at], q);
	}
}

/* An automaton over a stream. */
struct gk_runner {
	const u16 *next;
	const u8 *class_of;
	u32 accept, reciprocal, full;
	const u32 *masks;
	u32 group, row, found;
};

/* gk_mask_of returns the expressions that ended before the byte that led to a row. There are masks, since any row has ended some;
 * reading the first one in place of none takes no branch. */
GK_FN u32 gk_mask_of(const struct gk_runner *r, u32 row)
{
	u32 mask = r->masks[(u64)(gk_max(row, r->accept) - r->accept) * r->reciprocal >> 32];

	return row < r->accept ? 0 : mask;
}

/* gk_ended notes what ended before the bytes that led to n rows, two in a word, the first of which is at at. */
GK_FN void gk_ended(const struct gk_expressions *p, struct gk_runner *r, const u32 *rows, u32 n, u32 piece, u32 at)
{
	u32 any = 0;

#pragma unroll
	for (u32 i = 0; i < GK_QUAD; i++)
		if (i < n)
			any |= gk_mask_of(r, rows[i / 2] >> 16 * (i & 1) & 0xffff);
	any &= ~r->found;
	if (any == 0)
		return;
#pragma unroll
	for (u32 i = 0; i < GK_QUAD; i++) {
		u32 fresh = i < n ? gk_mask_of(r, rows[i / 2] >> 16 * (i & 1) & 0xffff) & any : 0;
		if (fresh != 0)
			gk_report(p, fresh, piece, at + i, r->group);
		any &= ~fresh;
		r->found |= fresh;
	}
	if (r->found == r->full)
		r->row = 0; /* nothing is left to be found */
}

/* gk_classes returns the classes of sixteen bytes: these loads do not wait for each other, as steps do. */
GK_FN struct gk_quad gk_classes(const u8 *class_of, struct gk_quad q)
{
#pragma unroll
	for (u32 i = 0; i < 4; i++) {
		u32 w = q.w[i];
		q.w[i] = (u32)class_of[w & 255] | (u32)class_of[w >> 8 & 255] << 8 | (u32)class_of[w >> 16 & 255] << 16 |
			 (u32)class_of[w >> 24] << 24;
	}
	return q;
}

/* gk_steps reads n of the sixteen bytes of a quad. What has ended is looked at behind the last of them: were it looked at
 * in each step, the lanes of a warp would part there and walk one by one. */
GK_FN void gk_steps(const struct gk_expressions *p, struct gk_runner *r, struct gk_quad q, u32 n, u32 piece, u32 at)
{
	u32 rows[GK_QUAD / 2] = {0, 0, 0, 0, 0, 0, 0, 0}, most = 0;

	q = gk_classes(r->class_of, q);
#pragma unroll
	for (u32 i = 0; i < GK_QUAD; i++) {
		u32 next = r->next[r->row + (q.w[i / 4] >> 8 * (i & 3) & 255)];
		if (i < n)
			r->row = next;
		most = gk_max(most, r->row);
		rows[i / 2] |= r->row << 16 * (i & 1);
	}
	if (most >= r->accept)
		gk_ended(p, r, rows, n, piece, at);
}

/* gk_block_of searches a text from at, on a boundary of sixteen, to end. */
GK_FN void gk_block_of(const struct gk_expressions *p, struct gk_runner *r, const u8 *text, u32 piece, u32 at, u32 end)
{
	struct gk_quad q = gk_table_quad(text + at);

	for (; at < end; at += GK_QUAD) {
		struct gk_quad ahead = q;
		if (at + GK_QUAD < end)
			ahead = gk_table_quad(text + at + GK_QUAD);
		gk_steps(p, r, q, gk_min(GK_QUAD, end - at), piece, at);
		q = ahead;
	}
}

/* gk_next_marked returns the begin of the first marked block from at on, or until. */
GK_FN u32 gk_next_marked(const u32 *marks, u32 at, u32 until)
{
	for (u32 block = at >> GK_BLOCK_SHIFT; block << GK_BLOCK_SHIFT < until; block = (block | 31) + 1) {
		u32 m = marks[block / 32] >> (block & 31);
		if (m != 0)
			return gk_min(until, gk_max(at, (block + gk_ctz(m)) << GK_BLOCK_SHIFT));
	}
	return until;
}

/* gk_scan goes over a piece: block by block, and over those without a mark at once where nothing of a match has been
 * read. marks is null where the automaton is not filtered. */
GK_FN void gk_scan(const struct gk_expressions *p, struct gk_runner *r, const struct gk_group *g, const u32 *marks, u32 piece)
{
	struct gk_piece t = p->pieces[piece];
	const u8 *text = p->bytes + t.off;
	u32 until = t.ends ? t.len : (t.len - gk_min(t.len, g->tail)) & ~(GK_QUAD - 1u);

	for (u32 at = 0; at < t.len && r->row != 0;) {
		if (marks && r->row < g->rest) {
			u32 to = at < until ? gk_next_marked(marks + t.mark, at, until) : at;
			if (to > at)
				r->row = g->idle[r->class_of[text[to - 1]]];
			at = to;
			if (at == t.len)
				break;
		}
		u32 end = gk_min(t.len, (at | (GK_BLOCK_BYTES - 1)) + 1);
		gk_block_of(p, r, text, piece, at, end);
		at = end;
	}
	if (t.ends) {
		u32 fresh = g->final[r->row / g->stride] & ~r->found;
		if (fresh != 0)
			gk_report(p, fresh, piece, t.len, r->group);
		r->found |= fresh;
	}
}

GK_KERNEL_BLOCKS(gk_expressions, struct gk_expressions, GK_EXPRESSION_THREADS, 2)
{
	u32 blocks = (p->n_streams + gk_block_size() - 1) / gk_block_size();
	u32 group = p->which[gk_block() / blocks];
	u32 stream = gk_block() % blocks * gk_block_size() + gk_thread();
	const struct gk_group *g = p->groups + group;
	u8 *class_of = gk_dynamic_shared();
	u16 *table = (u16 *)(class_of + GK_CLASSES);
	u32 *masks = (u32 *)(table + g->words);

	for (u32 i = gk_thread(); i < GK_CLASSES; i += gk_block_size())
		class_of[i] = g->class_of[i];
	for (u32 i = gk_thread(); i < g->words / 8; i += gk_block_size()) /* tables are rounded up to whole quads */
		((struct gk_quad *)table)[i] = gk_table_quad(g->next + 8 * i);
	for (u32 i = gk_thread(); i < g->n_masks; i += gk_block_size())
		masks[i] = g->masks[i];
	gk_block_sync();
	if (stream >= p->n_streams)
		return;
	u32 place = stream * p->n_groups + group;
	const u32 *marks = group < p->n_filtered ? p->marks + group * p->n_marks : nullptr;
	struct gk_runner r = {table, class_of, g->accept, g->reciprocal, g->full, masks, group, p->rows[place], p->found[place]};
	for (u32 piece = p->first[stream]; piece < p->first[stream + 1]; piece++)
		gk_scan(p, &r, g, marks, piece);
	p->rows[place] = (u16)r.row;
	p->found[place] = r.found;
}
