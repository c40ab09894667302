//go:build amd64 && !purego

#include "textflag.h"

// Numbers modulo 2^255 - 19 are ten rows of 32 bytes: row i holds digit i of four numbers. Even digits have 26 bits, odd ones 25, and
// the first of a product or a sum may have some more: below 2^26 + 2^10, and 2^25 + 2^15. VPMULUDQ multiplies the low 32 bits of 64.
// The product of two odd digits counts twice, as their places are half a bit too high; from place 10 on a product counts 19 times.
//
// Y0-Y9 are the columns of a product, Y14 and Y15 the masks of digits, Y10-Y13 temporaries.

#define MASKS \
	MOVQ $0x3ffffff, AX; \
	VMOVQ AX, X14; \
	VPBROADCASTQ X14, Y14; \
	VPSRLQ $1, Y14, Y15;

#define STORE(p) \
	VMOVDQU Y0, 0(p); \
	VMOVDQU Y1, 32(p); \
	VMOVDQU Y2, 64(p); \
	VMOVDQU Y3, 96(p); \
	VMOVDQU Y4, 128(p); \
	VMOVDQU Y5, 160(p); \
	VMOVDQU Y6, 192(p); \
	VMOVDQU Y7, 224(p); \
	VMOVDQU Y8, 256(p); \
	VMOVDQU Y9, 288(p);

// FIRST begins a column with a product, and MAC adds one to it.
#define FIRST(x, y, c) \
	VPMULUDQ x, y, c;

#define MAC(x, y, c) \
	VPMULUDQ x, y, Y12; \
	VPADDQ Y12, c, c;

// EVEN and ODD make a digit of column c, and add the rest to column d.
#define EVEN(c, d) \
	VPSRLQ $26, c, Y12; \
	VPAND Y14, c, c; \
	VPADDQ Y12, d, d;

#define ODD(c, d) \
	VPSRLQ $25, c, Y13; \
	VPAND Y15, c, c; \
	VPADDQ Y13, d, d;

// WRAP is ODD for the topmost column: the rest counts 19 times, and may have more than 32 bits.
#define WRAP \
	VPSRLQ $25, Y9, Y13; \
	VPAND Y15, Y9, Y9; \
	VPADDQ Y13, Y0, Y0; \
	VPADDQ Y13, Y13, Y13; \
	VPADDQ Y13, Y0, Y0; \
	VPSLLQ $3, Y13, Y13; \
	VPADDQ Y13, Y0, Y0;

// CARRY makes digits of all columns: two chains at a time.
#define CARRY \
	EVEN(Y0, Y1) \
	ODD(Y5, Y6) \
	ODD(Y1, Y2) \
	EVEN(Y6, Y7) \
	EVEN(Y2, Y3) \
	ODD(Y7, Y8) \
	ODD(Y3, Y4) \
	EVEN(Y8, Y9) \
	EVEN(Y4, Y5) \
	WRAP \
	ODD(Y5, Y6) \
	EVEN(Y0, Y1)

