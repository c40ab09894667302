/* A part of a text in the shared memory of its warp, and codes over whole texts.
 *
 * A text lies anywhere in memory, a warp reads and writes it by sixteen bytes a lane on boundaries of sixteen. In shared
 * memory its bytes lie as they do in memory: skip bytes of others come first. What an address or a branch depends on is
 * lengths and places, which are public, and never on what a text has. */
#ifndef MILLRACE_SY_TEXT_H
#define MILLRACE_SY_TEXT_H

#include "../gk.h"

#ifdef GK_HOST
#define SY_UNROLL
#define SY_LOOP
#else
#define SY_UNROLL _Pragma("unroll")
#define SY_LOOP   _Pragma("unroll 1")
#endif

enum {
	SY_WARPS = 4,
	SY_THREADS = SY_WARPS * GK_WARP,
	SY_BLOCK = 16,     /* bytes of a block of AES, and of both codes */
	SY_CHUNK = 2048,   /* bytes of a text that shared memory holds at once */
	SY_ROOM = 552,     /* words for them, see sy_at */
	SY_DONE = 1,       /* aead.Done */
	SY_FORGED = 2,     /* aead.Forged */
};

enum { SY_OPEN = 1 }; /* a flag of struct sy_aead */

/* aead.Op: all that steers is read as words of 64 bits with the scope of the system, which the analysis of the
 * machine code takes for public. */
struct sy_op {
	u32 nonce[3], text, len, aad, key, aad_len;
};

/* A key as kernels have it: see sy_expand. */
struct sy_key {
	u64 rounds, unused;
	u32 round[15 * 8]; /* of AES, in slices of bits, see aes.cuh */
	u32 chacha[8];
	u32 power[GK_WARP * 4]; /* H, H^2 and so on of GHASH */
};

struct sy_aead {
	u8 *mem;
	const u64 *ops;
	const struct sy_key *keys;
	u8 *results;
	u32 n, flags;
};

GK_FN void sy_read(struct sy_op *op, const u64 *ops, u32 i)
{
	const u64 *at = ops + 5 * (size_t)i;
	u64 w[5];
	SY_UNROLL
	for (int j = 0; j < 5; j++)
		w[j] = gk_load_u64(at + j);
	op->nonce[0] = (u32)w[0];
	op->nonce[1] = (u32)(w[0] >> 32);
	op->nonce[2] = (u32)w[1];
	op->text = (u32)w[2];
	op->len = (u32)(w[2] >> 32);
	op->aad = (u32)w[3];
	op->key = (u32)(w[3] >> 32);
	op->aad_len = (u32)w[4] & 0xffff;
}

/* A part of a text: len bytes at at, with their first quad's skip bytes before them. */
struct sy_part {
	u8 *at;
	u32 len, skip;
	u32 *room;
};

/* sy_at spreads words over the banks: lanes that read every eighth or sixteenth word meet in none. */
GK_FN u32 sy_at(u32 word) { return word + (word >> 4); }

GK_FN struct sy_part sy_part(u8 *at, u32 len, u32 *room)
{
	struct sy_part p;
	p.skip = (u32)(uintptr_t)at & 15;
	p.at = at;
	p.len = len;
	p.room = room;
	return p;
}

GK_FN u32 sy_quads(const struct sy_part *p) { return (p->skip + p->len + 15) / 16; }

/* sy_load brings a part to shared memory. Four loads of a lane are under way at once. */
GK_FN void sy_load(const struct sy_part *p)
{
	const u8 *base = p->at - p->skip;
	u32 quads = sy_quads(p), lane = gk_lane();
	gk_warp_sync(); /* nobody reads what was there */
	SY_LOOP
	for (u32 first = 0; first < quads; first += 4 * GK_WARP) {
		struct gk_quad q[4];
		SY_UNROLL
		for (u32 j = 0; j < 4; j++) {
			u32 i = first + j * GK_WARP + lane;
			q[j].w[0] = q[j].w[1] = q[j].w[2] = q[j].w[3] = 0;
			if (i < quads)
				q[j] = gk_load_quad(gk_fresh(base + 16 * (size_t)i));
		}
		SY_UNROLL
		for (u32 j = 0; j < 4; j++) {
			u32 i = first + j * GK_WARP + lane;
			if (i >= quads)
				continue;
			SY_UNROLL
			for (u32 k = 0; k < 4; k++)
				p->room[sy_at(4 * i + k)] = q[j].w[k];
		}
	}
	gk_warp_sync();
}

/* sy_store writes a part back, all bytes anded with mask, and no byte beside it. */
GK_FN void sy_store(const struct sy_part *p, u32 mask)
{
	u8 *base = p->at - p->skip;
	u32 quads = sy_quads(p), end = p->skip + p->len;
	gk_warp_sync();
	SY_LOOP
	for (u32 i = gk_lane(); i < quads; i += GK_WARP) {
		struct gk_quad q;
		SY_UNROLL
		for (u32 k = 0; k < 4; k++)
			q.w[k] = p->room[sy_at(4 * i + k)] & mask;
		if (16 * i >= p->skip && 16 * i + 16 <= end) {
			gk_store_quad(base + 16 * (size_t)i, q);
			continue;
		}
		SY_UNROLL
		for (u32 b = 0; b < 16; b++)
			if (16 * i + b >= p->skip && 16 * i + b < end)
				gk_store_u8(base + 16 * (size_t)i + b, q.w[b / 4] >> 8 * (b & 3) & 0xff);
	}
	gk_warp_sync();
}

