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
 * Contract of a launch: one warp for each 32 descriptors, so (n + threads - 1) / threads blocks; blocks of whole
 * warps, GK_HEADERS_THREADS threads at most; no dynamic shared memory, 5.6 KiB of static for each warp that
 * a block may have. The arena and the descriptors lie on boundaries of 16 bytes, and frames have 16 or more.
 * Tables do not change meanwhile. */
#ifndef MILLRACE_GK_HEADERS_CUH
#define MILLRACE_GK_HEADERS_CUH

#include "flow.cuh"
#include "tables.h"
#include "verify.cuh"
#include "walk.cuh"

enum {
	GK_HEADERS_THREADS = 256,
	GK_HEADERS_WARPS   = GK_HEADERS_THREADS / GK_WARP,
	GK_KEPT_FLAGS      = MR_FLAG_MORE | MR_FLAG_OFFLOAD,
};

/* What a warp works on. With what was found behind it, a descriptor takes twelve words, so that lanes which
 * read their own as quads meet in no bank. The stages leave here what the next need, and begin anew: so no
 * stage holds the registers of another. */
struct gk_lane_desc {
	struct gk_quad q[2];  /* struct mr_desc */
	struct gk_quad found; /* gk_pack */
};

struct gk_lines {
	struct gk_lane_desc desc[GK_WARP];
	u32 row[GK_WARP][GK_ROW];
};

GK_SHARED struct gk_lines gk_warp_lines[GK_HEADERS_WARPS] __attribute__((aligned(16)));

/* gk_read_desc brings the descriptors from first on into lines. Lanes without one read the last. It returns
 * the flags of the descriptor in front of them, which are read at the same time. */
GK_FN u32 gk_read_desc(const struct gk_pass *p, u32 first, struct gk_lines *lines)
{
	const u8 *from = (const u8 *)(p->desc + first);
	u32 last = 2 * gk_min(p->n - first, GK_WARP) - 1, at = gk_lane();
	struct gk_quad a = gk_load_quad(from + 16 * gk_min(at, last));
	struct gk_quad b = gk_load_quad(from + 16 * gk_min(at + GK_WARP, last));
	u32 before = first ? gk_desc_word(p, first - 1, GK_DESC_WORDS - 1) : 0;

	lines->desc[at / 2].q[at & 1] = a;
	lines->desc[(at + GK_WARP) / 2].q[at & 1] = b;
	gk_warp_sync();
	return before;
}

/* gk_write_desc writes the descriptors back. */
GK_FN void gk_write_desc(const struct gk_pass *p, u32 first, struct gk_lines *lines)
{
	u8 *to = (u8 *)(p->desc + first);
	u32 quads = 2 * gk_min(p->n - first, GK_WARP);

	gk_warp_sync();
	for (u32 at = gk_lane(); at < quads; at += GK_WARP)
		gk_store_quad(to + 16 * at, lines->desc[at / 2].q[at & 1]);
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
		u64 from = n ? (u64)p->mem + (its & ~15u) : (u64)p->desc;
		u32 last = gk_max(n, 1) - 1;
		q[k] = gk_load_quad((const u8 *)from + 16 * gk_min(sub, last));
	}
#pragma unroll
	for (u32 k = 0; k < STEPS; k++)
#pragma unroll
		for (u32 i = 0; i < 4; i++)
			lines->row[k * (GK_WARP / LANES) + gk_lane() / LANES][sub * 4 + i] = q[k].w[i];
	gk_warp_sync();
}

/* gk_view_of returns what this lane can see of its packet. */
GK_FN struct gk_view gk_view_of(const struct gk_pass *p, const struct gk_lines *lines)
{
	const struct gk_quad *desc = lines->desc[gk_lane()].q;
	u32 off = desc->w[0];
	struct gk_view v;

	v.len = desc->w[1] & 0xffff;
	v.frame = p->mem + off;
	v.row = lines->row[gk_lane()];
	v.skip = off & 15;
	v.have = gk_min(v.len, GK_LINE - v.skip);
	return v;
}