// func multiplyAVX2(dst, a, b *Row)
//
// Y10 is a digit of b, Y11 19 times that; the stack has twice the odd digits of a, and is overwritten.
TEXT ·multiplyAVX2(SB), NOSPLIT, $160-24
	MOVQ dst+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), BX
	MASKS
	MOVQ $19, AX
	VMOVQ AX, X13
	VPBROADCASTQ X13, Y13
	VMOVDQU 32(SI), Y0
	VMOVDQU 96(SI), Y1
	VMOVDQU 160(SI), Y2
	VMOVDQU 224(SI), Y3
	VMOVDQU 288(SI), Y4
	VPADDQ Y0, Y0, Y0
	VPADDQ Y1, Y1, Y1
	VPADDQ Y2, Y2, Y2
	VPADDQ Y3, Y3, Y3
	VPADDQ Y4, Y4, Y4
	VMOVDQU Y0, t1-160(SP)
	VMOVDQU Y1, t3-128(SP)
	VMOVDQU Y2, t5-96(SP)
	VMOVDQU Y3, t7-64(SP)
	VMOVDQU Y4, t9-32(SP)
	VMOVDQU 0(BX), Y10
	FIRST(0(SI), Y10, Y0)
	FIRST(32(SI), Y10, Y1)
	FIRST(64(SI), Y10, Y2)
	FIRST(96(SI), Y10, Y3)
	FIRST(128(SI), Y10, Y4)
	FIRST(160(SI), Y10, Y5)
	FIRST(192(SI), Y10, Y6)
	FIRST(224(SI), Y10, Y7)
	FIRST(256(SI), Y10, Y8)
	FIRST(288(SI), Y10, Y9)
	VMOVDQU 32(BX), Y10
	VPMULUDQ Y13, Y10, Y11
	MAC(0(SI), Y10, Y1)
	MAC(t1-160(SP), Y10, Y2)
	MAC(64(SI), Y10, Y3)
	MAC(t3-128(SP), Y10, Y4)
	MAC(128(SI), Y10, Y5)
	MAC(t5-96(SP), Y10, Y6)
	MAC(192(SI), Y10, Y7)
	MAC(t7-64(SP), Y10, Y8)
	MAC(256(SI), Y10, Y9)
	MAC(t9-32(SP), Y11, Y0)
	VMOVDQU 64(BX), Y10
	VPMULUDQ Y13, Y10, Y11
	MAC(0(SI), Y10, Y2)
	MAC(32(SI), Y10, Y3)
	MAC(64(SI), Y10, Y4)
	MAC(96(SI), Y10, Y5)
	MAC(128(SI), Y10, Y6)
	MAC(160(SI), Y10, Y7)
	MAC(192(SI), Y10, Y8)
	MAC(224(SI), Y10, Y9)
	MAC(256(SI), Y11, Y0)
	MAC(288(SI), Y11, Y1)
	VMOVDQU 96(BX), Y10
	VPMULUDQ Y13, Y10, Y11
	MAC(0(SI), Y10, Y3)
	MAC(t1-160(SP), Y10, Y4)
	MAC(64(SI), Y10, Y5)
	MAC(t3-128(SP), Y10, Y6)
	MAC(128(SI), Y10, Y7)
	MAC(t5-96(SP), Y10, Y8)
	MAC(192(SI), Y10, Y9)
	MAC(t7-64(SP), Y11, Y0)
	MAC(256(SI), Y11, Y1)
	MAC(t9-32(SP), Y11, Y2)
	VMOVDQU 128(BX), Y10
	VPMULUDQ Y13, Y10, Y11
	MAC(0(SI), Y10, Y4)
	MAC(32(SI), Y10, Y5)
	MAC(64(SI), Y10, Y6)
	MAC(96(SI), Y10, Y7)
	MAC(128(SI), Y10, Y8)
	MAC(160(SI), Y10, Y9)
	MAC(192(SI), Y11, Y0)
	MAC(224(SI), Y11, Y1)
	MAC(256(SI), Y11, Y2)
	MAC(288(SI), Y11, Y3)
	VMOVDQU 160(BX), Y10
	VPMULUDQ Y13, Y10, Y11
	MAC(0(SI), Y10, Y5)
	MAC(t1-160(SP), Y10, Y6)
	MAC(64(SI), Y10, Y7)
	MAC(t3-128(SP), Y10, Y8)
	MAC(128(SI), Y10, Y9)
	MAC(t5-96(SP), Y11, Y0)
	MAC(192(SI), Y11, Y1)
	MAC(t7-64(SP), Y11, Y2)
	MAC(256(SI), Y11, Y3)
	MAC(t9-32(SP), Y11, Y4)
	VMOVDQU 192(BX), Y10
	VPMULUDQ Y13, Y10, Y11
	MAC(0(SI), Y10, Y6)
	MAC(32(SI), Y10, Y7)
	MAC(64(SI), Y10, Y8)
	MAC(96(SI), Y10, Y9)
	MAC(128(SI), Y11, Y0)
	MAC(160(SI), Y11, Y1)
	MAC(192(SI), Y11, Y2)
	MAC(224(SI), Y11, Y3)
	MAC(256(SI), Y11, Y4)
	MAC(288(SI), Y11, Y5)
	VMOVDQU 224(BX), Y10
	VPMULUDQ Y13, Y10, Y11
	MAC(0(SI), Y10, Y7)
	MAC(t1-160(SP), Y10, Y8)
	MAC(64(SI), Y10, Y9)
	MAC(t3-128(SP), Y11, Y0)
	MAC(128(SI), Y11, Y1)
	MAC(t5-96(SP), Y11, Y2)
	MAC(192(SI), Y11, Y3)
	MAC(t7-64(SP), Y11, Y4)
	MAC(256(SI), Y11, Y5)
	MAC(t9-32(SP), Y11, Y6)
	VMOVDQU 256(BX), Y10
	VPMULUDQ Y13, Y10, Y11
	MAC(0(SI), Y10, Y8)
	MAC(32(SI), Y10, Y9)
	MAC(64(SI), Y11, Y0)
	MAC(96(SI), Y11, Y1)
	MAC(128(SI), Y11, Y2)
	MAC(160(SI), Y11, Y3)
	MAC(192(SI), Y11, Y4)
	MAC(224(SI), Y11, Y5)
	MAC(256(SI), Y11, Y6)
	MAC(288(SI), Y11, Y7)
	VMOVDQU 288(BX), Y10
	VPMULUDQ Y13, Y10, Y11
	MAC(0(SI), Y10, Y9)
	MAC(t1-160(SP), Y11, Y0)
	MAC(64(SI), Y11, Y1)
	MAC(t3-128(SP), Y11, Y2)
	MAC(128(SI), Y11, Y3)
	MAC(t5-96(SP), Y11, Y4)
	MAC(192(SI), Y11, Y5)
	MAC(t7-64(SP), Y11, Y6)
	MAC(256(SI), Y11, Y7)
	MAC(t9-32(SP), Y11, Y8)
	VPXOR Y10, Y10, Y10
	VMOVDQU Y10, t1-160(SP)
	VMOVDQU Y10, t3-128(SP)
	VMOVDQU Y10, t5-96(SP)
	VMOVDQU Y10, t7-64(SP)
	VMOVDQU Y10, t9-32(SP)
	CARRY
	STORE(DI)
	VZEROUPPER
	RET

