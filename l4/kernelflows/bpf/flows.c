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

#include "headers.h"
#include "judge.h"
#include "maps.h"

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
