// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//
// steer decides where every frame that an interface receives goes: to the AF_XDP socket of the
// frame's queue or to the kernel. In rules mode only frames that match a rule leave the
// kernel, so that everything else on the interface (ssh, routing, neighbours) works on; in all
// mode every frame is steered.
//
// The rules lie in four maps. An address that is in no rule costs one look-up for each side:
//
//	addresses  address -> flags             is there anything to look for?
//	ports      address, side, protocol, port -> 1
//	ranges     address, side, protocol -> up to MAX_RANGES port ranges; 0-65535 means any port
//	prefixes   prefix -> protocol           ICMP, or ICMPv6, to its addresses is steered
//
// ICMP types take the place of ports. Fragments after the first have sides of their own, and port 0.
// IPv4 addresses are keyed as IPv4-mapped IPv6 addresses (RFC 4291 2.5.5.2). What cannot be parsed
// is the kernel's. Steering.Add and reference_test.go hold the same rules in Go.

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_TAGS 2     // 802.1Q and 802.1ad tags that are skipped
#define MAX_EXT 6      // IPv6 extension headers that are skipped
#define MAX_RANGES 8   // port ranges for one address, side and protocol
#define MAX_RULES 65536
#define MAX_QUEUES 1024

enum flag {
	DST_ALL = 1,   // everything sent to the address
	DST_SOME = 2,  // some protocols or ports: look further
	SRC_ALL = 4,   // everything sent by the address
	SRC_SOME = 8,
	NEIGHBOR = 16, // ARP and neighbour discovery for the address
	KEEP = 32,     // the kernel's own: neither prefixes nor sources matter
};

enum side { DST, SRC, DST_REST, SRC_REST };

enum counter { STEERED, PASSED, UNBOUND, COUNTERS };

struct addr {
	__u32 a[4];
};

struct port_key {
	struct addr addr;
	__be16 port;
	__u8 proto;
	__u8 side;
};

struct range_key {
	struct addr addr;
	__u8 side;
	__u8 proto;
	__u16 zero;
};

struct port_range {
	__u16 lo, hi;
};

struct range_set {
	struct port_range r[MAX_RANGES]; // the rest is lo > hi
};

// flow is what the rules look at.
struct flow {
	struct addr src, dst;
	struct addr target; // of a neighbour message
	__be16 sport, dport;
	__u8 proto;    // valid with has_proto
	__u8 has_proto; // the transport protocol is known
	__u8 has_ports; // the packet holds the ports
	__u8 neighbor; // target is set
	__u8 rest;     // a fragment after the first
	__u8 discovery; // a type of RFC 4861: no rule for ICMPv6 is meant
};

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, MAX_QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_RULES);
	__type(key, struct addr);
	__type(value, __u32);
} addresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_RULES);
	__type(key, struct port_key);
	__type(value, __u8);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_RULES);
	__type(key, struct range_key);
	__type(value, struct range_set);
} ranges SEC(".maps");

struct prefix {
	__u32 bits;
	struct addr addr;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_RULES);
	__type(key, struct prefix);
	__type(value, __u8);
} prefixes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

// all is set before the program is loaded; the verifier then removes the other mode.
const volatile __u32 all = 0;

struct eth {
	__u8 dst[6], src[6];
	__be16 type;
};

struct vlan {
	__be16 tci, type;
};

struct arp { // RFC 826, for Ethernet and IPv4
	__be16 htype, ptype;
	__u8 hlen, plen;
	__be16 op;
	__u8 sha[6], spa[4], tha[6], tpa[4];
};

struct ip4 { // RFC 791 3.1
	__u8 vihl, tos;
	__be16 len, id, frag;
	__u8 ttl, proto;
	__be16 sum;
	__u8 src[4], dst[4];
};

struct ip6 { // RFC 8200 3
	__u8 vtc, tc_flow[3];
	__be16 len;
	__u8 next, hops;
	__u8 src[16], dst[16];
};

struct ext { // RFC 8200 4: the start of an extension header
	__u8 next, len;
	__be16 frag; // of a fragment header only
};

struct icmp6 { // RFC 4861 4.3, 4.4
	__u8 type, code;
	__be16 sum;
	__u32 reserved;
	__u8 target[16];
};