/* gk_tuple_of reads what a packet is looked up by. */
GK_FN struct gk_tuple gk_tuple_of(const struct gk_pass *p, const struct gk_lines *lines)
{
	struct gk_view view = gk_view_of(p, lines), *v = &view;
	struct gk_found found = gk_unpack(lines->desc[gk_lane()].found), *f = &found;
	struct gk_tuple t = {};

	if (f->known == GK_KNOWS_NOTHING)
		return t;
	t.known = (u8)f->known;
	t.proto = (u8)f->proto;
	t.ports = f->known == GK_KNOWS_PORTS ? f->ports : 0;
	t.end = f->end;
	t.v4 = (f->flags & MR_FLAG_IPV4) != 0;
	struct gk_quad a = gk_four(v, f->l3 + (t.v4 ? 4 : 8)); /* the last eight bytes of it, over IPv4 */
	if (t.v4) {
		t.src_hi = (u64)a.w[2] << 32;
		t.dst_hi = (u64)a.w[3] << 32;
		return t;
	}
	struct gk_quad b = gk_four(v, f->l3 + 24);
	t.src_hi = (u64)a.w[0] << 32 | a.w[1];
	t.src_lo = (u64)a.w[2] << 32 | a.w[3];
	t.dst_hi = (u64)b.w[0] << 32 | b.w[1];
	t.dst_lo = (u64)b.w[2] << 32 | b.w[3];
	return t;
}

/* gk_parse_stage reads the packets' lines and parses them; before are the flags of the descriptor in front. */
GK_FN void gk_parse_stage(const struct gk_pass *p, u32 first, struct gk_lines *lines, u32 before, u32 ops)
{
	u32 lane = gk_lane(), i = first + lane;
	struct gk_view v = gk_view_of(p, lines);
	u32 off = lines->desc[lane].q[0].w[0];
	u32 flags = lines->desc[lane].q[1].w[3];
	if (lane != 0)
		before = lines->desc[lane - 1].q[1].w[3];
	int begins = i < p->n && !(before & MR_FLAG_MORE), good = begins && gk_inside(p, off, v.len);
	u32 rest = good && flags & MR_FLAG_MORE ? gk_chain_rest(p, i + 1) : 0;
	struct gk_quad found = {};

	good = good && rest != ~0u;
	gk_read_lines(p, (off - v.skip) | (good && v.len ? (v.skip + v.have + 15) / 16 : 0), lines);
	if (good)
		found = gk_parse(&v, v.len + rest, ops & GK_OP_L2ENCAP);
	else if (begins)
		found.w[0] = MR_FLAG_MALFORMED;
	found.w[0] |= flags & GK_KEPT_FLAGS;
	found.w[2] |= begins ? GK_FOUND_BEGINS : 0;
	lines->desc[lane].found = found;
	gk_warp_sync();
}

/* gk_checksum_stage verifies checksums. */
GK_FN void gk_checksum_stage(const struct gk_pass *p, u32 first, struct gk_lines *lines)
{
	struct gk_view v = gk_view_of(p, lines);
	u32 flags = gk_checksums(p, &v, &lines->desc[gk_lane()].found, lines->desc[gk_lane()].q[0].w[0],
				 first + gk_lane() + 1);

	lines->desc[gk_lane()].found.w[0] |= flags;
	gk_warp_sync();
}

/* gk_find_stage writes what was found into the descriptor and clears what is to be looked up. */
GK_FN void gk_find_stage(struct gk_lane_desc *at)
{
	struct gk_found f = gk_unpack(at->found);

	at->q[0].w[1] = (at->q[0].w[1] & 0xffffff) | f.l3 << 24;
	at->q[0].w[2] = f.l4 | f.payload << 16;
	at->q[0].w[3] = 0;
	at->q[1].w[1] = 0;
	at->q[1].w[3] = f.flags | f.proto << 16 | (at->q[1].w[3] & 0xffu << 24);
	gk_warp_sync();
}

/* gk_hash_stage writes the hash. Ports count but for fragments. */
GK_FN void gk_hash_stage(const struct gk_pass *p, struct gk_lines *lines)
{
	struct gk_lane_desc *at = &lines->desc[gk_lane()];
	struct gk_tuple t = gk_tuple_of(p, lines);

	if (t.known != GK_KNOWS_NOTHING)
		at->q[0].w[3] = gk_hash(&p->tables->hash, &t, at->found.w[0] & MR_FLAG_FRAGMENT ? 0 : t.ports);
	gk_warp_sync();
}

