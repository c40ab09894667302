// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//
// syncookie answers SYNs of a flood with the kernel's SYN cookies (RFC 4987 3.6).

#pragma once

#include "headers.h"
#include "maps.h"

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
