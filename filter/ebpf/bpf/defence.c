// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//
// defence drops or limits packets by their source address, before the kernel allocates anything for
// them. Its maps are written by Defence (defence.go), which has the same layouts.
//
//	front4          hash of an address -> address, verdict: found without a call, for most
//	exact4, exact6  address -> verdict
//	drop4, drop6    prefix -> verdict; the longest counts
//	used            which of these five have entries: the others are not looked up
//	buckets         rule, source -> the time until which the source's packets are accounted for
//	counters        rule -> packets and bytes that were dropped
//	syn             the rate of SYNs above which they are answered here, and how many were
//
// A verdict drops, passes, or has a rate for each source of its prefix. A SYN above the rate of syn, to
// a listener of the kernel, is answered with a SYN cookie (RFC 4987 3.6) out of the interface at once.
// The kernel accepts the cookie in the ACK that follows, and nothing is kept meanwhile. Connections
// that begin so have no window scaling, no SACK and no timestamps.
//
// A verdict that has expired is as if it were not there: the next shorter prefix counts. IPv4 and
// IPv6 behind up to two VLAN tags are looked at; anything else, and what cannot be parsed, passes.
//
// With CHAINED (chained.c) a packet that passes goes on to the program in the map next.

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_PREFIXES (1 << 20)
#define MAX_SOURCES (1 << 18)
#define FRONT_BITS 16
#define UNTIMED 16 // packets that a rule drops by front4 on a CPU between two looks at the clock
#define MAX_RULES 4096
#define MAX_TAGS 2
#define MAX_EXPIRED 4 // expired verdicts that cover each other, before the packet passes
#define SECOND 1000000000ULL
#define MAX_AT 22 // behind two tags
#define MIN_FRAME 60
#define WINDOW 64240
#define CURRENT_NETNS -1L

enum { DROP, LIMIT, ACCEPT }; // actions of a verdict

struct verdict {
	__u64 until; // CLOCK_MONOTONIC in ns; 0: until it is removed
	__u64 each;  // of LIMIT: ns of one packet at the rate
	__u64 ahead; // of LIMIT: how far the bucket may lie ahead of now, in ns
	__u32 rule;  // index of counters
	__u16 action;
	__u16 bits; // length of the prefix, for the search for a shorter one
};

struct addr6 {
	__be32 a[4];
};

struct prefix4 {
	__u32 bits;
	__be32 addr;
};

struct prefix6 {
	__u32 bits;
	struct addr6 addr;
};

struct source {
	__u32 rule;
	struct addr6 addr; // IPv4-mapped (RFC 4291 2.5.5.2), or an IPv6 /64, or, for longer prefixes, an address
};

struct count {
	__u64 packets;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __be32);
	__type(value, struct verdict);
	__uint(max_entries, MAX_PREFIXES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} exact4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct addr6);
	__type(value, struct verdict);
	__uint(max_entries, MAX_PREFIXES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} exact6 SEC(".maps");

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

// front is an address with the verdict on it. 0.0.0.0 is a free place. Only the process that made the maps writes places: the
// verdict first, then the address. It also removes verdicts that have ended: reading the clock costs more than all else, so
// the program does it for one packet of UNTIMED.
struct front {
	__be32 addr;
	__u32 zero;
	struct verdict v;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct front);
	__uint(max_entries, 1 << FRONT_BITS);
} front4 SEC(".maps");

enum { USED_EXACT4, USED_PREFIX4, USED_EXACT6, USED_PREFIX6, USED_FRONT4, TABLES }; // indices of used

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, TABLES);
} used SEC(".maps");

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
	struct addr6 src, dst;
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

// write_answer makes the SYN at a the SYN-ACK with a cookie. sum is that of the pseudo-header.
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

static __always_inline void swap_macs(struct eth *e)
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

// write_ip4 makes the header of a SYN that of its answer, and returns the sum of the pseudo-header.
static __always_inline __u64 write_ip4(struct ip4 *ip, const struct ip4 *syn)
{
	ip->src = syn->dst;
	ip->dst = syn->src;
	ip->len = bpf_htons(sizeof(*ip) + sizeof(struct answer));
	ip->id = 0;
	ip->tos = 0;
	ip->ttl = 64;
	ip->check = 0;
	__u16 *word = (void *)ip;
	__u64 sum = 0;
	for (int i = 0; i < sizeof(*ip) / 2; i++)
		sum += word[i];
	ip->check = fold(sum);
	return (__u64)ip->src + ip->dst + bpf_htons(TCP) + bpf_htons(sizeof(struct answer));
}