#define ICMP 1
#define ICMPV6 58
#define ND_FIRST 133
#define ND_LAST 137
#define ND_SOLICITATION 135
#define ND_ADVERTISEMENT 136

static __always_inline void map4(struct addr *a, const __u8 *ip)
{
	a->a[0] = 0;
	a->a[1] = 0;
	a->a[2] = bpf_htonl(0xffff);
	__builtin_memcpy(&a->a[3], ip, 4);
}

static __always_inline void count(__u32 i)
{
	__u64 *n = bpf_map_lookup_elem(&counters, &i);
	if (n)
		(*n)++;
}

static __always_inline __u32 flags_of(const struct addr *a)
{
	__u32 *f = bpf_map_lookup_elem(&addresses, a);
	return f ? *f : 0;
}

// allowed looks for a rule of one side that names the flow's protocol and port.
static __always_inline int allowed(const struct flow *f, enum side side)
{
	struct port_key pk = {
		.addr = side == DST ? f->dst : f->src,
		.port = side == DST ? f->dport : f->sport,
		.proto = f->proto,
		.side = side,
	};
	if (!f->has_proto || f->discovery)
		return 0;
	if (f->rest) {
		pk.port = 0;
		pk.side = side + DST_REST;
		if (bpf_map_lookup_elem(&ports, &pk))
			return 1;
	}
	if (f->has_ports && bpf_map_lookup_elem(&ports, &pk))
		return 1;

	struct range_key rk = {.addr = pk.addr, .side = side, .proto = f->proto};
	struct range_set *set = bpf_map_lookup_elem(&ranges, &rk);
	if (!set)
		return 0;
	__u16 port = bpf_ntohs(pk.port);
	for (int i = 0; i < MAX_RANGES; i++) {
		struct port_range r = set->r[i];
		if (r.lo == 0 && r.hi == 0xffff)
			return 1;
		if (f->has_ports && r.lo <= port && port <= r.hi)
			return 1;
	}
	return 0;
}

// matches_rules applies the rules to a flow. The first that decides counts: neighbour messages, the
// destination, addresses that the kernel keeps, prefixes, the source.
static __noinline int matches_rules(const struct flow *f)
{
	if (f->neighbor && (flags_of(&f->target) & NEIGHBOR))
		return 1;
	__u32 to = flags_of(&f->dst);
	if (to & DST_ALL)
		return 1;
	if ((to & DST_SOME) && allowed(f, DST))
		return 1;
	if (to & KEEP)
		return 0;
	if (f->has_proto && !f->discovery && (f->proto == ICMP || f->proto == ICMPV6)) {
		struct prefix whole = {.bits = 128, .addr = f->dst};
		__u8 *proto = bpf_map_lookup_elem(&prefixes, &whole);
		if (proto && *proto == f->proto)
			return 1;
	}
	__u32 from = flags_of(&f->src);
	if (from & SRC_ALL)
		return 1;
	return (from & SRC_SOME) && allowed(f, SRC);
}

static __always_inline int has_ports(__u8 proto)
{
	// TCP, UDP, DCCP, SCTP, UDP-Lite
	return proto == 6 || proto == 17 || proto == 33 || proto == 132 || proto == 136;
}

// transport reads the ports at p.
static __always_inline void transport(struct flow *f, void *p, void *end)
{
	f->has_proto = 1;
	if (has_ports(f->proto)) {
		__be16 *port = p;
		if ((void *)(port + 2) > end)
			return;
		f->sport = port[0];
		f->dport = port[1];
		f->has_ports = 1;
	} else if (f->proto == ICMP || f->proto == ICMPV6) {
		__u8 *type = p;
		if ((void *)(type + 1) > end)
			return;
		f->sport = f->dport = bpf_htons(*type);
		f->has_ports = 1;
		f->discovery = f->proto == ICMPV6 && *type >= ND_FIRST && *type <= ND_LAST;
	}
}

// neighbor6 finds the address that a neighbour message is about.
static __always_inline void neighbor6(struct flow *f, void *p, void *end)
{
	struct icmp6 *m = p;
	if ((void *)(m + 1) > end)
		return;
	if (m->type == ND_SOLICITATION) {
		__builtin_memcpy(&f->target, m->target, 16);
		f->neighbor = 1;
	} else if (m->type == ND_ADVERTISEMENT) {
		f->target = f->dst; // the answer to a solicitation by the driver
		f->neighbor = 1;
	}
}

