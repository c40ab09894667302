/* ML-KEM-768 (FIPS 203) by kernels for both sides: encapsulation, which is what a server of TLS does with a client's key,
 * and decapsulation. The first kernel works on what a public key shows to everybody, and may branch by it:
 * pk_mlkem_matrix samples the matrix, decodes and hashes the key, a part to a thread. pk_mlkem_encapsulate and
 * pk_mlkem_decapsulate have the secrets, an operation to a thread.
 *
 * A polynomial is 128 words of two coefficients below q, the even one in the lower half. A part of the matrix lies as
 * the next kernel reads it: word w of part k of operation i is at (128*k + w) * n + i. */
#include "keccak.cuh"

enum {
	MLKEM_Q          = 3329,
	MLKEM_K          = 3,   /* of ML-KEM-768 */
	MLKEM_WORDS      = 128, /* of a polynomial */
	MLKEM_KEY        = 1184 / 4,
	MLKEM_POLYNOMIAL = 384 / 4, /* words of an encoded one */
	MLKEM_SEED       = MLKEM_K * MLKEM_POLYNOMIAL,
	MLKEM_U          = 80,       /* words of a polynomial of u in a ciphertext */
	MLKEM_CIPHERTEXT = 1088 / 4,
	MLKEM_SAMPLED    = MLKEM_K * MLKEM_K,      /* parts: of the matrix, */
	MLKEM_DECODED    = MLKEM_SAMPLED + MLKEM_K, /* of the key */
	MLKEM_PARTS,                                /* and the hash */
	PK_MLKEM_THREADS = 128,
};

/* mlkem_private is a private key: its polynomials after the transform, the seed of answers to wrong ciphertexts, and the
 * encoded public key. */
struct mlkem_private {
	u32 s[MLKEM_K * MLKEM_WORDS], z[8], key[MLKEM_KEY];
};

struct pk_mlkem {
	const u32 *keys;    /* 1184 bytes each; or null: */
	const u64 *privates; /* where the private key is */
	const u32 *seeds;   /* 32 bytes: m; of encapsulations */
	const u32 *received; /* 1088 bytes: the ciphertext; of decapsulations */
	u32 *ciphertexts;   /* 1088 bytes: the result, or for comparison */
	u32 *shared;       /* 32 bytes */
	u32 *status;       /* 1 where the key is one */
	u32 *matrix;       /* 12 polynomials */
	u32 *hashes;       /* 32 bytes: H(key) */
	u32 *wrong;        /* 3 words: not 0 where a coefficient of the key is q or more */
	u32 n;
};

/* 17^BitRev7(k), and 17^(2*BitRev7(k) + 1), modulo q (FIPS 203, appendix A). */
GK_CONST u16 mlkem_zetas[128] = {
	1, 1729, 2580, 3289, 2642, 630, 1897, 848, 1062, 1919, 193, 797, 2786, 3260, 569, 1746,
	296, 2447, 1339, 1476, 3046, 56, 2240, 1333, 1426, 2094, 535, 2882, 2393, 2879, 1974, 821,
	289, 331, 3253, 1756, 1197, 2304, 2277, 2055, 650, 1977, 2513, 632, 2865, 33, 1320, 1915,
	2319, 1435, 807, 452, 1438, 2868, 1534, 2402, 2647, 2617, 1481, 648, 2474, 3110, 1227, 910,
	17, 2761, 583, 2649, 1637, 723, 2288, 1100, 1409, 2662, 3281, 233, 756, 2156, 3015, 3050,
	1703, 1651, 2789, 1789, 1847, 952, 1461, 2687, 939, 2308, 2437, 2388, 733, 2337, 268, 641,
	1584, 2298, 2037, 3220, 375, 2549, 2090, 1645, 1063, 319, 2773, 757, 2099, 561, 2466, 2594,
	2804, 1092, 403, 1026, 1143, 2150, 2775, 886, 1722, 1212, 1874, 1029, 2110, 2935, 885, 2154,
};
GK_CONST u16 mlkem_gammas[128] = {
	17, 3312, 2761, 568, 583, 2746, 2649, 680, 1637, 1692, 723, 2606, 2288, 1041, 1100, 2229,
	1409, 1920, 2662, 667, 3281, 48, 233, 3096, 756, 2573, 2156, 1173, 3015, 314, 3050, 279,
	1703, 1626, 1651, 1678, 2789, 540, 1789, 1540, 1847, 1482, 952, 2377, 1461, 1868, 2687, 642,
	939, 2390, 2308, 1021, 2437, 892, 2388, 941, 733, 2596, 2337, 992, 268, 3061, 641, 2688,
	1584, 1745, 2298, 1031, 2037, 1292, 3220, 109, 375, 2954, 2549, 780, 2090, 1239, 1645, 1684,
	1063, 2266, 319, 3010, 2773, 556, 757, 2572, 2099, 1230, 561, 2768, 2466, 863, 2594, 735,
	2804, 525, 1092, 2237, 403, 2926, 1026, 2303, 1143, 2186, 2150, 1179, 2775, 554, 886, 2443,
	1722, 1607, 1212, 2117, 1874, 1455, 1029, 2300, 2110, 1219, 2935, 394, 885, 2444, 2154, 1175,
};

