//go:build amd64 && !purego

#include "textflag.h"

// Numbers modulo 2^255 - 19 are five rows of 64 bytes: row i holds digit i, of 52 bits, of eight numbers. VPMADD52
// multiplies the low 52 bits of its factors and adds one half of the product to a 64-bit sum.
//
// Z0-Z4 have one factor, Z5-Z13 columns 0 to 8 of the low halves, Z14-Z22 columns 1 to 9 of the high halves, Z23 a row
// of the other factor. Apart, the halves have shorter chains of sums.

// CARRY makes a digit of column c, and adds the rest to column d. A column may be negative.
#define CARRY(c, d) \
	VPSRAQ $52, c, Z30; \
	VPANDQ Z31, c, c; \
	VPADDQ Z30, d, d;

#define MASKS \
	MOVQ $0x000fffffffffffff, AX; \
	VPBROADCASTQ AX, Z31;

#define STORE(p) \
	VMOVDQU64 Z5, 0(p); \
	VMOVDQU64 Z6, 64(p); \
	VMOVDQU64 Z7, 128(p); \
	VMOVDQU64 Z8, 192(p); \
	VMOVDQU64 Z9, 256(p);

// FINISH makes digits of columns 0 to 4, to which Z24 is to be added times 2^260. What is above 2^255 counts 19 times:
// the number is below 2^255 + 2^216.
#define FINISH \
	MOVQ $19, AX; \
	VPBROADCASTQ AX, Z25; \
	VPSRLQ $47, Z9, Z26; \
	VPSLLQ $5, Z24, Z24; \
	VPADDQ Z24, Z26, Z26; \
	VPSRLQ $5, Z31, Z27; \
	VPANDQ Z27, Z9, Z9; \
	VPMADD52LUQ Z25, Z26, Z5; \
	CARRY(Z5, Z6) \
	CARRY(Z6, Z7) \
	CARRY(Z7, Z8) \
	CARRY(Z8, Z9)

#define CLEAR \
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

#define LOAD(p) \
	VMOVDQU64 0(p), Z0; \
	VMOVDQU64 64(p), Z1; \
	VMOVDQU64 128(p), Z2; \
	VMOVDQU64 192(p), Z3; \
	VMOVDQU64 256(p), Z4;

#define ROW(b, l0, l1, l2, l3, l4, h1, h2, h3, h4, h5) \
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

#define MERGE(l, h) \
	VPADDQ h, l, l;

// FOLD makes digits of columns 5 to 9, which count 608 times as 2^260 does, and adds them to columns 0 to 4.
#define FOLD \
	MOVQ $608, AX; \
	VPBROADCASTQ AX, Z25; \
	VPXORQ Z24, Z24, Z24; \
	CARRY(Z10, Z11) \
	CARRY(Z11, Z12) \
	CARRY(Z12, Z13) \
	CARRY(Z13, Z22) \
	VPMADD52LUQ Z10, Z25, Z5; \
	VPMADD52HUQ Z10, Z25, Z6; \
	VPMADD52LUQ Z11, Z25, Z6; \
	VPMADD52HUQ Z11, Z25, Z7; \
	VPMADD52LUQ Z12, Z25, Z7; \
	VPMADD52HUQ Z12, Z25, Z8; \
	VPMADD52LUQ Z13, Z25, Z8; \
	VPMADD52HUQ Z13, Z25, Z9; \
	VPMADD52LUQ Z22, Z25, Z9; \
	VPMADD52HUQ Z22, Z25, Z24;

// func multiplyIFMA(dst, a, b *Row)
TEXT ·multiplyIFMA(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), BX
	MASKS
	CLEAR
	LOAD(SI)
	ROW(0(BX), Z5, Z6, Z7, Z8, Z9, Z14, Z15, Z16, Z17, Z18)
	ROW(64(BX), Z6, Z7, Z8, Z9, Z10, Z15, Z16, Z17, Z18, Z19)
	ROW(128(BX), Z7, Z8, Z9, Z10, Z11, Z16, Z17, Z18, Z19, Z20)
	ROW(192(BX), Z8, Z9, Z10, Z11, Z12, Z17, Z18, Z19, Z20, Z21)
	ROW(256(BX), Z9, Z10, Z11, Z12, Z13, Z18, Z19, Z20, Z21, Z22)
	MERGE(Z6, Z14)
	MERGE(Z7, Z15)
	MERGE(Z8, Z16)
	MERGE(Z9, Z17)
	MERGE(Z10, Z18)
	MERGE(Z11, Z19)
	MERGE(Z12, Z20)
	MERGE(Z13, Z21)
	FOLD
	FINISH
	STORE(DI)
	VZEROUPPER
	RET

#define CROSS(x, y, l, h) \
	VPMADD52LUQ x, y, l; \
	VPMADD52HUQ x, y, h;

