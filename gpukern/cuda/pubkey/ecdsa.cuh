/* Signatures of ECDSA on a curve C (curves.cuh). A number is in memory, in Montgomery's form where a comment does not
 * say otherwise, and below its modulus.
 *
 * Three kernels: ec_comb multiplies the generator by the nonces, a signature to a thread. ec_solve makes the signatures,
 * EC_GROUP to a thread, as they share two inversions. ec_verify lets those pass that are right, EC_GROUP to a thread, as
 * they share two multiples of points.
 *
 * Nonces, the private keys and all that comes of them are secret until s is made. ec_verify works on what everybody may
 * know, and branches and addresses by it. */
#ifndef MILLRACE_PK_ECDSA_H
#define MILLRACE_PK_ECDSA_H

#include "curves.cuh"

enum {
	EC_BITS        = 6, /* of a window of the generator's table */
	EC_ENTRIES     = 1 << (EC_BITS - 1),
	EC_KEY_BITS    = 4, /* of a key's */
	EC_KEY_ENTRIES = 1 << (EC_KEY_BITS - 1),
	EC_GROUP       = 8,
};

/* Tables hold odd multiples: entry e of window w is (2e + 1) * 2^(bits*w) times the point, x and then y. */
struct pk_ecdsa {
	const u32 *nonces;    /* 2N words for each signature, big-endian: modulo n it is the nonce */
	const u32 *digests;   /* N words, big-endian */
	const u64 *keys;      /* where the key is: d, and behind it the table of the public key */
	const u32 *generator; /* its table */
	u32 *signatures;      /* r and s, big-endian; zeros where they are wrong */
	u32 *status;          /* 1 where the signature is right */
	u32 *scratch;         /* 4N words: x, y, z, and the nonce as it is; then x and y affine, r and 1/s */
	u32 n;
};

template <class C> struct ec_point {
	u32 x[C::N], y[C::N], z[C::N];
};

/* ec_work is the memory of an addition: the caller has it, and overwrites it in the end. */
template <class C> struct ec_work {
	u32 t[C::N], u[C::N], h[C::N], r[C::N];
};

/* ec_mul sets r to a*b modulo p, ec_mul_n modulo n. No copy of them at each call: that would be most of the code. */
template <class C> GK_SLOW void ec_mul(u32 *r, const u32 *a, const u32 *b)
{
	u32 x[C::N], y[C::N];
	pk_copy<C::N>(x, a);
	pk_copy<C::N>(y, b);
	pk_mul<C::N>(x, x, y, typename C::P());
	pk_copy<C::N>(r, x);
}

template <class C> GK_SLOW void ec_mul_n(u32 *r, const u32 *a, const u32 *b)
{
	u32 x[C::N], y[C::N];
	pk_copy<C::N>(x, a);
	pk_copy<C::N>(y, b);
	pk_mul<C::N>(x, x, y, typename C::O());
	pk_copy<C::N>(r, x);
}

template <class C> GK_FN void ec_sub(u32 *r, const u32 *a, const u32 *b) { pk_sub_mod<C::N>(r, a, b, typename C::P()); }

template <int N, class V> GK_FN void pk_set(u32 *r, const V &v)
{
	PK_UNROLL
	for (int j = 0; j < N; j++)
		r[j] = v.m(j);
}

/* ec_to_n sets r to a times 2^(32N) modulo n, ec_from_n divides by it. */
template <class C> GK_FN void ec_to_n(u32 *r, const u32 *a)
{
	u32 v[C::N];
	pk_set<C::N>(v, typename C::R2());
	ec_mul_n<C>(r, a, v);
}

template <class C> GK_FN void ec_plain(u32 *r, const u32 *a, bool order)
{
	u32 v[C::N];
	pk_zero<C::N>(v);
	v[0] = 1;
	if (order)
		ec_mul_n<C>(r, a, v);
	else
		ec_mul<C>(r, a, v);
}

