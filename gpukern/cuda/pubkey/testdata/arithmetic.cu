/* The arithmetic of the kernels, an operation to a thread, for tests with operands at which carries run far. */
#pragma clang diagnostic ignored "-Wunused-function" /* it needs parts of the headers */
#include "../edwards25519.cuh"
#include "../rsa.cuh"

enum { ARITHMETIC_WORDS = 64 };

/* Operations, as arithmetic_test.go has them. */
enum {
	OP_FE_MUL,
	OP_FE_ADD,
	OP_FE_SUB,
	OP_FE_SCALE,
	OP_FE_LOWER,
	OP_FE_INVERT,
	OP_P256_MUL,
	OP_P256_ADD,
	OP_P256_SUB,
	OP_P256_MUL_N,
	OP_P384_MUL,
	OP_P384_SUB,
	OP_P384_MUL_N,
	OP_ORDER_MUL,
	OP_RSA_32,
	OP_RSA_48,
	OP_RSA_64,
	OP_RSA_LONG,
};

struct pk_arithmetic {
	const u32 *a, *b, *m; /* ARITHMETIC_WORDS words each; m is a modulus of RSA */
	u32 *result;
	u32 n, op;
};

template <int N, class M> GK_FN void one(u32 *r, const u32 *a, const u32 *b, u32 op)
{
	u32 x[N], y[N];
	pk_copy<N>(x, a);
	pk_copy<N>(y, b);
	if (op == 0)
		pk_mul<N>(x, x, y, M());
	else if (op == 1)
		pk_add_mod<N>(x, x, y, M());
	else
		pk_sub_mod<N>(x, x, y, M());
	pk_copy<N>(r, x);
}

/* factor returns -1/m modulo 2^32, by five steps that double the bits that are right. */
GK_FN u32 factor(u32 m)
{
	u32 v = m;
	for (int i = 0; i < 4; i++)
		v *= 2 - m * v;
	return 0 - v;
}

GK_FN void field(u32 *r, const u32 *a, const u32 *b, u32 op)
{
	u32 x[FE], y[FE];
	pk_copy<FE>(x, a);
	pk_copy<FE>(y, b);
	switch (op) {
	case OP_FE_MUL: fe_mul(x, x, y); break;
	case OP_FE_ADD: fe_add(x, x, y); break;
	case OP_FE_SUB: fe_sub(x, x, y); break;
	case OP_FE_SCALE: fe_scale(x, y, 121665); break;
	case OP_FE_LOWER: fe_lower(x); break;
	case OP_FE_INVERT: fe_invert(x, x); break;
	}
	pk_copy<FE>(r, x);
}

GK_KERNEL(pk_arithmetic, struct pk_arithmetic, 32)
{
	u32 i = gk_global_thread();
	if (pk_beyond(&i, p->n))
		return;
	const u32 *a = p->a + i * ARITHMETIC_WORDS, *b = p->b + i * ARITHMETIC_WORDS, *m = p->m + i * ARITHMETIC_WORDS;
	u32 *r = p->result + i * ARITHMETIC_WORDS, t[ARITHMETIC_WORDS + 2];
	switch (p->op) {
	case OP_P256_MUL: one<8, p256_p>(r, a, b, 0); break;
	case OP_P256_ADD: one<8, p256_p>(r, a, b, 1); break;
	case OP_P256_SUB: one<8, p256_p>(r, a, b, 2); break;
	case OP_P256_MUL_N: one<8, p256_n>(r, a, b, 0); break;
	case OP_P384_MUL: one<12, p384_p>(r, a, b, 0); break;
	case OP_P384_SUB: one<12, p384_p>(r, a, b, 2); break;
	case OP_P384_MUL_N: one<12, p384_n>(r, a, b, 0); break;
	case OP_ORDER_MUL: one<8, ge_order>(r, a, b, 0); break;
	case OP_RSA_32: rsa_mul<32>(r, a, b, m, factor(m[0])); break;
	case OP_RSA_48: rsa_mul<48>(r, a, b, m, factor(m[0])); break;
	case OP_RSA_64: rsa_mul<64>(r, a, b, m, factor(m[0])); break;
	case OP_RSA_LONG: rsa_long<64>(r, a, b, m, factor(m[0]), t); break;
	default: field(r, a, b, p->op);
	}
}