GK_FN u32 mlkem_high(u32 a, u32 b) { return (u32)((u64)a * b >> 32); }

/* mlkem_lower subtracts q from v, below 2q, if it is q or more: v - q wraps around if not. */
GK_FN u32 mlkem_lower(u32 v) { return gk_min(v, v - MLKEM_Q); }

/* mlkem_reduce returns v modulo q. The estimate of v/q is at most one too low. */
GK_FN u32 mlkem_reduce(u32 v) { return mlkem_lower(v - mlkem_high(v, 1290167) * MLKEM_Q); } /* 2^32 / q */

/* mlkem_key_of returns the encoded public key of an operation. */
GK_FN const u32 *mlkem_key_of(const struct pk_mlkem *p, u32 i)
{
	if (p->keys)
		return p->keys + (u64)i * MLKEM_KEY;
	return ((const struct mlkem_private *)gk_load_u64(&p->privates[i]))->key;
}

/* mlkem_sample makes a polynomial of the matrix of a seed (FIPS 203 4.2.2, SampleNTT). */
GK_FN void mlkem_sample(const struct pk_mlkem *p, u32 part, u32 i)
{
	u64 s[KECCAK_WORDS];
	const u32 *seed = mlkem_key_of(p, i) + MLKEM_SEED;
	u32 *to = p->matrix + (u64)part * MLKEM_WORDS * p->n + i, n = 0, half = 0;

	keccak_clear(s);
	for (int j = 0; j < 4; j++)
		s[j] = (u64)seed[2 * j + 1] << 32 | seed[2 * j];
	s[4] = part / MLKEM_K | part % MLKEM_K << 8 | SHAKE_SUFFIX << 16; /* of the transposed matrix */
	s[SHAKE128_WORDS - 1] = (u64)1 << 63;
	while (n < 2 * MLKEM_WORDS) {
		keccak(s);
		const u8 *b = (const u8 *)s;
		for (u32 at = 0; at < 8 * SHAKE128_WORDS; at += 3) {
			u32 pair = b[at] | b[at + 1] << 8 | (u32)b[at + 2] << 16;
			for (int k = 0; k < 2; k++) {
				u32 v = pair >> 12 * k & 0xfff;
				if (v >= MLKEM_Q || n == 2 * MLKEM_WORDS)
					continue;
				if (n & 1)
					to[(u64)(n >> 1) * p->n] = half | v << 16;
				half = v;
				n++;
			}
		}
	}
}

/* mlkem_decode decodes a polynomial of the key (FIPS 203 4.2.1, ByteDecode of 12 bits), and checks it (7.2). */
GK_FN void mlkem_decode(const struct pk_mlkem *p, u32 k, u32 i)
{
	const u32 *from = mlkem_key_of(p, i) + k * MLKEM_POLYNOMIAL;
	u32 *to = p->matrix + (u64)(MLKEM_SAMPLED + k) * MLKEM_WORDS * p->n + i, wrong = 0;

	for (u32 w = 0; w < MLKEM_WORDS; w += 4) {
		u32 a = *from++, b = *from++, c = *from++;
		u32 pairs[4] = {a, a >> 24 | b << 8, b >> 16 | c << 16, c >> 8};
		PK_UNROLL
		for (int j = 0; j < 4; j++) {
			u32 low = pairs[j] & 0xfff, high = pairs[j] >> 12 & 0xfff;
			wrong |= low >= MLKEM_Q || high >= MLKEM_Q;
			to[(u64)(w + j) * p->n] = low | high << 16;
		}
	}
	p->wrong[i * MLKEM_K + k] = wrong;
}

