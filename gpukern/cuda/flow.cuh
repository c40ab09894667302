/* The flow table: gpukern/flow.go says what it is, state.h how it lies in memory. Here any number of threads
 * look flows up and insert them at once.
 *
 * Who wants a place takes it by a compare-and-swap of its tag to "busy" with the hash of the flow, writes
 * the entry, and then publishes the tag. All threads prefer places in one order (that of FlowTable.find),
 * and within an epoch a place only ever gets worse: free, over, taken. So of two threads that insert the
 * same flow, the one that comes second either fails at the place of the first, or has seen its tag: it
 * looks again, and waits while the tag is busy. The thread that it waits for is never one that waits:
 * what lies between taking and publishing is straight code within one turn of the loop.
 *
 * An entry whose tag has the epoch of a batch is not taken over before that epoch is more than the idle
 * limit ago, so that a thread which saw that tag may use the entry; any other tag is brought to the epoch
 * by a compare-and-swap first.
 *
 * Batches of two epochs may be under way at once, at one price: places that are over for the later are not for
 * the earlier, so that a flow whose very first packets lie in both may get two places. Each of its packets is
 * told one that is its own; the place that comes first in the order stays, and the other one ages. An engine that
 * waits for the batches of an epoch before it begins the next never sees it.
 *
 * For headers.cu, per packet and behind the parser:
 *
 *	u32 known = ops & GK_OP_FLOW ? gk_flow(p, t, d) : 0;
 *	if (!known) {
 *		d->rule = gk_acl(...);  d->next_hop = gk_lpm(...);   (as far as the ops ask)
 *		if (ops & GK_OP_FLOW)
 *			gk_flow_keep(p, d);
 *	} */
#ifndef MILLRACE_GK_FLOW_CUH
#define MILLRACE_GK_FLOW_CUH

#include "pass.h"

enum {
	GK_FLOW_LINE    = 16, /* tags */
	GK_FLOW_WINDOW  = 6,  /* lines in which a flow may be */
	GK_FLOW_EMPTY   = 0,
	GK_FLOW_DELETED = 1,
	GK_FLOW_BUSY    = 1 << 15,
	GK_FLOW_EPOCH   = (1 << 15) - 1,
	GK_FLOW_HALF    = 1 << 14, /* ages from here on are epochs to come */
	GK_FLOW_PAUSE   = 64,      /* ns to wait for a tag that is busy */
};

#define GK_FLOW_NONE (~0u) /* no entry */

struct gk_flow_key {
	u64 w[5];
};

/* What a thread looks for. */
struct gk_flow_search {
	struct gk_flow_key key;
	u32 line, step, start, tag; /* struct search in flow.go */
	u32 epoch;                  /* of the batch, as in tags */
};

/* gk_flow_ends returns the two ends of t in ascending order, and the direction. */
GK_FN u32 gk_flow_ends(const struct gk_tuple *t, u32 flags, struct gk_flow_key *k)
{
	int ported = t->known == GK_KNOWS_PORTS && !(flags & MR_FLAG_FRAGMENT);
	u32 ports = ported ? t->ports : 0;
	u64 rest = (u64)t->proto << 16 | (u64)(t->v4 ? 1 : 0) << 8 |
		   (u64)(ported ? GK_KNOWS_PORTS : GK_KNOWS_ADDRESSES);
	u32 swap = ports >> 16 > (ports & 0xffff);

	if (t->src_lo != t->dst_lo)
		swap = t->src_lo > t->dst_lo;
	if (t->src_hi != t->dst_hi)
		swap = t->src_hi > t->dst_hi;
	k->w[0] = swap ? t->dst_hi : t->src_hi;
	k->w[1] = swap ? t->dst_lo : t->src_lo;
	k->w[2] = swap ? t->src_hi : t->dst_hi;
	k->w[3] = swap ? t->src_lo : t->dst_lo;
	k->w[4] = rest | (u64)(swap ? ports >> 16 | ports << 16 : ports) << 32;
	return swap;
}