/* ec_add_affine adds (x, y) to p. Neither is the point at infinity, nor are they the same or inverses: z would be 0.
 * D. Hankerson, A. Menezes, S. Vanstone, Guide to elliptic curve cryptography, 2004, algorithm 3.22. */
template <class C> GK_SLOW void ec_add_affine(ec_point<C> *p, const u32 *x, const u32 *y, ec_work<C> *work)
{
	u32 *t = work->t, *u = work->u, *h = work->h, *r = work->r;
	ec_mul<C>(t, p->z, p->z);
	ec_mul<C>(u, x, t);
	ec_sub<C>(h, u, p->x);
	ec_mul<C>(t, t, p->z);
	ec_mul<C>(t, y, t);
	ec_sub<C>(r, t, p->y);
	ec_mul<C>(p->z, p->z, h);
	ec_mul<C>(t, h, h);    /* h^2 */
	ec_mul<C>(h, h, t);    /* h^3 */
	ec_mul<C>(u, p->x, t); /* v */
	ec_mul<C>(p->x, r, r);
	ec_sub<C>(p->x, p->x, h);
	ec_sub<C>(p->x, p->x, u);
	ec_sub<C>(p->x, p->x, u);
	ec_sub<C>(u, u, p->x);
	ec_mul<C>(u, u, r);
	ec_mul<C>(t, p->y, h);
	ec_sub<C>(p->y, u, t);
}

/* ec_recode makes signed odd digits of k, 0 < k < n, and returns 1 if k is odd; else they are those of n - k.
 *
 * Every odd k below 2^L is the sum of s[j] * 2^j over j < L with s[j] = 1 or -1: s[j] is 1 where bit j+1 of k is, and
 * the topmost is 1. So the windows of k/2 + 2^(L-1) are the digits: v is 2v + 1 - 2^bits. */
template <class C, int BITS, int WINDOWS> GK_FN u32 ec_recode(u32 *digits, const u32 *k)
{
	u32 cc = 0, odd = k[0] & 1, negative[C::N];
	typename C::O n;
	negative[0] = pk_sub_cc(n.m(0), k[0], &cc);
	PK_UNROLL
	for (int j = 1; j < C::N; j++)
		negative[j] = pk_subc_cc(n.m(j), k[j], &cc);
	pk_copy<C::N>(digits, k);
	pk_choose<C::N>(digits, negative, odd - 1);
	digits[C::N] = digits[C::N + 1] = 0;
	PK_UNROLL
	for (int j = 0; j < C::N; j++)
		digits[j] = digits[j] >> 1 | digits[j + 1] << 31;
	digits[(BITS * WINDOWS - 1) / 32] |= 1u << (BITS * WINDOWS - 1) % 32;
	return odd;
}

/* ec_window returns the entry of window w, and as its bit 31 whether that is to be negated. */
template <int BITS> GK_FN u32 ec_window(const u32 *digits, u32 w)
{
	u32 at = w * BITS;
	u32 v = gk_funnel(digits[at / 32], digits[at / 32 + 1], at % 32);
	u32 negative = (v >> (BITS - 1) & 1) ^ 1, half = (1u << (BITS - 1)) - 1;
	return ((v ^ (0 - negative)) & half) | negative << 31;
}

/* ec_choose sets x and y to an entry of a window of the generator's table. It reads all of them. */
template <class C> GK_FN void ec_choose(u32 *x, u32 *y, const u32 *window, u32 entry)
{
	u32 v[2 * C::N], t[2 * C::N], negative[C::N], none[C::N];
	pk_zero<2 * C::N>(v);
	PK_LOOP
	for (u32 e = 0; e < EC_ENTRIES; e++) {
		u32 mask = pk_equal(e, entry & (EC_ENTRIES - 1));
		pk_load<2 * C::N>(t, window + e * 2 * C::N);
		PK_UNROLL
		for (int j = 0; j < 2 * C::N; j++)
			v[j] |= t[j] & mask;
	}
	pk_zero<C::N>(none);
	ec_sub<C>(negative, none, v + C::N);
	pk_choose<C::N>(v + C::N, negative, 0 - (entry >> 31));
	pk_copy<C::N>(x, v);
	pk_copy<C::N>(y, v + C::N);
}