// func squareAVX2(dst, a *Row)
//
// Y10 is a digit of a, Y11 twice that; the stack has twice the odd digits, 19 times the upper ones, and 38 times the odd ones of
// those, and is overwritten.
TEXT ·squareAVX2(SB), NOSPLIT, $416-16
	MOVQ dst+0(FP), DI
	MOVQ a+8(FP), SI
	MASKS
	MOVQ $19, AX
	VMOVQ AX, X13
	VPBROADCASTQ X13, Y13
	VMOVDQU 32(SI), Y0
	VPADDQ Y0, Y0, Y1
	VMOVDQU Y1, d1-416(SP)
	VMOVDQU 96(SI), Y0
	VPADDQ Y0, Y0, Y1
	VMOVDQU Y1, d3-384(SP)
	VMOVDQU 160(SI), Y0
	VPADDQ Y0, Y0, Y1
	VMOVDQU Y1, d5-352(SP)
	VPMULUDQ Y13, Y0, Y2
	VMOVDQU Y2, u5-320(SP)
	VPADDQ Y2, Y2, Y2
	VMOVDQU Y2, v5-288(SP)
	VMOVDQU 224(SI), Y0
	VPADDQ Y0, Y0, Y1
	VMOVDQU Y1, d7-256(SP)
	VPMULUDQ Y13, Y0, Y2
	VMOVDQU Y2, u7-224(SP)
	VPADDQ Y2, Y2, Y2
	VMOVDQU Y2, v7-192(SP)
	VMOVDQU 288(SI), Y0
	VPADDQ Y0, Y0, Y1
	VMOVDQU Y1, d9-160(SP)
	VPMULUDQ Y13, Y0, Y2
	VMOVDQU Y2, u9-128(SP)
	VPADDQ Y2, Y2, Y2
	VMOVDQU Y2, v9-96(SP)
	VPMULUDQ 192(SI), Y13, Y0
	VMOVDQU Y0, u6-64(SP)
	VPMULUDQ 256(SI), Y13, Y0
	VMOVDQU Y0, u8-32(SP)
	VMOVDQU 0(SI), Y10
	VPADDQ Y10, Y10, Y11
	FIRST(Y10, Y10, Y0)
	FIRST(32(SI), Y11, Y1)
	FIRST(64(SI), Y11, Y2)
	FIRST(96(SI), Y11, Y3)
	FIRST(128(SI), Y11, Y4)
	FIRST(160(SI), Y11, Y5)
	FIRST(192(SI), Y11, Y6)
	FIRST(224(SI), Y11, Y7)
	FIRST(256(SI), Y11, Y8)
	FIRST(288(SI), Y11, Y9)
	VMOVDQU 32(SI), Y10
	VPADDQ Y10, Y10, Y11
	MAC(Y10, Y11, Y2)
	MAC(64(SI), Y11, Y3)
	MAC(d3-384(SP), Y11, Y4)
	MAC(128(SI), Y11, Y5)
	MAC(d5-352(SP), Y11, Y6)
	MAC(192(SI), Y11, Y7)
	MAC(d7-256(SP), Y11, Y8)
	MAC(256(SI), Y11, Y9)
	MAC(v9-96(SP), Y11, Y0)
	VMOVDQU 64(SI), Y10
	VPADDQ Y10, Y10, Y11
	MAC(Y10, Y10, Y4)
	MAC(96(SI), Y11, Y5)
	MAC(128(SI), Y11, Y6)
	MAC(160(SI), Y11, Y7)
	MAC(192(SI), Y11, Y8)
	MAC(224(SI), Y11, Y9)
	MAC(u8-32(SP), Y11, Y0)
	MAC(u9-128(SP), Y11, Y1)
	VMOVDQU 96(SI), Y10
	VPADDQ Y10, Y10, Y11
	MAC(Y10, Y11, Y6)
	MAC(128(SI), Y11, Y7)
	MAC(d5-352(SP), Y11, Y8)
	MAC(192(SI), Y11, Y9)
	MAC(v7-192(SP), Y11, Y0)
	MAC(u8-32(SP), Y11, Y1)
	MAC(v9-96(SP), Y11, Y2)
	VMOVDQU 128(SI), Y10
	VPADDQ Y10, Y10, Y11
	MAC(Y10, Y10, Y8)
	MAC(160(SI), Y11, Y9)
	MAC(u6-64(SP), Y11, Y0)
	MAC(u7-224(SP), Y11, Y1)
	MAC(u8-32(SP), Y11, Y2)
	MAC(u9-128(SP), Y11, Y3)
	VMOVDQU 160(SI), Y10
	VPADDQ Y10, Y10, Y11
	MAC(v5-288(SP), Y10, Y0)
	MAC(u6-64(SP), Y11, Y1)
	MAC(v7-192(SP), Y11, Y2)
	MAC(u8-32(SP), Y11, Y3)
	MAC(v9-96(SP), Y11, Y4)
	VMOVDQU 192(SI), Y10
	VPADDQ Y10, Y10, Y11
	MAC(u6-64(SP), Y10, Y2)
	MAC(u7-224(SP), Y11, Y3)
	MAC(u8-32(SP), Y11, Y4)
	MAC(u9-128(SP), Y11, Y5)
	VMOVDQU 224(SI), Y10
	VPADDQ Y10, Y10, Y11
	MAC(v7-192(SP), Y10, Y4)
	MAC(u8-32(SP), Y11, Y5)
	MAC(v9-96(SP), Y11, Y6)
	VMOVDQU 256(SI), Y10
	VPADDQ Y10, Y10, Y11
	MAC(u8-32(SP), Y10, Y6)
	MAC(u9-128(SP), Y11, Y7)
	VMOVDQU 288(SI), Y10
	VPADDQ Y10, Y10, Y11
	MAC(v9-96(SP), Y10, Y8)
	VPXOR Y10, Y10, Y10
	VMOVDQU Y10, d1-416(SP)
	VMOVDQU Y10, d3-384(SP)
	VMOVDQU Y10, d5-352(SP)
	VMOVDQU Y10, u5-320(SP)
	VMOVDQU Y10, v5-288(SP)
	VMOVDQU Y10, d7-256(SP)
	VMOVDQU Y10, u7-224(SP)
	VMOVDQU Y10, v7-192(SP)
	VMOVDQU Y10, d9-160(SP)
	VMOVDQU Y10, u9-128(SP)
	VMOVDQU Y10, v9-96(SP)
	VMOVDQU Y10, u6-64(SP)
	VMOVDQU Y10, u8-32(SP)
	CARRY
	STORE(DI)
	VZEROUPPER
	RET