/* gk_finish is finish in flow_key.go. */
GK_FN u64 gk_finish(u64 v)
{
	v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9u;
	v = (v ^ v >> 27) * 0x94d049bb133111ebu;
	return v ^ v >> 31;
}

/* gk_flow_hash is flowHasher.sum. */
GK_FN u64 gk_flow_hash(const struct gk_flows *f, const struct gk_flow_key *k)
{
	u64 sum = 0;
#pragma unroll
	for (u32 i = 0; i < 5; i++)
		sum += (u64)((u32)k->w[i] + f->key[2 * i]) * ((u32)(k->w[i] >> 32) + f->key[2 * i + 1]);
	return gk_finish(sum);
}

/* gk_flow_age returns how many epochs ago the last packet of a tag's flow was. */
GK_FN u32 gk_flow_age(const struct gk_flow_search *s, u32 tag) { return (s->epoch - tag) & GK_FLOW_EPOCH; }

GK_FN int gk_flow_over(const struct gk_flows *f, const struct gk_flow_search *s, u32 tag)
{
	u32 age = gk_flow_age(s, tag);
	return !(tag & GK_FLOW_BUSY) && age > f->idle && age < GK_FLOW_HALF;
}

/* gk_flow_same reports whether entry e is the searched flow's. */
GK_FN int gk_flow_same(const struct gk_flow_search *s, const struct gk_flow_entry *e)
{
	const u8 *at = (const u8 *)gk_fresh(e);
	struct gk_quad a = gk_load_quad(at), b = gk_load_quad(at + 16), c = gk_load_quad(at + 32);
	const u64 *w = s->key.w;
	u64 d = (w[0] ^ (a.w[0] | (u64)a.w[1] << 32)) | (w[1] ^ (a.w[2] | (u64)a.w[3] << 32)) |
		(w[2] ^ (b.w[0] | (u64)b.w[1] << 32)) | (w[3] ^ (b.w[2] | (u64)b.w[3] << 32)) |
		(w[4] ^ (c.w[0] | (u64)c.w[1] << 32));
	return d == 0;
}

GK_FN struct gk_quad gk_flow_quad(u64 a, u64 b)
{
	struct gk_quad q = {{(u32)a, (u32)(a >> 32), (u32)b, (u32)(b >> 32)}};
	return q;
}

/* gk_flow_take makes entry i, whose tag is seen, that of the searched flow, and returns 0 where somebody was
 * faster. */
GK_FN int gk_flow_take(const struct gk_flows *f, const struct gk_flow_search *s, u32 epoch, u32 i, u32 seen)
{
	struct gk_flow_entry *e = &f->entries[i];
	u32 tag = s->tag << 16;

	gk_race();
	if (gk_atomic_cas(&f->tags[i], seen, tag | GK_FLOW_BUSY) != seen)
		return 0;
	gk_race();
	gk_store_quad(e->key, gk_flow_quad(s->key.w[0], s->key.w[1]));
	gk_store_quad(e->key + 2, gk_flow_quad(s->key.w[2], s->key.w[3]));
	gk_race();
	gk_store_quad(e->key + 4, gk_flow_quad(s->key.w[4], epoch));
	gk_store_quad(e->memo, gk_flow_quad(0, 0));
	gk_fence_device();
	gk_race();
	gk_atomic_cas(&f->tags[i], tag | GK_FLOW_BUSY, tag | s->epoch);
	if (seen >> 16)
		gk_atomic_add_u64(&f->counts[GK_FLOW_TAKEN_OVER], 1);
	gk_atomic_add_u64(&f->counts[GK_FLOW_INSERTS], 1);
	return 1;
}

/* gk_flow_turn turns the bits of a line so that the one at start comes first. */
GK_FN u32 gk_flow_turn(u32 bits, u32 start) { return (bits | bits << GK_FLOW_LINE) >> start & 0xffff; }

/* The tags of a line: a bit for each, that of the first in the line lowest. */
struct gk_flow_line {
	u32 match, free, empty, over;
	u32 tag; /* one that matches */
};

