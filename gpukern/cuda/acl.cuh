/* The rule of a packet, by one of the two forms of gpukern's lists.
 *
 * A decision (gpukern/decision.go) leads from the source address to the short list of rules that name it,
 * from the destination to those that name no source, from ports to those that name neither; a long list is
 * split by a further field. With ten thousand rules like those in use, 2 MB, a look-up is for each of
 * two lists 3 or 4 dependent loads in the trie, one of the reference, and 1 to 4 of items, each half a
 * sector: some 14 sectors of 32 bytes, 12 of them one after the other in two chains that overlap.
 *
 * Lists that no decision takes have bit vectors (gpukern/classifier.go): each field of a packet leads to a
 * vector with a bit for every rule that this field lets match; the bits that all five have are the rules
 * that match, and the lowest place in the list wins. Vectors of few rules have all their words. Others begin
 * with heads words of "any of these 64" and keep only the words that are not zero. Coarse vectors say "may
 * match": rules are compared before they win. Some 40 sectors for ten thousand rules. */
#ifndef MILLRACE_GK_ACL_H
#define MILLRACE_GK_ACL_H

#include "pass.h"
#include "trie.cuh"

enum { GK_NO_PLACE = 0xffff }; /* beyond every place in a list */

/* A rule of one family: gpukern.flatRule. */
struct gk_rule {
	u64 src_hi, src_lo, dst_hi, dst_lo;
	u32 sports, dports; /* the first port, and how many follow << 16 */
	u8 src_bits, dst_bits;
	u8 proto; /* 0 is any */
	u8 asks;  /* 1: for ports; packets without them do not match */
	u32 pad;
};
static_assert(sizeof(struct gk_rule) == 48, "gpukern.flatRule has 48 bytes");

/* Leads from an address to a vector. */
struct gk_field {
	const struct gk_node *nodes; /* null: all is the vector of every address */
	const u32 *leaves;
	u32 wide, all;
};

/* Leads from a port to a vector. */
struct gk_port_field {
	const u32 *table; /* of 65536; null: all is the vector of every port */
	u32 all;          /* of packets without ports too */
	u32 pad;
};

/* A field that chooses among lists or further forks: gpukern.fork. */
struct __attribute__((aligned(16))) gk_fork {
	u32 row, wide; /* of the trie */
	u32 key;       /* GK_KEY_ */
	u32 other;     /* for packets that have no ports */
};

enum { GK_KEY_SRC, GK_KEY_DST, GK_KEY_SPORT, GK_KEY_DPORT, GK_KEY_PROTO };

/* A rule in a list: gpukern.item. */
struct __attribute__((aligned(16))) gk_item {
	u32 dst;            /* the first 32 bits */
	u32 sports, dports; /* the first port, and how many follow << 16 */
	u32 rest;           /* place, protocol << 16, last bits of dst that do not count and GK_ITEM_ << 24 */
};

enum {
	GK_ITEM_SHIFT = 63,
	GK_ITEM_ASKS  = 64,
	GK_ITEM_LAST  = 128,
	GK_ITEM_MAY   = 33, /* for 32 bits: compare the whole rule, whose source is short */
};

#define GK_FORK (1u << 31) /* among references; others are the place of a list */

struct gk_decision {
	const struct gk_node *nodes;
	const u16 *leaves;
	const u32 *refs; /* by the values of tries */
	const struct gk_fork *forks;
	const struct gk_item *items; /* null: there are bit vectors, or no rules */
	const struct gk_rule *rules; /* by place */
	u32 top[3], v6;
};

/* The rules of one family. */
struct gk_acl {
	struct gk_field src, dst;
	struct gk_port_field sport, dport;
	const u32 *proto; /* of 256 */
	const u64 *vec;
	const u16 *place; /* of each bit */
	const struct gk_rule *rules;
	u32 n, words, heads, coarse;
	struct gk_decision decision;
};

GK_FN u32 gk_vector(const struct gk_field *f, u64 hi, u64 lo)
{
	return f->nodes ? gk_find(f->nodes, f->leaves, 0, f->wide, hi, lo, 0) : f->all;
}

GK_FN int gk_covers(u64 hi, u64 lo, u64 phi, u64 plo, u32 bits)
{
	if (bits <= 64)
		return gk_above(hi ^ phi, gk_min(bits, 63)) == 0 && (bits < 64 || hi == phi);
	return hi == phi && (lo ^ plo) >> (128 - bits) == 0;
}

GK_FN int gk_in_ports(u32 range, u32 port) { return port - (range & 0xffff) <= range >> 16; }

GK_FN int gk_matches(const struct gk_rule *r, const struct gk_tuple *t)
{
	return (r->proto == 0 || r->proto == t->proto) &&
	       (!r->asks || (t->known == GK_KNOWS_PORTS && gk_in_ports(r->sports, t->ports >> 16) &&
			     gk_in_ports(r->dports, t->ports & 0xffff))) &&
	       gk_covers(t->src_hi, t->src_lo, r->src_hi, r->src_lo, r->src_bits) &&
	       gk_covers(t->dst_hi, t->dst_lo, r->dst_hi, r->dst_lo, r->dst_bits);
}

/* gk_better returns the lowest of best and the places of those rules in hit, the bits from base on, that
 * really match. */