/* mlkem_hash hashes a key: SHA3-256. */
GK_FN void mlkem_hash(const struct pk_mlkem *p, u32 i)
{
	u64 s[KECCAK_WORDS];
	const u32 *from = mlkem_key_of(p, i);
	u32 at = 0;

	keccak_clear(s);
	for (u32 w = 0; w < MLKEM_KEY / 2; w++) {
		s[at++] ^= (u64)from[2 * w + 1] << 32 | from[2 * w];
		if (at == SHA3_256_WORDS) {
			keccak(s);
			at = 0;
		}
	}
	s[at] ^= SHA3_SUFFIX;
	s[SHA3_256_WORDS - 1] ^= (u64)1 << 63;
	keccak(s);
	for (int j = 0; j < 4; j++) {
		p->hashes[i * 8 + 2 * j] = (u32)s[j];
		p->hashes[i * 8 + 2 * j + 1] = (u32)(s[j] >> 32);
	}
}

GK_KERNEL(pk_mlkem_matrix, struct pk_mlkem, PK_MLKEM_THREADS)
{
	u32 part = gk_block() % MLKEM_PARTS, i = gk_block() / MLKEM_PARTS * gk_block_size() + gk_thread();
	if (i >= p->n)
		return;
	if (part < MLKEM_SAMPLED)
		mlkem_sample(p, part, i);
	else if (part < MLKEM_DECODED)
		mlkem_decode(p, part - MLKEM_SAMPLED, i);
	else
		mlkem_hash(p, i);
}

/* mlkem_pair combines two coefficients. */
GK_FN u32 mlkem_pair(u32 low, u32 high) { return low | high << 16; }

/* mlkem_ntt is the number-theoretic transform (FIPS 203 4.3). Every factor is for both coefficients of a word. */
GK_SLOW void mlkem_ntt(u32 *f)
{
	u32 k = 1;
	PK_LOOP
	for (u32 length = MLKEM_WORDS / 2; length >= 1; length >>= 1) {
		PK_LOOP
		for (u32 j = 0; j < MLKEM_WORDS / 2; j++) {
			u32 at = (j & (length - 1)) | (j & ~(length - 1)) << 1;
			u32 zeta = mlkem_zetas[k + j / length], a = f[at], b = f[at + length];
			u32 low = mlkem_reduce(zeta * (b & 0xffff)), high = mlkem_reduce(zeta * (b >> 16));
			f[at] = mlkem_pair(mlkem_lower((a & 0xffff) + low), mlkem_lower((a >> 16) + high));
			f[at + length] = mlkem_pair(mlkem_lower((a & 0xffff) + MLKEM_Q - low), mlkem_lower((a >> 16) + MLKEM_Q - high));
		}
		k <<= 1;
	}
}

/* mlkem_inverse is its inverse, times 128: the caller divides. */
GK_SLOW void mlkem_inverse(u32 *f)
{
	u32 k = MLKEM_WORDS - 1;
	PK_LOOP
	for (u32 length = 1; length < MLKEM_WORDS; length <<= 1) {
		PK_LOOP
		for (u32 j = 0; j < MLKEM_WORDS / 2; j++) {
			u32 at = (j & (length - 1)) | (j & ~(length - 1)) << 1;
			u32 zeta = mlkem_zetas[k - j / length], a = f[at], b = f[at + length];
			f[at] = mlkem_pair(mlkem_lower((a & 0xffff) + (b & 0xffff)), mlkem_lower((a >> 16) + (b >> 16)));
			f[at + length] = mlkem_pair(mlkem_reduce(zeta * ((b & 0xffff) + MLKEM_Q - (a & 0xffff))),
						    mlkem_reduce(zeta * ((b >> 16) + MLKEM_Q - (a >> 16))));
		}
		k -= MLKEM_WORDS / 2 / length;
	}
}

