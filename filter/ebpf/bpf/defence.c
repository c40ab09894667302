// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//
// defence drops or limits packets by their source address, before the kernel allocates anything for
// them. Its maps are written by Defence (defence.go), which has the same layouts.
//
//	drop4, drop6  prefix -> verdict: drop, or a rate for each source of the prefix; the longest counts
//	buckets       rule, source -> the time until which the source's packets are accounted for
//	counters      rule -> packets and bytes that were dropped
//
// A verdict that has expired is as if it were not there: the next shorter prefix counts. IPv4 and
// IPv6 behind up to two VLAN tags are looked at; anything else, and what cannot be parsed, passes.

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_PREFIXES (1 << 20)
#define MAX_SOURCES (1 << 18)
#define MAX_RULES 4096
#define MAX_TAGS 2
#define MAX_EXPIRED 4 // expired verdicts that cover each other, before the packet passes
#define SECOND 1000000000ULL

struct verdict {
	__u64 until; // CLOCK_MONOTONIC in ns; 0: until it is removed
	__u32 rule;  // index of counters
	__u32 rate;  // packets a second of each source; 0: none
	__u32 burst; // packets at once
	__u32 bits;  // length of the prefix, for the search for a shorter one
};

struct prefix4 {
	__u32 bits;
	__u8 addr[4];
};

struct prefix6 {
	__u32 bits;
	__u8 addr[16];
};

struct source {
	__u32 rule;
	__u8 addr[16];
};

struct count {
	__u64 packets;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__type(key, struct prefix4);
	__type(value, struct verdict);
	__uint(max_entries, MAX_PREFIXES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} drop4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__type(key, struct prefix6);
	__type(value, struct verdict);
	__uint(max_entries, MAX_PREFIXES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} drop6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, struct source);
	__type(value, __u64);
	__uint(max_entries, MAX_SOURCES);
} buckets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct count);
	__uint(max_entries, MAX_RULES);
} counters SEC(".maps");

struct eth {
	__u8 dst[6], src[6];
	__be16 type;
};

struct vlan {
	__be16 tci, type;
};

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
static __always_inline int exceeds(const struct verdict *v, const struct source *s, __u64 now)
{
	__u64 each = SECOND / v->rate, ahead = each * v->burst;
	__u64 *bucket = bpf_map_lookup_elem(&buckets, s);

	if (!bucket) {
		__u64 first = now + each;
		bpf_map_update_elem(&buckets, s, &first, BPF_ANY);
		return 0;
	}
	for (int i = 0; i < 4; i++) { // other CPUs may have packets of the same source
		__u64 seen = *(volatile __u64 *)bucket;
		__u64 from = seen > now ? seen : now;

		if (from + each > now + ahead)
			return 1;
		if (__sync_val_compare_and_swap(bucket, seen, from + each) == seen)
			return 0;
	}
	return 1;
}

// apply returns XDP_DROP, XDP_PASS, or -1 where the verdict has expired.
static __always_inline int apply(const struct verdict *v, struct source *s, __u64 bytes)
{
	__u64 now = 0;

	if (v->until || v->rate)
		now = bpf_ktime_get_ns();
	if (v->until && v->until <= now)
		return -1;
	s->rule = v->rule;
	if (v->rate && !exceeds(v, s, now))
		return XDP_PASS;
	count(v->rule, bytes);
	return XDP_DROP;
}

static __always_inline int judge4(void *p, void *end, __u64 bytes)
{
	struct prefix4 key = {.bits = 32};
	struct source s = {.addr = {[10] = 0xff, [11] = 0xff}};

	if (p + 20 > end)
		return XDP_PASS;
	__builtin_memcpy(key.addr, p + 12, 4);
	__builtin_memcpy(s.addr + 12, p + 12, 4);
	for (int i = 0; i < MAX_EXPIRED; i++) {
		struct verdict *v = bpf_map_lookup_elem(&drop4, &key);
		if (!v)
			return XDP_PASS;
		int action = apply(v, &s, bytes);
		if (action >= 0 || v->bits == 0)
			return action < 0 ? XDP_PASS : action;
		key.bits = v->bits - 1;
	}
	return XDP_PASS;
}

static __always_inline int judge6(void *p, void *end, __u64 bytes)
{
	struct prefix6 key = {.bits = 128};
	struct source s = {};

	if (p + 40 > end)
		return XDP_PASS;
	__builtin_memcpy(key.addr, p + 8, 16);
	__builtin_memcpy(s.addr, p + 8, 16);
	for (int i = 0; i < MAX_EXPIRED; i++) {
		struct verdict *v = bpf_map_lookup_elem(&drop6, &key);
		if (!v)
			return XDP_PASS;
		int action = apply(v, &s, bytes);
		if (action >= 0 || v->bits == 0)
			return action < 0 ? XDP_PASS : action;
		key.bits = v->bits - 1;
	}
	return XDP_PASS;
}

struct {
	__uint(priority, 5); // before programs that count or steer
	__uint(XDP_PASS, 1);
} _defence SEC(".xdp_run_config");

SEC("xdp.frags")
int defence(struct xdp_md *ctx)
{
	void *p = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 bytes = end - p; // of the first buffer
	struct eth *eth = p;

	if (p + sizeof(*eth) > end)
		return XDP_PASS;
	__be16 type = eth->type;
	p += sizeof(*eth);
	for (int i = 0; i < MAX_TAGS; i++) {
		struct vlan *tag = p;
		if (type != bpf_htons(0x8100) && type != bpf_htons(0x88a8))
			break;
		if ((void *)(tag + 1) > end)
			return XDP_PASS;
		type = tag->type;
		p += sizeof(*tag);
	}
	if (type == bpf_htons(0x0800))
		return judge4(p, end, bytes);
	if (type == bpf_htons(0x86dd))
		return judge6(p, end, bytes);
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
