// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//
// flows forwards packets of connections that a loop of the gateway has entered. Three programs make the same decision
// (judge) at the places where a packet would otherwise leave for the loop or the kernel's stack:
//
//	forward         tc ingress: judges, rewrites, redirects. For devices whose driver takes packets before (AF_XDP)
//	filter          the filter of the packet sockets (AF_PACKET), which see packets before tc does: judges, and notes for
//	                forward_judged what it found; what the kernel does not forward goes on to the rules of the driver
//	forward_judged  tc ingress: rewrites and redirects what filter has found
//	steer           XDP, before the steering program: judges, changes nothing. What fits goes to tc
//
//	flows4, flows6  device, addresses, ports, protocol -> slot, direction, serial
//	slots           a connection: what the loop wrote (direction), what the kernel has seen (progress)
//	generations     of each loop
//
// The loop maps slots and generations: it reads and disables a connection without a system call. The struct layouts are
// those of layout.go.

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_FLOWS 65536 // replaced before the maps are made, as the numbers of slots and devices are
#define MAX_LOOPS 64
#define MAX_DEVICES 64

// reason says what became of a packet that may be a flow's; layout.go has the names.
enum reason {
	FORWARDED,
	NO_ENTRY,
	RENEWED,  // the flow is disabled, or of an older generation
	FLAGS,    // SYN, FIN, RST or no ACK
	WINDOW,   // does not fit the sequence numbers
	HEADER,   // options, fragments, tags, malformed or truncated
	HOPS,     // TTL or hop limit of at most 1
	TOO_LONG,
	LINK,     // link addresses
	LOST,     // not forwarded by tc although an earlier program left it to tc
	FAILED,   // dropped: the headers could not be written
	REASONS,
};

struct key4 {
	__u32 dev; // ifindex
	__be32 src, dst;
	__be16 sport, dport;
	__u32 proto;
};

struct key6 {
	__u32 dev;
	__u32 src[4], dst[4];
	__be16 sport, dport;
	__u32 proto;
};

struct entry {
	__u32 slot;   // times 2, plus the direction
	__u32 serial; // that the direction has while it is enabled
};

// direction is written by the loop, before its key is entered. Only serial changes while packets come.
struct direction {
	__u32 serial; // 0: disabled
	__u32 generation;
	__u32 loop;
	__u32 out; // ifindex
	__u32 max_len;
	__be16 sport, dport;
	__be16 l3, ports; // differences of the checksums: by the addresses, by the ports
	__be32 src, dst;  // IPv4
	__u8 next_hop[6], out_mac[6];
	__u8 to[6], from[6];

	__u32 src6[4], dst6[4];
	__u8 any_from, scale, loose;
	__u8 to_peer; // out is one end of a veth pair: the packet is received by the other
	__u32 zero[7];
};

// progress is written by the kernel; the loop writes it before the key is entered, and raises sequence numbers.
struct progress {
	__u64 packets, bytes;
	__u64 last; // CLOCK_MONOTONIC_COARSE, ns
	__u32 end, limit, window, acked;
	__u64 zero[3];
};

struct slot {
	struct direction d[2];
	struct progress p[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_FLOWS);
	__type(key, struct key4);
	__type(value, struct entry);
} flows4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_FLOWS);
	__type(key, struct key6);
	__type(value, struct entry);
} flows6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_FLOWS);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_LOOPS);
	__type(key, __u32);
	__type(value, __u32);
} generations SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REASONS);
	__type(key, __u32);
	__type(value, __u64);
} reasons SEC(".maps");

// finding is what filter has found of the packet that its CPU receives: tc sees it next, before any other.
struct finding {
	__u32 dev, len; // of the packet; dev 0: none
	__u32 slot;     // as in entry
	__u32 six;      // IPv6
	__u32 proto;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct finding);
} findings SEC(".maps");

// rules are the programs behind filter, by device: the driver's own rules.
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, MAX_DEVICES);
	__type(key, __u32);
	__type(value, __u32);
} rules SEC(".maps");

