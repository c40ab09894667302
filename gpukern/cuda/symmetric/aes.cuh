/* AES (FIPS 197) without tables: two blocks to a thread, in slices of bits. Word k of eight has bit k of all 32 bytes:
 * byte r of the word is row r of both states, with the columns of the first block at even bits and those of the second
 * one at odd bits. */
#ifndef MILLRACE_SY_AES_H
#define MILLRACE_SY_AES_H

#include "text.cuh"

enum { SY_SLICES = 8 };

/* sy_swap exchanges the bits of a that mask << shift selects with those of b that mask selects. */
GK_FN void sy_swap(u32 *a, u32 *b, u32 mask, u32 shift)
{
	u32 t = (*a >> shift ^ *b) & mask;
	*b ^= t;
	*a ^= t << shift;
}

/* sy_slice transposes eight words, the columns of two blocks in turn, to slices; it is its own inverse. */
GK_FN void sy_slice(u32 *q)
{
	SY_UNROLL
	for (int i = 0; i < SY_SLICES; i += 2)
		sy_swap(q + i, q + i + 1, 0x55555555, 1);
	SY_UNROLL
	for (int i = 0; i < SY_SLICES; i += 4) {
		sy_swap(q + i, q + i + 2, 0x33333333, 2);
		sy_swap(q + i + 1, q + i + 3, 0x33333333, 2);
	}
	SY_UNROLL
	for (int i = 0; i < 4; i++)
		sy_swap(q + i, q + i + 4, 0x0f0f0f0f, 4);
}

/* sy_substitute applies the S-box. The circuit is that of J. Boyar and R. Peralta, A small depth-16 circuit for the AES
 * S-box (2012): a linear layer, the inverse in GF(2^8) by way of GF(2^4), and a linear layer. */
GK_FN void sy_substitute(u32 *q)
{
	u32 x0 = q[7], x1 = q[6], x2 = q[5], x3 = q[4], x4 = q[3], x5 = q[2], x6 = q[1], x7 = q[0];

	u32 y14 = x3 ^ x5, y13 = x0 ^ x6, y9 = x0 ^ x3, y8 = x0 ^ x5, t0 = x1 ^ x2;
	u32 y1 = t0 ^ x7, y4 = y1 ^ x3, y12 = y13 ^ y14, y2 = y1 ^ x0, y5 = y1 ^ x6, y3 = y5 ^ y8;
	u32 t1 = x4 ^ y12, y15 = t1 ^ x5, y20 = t1 ^ x1, y6 = y15 ^ x7, y10 = y15 ^ t0, y11 = y20 ^ y9;
	u32 y7 = x7 ^ y11, y17 = y10 ^ y11, y19 = y10 ^ y8, y16 = t0 ^ y11, y21 = y13 ^ y16, y18 = x0 ^ y16;

	u32 t2 = y12 & y15, t4 = (y3 & y6) ^ t2, t6 = (y4 & x7) ^ t2, t7 = y13 & y16, t9 = (y5 & y1) ^ t7;
	u32 t11 = (y2 & y7) ^ t7, t12 = y9 & y11, t14 = (y14 & y17) ^ t12, t16 = (y8 & y10) ^ t12;
	u32 t21 = t4 ^ t14 ^ y20, t22 = t6 ^ t16 ^ y19, t23 = t9 ^ t14 ^ y21, t24 = t11 ^ t16 ^ y18;
	u32 t25 = t21 ^ t22, t26 = t21 & t23, t27 = t24 ^ t26, t29 = (t25 & t27) ^ t22, t30 = t23 ^ t24, t31 = t22 ^ t26;
	u32 t33 = (t31 & t30) ^ t24, t34 = t23 ^ t33, t35 = t27 ^ t33, t36 = t24 & t35, t37 = t36 ^ t34, t38 = t27 ^ t36;
	u32 t40 = t25 ^ (t29 & t38), t41 = t40 ^ t37, t42 = t29 ^ t33, t43 = t29 ^ t40, t44 = t33 ^ t37, t45 = t42 ^ t41;

	u32 z0 = t44 & y15, z1 = t37 & y6, z2 = t33 & x7, z3 = t43 & y16, z4 = t40 & y1, z5 = t29 & y7, z6 = t42 & y11;
	u32 z7 = t45 & y17, z8 = t41 & y10, z9 = t44 & y12, z10 = t37 & y3, z11 = t33 & y4, z12 = t43 & y13, z13 = t40 & y5;
	u32 z14 = t29 & y2, z15 = t42 & y9, z16 = t45 & y14, z17 = t41 & y8;

	u32 t46 = z15 ^ z16, t47 = z10 ^ z11, t48 = z5 ^ z13, t49 = z9 ^ z10, t50 = z2 ^ z12, t51 = z2 ^ z5, t52 = z7 ^ z8;
	u32 t53 = z0 ^ z3, t54 = z6 ^ z7, t55 = z16 ^ z17, t56 = z12 ^ t48, t57 = t50 ^ t53, t58 = z4 ^ t46, t59 = z3 ^ t54;
	u32 t60 = t46 ^ t57, t61 = z14 ^ t57, t62 = t52 ^ t58, t63 = t49 ^ t58, t64 = z4 ^ t59, t65 = t61 ^ t62, t66 = z1 ^ t63;
	u32 t67 = t64 ^ t65, s3 = t53 ^ t66;
	q[7] = t59 ^ t63;
	q[6] = ~(t64 ^ s3);
	q[5] = ~(t55 ^ t67);
	q[4] = s3;
	q[3] = t51 ^ t66;
	q[2] = t47 ^ t65;
	q[1] = ~(t56 ^ t62);
	q[0] = ~(t48 ^ t60);
}

