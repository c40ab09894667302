/* The curves' constants: the modulus p, the order n, 2^(32N) modulo p (One), its square and cube modulo n (R2, R3), and
 * the exponents of inversion, which are public. */
#ifndef MILLRACE_PK_CURVES_H
#define MILLRACE_PK_CURVES_H

#include "limbs.cuh"

/* A number that is known when compiled: a word of it is an operand of an instruction. */
#define PK_NUMBER(name, n, ...)                                                                               \
	struct name {                                                                                         \
		static PK_MEMBER u32 m(int j)                                                                 \
		{                                                                                             \
			const u32 words[n] = {__VA_ARGS__};                                                   \
			return words[j];                                                                      \
		}                                                                                             \
	};
#define PK_MODULUS(name, n, factor, ...)                                                                      \
	struct name {                                                                                         \
		static PK_MEMBER u32 m(int j)                                                                 \
		{                                                                                             \
			const u32 words[n] = {__VA_ARGS__};                                                   \
			return words[j];                                                                      \
		}                                                                                             \
		static PK_MEMBER u32 inv(void) { return factor; }                                             \
	};

/* P-256 (FIPS 186-5, SP 800-186 3.2.1). */
PK_MODULUS(p256_p, 8, 0x1, 0xffffffff, 0xffffffff, 0xffffffff, 0x00000000, 0x00000000, 0x00000000,
	0x00000001, 0xffffffff)
PK_MODULUS(p256_n, 8, 0xee00bc4f, 0xfc632551, 0xf3b9cac2, 0xa7179e84, 0xbce6faad, 0xffffffff, 0xffffffff,
	0x00000000, 0xffffffff)
PK_NUMBER(p256_one, 8, 0x00000001, 0x00000000, 0x00000000, 0xffffffff, 0xffffffff, 0xffffffff, 0xfffffffe,
	0x00000000)
PK_NUMBER(p256_r2, 8, 0xbe79eea2, 0x83244c95, 0x49bd6fa6, 0x4699799c, 0x2b6bec59, 0x2845b239, 0xf3d95620,
	0x66e12d94)
PK_NUMBER(p256_r3, 8, 0x0b65a624, 0xac8ebec9, 0x0c0555c9, 0x111f28ae, 0x6ba5e93f, 0x2543b924, 0x6407be65,
	0x503a54e7)
GK_CONST u32 p256_invert_p[8] = {0xfffffffd, 0xffffffff, 0xffffffff, 0x00000000, 0x00000000, 0x00000000,
	0x00000001, 0xffffffff};
GK_CONST u32 p256_invert_n[8] = {0xfc63254f, 0xf3b9cac2, 0xa7179e84, 0xbce6faad, 0xffffffff, 0xffffffff,
	0x00000000, 0xffffffff};

struct p256 {
	enum { N = 8, WINDOWS = 43 };
	typedef p256_p P;
	typedef p256_n O;
	typedef p256_one One;
	typedef p256_r2 R2;
	typedef p256_r3 R3;
	static PK_MEMBER u32 invert_p(u32 j) { return p256_invert_p[j]; }
	static PK_MEMBER u32 invert_n(u32 j) { return p256_invert_n[j]; }
};

/* P-384 (FIPS 186-5, SP 800-186 3.2.1). */
PK_MODULUS(p384_p, 12, 0x1, 0xffffffff, 0x00000000, 0x00000000, 0xffffffff, 0xfffffffe, 0xffffffff,
	0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff)
PK_MODULUS(p384_n, 12, 0xe88fdc45, 0xccc52973, 0xecec196a, 0x48b0a77a, 0x581a0db2, 0xf4372ddf, 0xc7634d81,
	0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff)
PK_NUMBER(p384_one, 12, 0x00000001, 0xffffffff, 0xffffffff, 0x00000000, 0x00000001, 0x00000000, 0x00000000,
	0x00000000, 0x00000000, 0x00000000, 0x00000000, 0x00000000)
PK_NUMBER(p384_r2, 12, 0x19b409a9, 0x2d319b24, 0xdf1aa419, 0xff3d81e5, 0xfcb82947, 0xbc3e483a, 0x4aab1cc5,
	0xd40d4917, 0x28266895, 0x3fb05b7a, 0x2b39bf21, 0x0c84ee01)
PK_NUMBER(p384_r3, 12, 0x377c7677, 0x302a6faf, 0xd26894bc, 0x2a70cb61, 0xba8dc4ba, 0x0c27ddb8, 0xedb48eb6,
	0x5dbd3f41, 0x9522617b, 0x16d08167, 0xb33c33c6, 0xd558bfbc)
GK_CONST u32 p384_invert_p[12] = {0xfffffffd, 0x00000000, 0x00000000, 0xffffffff, 0xfffffffe, 0xffffffff,
	0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff};
GK_CONST u32 p384_invert_n[12] = {0xccc52971, 0xecec196a, 0x48b0a77a, 0x581a0db2, 0xf4372ddf, 0xc7634d81,
	0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff};

struct p384 {
	enum { N = 12, WINDOWS = 64 };
	typedef p384_p P;
	typedef p384_n O;
	typedef p384_one One;
	typedef p384_r2 R2;
	typedef p384_r3 R3;
	static PK_MEMBER u32 invert_p(u32 j) { return p384_invert_p[j]; }
	static PK_MEMBER u32 invert_n(u32 j) { return p384_invert_n[j]; }
};

#endif
