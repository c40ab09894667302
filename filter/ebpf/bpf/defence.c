// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//
// defence drops or limits packets by their source address, before the kernel allocates anything for
// them. Its maps are written by Defence (defence.go), which has the same layouts.
//
//	drop4, drop6  prefix -> verdict: drop, or a rate for each source of the prefix; the longest counts
//	buckets       rule, source -> the time until which the source's packets are accounted for
//	counters      rule -> packets and bytes that were dropped
//	syn           the rate of SYNs above which they are answered here, and how many were
//
// A SYN above that rate, to a listener of the kernel, is answered with a SYN cookie (RFC 4987 3.6) out
// of the interface at once. The kernel accepts the cookie in the ACK that follows, and nothing is kept
// meanwhile. Connections that begin so have no window scaling, no SACK and no timestamps.
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
#define MAX_AT 22 // behind two tags
#define MIN_FRAME 60
#define WINDOW 64240
#define CURRENT_NETNS -1L

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

struct syn_state {
	__u64 bucket;   // as in buckets, of this CPU
	__u64 answered; // SYNs
	__u32 rate;     // a second of each CPU that the kernel gets; 0: all
	__u32 burst;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct syn_state);
	__uint(max_entries, 1);
} syn SEC(".maps");

struct ip4 {
	__u8 vihl, tos;
	__be16 len, id, frag;
	__u8 ttl, proto;
	__sum16 check;
	__be32 src, dst;
};

struct ip6 {
	__be32 vtc;
	__be16 len;
	__u8 next, hops;
	__be32 src[4], dst[4];
};

struct tcp {
	__be16 sport, dport;
	__be32 seq, ack;
	__u8 off, flags; // data offset in the upper half
	__be16 window;
	__sum16 check;
	__be16 urgent;
};

// answer is the TCP header of a SYN-ACK with the option MSS (RFC 9293 3.7.1).
struct answer {
	struct tcp tcp;
	__u8 kind, length;
	__be16 mss;
};

enum { FIN = 1, SYN = 2, RST = 4, ACK = 16, TCP = 6 };

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

