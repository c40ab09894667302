/* Regular expressions: the automata of gpukern/expression over pieces of streams, a thread for each stream and
 * automaton.
 *
 * An automaton is a chain of loads that wait for each other, so that speed comes from how many are under way. A block
 * has one automaton and a stream for each thread, and keeps the table in shared memory where it fits: the lanes of a
 * warp read it at as many places as they have streams. Texts are read from global memory, sixteen bytes at a time, once
 * for each automaton.
 *
 * Contract of a launch: groups x ceil(streams / threads) blocks of at most GK_EXPRESSION_THREADS threads, and dynamic
 * shared memory for the largest table that is to be kept there, GK_CLASSES bytes more. Nothing but rows, found, hits and
 * count changes meanwhile. */
#include "gk.h"

enum {
	GK_EXPRESSION_THREADS = 128,
	GK_CLASSES = 256, /* bytes in front of the table: the class of each byte */
};

/* One automaton (group in gpukern/expression): row = next[row + class_of[byte]]. */
struct gk_group {
	const u16 *next;
	const u8 *class_of;
	const u32 *masks; /* expressions that ended before the byte that led to a row, from row accept on */
	const u32 *final; /* expressions that end with the text, of all rows */
	u32 stride;       /* words of a row */
	u32 accept;
	u32 words; /* of next */
	u32 spare;
};

/* A piece of a stream, on a boundary of sixteen; the bytes up to the next boundary may be read. */
struct gk_piece {
	u32 off, len;
	u32 ends; /* 1: the stream ends with it */
	u32 spare;
};

struct gk_hit {
	u32 piece, end, group, bit;
};

struct gk_expressions {
	const u8 *bytes;
	const struct gk_piece *pieces; /* those of a stream one behind the other */
	const u32 *first;              /* of each stream its first piece, and behind the last how many there are */
	const struct gk_group *groups;
	u16 *rows;  /* by group, then by stream */
	u32 *found; /* likewise */
	struct gk_hit *hits;
	u32 *count; /* of hits; more than room where some were left out */
	u32 n_streams, n_groups;
	u32 room;
	u32 shared; /* words of a table that dynamic shared memory holds */
};

/* A thread's place. */
struct gk_runner {
	const struct gk_expressions *p;
	const struct gk_group *g;
	u32 group, found;
};

/* gk_note appends the expressions of a mask that are new. */
GK_SLOW u32 gk_note(const struct gk_runner *r, u32 mask, u32 piece, u32 end)
{
	u32 fresh = mask & ~r->found, at;

	if (fresh == 0)
		return r->found;
	at = gk_atomic_add(r->p->count, gk_popc(fresh));
	for (u32 left = fresh; left != 0; left &= left - 1, at++) {
		struct gk_quad q = {{piece, end, r->group, gk_ctz(left)}};
		if (at < r->p->room)
			gk_store_quad(&r->p->hits[at], q);
	}
	return r->found | fresh;
}

/* gk_step reads a byte. */
GK_FN u32 gk_step(struct gk_runner *r, const u16 *next, const u8 *class_of, u32 row, u32 c, u32 piece, u32 at)
{
	row = next[row + class_of[c]];
	if (row >= r->g->accept)
		r->found = gk_note(r, r->g->masks[(row - r->g->accept) / r->g->stride], piece, at);
	return row;
}

/* gk_scan goes over a piece. */
GK_FN u32 gk_scan(struct gk_runner *r, const u16 *next, const u8 *class_of, u32 row, u32 piece)
{
	struct gk_piece t = r->p->pieces[piece];
	const u8 *text = r->p->bytes + t.off;
	u32 at = 0;

	for (; at + 16 <= t.len; at += 16) {
		struct gk_quad q = gk_table_quad(text + at);
#pragma unroll
		for (u32 i = 0; i < 16; i++)
			row = gk_step(r, next, class_of, row, q.w[i / 4] >> 8 * (i & 3) & 255, piece, at + i);
	}
	for (; at < t.len; at++)
		row = gk_step(r, next, class_of, row, text[at], piece, at);
	if (t.ends)
		r->found = gk_note(r, r->g->final[row / r->g->stride], piece, t.len);
	return row;
}

GK_KERNEL(gk_expressions, struct gk_expressions, GK_EXPRESSION_THREADS)
{
	u32 blocks = (p->n_streams + gk_block_size() - 1) / gk_block_size();
	u32 group = gk_block() / blocks, stream = gk_block() % blocks * gk_block_size() + gk_thread();
	const struct gk_group *g = p->groups + group;
	u8 *class_of = gk_dynamic_shared();
	u16 *table = (u16 *)(class_of + GK_CLASSES);
	int kept = g->words <= p->shared;

	for (u32 i = gk_thread(); i < GK_CLASSES; i += gk_block_size())
		class_of[i] = g->class_of[i];
	for (u32 i = gk_thread(); kept && i < (g->words + 1) / 2; i += gk_block_size())
		((u32 *)table)[i] = ((const u32 *)g->next)[i]; /* tables are rounded up to whole words */
	gk_block_sync();
	if (stream >= p->n_streams)
		return;
	struct gk_runner r = {p, g, group, p->found[group * p->n_streams + stream]};
	u32 row = p->rows[group * p->n_streams + stream];
	for (u32 piece = p->first[stream]; piece < p->first[stream + 1]; piece++)
		row = kept ? gk_scan(&r, table, class_of, row, piece) : gk_scan(&r, g->next, class_of, row, piece);
	p->rows[group * p->n_streams + stream] = (u16)row;
	p->found[group * p->n_streams + stream] = r.found;
}
