/* The header pass over 32 descriptors, by a warp.
 *
 * Reading is the whole art: over PCIe a read takes a microsecond, so each warp asks for all that it needs at
 * once, and in pieces of 64 to 128 bytes that lie together. First all lanes read the 32 descriptors; then
 * eight neighbouring lanes read the first 128 bytes of a packet, or as many as it has, for four packets at a
 * time, and all eight such reads are under way before the first is used. They go to rows in shared memory,
 * from which each lane parses its own packet. Only checksums of longer packets read more.
 *
 *	descriptors (in memory) -> lines.desc -> [lane: off, len] -> frames (in memory) -> lines.row
 *	lines.row -> [lane: parse, checksum, hash, look up] -> lines.desc -> descriptors (in memory)
 *
 * Contract of a launch: blocks of GK_HEADERS_THREADS threads at most, whole warps; static shared memory only;
 * frames and the arena on a boundary of 16 bytes, descriptors of 16; tables do not change meanwhile. */
#ifndef MILLRACE_GK_HEADERS_CUH
#define MILLRACE_GK_HEADERS_CUH

#include "tables.h"
#include "verify.cuh"
#include "walk.cuh"

enum {
	GK_HEADERS_THREADS = 256,
	GK_HEADERS_WARPS   = GK_HEADERS_THREADS / GK_WARP,
	GK_KEPT_FLAGS      = MR_FLAG_MORE | MR_FLAG_OFFLOAD,
};

/* What a warp works on. A descriptor takes twelve words instead of eight, so that lanes which read their own
 * as quads meet in no bank. */
struct gk_lines {
	struct gk_quad desc[GK_WARP][3];
	u32 row[GK_WARP][GK_ROW];
};

GK_SHARED struct gk_lines gk_warp_lines[GK_HEADERS_WARPS] __attribute__((aligned(16)));

/* gk_read_desc brings the descriptors from first on into lines. Lanes without one read the last. */
GK_FN void gk_read_desc(const struct gk_pass *p, u32 first, struct gk_lines *lines)
{
	const u8 *from = (const u8 *)(p->desc + first);
	u32 last = 2 * gk_min(p->n - first, GK_WARP) - 1, at = gk_lane();
	struct gk_quad a = gk_load_quad(from + 16 * gk_min(at, last));
	struct gk_quad b = gk_load_quad(from + 16 * gk_min(at + GK_WARP, last));

	lines->desc[at / 2][at & 1] = a;
	lines->desc[(at + GK_WARP) / 2][at & 1] = b;
	gk_warp_sync();
}

/* gk_write_desc writes the descriptors back. */
GK_FN void gk_write_desc(const struct gk_pass *p, u32 first, struct gk_lines *lines)
{
	u8 *to = (u8 *)(p->desc + first);
	u32 quads = 2 * gk_min(p->n - first, GK_WARP);

	gk_warp_sync();
	for (u32 at = gk_lane(); at < quads; at += GK_WARP)
		gk_store_quad(to + 16 * at, lines->desc[at / 2][at & 1]);
	gk_warp_sync();
}

/* gk_read_lines brings the first bytes of 32 packets into rows. where is, for this lane's packet, the offset
 * in the arena of its first sixteen bytes, plus how many sixteens there are to read, 0 to 8. Lanes that
 * would read beyond read the last sixteen instead, and where there is nothing at all, a descriptor. */
GK_FN void gk_read_lines(const struct gk_pass *p, u32 where, struct gk_lines *lines)
{
	enum { LANES = GK_LINE / 16, STEPS = LANES };
	u32 sub = gk_lane() % LANES;
	struct gk_quad q[STEPS];

#pragma unroll
	for (u32 k = 0; k < STEPS; k++) {
		u32 its = gk_shfl(where, k * (GK_WARP / LANES) + gk_lane() / LANES), n = its & 15;
		const u8 *from = n ? p->mem + (its & ~15u) + 16 * gk_min(sub, n - 1) : (const u8 *)p->desc;
		q[k] = gk_load_quad(from);
	}
#pragma unroll
	for (u32 k = 0; k < STEPS; k++)
#pragma unroll
		for (u32 i = 0; i < 4; i++)
			lines->row[k * (GK_WARP / LANES) + gk_lane() / LANES][sub * 4 + i] = q[k].w[i];
	gk_warp_sync();
}

