/* The parse stage for any packet: the parser of gpukern/parse.go, function by function. Few packets come
 * here, so it is one function that is called, not inlined, and what it finds comes back in registers. */
#ifndef MILLRACE_GK_WALK_CUH
#define MILLRACE_GK_WALK_CUH

#include "parse.cuh"

/* What is to be read next. */
enum { GK_END, GK_IPV4, GK_IPV6 };

/* A packet under way. */
struct gk_walker {
	struct gk_view v;
	struct gk_found f;
	u32 total;   /* bytes in all of the packet's descriptors */
	u32 at;      /* offset of what is to be read next */
	u32 ops;     /* GK_OP_L2ENCAP, as asked for */
};

GK_FN u32 gk_byte(const struct gk_view *v, u32 at)
{
	if (at < v->have)
		return ((const u8 *)v->row)[v->skip + at];
	return gk_load_u8(v->frame + at);
}

GK_FN u32 gk_be16(const struct gk_view *v, u32 at) { return gk_byte(v, at) << 8 | gk_byte(v, at + 1); }

GK_FN u32 gk_malformed(struct gk_walker *w)
{
	w->f.flags |= MR_FLAG_MALFORMED;
	w->f.known = GK_KNOWS_NOTHING;
	w->f.l4 = w->f.payload = 0;
	return GK_END;
}

/* gk_lacks reports whether n bytes at an offset are not there: because what holds them ends before, or
 * because they were not captured. */
GK_FN int gk_lacks(struct gk_walker *w, u32 at, u32 n, u32 end)
{
	if (at + n > end) {
		gk_malformed(w);
		return 1;
	}
	if (at + n > w->v.len) {
		w->f.flags |= MR_FLAG_TRUNCATED;
		return 1;
	}
	return 0;
}

/* gk_network goes on with what an Ethernet type names. */
GK_FN u32 gk_network(struct gk_walker *w, u32 at, u32 ether)
{
	w->f.l3 = at;
	w->at = at;
	return ether == GK_ETHER_IPV4 ? GK_IPV4 : ether == GK_ETHER_IPV6 ? GK_IPV6 : GK_END;
}

/* gk_pppoe goes on behind a PPPoE session header (RFC 2516 4) and the PPP protocol where that is IP. */
GK_FN u32 gk_pppoe(struct gk_walker *w, u32 at)
{
	if (gk_lacks(w, at, 8, ~0u))
		return GK_END;
	u32 proto = gk_be16(&w->v, at) == 0x1100 ? gk_be16(&w->v, at + 6) : 0;
	if (proto == GK_PPP_IPV4)
		return gk_network(w, at + 8, GK_ETHER_IPV4);
	if (proto == GK_PPP_IPV6)
		return gk_network(w, at + 8, GK_ETHER_IPV6);
	return gk_network(w, at, GK_ETHER_PPPOE);
}

/* gk_mpls goes on behind a label stack (RFC 3032 2.1) where IP's version follows. */
GK_FN u32 gk_mpls(struct gk_walker *w, u32 l3)
{
	for (u32 at = l3, n = 0; n < GK_MAX_LABELS; n++) {
		if (gk_lacks(w, at, 5, ~0u))
			return GK_END;
		at += 4;
		if (!(gk_byte(&w->v, at - 2) & 1))
			continue;
		u32 version = gk_byte(&w->v, at) >> 4;
		if (version == 4)
			return gk_network(w, at, GK_ETHER_IPV4);
		if (version == 6)
			return gk_network(w, at, GK_ETHER_IPV6);
		break;
	}
	return gk_network(w, l3, GK_ETHER_MPLS);
}