#define SCALE(i, c) \
	VPMULUDQ (32*i)(SI), Y11, c; \
	VPADDQ (32*i)(BX), c, c;

// func scaleAVX2(dst, a, b, factors *Row)
//
// dst gets factors*a + b.
TEXT ·scaleAVX2(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), BX
	MOVQ factors+24(FP), DX
	MASKS
	VMOVDQU (DX), Y11
	SCALE(0, Y0)
	SCALE(1, Y1)
	SCALE(2, Y2)
	SCALE(3, Y3)
	SCALE(4, Y4)
	SCALE(5, Y5)
	SCALE(6, Y6)
	SCALE(7, Y7)
	SCALE(8, Y8)
	SCALE(9, Y9)
	CARRY
	STORE(DI)
	VZEROUPPER
	RET

// SUM and DIFFERENCE have digit i in s and d, with the carries Y10 and Y11 of those below.
#define SUM(i, s) \
	VMOVDQU (32*i)(SI), Y12; \
	VMOVDQU (32*i)(BX), Y13; \
	VPADDQ Y13, Y12, s; \
	VPADDQ (32*i)(DX), Y12, Y12;

#define DIGITS(i, bits, mask) \
	SUM(i, Y4) \
	VPSUBQ Y13, Y12, Y5; \
	VPADDQ Y10, Y4, Y4; \
	VPADDQ Y11, Y5, Y5; \
	VPSRLQ $bits, Y4, Y10; \
	VPSRLQ $bits, Y5, Y11; \
	VPAND mask, Y4, Y4; \
	VPAND mask, Y5, Y5;

