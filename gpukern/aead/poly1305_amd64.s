//go:build amd64 && !purego

#include "textflag.h"

// Poly1305 (RFC 8439 2.5) of eight blocks at once, one to a 64-bit lane. Numbers have digits of 44, 44 and 42 bits, in rows.
// Lanes have blocks 0, 4, 1, 5, 2, 6, 3 and 7 of a group of 128 bytes, as VPUNPCKLQDQ leaves them.
//
// A product's digits are sums of halves: the low 52 bits of products, and what is above, which counts 2^8 of the next
// digit, or 2^10*5 of the lowest (2^130 is 5). VPMADD52 multiplies factors of up to 52 bits.
//
//	Z0-Z2  a number          Z9-Z11   the factor              Z14-Z15  masks of 44 and 42 bits
//	Z3-Z5  the low halves    Z12-Z13  20*Z10 and 20*Z11       Z16-Z19  scratch
//	Z6-Z8  the high halves   Z20      2^40 in lanes with a block: its bit 128

// Offsets in a polyState.
#define SUM 0
#define POWERS 192
#define EIGHTH 384

// Lanes of the last two products that the powers are in: see powers.
DATA select<>+0(SB)/8, $0
DATA select<>+8(SB)/8, $12
DATA select<>+16(SB)/8, $1
DATA select<>+24(SB)/8, $13
DATA select<>+32(SB)/8, $6
DATA select<>+40(SB)/8, $14
DATA select<>+48(SB)/8, $7
DATA select<>+56(SB)/8, $15
GLOBL select<>(SB), RODATA|NOPTR, $64

#define MASKS \
	MOVQ $0x00000fffffffffff, AX; \
	VPBROADCASTQ AX, Z14; \
	MOVQ $0x000003ffffffffff, AX; \
	VPBROADCASTQ AX, Z15; \
	MOVQ $0x0000010000000000, AX; \
	VPBROADCASTQ AX, Z20;

// TWENTY has 20*x in y.
#define TWENTY(x, y) \
	VPSLLQ $4, x, y; \
	VPSLLQ $2, x, Z16; \
	VPADDQ Z16, y, y;

#define CLEAR_LOW \
	VPXORQ Z3, Z3, Z3; \
	VPXORQ Z4, Z4, Z4; \
	VPXORQ Z5, Z5, Z5;

// PRODUCT makes Z0-Z2 the product with Z9-Z11, plus what Z3-Z5 have.
#define PRODUCT \
	VPXORQ Z6, Z6, Z6; \
	VPXORQ Z7, Z7, Z7; \
	VPXORQ Z8, Z8, Z8; \
	VPMADD52LUQ Z9, Z0, Z3; \
	VPMADD52HUQ Z9, Z0, Z6; \
	VPMADD52LUQ Z10, Z0, Z4; \
	VPMADD52HUQ Z10, Z0, Z7; \
	VPMADD52LUQ Z11, Z0, Z5; \
	VPMADD52HUQ Z11, Z0, Z8; \
	VPMADD52LUQ Z13, Z1, Z3; \
	VPMADD52HUQ Z13, Z1, Z6; \
	VPMADD52LUQ Z9, Z1, Z4; \
	VPMADD52HUQ Z9, Z1, Z7; \
	VPMADD52LUQ Z10, Z1, Z5; \
	VPMADD52HUQ Z10, Z1, Z8; \
	VPMADD52LUQ Z12, Z2, Z3; \
	VPMADD52HUQ Z12, Z2, Z6; \
	VPMADD52LUQ Z13, Z2, Z4; \
	VPMADD52HUQ Z13, Z2, Z7; \
	VPMADD52LUQ Z9, Z2, Z5; \
	VPMADD52HUQ Z9, Z2, Z8; \
	VPSRLQ $44, Z3, Z16; \
	VPANDQ Z14, Z3, Z0; \
	VPSLLQ $8, Z6, Z6; \
	VPADDQ Z6, Z4, Z4; \
	VPADDQ Z16, Z4, Z4; \
	VPSRLQ $44, Z4, Z16; \
	VPANDQ Z14, Z4, Z1; \
	VPSLLQ $8, Z7, Z7; \
	VPADDQ Z7, Z5, Z5; \
	VPADDQ Z16, Z5, Z5; \
	VPSRLQ $42, Z5, Z16; \
	VPANDQ Z15, Z5, Z2; \
	VPSLLQ $10, Z8, Z8; \
	VPADDQ Z8, Z16, Z16; \
	VPSLLQ $2, Z16, Z17; \
	VPADDQ Z17, Z16, Z16; \
	VPADDQ Z16, Z0, Z0; \
	VPSRLQ $44, Z0, Z16; \
	VPANDQ Z14, Z0, Z0; \
	VPADDQ Z16, Z1, Z1;

// BLOCKS has the digits of eight blocks in x, y and z.
#define BLOCKS(x, y, z) \
	VMOVDQU64 (SI), Z16; \
	VMOVDQU64 64(SI), Z17; \
	VPUNPCKLQDQ Z17, Z16, Z18; \
	VPUNPCKHQDQ Z17, Z16, Z19; \
	VPANDQ Z14, Z18, x; \
	VPSRLQ $44, Z18, y; \
	VPSLLQ $20, Z19, Z18; \
	VPTERNLOGQ $0xa8, Z14, Z18, y; \
	VPSRLQ $24, Z19, z; \
	VPORQ Z20, z, z;

// FACTOR takes Z0-Z2 as the factor.
#define FACTOR \
	VMOVDQA64 Z0, Z9; \
	VMOVDQA64 Z1, Z10; \
	VMOVDQA64 Z2, Z11; \
	TWENTY(Z10, Z12) \
	TWENTY(Z11, Z13)