/* gk_tuple_of reads what a packet is looked up by. */
GK_FN struct gk_tuple gk_tuple_of(const struct gk_view *v, const struct gk_found *f)
{
	struct gk_tuple t = {};

	if (f->known == GK_KNOWS_NOTHING)
		return t;
	t.known = (u8)f->known;
	t.proto = (u8)f->proto;
	t.ports = f->known == GK_KNOWS_PORTS ? f->ports : 0;
	t.end = f->end;
	t.v4 = (f->flags & MR_FLAG_IPV4) != 0;
	if (t.v4) {
		t.src_hi = (u64)gk_be32(v, f->l3 + 12) << 32;
		t.dst_hi = (u64)gk_be32(v, f->l3 + 16) << 32;
		return t;
	}
	t.src_hi = gk_be64(v, f->l3 + 8);
	t.src_lo = gk_be64(v, f->l3 + 16);
	t.dst_hi = gk_be64(v, f->l3 + 24);
	t.dst_lo = gk_be64(v, f->l3 + 32);
	return t;
}

/* gk_look_up does the operations that look the tuple up and write what they find into the descriptor. */
GK_FN void gk_look_up(const struct gk_pass *p, const struct gk_tuple *t, struct mr_desc *d, u32 ops)
{
	const struct gk_tables *tables = p->tables;

	if (ops & GK_OP_HASH)
		d->hash = gk_hash(&tables->hash, t, d->flags & MR_FLAG_FRAGMENT ? 0 : t->ports);
	if (ops & GK_OP_ACL)
		d->rule = (u16)gk_acl(t->v4 ? &tables->acl4 : &tables->acl6, t);
	if (ops & GK_OP_LPM)
		d->next_hop = (u16)gk_lpm(t->v4 ? &tables->lpm4 : &tables->lpm6, t->dst_hi, t->dst_lo);
}

/* gk_headers_run does the operations ops for the descriptors from first on, 32 at most. */
GK_FN void gk_headers_run(const struct gk_pass *p, u32 first, u32 ops)
{
	struct gk_lines *lines = &gk_warp_lines[gk_thread() / GK_WARP];
	u32 lane = gk_lane(), i = first + lane;

	gk_read_desc(p, first, lines);
	u32 off = lines->desc[lane][0].w[0], len = lines->desc[lane][0].w[1] & 0xffff;
	u32 driver = lines->desc[lane][1].w[3] & GK_KEPT_FLAGS;
	u32 before = lane ? lines->desc[lane - 1][1].w[3] : first ? gk_desc_word(p, first - 1, GK_DESC_WORDS - 1) : 0;
	int begins = i < p->n && !(before & MR_FLAG_MORE), good = begins && gk_inside(p, off, len);
	u32 rest = good && driver & MR_FLAG_MORE ? gk_chain_rest(p, i + 1) : 0;
	good = good && rest != ~0u;

	struct gk_view v;
	u32 sixteens = good ? gk_min((off & 15) + len + 15, GK_LINE) / 16 : 0;
	if (len == 0)
		sixteens = 0;
	v.frame = p->mem + off;
	v.row = lines->row[lane];
	v.skip = off & 15;
	v.have = gk_min(len, sixteens * 16 - (sixteens ? v.skip : 0));
	v.len = len;
	v.total = len + rest;
	gk_read_lines(p, (off & ~15u) | sixteens, lines);

	struct gk_found f = {};
	if (good)
		gk_parse(&v, ops & GK_OP_TUNNEL, &f);
	else if (begins)
		f.flags = MR_FLAG_MALFORMED;
	struct gk_tuple t = gk_tuple_of(&v, &f);
	f.flags |= driver;
	if (ops & (GK_OP_CHECKSUM | GK_OP_FILL))
		f.flags |= gk_checksums(p, &v, &f, &t, off, i + 1, ops & GK_OP_FILL);

	struct mr_desc d = gk_desc_of(lines->desc[lane]);
	d.l3 = (u8)f.l3;
	d.l4 = (u16)f.l4;
	d.payload = (u16)f.payload;
	d.hash = 0;
	d.rule = 0;
	d.next_hop = 0;
	d.flags = (u16)f.flags;
	d.proto = (u8)f.proto;
	if (t.known != GK_KNOWS_NOTHING)
		gk_look_up(p, &t, &d, ops);
	gk_desc_into(&d, lines->desc[lane]);
	gk_write_desc(p, first, lines);
}

/* gk_headers_warp does what p->ops asks for. */
GK_FN void gk_headers_warp(const struct gk_pass *p, u32 first) { gk_headers_run(p, first, p->ops); }

#endif