// steering are the programs behind steer, by device.
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, MAX_DEVICES);
	__type(key, __u32);
	__type(value, __u32);
} steering SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, MAX_DEVICES);
	__type(key, __u32);
	__type(value, __u32);
} steering_frags SEC(".maps");

// device is the index of the device in rules and steering; set before a program is loaded for it.
const volatile __u32 device = 0;

// behind_xdp says that steer has judged the packets that forward gets, and counted those that it did not leave to it.
const volatile __u32 behind_xdp = 0;


struct eth {
	__u8 dst[6], src[6];
	__be16 type;
};

struct ip4 { // RFC 791 3.1
	__u8 vihl, tos;
	__be16 len, id, frag;
	__u8 ttl, proto;
	__u16 sum;
	__be32 src, dst;
};

struct ip6 { // RFC 8200 3
	__u8 vtc, tc_flow[3];
	__be16 len;
	__u8 next, hops;
	__u32 src[4], dst[4];
};

struct udp {
	__be16 sport, dport, len;
	__u16 sum;
};

struct tcp { // RFC 9293 3.1
	__be16 sport, dport;
	__be32 seq, ack;
	__u8 off, flags;
	__be16 window;
	__u16 sum, urgent;
};

#define IP4_AT sizeof(struct eth)
#define UDP4_LEN (IP4_AT + sizeof(struct ip4) + sizeof(struct udp))
#define TCP4_LEN (IP4_AT + sizeof(struct ip4) + sizeof(struct tcp))
#define UDP6_LEN (IP4_AT + sizeof(struct ip6) + sizeof(struct udp))
#define TCP6_LEN (IP4_AT + sizeof(struct ip6) + sizeof(struct tcp))

#define TCP 6
#define UDP 17
#define FIN 1
#define SYN 2
#define RST 4
#define ACK 16

#define OLDEST_ACK 66000 // sequence.go

// headers are the first bytes of a packet, from the Ethernet header on: in the packet itself, which ends at end, or
// copied to the stack.
struct headers {
	void *p, *end;
	__u32 on_stack; // a constant, so that each program has one kind of test
	__u32 copied;   // bytes on the stack
	__u32 len;    // of the whole packet
	__u32 gso;    // payload of a segment of a large packet; 0: it is none
	__u32 dev;
};

#define HAS(h, n) ((h)->on_stack ? (h)->copied >= (n) : (h)->p + (n) <= (h)->end)

// match is a flow that forwards a packet.
struct match {
	__u32 slot; // as in entry
	__u32 six, proto;
	__u32 found; // there is an entry, whether it forwards the packet or not
};

static __always_inline void count(__u32 why)
{
	__u64 *n = bpf_map_lookup_elem(&reasons, &why);
	if (n)
		(*n)++;
}

#define READ(x) (*(volatile typeof(x) *)&(x))

static __always_inline int after(__u32 a, __u32 b)
{
	return (__s32)(a - b) > 0;
}

// raise makes *at the later of itself and to. Both directions of a connection may run on different CPUs. Where three
// others are faster, the number stays behind: a later packet then goes up, at worst.
static __always_inline void raise(__u32 *at, __u32 to)
{
	for (int i = 0; i < 4; i++) {
		__u32 old = READ(*at);
		if (!after(to, old) || __sync_val_compare_and_swap(at, old, to) == old)
			return;
	}
}

static __always_inline int same_mac(const __u8 *a, const __u8 *b)
{
	return *(__u16 *)a == *(__u16 *)b && *(__u16 *)(a + 2) == *(__u16 *)(b + 2) && *(__u16 *)(a + 4) == *(__u16 *)(b + 4);
}

