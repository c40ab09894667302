//go:build amd64 && !purego

#include "textflag.h"
#include "lanes_amd64.h"

// The digits of p+1 for P-256 that are not zero: 2^96 is in digit 1, 2^192 in digit 3, 2^256 - 2^224 in digit 4.
DATA p256Digits<>+0(SB)/8, $0x0000100000000000
DATA p256Digits<>+8(SB)/8, $0x0000001000000000
DATA p256Digits<>+16(SB)/8, $0x0000ffffffff0000
GLOBL p256Digits<>(SB), RODATA|NOPTR, $24

// Five digits: Z0-Z4 one factor, Z5-Z13 columns 0 to 8 of the low halves, Z14-Z22 columns 1 to 9 of the high
// halves, Z23 a row of the other factor. Apart, they have shorter chains of sums.

#define CLEAR5 \
	VPXORQ Z5, Z5, Z5; \
	VPXORQ Z6, Z6, Z6; \
	VPXORQ Z7, Z7, Z7; \
	VPXORQ Z8, Z8, Z8; \
	VPXORQ Z9, Z9, Z9; \
	VPXORQ Z10, Z10, Z10; \
	VPXORQ Z11, Z11, Z11; \
	VPXORQ Z12, Z12, Z12; \
	VPXORQ Z13, Z13, Z13; \
	VPXORQ Z14, Z14, Z14; \
	VPXORQ Z15, Z15, Z15; \
	VPXORQ Z16, Z16, Z16; \
	VPXORQ Z17, Z17, Z17; \
	VPXORQ Z18, Z18, Z18; \
	VPXORQ Z19, Z19, Z19; \
	VPXORQ Z20, Z20, Z20; \
	VPXORQ Z21, Z21, Z21; \
	VPXORQ Z22, Z22, Z22;

#define LOAD5(p) \
	VMOVDQU64 0(p), Z0; \
	VMOVDQU64 64(p), Z1; \
	VMOVDQU64 128(p), Z2; \
	VMOVDQU64 192(p), Z3; \
	VMOVDQU64 256(p), Z4;

#define ROW5(b, l0, l1, l2, l3, l4, h1, h2, h3, h4, h5) \
	VMOVDQU64 b, Z23; \
	VPMADD52LUQ Z0, Z23, l0; \
	VPMADD52LUQ Z1, Z23, l1; \
	VPMADD52LUQ Z2, Z23, l2; \
	VPMADD52LUQ Z3, Z23, l3; \
	VPMADD52LUQ Z4, Z23, l4; \
	VPMADD52HUQ Z0, Z23, h1; \
	VPMADD52HUQ Z1, Z23, h2; \
	VPMADD52HUQ Z2, Z23, h3; \
	VPMADD52HUQ Z3, Z23, h4; \
	VPMADD52HUQ Z4, Z23, h5;

// PRODUCT5 adds the product of Z0-Z4 and the number at p to the columns.
#define PRODUCT5(p) \
	ROW5(0(p), Z5, Z6, Z7, Z8, Z9, Z14, Z15, Z16, Z17, Z18) \
	ROW5(64(p), Z6, Z7, Z8, Z9, Z10, Z15, Z16, Z17, Z18, Z19) \
	ROW5(128(p), Z7, Z8, Z9, Z10, Z11, Z16, Z17, Z18, Z19, Z20) \
	ROW5(192(p), Z8, Z9, Z10, Z11, Z12, Z17, Z18, Z19, Z20, Z21) \
	ROW5(256(p), Z9, Z10, Z11, Z12, Z13, Z18, Z19, Z20, Z21, Z22)

// MERGE5 has the columns in Z5-Z13 and Z22.
#define MERGE5 \
	VPADDQ Z14, Z6, Z6; \
	VPADDQ Z15, Z7, Z7; \
	VPADDQ Z16, Z8, Z8; \
	VPADDQ Z17, Z9, Z9; \
	VPADDQ Z18, Z10, Z10; \
	VPADDQ Z19, Z11, Z11; \
	VPADDQ Z20, Z12, Z12; \
	VPADDQ Z21, Z13, Z13;

// REDUCE_P256 adds the multiple of p that makes column c0 a multiple of 2^52, and its carry to c1. The factor is
// the low digit of c0 itself, as p is -1 modulo 2^52. Z24-Z26 are the digits of p+1.
#define REDUCE_P256(c0, c1, c2, c3, c4, c5) \
	VPANDQ Z31, c0, Z28; \
	VPSRLQ $52, c0, Z29; \
	VPADDQ Z29, c1, c1; \
	VPMADD52LUQ Z24, Z28, c1; \
	VPMADD52HUQ Z24, Z28, c2; \
	VPMADD52LUQ Z25, Z28, c3; \
	VPMADD52HUQ Z25, Z28, c4; \
	VPMADD52LUQ Z26, Z28, c4; \
	VPMADD52HUQ Z26, Z28, c5;

#define REDUCE5_P256 \
	MASK52(Z31) \
	VPBROADCASTQ p256Digits<>+0(SB), Z24; \
	VPBROADCASTQ p256Digits<>+8(SB), Z25; \
	VPBROADCASTQ p256Digits<>+16(SB), Z26; \
	REDUCE_P256(Z5, Z6, Z7, Z8, Z9, Z10) \
	REDUCE_P256(Z6, Z7, Z8, Z9, Z10, Z11) \
	REDUCE_P256(Z7, Z8, Z9, Z10, Z11, Z12) \
	REDUCE_P256(Z8, Z9, Z10, Z11, Z12, Z13) \
	REDUCE_P256(Z9, Z10, Z11, Z12, Z13, Z22)