#define BOTH(i, bits, mask) \
	DIGITS(i, bits, mask) \
	VMOVDQU Y4, (32*i)(DI); \
	VMOVDQU Y5, (32*i)(R8);

// TIMES19 adds 19*c to d.
#define TIMES19(c, d) \
	VPADDQ c, d, d; \
	VPADDQ c, c, c; \
	VPADDQ c, d, d; \
	VPSLLQ $3, c, c; \
	VPADDQ c, d, d;

// func addSubtractAVX2(sum, difference, a, b, bias *Row)
//
// sum gets a + b, difference a - b + bias. Digit 0 stays in Y2 and Y3 until the topmost carries are known.
TEXT ·addSubtractAVX2(SB), NOSPLIT, $0-40
	MOVQ sum+0(FP), DI
	MOVQ difference+8(FP), R8
	MOVQ a+16(FP), SI
	MOVQ b+24(FP), BX
	MOVQ bias+32(FP), DX
	MASKS
	VPXOR Y10, Y10, Y10
	VPXOR Y11, Y11, Y11
	DIGITS(0, 26, Y14)
	VMOVDQA Y4, Y2
	VMOVDQA Y5, Y3
	BOTH(1, 25, Y15)
	BOTH(2, 26, Y14)
	BOTH(3, 25, Y15)
	BOTH(4, 26, Y14)
	BOTH(5, 25, Y15)
	BOTH(6, 26, Y14)
	BOTH(7, 25, Y15)
	BOTH(8, 26, Y14)
	BOTH(9, 25, Y15)
	TIMES19(Y10, Y2)
	TIMES19(Y11, Y3)
	VMOVDQU Y2, (DI)
	VMOVDQU Y3, (R8)
	VZEROUPPER
	RET