// follow applies conditions I to IV of sequence.go to a segment of n bytes of data, and with update takes note of it.
static __always_inline enum reason follow(const struct tcp *tcp, __u32 n, const struct direction *d, struct progress *me,
					  struct progress *peer, int update)
{
	__u32 seq = bpf_ntohl(tcp->seq), ack = bpf_ntohl(tcp->ack), end = seq + n;
	__u32 window = (__u32)bpf_ntohs(tcp->window) << (d->scale & 15);
	__u32 my_window = READ(me->window), my_end = READ(me->end), limit = READ(me->limit);
	__u32 peer_end = READ(peer->end), peer_limit = READ(peer->limit);
	__u32 sent = peer_end, oldest = my_window > OLDEST_ACK ? my_window : OLDEST_ACK;
	if (d->loose && after(peer_limit + my_window, sent))
		sent = peer_limit + my_window;
	if (after(end, limit) || after(my_end - READ(peer->window), end) || after(ack, sent) || after(peer_end - oldest, ack))
		return WINDOW;
	if (!update)
		return FORWARDED;
	if (window > my_window)
		__sync_val_compare_and_swap(&me->window, my_window, window);
	raise(&me->end, end);
	raise(&me->acked, ack);
	raise(&peer->end, ack);
	raise(&peer->limit, ack + (window ? window : 1));
	return FORWARDED;
}

// judge decides whether the kernel forwards a packet. With update the packet is then counted as forwarded.
static __always_inline enum reason judge(const struct headers *h, struct match *m, int update)
{
	struct eth *eth = h->p;
	struct entry *e;
	struct udp *ports;
	__u32 at, size, hops;

	if (!HAS(h, UDP4_LEN))
		return HEADER;
	if (eth->type == bpf_htons(0x0800)) {
		struct ip4 *ip = h->p + IP4_AT;
		ports = h->p + IP4_AT + sizeof(*ip);
		m->proto = ip->proto;
		m->six = 0;
		if (ip->vihl != 0x45 || (ip->frag & bpf_htons(0xbfff)))
			return HEADER;
		__u16 *w = (__u16 *)ip;
		__u32 sum = w[0] + w[1] + w[2] + w[3] + w[4] + w[5] + w[6] + w[7] + w[8] + w[9];
		sum = (sum & 0xffff) + (sum >> 16);
		if (((sum & 0xffff) + (sum >> 16)) != 0xffff)
			return HEADER;
		struct key4 k = {h->dev, ip->src, ip->dst, ports->sport, ports->dport, m->proto};
		e = bpf_map_lookup_elem(&flows4, &k);
		if (!e)
			return NO_ENTRY;
		at = IP4_AT + sizeof(*ip);
		size = bpf_ntohs(ip->len);
		hops = ip->ttl;
	} else if (eth->type == bpf_htons(0x86dd)) {
		if (!HAS(h, UDP6_LEN))
			return HEADER;
		struct ip6 *ip = h->p + IP4_AT;
		ports = h->p + IP4_AT + sizeof(*ip);
		m->proto = ip->next;
		m->six = 1;
		if (ip->vtc >> 4 != 6)
			return HEADER;
		struct key6 k = {
			.dev = h->dev, .sport = ports->sport, .dport = ports->dport, .proto = m->proto,
		};
		__builtin_memcpy(k.src, ip->src, 32);
		e = bpf_map_lookup_elem(&flows6, &k);
		if (!e)
			return NO_ENTRY;
		at = IP4_AT + sizeof(*ip);
		size = sizeof(*ip) + bpf_ntohs(ip->len);
		hops = ip->hops;
	} else {
		return NO_ENTRY;
	}

	m->found = 1;
	__u32 slot = e->slot >> 1, side = e->slot & 1;
	struct slot *s = bpf_map_lookup_elem(&slots, &slot);
	if (!s)
		return NO_ENTRY;
	struct direction *d = &s->d[side];
	struct progress *me = &s->p[side], *peer = &s->p[side ^ 1];
	__u32 *generation = bpf_map_lookup_elem(&generations, &d->loop);
	if (!generation || READ(d->serial) != e->serial || d->generation != READ(*generation))
		return RENEWED;
	m->slot = e->slot;
	if (!same_mac(eth->dst, d->to) || (d->any_from ? eth->src[0] & 1 : !same_mac(eth->src, d->from)))
		return LINK; // no station has a group address
	if (hops <= 1)
		return HOPS;

	__u32 l3 = at - IP4_AT, head = at + sizeof(struct udp);
	if (size + IP4_AT > h->len)
		return HEADER;
	struct tcp *tcp = 0;
	if (m->proto == TCP) {
		if (m->six ? !HAS(h, TCP6_LEN) : !HAS(h, TCP4_LEN))
			return HEADER;
		tcp = (void *)ports;
		head = at + (tcp->off >> 4) * 4;
		if (tcp->off < 0x50)
			return HEADER;
	} else if (bpf_ntohs(ports->len) + l3 != size) {
		return HEADER;
	}
	if (size + IP4_AT < head)
		return HEADER;
	__u32 longest = size;
	if (h->gso && head - IP4_AT + h->gso < size)
		longest = head - IP4_AT + h->gso;
	if (longest > d->max_len)
		return TOO_LONG;
	if (tcp) {
		if ((tcp->flags & (SYN | FIN | RST | ACK)) != ACK)
			return FLAGS;
		enum reason why = follow(tcp, size + IP4_AT - head, d, me, peer, update);
		if (why != FORWARDED)
			return why;
	}
	if (!update)
		return FORWARDED;

	__u64 now = bpf_ktime_get_coarse_ns();
	if (READ(me->last) != now)
		me->last = now;
	// Packets first, for the loop reads them last: see Loop.Leave. These have the order of a full barrier, because their
	// results are used.
	__u64 n = __sync_fetch_and_add(&me->bytes, h->len) + __sync_fetch_and_add(&me->packets, 1);
	asm volatile("" : : "r"(n));
	if (READ(d->serial) == e->serial)
		return FORWARDED;
	__sync_fetch_and_sub(&me->packets, 1);
	__sync_fetch_and_sub(&me->bytes, h->len);
	return RENEWED;
}

