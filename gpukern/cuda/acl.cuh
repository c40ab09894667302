/* The rule of a packet: the bit vectors of gpukern/classifier.go. Each field of a packet leads to a vector
 * with a bit for every rule that this field lets match; the bits that all five have are the rules that
 * match, and the lowest place in the list wins.
 *
 * Vectors of few rules have all their words. Others begin with heads words of "any of these 64" and keep
 * only the words that are not zero. Coarse vectors say "may match": rules are compared before they win. */
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

/* The rules of one family. */
struct gk_acl {
	struct gk_field src, dst;
	struct gk_port_field sport, dport;
	const u32 *proto; /* of 256 */
	const u64 *vec;
	const u16 *place; /* of each bit */
	const struct gk_rule *rules;
	u32 n, words, heads, coarse;
};

GK_FN u32 gk_vector(const struct gk_field *f, u64 hi, u64 lo)
{
	return f->nodes ? gk_find(f->nodes, f->leaves, f->wide, hi, lo, 0) : f->all;
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
	for (u32 k = 0; k < 5; k++)
		at[k] = a->heads; /* words passed in each vector */
	for (u32 i = 0; i < a->heads; i++) {
		u64 h[5], any = ~(u64)0;
		for (u32 k = 0; k < 5; k++)
			any &= h[k] = v[k][i];
		for (; any; any &= any - 1) {
			u64 below = (any & -any) - 1, hit = ~(u64)0;
			for (u32 k = 0; k < 5; k++)
				hit &= v[k][at[k] + gk_popcll(h[k] & below)];
			best = gk_better(a, t, best, i * 4096 + gk_ctzll(any) * 64, hit);
		}
		for (u32 k = 0; k < 5; k++)
			at[k] += gk_popcll(h[k]);
	}
	return best;
}

/* gk_acl returns the number of the first rule that matches, 0 for none. */
GK_FN u32 gk_acl(const struct gk_acl *a, const struct gk_tuple *t)
{
	if (a->n == 0)
		return 0;
	int ports = t->known == GK_KNOWS_PORTS;
	const u64 *const v[5] = {
		a->vec + gk_vector(&a->src, t->src_hi, t->src_lo),
		a->vec + gk_vector(&a->dst, t->dst_hi, t->dst_lo),
		a->vec + (ports && a->sport.table ? a->sport.table[t->ports >> 16] : a->sport.all),
		a->vec + (ports && a->dport.table ? a->dport.table[t->ports & 0xffff] : a->dport.all),
		a->vec + a->proto[t->proto],
	};
	return ((a->heads ? gk_acl_sparse(a, t, v) : gk_acl_dense(a, t, v)) + 1) & 0xffff;
}

#endif
