/* Poly1305 (RFC 8439 2.5) over the lanes of a warp: numbers modulo 2^130-5 in five digits of 26 bits. */
#ifndef MILLRACE_SY_POLY1305_H
#define MILLRACE_SY_POLY1305_H

#include "text.cuh"

enum { SY_DIGITS = 5, SY_DIGIT = 26, SY_DIGIT_MASK = (1 << SY_DIGIT) - 1 };

/* power is what the lane has of r^1 to r^32, by its number, far the 32nd. */
struct sy_poly {
	u32 sum[SY_DIGITS], power[SY_DIGITS], far[SY_DIGITS];
};

/* sy_poly_mul multiplies: digits of a are below 2^28, those of b below 2^27, those of the product below 2^26 and a
 * little. */
GK_FN void sy_poly_mul(u32 *product, const u32 *a, const u32 *b)
{
	u64 sum[SY_DIGITS];
	SY_UNROLL
	for (int i = 0; i < SY_DIGITS; i++) {
		sum[i] = 0;
		SY_UNROLL
		for (int j = 0; j < SY_DIGITS; j++) {
			u32 other = j <= i ? b[i - j] : 5 * b[i - j + SY_DIGITS]; /* 2^130 is 5 */
			sum[i] += (u64)a[j] * other;
		}
	}
	SY_UNROLL
	for (int i = 0; i < SY_DIGITS - 1; i++) {
		sum[i + 1] += sum[i] >> SY_DIGIT;
		product[i] = (u32)sum[i] & SY_DIGIT_MASK;
	}
	u64 low = product[0] + 5 * (sum[4] >> SY_DIGIT);
	product[4] = (u32)sum[4] & SY_DIGIT_MASK;
	product[0] = (u32)low & SY_DIGIT_MASK;
	product[1] += (u32)(low >> SY_DIGIT);
}

GK_FN void sy_poly_shfl(u32 *to, const u32 *from, u32 lane)
{
	SY_UNROLL
	for (int i = 0; i < SY_DIGITS; i++)
		to[i] = gk_shfl(from[i], lane);
}

/* sy_poly_digits splits 128 bits, with a bit above them. */
GK_FN void sy_poly_digits(u32 *to, const u32 *m, u32 above)
{
	to[0] = m[0] & SY_DIGIT_MASK;
	to[1] = gk_funnel(m[0], m[1], 26) & SY_DIGIT_MASK;
	to[2] = gk_funnel(m[1], m[2], 20) & SY_DIGIT_MASK;
	to[3] = gk_funnel(m[2], m[3], 14) & SY_DIGIT_MASK;
	to[4] = m[3] >> 8 | above << 24;
}

/* sy_poly_start sets a code up with the first half of its key, which all lanes have. */
GK_FN void sy_poly_start(struct sy_poly *code, const u32 *key)
{
	u32 clamped[4] = {key[0] & 0x0fffffff, key[1] & 0x0ffffffc, key[2] & 0x0ffffffc, key[3] & 0x0ffffffc}, lane = gk_lane();
	sy_poly_digits(code->power, clamped, 0);
	SY_LOOP
	for (u32 have = 1; have < GK_WARP; have *= 2) { /* lanes below have their powers */
		u32 lower[SY_DIGITS], step[SY_DIGITS], product[SY_DIGITS];
		sy_poly_shfl(lower, code->power, lane - have);
		sy_poly_shfl(step, code->power, have - 1);
		sy_poly_mul(product, lower, step);
		SY_UNROLL
		for (int i = 0; i < SY_DIGITS; i++)
			code->power[i] = lane >= have ? product[i] : code->power[i];
	}
	sy_poly_shfl(code->far, code->power, GK_WARP - 1);
	SY_UNROLL
	for (int i = 0; i < SY_DIGITS; i++)
		code->sum[i] = 0;
}

GK_FN void sy_absorb(struct sy_poly *code, const u32 *m)
{
	u32 digits[SY_DIGITS];
	sy_poly_digits(digits, m, 1);
	sy_poly_mul(code->sum, code->sum, code->far);
	SY_UNROLL
	for (int i = 0; i < SY_DIGITS; i++)
		code->sum[i] += digits[i];
}

/* sy_poly_lengths adds the last block. */
GK_FN void sy_poly_lengths(struct sy_poly *code, const struct sy_op *op)
{
	u32 m[4] = {op->aad_len, 0, op->len, 0};
	if (((sy_count(op) - 1) & (GK_WARP - 1)) == gk_lane())
		sy_absorb(code, m);
}

/* sy_poly_end sets all lanes' tag to the code, with the second half of the key. */
GK_FN void sy_poly_end(u32 *tag, struct sy_poly *code, const struct sy_op *op, const u32 *key)
{
	u32 rest[SY_DIGITS];
	sy_poly_shfl(rest, code->power, sy_rest(sy_count(op)) - 1);
	sy_poly_mul(code->sum, code->sum, rest);
	u64 sum[SY_DIGITS];
	SY_UNROLL
	for (int i = 0; i < SY_DIGITS; i++) {
		u32 v = code->sum[i]; /* 32 of them are below 2^32 */
		SY_UNROLL
		for (u32 step = GK_WARP / 2; step > 0; step /= 2)
			v += gk_shfl(v, gk_lane() ^ step);
		sum[i] = v;
	}
	SY_UNROLL
	for (int times = 0; times < 3; times++) { /* the third carries what the second has folded */
		SY_UNROLL
		for (int i = 0; i < SY_DIGITS - 1; i++) {
			sum[i + 1] += sum[i] >> SY_DIGIT;
			sum[i] &= SY_DIGIT_MASK;
		}
		sum[0] += 5 * (sum[4] >> SY_DIGIT);
		sum[4] &= SY_DIGIT_MASK;
	}
	/* The sum is below 2^130: once less the modulus, where that leaves no borrow. */
	u64 over[SY_DIGITS], carry = 5;
	SY_UNROLL
	for (int i = 0; i < SY_DIGITS; i++) {
		over[i] = sum[i] + carry;
		carry = over[i] >> SY_DIGIT;
		over[i] &= SY_DIGIT_MASK;
	}
	u64 reduce = 0 - carry;
	SY_UNROLL
	for (int i = 0; i < SY_DIGITS; i++)
		sum[i] ^= (sum[i] ^ over[i]) & reduce;
	u64 low = sum[0] | sum[1] << 26 | sum[2] << 52, high = sum[2] >> 12 | sum[3] << 14 | sum[4] << 40;
	u32 words[4] = {(u32)low, (u32)(low >> 32), (u32)high, (u32)(high >> 32)};
	carry = 0;
	SY_UNROLL
	for (int i = 0; i < 4; i++) {
		carry += (u64)words[i] + key[4 + i];
		tag[i] = (u32)carry;
		carry >>= 32;
	}
}

#endif