// rewrite makes the headers those that the direction wants, and returns a result of tc.
static __always_inline int rewrite(struct __sk_buff *skb, const struct match *m)
{
	__u32 slot = m->slot >> 1;
	struct slot *s = bpf_map_lookup_elem(&slots, &slot);
	if (!s)
		return 2; // TC_ACT_SHOT; there is
	struct direction *d = &s->d[m->slot & 1];
	void *p = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u32 need = m->six ? UDP6_LEN : UDP4_LEN;
	if (p + need > end) {
		if (bpf_skb_pull_data(skb, need))
			goto failed;
		p = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
	}
	if (p + UDP4_LEN > end)
		goto failed;
	struct eth *eth = p;
	__builtin_memcpy(eth->dst, d->next_hop, 6);
	__builtin_memcpy(eth->src, d->out_mac, 6);
	__u32 at, sum_at, flags = BPF_F_PSEUDO_HDR;
	struct udp *ports;
	if (m->six) {
		struct ip6 *ip = p + IP4_AT;
		ports = (void *)(ip + 1);
		if ((void *)(ports + 1) > end)
			goto failed;
		ip->hops--;
		__builtin_memcpy(ip->src, d->src6, 16);
		__builtin_memcpy(ip->dst, d->dst6, 16);
		at = IP4_AT + sizeof(*ip);
	} else {
		struct ip4 *ip = p + IP4_AT;
		ports = (void *)(ip + 1);
		ip->ttl--;
		ip->src = d->src;
		ip->dst = d->dst;
		// RFC 1624: what the TTL adds is -0x0100, in ones' complement.
		__u32 sum = (__u16)~ip->sum + d->l3 + bpf_htons(0xfeff);
		sum = (sum & 0xffff) + (sum >> 16);
		sum = (sum & 0xffff) + (sum >> 16);
		ip->sum = ~sum;
		at = IP4_AT + sizeof(*ip);
	}
	ports->sport = d->sport;
	ports->dport = d->dport;
	sum_at = at + __builtin_offsetof(struct tcp, sum);
	if (m->proto == UDP) {
		sum_at = at + __builtin_offsetof(struct udp, sum);
		flags |= BPF_F_MARK_MANGLED_0;
	}
	// The addresses are in the pseudo header, which a checksum that the device is to fill in holds already; the ports
	// are not.
	__u32 out = d->out, l3 = d->l3, diff = d->ports, to_peer = d->to_peer;
	if (bpf_l4_csum_replace(skb, sum_at, 0, l3, flags))
		goto failed;
	if (bpf_l4_csum_replace(skb, sum_at, 0, diff, flags & ~BPF_F_PSEUDO_HDR))
		goto failed;
	if (m->six)
		bpf_csum_update(skb, l3); // the sum of a device over all bytes (CHECKSUM_COMPLETE)
	count(FORWARDED);
	return to_peer ? bpf_redirect_peer(out, 0) : bpf_redirect(out, 0);
failed:
	count(FAILED);
	return 2; // TC_ACT_SHOT
}

