// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//
// headers are the layouts of packets that flows.c reads and writes.

#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

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
