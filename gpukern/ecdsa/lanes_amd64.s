//go:build amd64 && !purego

#include "textflag.h"
#include "lanes_amd64.h"

// CHOOSE has the entries at SI that Z28 names in Z0: VPERMT2Q reads 16 of the 32 by the low bits, K1 has bit 4. The
// whole window is read, whatever the indices.
#define CHOOSE \
	VMOVDQU64 0(SI), Z0; \
	VPERMT2Q 64(SI), Z28, Z0; \
	VMOVDQU64 128(SI), Z1; \
	VPERMT2Q 192(SI), Z28, Z1; \
	VMOVDQU64 Z1, K1, Z0; \
	ADDQ $256, SI;

// func choose(dst *row, window *uint64, index, negative *row, digits int, m *modulus)
TEXT ·choose(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ window+8(FP), SI
	MOVQ index+16(FP), R8
	MOVQ negative+24(FP), R9
	MOVQ digits+32(FP), CX
	MOVQ m+40(FP), DX
	MASK52(Z31)
	VMOVDQU64 (R8), Z28
	VMOVDQU64 (R9), Z29
	MOVQ $16, AX
	VPBROADCASTQ AX, Z27
	VPTESTMQ Z27, Z28, K1
	VPTESTMQ Z29, Z29, K2
	VPXORQ Z26, Z26, Z26 // carry
	MOVQ CX, R10
nextX:
	CHOOSE
	VMOVDQU64 Z0, (DI)
	ADDQ $64, DI
	DECQ R10
	JNZ nextX
nextY:
	CHOOSE
	VPBROADCASTQ (DX), Z2
	VPSUBQ Z0, Z2, K2, Z0 // n - y
	VPADDQ Z26, Z0, Z0
	VPANDQ Z31, Z0, Z1
	VMOVDQU64 Z1, (DI)
	VPSRAQ $52, Z0, Z26
	ADDQ $64, DI
	ADDQ $8, DX
	DECQ CX
	JNZ nextY
	VZEROUPPER
	RET