/* mlkem_prf sets s to the bits of a number of the randomness r (FIPS 203 4.1): 16 words. */
GK_FN void mlkem_prf(u64 *s, const u64 *r, u32 number)
{
	keccak_clear(s);
	PK_UNROLL
	for (int j = 0; j < 4; j++)
		s[j] = r[j];
	s[4] = number | SHAKE_SUFFIX << 8;
	s[SHA3_256_WORDS - 1] = (u64)1 << 63; /* SHAKE256 has blocks as long */
	keccak(s);
}

/* mlkem_noise returns two coefficients of the centred binomial distribution, by eight bits (FIPS 203 4.2.2). */
GK_FN u32 mlkem_noise(u32 bits)
{
	u32 sums = (bits & 0x55) + (bits >> 1 & 0x55); /* two bits each */
	u32 low = (sums & 3) + MLKEM_Q - (sums >> 2 & 3), high = (sums >> 4 & 3) + MLKEM_Q - (sums >> 6 & 3);
	return mlkem_pair(mlkem_lower(low), mlkem_lower(high));
}

GK_FN u32 mlkem_noise_of(const u64 *s, u32 w) { return mlkem_noise((u32)(s[w / 8] >> w % 8 * 8) & 0xff); }

/* mlkem_product sets f to a row of polynomials, whose words are so many apart, times y: a product of pairs modulo X^2 -
 * gamma (FIPS 203 4.3.1). */
GK_FN void mlkem_product(u32 *f, const u32 *from, u32 apart, const u32 *y)
{
	PK_LOOP
	for (u32 w = 0; w < MLKEM_WORDS; w++) {
		u32 c0 = 0, c1 = 0, c2 = 0;
		PK_UNROLL
		for (int j = 0; j < MLKEM_K; j++) {
			u32 a = from[(u64)(j * MLKEM_WORDS + w) * apart], b = y[j * MLKEM_WORDS + w];
			c0 += (a & 0xffff) * (b & 0xffff);
			c1 += (a & 0xffff) * (b >> 16) + (a >> 16) * (b & 0xffff);
			c2 += (a >> 16) * (b >> 16);
		}
		f[w] = mlkem_pair(mlkem_reduce(c0 + mlkem_reduce(c2) * mlkem_gammas[w]), mlkem_reduce(c1));
	}
}

/* mlkem_compress returns round(v * 2^bits / q) modulo 2^bits (FIPS 203 4.2.1). */
GK_FN u32 mlkem_compress(u32 v, u32 bits)
{
	u32 n = (v << bits) + MLKEM_Q / 2, quotient = mlkem_high(n, 1290167);
	quotient += (MLKEM_Q - 1 - (n - quotient * MLKEM_Q)) >> 31;
	return quotient & ((1u << bits) - 1);
}

/* mlkem_coefficients returns word w of the polynomial f/128 plus noise. */
GK_FN u32 mlkem_coefficients(const u32 *f, u32 w, u32 noise)
{
	u32 low = mlkem_reduce((f[w] & 0xffff) * 3303), high = mlkem_reduce((f[w] >> 16) * 3303); /* 1/128 */
	return mlkem_pair(mlkem_lower(low + (noise & 0xffff)), mlkem_lower(high + (noise >> 16)));
}

/* mlkem_u writes f plus noise in ten bits each: 16 coefficients make five words. */
GK_FN void mlkem_u(u32 *to, const u32 *f, const u64 *noise)
{
	PK_LOOP
	for (u32 w = 0; w < MLKEM_WORDS; w += 8) {
		u64 bits = 0;
		u32 n = 0;
		PK_UNROLL
		for (u32 j = 0; j < 8; j++) {
			u32 v = mlkem_coefficients(f, w + j, mlkem_noise_of(noise, w + j));
			bits |= (u64)(mlkem_compress(v & 0xffff, 10) | mlkem_compress(v >> 16, 10) << 10) << n;
			n += 20;
			if (n >= 32) {
				*to++ = (u32)bits;
				bits >>= 32;
				n -= 32;
			}
		}
	}
}

