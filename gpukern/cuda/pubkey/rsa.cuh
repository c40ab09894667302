/* Signatures of RSA by the Chinese remainder theorem (RFC 8017 5.1.2), with primes of N words and a modulus of 2N.
 *
 * Two kernels. rsa_power raises a message to the private exponents, modulo p in one block of threads and modulo q in
 * the next one: each thread has a power, and every warp the same prime's. rsa_join makes the signatures of both powers,
 * and raises them to the public exponent: a signature that a fault made wrong discloses the key (D. Boneh, R. DeMillo,
 * R. Lipton, On the importance of checking cryptographic protocols for faults, 1997).
 *
 * An exponent has the length of its prime, all of its windows of four bits cost the same, and a look-up reads all of
 * the table. Messages are public; powers and primes are secret until the signature is made. */
#ifndef MILLRACE_PK_RSA_H
#define MILLRACE_PK_RSA_H

#include "limbs.cuh"

template <int N> struct rsa_prime {
	u32 m[N], r2[N], r3[N]; /* the prime; 2^(64N) and 2^(96N) modulo it */
	u32 e[N];               /* the private exponent modulo m - 1 */
};

template <int N> struct rsa_key {
	rsa_prime<N> p, q;
	u32 inverse[N];     /* 1/q modulo p */
	u32 n[2 * N];
	u32 r2[2 * N];      /* 2^(128N) modulo n */
	u64 e;              /* the public exponent */
	u32 factors[4];     /* -1/p, -1/q, -1/n modulo 2^32 */
};

struct pk_rsa {
	const u32 *messages; /* 2N words each, big-endian, below n */
	const u64 *keys;     /* where the key is */
	u32 *signatures;     /* 2N words, big-endian; zeros where they are wrong */
	u32 *status;         /* 1 where the signature is right */
	u32 *scratch;        /* 2N words: the powers modulo p and q */
	u32 n;
};

enum { RSA_THREADS = 128, RSA_HELD = 48, RSA_BITS = 4, RSA_ENTRIES = 1 << RSA_BITS };

/* rsa_mul sets r to a*b / 2^(32N) modulo m. All are in memory; r may be a or b. Up to RSA_HELD words a and the
 * modulus are kept in registers. */
template <int N> GK_SLOW void rsa_mul(u32 *r, const u32 *a, const u32 *b, const u32 *m, u32 factor)
{
	u32 x[N];
	if (N <= RSA_HELD) {
		pk_held<N> held;
		pk_copy<N>(x, a);
		pk_copy<N>(held.words, m);
		held.factor = factor;
		pk_mul_from<N>(x, pk_factor<N>{x}, b, held);
	} else {
		pk_mul_from<N>(x, pk_words{a, 0}, b, pk_words{m, factor});
	}
	pk_copy<N>(r, x);
}

/* rsa_reduce sets r to the number low + high * 2^(32N) modulo a prime, in Montgomery's form. It changes both. */
template <int N> GK_FN void rsa_reduce(u32 *r, u32 *low, u32 *high, const rsa_prime<N> *m, u32 factor)
{
	u32 sum[N], other[N];
	rsa_mul<N>(low, low, m->r2, m->m, factor);
	rsa_mul<N>(high, high, m->r3, m->m, factor);
	pk_copy<N>(sum, low);
	pk_copy<N>(other, high);
	pk_add_mod<N>(sum, sum, other, pk_words{m->m, factor});
	pk_copy<N>(r, sum);
}

/* rsa_choose sets r to an entry of a table, of which it reads all. */
template <int N> GK_FN void rsa_choose(u32 *r, const u32 *table, u32 entry)
{
	u32 v[N];
	pk_zero<N>(v);
	PK_LOOP
	for (u32 e = 0; e < RSA_ENTRIES; e++) {
		u32 mask = pk_equal(e, entry);
		PK_UNROLL
		for (int j = 0; j < N; j++)
			v[j] |= table[e * N + j] & mask;
	}
	pk_copy<N>(r, v);
}