// func squareIFMA(dst, a *Row)
//
// Products of different digits are added once and doubled.
TEXT ·squareIFMA(SB), NOSPLIT, $0-16
	MOVQ dst+0(FP), DI
	MOVQ a+8(FP), SI
	MASKS
	CLEAR
	LOAD(SI)
	CROSS(Z0, Z1, Z6, Z15)
	CROSS(Z1, Z2, Z8, Z17)
	CROSS(Z2, Z3, Z10, Z19)
	CROSS(Z3, Z4, Z12, Z21)
	CROSS(Z0, Z2, Z7, Z16)
	CROSS(Z1, Z3, Z9, Z18)
	CROSS(Z2, Z4, Z11, Z20)
	CROSS(Z0, Z3, Z8, Z17)
	CROSS(Z1, Z4, Z10, Z19)
	CROSS(Z0, Z4, Z9, Z18)
	MERGE(Z6, Z14)
	MERGE(Z7, Z15)
	MERGE(Z8, Z16)
	MERGE(Z9, Z17)
	MERGE(Z10, Z18)
	MERGE(Z11, Z19)
	MERGE(Z12, Z20)
	MERGE(Z13, Z21)
	MERGE(Z6, Z6)
	MERGE(Z7, Z7)
	MERGE(Z8, Z8)
	MERGE(Z9, Z9)
	MERGE(Z10, Z10)
	MERGE(Z11, Z11)
	MERGE(Z12, Z12)
	MERGE(Z13, Z13)
	CROSS(Z0, Z0, Z5, Z6)
	CROSS(Z1, Z1, Z7, Z8)
	CROSS(Z2, Z2, Z9, Z10)
	CROSS(Z3, Z3, Z11, Z12)
	CROSS(Z4, Z4, Z13, Z22)
	FOLD
	FINISH
	STORE(DI)
	VZEROUPPER
	RET

// func scaleIFMA(dst, a, b, factors *Row)
//
// dst gets factors*a + b.
TEXT ·scaleIFMA(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), BX
	MOVQ factors+24(FP), DX
	VMOVDQU64 (DX), Z23
	MASKS
	LOAD(SI)
	VPXORQ Z24, Z24, Z24
	VMOVDQU64 0(BX), Z5
	VMOVDQU64 64(BX), Z6
	VMOVDQU64 128(BX), Z7
	VMOVDQU64 192(BX), Z8
	VMOVDQU64 256(BX), Z9
	VPMADD52LUQ Z0, Z23, Z5
	VPMADD52LUQ Z1, Z23, Z6
	VPMADD52LUQ Z2, Z23, Z7
	VPMADD52LUQ Z3, Z23, Z8
	VPMADD52LUQ Z4, Z23, Z9
	VPMADD52HUQ Z0, Z23, Z6
	VPMADD52HUQ Z1, Z23, Z7
	VPMADD52HUQ Z2, Z23, Z8
	VPMADD52HUQ Z3, Z23, Z9
	VPMADD52HUQ Z4, Z23, Z24
	FINISH
	STORE(DI)
	VZEROUPPER
	RET

// func addSubtractIFMA(sum, difference, a, b, bias *Row)
//
// sum gets a + b, difference a - b + bias: digits without a reduction.
TEXT ·addSubtractIFMA(SB), NOSPLIT, $0-40
	MOVQ sum+0(FP), DI
	MOVQ difference+8(FP), R8
	MOVQ a+16(FP), SI
	MOVQ b+24(FP), BX
	MOVQ bias+32(FP), DX
	MASKS
	LOAD(SI)
	VMOVDQU64 0(BX), Z23
	VPADDQ Z23, Z0, Z5
	VPADDQ 0(DX), Z0, Z0
	VPSUBQ Z23, Z0, Z0
	VMOVDQU64 64(BX), Z23
	VPADDQ Z23, Z1, Z6
	VPADDQ 64(DX), Z1, Z1
	VPSUBQ Z23, Z1, Z1
	VMOVDQU64 128(BX), Z23
	VPADDQ Z23, Z2, Z7
	VPADDQ 128(DX), Z2, Z2
	VPSUBQ Z23, Z2, Z2
	VMOVDQU64 192(BX), Z23
	VPADDQ Z23, Z3, Z8
	VPADDQ 192(DX), Z3, Z3
	VPSUBQ Z23, Z3, Z3
	VMOVDQU64 256(BX), Z23
	VPADDQ Z23, Z4, Z9
	VPADDQ 256(DX), Z4, Z4
	VPSUBQ Z23, Z4, Z4
	CARRY(Z5, Z6)
	CARRY(Z0, Z1)
	CARRY(Z6, Z7)
	CARRY(Z1, Z2)
	CARRY(Z7, Z8)
	CARRY(Z2, Z3)
	CARRY(Z8, Z9)
	CARRY(Z3, Z4)
	STORE(DI)
	VMOVDQU64 Z0, 0(R8)
	VMOVDQU64 Z1, 64(R8)
	VMOVDQU64 Z2, 128(R8)
	VMOVDQU64 Z3, 192(R8)
	VMOVDQU64 Z4, 256(R8)
	VZEROUPPER
	RET

