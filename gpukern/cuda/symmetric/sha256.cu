/* SHA-256 (FIPS 180-4) and HMAC with it (RFC 2104): a message to a thread. The lanes of a warp read for each other, so
 * that memory is read in pieces of 128 bytes. */
#include "text.cuh"

enum {
	SY_STAGE = 128,                 /* bytes of each message at a time */
	SY_STAGE_QUADS = SY_STAGE / 16 + 1,
	SY_STRIDE = 4 * SY_STAGE_QUADS + 1, /* words of a message: odd, so that lanes meet in no bank */
	SY_WORDS = 8,                   /* of a sum */
};

enum { SY_KEYED = 1, SY_VERIFY = 2 }; /* flags of struct sy_sums */

/* The states of SHA-256 behind the first block of the inner and the outer hash. */
struct sy_hmac_key {
	u32 inner[SY_WORDS], outer[SY_WORDS];
};

struct sy_sums {
	u8 *mem;
	const u64 *ops; /* digest.Op */
	const struct sy_hmac_key *keys;
	u8 *results;
	u32 n, flags;
};

GK_CONST u32 sy_sha256_k[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
	0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
	0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
	0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
	0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
	0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

/* sy_compress is 6.2.2. The message schedule takes the place of the block. */
GK_FN void sy_compress(u32 *state, u32 *w)
{
	u32 s[SY_WORDS];
	SY_UNROLL
	for (int i = 0; i < SY_WORDS; i++)
		s[i] = state[i];
	SY_UNROLL
	for (int t = 0; t < 64; t++) {
		u32 *word = w + (t & 15);
		if (t >= 16) {
			u32 a = w[(t + 1) & 15], b = w[(t + 14) & 15];
			*word += (gk_rotate(a, 7) ^ gk_rotate(a, 18) ^ a >> 3) + w[(t + 9) & 15] + (gk_rotate(b, 17) ^ gk_rotate(b, 19) ^ b >> 10);
		}
		u32 e = s[4], a = s[0];
		u32 t1 = s[7] + (gk_rotate(e, 6) ^ gk_rotate(e, 11) ^ gk_rotate(e, 25)) + ((e & s[5]) ^ (~e & s[6])) + sy_sha256_k[t] + *word;
		u32 t2 = (gk_rotate(a, 2) ^ gk_rotate(a, 13) ^ gk_rotate(a, 22)) + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
		SY_UNROLL
		for (int i = 7; i > 0; i--)
			s[i] = s[i - 1];
		s[4] += t1;
		s[0] = t1 + t2;
	}
	SY_UNROLL
	for (int i = 0; i < SY_WORDS; i++)
		state[i] += s[i];
}

/* sy_padded is a word of a message that is padded from its end on (5.1.1), without the length: left bytes of the
 * message are at the word and behind. */
GK_FN u32 sy_padded(u32 word, i32 left)
{
	if (left >= 4)
		return word;
	if (left < 0)
		return 0;
	u32 shift = 8 * (u32)left;
	return (word & ~(~0u >> shift)) | 0x80000000u >> shift;
}

struct sy_sum {
	u32 data, len, sum, key, sum_len;
};

/* sy_stage reads the stage of all lanes' messages. */
GK_FN void sy_stage(u32 (*room)[SY_STRIDE], const u8 *mem, const struct sy_sum *op, u32 at)
{
	gk_warp_sync();
	SY_LOOP
	for (u32 first = 0; first < SY_STAGE_QUADS * GK_WARP; first += 3 * GK_WARP) {
		struct gk_quad q[3];
		u32 message[3], quad[3];
		bool there[3];
		SY_UNROLL
		for (u32 j = 0; j < 3; j++) {
			u32 i = first + j * GK_WARP + gk_lane();
			message[j] = i / SY_STAGE_QUADS;
			quad[j] = i % SY_STAGE_QUADS;
			u32 data = gk_shfl(op->data, message[j]), len = gk_shfl(op->len, message[j]);
			const u8 *from = mem + data + at;
			u32 skip = (u32)(uintptr_t)from & 15;
			there[j] = at < len && 16 * quad[j] < skip + (len - at);
			q[j].w[0] = q[j].w[1] = q[j].w[2] = q[j].w[3] = 0;
			if (there[j])
				q[j] = gk_load_quad(gk_fresh(from - skip + 16 * quad[j]));
		}
		SY_UNROLL
		for (u32 j = 0; j < 3; j++)
			SY_UNROLL
			for (u32 k = 0; k < 4; k++)
				if (there[j])
					room[message[j]][4 * quad[j] + k] = q[j].w[k];
	}
	gk_warp_sync();
}

/* sy_finish writes or compares the sums of a warp, a message after the other, a byte to a lane, and returns what
 * became of the lane's own. */
GK_FN u32 sy_finish(u8 *mem, const struct sy_sum *op, const u32 *state, u32 messages, bool verifies)
{
	u32 lane = gk_lane(), result = SY_DONE;
	SY_LOOP
	for (u32 m = 0; m < messages; m++) {
		u32 at = gk_shfl(op->sum, m), len = gk_shfl(op->sum_len, m), word = 0, differs = 0;
		SY_UNROLL
		for (u32 k = 0; k < SY_WORDS; k++) {
			u32 v = gk_shfl(state[k], m);
			word = lane / 4 == k ? v : word;
		}
		u32 byte = word >> 8 * (3 - (lane & 3)) & 0xff;
		if (lane < len) {
			if (verifies)
				differs = gk_load_u8(mem + at + lane) ^ byte;
			else
				gk_store_u8(mem + at + lane, byte);
		}
		u32 all = gk_ballot(differs != 0);
		if (m == lane)
			result += (all | (0 - all)) >> 31; /* digest.Wrong follows digest.Done */
	}
	return result;
}

GK_KERNEL(sy_sha256, struct sy_sums, SY_THREADS)
{
	GK_SHARED u32 rooms[SY_WARPS][GK_WARP][SY_STRIDE];
	u32(*room)[SY_STRIDE] = rooms[gk_thread() / GK_WARP];
	u32 first = gk_block() * SY_THREADS + gk_thread() / GK_WARP * GK_WARP, i = first + gk_lane();
	if (first >= p->n) /* the whole warp */
		return;
	bool keyed = p->flags & SY_KEYED, mine = i < p->n;
	struct sy_sum op = {0, 0, 0, 0, 0};
	u32 blocks = 0, state[SY_WORDS] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
	const struct sy_hmac_key *key = p->keys;
	if (mine) {
		u64 w[3];
		SY_UNROLL
		for (int j = 0; j < 3; j++)
			w[j] = gk_load_u64(p->ops + 3 * (size_t)i + j);
		op.data = (u32)w[0];
		op.len = (u32)(w[0] >> 32);
		op.sum = (u32)w[1];
		op.key = (u32)(w[1] >> 32);
		op.sum_len = (u32)w[2] & 0xff;
		blocks = (op.len >> 6) + ((op.len & 63) < 56 ? 1 : 2);
		key += op.key;
	}
	if (keyed) {
		struct gk_quad halves[2] = {gk_table_quad(key->inner), gk_table_quad(key->inner + 4)};
		SY_UNROLL
		for (int k = 0; k < SY_WORDS; k++)
			state[k] = halves[k / 4].w[k & 3];
	}
	u64 bits = 8 * ((u64)op.len + (keyed ? 64 : 0));
	u32 select = 0x0123 + ((u32)(uintptr_t)(p->mem + op.data) & 3) * 0x1111, word = ((u32)(uintptr_t)(p->mem + op.data) & 15) / 4;
	SY_LOOP
	for (u32 block = 0; gk_ballot(block < blocks); block++) {
		if ((block & 1) == 0)
			sy_stage(room, p->mem, &op, 64 * block);
		if (block >= blocks)
			continue;
		u32 w[16];
		const u32 *from = room[gk_lane()] + word + 16 * (block & 1);
		i32 left = (i32)(op.len - 64 * block);
		SY_UNROLL
		for (int t = 0; t < 16; t++)
			w[t] = sy_padded(gk_permute(from[t], from[t + 1], select), left - 4 * t);
		if (block == blocks - 1) {
			w[14] = (u32)(bits >> 32);
			w[15] = (u32)bits;
		}
		sy_compress(state, w);
	}
	if (keyed) {
		struct gk_quad halves[2] = {gk_table_quad(key->outer), gk_table_quad(key->outer + 4)};
		u32 w[16] = {0};
		SY_UNROLL
		for (int k = 0; k < SY_WORDS; k++) {
			w[k] = state[k];
			state[k] = halves[k / 4].w[k & 3];
		}
		w[8] = 0x80000000;
		w[15] = 8 * (64 + 32);
		sy_compress(state, w);
	}
	u32 result = sy_finish(p->mem, &op, state, gk_min(p->n - first, GK_WARP), p->flags & SY_VERIFY);
	if (mine)
		gk_store_u8(p->results + i, result);
}