/* ec_public is the same for entries that everybody may know. */
template <class C> GK_FN void ec_public(u32 *x, u32 *y, const u32 *window, u32 entry)
{
	u32 v[2 * C::N], none[C::N], negative[C::N];
	pk_load<2 * C::N>(v, window + (entry & 0x7fffffff) * 2 * C::N);
	pk_zero<C::N>(none);
	ec_sub<C>(negative, none, v + C::N);
	pk_choose<C::N>(v + C::N, negative, 0 - (entry >> 31));
	pk_copy<C::N>(x, v);
	pk_copy<C::N>(y, v + C::N);
}

/* ec_nonce sets k to a nonce modulo n, as it is: lo + hi * 2^(32N). So many bits leave no bias (FIPS 186-5 A.3.1). */
template <class C> GK_FN void ec_nonce(u32 *k, const u32 *from)
{
	u32 low[C::N], high[C::N], r3[C::N];
	pk_load_big<C::N>(high, from);
	pk_load_big<C::N>(low, from + C::N);
	pk_set<C::N>(r3, typename C::R3());
	ec_to_n<C>(low, low);
	ec_mul_n<C>(high, high, r3);
	pk_add_mod<C::N>(low, low, high, typename C::O());
	ec_plain<C>(k, low, true);
	pk_wipe(high, C::N);
	pk_wipe(low, C::N);
}

template <class C> GK_FN void ec_comb(const struct pk_ecdsa *p)
{
	u32 i = gk_global_thread();
	if (i >= p->n)
		return;
	struct {
		ec_point<C> sum;
		ec_work<C> work;
		u32 k[C::N], x[C::N], y[C::N], digits[C::N + 2];
	} s;
	u32 *to = p->scratch + (u64)i * 4 * C::N;
	ec_nonce<C>(s.k, p->nonces + (u64)i * 2 * C::N);
	u32 even = ec_recode<C, EC_BITS, C::WINDOWS>(s.digits, s.k) - 1;
	ec_choose<C>(s.sum.x, s.sum.y, p->generator, ec_window<EC_BITS>(s.digits, 0));
	pk_set<C::N>(s.sum.z, typename C::One());
	PK_LOOP
	for (u32 w = 1; w < C::WINDOWS; w++) {
		ec_choose<C>(s.x, s.y, p->generator + w * EC_ENTRIES * 2 * C::N, ec_window<EC_BITS>(s.digits, w));
		ec_add_affine<C>(&s.sum, s.x, s.y, &s.work);
	}
	pk_zero<C::N>(s.x);
	ec_sub<C>(s.y, s.x, s.sum.y);
	pk_choose<C::N>(s.sum.y, s.y, even);
	pk_store<C::N>(to, s.sum.x);
	pk_store<C::N>(to + C::N, s.sum.y);
	pk_store<C::N>(to + 2 * C::N, s.sum.z);
	pk_store<C::N>(to + 3 * C::N, s.k);
	pk_wipe((u32 *)&s, sizeof s / 4);
}

