/* The parse stage: the sentences at the top of gpukern/parse.go, as a thread keeps them for its packet.
 *
 * The packet's first bytes lie in a row of shared memory (headers.cuh). gk_usual reads what most packets
 * are, word by word, and nothing but the row; gk_parse_any reads any, byte by byte, and turns to the
 * frame where headers go on beyond the row (walk.cuh). */
#ifndef MILLRACE_GK_PARSE_CUH
#define MILLRACE_GK_PARSE_CUH

#include "pass.h"

enum {
	GK_LINE = 128,             /* bytes of a packet that are fetched at once */
	GK_ROW  = GK_LINE / 4 + 1, /* words of a row: one more, so that the same word of 32 rows is 32 banks */
};

enum {
	GK_ETHER_IPV4 = 0x0800, GK_ETHER_IPV6 = 0x86dd, GK_ETHER_VLAN = 0x8100, GK_ETHER_QINQ = 0x88a8,
	GK_ETHER_MPLS = 0x8847, GK_ETHER_MPLS_UPSTREAM = 0x8848, GK_ETHER_PPPOE = 0x8864,
	GK_PPP_IPV4 = 0x0021, GK_PPP_IPV6 = 0x0057,
	GK_MAX_LABELS = 8,
	GK_PROTO_HOP = 0, GK_PROTO_ICMP = 1, GK_PROTO_TCP = 6, GK_PROTO_UDP = 17,
	GK_PROTO_ROUTING = 43, GK_PROTO_FRAGMENT = 44, GK_PROTO_AH = 51,
	GK_PROTO_ICMPV6 = 58, GK_PROTO_NONE = 59, GK_PROTO_DEST = 60, GK_PROTO_SCTP = 132, GK_PROTO_MOBILITY = 135,
	GK_MAX_EXTENSIONS = 8,
};

/* A packet before it is parsed. */
struct gk_view {
	const u8 *frame; /* its first byte in the arena */
	const u32 *row;  /* the row; the packet's first byte is byte skip of it */
	u32 skip;        /* 0 to 15 */
	u32 have;        /* bytes of the packet in the row */
	u32 len;         /* bytes in the frame */
};

/* What its headers say. */
struct gk_found {
	u32 flags; /* MR_FLAG_, without those of the driver */
	u32 proto, l3, l4, payload;
	u32 end;   /* of the IP packet, where it lies within the total, else 0 */
	u32 known; /* GK_KNOWS_ */
	u32 ports; /* source << 16 | destination, where they are known */
};

/* In the third word: the descriptor begins a packet; its flow knows what the tables say. */
enum { GK_FOUND_BEGINS = 1 << 22, GK_FOUND_IN_FLOW = 1 << 23 };

/* gk_pack and gk_unpack keep it in four words between the stages. */
GK_FN struct gk_quad gk_pack(const struct gk_found *f)
{
	struct gk_quad q = {{
		f->flags | f->proto << 16 | f->l3 << 24,
		f->l4 | f->payload << 16,
		f->end | f->known << 20,
		f->ports,
	}};
	return q;
}

GK_FN struct gk_found gk_unpack(struct gk_quad q)
{
	struct gk_found f = {};

	f.flags = q.w[0] & 0xffff;
	f.proto = q.w[0] >> 16 & 255;
	f.l3 = q.w[0] >> 24;
	f.l4 = q.w[1] & 0xffff;
	f.payload = q.w[1] >> 16;
	f.end = q.w[2] & 0xfffff;
	f.known = q.w[2] >> 20 & 3;
	f.ports = q.w[3];
	return f;
}

/* gk_word reads four bytes of a row at any place, in network order. */
GK_FN u32 gk_word(const u32 *row, u32 at)
{
	return gk_permute(row[at / 4], row[at / 4 + 1], 0x0123 + 0x1111 * (at & 3));
}

/* gk_far reads sixteen bytes of a frame as four words in network order. Few packets come here. */
GK_SLOW struct gk_quad gk_far(const u8 *a)
{
	struct gk_quad q;

	for (u32 i = 0; i < 4; i++, a += 4)
		q.w[i] = gk_load_u8(a) << 24 | gk_load_u8(a + 1) << 16 | gk_load_u8(a + 2) << 8 | gk_load_u8(a + 3);
	return q;
}

/* gk_four reads sixteen bytes at any place. */
GK_FN struct gk_quad gk_four(const struct gk_view *v, u32 at)
{
	u32 pos = v->skip + at;

	if (at + 16 > v->have)
		return gk_far(v->frame + at);
	struct gk_quad q = {{gk_word(v->row, pos), gk_word(v->row, pos + 4), gk_word(v->row, pos + 8),
			     gk_word(v->row, pos + 12)}};
	return q;
}

/* gk_usual reads TCP or UDP, not a fragment, over IPv4 without options or IPv6 without extension headers,
 * behind at most two tags, in one
 * descriptor and all there. It reports 0 for any other. Every byte that it reads is in the row: the
 * longest such header ends at 22 + 40 + 20. */
GK_FN int gk_usual(const struct gk_view *v, struct gk_found *f)
{
	u32 l3 = 14, l4, end, flags, proto, word, ports;

	if (v->have < 54)
		return 0;
	u32 sel = 0x0123 + 0x1111 * ((v->skip + 14) & 3); /* all headers begin at the same place of a word */
	const u32 *w = v->row + (v->skip + 14) / 4;
#define WORD(i) gk_permute(w[i], w[(i) + 1], sel)
	u32 before = v->row[(v->skip + 12) / 4], after = v->row[(v->skip + 12) / 4 + 1];
	u32 ether = gk_permute(before, after, 0x4401 + 0x0011 * ((v->skip + 12) & 3)) & 0xffff;
	flags = 0;
#pragma unroll
	for (int tag = 0; tag < 2; tag++) {
		if (ether != GK_ETHER_VLAN && ether != GK_ETHER_QINQ)
			break;
		flags = MR_FLAG_VLAN;
		ether = WORD(0) & 0xffff;
		l3 += 4;
		w++;
	}
	word = WORD(0);
	if (ether == GK_ETHER_IPV4) {
		if (word >> 24 != 0x45 || (WORD(1) & 0x3fff) != 0)
			return 0;
		l4 = l3 + 20;
		end = l3 + (word & 0xffff);
		proto = WORD(2) >> 16 & 255;
		flags |= MR_FLAG_IPV4;
		w += 5;
	} else if (ether == GK_ETHER_IPV6) {
		if (word >> 28 != 6)
			return 0;
		word = WORD(1);
		l4 = l3 + 40;
		end = l4 + (word >> 16);
		proto = word >> 8 & 255;
		flags |= MR_FLAG_IPV6;
		w += 10;
	} else
		return 0;
	if ((proto != GK_PROTO_TCP && proto != GK_PROTO_UDP) || end > v->len || v->have < l4 + 20)
		return 0;
	ports = WORD(0);
	u32 tcp = WORD(3) >> 28 << 2, udp = WORD(1) >> 16;
#undef WORD
	u32 header = proto == GK_PROTO_TCP ? tcp : 8;
	u32 size = proto == GK_PROTO_TCP ? tcp : udp;
	u32 least = proto == GK_PROTO_TCP ? 20 : 8;
	if (size < least || l4 + size > end)
		return 0;
	f->flags = flags;
	f->proto = proto;
	f->l3 = l3;
	f->l4 = l4;
	f->payload = l4 + header;
	f->end = end;
	f->known = GK_KNOWS_PORTS;
	f->ports = ports;
	return 1;
}

#endif
