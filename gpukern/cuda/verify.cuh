/* The checksum stage: verifies the checksums of packets, or makes them (fill). */
#ifndef MILLRACE_GK_VERIFY_CUH
#define MILLRACE_GK_VERIFY_CUH

#include "checksum.cuh"
#include "desc.cuh"

/* What the checksum of a transport covers, on its way through the warp. */
struct gk_segment {
	u32 n;     /* bytes; 0 where there is nothing to add up */
	u32 done;  /* bytes that are in sum */
	u32 sum;   /* of them, little-endian from the transport header on */
	u32 piece; /* the descriptor that comes after rest */
	struct gk_rest rest;
};

/* gk_put_checksum writes the checksum that makes sum right. */
GK_FN void gk_put_checksum(const struct gk_view *v, u32 at, u32 sum, u32 udp)
{
	u8 *to = (u8 *)v->frame + at;
	u32 c = ~sum & 0xffff;

	if (udp && c == 0) /* RFC 768: 0 says that there is none */
		c = 0xffff;
	if ((v->skip + at) & 1) {
		gk_store_u8(to, c & 255);
		gk_store_u8(to + 1, c >> 8);
	} else
		gk_store_u16(to, c);
}

/* gk_ip_checksum does the IPv4 header at an offset and reports whether its checksum is right now. */
GK_FN int gk_ip_checksum(const struct gk_view *v, u32 at, u32 fill)
{
	u32 sum = gk_header_sum(v, at, fill);

	if (fill)
		gk_put_checksum(v, at + 10, sum, 0);
	return fill || sum == 0xffff;
}

/* gk_ip_checksums does the IPv4 headers of a packet: its own, and the one around a tunnel. */
GK_FN u32 gk_ip_checksums(const struct gk_view *v, const struct gk_found *f, u32 fill)
{
	int any = f->outer != 0 || f->flags & MR_FLAG_IPV4, right = any;

	if (fill && f->flags & (MR_FLAG_MALFORMED | MR_FLAG_TRUNCATED))
		return 0;
	if (f->flags & MR_FLAG_IPV4)
		right &= gk_ip_checksum(v, f->l3, fill);
	if (f->outer != 0)
		right &= gk_ip_checksum(v, f->outer, fill);
	return right ? MR_FLAG_IP_CHECKSUM_OK : 0;
}

/* gk_field_of returns where the checksum lies in a transport header. */
GK_FN u32 gk_field_of(u32 proto) { return proto == GK_PROTO_TCP ? 16 : proto == GK_PROTO_UDP ? 6 : 2; }

/* gk_far_udp reads length and checksum of a UDP header that lies beyond the row. */
GK_SLOW u32 gk_far_udp(const u8 *l4)
{
	return gk_load_u8(l4 + 4) << 24 | gk_load_u8(l4 + 5) << 16 | gk_load_u8(l4 + 6) << 8 | gk_load_u8(l4 + 7);
}

/* gk_covered returns how many bytes the transport checksum covers, 0 where nothing is to be added up, and sets
 * the flags that are known without. */
GK_FN u32 gk_covered(const struct gk_view *v, const struct gk_found *f, u32 fill, u32 *flags)
{
	if (f->payload == 0 || f->end == 0 || f->flags & MR_FLAG_FRAGMENT || f->proto == GK_PROTO_SCTP)
		return 0;
	if (fill && f->flags & MR_FLAG_TRUNCATED)
		return 0;
	if (f->flags & MR_FLAG_OFFLOAD) {
		*flags |= MR_FLAG_L4_CHECKSUM_OK;
		return 0;
	}
	if (f->proto != GK_PROTO_UDP)
		return f->end - f->l4;
	u32 udp = f->l4 + 8 > v->have ? gk_far_udp(v->frame + f->l4) : gk_word(v->row, v->skip + f->l4 + 4);
	if (fill || (udp & 0xffff) != 0)
		return udp >> 16;
	if (f->flags & MR_FLAG_IPV4) /* over IPv6 there must be one: RFC 8200 8.1 */
		*flags |= MR_FLAG_L4_NO_CHECKSUM;
	return 0;
}

/* gk_near_sum adds up what lies in the packet's row, or at least what lies in front of a checksum that is to
 * be made, without the checksum itself. */