/* ec_invert sets a to 1/a modulo p or n: a^(m-2), by windows of four bits of the exponent, which is public. */
template <class C> GK_SLOW void ec_invert(u32 *a, bool order)
{
	u32 table[16][C::N], r[C::N];
	pk_copy<C::N>(table[1], a);
	PK_LOOP
	for (u32 e = 2; e < 16; e++) {
		if (order)
			ec_mul_n<C>(table[e], table[e - 1], a);
		else
			ec_mul<C>(table[e], table[e - 1], a);
	}
	pk_copy<C::N>(r, table[15]); /* the topmost digits of all four exponents */
	PK_LOOP
	for (int w = 8 * C::N - 2; w >= 0; w--) {
		u32 digit = (order ? C::invert_n(w / 8) : C::invert_p(w / 8)) >> w % 8 * 4 & 15;
		PK_LOOP
		for (u32 k = 0; k < 5; k++) {
			const u32 *by = k < 4 ? r : table[digit];
			if (k == 4 && digit == 0)
				continue;
			if (order)
				ec_mul_n<C>(r, r, by);
			else
				ec_mul<C>(r, r, by);
		}
	}
	pk_copy<C::N>(a, r);
	pk_wipe(&table[0][0], 16 * C::N);
	pk_wipe(r, C::N);
}

/* ec_group is what a thread of ec_solve has of its signatures. All of it is overwritten in the end. */
template <class C> struct ec_group {
	u32 before[EC_GROUP][C::N], a[EC_GROUP][C::N], aR[EC_GROUP][C::N], kR[EC_GROUP][C::N], product[EC_GROUP][C::N];
	u32 r[EC_GROUP][C::N], all[C::N], t[C::N], u[C::N];
};

/* ec_affine makes x and y of the nonces' points affine: one inversion for all (P. Montgomery, Speeding the Pollard and
 * elliptic curve methods of factorization, 1987). */
template <class C> GK_FN void ec_affine(ec_group<C> *g, u32 *scratch, u32 n)
{
	pk_set<C::N>(g->all, typename C::One());
	PK_LOOP
	for (u32 i = 0; i < n; i++) {
		pk_copy<C::N>(g->before[i], g->all);
		ec_mul<C>(g->all, g->all, scratch + (i * 4 + 2) * C::N);
	}
	ec_invert<C>(g->all, false);
	PK_LOOP
	for (u32 i = n; i-- > 0;) {
		u32 *x = scratch + i * 4 * C::N, *y = x + C::N, *z = y + C::N;
		ec_mul<C>(g->t, g->all, g->before[i]);
		ec_mul<C>(g->all, g->all, z);
		ec_mul<C>(g->u, g->t, g->t);
		ec_mul<C>(x, x, g->u);
		ec_mul<C>(g->u, g->u, g->t);
		ec_mul<C>(y, y, g->u);
	}
}

/* ec_digest sets e to a digest modulo n. */
template <class C> GK_FN void ec_digest(u32 *e, const u32 *digest)
{
	u32 v[C::N];
	pk_load_big<C::N>(v, digest);
	pk_lower<C::N>(v, 0, typename C::O());
	pk_copy<C::N>(e, v);
}

/* ec_public_r sets r to x of an affine point modulo n. */
template <class C> GK_FN void ec_public_r(u32 *r, const u32 *x)
{
	u32 v[C::N];
	ec_plain<C>(v, x, false);
	pk_lower<C::N>(v, 0, typename C::O());
	pk_copy<C::N>(r, v);
}