template <int N> GK_FN void rsa_power(const struct pk_rsa *p)
{
	u32 half = gk_block() & 1, i = (gk_block() >> 1) * gk_block_size() + gk_thread();
	if (pk_beyond(&i, p->n))
		return;
	const rsa_key<N> *key = (const rsa_key<N> *)gk_load_u64(&p->keys[i]);
	const rsa_prime<N> *m = half ? &key->q : &key->p;
	u32 factor = key->factors[half];
	const u32 *message = p->messages + (u64)i * 2 * N;
	u32 table[RSA_ENTRIES * N], x[N], by[N];
	PK_LOOP
	for (int j = 0; j < N; j++) {
		x[j] = pk_swap_bytes(message[2 * N - 1 - j]);
		by[j] = pk_swap_bytes(message[N - 1 - j]);
	}
	rsa_reduce<N>(table + N, x, by, m, factor);
	PK_LOOP
	for (int j = 0; j < N; j++)
		x[j] = j == 0;
	rsa_mul<N>(table, x, m->r2, m->m, factor); /* 1 */
	PK_LOOP
	for (u32 e = 2; e < RSA_ENTRIES; e++)
		rsa_mul<N>(table + e * N, table + (e - 1) * N, table + N, m->m, factor);
	rsa_choose<N>(x, table, m->e[N - 1] >> (32 - RSA_BITS));
	PK_LOOP
	for (int w = N * 32 / RSA_BITS - 2; w >= 0; w--) {
		rsa_choose<N>(by, table, m->e[w * RSA_BITS / 32] >> w * RSA_BITS % 32 & (RSA_ENTRIES - 1));
		PK_LOOP
		for (int k = 0; k <= RSA_BITS; k++)
			rsa_mul<N>(x, x, k < RSA_BITS ? x : by, m->m, factor);
	}
	PK_LOOP
	for (int j = 0; j < N; j++)
		by[j] = j == 0;
	rsa_mul<N>(x, x, by, m->m, factor);
	u32 *to = p->scratch + (u64)i * 2 * N + half * N;
	PK_LOOP
	for (int j = 0; j < N; j++)
		to[j] = x[j];
	pk_wipe(table, RSA_ENTRIES * N);
	pk_wipe(x, N);
	pk_wipe(by, N);
}

/* rsa_long is rsa_mul for the modulus of the verification, too long for registers: t has two words more. */
template <int N> GK_SLOW void rsa_long(u32 *r, const u32 *a, const u32 *b, const u32 *m, u32 factor, u32 *t)
{
	u64 v, carry, less = 0;
	PK_LOOP
	for (int j = 0; j < N + 2; j++)
		t[j] = 0;
	PK_LOOP
	for (int i = 0; i < N; i++) {
		u32 by = b[i], q = (a[0] * by + t[0]) * factor;
		/* Two carries: the sum of a word, two products and one carry does not fit 64 bits. */
		v = (u64)a[0] * by + t[0];
		carry = v >> 32;
		u64 second = ((u64)m[0] * q + (u32)v) >> 32;
		_Pragma("unroll 4")
		for (int j = 1; j < N; j++) {
			v = (u64)a[j] * by + t[j] + carry;
			carry = v >> 32;
			v = (u64)m[j] * q + (u32)v + second;
			second = v >> 32;
			t[j - 1] = (u32)v;
		}
		v = (u64)t[N] + carry + second;
		t[N - 1] = (u32)v;
		t[N] = (u32)(v >> 32);
	}
	PK_LOOP
	for (int j = 0; j < N; j++) {
		v = (u64)t[j] - m[j] - less;
		less = v >> 63;
		r[j] = (u32)v;
	}
	u32 keep = 0 - (u32)(less & (t[N] ^ 1)); /* t is below m */
	PK_LOOP
	for (int j = 0; j < N; j++)
		r[j] ^= (r[j] ^ t[j]) & keep;
}

