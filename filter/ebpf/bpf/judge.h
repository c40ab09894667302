// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//
// judge finds the verdict on the source of a packet, and accounts for what it drops.

#pragma once

#include "headers.h"
#include "maps.h"

static __always_inline void count(__u32 rule, __u64 bytes)
{
	struct count *c = bpf_map_lookup_elem(&counters, &rule);
	if (c) {
		c->packets++;
		c->bytes += bytes;
	}
}

// exceeds is the virtual scheduling form of a token bucket (GCRA): the bucket is the time at which the
// source's packets so far would end at its rate. It may lie at most the burst ahead of now.
static __always_inline int exceeds(const struct verdict *v, const struct source *s)
{
	__u64 now = bpf_ktime_get_ns();
	__u64 *bucket = bpf_map_lookup_elem(&buckets, s);

	if (!bucket) {
		__u64 first = now + v->each;
		bpf_map_update_elem(&buckets, s, &first, BPF_ANY);
		return 0;
	}
	for (int i = 0; i < 4; i++) { // other CPUs may have packets of the same source
		__u64 seen = *(volatile __u64 *)bucket;
		__u64 from = seen > now ? seen : now;

		if (from + v->each > now + v->ahead)
			return 1;
		if (__sync_val_compare_and_swap(bucket, seen, from + v->each) == seen)
			return 0;
	}
	return 1;
}

// expired compares with the coarse clock, which is read from memory and some ms behind at most.
static __always_inline int expired(const struct verdict *v) { return v->until && v->until <= bpf_ktime_get_coarse_ns(); }

// apply returns the action of a verdict that has not expired. addr is the source of an IPv6 packet, or that of IPv4 in a[3].
static __always_inline int apply(const struct verdict *v, const struct addr6 *addr, __u64 bytes)
{
	if (v->action != DROP) {
		struct source s = {.rule = v->rule, .addr = *addr};
		if (v->action == ACCEPT || !exceeds(v, &s))
			return XDP_PASS;
	}
	count(v->rule, bytes);
	return XDP_DROP;
}

static __always_inline int in_use(__u32 table)
{
	__u32 *u = bpf_map_lookup_elem(&used, &table);
	return u && *u;
}

// longest returns the verdict of the longest prefix of an address in trie that has not expired. key is that of the whole address.
static __always_inline struct verdict *longest(void *trie, void *key)
{
	for (int i = 0; i < MAX_EXPIRED; i++) {
		struct verdict *v = bpf_map_lookup_elem(trie, key);
		if (!v || !expired(v))
			return v;
		if (v->bits == 0)
			return 0;
		*(__u32 *)key = v->bits - 1;
	}
	return 0;
}

static __always_inline int judge4(void *p, void *end, __u64 bytes)
{
	struct ip4 *ip = p;
	struct verdict *v = 0;

	if ((void *)(ip + 1) > end)
		return XDP_PASS;
	__be32 src = ip->src;
	if (in_use(USED_FRONT4)) {
		__u32 place = src * 2654435769U >> (32 - FRONT_BITS); // Knuth's multiplicative hash
		struct front *f = bpf_map_lookup_elem(&front4, &place);
		if (f && f->addr == src && src) {
			if (f->v.action != DROP) {
				v = expired(&f->v) ? 0 : &f->v;
			} else {
				struct count *c = bpf_map_lookup_elem(&counters, &f->v.rule);
				if (c && (c->packets % UNTIMED || !expired(&f->v))) {
					c->packets++;
					c->bytes += bytes;
					return XDP_DROP;
				}
			}
		}
	}
	if (!v && in_use(USED_EXACT4)) {
		v = bpf_map_lookup_elem(&exact4, &src);
		if (v && expired(v))
			v = 0;
	}
	if (!v && in_use(USED_PREFIX4)) {
		struct prefix4 key = {.bits = 32, .addr = src};
		v = longest(&drop4, &key);
	}
	if (!v)
		return XDP_PASS;
	struct addr6 mapped = {.a = {0, 0, bpf_htonl(0xffff), src}};
	return apply(v, &mapped, bytes);
}

static __always_inline int judge6(void *p, void *end, __u64 bytes)
{
	struct ip6 *ip = p;
	struct verdict *v = 0;

	if ((void *)(ip + 1) > end)
		return XDP_PASS;
	struct addr6 src = ip->src;
	if (in_use(USED_EXACT6)) {
		v = bpf_map_lookup_elem(&exact6, &src);
		if (v && expired(v))
			v = 0;
	}
	if (!v && in_use(USED_PREFIX6)) {
		struct prefix6 key = {.bits = 128, .addr = src};
		v = longest(&drop6, &key);
	}
	if (!v)
		return XDP_PASS;
	if (v->bits <= 64) // a source is a /64: hosts choose the rest
		src.a[2] = src.a[3] = 0;
	return apply(v, &src, bytes);
}