// write_ip6 is write_ip4 for IPv6, which has no checksum.
static __always_inline __u64 write_ip6(struct ip6 *ip, const struct ip6 *syn)
{
	__u64 sum = bpf_htons(TCP) + bpf_htons(sizeof(struct answer));

	ip->src = syn->dst;
	ip->dst = syn->src;
	for (int i = 0; i < 4; i++)
		sum += (__u64)syn->src.a[i] + syn->dst.a[i];
	ip->len = bpf_htons(sizeof(struct answer));
	ip->hops = 64;
	return sum;
}

// plain_tcp says whether the header is followed by a whole TCP segment: no options, extension headers or fragments.
static __always_inline int plain_tcp(void *ip, int six)
{
	struct ip4 *four = ip;

	if (six)
		return ((struct ip6 *)ip)->next == TCP;
	return four->vihl == 0x45 && four->proto == TCP && !(four->frag & bpf_htons(0x3fff));
}

// socket_of writes the addresses and ports of a SYN, and returns the size that the kernel knows the family by.
static __always_inline __u32 socket_of(struct bpf_sock_tuple *t, void *header, struct tcp *tcp, int six)
{
	struct ip6 *ip = header;

	if (!six) {
		t->ipv4.saddr = ((struct ip4 *)header)->src;
		t->ipv4.daddr = ((struct ip4 *)header)->dst;
		t->ipv4.sport = tcp->sport;
		t->ipv4.dport = tcp->dport;
		return sizeof(t->ipv4);
	}
	__builtin_memcpy(t->ipv6.saddr, &ip->src, 16);
	__builtin_memcpy(t->ipv6.daddr, &ip->dst, 16);
	t->ipv6.sport = tcp->sport;
	t->ipv6.dport = tcp->dport;
	return sizeof(t->ipv6);
}

// answer answers a SYN of a flood with the kernel's cookie. at is the offset of the IP header, and six a constant where it is inlined.
static __always_inline int answer(struct xdp_md *ctx, struct syn_state *state, __u32 at, int six)
{
	const __u32 size = six ? sizeof(struct ip6) : sizeof(struct ip4);
	union {
		struct ip4 four;
		struct ip6 six;
	} copy;
	struct bpf_sock_tuple tuple = {};

	asm volatile("" : "+r"(at)); // or the compiler folds the next line into an earlier one
	if (at > MAX_AT)
		return XDP_PASS;
	void *ip = (void *)(long)ctx->data + at, *end = (void *)(long)ctx->data_end;
	struct tcp *t = ip + size;

	if ((void *)(t + 1) > end || !plain_tcp(ip, six) || !is_syn(t) || !flooded(state))
		return XDP_PASS;
	__u32 known_by = socket_of(&tuple, ip, t, six);
	__builtin_memcpy(&copy, ip, size);
	__s64 c = cookie(ctx, &tuple, known_by, &copy, size, at + size, (t->off >> 4) * 4);
	if (c < 0 || resize(ctx, at + size + sizeof(struct answer)))
		return XDP_PASS;
	struct eth *e = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	ip = (void *)e + at;
	struct answer *a = ip + size;
	if ((void *)(e + 1) > end || (void *)(a + 1) > end)
		return XDP_DROP; // cannot be: it was resized to this
	swap_macs(e);
	__u64 sum = six ? write_ip6(ip, &copy.six) : write_ip4(ip, &copy.four);
	write_answer(a, c, six ? 1440 : 1460, sum);
	state->answered++;
	return XDP_TX;
}

// synflood answers SYNs beyond the rate, where there is one.
static __always_inline int synflood(struct xdp_md *ctx, __be16 type, __u32 at)
{
	__u32 zero = 0;
	struct syn_state *state = bpf_map_lookup_elem(&syn, &zero);

	if (!state || !state->rate)
		return XDP_PASS;
	if (type == bpf_htons(0x0800))
		return answer(ctx, state, at, 0);
	if (type == bpf_htons(0x86dd))
		return answer(ctx, state, at, 1);
	return XDP_PASS;
}

static __always_inline int defend(struct xdp_md *ctx)
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
	int action = XDP_PASS;
	if (type == bpf_htons(0x0800))
		action = judge4(p, end, bytes);
	else if (type == bpf_htons(0x86dd))
		action = judge6(p, end, bytes);
	return action == XDP_PASS ? synflood(ctx, type, at) : action;
}

#ifdef CHAINED
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} next SEC(".maps");

SEC("xdp.frags")
int chained(struct xdp_md *ctx)
{
	int action = defend(ctx);
	if (action == XDP_PASS)
		bpf_tail_call(ctx, &next, 0); // returns only where the program is not there yet
	return action;
}
#else
struct {
	__uint(priority, 5); // before programs that count or steer
	__uint(XDP_PASS, 1);
} _defence SEC(".xdp_run_config");

SEC("xdp.frags")
int defence(struct xdp_md *ctx) { return defend(ctx); }
#endif

char _license[] SEC("license") = "Dual BSD/GPL";