GK_FN u32 gk_better(const struct gk_acl *a, const struct gk_tuple *t, u32 best, u32 base, u64 hit)
{
	for (; hit; hit &= hit - 1) {
		u32 at = base + gk_ctzll(hit), place = a->place[at];
		if (place < best && (!a->coarse || gk_matches(&a->rules[at], t)))
			best = place;
	}
	return best;
}

GK_FN u32 gk_acl_dense(const struct gk_acl *a, const struct gk_tuple *t, const u64 *const v[5])
{
	u32 best = GK_NO_PLACE;
	for (u32 i = 0; i < a->words; i++)
		best = gk_better(a, t, best, i * 64, v[0][i] & v[1][i] & v[2][i] & v[3][i] & v[4][i]);
	return best;
}

GK_FN u32 gk_acl_sparse(const struct gk_acl *a, const struct gk_tuple *t, const u64 *const v[5])
{
	u32 best = GK_NO_PLACE, at[5];
#pragma unroll
	for (u32 k = 0; k < 5; k++)
		at[k] = a->heads; /* words passed in each vector */
	for (u32 i = 0; i < a->heads; i++) {
		u64 h[5], any = ~(u64)0;
#pragma unroll
		for (u32 k = 0; k < 5; k++)
			any &= h[k] = v[k][i];
		for (; any; any &= any - 1) {
			u64 below = (any & -any) - 1, hit = ~(u64)0;
#pragma unroll
			for (u32 k = 0; k < 5; k++)
				hit &= v[k][at[k] + gk_popcll(h[k] & below)];
			best = gk_better(a, t, best, i * 4096 + gk_ctzll(any) * 64, hit);
		}
#pragma unroll
		for (u32 k = 0; k < 5; k++)
			at[k] += gk_popcll(h[k]);
	}
	return best;
}

GK_FN u32 gk_acl_vectors(const struct gk_acl *a, const struct gk_tuple *t)
{
	if (a->n == 0)
		return GK_NO_PLACE;
	int ports = t->known == GK_KNOWS_PORTS;
	const u64 *const v[5] = {
		a->vec + gk_vector(&a->src, t->src_hi, t->src_lo),
		a->vec + gk_vector(&a->dst, t->dst_hi, t->dst_lo),
		a->vec + (ports && a->sport.table ? a->sport.table[t->ports >> 16] : a->sport.all),
		a->vec + (ports && a->dport.table ? a->dport.table[t->ports & 0xffff] : a->dport.all),
		a->vec + a->proto[t->proto],
	};
	return a->heads ? gk_acl_sparse(a, t, v) : gk_acl_dense(a, t, v);
}

/* gk_choose returns where a fork leads. */
GK_FN u32 gk_choose(const struct gk_decision *d, const struct gk_tuple *t, u32 ref)
{
	struct gk_quad f = gk_table_quad(&d->forks[ref & ~GK_FORK]);
	u64 hi = 0, lo = 0;
	if (f.w[2] == GK_KEY_SRC) {
		hi = t->src_hi;
		lo = t->src_lo;
	} else if (f.w[2] == GK_KEY_DST) {
		hi = t->dst_hi;
		lo = t->dst_lo;
	} else if (f.w[2] == GK_KEY_PROTO) {
		hi = (u64)t->proto << 56;
	} else {
		if (t->known != GK_KNOWS_PORTS)
			return f.w[3];
		hi = (u64)(f.w[2] == GK_KEY_SPORT ? t->ports >> 16 : t->ports & 0xffff) << 48;
	}
	return d->refs[gk_find(d->nodes, d->leaves, f.w[0], f.w[1], hi, lo, 1)];
}

/* gk_scan returns the place of the first rule of a list that matches, or best if that is lower. */
GK_FN u32 gk_scan(const struct gk_decision *d, const struct gk_tuple *t, u32 at, u32 best)
{
	int ports = t->known == GK_KNOWS_PORTS;
	u32 dst = (u32)(t->dst_hi >> 32);
	for (;; at++) {
		struct gk_quad m = gk_table_quad(&d->items[at]);
		u32 place = m.w[3] & 0xffff, proto = m.w[3] >> 16 & 0xff, marks = m.w[3] >> 24;
		u32 shift = marks & GK_ITEM_SHIFT;
		int exact = shift != GK_ITEM_MAY && (shift || !d->v6);
		if (place >= best)
			return best;
		if ((u64)(m.w[0] ^ dst) >> shift == 0 && (proto == 0 || proto == t->proto) &&
		    (!(marks & GK_ITEM_ASKS) ||
		     (ports && gk_in_ports(m.w[1], t->ports >> 16) && gk_in_ports(m.w[2], t->ports & 0xffff))) &&
		    (exact || gk_matches(&d->rules[place], t)))
			return place;
		if (marks & GK_ITEM_LAST)
			return best;
	}
}

/* gk_acl returns the number of the first rule that matches, 0 for none. */
GK_FN u32 gk_acl(const struct gk_acl *a, const struct gk_tuple *t)
{
	const struct gk_decision *d = &a->decision;
	if (!d->items)
		return (gk_acl_vectors(a, t) + 1) & 0xffff;
	u32 best = GK_NO_PLACE;
	for (u32 i = 0; i < 3; i++) {
		u32 ref = d->top[i];
		while (ref & GK_FORK)
			ref = gk_choose(d, t, ref);
		if (ref)
			best = gk_scan(d, t, ref, best);
	}
	return (best + 1) & 0xffff;
}

#endif
