/* AES-GCM (NIST SP 800-38D): a text to a warp. */
#include "aes.cuh"
#include "ghash.cuh"

/* Block 0 of the key stream hides the tag, and the text's begin behind it: the first chunk is a block shorter. A lane
 * has two blocks, and a chunk two passes. */
enum { SY_FIRST = SY_CHUNK - SY_BLOCK, SY_PAIR = 2 * SY_BLOCK, SY_PASSES = SY_CHUNK / (SY_PAIR * GK_WARP) };

/* sy_pairs encrypts the counters of a chunk: the lane's pair of each pass. */
GK_FN void sy_pairs(u32 stream[SY_PASSES][8], const struct sy_op *op, const struct sy_key *key, u32 rounds, u32 chunk)
{
	SY_LOOP
	for (u32 pass = 0; pass < SY_PASSES; pass++) {
		u32 pair[8], counter = 1 + 2 * (gk_lane() + GK_WARP * (pass + SY_PASSES * chunk)); /* 6.2: modulo 2^32 */
		SY_UNROLL
		for (int i = 0; i < 3; i++)
			pair[2 * i] = pair[2 * i + 1] = op->nonce[i];
		pair[6] = sy_reverse(counter);
		pair[7] = sy_reverse(counter + 1);
		sy_encrypt(pair, key, rounds);
		SY_UNROLL
		for (u32 to = 0; to < SY_PASSES; to++) /* a register has no address */
			SY_UNROLL
			for (int i = 0; i < 4; i++)
				if (to == pass) {
					stream[to][i] = pair[2 * i];
					stream[to][4 + i] = pair[2 * i + 1];
				}
	}
}

/* sy_mix_chunk adds the key stream of a chunk. */
GK_FN void sy_mix_chunk(const struct sy_part *part, u32 stream[SY_PASSES][8], u32 chunk)
{
	u32 lane = gk_lane(), end = 0; /* the last word of the pass before */
	SY_UNROLL
	for (u32 pass = 0; pass < SY_PASSES; pass++) {
		u32 before = gk_shfl(stream[pass][7], lane - 1), from = 0;
		i32 at = (i32)(SY_PAIR * (lane + GK_WARP * pass)) - (chunk == 0 ? SY_BLOCK : 0);
		if (lane == 0)
			before = end;
		if (at < 0) {
			from = 4;
			before = 0;
		}
		if (at < (i32)part->len)
			sy_mix<8>(part, at, stream[pass], from, before,
				  at + SY_PAIR >= (i32)part->len || (lane == GK_WARP - 1 && pass == SY_PASSES - 1));
		end = gk_shfl(stream[pass][7], GK_WARP - 1);
	}
}

GK_KERNEL(sy_gcm, struct sy_aead, SY_THREADS)
{
	GK_SHARED u32 room[SY_WARPS][SY_ROOM];
	u32 i = gk_block() * SY_WARPS + gk_thread() / GK_WARP;
	if (i >= p->n) /* the whole warp */
		return;
	struct sy_op op;
	sy_read(&op, p->ops, i);
	const struct sy_key *key = p->keys + op.key;
	u32 rounds = (u32)gk_load_u64(&key->rounds), hides[4], tag[4];
	u32 stream[SY_PASSES][8];
	sy_pairs(stream, &op, key, rounds, 0);
	SY_UNROLL
	for (int j = 0; j < 4; j++)
		hides[j] = gk_shfl(stream[0][j], 0);

	struct sy_ghash code;
	sy_ghash_start(&code, key);
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
				sy_pairs(stream, &op, key, rounds, chunk);
			sy_mix_chunk(&part, stream, chunk);
			gk_warp_sync();
		}
		sy_absorb_text(&code, &part, number + at / SY_BLOCK);
		if (!opens)
			sy_store(&part, ~0u);
	}
	sy_ghash_lengths(&code, &op);
	sy_ghash_end(tag, &code, &op, key, hides);
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
			sy_pairs(stream, &op, key, rounds, chunk);
		sy_mix_chunk(&part, stream, chunk);
		sy_store(&part, good);
	}
	sy_result(p, i, (SY_DONE & good) | (SY_FORGED & ~good));
}

/* aead.Image, as far as a GPU needs it. */
struct sy_image {
	u32 algorithm, rounds, unused[2];
	u32 round[15 * 4], hash[4], chacha[8];
};

struct sy_expansion {
	const struct sy_image *images;
	struct sy_key *keys;
	const u64 *places; /* of the keys that the images become */
	u32 n;
};

/* sy_expand makes keys of images: the round keys in slices, and the powers of H, a lane each. A key of ChaCha20 has
 * neither, and gets what nobody reads. */
GK_KERNEL(sy_expand, struct sy_expansion, GK_WARP)
{
	u32 i = gk_block(), lane = gk_lane();
	const struct sy_image *image = p->images + i;
	struct sy_key *key = p->keys + (u32)gk_load_u64(p->places + i);
	if (lane == 0)
		gk_store_u64(&key->rounds, image->rounds);
	if (lane < 8)
		key->chacha[lane] = image->chacha[lane];
	if (lane < 15) {
		u32 q[SY_SLICES];
		SY_UNROLL
		for (int c = 0; c < 4; c++)
			q[2 * c] = q[2 * c + 1] = image->round[4 * lane + (u32)c];
		sy_slice(q);
		SY_UNROLL
		for (int k = 0; k < SY_SLICES; k++)
			key->round[SY_SLICES * lane + (u32)k] = q[k];
	}
	u32 power[SY_ELEMENT];
	sy_element(power, image->hash);
	SY_LOOP
	for (u32 have = 1; have < GK_WARP; have *= 2) { /* lanes below have their powers */
		u32 lower[SY_ELEMENT], step[SY_ELEMENT], product[SY_ELEMENT];
		SY_UNROLL
		for (int k = 0; k < SY_ELEMENT; k++) {
			lower[k] = gk_shfl(power[k], lane - have);
			step[k] = gk_shfl(power[k], have - 1);
		}
		sy_ghash_mul(product, lower, step);
		SY_UNROLL
		for (int k = 0; k < SY_ELEMENT; k++)
			power[k] = lane >= have ? product[k] : power[k];
	}
	SY_UNROLL
	for (int k = 0; k < SY_ELEMENT; k++)
		key->power[SY_ELEMENT * lane + (u32)k] = power[k];
}