#define SWAP(i) \
	VMOVDQU (32*i)(SI), Y0; \
	VMOVDQU (32*i)(BX), Y1; \
	VPXOR Y0, Y1, Y2; \
	VPAND Y15, Y2, Y2; \
	VPXOR Y2, Y0, Y0; \
	VPXOR Y2, Y1, Y1; \
	VMOVDQU Y0, (32*i)(SI); \
	VMOVDQU Y1, (32*i)(BX);

// func swapAVX2(a, b, swap *Row)
//
// The twenty rows of a and b are exchanged in lanes where swap is 1.
TEXT ·swapAVX2(SB), NOSPLIT, $0-24
	MOVQ a+0(FP), SI
	MOVQ b+8(FP), BX
	MOVQ swap+16(FP), AX
	VPXOR Y15, Y15, Y15
	VPSUBQ (AX), Y15, Y15
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
	SWAP(10)
	SWAP(11)
	SWAP(12)
	SWAP(13)
	SWAP(14)
	SWAP(15)
	SWAP(16)
	SWAP(17)
	SWAP(18)
	SWAP(19)
	VZEROUPPER
	RET

// UNPACK writes the two digits of word i of an entry, which c has.
#define UNPACK(i, c) \
	VPAND Y14, c, Y12; \
	VPSRLQ $32, c, Y13; \
	VMOVDQU Y12, (64*i)(DI); \
	VMOVDQU Y13, (64*i+32)(DI);

#define PICK(i, c) \
	VPBROADCASTQ (128*i)(SI), Y12; \
	VPAND Y11, Y12, Y12; \
	VPOR Y12, c, c;

// func chooseAVX2(dst *Row, window *uint64, index *Row)
//
// dst gets the entry that index names, of each lane. Every entry is read whole, whatever the indices: five words of all entries
// at a time.
TEXT ·chooseAVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ window+8(FP), SI
	MOVQ index+16(FP), BX
	MASKS
	VMOVDQU (BX), Y8
	MOVQ $1, AX
	VMOVQ AX, X9
	VPBROADCASTQ X9, Y9
	MOVQ $3, CX
nextNumber:
	VPXOR Y10, Y10, Y10 // the entry's number
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	VPXOR Y2, Y2, Y2
	VPXOR Y3, Y3, Y3
	VPXOR Y4, Y4, Y4
	MOVQ $16, R9
nextEntry:
	VPCMPEQQ Y10, Y8, Y11
	PICK(0, Y0)
	PICK(1, Y1)
	PICK(2, Y2)
	PICK(3, Y3)
	PICK(4, Y4)
	VPADDQ Y9, Y10, Y10
	ADDQ $8, SI
	DECQ R9
	JNZ nextEntry
	UNPACK(0, Y0)
	UNPACK(1, Y1)
	UNPACK(2, Y2)
	UNPACK(3, Y3)
	UNPACK(4, Y4)
	ADDQ $320, DI
	ADDQ $512, SI // the other four words of 16 entries
	DECQ CX
	JNZ nextNumber
	VZEROUPPER
	RET

// func gatherAVX2(dst *Row, base *uint64, offsets *Row, words, stride uint64)
//
// Row i of dst and the next one get the digits of the words at base + offsets + i*stride. The offsets are public.
TEXT ·gatherAVX2(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ base+8(FP), SI
	MOVQ offsets+16(FP), BX
	MOVQ words+24(FP), CX
	MOVQ stride+32(FP), DX
	MASKS
	MOVQ 0(BX), R8
	MOVQ 8(BX), R9
	MOVQ 16(BX), R10
	MOVQ 24(BX), R11
nextWord:
	VMOVQ (SI)(R8*1), X0
	VPINSRQ $1, (SI)(R9*1), X0, X0
	VMOVQ (SI)(R10*1), X1
	VPINSRQ $1, (SI)(R11*1), X1, X1
	VINSERTI128 $1, X1, Y0, Y0
	UNPACK(0, Y0)
	ADDQ $64, DI
	ADDQ DX, SI
	DECQ CX
	JNZ nextWord
	VZEROUPPER
	RET
