// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//
// headers are the layouts of packets that defence.c reads and writes.

#pragma once

#include "maps.h"

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