#define FACTOR_AT(i) \
	VMOVDQU64 (i)(DI), Z9; \
	VMOVDQU64 (i+64)(DI), Z10; \
	VMOVDQU64 (i+128)(DI), Z11; \
	TWENTY(Z10, Z12) \
	TWENTY(Z11, Z13)

#define STORE_AT(i, x, y, z) \
	VMOVDQU64 x, (i)(DI); \
	VMOVDQU64 y, (i+64)(DI); \
	VMOVDQU64 z, (i+128)(DI);

// func polyStart(p *polyState, key *byte, group *byte, blocks uint8)
TEXT ·polyStart(SB), NOSPLIT, $0-25
	MOVQ p+0(FP), DI
	MOVQ key+8(FP), DX
	MOVQ group+16(FP), SI
	MOVBLZX blocks+24(FP), CX
	MASKS

	// r is clamped (2.5.1), and split.
	MOVQ (DX), AX
	MOVQ $0x0ffffffc0fffffff, R8
	ANDQ R8, AX
	MOVQ 8(DX), BX
	MOVQ $0x0ffffffc0ffffffc, R8
	ANDQ R8, BX
	VPBROADCASTQ AX, Z0
	VPANDQ Z14, Z0, Z0
	SHRQ $44, BX, AX // of BX:AX
	VPBROADCASTQ AX, Z1
	VPANDQ Z14, Z1, Z1
	SHRQ $24, BX
	VPBROADCASTQ BX, Z2

	// The first group is the sum.
	VMOVDQA64 Z20, Z21
	KMOVW CX, K1
	VMOVDQA64.Z Z21, K1, Z20
	BLOCKS(Z22, Z23, Z24)
	STORE_AT(SUM, Z22, Z23, Z24)

	// powers: the lanes have r^2 and r by turns, then r^4, r^3, r^4, r^3, r^4, r^3, r^2, r, and those by r^4.
	FACTOR
	CLEAR_LOW
	PRODUCT
	VMOVDQA64 Z9, Z22
	VMOVDQA64 Z10, Z23
	VMOVDQA64 Z11, Z24
	FACTOR
	MOVL $0xaa, AX
	KMOVW AX, K1
	VMOVDQA64 Z22, K1, Z0
	VMOVDQA64 Z23, K1, Z1
	VMOVDQA64 Z24, K1, Z2
	VMOVDQA64 Z0, Z22
	VMOVDQA64 Z1, Z23
	VMOVDQA64 Z2, Z24
	CLEAR_LOW
	PRODUCT
	VPBROADCASTQ X0, Z9
	VPBROADCASTQ X1, Z10
	VPBROADCASTQ X2, Z11
	TWENTY(Z10, Z12)
	TWENTY(Z11, Z13)
	MOVL $0xc0, AX
	KMOVW AX, K1
	VMOVDQA64 Z22, K1, Z0
	VMOVDQA64 Z23, K1, Z1
	VMOVDQA64 Z24, K1, Z2
	VMOVDQA64 Z0, Z22
	VMOVDQA64 Z1, Z23
	VMOVDQA64 Z2, Z24
	CLEAR_LOW
	PRODUCT
	VPBROADCASTQ X0, Z9
	VPBROADCASTQ X1, Z10
	VPBROADCASTQ X2, Z11
	STORE_AT(EIGHTH, Z9, Z10, Z11)
	VMOVDQU64 select<>(SB), Z16
	VPERMT2Q Z22, Z16, Z0
	VPERMT2Q Z23, Z16, Z1
	VPERMT2Q Z24, Z16, Z2
	STORE_AT(POWERS, Z0, Z1, Z2)
	VZEROUPPER
	RET

// func polyGroups(p *polyState, groups *byte, n int)
TEXT ·polyGroups(SB), NOSPLIT, $0-24
	MOVQ p+0(FP), DI
	MOVQ groups+8(FP), SI
	MOVQ n+16(FP), CX
	MASKS
	FACTOR_AT(EIGHTH)
	VMOVDQU64 SUM(DI), Z0
	VMOVDQU64 (SUM+64)(DI), Z1
	VMOVDQU64 (SUM+128)(DI), Z2
group:
	BLOCKS(Z3, Z4, Z5)
	PRODUCT
	ADDQ $128, SI
	DECQ CX
	JNE group
	STORE_AT(SUM, Z0, Z1, Z2)
	VZEROUPPER
	RET

// ACROSS adds the lanes of z, into AX.
#define ACROSS(z, y, x) \
	VEXTRACTI64X4 $1, z, Y16; \
	VPADDQ Y16, y, y; \
	VEXTRACTI32X4 $1, y, X16; \
	VPADDQ X16, x, x; \
	VPSHUFD $0x4e, x, X16; \
	VPADDQ X16, x, x; \
	VMOVQ x, AX;

// func polyEnd(p *polyState, sum *[3]uint64)
TEXT ·polyEnd(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), DI
	MOVQ sum+8(FP), SI
	MASKS
	FACTOR_AT(POWERS)
	VMOVDQU64 SUM(DI), Z0
	VMOVDQU64 (SUM+64)(DI), Z1
	VMOVDQU64 (SUM+128)(DI), Z2
	CLEAR_LOW
	PRODUCT
	ACROSS(Z0, Y0, X0)
	MOVQ AX, (SI)
	ACROSS(Z1, Y1, X1)
	MOVQ AX, 8(SI)
	ACROSS(Z2, Y2, X2)
	MOVQ AX, 16(SI)
	VZEROUPPER
	RET
