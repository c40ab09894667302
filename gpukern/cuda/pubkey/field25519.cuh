/* Numbers modulo p = 2^255 - 19, as eight words: any number below 2^256 stands for its residue, and only fe_lower
 * makes it the least one. 2^256 counts 38. */
#ifndef MILLRACE_PK_FIELD25519_H
#define MILLRACE_PK_FIELD25519_H

#include "limbs.cuh"

enum { FE = 8 };

/* fe_wrap adds 38*v, v below 2^26, to r. A second carry leaves less than 38 * 2^26 in the lowest word. */
GK_FN void fe_wrap(u32 *r, u32 v)
{
	u32 cc = 0;
	r[0] = pk_add_cc(r[0], v * 38, &cc);
	PK_UNROLL
	for (int j = 1; j < FE; j++)
		r[j] = pk_addc_cc(r[j], 0, &cc);
	r[0] += pk_addc(0, 0, &cc) * 38;
}

GK_FN void fe_add(u32 *r, const u32 *a, const u32 *b)
{
	u32 cc = 0;
	r[0] = pk_add_cc(a[0], b[0], &cc);
	PK_UNROLL
	for (int j = 1; j < FE; j++)
		r[j] = pk_addc_cc(a[j], b[j], &cc);
	fe_wrap(r, pk_addc(0, 0, &cc));
}

GK_FN void fe_sub(u32 *r, const u32 *a, const u32 *b)
{
	u32 cc = 0;
	r[0] = pk_sub_cc(a[0], b[0], &cc);
	PK_UNROLL
	for (int j = 1; j < FE; j++)
		r[j] = pk_subc_cc(a[j], b[j], &cc);
	u32 less = pk_subc(0, 0, &cc) & 38;
	r[0] = pk_sub_cc(r[0], less, &cc);
	PK_UNROLL
	for (int j = 1; j < FE; j++)
		r[j] = pk_subc_cc(r[j], 0, &cc);
	r[0] -= pk_subc(0, 0, &cc) & 38; /* the lowest word is above 2^32 - 38 then */
}

/* fe_row adds a*b*2^(32i) to the accumulators: e[j] counts 2^(32j), o[j] 2^(32(j+1)). */
template <int I> GK_FN void fe_row(u32 *e, u32 *o, const u32 *a, u32 b)
{
	u32 cc = 0;
	u32 *even = I % 2 ? o + I - 1 : e + I, *odd = I % 2 ? e + I + 1 : o + I;
	pk_chain<FE, 0>(even, pk_factor<FE>{a}, b, &cc);
	even[FE] = pk_addc(even[FE], 0, &cc);
	pk_chain<FE, 1>(odd, pk_factor<FE>{a}, b, &cc);
	if (I < FE - 1) /* the product ends there */
		odd[FE] = pk_addc(odd[FE], 0, &cc);
}

/* fe_reduce sets r to the sum of 16 words. */
GK_FN void fe_reduce(u32 *r, const u32 *w)
{
	u32 cc = 0, top;
	PK_UNROLL
	for (int j = 0; j < FE; j++)
		r[j] = w[j];
	r[0] = pk_mad_lo_cc(w[FE], 38, r[0], &cc);
	r[1] = pk_madc_hi_cc(w[FE], 38, r[1], &cc);
	PK_UNROLL
	for (int j = 2; j < FE; j += 2) {
		r[j] = pk_madc_lo_cc(w[FE + j], 38, r[j], &cc);
		r[j + 1] = pk_madc_hi_cc(w[FE + j], 38, r[j + 1], &cc);
	}
	top = pk_addc(0, 0, &cc);
	r[1] = pk_mad_lo_cc(w[FE + 1], 38, r[1], &cc);
	PK_UNROLL
	for (int j = 2; j < FE; j += 2) {
		r[j] = pk_madc_hi_cc(w[FE + j - 1], 38, r[j], &cc);
		r[j + 1] = pk_madc_lo_cc(w[FE + j + 1], 38, r[j + 1], &cc);
	}
	top = pk_madc_hi(w[2 * FE - 1], 38, top, &cc);
	fe_wrap(r, top);
}

/* fe_mul sets r to a*b; r may be one of them. */
GK_FN void fe_mul(u32 *r, const u32 *a, const u32 *b)
{
	u32 e[2 * FE], o[2 * FE], cc = 0;
	pk_zero<2 * FE>(e);
	pk_zero<2 * FE>(o);
	fe_row<0>(e, o, a, b[0]);
	fe_row<1>(e, o, a, b[1]);
	fe_row<2>(e, o, a, b[2]);
	fe_row<3>(e, o, a, b[3]);
	fe_row<4>(e, o, a, b[4]);
	fe_row<5>(e, o, a, b[5]);
	fe_row<6>(e, o, a, b[6]);
	fe_row<7>(e, o, a, b[7]);
	e[1] = pk_add_cc(e[1], o[0], &cc);
	PK_UNROLL
	for (int j = 2; j < 2 * FE; j++)
		e[j] = pk_addc_cc(e[j], o[j - 1], &cc);
	fe_reduce(r, e);
}