/* mlkem_v writes f plus noise and the message in four bits each: a bit of the message is q/2, rounded up. */
GK_FN void mlkem_v(u32 *to, const u32 *f, const u64 *noise, const u32 *message)
{
	PK_LOOP
	for (u32 w = 0; w < MLKEM_WORDS; w += 4) {
		u32 bits = 0;
		PK_UNROLL
		for (u32 j = 0; j < 4; j++) {
			u32 v = mlkem_coefficients(f, w + j, mlkem_noise_of(noise, w + j));
			u32 m = message[w / 16] >> (w + j) % 16 * 2;
			u32 low = mlkem_lower((v & 0xffff) + (0 - (m & 1) & (MLKEM_Q + 1) / 2));
			u32 high = mlkem_lower((v >> 16) + (0 - (m >> 1 & 1) & (MLKEM_Q + 1) / 2));
			bits |= (mlkem_compress(low, 4) | mlkem_compress(high, 4) << 4) << 8 * j;
		}
		*to++ = bits;
	}
}

/* mlkem_work is what a thread has. */
struct mlkem_work {
	u64 s[KECCAK_WORDS], r[4];
	u32 y[MLKEM_K * MLKEM_WORDS], f[MLKEM_WORDS], message[8], shared[8];
};

/* mlkem_derive makes the shared secret and the randomness: SHA3-512 of the message and the key's hash. */
GK_FN void mlkem_derive(mlkem_work *g, const struct pk_mlkem *p, u32 i)
{
	const u32 *hash = p->hashes + i * 8;
	keccak_clear(g->s);
	PK_LOOP
	for (u32 j = 0; j < 4; j++) {
		g->s[j] = (u64)g->message[2 * j + 1] << 32 | g->message[2 * j];
		g->s[4 + j] = (u64)hash[2 * j + 1] << 32 | hash[2 * j];
	}
	g->s[8] = SHA3_SUFFIX | (u64)1 << 63;
	keccak(g->s);
	PK_LOOP
	for (u32 j = 0; j < 4; j++) {
		g->shared[2 * j] = (u32)g->s[j];
		g->shared[2 * j + 1] = (u32)(g->s[j] >> 32);
		g->r[j] = g->s[4 + j];
	}
}

/* mlkem_encrypt writes the ciphertext of the message with the randomness (FIPS 203 5.2). */
GK_FN void mlkem_encrypt(mlkem_work *g, const struct pk_mlkem *p, u32 i)
{
	u32 *to = p->ciphertexts + (u64)i * MLKEM_CIPHERTEXT;
	PK_LOOP
	for (u32 k = 0; k < MLKEM_K; k++) {
		mlkem_prf(g->s, g->r, k);
		PK_LOOP
		for (u32 w = 0; w < MLKEM_WORDS; w++)
			g->y[k * MLKEM_WORDS + w] = mlkem_noise_of(g->s, w);
		mlkem_ntt(g->y + k * MLKEM_WORDS);
	}
	PK_LOOP
	for (u32 row = 0; row <= MLKEM_K; row++) {
		mlkem_product(g->f, p->matrix + (u64)row * MLKEM_K * MLKEM_WORDS * p->n + i, p->n, g->y);
		mlkem_inverse(g->f);
		mlkem_prf(g->s, g->r, MLKEM_K + row);
		if (row < MLKEM_K)
			mlkem_u(to + row * MLKEM_U, g->f, g->s);
		else
			mlkem_v(to + MLKEM_K * MLKEM_U, g->f, g->s, g->message);
	}
}

GK_KERNEL(pk_mlkem_encapsulate, struct pk_mlkem, PK_MLKEM_THREADS)
{
	u32 i = gk_global_thread();
	if (i >= p->n)
		return;
	mlkem_work g;
	PK_LOOP
	for (u32 j = 0; j < 8; j++)
		g.message[j] = p->seeds[i * 8 + j];
	mlkem_derive(&g, p, i);
	mlkem_encrypt(&g, p, i);
	PK_LOOP
	for (u32 j = 0; j < 8; j++)
		p->shared[i * 8 + j] = g.shared[j];
	u32 wrong = p->wrong[i * MLKEM_K] | p->wrong[i * MLKEM_K + 1] | p->wrong[i * MLKEM_K + 2];
	p->status[i] = wrong ^ 1;
	pk_wipe((u32 *)&g, sizeof g / 4);
}

