// Numbers are rows of 64 bytes: row i holds digit i, of 52 bits, of eight numbers. Columns of products are sums of
// halves of products, below 2^58, and are no digits yet. VPMADD52 multiplies the low 52 bits of its factors and adds
// one half of the product to a 64-bit sum.
//
// A modulus is 64 bytes of digits, 64 bytes of the bias, and k0.

#define MASK52(r) \
	MOVQ $0x000fffffffffffff, AX; \
	VPBROADCASTQ AX, r;

// CARRY makes a digit of column c at p, and adds the rest to column d.
#define CARRY(c, d, p) \
	VPANDQ Z31, c, Z30; \
	VMOVDQU64 Z30, p; \
	VPSRLQ $52, c, c; \
	VPADDQ c, d, d;

// CARRY_SIGNED is CARRY for columns that may be negative.
#define CARRY_SIGNED(c, d, p) \
	VPANDQ Z31, c, Z30; \
	VMOVDQU64 Z30, p; \
	VPSRAQ $52, c, c; \
	VPADDQ c, d, d;

// DIFFERENCE has a digit of a - b + 4n in z.
#define DIFFERENCE(i, z) \
	VMOVDQU64 (64*i)(SI), z; \
	VPADDQ.BCST (64+8*i)(DX), z, z; \
	VPSUBQ (64*i)(BX), z, z;

// COMBINATION has a digit of a + b - 2c + 4n in z.
#define COMBINATION(i, z) \
	VMOVDQU64 (64*i)(R8), Z30; \
	VPADDQ Z30, Z30, Z30; \
	VMOVDQU64 (64*i)(SI), z; \
	VPADDQ (64*i)(BX), z, z; \
	VPADDQ.BCST (64+8*i)(DX), z, z; \
	VPSUBQ Z30, z, z;