// STORE5 makes digits of columns 5 to 9, at p.
#define STORE5(p) \
	CARRY(Z10, Z11, 0(p)) \
	CARRY(Z11, Z12, 64(p)) \
	CARRY(Z12, Z13, 128(p)) \
	CARRY(Z13, Z22, 192(p)) \
	VMOVDQU64 Z22, 256(p);

// REDUCE_ROW5 is the same for the modulus at DX, with k0 in Z27.
#define REDUCE_ROW5(c0, c1, c2, c3, c4, c5) \
	VPXORQ Z28, Z28, Z28; \
	VPMADD52LUQ Z27, c0, Z28; \
	VPMADD52LUQ.BCST 0(DX), Z28, c0; \
	VPMADD52LUQ.BCST 8(DX), Z28, c1; \
	VPMADD52LUQ.BCST 16(DX), Z28, c2; \
	VPMADD52LUQ.BCST 24(DX), Z28, c3; \
	VPMADD52LUQ.BCST 32(DX), Z28, c4; \
	VPSRLQ $52, c0, c0; \
	VPADDQ c0, c1, c1; \
	VPMADD52HUQ.BCST 0(DX), Z28, c1; \
	VPMADD52HUQ.BCST 8(DX), Z28, c2; \
	VPMADD52HUQ.BCST 16(DX), Z28, c3; \
	VPMADD52HUQ.BCST 24(DX), Z28, c4; \
	VPMADD52HUQ.BCST 32(DX), Z28, c5;

// func multiplyP256(dst, a, b *row)
TEXT ·multiplyP256(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), BX
	CLEAR5
	LOAD5(SI)
	PRODUCT5(BX)
	MERGE5
	REDUCE5_P256
	STORE5(DI)
	VZEROUPPER
	RET

// func multiplyAddP256(dst, a, b, c, d *row)
TEXT ·multiplyAddP256(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), BX
	MOVQ c+24(FP), R8
	MOVQ d+32(FP), R9
	CLEAR5
	LOAD5(SI)
	PRODUCT5(BX)
	LOAD5(R8)
	PRODUCT5(R9)
	MERGE5
	REDUCE5_P256
	STORE5(DI)
	VZEROUPPER
	RET

// func multiply5(dst, a, b *row, m *modulus)
TEXT ·multiply5(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), BX
	MOVQ m+24(FP), DX
	CLEAR5
	LOAD5(SI)
	PRODUCT5(BX)
	MERGE5
	MASK52(Z31)
	VPBROADCASTQ 128(DX), Z27
	REDUCE_ROW5(Z5, Z6, Z7, Z8, Z9, Z10)
	REDUCE_ROW5(Z6, Z7, Z8, Z9, Z10, Z11)
	REDUCE_ROW5(Z7, Z8, Z9, Z10, Z11, Z12)
	REDUCE_ROW5(Z8, Z9, Z10, Z11, Z12, Z13)
	REDUCE_ROW5(Z9, Z10, Z11, Z12, Z13, Z22)
	STORE5(DI)
	VZEROUPPER
	RET

// func subtract5(dst, a, b *row, m *modulus)
TEXT ·subtract5(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), BX
	MOVQ m+24(FP), DX
	MASK52(Z31)
	DIFFERENCE(0, Z0)
	DIFFERENCE(1, Z1)
	DIFFERENCE(2, Z2)
	DIFFERENCE(3, Z3)
	DIFFERENCE(4, Z4)
	CARRY_SIGNED(Z0, Z1, 0(DI))
	CARRY_SIGNED(Z1, Z2, 64(DI))
	CARRY_SIGNED(Z2, Z3, 128(DI))
	CARRY_SIGNED(Z3, Z4, 192(DI))
	VMOVDQU64 Z4, 256(DI)
	VZEROUPPER
	RET

// func combineP256(dst, a, b, c *row, m *modulus)
TEXT ·combineP256(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), BX
	MOVQ c+24(FP), R8
	MOVQ m+32(FP), DX
	MASK52(Z31)
	COMBINATION(0, Z0)
	COMBINATION(1, Z1)
	COMBINATION(2, Z2)
	COMBINATION(3, Z3)
	COMBINATION(4, Z4)

	// q*2^256 is q*(2^224 - 2^192 - 2^96 + 1).
	VPSRLQ $48, Z4, Z10
	VPSLLQ $48, Z10, Z11
	VPSUBQ Z11, Z4, Z4
	VPSLLQ $16, Z10, Z12
	VPADDQ Z12, Z4, Z4
	VPSLLQ $36, Z10, Z13
	VPSUBQ Z13, Z3, Z3
	VPSLLQ $44, Z10, Z14
	VPSUBQ Z14, Z1, Z1
	VPADDQ Z10, Z0, Z0

	CARRY_SIGNED(Z0, Z1, 0(DI))
	CARRY_SIGNED(Z1, Z2, 64(DI))
	CARRY_SIGNED(Z2, Z3, 128(DI))
	CARRY_SIGNED(Z3, Z4, 192(DI))
	VMOVDQU64 Z4, 256(DI)
	VZEROUPPER
	RET