GK_FN void gk_near_sum(const struct gk_view *v, const struct gk_found *f, u32 fill, struct gk_segment *s)
{
	u32 l4 = f->l4, field = gk_field_of(f->proto), stop = gk_min(l4 + s->n, v->have);

	if (l4 < stop && (!fill || l4 + field + 2 <= v->have)) {
		u64 sum = gk_row_sum(v->row, v->skip + l4, v->skip + stop);
		if (fill)
			sum -= gk_field(v->row, v->skip + l4 + field);
		s->sum = gk_placed(sum, v->skip + l4);
		s->done = stop - l4;
	} else if (fill) {
		s->sum = gk_far_sum(v->frame + l4, field);
		s->done = field + 2;
	}
}

/* gk_next_piece finds the next bytes of a packet that goes on in other descriptors. */
GK_FN void gk_next_piece(const struct gk_pass *p, struct gk_segment *s)
{
	s->rest.n = 0;
	while (s->done < s->n && s->rest.n == 0 && s->piece < p->n) {
		u32 off = gk_desc_word(p, s->piece, 0), len = gk_desc_word(p, s->piece, 1) & 0xffff;
		s->piece++;
		if (!gk_inside(p, off, len)) /* looked at before, but host memory may change meanwhile */
			break;
		s->rest.from = off;
		s->rest.n = gk_min(len, s->n - s->done);
	}
}

/* gk_pseudo returns the sum of the pseudo-header: of the addresses in the IP header, so that the checksum of a
 * packet whose routing header has segments left comes out wrong (RFC 8200 8.1). ICMP has none. */
GK_FN u32 gk_pseudo(const struct gk_view *v, const struct gk_found *f, u32 n)
{
	u32 size = f->flags & MR_FLAG_IPV4 ? 8 : 32, at = f->l3 + (f->flags & MR_FLAG_IPV4 ? 12 : 8);

	if (f->proto == GK_PROTO_ICMP)
		return 0;
	u32 rest = gk_swap16(gk_fold(f->proto + n));
	if (at + size > v->have)
		return rest + gk_far_sum(v->frame + at, size);
	return rest + gk_placed(gk_row_sum(v->row, v->skip + at, v->skip + at + size), v->skip + at);
}

/* gk_begin adds up what this lane alone can of its packet's segment, and notes what is left. */
GK_FN struct gk_segment gk_begin(const struct gk_pass *p, const struct gk_view *v, const struct gk_found *f, u32 off,
				 u32 next, u32 fill, u32 *flags)
{
	struct gk_segment s = {};

	s.n = gk_covered(v, f, fill, flags);
	if (s.n == 0)
		return s;
	gk_near_sum(v, f, fill, &s);
	s.sum += gk_pseudo(v, f, s.n);
	s.piece = next;
	s.rest.from = off + f->l4 + s.done;
	s.rest.n = gk_min(s.n, v->len - f->l4) - s.done;
	if (s.rest.n == 0)
		gk_next_piece(p, &s);
	return s;
}

/* gk_checksums verifies the checksums of this lane's packet, or makes them, and returns the flags that say
 * so. All lanes call it, also those without a packet. off is where the packet lies, next the descriptor
 * behind its first. */
GK_FN u32 gk_checksums(const struct gk_pass *p, const struct gk_view *v, const struct gk_quad *found, u32 off,
		       u32 next, u32 fill)
{
	struct gk_found f = gk_unpack(*found);
	u32 flags = gk_ip_checksums(v, &f, fill);
	struct gk_segment s = gk_begin(p, v, &f, off, next, fill, &flags);

	while (gk_ballot(s.rest.n != 0)) {
		u32 sum = gk_rest_sum(p->mem, s.rest);
		if (s.rest.n == 0)
			continue;
		s.sum += gk_placed(sum, s.rest.from ^ s.done);
		s.done += s.rest.n;
		gk_next_piece(p, &s);
	}
	if (s.n == 0)
		return flags;
	u32 sum = gk_fold(s.sum);
	if (fill) {
		f = gk_unpack(*found);
		gk_put_checksum(v, f.l4 + gk_field_of(f.proto), sum, f.proto == GK_PROTO_UDP);
	} else if (sum != 0xffff)
		return flags;
	return flags | MR_FLAG_L4_CHECKSUM_OK;
}

#endif