/* sy_shift_rows moves row r by r columns, which are two bits each. */
GK_FN void sy_shift_rows(u32 *q)
{
	SY_UNROLL
	for (int k = 0; k < SY_SLICES; k++) {
		u32 v = q[k];
		q[k] = (v & 0x000000ff) | (v >> 2 & 0x00003f00) | (v << 6 & 0x0000c000) | (v >> 4 & 0x000f0000) |
		       (v << 4 & 0x00f00000) | (v >> 6 & 0x03000000) | (v << 2 & 0xfc000000);
	}
}

/* sy_mix_columns sets each row to 2a + 3b + c + d, which is 2(a+b) + b + (c+d), of it and those below it: a rotation of
 * eight bits is the next row. */
GK_FN void sy_mix_columns(u32 *q)
{
	u32 next[SY_SLICES], both[SY_SLICES];
	SY_UNROLL
	for (int k = 0; k < SY_SLICES; k++) {
		next[k] = gk_rotate(q[k], 8);
		both[k] = q[k] ^ next[k];
	}
	SY_UNROLL
	for (int k = 0; k < SY_SLICES; k++) {
		u32 twice = k == 0 ? both[7] : both[k - 1];
		if (k == 1 || k == 3 || k == 4) /* x^8 is x^4 + x^3 + x + 1 */
			twice ^= both[7];
		q[k] = twice ^ next[k] ^ gk_rotate(both[k], 16);
	}
}

GK_FN void sy_add_round(u32 *q, const u32 *round)
{
	struct gk_quad low = gk_table_quad(round), high = gk_table_quad(round + 4);
	SY_UNROLL
	for (int k = 0; k < 4; k++) {
		q[k] ^= low.w[k];
		q[4 + k] ^= high.w[k];
	}
}

/* sy_encrypt encrypts two blocks: words in turn, the lowest byte first. */
GK_FN void sy_encrypt(u32 *q, const struct sy_key *key, u32 rounds)
{
	sy_slice(q);
	sy_add_round(q, key->round);
	SY_LOOP
	for (u32 r = 1; r < rounds; r++) {
		sy_substitute(q);
		sy_shift_rows(q);
		sy_mix_columns(q);
		sy_add_round(q, key->round + SY_SLICES * r);
	}
	sy_substitute(q);
	sy_shift_rows(q);
	sy_add_round(q, key->round + SY_SLICES * rounds);
	sy_slice(q);
}

#endif