GK_FN void gk_flow_read(const struct gk_flows *f, const struct gk_flow_search *s, u32 base, struct gk_flow_line *l)
{
	const u8 *at = (const u8 *)gk_fresh(&f->tags[base]);

	l->match = l->free = l->empty = l->over = l->tag = 0;
#pragma unroll
	for (u32 i = 0; i < GK_FLOW_LINE; i += 4) {
		struct gk_quad v = gk_load_quad(at + 4 * i);
#pragma unroll
		for (u32 k = 0; k < 4; k++) {
			u32 tag = v.w[k], bit = 1u << (i + k), same = tag >> 16 == s->tag;
			l->match |= same ? bit : 0;
			l->tag = same ? tag : l->tag;
			l->free |= tag >> 16 == 0 ? bit : 0;
			l->empty |= tag == GK_FLOW_EMPTY ? bit : 0;
			l->over |= tag >> 16 != 0 && gk_flow_over(f, s, tag) ? bit : 0;
		}
	}
}

/* What a search found: an entry and its tag, and what to do with it. */
enum gk_flow_found { GK_FLOW_FULL_UP, GK_FLOW_USE, GK_FLOW_TAKE, GK_FLOW_AGAIN };

struct gk_flow_place {
	u32 i, tag;
	enum gk_flow_found found;
};

/* gk_flow_compare tells whether entry i, whose tag matches, is the searched flow's. */
GK_FN enum gk_flow_found gk_flow_compare(const struct gk_flows *f, const struct gk_flow_search *s,
					 u32 i, u32 tag)
{
	gk_race();
	if (tag & GK_FLOW_BUSY) {
		gk_pause(GK_FLOW_PAUSE);
		return GK_FLOW_AGAIN;
	}
	if (gk_flow_same(s, &f->entries[i]))
		return GK_FLOW_USE;
	/* Once in 65536 times another flow with this hash; else the entry was seen older than its tag. */
	gk_fence_device();
	return gk_flow_same(s, &f->entries[i]) ? GK_FLOW_USE : GK_FLOW_FULL_UP;
}

/* gk_flow_match looks at the entries of line l, from base on, whose tags have the searched flow's hash. */
GK_FN struct gk_flow_place gk_flow_match(const struct gk_flows *f, const struct gk_flow_search *s, u32 base,
					 const struct gk_flow_line *l)
{
	struct gk_flow_place at = {0, l->tag, GK_FLOW_FULL_UP};
	u32 several = l->match & (l->match - 1);

#pragma unroll 1
	for (u32 left = l->match; left && at.found == GK_FLOW_FULL_UP; left &= left - 1) {
		at.i = base + gk_ctz(left);
		if (several)
			at.tag = gk_load_u32(&f->tags[at.i]);
		if (at.tag >> 16 == s->tag)
			at.found = gk_flow_compare(f, s, at.i, at.tag);
	}
	return at;
}

/* gk_flow_find looks for the searched flow, and for the first place where it may be put: FlowTable.find. */
GK_FN struct gk_flow_place gk_flow_find(const struct gk_flows *f, const struct gk_flow_search *s)
{
	struct gk_flow_place place = {0, 0, GK_FLOW_FULL_UP};
	u32 line = s->line;

#pragma unroll 1
	for (u32 n = gk_min(GK_FLOW_WINDOW, f->lines); n; n--) {
		struct gk_flow_line l;
		u32 base = line * GK_FLOW_LINE;
		gk_flow_read(f, s, base, &l);
		if (l.match) {
			struct gk_flow_place at = gk_flow_match(f, s, base, &l);
			if (at.found != GK_FLOW_FULL_UP)
				return at;
		}
		u32 best = gk_flow_turn(l.free ? l.free : l.over, s->start);
		if (place.found == GK_FLOW_FULL_UP && best) {
			u32 at = (s->start + gk_ctz(best)) & (GK_FLOW_LINE - 1);
			place.i = base + at;
			place.tag = l.empty >> at & 1 ? GK_FLOW_EMPTY : GK_FLOW_DELETED;
			gk_race();
			if (!l.free)
				place.tag = gk_load_u32(&f->tags[place.i]);
			/* Tags get younger meanwhile, but never over again. */
			place.found = l.free || gk_flow_over(f, s, place.tag) ? GK_FLOW_TAKE : GK_FLOW_AGAIN;
			if (place.found == GK_FLOW_AGAIN)
				return place;
		}
		if (l.empty)
			break;
		line += s->step;
		if (line >= f->lines)
			line -= f->lines;
	}
	return place;
}