static __always_inline int steer_arp(void *p, void *end)
{
	struct arp *m = p;
	struct addr target;
	if ((void *)(m + 1) > end)
		return 0;
	if (m->htype != bpf_htons(1) || m->ptype != bpf_htons(0x0800) || m->hlen != 6 || m->plen != 4)
		return 0;
	map4(&target, m->tpa);
	return !!(flags_of(&target) & NEIGHBOR);
}

static __always_inline int steer_ip4(void *p, void *end)
{
	struct ip4 *ip = p;
	struct flow f = {};
	if ((void *)(ip + 1) > end || ip->vihl >> 4 != 4)
		return 0;
	__u32 len = (ip->vihl & 15) * 4;
	if (len < sizeof(*ip) || p + len > end)
		return 0;
	map4(&f.src, ip->src);
	map4(&f.dst, ip->dst);
	f.proto = ip->proto;
	f.has_proto = 1;
	f.rest = !!(ip->frag & bpf_htons(0x1fff));
	if (!f.rest)
		transport(&f, p + len, end);
	return matches_rules(&f);
}

// walk6 skips extension headers until it is at the transport header. A chain that is cut off or too
// long leaves the protocol unknown: only a rule for the whole address then matches.
static __always_inline void walk6(struct flow *f, void *p, void *end)
{
	for (int i = 0; i <= MAX_EXT; i++) {
		struct ext *x = p;
		switch (f->proto) {
		case 0:  // hop-by-hop options
		case 43: // routing
		case 60: // destination options
			if ((void *)(x + 1) > end)
				return;
			f->proto = x->next;
			p += (x->len + 1) * 8;
			continue;
		case 51: // authentication (RFC 4302 2.2: in words of 4, less 2)
			if ((void *)(x + 1) > end)
				return;
			f->proto = x->next;
			p += (x->len + 2) * 4;
			continue;
		case 44: // fragment
			if (p + 8 > end)
				return;
			f->proto = x->next;
			if (x->frag & bpf_htons(0xfff8)) { // other than the first: no ports
				f->has_proto = 1;
				f->rest = 1;
				return;
			}
			p += 8;
			continue;
		}
		transport(f, p, end);
		if (f->proto == ICMPV6)
			neighbor6(f, p, end);
		return;
	}
}

static __always_inline int steer_ip6(void *p, void *end)
{
	struct ip6 *ip = p;
	struct flow f = {};
	if ((void *)(ip + 1) > end || ip->vtc >> 4 != 6)
		return 0;
	__builtin_memcpy(&f.src, ip->src, 16);
	__builtin_memcpy(&f.dst, ip->dst, 16);
	f.proto = ip->next;
	walk6(&f, ip + 1, end);
	return matches_rules(&f);
}

static __always_inline int decide(void *p, void *end)
{
	struct eth *eth = p;
	if ((void *)(eth + 1) > end)
		return 0;
	__be16 type = eth->type;
	p = eth + 1;
	for (int i = 0; i < MAX_TAGS; i++) {
		struct vlan *tag = p;
		if (type != bpf_htons(0x8100) && type != bpf_htons(0x88a8))
			break;
		if ((void *)(tag + 1) > end)
			return 0;
		type = tag->type;
		p = tag + 1;
	}
	switch (type) {
	case bpf_htons(0x0800):
		return steer_ip4(p, end);
	case bpf_htons(0x86dd):
		return steer_ip6(p, end);
	case bpf_htons(0x0806):
		return steer_arp(p, end);
	}
	return 0;
}

static __always_inline int steer_frame(struct xdp_md *ctx)
{
	if (!all && !decide((void *)(long)ctx->data, (void *)(long)ctx->data_end)) {
		count(PASSED);
		return XDP_PASS;
	}
	// A queue without a bound socket leaves its frames to the kernel.
	int verdict = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
	count(verdict == XDP_REDIRECT ? STEERED : UNBOUND);
	return verdict;
}

SEC("xdp")
int steer(struct xdp_md *ctx)
{
	return steer_frame(ctx);
}

// steer_frags is the same for frames of several buffers; the headers are in the first.
SEC("xdp.frags")
int steer_frags(struct xdp_md *ctx)
{
	return steer_frame(ctx);
}

char _license[] SEC("license") = "Dual BSD/GPL";
