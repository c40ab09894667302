/* The checksum stage: verifies the checksums of packets. */
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

/* gk_ip_checksum verifies the header of an IPv4 packet. */
GK_FN u32 gk_ip_checksum(const struct gk_view *v, const struct gk_found *f)
{
	return f->flags & MR_FLAG_IPV4 && gk_header_sum(v, f->l3) == 0xffff ? MR_FLAG_IP_CHECKSUM_OK : 0;
}

/* gk_far_udp reads length and checksum of a UDP header that lies beyond the row. */
GK_SLOW u32 gk_far_udp(const u8 *l4)
{
	return gk_load_u8(l4 + 4) << 24 | gk_load_u8(l4 + 5) << 16 | gk_load_u8(l4 + 6) << 8 | gk_load_u8(l4 + 7);
}

/* gk_covered returns how many bytes the transport checksum covers, 0 where nothing is to be added up, and sets
 * the flags that are known without. */
GK_FN u32 gk_covered(const struct gk_view *v, const struct gk_found *f, u32 *flags)
{
	if (f->payload == 0 || f->end == 0 || f->flags & MR_FLAG_FRAGMENT || f->proto == GK_PROTO_SCTP)
		return 0;
	if (f->flags & MR_FLAG_OFFLOAD) {
		*flags |= MR_FLAG_L4_CHECKSUM_OK;
		return 0;
	}
	if (f->proto != GK_PROTO_UDP)
		return f->end - f->l4;
	u32 udp = f->l4 + 8 > v->have ? gk_far_udp(v->frame + f->l4) : gk_word(v->row, v->skip + f->l4 + 4);
	if ((udp & 0xffff) != 0)
		return udp >> 16;
	if (f->flags & MR_FLAG_IPV4) /* over IPv6 there must be one: RFC 8200 8.1 */
		*flags |= MR_FLAG_L4_NO_CHECKSUM;
	return 0;
}

/* gk_near_sum adds up what lies in the packet's row. */
GK_FN void gk_near_sum(const struct gk_view *v, const struct gk_found *f, struct gk_segment *s)
{
	u32 l4 = f->l4, stop = gk_min(l4 + s->n, v->have);

	if (l4 < stop) {
		s->sum = gk_placed(gk_row_sum(v->row, v->skip + l4, v->skip + stop), v->skip + l4);
		s->done = stop - l4;
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
				 u32 next, u32 *flags)
{
	struct gk_segment s = {};

	s.n = gk_covered(v, f, flags);
	if (s.n == 0)
		return s;
	gk_near_sum(v, f, &s);
	s.sum += gk_pseudo(v, f, s.n);
	s.piece = next;
	s.rest.from = off + f->l4 + s.done;
	s.rest.n = gk_min(s.n, v->len - f->l4) - s.done;
	if (s.rest.n == 0)
		gk_next_piece(p, &s);
	return s;
}

/* gk_checksums verifies the checksums of this lane's packet and returns the flags that say so. All lanes call it, also those without a packet. off is where the packet lies, next the descriptor
 * behind its first. */
GK_FN u32 gk_checksums(const struct gk_pass *p, const struct gk_view *v, const struct gk_quad *found, u32 off,
		       u32 next)
{
	struct gk_found f = gk_unpack(*found);
	u32 flags = gk_ip_checksum(v, &f);
	struct gk_segment s = gk_begin(p, v, &f, off, next, &flags);

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
	return gk_fold(s.sum) == 0xffff ? flags | MR_FLAG_L4_CHECKSUM_OK : flags;
}

#endif