/* gk_flow_entry_of returns the index of the searched flow's entry, which it makes where there is none. Its
 * tag has the epoch. */
GK_FN u32 gk_flow_entry_of(const struct gk_flows *f, const struct gk_flow_search *s, u32 epoch)
{
	for (;;) {
		struct gk_flow_place at = gk_flow_find(f, s);
		if (at.found == GK_FLOW_FULL_UP)
			break;
		if (at.found == GK_FLOW_AGAIN)
			continue;
		u32 age = gk_flow_age(s, at.tag);
		if (at.found == GK_FLOW_USE && (age <= f->idle || age >= GK_FLOW_HALF)) {
			if (age == 0 || age >= GK_FLOW_HALF)
				return at.i;
			gk_race();
			if (gk_atomic_cas(&f->tags[at.i], at.tag, (at.tag & ~(u32)GK_FLOW_EPOCH) | s->epoch) == at.tag)
				return at.i;
			continue;
		}
		if (gk_flow_take(f, s, epoch, at.i, at.tag))
			return at.i;
	}
	gk_atomic_add_u64(&f->counts[GK_FLOW_FULL], 1);
	return GK_FLOW_NONE;
}

/* gk_flow writes d->flow, and returns 1 where the entry knew rule and next hop of the tables of this
 * generation: they are written too then, and the tables need not be asked. */
GK_FN u32 gk_flow(const struct gk_pass *p, const struct gk_tuple *t, struct mr_desc *d)
{
	const struct gk_flows *f = &p->state->flows;
	struct gk_flow_search s;

	if (f->lines == 0)
		return 0;
	d->flow = 0;
	if (t->known == GK_KNOWS_NOTHING)
		return 0;
	u32 way = gk_flow_ends(t, d->flags, &s.key);
	u64 hash = gk_flow_hash(f, &s.key);
	s.line = (u32)((hash >> 32) * f->lines >> 32);
	s.step = 1 + (u32)((u64)(u32)(hash >> 12) * (gk_max(f->lines, 2) - 1) >> 32);
	s.start = (u32)(hash >> 16) & (GK_FLOW_LINE - 1);
	s.tag = gk_max((u32)hash & 0xffff, 1);
	s.epoch = p->epoch & GK_FLOW_EPOCH;
	u32 i = gk_flow_entry_of(f, &s, p->epoch);
	if (i == GK_FLOW_NONE)
		return 0;
	struct gk_flow_entry *e = &f->entries[i];
	gk_atomic_add(&e->packets, 1);
	d->flow = (i + 1) << 1 | way;
	if (p->generation == 0 || d->flags & MR_FLAG_FRAGMENT)
		return 0;
	u64 memo = gk_load_u64(&e->memo[way]);
	if ((u32)(memo >> 32) != p->generation)
		return 0;
	d->rule = (u16)memo;
	d->next_hop = (u16)(memo >> 16);
	return 1;
}

/* gk_flow_keep remembers d's rule and next hop in the entry that gk_flow found. */
GK_FN void gk_flow_keep(const struct gk_pass *p, const struct mr_desc *d)
{
	const struct gk_flows *f = &p->state->flows;

	if (f->lines == 0 || p->generation == 0 || d->flow == 0 || d->flags & MR_FLAG_FRAGMENT)
		return;
	gk_store_u64(&f->entries[(d->flow >> 1) - 1].memo[d->flow & 1],
		     (u64)p->generation << 32 | (u64)d->next_hop << 16 | d->rule);
}

#endif