GK_FN void fe_square(u32 *r, const u32 *a) { fe_mul(r, a, a); }

/* fe_scale sets r to a*v, v below 2^20. */
GK_FN void fe_scale(u32 *r, const u32 *a, u32 v)
{
	u32 cc = 0;
	u32 hi[FE];
	PK_UNROLL
	for (int j = 0; j < FE; j++)
		hi[j] = (u32)((u64)a[j] * v >> 32);
	u32 lo[FE];
	PK_UNROLL
	for (int j = 0; j < FE; j++)
		lo[j] = a[j] * v;
	r[0] = lo[0];
	r[1] = pk_add_cc(lo[1], hi[0], &cc);
	PK_UNROLL
	for (int j = 2; j < FE; j++)
		r[j] = pk_addc_cc(lo[j], hi[j - 1], &cc);
	fe_wrap(r, pk_addc(hi[FE - 1], 0, &cc));
}

/* fe_lower makes r the least residue. */
GK_FN void fe_lower(u32 *r)
{
	u32 cc = 0, s[FE], top = r[FE - 1] >> 31;
	r[FE - 1] &= 0x7fffffff;
	r[0] = pk_add_cc(r[0], top * 19, &cc);
	PK_UNROLL
	for (int j = 1; j < FE; j++)
		r[j] = pk_addc_cc(r[j], 0, &cc);
	/* r is below 2^255 + 19: r + 19 has bit 255 if r is p or more, and is then r - p without it. */
	s[0] = pk_add_cc(r[0], 19, &cc);
	PK_UNROLL
	for (int j = 1; j < FE; j++)
		s[j] = pk_addc_cc(r[j], 0, &cc);
	u32 reach = 0 - (s[FE - 1] >> 31);
	s[FE - 1] &= 0x7fffffff;
	pk_choose<FE>(r, s, reach);
}

/* Powers with a fixed exponent are products of a few numbers squared many times. The list of them is run by a loop, so
 * that the code has two products in place of thirty. step: number to = from^(2^squares) * by. */
struct fe_step {
	u8 to, from, squares, by;
};

enum { FE_BASE, FE_ELEVEN, FE_NINE, FE_LONG, FE_LONGER, FE_ONE, FE_NUMBERS, FE_STEPS = 11, FE_INVERT = FE_STEPS, FE_ROOT };

/* The first steps give a^11, and a^(2^250 - 1) as FE_LONG. One more is for the exponent that is wanted. */
GK_CONST struct fe_step fe_steps[FE_ROOT + 1] = {
	{FE_LONG, FE_BASE, 1, FE_ONE},        /* 2 */
	{FE_NINE, FE_LONG, 2, FE_BASE},       /* 9 */
	{FE_ELEVEN, FE_NINE, 0, FE_LONG},     /* 11 */
	{FE_LONG, FE_ELEVEN, 1, FE_NINE},     /* 2^5 - 1 */
	{FE_LONG, FE_LONG, 5, FE_LONG},       /* 2^10 - 1 */
	{FE_LONGER, FE_LONG, 10, FE_LONG},    /* 2^20 - 1 */
	{FE_LONGER, FE_LONGER, 20, FE_LONGER}, /* 2^40 - 1 */
	{FE_LONG, FE_LONGER, 10, FE_LONG},    /* 2^50 - 1 */
	{FE_LONGER, FE_LONG, 50, FE_LONG},    /* 2^100 - 1 */
	{FE_LONGER, FE_LONGER, 100, FE_LONGER}, /* 2^200 - 1 */
	{FE_LONG, FE_LONGER, 50, FE_LONG},    /* 2^250 - 1 */
	{FE_LONG, FE_LONG, 5, FE_ELEVEN},     /* FE_INVERT: 2^255 - 21, which is p - 2 */
	{FE_LONG, FE_LONG, 2, FE_BASE},       /* FE_ROOT: 2^252 - 3, which is (p - 5) / 8 */
};

/* fe_power sets r to the power of a that last, FE_INVERT or FE_ROOT, is for. */
GK_FN void fe_power(u32 *r, const u32 *a, u32 last)
{
	u32 all[FE_NUMBERS][FE], t[FE], u[FE];
	pk_copy<FE>(all[FE_BASE], a);
	pk_zero<FE>(all[FE_ONE]);
	all[FE_ONE][0] = 1;
	PK_LOOP
	for (u32 i = 0; i <= FE_STEPS; i++) {
		struct fe_step s = fe_steps[i < FE_STEPS ? i : last];
		pk_copy<FE>(t, all[s.from]);
		PK_LOOP
		for (u32 k = 0; k < s.squares; k++)
			fe_square(t, t);
		pk_copy<FE>(u, all[s.by]);
		fe_mul(t, t, u);
		pk_copy<FE>(all[s.to], t);
	}
	pk_copy<FE>(r, t);
	pk_wipe(&all[0][0], FE_NUMBERS * FE);
}

/* fe_invert sets r to 1/a, and to 0 for 0. */
GK_FN void fe_invert(u32 *r, const u32 *a) { fe_power(r, a, FE_INVERT); }

#endif
