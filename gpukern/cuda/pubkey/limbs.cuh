/* Numbers of many words, the lowest first, and Montgomery's product of them (P. Montgomery, Modular multiplication
 * without trial division, 1985).
 *
 * One thread has a number in its registers. A carry goes from instruction to instruction in the flag CC: the
 * statements are volatile, so that the compiler keeps their order, and nothing else that it emits here touches CC. On
 * the CPU the flag is the variable cc.
 *
 * The 64-bit product of two words is one instruction (IMAD.WIDE) where its result is a pair of registers on an even
 * one. So there are two accumulators, one for each parity of the place of a product: e[j] counts 2^(32j), o[j]
 * 2^(32(j+1)), and no word is moved. A division by 2^32 exchanges them.
 *
 * Nothing here branches or addresses by a number's value. */
#ifndef MILLRACE_PK_LIMBS_H
#define MILLRACE_PK_LIMBS_H

#include "../gk.h"

#ifdef GK_HOST

#define PK_UNROLL
#define PK_LOOP
#define PK_MEMBER inline

GK_FN u32 pk_keep(u64 v, u32 *cc)
{
	*cc = (u32)(v >> 32) & 1;
	return (u32)v;
}
GK_FN u32 pk_add_cc(u32 a, u32 b, u32 *cc) { return pk_keep((u64)a + b, cc); }
GK_FN u32 pk_addc_cc(u32 a, u32 b, u32 *cc) { return pk_keep((u64)a + b + *cc, cc); }
GK_FN u32 pk_addc(u32 a, u32 b, u32 *cc) { return a + b + *cc; }
GK_FN u32 pk_sub_cc(u32 a, u32 b, u32 *cc) { return pk_keep((u64)a - b, cc); }
GK_FN u32 pk_subc_cc(u32 a, u32 b, u32 *cc) { return pk_keep((u64)a - b - *cc, cc); }
GK_FN u32 pk_subc(u32 a, u32 b, u32 *cc) { return a - b - *cc; }
GK_FN u32 pk_mad_lo_cc(u32 a, u32 b, u32 c, u32 *cc) { return pk_keep((u64)(a * b) + c, cc); }
GK_FN u32 pk_madc_lo_cc(u32 a, u32 b, u32 c, u32 *cc) { return pk_keep((u64)(a * b) + c + *cc, cc); }
GK_FN u32 pk_madc_hi_cc(u32 a, u32 b, u32 c, u32 *cc) { return pk_keep(((u64)a * b >> 32) + c + *cc, cc); }
GK_FN u32 pk_madc_hi(u32 a, u32 b, u32 c, u32 *cc) { return (u32)((u64)a * b >> 32) + c + *cc; }

#else

#define PK_UNROLL _Pragma("unroll")
#define PK_LOOP   _Pragma("unroll 1")
#define PK_MEMBER inline __attribute__((device, always_inline))