/* rsa_joined is what a thread of rsa_join has. */
template <int N> struct rsa_joined {
	u32 h[N], t[N], s[2 * N], x[2 * N], power[2 * N], long_t[2 * N + 2];
};

/* rsa_combine sets s to m2 + q*h with h = (m1 - m2) / q modulo p. */
template <int N> GK_FN void rsa_combine(rsa_joined<N> *g, const rsa_key<N> *key, const u32 *powers)
{
	u32 a[N], b[N], factor = key->factors[0];
	rsa_mul<N>(g->h, powers, key->p.r2, key->p.m, factor);
	rsa_mul<N>(g->t, powers + N, key->p.r2, key->p.m, factor); /* and lower than p: q may be above it */
	pk_copy<N>(a, g->h);
	pk_copy<N>(b, g->t);
	pk_sub_mod<N>(a, a, b, pk_words{key->p.m, factor});
	pk_copy<N>(g->h, a);
	rsa_mul<N>(g->h, g->h, key->inverse, key->p.m, factor);
	PK_LOOP
	for (int j = 0; j < N; j++) {
		g->s[j] = powers[N + j];
		g->s[N + j] = 0;
	}
	PK_LOOP
	for (int i = 0; i < N; i++) {
		u64 carry = 0;
		u32 by = g->h[i];
		PK_LOOP
		for (int j = 0; j < N; j++) {
			u64 v = (u64)key->q.m[j] * by + g->s[i + j] + carry;
			g->s[i + j] = (u32)v;
			carry = v >> 32;
		}
		g->s[i + N] = (u32)carry; /* nothing is there yet */
	}
}

/* rsa_verify returns all ones if s^e is the message. s is below n as it was made: h is below p, and m2 below q. */
template <int N> GK_FN u32 rsa_verify(rsa_joined<N> *g, const rsa_key<N> *key, const u32 *message)
{
	u32 factor = key->factors[2], differs = 0;
	u64 e = gk_load_u64(&key->e);
	rsa_long<2 * N>(g->x, g->s, key->r2, key->n, factor, g->long_t);
	PK_LOOP
	for (int j = 0; j < 2 * N; j++)
		g->power[j] = g->x[j];
	PK_LOOP
	for (int bit = 62 - (int)gk_clzll(e); bit >= 0; bit--) {
		rsa_long<2 * N>(g->power, g->power, g->power, key->n, factor, g->long_t);
		if (e >> bit & 1)
			rsa_long<2 * N>(g->power, g->power, g->x, key->n, factor, g->long_t);
	}
	PK_LOOP
	for (int j = 0; j < 2 * N; j++)
		g->x[j] = j == 0;
	rsa_long<2 * N>(g->power, g->power, g->x, key->n, factor, g->long_t);
	PK_LOOP
	for (int j = 0; j < 2 * N; j++)
		differs |= g->power[j] ^ pk_swap_bytes(message[2 * N - 1 - j]);
	return pk_equal(differs >> 16 | (differs & 0xffff), 0);
}

template <int N> GK_FN void rsa_join(const struct pk_rsa *p)
{
	u32 i = gk_global_thread();
	if (pk_beyond(&i, p->n))
		return;
	const rsa_key<N> *key = (const rsa_key<N> *)gk_load_u64(&p->keys[i]);
	rsa_joined<N> g;
	rsa_combine<N>(&g, key, p->scratch + (u64)i * 2 * N);
	u32 right = rsa_verify<N>(&g, key, p->messages + (u64)i * 2 * N);
	u32 *to = p->signatures + (u64)i * 2 * N;
	PK_LOOP
	for (int j = 0; j < 2 * N; j++)
		to[2 * N - 1 - j] = pk_swap_bytes(g.s[j]) & right;
	p->status[i] = right & 1;
	pk_wipe((u32 *)&g, sizeof g / 4);
}

#endif
