/* GHASH (NIST SP 800-38D 6.4) over the lanes of a warp. An element of GF(2^128) is four words, the highest first: the
 * coefficient of x^0 is the highest bit of the first one.
 *
 * There is no carry-less product of words on a GPU. Integer products of words of which only every fourth bit counts are
 * such products, since eight ones at most meet in a place, and their sum stays within its four bits. */
#ifndef MILLRACE_SY_GHASH_H
#define MILLRACE_SY_GHASH_H

#include "text.cuh"

enum { SY_ELEMENT = 4 };

struct sy_ghash {
	u32 sum[SY_ELEMENT], far[SY_ELEMENT]; /* far is the 32nd power of the key */
};

/* sy_clmul is the product of two words as polynomials over GF(2). */
GK_FN u64 sy_clmul(u32 a, u32 b)
{
	u64 product = 0;
	u32 x[4], y[4];
	SY_UNROLL
	for (int i = 0; i < 4; i++) {
		x[i] = a & 0x11111111u << i;
		y[i] = b & 0x11111111u << i;
	}
	SY_UNROLL
	for (int i = 0; i < 4; i++) {
		u64 sum = 0;
		SY_UNROLL
		for (int j = 0; j < 4; j++)
			sum ^= (u64)x[j] * y[(i - j) & 3];
		product |= sum & 0x1111111111111111u << i;
	}
	return product;
}

/* sy_clmul64 multiplies two pairs of words, the higher one first, by Karatsuba's formula. */
GK_FN void sy_clmul64(u64 *high, u64 *low, const u32 *a, const u32 *b)
{
	u64 h = sy_clmul(a[0], b[0]), l = sy_clmul(a[1], b[1]);
	u64 middle = sy_clmul(a[0] ^ a[1], b[0] ^ b[1]) ^ h ^ l;
	*high = h ^ middle >> 32;
	*low = l ^ middle << 32;
}

GK_FN void sy_ghash_mul(u32 *product, const u32 *a, const u32 *b)
{
	u64 h[2], l[2], m[2];
	u32 fold_a[2] = {a[0] ^ a[2], a[1] ^ a[3]}, fold_b[2] = {b[0] ^ b[2], b[1] ^ b[3]};
	sy_clmul64(h, h + 1, a, b);
	sy_clmul64(l, l + 1, a + 2, b + 2);
	sy_clmul64(m, m + 1, fold_a, fold_b);
	m[0] ^= h[0] ^ l[0];
	m[1] ^= h[1] ^ l[1];
	h[1] ^= m[0];
	l[0] ^= m[1];
	/* 255 bits, the coefficient of x^0 in the highest: one to the left, so that the upper half has those below x^128. */
	h[0] = h[0] << 1 | h[1] >> 63;
	h[1] = h[1] << 1 | l[0] >> 63;
	l[0] = l[0] << 1 | l[1] >> 63;
	l[1] <<= 1;
	/* x^128 is x^7 + x^2 + x + 1; what falls off at the right begins at x^128 again. */
	l[0] ^= l[1] << 63 ^ l[1] << 62 ^ l[1] << 57;
	h[0] ^= l[0] ^ l[0] >> 1 ^ l[0] >> 2 ^ l[0] >> 7;
	h[1] ^= l[1] ^ (l[1] >> 1 | l[0] << 63) ^ (l[1] >> 2 | l[0] << 62) ^ (l[1] >> 7 | l[0] << 57);
	product[0] = (u32)(h[0] >> 32);
	product[1] = (u32)h[0];
	product[2] = (u32)(h[1] >> 32);
	product[3] = (u32)h[1];
}

GK_FN u32 sy_reverse(u32 v) { return gk_permute(v, 0, 0x0123); }

/* sy_element reads the words of a block. */
GK_FN void sy_element(u32 *to, const u32 *m)
{
	SY_UNROLL
	for (int i = 0; i < SY_ELEMENT; i++)
		to[i] = sy_reverse(m[i]);
}

GK_FN void sy_power(u32 *to, const struct sy_key *key, u32 number)
{
	struct gk_quad q = gk_table_quad(key->power + SY_ELEMENT * (number - 1));
	SY_UNROLL
	for (int i = 0; i < SY_ELEMENT; i++)
		to[i] = q.w[i];
}

GK_FN void sy_ghash_start(struct sy_ghash *code, const struct sy_key *key)
{
	sy_power(code->far, key, GK_WARP);
	SY_UNROLL
	for (int i = 0; i < SY_ELEMENT; i++)
		code->sum[i] = 0;
}

GK_FN void sy_absorb(struct sy_ghash *code, const u32 *m)
{
	u32 element[SY_ELEMENT];
	sy_element(element, m);
	sy_ghash_mul(code->sum, code->sum, code->far);
	SY_UNROLL
	for (int i = 0; i < SY_ELEMENT; i++)
		code->sum[i] ^= element[i];
}

/* sy_ghash_lengths adds the last block: numbers of bits of 64 bits each, the highest byte first. */
GK_FN void sy_ghash_lengths(struct sy_ghash *code, const struct sy_op *op)
{
	u32 m[4] = {0, sy_reverse(8 * op->aad_len), sy_reverse(op->len >> 29), sy_reverse(8 * op->len)};
	if (((sy_count(op) - 1) & (GK_WARP - 1)) == gk_lane())
		sy_absorb(code, m);
}

/* sy_ghash_end sets all lanes' tag to the code, with the block that hides it. */
GK_FN void sy_ghash_end(u32 *tag, struct sy_ghash *code, const struct sy_op *op, const struct sy_key *key, const u32 *hides)
{
	u32 rest[SY_ELEMENT];
	sy_power(rest, key, sy_rest(sy_count(op)));
	sy_ghash_mul(code->sum, code->sum, rest);
	SY_UNROLL
	for (int i = 0; i < SY_ELEMENT; i++) {
		u32 v = code->sum[i];
		SY_UNROLL
		for (u32 step = GK_WARP / 2; step > 0; step /= 2)
			v ^= gk_shfl(v, gk_lane() ^ step);
		tag[i] = sy_reverse(v) ^ hides[i];
	}
}

#endif
