// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//
// judge decides whether the kernel forwards a packet, for all programs of flows.c.

#pragma once

#include "headers.h"
#include "maps.h"

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