/* mlkem_decompress returns round(v * q / 2^bits) (FIPS 203 4.2.1). */
GK_FN u32 mlkem_decompress(u32 v, u32 bits) { return ((v & ((1u << bits) - 1)) * MLKEM_Q + (1u << (bits - 1))) >> bits; }

/* mlkem_decrypt sets the message to that of a ciphertext (FIPS 203 5.3). */
GK_FN void mlkem_decrypt(mlkem_work *g, const struct mlkem_private *key, const u32 *from)
{
	PK_LOOP
	for (u32 k = 0; k < MLKEM_K; k++) {
		PK_LOOP
		for (u32 w = 0; w < MLKEM_WORDS; w++) { /* 20 bits of a word */
			u32 at = 20 * w, bits = gk_funnel(from[k * MLKEM_U + at / 32], from[k * MLKEM_U + (at + 19) / 32], at % 32);
			g->y[k * MLKEM_WORDS + w] = mlkem_pair(mlkem_decompress(bits, 10), mlkem_decompress(bits >> 10, 10));
		}
		mlkem_ntt(g->y + k * MLKEM_WORDS);
	}
	mlkem_product(g->f, key->s, 1, g->y);
	mlkem_inverse(g->f);
	PK_LOOP
	for (u32 j = 0; j < 8; j++)
		g->message[j] = 0;
	PK_LOOP
	for (u32 w = 0; w < MLKEM_WORDS; w++) {
		u32 v = from[MLKEM_K * MLKEM_U + w / 4] >> w % 4 * 8, f = mlkem_coefficients(g->f, w, 0);
		u32 low = mlkem_lower(mlkem_decompress(v, 4) + MLKEM_Q - (f & 0xffff));
		u32 high = mlkem_lower(mlkem_decompress(v >> 4, 4) + MLKEM_Q - (f >> 16));
		g->message[w / 16] |= (mlkem_compress(low, 1) | mlkem_compress(high, 1) << 1) << w % 16 * 2;
	}
}

/* mlkem_reject sets s to the answer to a wrong ciphertext: SHAKE256 of the key's seed and the ciphertext (FIPS 203 7.3). */
GK_FN void mlkem_reject(u64 *s, const struct mlkem_private *key, const u32 *from)
{
	u32 at = 4;
	keccak_clear(s);
	PK_LOOP
	for (u32 j = 0; j < 4; j++)
		s[j] = (u64)key->z[2 * j + 1] << 32 | key->z[2 * j];
	PK_LOOP
	for (u32 w = 0; w < MLKEM_CIPHERTEXT; w += 2) {
		s[at++] ^= (u64)from[w + 1] << 32 | from[w];
		if (at == SHA3_256_WORDS) {
			keccak(s);
			at = 0;
		}
	}
	s[at] ^= SHAKE_SUFFIX;
	s[SHA3_256_WORDS - 1] ^= (u64)1 << 63;
	keccak(s);
}

GK_KERNEL(pk_mlkem_decapsulate, struct pk_mlkem, PK_MLKEM_THREADS)
{
	u32 i = gk_global_thread();
	if (i >= p->n)
		return;
	mlkem_work g;
	const struct mlkem_private *key = (const struct mlkem_private *)gk_load_u64(&p->privates[i]);
	const u32 *from = p->received + (u64)i * MLKEM_CIPHERTEXT, *made = p->ciphertexts + (u64)i * MLKEM_CIPHERTEXT;
	u32 differs = 0;
	mlkem_decrypt(&g, key, from);
	mlkem_derive(&g, p, i);
	mlkem_encrypt(&g, p, i);
	PK_LOOP
	for (u32 w = 0; w < MLKEM_CIPHERTEXT; w++)
		differs |= from[w] ^ made[w];
	mlkem_reject(g.s, key, from);
	u32 right = pk_mask(pk_equal(differs >> 16 | (differs & 0xffff), 0));
	PK_LOOP
	for (u32 j = 0; j < 8; j++) {
		u32 other = (u32)(g.s[j / 2] >> j % 2 * 32);
		p->shared[i * 8 + j] = other ^ ((other ^ g.shared[j]) & right);
	}
	pk_wipe((u32 *)&g, sizeof g / 4);
}