#define PK_TWO(name, op)                                                                                      \
	GK_FN u32 name(u32 a, u32 b, u32 *)                                                                   \
	{                                                                                                     \
		u32 v;                                                                                        \
		__asm__ volatile(op " %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b));                               \
		return v;                                                                                     \
	}
#define PK_THREE(name, op)                                                                                    \
	GK_FN u32 name(u32 a, u32 b, u32 c, u32 *)                                                            \
	{                                                                                                     \
		u32 v;                                                                                        \
		__asm__ volatile(op " %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(c));                   \
		return v;                                                                                     \
	}
PK_TWO(pk_add_cc, "add.cc.u32")
PK_TWO(pk_addc_cc, "addc.cc.u32")
PK_TWO(pk_addc, "addc.u32")
PK_TWO(pk_sub_cc, "sub.cc.u32")
PK_TWO(pk_subc_cc, "subc.cc.u32")
PK_TWO(pk_subc, "subc.u32")
PK_THREE(pk_mad_lo_cc, "mad.lo.cc.u32")
PK_THREE(pk_madc_lo_cc, "madc.lo.cc.u32")
PK_THREE(pk_madc_hi_cc, "madc.hi.cc.u32")
PK_THREE(pk_madc_hi, "madc.hi.u32")

#endif

/* pk_mask returns v, and the compiler does not know that it is all ones or 0: it may otherwise read what a mask selects,
 * and not the other. */
GK_FN u32 pk_mask(u32 v)
{
#ifndef GK_HOST
	__asm__("" : "+r"(v));
#endif
	return v;
}

/* pk_equal returns all ones if a is b, both below 2^31, and else 0. */
GK_FN u32 pk_equal(u32 a, u32 b) { return (u32)((i32)((a ^ b) - 1) >> 31); }

/* pk_copy, pk_zero and pk_choose: r = a, r = 0, r = mask ? a : r. */
template <int N> GK_FN void pk_copy(u32 *r, const u32 *a)
{
	PK_UNROLL
	for (int j = 0; j < N; j++)
		r[j] = a[j];
}

template <int N> GK_FN void pk_zero(u32 *r)
{
	PK_UNROLL
	for (int j = 0; j < N; j++)
		r[j] = 0;
}

template <int N> GK_FN void pk_choose(u32 *r, const u32 *a, u32 mask)
{
	PK_UNROLL
	for (int j = 0; j < N; j++)
		r[j] ^= (r[j] ^ a[j]) & mask;
}

/* pk_is returns all ones if a is b, or else 0. */
template <int N> GK_FN u32 pk_is(const u32 *a, const u32 *b)
{
	u32 v = 0;
	PK_UNROLL
	for (int j = 0; j < N; j++)
		v |= a[j] ^ b[j];
	return pk_equal(v >> 16 | (v & 0xffff), 0);
}

/* pk_wipe overwrites memory that had a secret, which the compiler would take for useless. */
GK_FN void pk_wipe(u32 *r, u32 n)
{
	volatile u32 *v = r;
	PK_LOOP
	for (u32 j = 0; j < n; j++)
		v[j] = 0;
}

/* pk_load and pk_store move n words, a multiple of four on a boundary of 16 bytes. */
template <int N> GK_FN void pk_load(u32 *r, const u32 *a)
{
	PK_UNROLL
	for (int j = 0; j < N; j += 4) {
		struct gk_quad q = gk_table_quad(a + j);
		r[j] = q.w[0];
		r[j + 1] = q.w[1];
		r[j + 2] = q.w[2];
		r[j + 3] = q.w[3];
	}
}

template <int N> GK_FN void pk_store(u32 *r, const u32 *a)
{
	PK_UNROLL
	for (int j = 0; j < N; j += 4) {
		struct gk_quad q = {{a[j], a[j + 1], a[j + 2], a[j + 3]}};
		gk_store_quad(r + j, q);
	}
}

/* pk_swap_bytes returns a number's word as the other byte order has it. */
GK_FN u32 pk_swap_bytes(u32 v) { return gk_permute(v, 0, 0x0123); }

/* pk_load_big reads a big-endian number of N words. */
template <int N> GK_FN void pk_load_big(u32 *r, const u32 *a)
{
	u32 t[N];
	pk_load<N>(t, a);
	PK_UNROLL
	for (int j = 0; j < N; j++)
		r[j] = pk_swap_bytes(t[N - 1 - j]);
}

template <int N> GK_FN void pk_store_big(u32 *r, const u32 *a)
{
	u32 t[N];
	PK_UNROLL
	for (int j = 0; j < N; j++)
		t[j] = pk_swap_bytes(a[N - 1 - j]);
	pk_store<N>(r, t);
}

/* pk_word reads a word of a long number where the sum needs it. ptxas would read all of it ahead, into registers that it
 * does not have: no read passes a barrier of the warp, whose threads all have to be there. On the CPU there is no need. */
enum { PK_AHEAD = 16 };

GK_FN u32 pk_word(const u32 *a, int j)
{
#ifndef GK_HOST
	if (j / 2 % (PK_AHEAD / 2) == 0)
		gk_warp_sync();
#endif
	return a[j];
}

/* pk_beyond reports whether a thread has no operation i of n. On a device it never does: such threads do the last operation
 * once more, with the same results, as pk_word needs whole warps. */
GK_FN bool pk_beyond(u32 *i, u32 n)
{
#ifdef GK_HOST
	return *i >= n;
#else
	*i = gk_min(*i, n - 1);
	return false;
#endif
}

/* A modulus M has m(j), its words, and inv(), -1/m modulo 2^32. pk_words is one in memory. */
struct pk_words {
	const u32 *at;
	u32 factor;
	PK_MEMBER u32 m(int j) const { return pk_word(at, j); }
	PK_MEMBER u32 inv() const { return factor; }
	PK_MEMBER pk_words again() const { return *this; }
};

/* pk_factor is a factor in registers. */
template <int N> struct pk_factor {
	const u32 *words;
	PK_MEMBER u32 m(int j) const { return words[j]; }
	PK_MEMBER const pk_factor &again() const { return *this; }
};

/* pk_held is a modulus in registers. */
template <int N> struct pk_held {
	u32 words[N];
	u32 factor;
	PK_MEMBER u32 m(int j) const { return words[j]; }
	PK_MEMBER u32 inv() const { return factor; }
	PK_MEMBER const pk_held &again() const { return *this; }
};

/* pk_lower subtracts m from top:r, which is below 2m, if it is m or more. */
template <int N, class M> GK_FN void pk_lower(u32 *r, u32 top, const M &m)
{
	u32 cc = 0, s[N];
	s[0] = pk_sub_cc(r[0], m.m(0), &cc);
	PK_UNROLL
	for (int j = 1; j < N; j++)
		s[j] = pk_subc_cc(r[j], m.m(j), &cc);
	pk_choose<N>(r, s, ~pk_subc(top, 0, &cc));
}

/* pk_add_mod sets r to a + b, pk_sub_mod to a - b, all below m. */
template <int N, class M> GK_FN void pk_add_mod(u32 *r, const u32 *a, const u32 *b, const M &m)
{
	u32 cc = 0;
	r[0] = pk_add_cc(a[0], b[0], &cc);
	PK_UNROLL
	for (int j = 1; j < N; j++)
		r[j] = pk_addc_cc(a[j], b[j], &cc);
	pk_lower<N>(r, pk_addc(0, 0, &cc), m);
}

template <int N, class M> GK_FN void pk_sub_mod(u32 *r, const u32 *a, const u32 *b, const M &m)
{
	u32 cc = 0;
	r[0] = pk_sub_cc(a[0], b[0], &cc);
	PK_UNROLL
	for (int j = 1; j < N; j++)
		r[j] = pk_subc_cc(a[j], b[j], &cc);
	u32 less = pk_subc(0, 0, &cc);
	r[0] = pk_add_cc(r[0], m.m(0) & less, &cc);
	PK_UNROLL
	for (int j = 1; j < N; j++)
		r[j] = pk_addc_cc(r[j], m.m(j) & less, &cc);
}

/* pk_chain adds the products of a word with every second word of a number, from FIRST on, to acc, and returns with the
 * last carry in CC. */
template <int N, int FIRST, class M> GK_FN void pk_chain(u32 *acc, const M &m, u32 b, u32 *cc)
{
	u32 first = m.m(FIRST);
	acc[0] = pk_mad_lo_cc(first, b, acc[0], cc);
	acc[1] = pk_madc_hi_cc(first, b, acc[1], cc);
	PK_UNROLL
	for (int j = 2; j < N; j += 2) {
		u32 word = m.m(j + FIRST);
		acc[j] = pk_madc_lo_cc(word, b, acc[j], cc);
		acc[j + 1] = pk_madc_hi_cc(word, b, acc[j + 1], cc);
	}
}

/* pk_row adds a*b to the accumulators and makes the sum a multiple of 2^32 by adding a multiple of m. e is the
 * accumulator of even places, and o that of the row before, which moves down by two words here: that row's sum is
 * divided by 2^32 only now. The sum of both is below (a + m) * 2^32, so that it has one bit above o, which is *top. */
template <int N, class A, class M> GK_FN void pk_row(u32 *e, u32 *o, u32 *top, const A &a, u32 b, const M &m)
{
	u32 cc = 0;
	e[0] = pk_add_cc(e[0], o[1], &cc);
	PK_UNROLL
	for (int j = 0; j < N - 2; j += 2) {
		u32 word = a.m(j + 1); /* read once: both halves of a product are one instruction for the same register */
		o[j] = pk_madc_lo_cc(word, b, o[j + 2], &cc);
		o[j + 1] = pk_madc_hi_cc(word, b, o[j + 3], &cc);
	}
	u32 last = a.m(N - 1);
	o[N - 2] = pk_madc_lo_cc(last, b, 0, &cc);
	o[N - 1] = pk_madc_hi_cc(last, b, *top, &cc);
	*top = pk_addc(0, 0, &cc);
	pk_chain<N, 0>(e, a, b, &cc);
	o[N - 1] = pk_addc_cc(o[N - 1], 0, &cc);
	*top = pk_addc(*top, 0, &cc);
	u32 q = e[0] * m.inv();
	pk_chain<N, 1>(o, m, q, &cc);
	*top = pk_addc(*top, 0, &cc);
	pk_chain<N, 0>(e, m, q, &cc);
	o[N - 1] = pk_addc_cc(o[N - 1], 0, &cc);
	*top = pk_addc(*top, 0, &cc);
}

/* pk_finish sets r to the sum of the accumulators after an even number of rows, below m. */
template <int N, class M> GK_FN void pk_finish(u32 *r, const u32 *e, const u32 *o, u32 top, const M &m)
{
	u32 cc = 0;
	r[0] = pk_add_cc(e[0], o[1], &cc);
	PK_UNROLL
	for (int j = 1; j < N - 1; j++)
		r[j] = pk_addc_cc(e[j], o[j + 1], &cc);
	r[N - 1] = pk_addc_cc(e[N - 1], 0, &cc);
	pk_lower<N>(r, pk_addc(top, 0, &cc), m);
}

/* pk_mul sets r to a*b / 2^(32N) modulo m. One of a and b is below m, the other one may be any number of N words. r
 * may be a or b. pk_mul_from reads b from memory, a word for each row: for numbers that are too long to be unrolled. */
template <int N, class M> GK_FN void pk_mul(u32 *r, const u32 *a, const u32 *b, const M &m)
{
	u32 e[N], o[N], top = 0;
	pk_zero<N>(e);
	pk_zero<N>(o);
	PK_UNROLL
	for (int i = 0; i < N; i += 2) {
		pk_row<N>(e, o, &top, pk_factor<N>{a}, b[i], m);
		pk_row<N>(o, e, &top, pk_factor<N>{a}, b[i + 1], m);
	}
	pk_finish<N>(r, e, o, top, m);
}

template <int N, class A, class M> GK_FN void pk_mul_from(u32 *r, const A &a, const u32 *b, const M &m)
{
	u32 e[N], o[N], top = 0;
	pk_zero<N>(e);
	pk_zero<N>(o);
	PK_LOOP
	for (int i = 0; i < N; i += 2) {
		pk_row<N>(e, o, &top, a.again(), b[i], m.again());
		pk_row<N>(o, e, &top, a.again(), b[i + 1], m.again());
	}
	pk_finish<N>(r, e, o, top, m);
}

#endif
