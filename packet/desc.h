/* The descriptor of a packet as C and CUDA see it: packet.Desc, byte for byte.
 * TestLayout in desc_test.go compares sizes and offsets with the Go form. */
#ifndef MILLRACE_DESC_H
#define MILLRACE_DESC_H

#include <stdint.h>

struct mr_desc {
	uint32_t off;      /* of the packet's first byte, from the start of the arena */
	uint16_t len;      /* bytes of the packet in this frame */
	uint8_t  port;     /* device of the loop, as rte_mbuf.port */
	uint8_t  l3;       /* offset of the network header */
	uint16_t l4;       /* offset of the transport header, 0 is none */
	uint16_t payload;  /* offset of the transport payload, 0 is none */
	uint32_t hash;     /* symmetric Toeplitz hash */
	uint32_t flow;     /* slot of the flow table << 1 | direction, 0 is none; with Handover the loop */
	uint16_t rule;     /* ACL rule, from 1; 0 is none */
	uint16_t next_hop; /* longest prefix match, 0 is none */
	uint32_t stamp;    /* arrival, low 32 bits of nanoseconds */
	uint16_t flags;    /* MR_FLAG_... */
	uint8_t  proto;    /* IP protocol of the transport header */
	uint8_t  verdict;  /* packet.Verdict */
};

enum {
	MR_FLAG_IPV4           = 1 << 0,
	MR_FLAG_IPV6           = 1 << 1,
	MR_FLAG_VLAN           = 1 << 2,
	MR_FLAG_IP_CHECKSUM_OK = 1 << 3,
	MR_FLAG_L4_CHECKSUM_OK = 1 << 4,
	MR_FLAG_L4_NO_CHECKSUM = 1 << 5,
	MR_FLAG_FRAGMENT       = 1 << 6,
	MR_FLAG_FRAGMENT_REST  = 1 << 7,
	MR_FLAG_OPTIONS        = 1 << 8,
	MR_FLAG_MALFORMED      = 1 << 9,
	MR_FLAG_TRUNCATED      = 1 << 10,
	MR_FLAG_MORE           = 1 << 11,
	MR_FLAG_TUNNEL         = 1 << 12,
	MR_FLAG_HANDED         = 1 << 13,
	MR_FLAG_HANDED_AGAIN   = 1 << 14,
	MR_FLAG_OFFLOAD        = 1 << 15,
};

#endif