GK_FN u32 gk_ethernet(struct gk_walker *w)
{
	u32 l3 = 14;

	if (gk_lacks(w, 0, 14, ~0u))
		return GK_END;
	u32 ether = gk_be16(&w->v, 12);
	while ((ether == GK_ETHER_VLAN || ether == GK_ETHER_QINQ) && l3 != 22) {
		w->f.flags |= MR_FLAG_VLAN;
		if (gk_lacks(w, l3, 4, ~0u))
			return GK_END;
		ether = gk_be16(&w->v, l3 + 2);
		l3 += 4;
	}
	if (w->ops & GK_OP_L2ENCAP) {
		if (ether == GK_ETHER_PPPOE)
			return gk_pppoe(w, l3);
		if (ether == GK_ETHER_MPLS || ether == GK_ETHER_MPLS_UPSTREAM)
			return gk_mpls(w, l3);
	}
	return gk_network(w, l3, ether);
}

GK_FN u32 gk_least_header(u32 proto, u32 v4)
{
	switch (proto) {
	case GK_PROTO_TCP:
		return 20;
	case GK_PROTO_UDP:
		return 8;
	case GK_PROTO_SCTP:
		return 12;
	case GK_PROTO_ICMP:
		return v4 ? 8 : 0;
	case GK_PROTO_ICMPV6:
		return v4 ? 0 : 8;
	}
	return 0;
}

/* gk_other is a protocol that is not looked into. */
GK_FN u32 gk_other(struct gk_walker *w, u32 at, u32 end)
{
	if (at < gk_min(end, w->v.len))
		w->f.l4 = at;
	return GK_END;
}

/* gk_transport reads the transport header at an offset, in a packet that IP lets end at end. */
GK_FN u32 gk_transport(struct gk_walker *w, u32 at, u32 end)
{
	struct gk_found *f = &w->f;
	u32 header = gk_least_header(f->proto, f->flags & MR_FLAG_IPV4), size = 0;

	if (header == 0)
		return gk_other(w, at, end);
	if (gk_lacks(w, at, header, end))
		return GK_END;
	if (f->proto == GK_PROTO_TCP) {
		header = gk_byte(&w->v, at + 12) >> 4 << 2;
		if (header < 20)
			return gk_malformed(w);
		if (gk_lacks(w, at, header, end))
			return GK_END;
	}
	if (f->proto == GK_PROTO_UDP) {
		size = gk_be16(&w->v, at + 4);
		if (size < 8 || (at + size > end && !(f->flags & MR_FLAG_FRAGMENT)))
			return gk_malformed(w);
	}
	f->l4 = at;
	f->payload = at + header;
	if (f->proto == GK_PROTO_ICMP || f->proto == GK_PROTO_ICMPV6)
		return GK_END;
	f->ports = gk_be16(&w->v, at) << 16 | gk_be16(&w->v, at + 2);
	f->known = GK_KNOWS_PORTS;
	return GK_END;
}

/* gk_ends notes where IP says that the packet ends. */
GK_FN void gk_ends(struct gk_walker *w, u32 end)
{
	if (end > w->total)
		w->f.flags |= MR_FLAG_TRUNCATED;
	else
		w->f.end = end;
}

GK_FN u32 gk_ipv4(struct gk_walker *w)
{
	struct gk_found *f = &w->f;
	const struct gk_view *v = &w->v;
	u32 l3 = w->at;

	u32 first = l3 < v->len ? gk_byte(v, l3) : 0x45;
	u32 header = (first & 15) * 4;
	if (first >> 4 != 4 || header < 20)
		return gk_malformed(w);
	if (l3 + 20 > v->len) {
		f->flags |= MR_FLAG_TRUNCATED;
		return GK_END;
	}
	u32 size = gk_be16(v, l3 + 2);
	if (size < header)
		return gk_malformed(w);
	if (header > 20) {
		if (gk_lacks(w, l3, header, ~0u))
			return GK_END;
		f->flags |= MR_FLAG_OPTIONS;
	}
	f->flags |= MR_FLAG_IPV4;
	f->known = GK_KNOWS_ADDRESSES;
	gk_ends(w, l3 + size);
	f->proto = gk_byte(v, l3 + 9);
	u32 frag = gk_be16(v, l3 + 6);
	if (frag & 0x3fff)
		f->flags |= MR_FLAG_FRAGMENT;
	if (frag & 0x1fff) {
		f->flags |= MR_FLAG_FRAGMENT_REST;
		return GK_END;
	}
	return gk_transport(w, l3 + header, l3 + size);
}