/* sy_block reads sixteen bytes of a part from its block i on, with zeros behind its end. */
GK_FN void sy_block(u32 *m, const struct sy_part *p, u32 i)
{
	u32 word = p->skip / 4 + 4 * i, select = 0x3210 + (p->skip & 3) * 0x1111, left = p->len - SY_BLOCK * i;
	u32 low = p->room[sy_at(word)];
	SY_UNROLL
	for (u32 k = 0; k < 4; k++) {
		u32 high = p->room[sy_at(word + k + 1)];
		m[k] = gk_permute(low, high, select);
		low = high;
		if (left < 4 * k + 4)
			m[k] = left <= 4 * k ? 0 : m[k] & ((1u << 8 * (left - 4 * k)) - 1);
	}
}

/* sy_mix adds words of a key stream to a part, from byte at on, a multiple of 16: those from word from to the N-th.
 * before is the word of the stream before them, and 0 where there is none; the lane that has the end of the
 * stream adds the rest of its last word. Lanes add whole words in the places of their own. */
template <int N> GK_FN void sy_mix(const struct sy_part *p, i32 at, const u32 *stream, u32 from, u32 before, bool ends)
{
	u32 shift = p->skip & 3, select = 0x7654 - shift * 0x1111;
	i32 word = (i32)(p->skip / 4) + at / 4;
	SY_UNROLL
	for (u32 k = 0; k < N; k++) {
		u32 low = k == 0 || k == from ? before : stream[k == 0 ? 0 : k - 1];
		if (k >= from)
			p->room[sy_at((u32)(word + (i32)k))] ^= gk_permute(low, stream[k], select);
	}
	if (ends && shift != 0)
		p->room[sy_at((u32)(word + N))] ^= gk_permute(stream[N - 1], 0, select);
}

/* Codes: the message is the associated data, the text, and their lengths, each in whole blocks. The lanes take the
 * blocks in turn, multiply what they have by the key's 32nd power for each of theirs, and at the end by the power that
 * is left. M is sy_poly or sy_ghash. */

/* sy_count is the number of blocks of a message. */
GK_FN u32 sy_count(const struct sy_op *op) { return (op->aad_len + 15) / 16 + (op->len + 15) / 16 + 1; }

template <class M> GK_FN void sy_absorb_aad(M *code, const u8 *aad, u32 len)
{
	SY_LOOP
	for (u32 i = gk_lane(); SY_BLOCK * i < len; i += GK_WARP) {
		u32 m[4] = {0, 0, 0, 0};
		SY_UNROLL
		for (u32 b = 0; b < SY_BLOCK; b++)
			if (SY_BLOCK * i + b < len)
				m[b / 4] |= gk_load_u8(aad + SY_BLOCK * i + b) << 8 * (b & 3);
		sy_absorb(code, m);
	}
}

/* sy_absorb_text adds a part, whose first block is the one of that number in the message. */
template <class M> GK_FN void sy_absorb_text(M *code, const struct sy_part *p, u32 number)
{
	SY_LOOP
	for (u32 i = (gk_lane() - number) & (GK_WARP - 1); SY_BLOCK * i < p->len; i += GK_WARP) {
		u32 m[4];
		sy_block(m, p, i);
		sy_absorb(code, m);
	}
}

/* sy_rest is the power that a lane's sum is multiplied by at the end: 1 to 32. Lanes without a block have 0 times any. */
GK_FN u32 sy_rest(u32 blocks)
{
	u32 lane = gk_lane();
	if (lane >= blocks)
		return 1;
	return blocks - (lane + ((blocks - 1 - lane) & ~(u32)(GK_WARP - 1)));
}

/* sy_tag writes a tag of sixteen bytes behind a text. */
GK_FN void sy_tag(u8 *at, const u32 *tag)
{
	u32 lane = gk_lane(), w = tag[0];
	SY_UNROLL
	for (u32 k = 1; k < 4; k++)
		w = lane / 4 == k ? tag[k] : w;
	if (lane < SY_BLOCK)
		gk_store_u8(at + lane, w >> 8 * (lane & 3) & 0xff);
}

/* sy_verify compares a tag with the one behind a text, in a time that depends on neither: all ones if they are equal. */
GK_FN u32 sy_verify(const u8 *at, const u32 *tag)
{
	u32 lane = gk_lane(), w = tag[0], differs = 0;
	SY_UNROLL
	for (u32 k = 1; k < 4; k++)
		w = lane / 4 == k ? tag[k] : w;
	if (lane < SY_BLOCK)
		differs = gk_load_u8(at + lane) ^ (w >> 8 * (lane & 3) & 0xff);
	u32 all = gk_ballot(differs != 0);
	return (u32)((i32)((all | (0 - all)) >> 31) - 1);
}

GK_FN void sy_result(const struct sy_aead *p, u32 i, u32 result)
{
	if (gk_lane() == 0)
		gk_store_u8(p->results + i, result);
}

#endif