/* ec_solve makes r and s = (e + rd)/k. One inversion of ka, a = e + rd, gives a/k and k/a, which is 1/s. */
template <class C> GK_FN void ec_solve(const struct pk_ecdsa *p)
{
	u32 first = gk_global_thread() * EC_GROUP;
	if (first >= p->n)
		return;
	u32 n = gk_min(EC_GROUP, p->n - first);
	u32 *scratch = p->scratch + (u64)first * 4 * C::N;
	ec_group<C> g;
	ec_affine<C>(&g, scratch, n);
	pk_set<C::N>(g.u, typename C::R2());
	ec_plain<C>(g.all, g.u, true); /* 2^(32N) modulo n */
	PK_LOOP
	for (u32 i = 0; i < n; i++) {
		const u32 *from = scratch + i * 4 * C::N;
		const u32 *d = (const u32 *)gk_load_u64(&p->keys[first + i]);
		ec_public_r<C>(g.r[i], from);
		ec_mul_n<C>(g.a[i], g.r[i], d);
		ec_digest<C>(g.t, p->digests + (u64)(first + i) * C::N);
		pk_add_mod<C::N>(g.a[i], g.a[i], g.t, typename C::O());
		ec_to_n<C>(g.aR[i], g.a[i]);
		ec_to_n<C>(g.kR[i], from + 3 * C::N);
		ec_mul_n<C>(g.product[i], g.kR[i], g.aR[i]);
		pk_copy<C::N>(g.before[i], g.all);
		ec_mul_n<C>(g.all, g.all, g.product[i]);
	}
	ec_invert<C>(g.all, true);
	PK_LOOP
	for (u32 i = n; i-- > 0;) {
		u32 *from = scratch + i * 4 * C::N, *to = p->signatures + (u64)(first + i) * 2 * C::N;
		ec_mul_n<C>(g.t, g.all, g.before[i]); /* 1/ka */
		ec_mul_n<C>(g.all, g.all, g.product[i]);
		ec_mul_n<C>(g.u, g.t, g.aR[i]);
		ec_mul_n<C>(g.u, g.u, g.a[i]);
		pk_store_big<C::N>(to, g.r[i]);
		pk_store_big<C::N>(to + C::N, g.u);
		ec_mul_n<C>(g.u, g.t, g.kR[i]);
		ec_mul_n<C>(g.u, g.u, from + 3 * C::N);
		ec_to_n<C>(g.u, g.u);
		pk_store<C::N>(from + 2 * C::N, g.r[i]);
		pk_store<C::N>(from + 3 * C::N, g.u);
	}
	pk_wipe((u32 *)&g, sizeof g / 4);
}

/* ec_check is what a thread of ec_verify has. */
template <class C> struct ec_check {
	u32 r[C::N], s[C::N], e[C::N], t[C::N], u[C::N], sum[C::N], x[C::N], y[C::N], digits[C::N + 2];
	ec_point<C> left, right;
	ec_work<C> work;
};

/* ec_add_multiple adds the multiple k of a table's point to sum, or begins the sum with it. */
template <class C, int BITS, int WINDOWS>
GK_FN void ec_add_multiple(ec_check<C> *g, ec_point<C> *sum, const u32 *k, const u32 *table, bool begin)
{
	u32 even = ec_recode<C, BITS, WINDOWS>(g->digits, k) ^ 1;
	PK_LOOP
	for (u32 w = 0; w < WINDOWS; w++) {
		u32 entry = ec_window<BITS>(g->digits, w) ^ even << 31;
		ec_public<C>(g->x, g->y, table + w * (2 * C::N << (BITS - 1)), entry);
		if (w == 0 && begin) {
			pk_copy<C::N>(sum->x, g->x);
			pk_copy<C::N>(sum->y, g->y);
			pk_set<C::N>(sum->z, typename C::One());
		} else {
			ec_add_affine<C>(sum, g->x, g->y, &g->work);
		}
	}
}

/* ec_same returns all ones if two points are the same, and neither is the point at infinity. */
template <class C> GK_FN u32 ec_same(ec_check<C> *g, ec_point<C> *a, ec_point<C> *b)
{
	pk_zero<C::N>(g->t);
	u32 same = ~pk_is<C::N>(a->z, g->t) & ~pk_is<C::N>(b->z, g->t);
	ec_mul<C>(g->t, a->z, a->z);
	ec_mul<C>(g->u, b->z, b->z);
	ec_mul<C>(g->x, a->x, g->u);
	ec_mul<C>(g->y, b->x, g->t);
	same &= pk_is<C::N>(g->x, g->y);
	ec_mul<C>(g->t, g->t, a->z);
	ec_mul<C>(g->u, g->u, b->z);
	ec_mul<C>(g->x, a->y, g->u);
	ec_mul<C>(g->y, b->y, g->t);
	return same & pk_is<C::N>(g->x, g->y);
}