GK_FN int gk_extension(u32 proto)
{
	return proto == GK_PROTO_HOP || proto == GK_PROTO_ROUTING || proto == GK_PROTO_FRAGMENT ||
	       proto == GK_PROTO_DEST || proto == GK_PROTO_AH || proto == GK_PROTO_MOBILITY;
}

/* gk_fragment6 reads a fragment header (RFC 8200 4.5) and reports whether the packet is a later fragment. */
GK_FN int gk_fragment6(struct gk_walker *w, u32 at)
{
	u32 where = gk_be16(&w->v, at + 2);

	if ((where & 0xfff9) != 0)
		w->f.flags |= MR_FLAG_FRAGMENT;
	if ((where & 0xfff8) == 0)
		return 0;
	w->f.flags |= MR_FLAG_FRAGMENT_REST;
	w->f.proto = gk_byte(&w->v, at);
	return 1;
}

/* gk_extensions walks the extension headers at an offset and returns where they end, 0 where the walk
 * cannot go on. */
GK_FN u32 gk_extensions(struct gk_walker *w, u32 at, u32 end)
{
	struct gk_found *f = &w->f;

	for (u32 n = 0; gk_extension(f->proto); n++) {
		f->flags |= MR_FLAG_OPTIONS;
		if (n == GK_MAX_EXTENSIONS || (n > 0 && f->proto == GK_PROTO_HOP)) {
			gk_malformed(w);
			return 0;
		}
		if (gk_lacks(w, at, 8, end))
			return 0;
		u32 units = gk_byte(&w->v, at + 1);
		u32 size = f->proto == GK_PROTO_FRAGMENT ? 8 : f->proto == GK_PROTO_AH ? units * 4 + 8 : units * 8 + 8;
		if (gk_lacks(w, at, size, end))
			return 0;
		if (f->proto == GK_PROTO_FRAGMENT && gk_fragment6(w, at))
			return 0;
		f->proto = gk_byte(&w->v, at);
		at += size;
	}
	return at;
}

GK_FN u32 gk_ipv6(struct gk_walker *w)
{
	struct gk_found *f = &w->f;
	u32 l3 = w->at;

	if (l3 < w->v.len && gk_byte(&w->v, l3) >> 4 != 6)
		return gk_malformed(w);
	if (gk_lacks(w, l3, 40, ~0u))
		return GK_END;
	u32 end = l3 + 40 + gk_be16(&w->v, l3 + 4);
	gk_ends(w, end);
	f->flags |= MR_FLAG_IPV6;
	f->known = GK_KNOWS_ADDRESSES;
	f->proto = gk_byte(&w->v, l3 + 6);
	u32 at = gk_extensions(w, l3 + 40, end);
	if (at == 0 || f->proto == GK_PROTO_NONE)
		return GK_END;
	return gk_transport(w, at, end);
}

/* gk_parse_any parses a packet. What it finds comes back packed, in registers. */
GK_SLOW struct gk_quad gk_parse_any(const u8 *frame, const u32 *row, u32 skip_have, u32 len, u32 total, u32 ops)
{
	struct gk_walker w = {};

	w.v.frame = frame;
	w.v.row = row;
	w.v.skip = skip_have & 15;
	w.v.have = skip_have >> 4;
	w.v.len = len;
	w.total = total;
	w.ops = ops;
	u32 next = gk_ethernet(&w);
	if (next != GK_END)
		next = next == GK_IPV4 ? gk_ipv4(&w) : gk_ipv6(&w);
	return gk_pack(&w.f);
}

/* gk_parse reads the headers of a packet of total bytes. */
GK_FN struct gk_quad gk_parse(const struct gk_view *v, u32 total, u32 ops)
{
	struct gk_found f;

	if (total == v->len && gk_usual(v, &f))
		return gk_pack(&f);
	return gk_parse_any(v->frame, v->row, v->skip | v->have << 4, v->len, total, ops);
}

#endif
