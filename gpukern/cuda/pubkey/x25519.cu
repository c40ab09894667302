/* X25519 (RFC 7748): a product of a scalar and a point for each thread. */
#include "field25519.cuh"

struct pk_x25519 {
	const u32 *scalars; /* n of 32 bytes, on a boundary of 16, as the points and products */
	const u32 *points;
	u32 *products;
	u32 n;
};

enum { PK_X25519_THREADS = 128 };

/* pk_step doubles (x2:z2) and adds it to (x3:z3), with the names of RFC 7748 5. */
GK_FN void pk_step(u32 *x2, u32 *z2, u32 *x3, u32 *z3, const u32 *x1)
{
	u32 a[FE], b[FE], c[FE], d[FE];
	fe_add(a, x2, z2);
	fe_sub(b, x2, z2);
	fe_add(c, x3, z3);
	fe_sub(d, x3, z3);
	fe_mul(d, d, a); /* DA */
	fe_mul(c, c, b); /* CB */
	fe_square(a, a); /* AA */
	fe_square(b, b); /* BB */
	fe_add(x3, d, c);
	fe_square(x3, x3);
	fe_sub(z3, d, c);
	fe_square(z3, z3);
	fe_mul(z3, z3, x1);
	fe_mul(x2, a, b);
	fe_sub(b, a, b);        /* E */
	fe_scale(z2, b, 121665); /* (486662 - 2) / 4 */
	fe_add(z2, z2, a);
	fe_mul(z2, z2, b);
}

GK_FN void pk_exchange(u32 *a, u32 *b, u32 mask)
{
	PK_UNROLL
	for (int j = 0; j < FE; j++) {
		u32 t = (a[j] ^ b[j]) & mask;
		a[j] ^= t;
		b[j] ^= t;
	}
}

GK_KERNEL(pk_x25519, struct pk_x25519, PK_X25519_THREADS)
{
	u32 i = gk_global_thread();
	if (i >= p->n)
		return;
	u32 k[FE], x1[FE], x2[FE], z2[FE], x3[FE], z3[FE];
	pk_load<FE>(k, p->scalars + i * FE);
	pk_load<FE>(x1, p->points + i * FE);
	k[0] &= ~7u;
	k[7] = (k[7] & 0x7fffffff) | 0x40000000;
	x1[7] &= 0x7fffffff; /* RFC 7748 5: the unused bit is ignored */
	pk_zero<FE>(x2);
	pk_zero<FE>(z2);
	pk_zero<FE>(z3);
	x2[0] = z3[0] = 1;
	pk_copy<FE>(x3, x1);
	/* The scalar moves to the left, a bit each step, so that its registers have constant numbers. Bit 255 is clear. */
	u32 before = 0;
	PK_LOOP
	for (int t = 0; t < 255; t++) {
		PK_UNROLL
		for (int j = FE - 1; j > 0; j--)
			k[j] = k[j] << 1 | k[j - 1] >> 31;
		k[0] <<= 1;
		u32 bit = 0 - (k[7] >> 31);
		pk_exchange(x2, x3, bit ^ before);
		pk_exchange(z2, z3, bit ^ before);
		before = bit;
		pk_step(x2, z2, x3, z3, x1);
	}
	/* The lowest bit is clear: the exchange that RFC 7748 has here does nothing. */
	fe_invert(z2, z2);
	fe_mul(x2, x2, z2);
	fe_lower(x2);
	pk_store<FE>(p->products + i * FE, x2);
}