/* ec_check_one adds a signature to what is compared: e/s to sum, and R to the left side. It returns all ones if r and s
 * are numbers of a signature and belong to R and 1/s. */
template <class C> GK_FN u32 ec_check_one(ec_check<C> *g, const struct pk_ecdsa *p, u32 i, bool begin)
{
	const u32 *x = p->scratch + (u64)i * 4 * C::N, *y = x + C::N, *inverse = x + 3 * C::N;
	u32 right = ~0u;
	pk_load_big<C::N>(g->r, p->signatures + (u64)i * 2 * C::N);
	pk_load_big<C::N>(g->s, p->signatures + (u64)i * 2 * C::N + C::N);
	pk_zero<C::N>(g->u);
	right &= ~pk_is<C::N>(g->r, g->u) & ~pk_is<C::N>(g->s, g->u);
	ec_mul_n<C>(g->t, inverse, g->s); /* 1: it was not derived from s */
	g->u[0] = 1;
	right &= pk_is<C::N>(g->t, g->u);
	ec_public_r<C>(g->t, x);
	right &= pk_is<C::N>(g->t, g->r);
	ec_digest<C>(g->e, p->digests + (u64)i * C::N);
	ec_mul_n<C>(g->t, inverse, g->e);
	pk_add_mod<C::N>(g->sum, g->sum, g->t, typename C::O());
	pk_copy<C::N>(g->x, x);
	pk_copy<C::N>(g->y, y);
	if (begin) {
		pk_copy<C::N>(g->left.x, x);
		pk_copy<C::N>(g->left.y, y);
		pk_set<C::N>(g->left.z, typename C::One());
	} else {
		ec_add_affine<C>(&g->left, g->x, g->y, &g->work);
	}
	return right;
}

/* ec_verify lets signatures pass that are right. Each says R = (e/s)G + (r/s)Q, and both coordinates of R are known: the
 * sum of all R is compared with the sum of the right sides. Errors that cancel in a sum of eight are no fault of a
 * machine. */
template <class C> GK_FN void ec_verify(const struct pk_ecdsa *p)
{
	u32 first = gk_global_thread() * EC_GROUP, right = ~0u;
	if (first >= p->n)
		return;
	u32 n = gk_min(EC_GROUP, p->n - first);
	ec_check<C> g;
	pk_zero<C::N>(g.sum);
	PK_LOOP
	for (u32 i = 0; i < n; i++)
		right &= ec_check_one<C>(&g, p, first + i, i == 0);
	ec_add_multiple<C, EC_BITS, C::WINDOWS>(&g, &g.right, g.sum, p->generator, true);
	pk_zero<C::N>(g.sum);
	PK_LOOP
	for (u32 i = 0; i < n; i++) {
		u64 key = gk_load_u64(&p->keys[first + i]);
		const u32 *r = p->scratch + ((u64)(first + i) * 4 + 2) * C::N;
		ec_mul_n<C>(g.t, r + C::N, r);
		pk_add_mod<C::N>(g.sum, g.sum, g.t, typename C::O());
		if (i + 1 < n && gk_load_u64(&p->keys[first + i + 1]) == key)
			continue;
		ec_add_multiple<C, EC_KEY_BITS, 8 * C::N>(&g, &g.right, g.sum, (const u32 *)key + C::N, false);
		pk_zero<C::N>(g.sum);
	}
	right &= ec_same<C>(&g, &g.left, &g.right);
	PK_LOOP
	for (u32 i = 0; i < n; i++) {
		u32 *to = p->signatures + (u64)(first + i) * 2 * C::N;
		PK_LOOP
		for (u32 j = 0; j < 2 * C::N; j++)
			to[j] &= right;
		p->status[first + i] = right & 1;
	}
}

#endif