#define GO_ON -1 // TC_ACT_UNSPEC, TCX_NEXT: to the next program

SEC("tc")
int forward(struct __sk_buff *skb)
{
	struct headers h = {(void *)(long)skb->data, (void *)(long)skb->data_end, 0, 0, skb->len, skb->gso_size, skb->ifindex};
	struct match m = {};
	if (skb->vlan_present) {
		count(HEADER);
		return GO_ON;
	}
	if (h.p + TCP6_LEN > h.end) {
		bpf_skb_pull_data(skb, skb->len < TCP6_LEN ? skb->len : TCP6_LEN); // where that fails, HAS does
		h.p = (void *)(long)skb->data;
		h.end = (void *)(long)skb->data_end;
	}
	enum reason why = judge(&h, &m, 1);
	if (why == FORWARDED)
		return rewrite(skb, &m);
	if (!behind_xdp)
		count(why);
	else if (m.found)
		count(LOST);
	return GO_ON;
}

SEC("tc")
int forward_judged(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct finding *f = bpf_map_lookup_elem(&findings, &zero);
	if (!f || f->dev == 0)
		return GO_ON;
	struct match m = {f->slot, f->six, f->proto, 1};
	int this = f->dev == skb->ifindex && f->len == skb->len;
	f->dev = 0;
	if (this)
		return rewrite(skb, &m);
	count(LOST);
	return GO_ON;
}

SEC("socket")
int filter(struct __sk_buff *skb)
{
	__u8 buffer[TCP6_LEN + 6] __attribute__((aligned(8))) = {}, *p = buffer + 2; // so that IP headers are aligned
	__u32 zero = 0, n = skb->len;
	struct headers h = {p, 0, 1, 0, n, skb->gso_size, skb->ifindex};
	struct match m = {};
	struct finding *f = bpf_map_lookup_elem(&findings, &zero);
	enum reason why = HEADER;
	if (!f)
		return 0;
	f->dev = 0;
	if (skb->vlan_present || n < UDP4_LEN)
		goto up;
	if (n > TCP6_LEN)
		n = TCP6_LEN;
	h.copied = n;
	if (bpf_skb_load_bytes(skb, 0, p, n)) // as a packet socket has it, from the Ethernet header on
		goto up;
	why = judge(&h, &m, 1);
	if (why == FORWARDED) {
		f->dev = h.dev;
		f->len = h.len;
		f->slot = m.slot;
		f->six = m.six;
		f->proto = m.proto;
		return 0;
	}
up:
	count(why);
	bpf_tail_call(skb, &rules, device);
	return 0;
}

static __always_inline int fits(struct xdp_md *ctx, __u32 len)
{
	struct headers h = {(void *)(long)ctx->data, (void *)(long)ctx->data_end, 0, 0, len, 0, ctx->ingress_ifindex};
	struct match m = {};
	enum reason why = judge(&h, &m, 0);
	if (why != FORWARDED)
		count(why);
	return why == FORWARDED;
}

SEC("xdp")
int steer(struct xdp_md *ctx)
{
	if (!fits(ctx, ctx->data_end - ctx->data))
		bpf_tail_call(ctx, &steering, device);
	return XDP_PASS;
}

// steer_frags is the same for frames of several buffers; the headers are in the first.
SEC("xdp.frags")
int steer_frags(struct xdp_md *ctx)
{
	if (!fits(ctx, bpf_xdp_get_buff_len(ctx)))
		bpf_tail_call(ctx, &steering_frags, device);
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