/* gk_state_stage finds the flows of packets. A flow may know already what the tables say. */
GK_FN void gk_state_stage(const struct gk_pass *p, struct gk_lines *lines)
{
	struct gk_lane_desc *at = &lines->desc[gk_lane()];

	if (at->found.w[2] & GK_FOUND_BEGINS) {
		struct gk_tuple t = gk_tuple_of(p, lines);
		struct mr_desc d = gk_desc_of(at->q);
		if (gk_flow(p, &t, &d)) {
			at->found.w[2] |= GK_FOUND_IN_FLOW;
			at->q[1].w[1] = (u32)d.rule | (u32)d.next_hop << 16;
		}
		at->q[1].w[0] = d.flow;
	}
	gk_warp_sync();
}

/* gk_table_stage asks the tables, and lets the flow remember what they say. */
GK_FN void gk_table_stage(const struct gk_pass *p, struct gk_lines *lines, u32 ops)
{
	const struct gk_tables *tables = p->tables;
	struct gk_lane_desc *at = &lines->desc[gk_lane()];
	struct gk_tuple t = gk_tuple_of(p, lines);

	if (t.known != GK_KNOWS_NOTHING && !(at->found.w[2] & GK_FOUND_IN_FLOW)) {
		u32 rule = 0, hop = 0;
		if (ops & GK_OP_LPM)
			hop = gk_lpm(t.v4 ? &tables->lpm4 : &tables->lpm6, t.dst_hi, t.dst_lo);
		if (ops & GK_OP_ACL)
			rule = gk_acl(t.v4 ? &tables->acl4 : &tables->acl6, &t);
		at->q[1].w[1] = rule | hop << 16;
		if (ops & GK_OP_FLOW) {
			struct mr_desc d = gk_desc_of(at->q);
			gk_flow_keep(p, &d);
		}
	}
	gk_warp_sync();
}

/* gk_text_stage writes which bytes of the packets are texts (textBounds in gpukern), and their lines. Packets in pieces are left
 * to the host, whom *pieces tells. */
GK_FN void gk_text_stage(const struct gk_pass *p, u32 first, const struct gk_lines *lines)
{
	const struct gk_lane_desc *at = &lines->desc[gk_lane()];
	u32 i = first + gk_lane(), len = at->q[0].w[1] & 0xffff;
	u32 start = at->found.w[1] >> 16, end = at->found.w[2] & 0xfffff;
	struct gk_quad text = {};

	if (!start)
		start = at->found.w[1] & 0xffff;
	end = end ? gk_min(end, len) : len;
	if (start && start < end) {
		text.w[0] = at->q[0].w[0];
		text.w[1] = start | (end - start) << 16;
	}
	if (i >= p->n)
		return;
	gk_store_quad(&p->texts[i], text);
	for (u32 k = 0; text.w[1] && k < GK_TEXT_LINE / 16; k++) {
		const u32 *row = lines->row[gk_lane()] + 4 * k;
		struct gk_quad q = {{row[0], row[1], row[2], row[3]}};
		gk_store_quad(p->lines + (u64)i * GK_TEXT_LINE + 16 * k, q);
	}
	if (at->found.w[0] & MR_FLAG_MORE)
		*p->pieces = 1;
}

/* gk_headers_run does the operations ops for the descriptors from first on, 32 at most. */
GK_FN void gk_headers_run(const struct gk_pass *p, u32 first, u32 ops)
{
	struct gk_lines *lines = &gk_warp_lines[gk_thread() / GK_WARP];

	u32 before = gk_read_desc(p, first, lines);
	gk_parse_stage(p, first, lines, before, ops);
	if (ops & GK_OP_CHECKSUM)
		gk_checksum_stage(p, first, lines);
	gk_find_stage(&lines->desc[gk_lane()]);
	if (ops & GK_OP_HASH)
		gk_hash_stage(p, lines);
	if (ops & GK_OP_FLOW)
		gk_state_stage(p, lines);
	if (ops & (GK_OP_ACL | GK_OP_LPM))
		gk_table_stage(p, lines, ops);
	if (ops & GK_OP_LITERALS)
		gk_text_stage(p, first, lines);
	gk_write_desc(p, first, lines);
}

/* gk_headers_warp does what p->ops asks for. */
GK_FN void gk_headers_warp(const struct gk_pass *p, u32 first) { gk_headers_run(p, first, p->ops); }

#endif