static __always_inline __u16 fold(__u64 sum)
{
	for (int i = 0; i < 4; i++)
		sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

// flooded accounts for a SYN and says whether there are more than the kernel shall get.
static __always_inline int flooded(struct syn_state *s)
{
	if (!s->rate)
		return 0;
	__u64 now = bpf_ktime_get_ns(), each = SECOND / s->rate;
	__u64 from = s->bucket > now ? s->bucket : now;
	if (from + each > now + each * s->burst)
		return 1;
	s->bucket = from + each;
	return 0;
}

// cookie returns the kernel's SYN cookie for the SYN whose TCP header is at offset at of the packet, or
// less than 0 where no socket listens.
static __always_inline __s64 cookie(struct xdp_md *ctx, struct bpf_sock_tuple *t, __u32 tuple, void *ip, __u32 ip_len, __u32 at,
				    __u32 len)
{
	__u8 header[60] = {};
	__s64 result = -1;

	asm volatile("" : "+r"(len)); // or the compiler bounds the data offset, of which the verifier cannot multiply the bounds
	if (len < 20 || len > 60 || bpf_xdp_load_bytes(ctx, at, header, len))
		return -1;
	struct bpf_sock *sk = bpf_skc_lookup_tcp(ctx, t, tuple, CURRENT_NETNS, 0);
	if (!sk)
		return -1;
	if (sk->state == BPF_TCP_LISTEN)
		result = bpf_tcp_gen_syncookie(sk, ip, ip_len, (void *)header, len);
	bpf_sk_release(sk);
	return result;
}

// write_answer makes the SYN at t the SYN-ACK with a cookie. sum is that of the pseudo-header.
static __always_inline void write_answer(struct answer *a, __u32 seq, __u16 mss, __u64 sum)
{
	__be16 port = a->tcp.sport;

	a->tcp.sport = a->tcp.dport;
	a->tcp.dport = port;
	a->tcp.ack = bpf_htonl(bpf_ntohl(a->tcp.seq) + 1);
	a->tcp.seq = bpf_htonl(seq);
	a->tcp.off = sizeof(*a) / 4 << 4;
	a->tcp.flags = SYN | ACK;
	a->tcp.window = bpf_htons(WINDOW);
	a->tcp.check = 0;
	a->tcp.urgent = 0;
	a->kind = 2;
	a->length = 4;
	a->mss = bpf_htons(mss);
	__u16 *word = (void *)a;
	for (int i = 0; i < sizeof(*a) / 2; i++)
		sum += word[i];
	a->tcp.check = fold(sum);
}

static __always_inline void turn(struct eth *e)
{
	__u8 mac[6];

	__builtin_memcpy(mac, e->dst, 6);
	__builtin_memcpy(e->dst, e->src, 6);
	__builtin_memcpy(e->src, mac, 6);
}

// resize cuts the packet to a SYN-ACK, or to the shortest frame.
static __always_inline int resize(struct xdp_md *ctx, __u32 want)
{
	int have = bpf_xdp_get_buff_len(ctx);
	return bpf_xdp_adjust_tail(ctx, (int)(want < MIN_FRAME ? MIN_FRAME : want) - have);
}

static __always_inline int is_syn(struct tcp *t) { return (t->flags & (SYN | ACK | RST | FIN)) == SYN; }

static __always_inline int answer4(struct xdp_md *ctx, struct syn_state *state, __u32 at)
{
	asm volatile("" : "+r"(at)); // or the compiler folds the next line into an earlier one
	if (at > MAX_AT)
		return XDP_PASS;
	void *p = (void *)(long)ctx->data + at, *end = (void *)(long)ctx->data_end;
	struct ip4 *ip = p;
	struct tcp *t = p + sizeof(*ip);

	if ((void *)(t + 1) > end || ip->vihl != 0x45 || ip->proto != TCP || ip->frag & bpf_htons(0x3fff) || !is_syn(t))
		return XDP_PASS;
	if (!flooded(state))
		return XDP_PASS;
	struct bpf_sock_tuple tuple = {};
	tuple.ipv4.saddr = ip->src;
	tuple.ipv4.daddr = ip->dst;
	tuple.ipv4.sport = t->sport;
	tuple.ipv4.dport = t->dport;
	struct ip4 copy = *ip;
	__s64 c = cookie(ctx, &tuple, sizeof(tuple.ipv4), &copy, sizeof(copy), at + sizeof(*ip), (t->off >> 4) * 4);
	if (c < 0 || resize(ctx, at + sizeof(*ip) + sizeof(struct answer)))
		return XDP_PASS;
	p = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	struct eth *e = p;
	ip = p + at;
	struct answer *a = (void *)(ip + 1);
	if ((void *)(e + 1) > end || (void *)(a + 1) > end)
		return XDP_DROP; // cannot be: it was resized to this
	turn(e);
	ip->src = copy.dst;
	ip->dst = copy.src;
	ip->len = bpf_htons(sizeof(*ip) + sizeof(*a));
	ip->id = 0;
	ip->tos = 0;
	ip->ttl = 64;
	ip->check = 0;
	__u16 *word = (void *)ip;
	__u64 sum = 0;
	for (int i = 0; i < sizeof(*ip) / 2; i++)
		sum += word[i];
	ip->check = fold(sum);
	write_answer(a, c, 1460, (__u64)ip->src + ip->dst + bpf_htons(TCP) + bpf_htons(sizeof(*a)));
	state->answered++;
	return XDP_TX;
}

static __always_inline int answer6(struct xdp_md *ctx, struct syn_state *state, __u32 at)
{
	asm volatile("" : "+r"(at)); // or the compiler folds the next line into an earlier one
	if (at > MAX_AT)
		return XDP_PASS;
	void *p = (void *)(long)ctx->data + at, *end = (void *)(long)ctx->data_end;
	struct ip6 *ip = p;
	struct tcp *t = p + sizeof(*ip);

	if ((void *)(t + 1) > end || ip->next != TCP || !is_syn(t))
		return XDP_PASS;
	if (!flooded(state))
		return XDP_PASS;
	struct bpf_sock_tuple tuple = {};
	__builtin_memcpy(tuple.ipv6.saddr, ip->src, 16);
	__builtin_memcpy(tuple.ipv6.daddr, ip->dst, 16);
	tuple.ipv6.sport = t->sport;
	tuple.ipv6.dport = t->dport;
	struct ip6 copy = *ip;
	__s64 c = cookie(ctx, &tuple, sizeof(tuple.ipv6), &copy, sizeof(copy), at + sizeof(*ip), (t->off >> 4) * 4);
	if (c < 0 || resize(ctx, at + sizeof(*ip) + sizeof(struct answer)))
		return XDP_PASS;
	p = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	struct eth *e = p;
	ip = p + at;
	struct answer *a = (void *)(ip + 1);
	if ((void *)(e + 1) > end || (void *)(a + 1) > end)
		return XDP_DROP; // cannot be: it was resized to this
	turn(e);
	__u64 sum = bpf_htons(TCP) + bpf_htons(sizeof(*a));
	for (int i = 0; i < 4; i++) {
		ip->src[i] = copy.dst[i];
		ip->dst[i] = copy.src[i];
		sum += (__u64)copy.src[i] + copy.dst[i];
	}
	ip->len = bpf_htons(sizeof(*a));
	ip->hops = 64;
	write_answer(a, c, 1440, sum);
	state->answered++;
	return XDP_TX;
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
	__u32 at = sizeof(*eth); // of the IP header
	p += sizeof(*eth);
	for (int i = 0; i < MAX_TAGS; i++) {
		struct vlan *tag = p;
		if (type != bpf_htons(0x8100) && type != bpf_htons(0x88a8))
			break;
		if ((void *)(tag + 1) > end)
			return XDP_PASS;
		type = tag->type;
		p += sizeof(*tag);
		at += sizeof(*tag);
	}
	__u32 zero = 0;
	struct syn_state *state = bpf_map_lookup_elem(&syn, &zero);
	int action = XDP_PASS;
	if (type == bpf_htons(0x0800))
		action = judge4(p, end, bytes);
	else if (type == bpf_htons(0x86dd))
		action = judge6(p, end, bytes);
	if (action != XDP_PASS || !state || !state->rate)
		return action;
	if (type == bpf_htons(0x0800))
		return answer4(ctx, state, at);
	if (type == bpf_htons(0x86dd))
		return answer6(ctx, state, at);
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
