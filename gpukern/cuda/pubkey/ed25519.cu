/* Verification of Ed25519 signatures (RFC 8032 5.1.7), each by itself, a signature to a thread: a batch has as many verdicts
 * as signatures. As crypto/ed25519 does, it compares the encoding of sB - kA with R, without a cofactor, refuses an s that is
 * not below the order, and takes a key whose y is not below the prime.
 *
 * Everything here is public, so that it branches as it likes. */
#include "edwards25519.cuh"

struct pk_ed25519 {
	const u32 *signatures; /* n of 64 bytes: R, s */
	const u32 *keys;       /* 32 bytes */
	const u32 *hashes;     /* 64 bytes: SHA-512 of R, key and message */
	u32 *status;           /* 1 where the signature is right */
	u32 n;
};

enum { PK_ED25519_THREADS = 128 };

GK_SLOW void ge_double(ge_point *p, ge_work *w)
{
	fe_mul_call(w->a, p->x, p->x);
	fe_mul_call(w->b, p->y, p->y);
	fe_mul_call(w->c, p->z, p->z);
	fe_add(w->c, w->c, w->c);
	fe_add(w->h, w->a, w->b);
	fe_add(w->e, p->x, p->y);
	fe_mul_call(w->e, w->e, w->e);
	fe_sub(w->e, w->h, w->e);
	fe_sub(w->g, w->a, w->b);
	fe_add(w->f, w->c, w->g);
	ge_finish(p, w);
}

/* ge_decode sets p to minus the point that a key encodes. It returns 0 if there is none (RFC 8032 5.1.3). */
GK_FN u32 ge_decode(ge_point *p, const u32 *key)
{
	u32 u[FE], v[FE], x[FE], t[FE], w[FE], one[FE], sign = key[FE - 1] >> 31;
	pk_copy<FE>(p->y, key);
	p->y[FE - 1] &= 0x7fffffff;
	pk_zero<FE>(one);
	one[0] = 1;
	fe_mul_call(u, p->y, p->y);
	fe_set(w, ge_d());
	fe_mul_call(v, u, w);
	fe_sub(u, u, one);
	fe_add(v, v, one);
	/* x = uv^3 (uv^7)^((p-5)/8), a root of u/v, or of -u/v. (p-5)/8 is 2^252 - 3. */
	fe_mul_call(t, v, v);
	fe_mul_call(t, t, v);
	fe_mul_call(x, t, u);
	fe_mul_call(t, t, t);
	fe_mul_call(t, t, v);
	fe_mul_call(t, t, u);
	fe_power_call(t, FE_ROOT);
	fe_mul_call(x, x, t);
	fe_mul_call(t, x, x);
	fe_mul_call(t, t, v);
	pk_copy<FE>(w, u);
	if (!fe_is(t, w)) {
		pk_zero<FE>(w);
		fe_sub(w, w, u);
		if (!fe_is(t, w))
			return 0;
		fe_set(w, ge_root());
		fe_mul_call(x, x, w);
	}
	fe_lower(x);
	if ((x[0] & 1) == sign) { /* minus the point */
		pk_zero<FE>(w);
		fe_sub(x, w, x);
	}
	pk_copy<FE>(p->x, x);
	pk_copy<FE>(p->z, one);
	fe_mul_call(p->t, p->x, p->y);
	return 1;
}

/* sc_canonical returns 1 if s is below the order. */
GK_FN u32 sc_canonical(const u32 *s)
{
	u32 cc = 0;
	pk_sub_cc(s[0], ge_order::m(0), &cc);
	PK_UNROLL
	for (int j = 1; j < 8; j++)
		pk_subc_cc(s[j], ge_order::m(j), &cc);
	return pk_subc(0, 0, &cc) & 1;
}

GK_KERNEL(pk_ed25519, struct pk_ed25519, PK_ED25519_THREADS)
{
	u32 i = gk_global_thread();
	if (i >= p->n)
		return;
	u32 s[8], k[8], r[8], key[8];
	pk_load<8>(r, p->signatures + i * 16);
	pk_load<8>(s, p->signatures + i * 16 + 8);
	pk_load<8>(key, p->keys + i * 8);
	p->status[i] = 0;
	ge_point sum;
	ge_work work;
	if (!sc_canonical(s) || !ge_decode(&sum, key))
		return;
	sc_reduce(k, p->hashes + i * 16);
	struct ge_entry table[16];
	pk_copy<FE>(table[0].sum, ge_generator[0].sum);
	pk_copy<FE>(table[0].difference, ge_generator[0].difference);
	pk_copy<FE>(table[0].z, ge_generator[0].z);
	pk_copy<FE>(table[0].t, ge_generator[0].t);
	ge_cache(&table[1], &sum);
	PK_LOOP
	for (int e = 2; e < 16; e++) {
		ge_add(&sum, &table[1], &work);
		ge_cache(&table[e], &sum);
	}
	ge_neutral(&sum);
	PK_LOOP
	for (int w = 63; w >= 0; w--) {
		PK_LOOP
		for (int t = 0; t < 4 && w < 63; t++)
			ge_double(&sum, &work);
		PK_LOOP
		for (int t = 0; t < 2; t++) {
			u32 digit = (t ? s : k)[w / 8] >> w % 8 * 4 & 15;
			ge_add(&sum, t ? &ge_generator[digit] : &table[digit], &work);
		}
	}
	ge_encode(k, &sum);
	p->status[i] = pk_is<8>(k, r) & 1;
}
