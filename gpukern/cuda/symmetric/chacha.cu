/* ChaCha20-Poly1305 (RFC 8439 2.8): a text to a warp. */
#include "chacha.cuh"
#include "poly1305.cuh"

/* Block 0 of the key stream is the key of the code, and the text's begin behind it: the first chunk is a block
 * shorter, so that 32 lanes always have 32 blocks. */
enum { SY_FIRST = SY_CHUNK - SY_STREAM };

/* sy_mix_chunk adds the key stream of a chunk, whose lane has its block. */
GK_FN void sy_mix_chunk(const struct sy_part *part, const u32 *stream, u32 chunk)
{
	u32 lane = gk_lane(), before = gk_shfl(stream[15], lane - 1);
	i32 at = (i32)(lane * SY_STREAM) - (chunk == 0 ? SY_STREAM : 0);
	if (at == 0)
		before = 0;
	if (at >= 0 && at < (i32)part->len)
		sy_mix<16>(part, at, stream, 0, before, at + SY_STREAM >= (i32)part->len || lane == GK_WARP - 1);
}

GK_KERNEL(sy_chacha, struct sy_aead, SY_THREADS)
{
	GK_SHARED u32 room[SY_WARPS][SY_ROOM];
	u32 i = gk_block() * SY_WARPS + gk_thread() / GK_WARP, lane = gk_lane();
	if (i >= p->n) /* the whole warp */
		return;
	struct sy_op op;
	sy_read(&op, p->ops, i);
	u32 key[8], stream[16], secret[8], tag[4];
	struct gk_quad halves[2] = {gk_table_quad(p->keys[op.key].chacha), gk_table_quad(p->keys[op.key].chacha + 4)};
	SY_UNROLL
	for (int j = 0; j < 8; j++)
		key[j] = halves[j / 4].w[j & 3];
	sy_chacha_block(stream, key, op.nonce, lane);
	SY_UNROLL
	for (int j = 0; j < 8; j++)
		secret[j] = gk_shfl(stream[j], 0);

	struct sy_poly code;
	sy_poly_start(&code, secret);
	sy_absorb_aad(&code, p->mem + op.aad, op.aad_len);
	u8 *text = p->mem + op.text;
	u32 opens = p->flags & SY_OPEN, number = (op.aad_len + 15) / 16;
	u32 chunks = op.len <= SY_FIRST ? 1 : 1 + (op.len - SY_FIRST + SY_CHUNK - 1) / SY_CHUNK;
	struct sy_part part = sy_part(text, 0, room[gk_thread() / GK_WARP]);
	/* Sealing reads, encrypts and writes each chunk once. Opening reads all first, and what is forged is not decrypted. */
	SY_LOOP
	for (u32 chunk = 0, at = 0; chunk < chunks; at += part.len, chunk++) {
		part = sy_part(text + at, gk_min(op.len - at, chunk == 0 ? SY_FIRST : SY_CHUNK), part.room);
		sy_load(&part);
		if (!opens) {
			if (chunk > 0)
				sy_chacha_block(stream, key, op.nonce, chunk * GK_WARP + lane);
			sy_mix_chunk(&part, stream, chunk);
			gk_warp_sync();
		}
		sy_absorb_text(&code, &part, number + at / SY_BLOCK);
		if (!opens)
			sy_store(&part, ~0u);
	}
	sy_poly_lengths(&code, &op);
	sy_poly_end(tag, &code, &op, secret);
	if (!opens) {
		sy_tag(text + op.len, tag);
		sy_result(p, i, SY_DONE);
		return;
	}
	u32 good = sy_verify(text + op.len, tag);
	SY_LOOP
	for (u32 chunk = 0, at = 0; chunk < chunks; at += part.len, chunk++) {
		part = sy_part(text + at, gk_min(op.len - at, chunk == 0 ? SY_FIRST : SY_CHUNK), part.room);
		if (chunks > 1)
			sy_load(&part);
		if (chunk > 0)
			sy_chacha_block(stream, key, op.nonce, chunk * GK_WARP + lane);
		sy_mix_chunk(&part, stream, chunk);
		sy_store(&part, good);
	}
	sy_result(p, i, (SY_DONE & good) | (SY_FORGED & ~good));
}