#define SWAP(i) \
	VMOVDQU64 (64*i)(SI), Z0; \
	VMOVDQU64 (64*i)(BX), Z1; \
	VPBLENDMQ Z1, Z0, K1, Z2; \
	VPBLENDMQ Z0, Z1, K1, Z3; \
	VMOVDQU64 Z2, (64*i)(SI); \
	VMOVDQU64 Z3, (64*i)(BX);

// func swapIFMA(a, b, swap *Row)
//
// The ten rows of a and b are exchanged in lanes where swap is not 0.
TEXT ·swapIFMA(SB), NOSPLIT, $0-24
	MOVQ a+0(FP), SI
	MOVQ b+8(FP), BX
	MOVQ swap+16(FP), AX
	VMOVDQU64 (AX), Z4
	VPTESTMQ Z4, Z4, K1
	SWAP(0)
	SWAP(1)
	SWAP(2)
	SWAP(3)
	SWAP(4)
	SWAP(5)
	SWAP(6)
	SWAP(7)
	SWAP(8)
	SWAP(9)
	VZEROUPPER
	RET

#define BUTTERFLY(i, z) \
	VPERMQ (64*i)(SI), Z28, z; \
	VPSHUFD $0x4e, z, Z11; \
	VPADDQ (64*i)(DX), Z11, Z12; \
	VPSUBQ z, Z12, Z12; \
	VPADDQ Z11, z, K2, z; \
	VMOVDQA64 Z12, K1, z;

// func butterflyIFMA(dst, src, index, bias *Row, sums uint64)
//
// t is src in the order of index, and u is t with the lanes of each pair exchanged. Odd lanes of dst get u - t + bias, even ones
// t + u where sums has their bit, and t elsewhere.
TEXT ·butterflyIFMA(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ index+16(FP), BX
	MOVQ bias+24(FP), DX
	MOVQ sums+32(FP), CX
	MASKS
	KMOVW CX, K2
	MOVL $0xaa, AX
	KMOVW AX, K1
	VMOVDQU64 (BX), Z28
	BUTTERFLY(0, Z5)
	BUTTERFLY(1, Z6)
	BUTTERFLY(2, Z7)
	BUTTERFLY(3, Z8)
	BUTTERFLY(4, Z9)
	CARRY(Z5, Z6)
	CARRY(Z6, Z7)
	CARRY(Z7, Z8)
	CARRY(Z8, Z9)
	STORE(DI)
	VZEROUPPER
	RET

// func permuteIFMA(dst, src, index *Row, keep uint64)
//
// dst gets src in the order of index, and 0 in lanes whose bit keep does not have.
TEXT ·permuteIFMA(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ index+16(FP), BX
	MOVQ keep+24(FP), CX
	KMOVW CX, K1
	VMOVDQU64 (BX), Z28
	VPERMQ.Z 0(SI), Z28, K1, Z5
	VPERMQ.Z 64(SI), Z28, K1, Z6
	VPERMQ.Z 128(SI), Z28, K1, Z7
	VPERMQ.Z 192(SI), Z28, K1, Z8
	VPERMQ.Z 256(SI), Z28, K1, Z9
	STORE(DI)
	VZEROUPPER
	RET

// CHOOSE has the words at SI that Z28 names in z: VPERMT2Q reads all 16.
#define CHOOSE(i, z) \
	VMOVDQU64 (128*i)(SI), z; \
	VPERMT2Q (128*i+64)(SI), Z28, z; \
	VMOVDQU64 z, (64*i)(DI);

// func chooseIFMA(dst *Row, window *uint64, index *Row)
TEXT ·chooseIFMA(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ window+8(FP), SI
	MOVQ index+16(FP), BX
	VMOVDQU64 (BX), Z28
	CHOOSE(0, Z0)
	CHOOSE(1, Z1)
	CHOOSE(2, Z2)
	CHOOSE(3, Z3)
	CHOOSE(4, Z4)
	CHOOSE(5, Z5)
	CHOOSE(6, Z6)
	CHOOSE(7, Z7)
	CHOOSE(8, Z8)
	CHOOSE(9, Z9)
	CHOOSE(10, Z10)
	CHOOSE(11, Z11)
	CHOOSE(12, Z12)
	CHOOSE(13, Z13)
	CHOOSE(14, Z14)
	VZEROUPPER
	RET

// func gatherIFMA(dst *Row, base *uint64, offsets *Row, words, stride uint64)
//
// Row i of dst gets the words at base + offsets + i*stride.
TEXT ·gatherIFMA(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ base+8(FP), SI
	MOVQ offsets+16(FP), BX
	MOVQ words+24(FP), CX
	MOVQ stride+32(FP), DX
	VMOVDQU64 (BX), Z1
	MOVL $0xff, AX
nextWord:
	KMOVW AX, K1
	VPXORQ Z2, Z2, Z2
	VPGATHERQQ (SI)(Z1*1), K1, Z2
	VMOVDQU64 Z2, (DI)
	ADDQ $64, DI
	ADDQ DX, SI
	DECQ CX
	JNZ nextWord
	VZEROUPPER
	RET
