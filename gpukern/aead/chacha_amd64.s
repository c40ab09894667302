//go:build amd64 && !purego

#include "textflag.h"

// ChaCha20 (RFC 8439 2.3) of 16 blocks, one to a 32-bit lane: Z0-Z15 are the words of their states.

DATA sigma<>+0(SB)/8, $0x3320646e61707865
DATA sigma<>+8(SB)/8, $0x6b20657479622d32
GLOBL sigma<>(SB), RODATA|NOPTR, $16

// The numbers of the lanes.
DATA numbers<>+0(SB)/8, $0x0000000100000000
DATA numbers<>+8(SB)/8, $0x0000000300000002
DATA numbers<>+16(SB)/8, $0x0000000500000004
DATA numbers<>+24(SB)/8, $0x0000000700000006
DATA numbers<>+32(SB)/8, $0x0000000900000008
DATA numbers<>+40(SB)/8, $0x0000000b0000000a
DATA numbers<>+48(SB)/8, $0x0000000d0000000c
DATA numbers<>+56(SB)/8, $0x0000000f0000000e
GLOBL numbers<>(SB), RODATA|NOPTR, $64

// QUARTERS runs four quarter rounds (2.1) side by side.
#define ADD_XOR_ROTATE(a0, a1, a2, a3, b0, b1, b2, b3, d0, d1, d2, d3, n) \
	VPADDD b0, a0, a0; \
	VPADDD b1, a1, a1; \
	VPXORD a0, d0, d0; \
	VPXORD a1, d1, d1; \
	VPROLD $n, d0, d0; \
	VPROLD $n, d1, d1; \
	VPADDD b2, a2, a2; \
	VPADDD b3, a3, a3; \
	VPXORD a2, d2, d2; \
	VPXORD a3, d3, d3; \
	VPROLD $n, d2, d2; \
	VPROLD $n, d3, d3;
#define QUARTERS(a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3) \
	ADD_XOR_ROTATE(a0, a1, a2, a3, b0, b1, b2, b3, d0, d1, d2, d3, 16) \
	ADD_XOR_ROTATE(c0, c1, c2, c3, d0, d1, d2, d3, b0, b1, b2, b3, 12) \
	ADD_XOR_ROTATE(a0, a1, a2, a3, b0, b1, b2, b3, d0, d1, d2, d3, 8) \
	ADD_XOR_ROTATE(c0, c1, c2, c3, d0, d1, d2, d3, b0, b1, b2, b3, 7)

#define DOUBLE_ROUND \
	QUARTERS(Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15) \
	QUARTERS(Z0, Z1, Z2, Z3, Z5, Z6, Z7, Z4, Z10, Z11, Z8, Z9, Z15, Z12, Z13, Z14)

#define SIGMA \
	VPBROADCASTD sigma<>+0(SB), Z0; \
	VPBROADCASTD sigma<>+4(SB), Z1; \
	VPBROADCASTD sigma<>+8(SB), Z2; \
	VPBROADCASTD sigma<>+12(SB), Z3;
#define SIGMA_ADD \
	VPADDD.BCST sigma<>+0(SB), Z0, Z0; \
	VPADDD.BCST sigma<>+4(SB), Z1, Z1; \
	VPADDD.BCST sigma<>+8(SB), Z2, Z2; \
	VPADDD.BCST sigma<>+12(SB), Z3, Z3;

// TRANSPOSE4 has four words of 16 blocks, and leaves those of blocks j, j+4, j+8 and j+12 in register j.
#define TRANSPOSE4(a, b, c, d) \
	VPUNPCKLDQ b, a, Z16; \
	VPUNPCKHDQ b, a, Z17; \
	VPUNPCKLDQ d, c, Z18; \
	VPUNPCKHDQ d, c, Z19; \
	VPUNPCKLQDQ Z18, Z16, a; \
	VPUNPCKHQDQ Z18, Z16, b; \
	VPUNPCKLQDQ Z19, Z17, c; \
	VPUNPCKHQDQ Z19, Z17, d;

// GATHER4 has blocks j, j+4, j+8 and j+12 in four registers, four words of each, and leaves a block in each.
#define GATHER4(a, b, c, d) \
	VSHUFI32X4 $0x44, b, a, Z16; \
	VSHUFI32X4 $0xee, b, a, Z17; \
	VSHUFI32X4 $0x44, d, c, Z18; \
	VSHUFI32X4 $0xee, d, c, Z19; \
	VSHUFI32X4 $0x88, Z18, Z16, a; \
	VSHUFI32X4 $0xdd, Z18, Z16, b; \
	VSHUFI32X4 $0x88, Z19, Z17, c; \
	VSHUFI32X4 $0xdd, Z19, Z17, d;

// BLOCKS leaves blocks 0, 4, 8 and 12 in Z0, Z4, Z8 and Z12, blocks 1, 5, 9 and 13 in Z1, Z5, Z9 and Z13, and so on.
#define BLOCKS \
	TRANSPOSE4(Z0, Z1, Z2, Z3) \
	TRANSPOSE4(Z4, Z5, Z6, Z7) \
	TRANSPOSE4(Z8, Z9, Z10, Z11) \
	TRANSPOSE4(Z12, Z13, Z14, Z15) \
	GATHER4(Z0, Z4, Z8, Z12) \
	GATHER4(Z1, Z5, Z9, Z13) \
	GATHER4(Z2, Z6, Z10, Z14) \
	GATHER4(Z3, Z7, Z11, Z15)

#define XOR(i, z) \
	VPXORQ (64*i)(SI), z, z; \
	VMOVDQU64 z, (64*i)(SI);

// func chachaXOR(key *[32]byte, nonce *[16]byte, counter uint32, text *byte, chunks int)
TEXT ·chachaXOR(SB), NOSPLIT, $0-40
	MOVQ key+0(FP), DI
	MOVQ nonce+8(FP), DX
	MOVL counter+16(FP), R8
	MOVQ text+24(FP), SI
	MOVQ chunks+32(FP), CX
	VPBROADCASTD R8, Z20
	VPADDD numbers<>(SB), Z20, Z20
	MOVL $16, R8
	VPBROADCASTD R8, Z21
	VPBROADCASTD (DX), Z22
	VPBROADCASTD 4(DX), Z23
	VPBROADCASTD 8(DX), Z24

chunk:
	SIGMA
	VPBROADCASTD 0(DI), Z4
	VPBROADCASTD 4(DI), Z5
	VPBROADCASTD 8(DI), Z6
	VPBROADCASTD 12(DI), Z7
	VPBROADCASTD 16(DI), Z8
	VPBROADCASTD 20(DI), Z9
	VPBROADCASTD 24(DI), Z10
	VPBROADCASTD 28(DI), Z11
	VMOVDQA32 Z20, Z12
	VMOVDQA32 Z22, Z13
	VMOVDQA32 Z23, Z14
	VMOVDQA32 Z24, Z15
	MOVL $10, R8
rounds:
	DOUBLE_ROUND
	DECL R8
	JNE rounds
	SIGMA_ADD
	VPADDD.BCST 0(DI), Z4, Z4
	VPADDD.BCST 4(DI), Z5, Z5
	VPADDD.BCST 8(DI), Z6, Z6
	VPADDD.BCST 12(DI), Z7, Z7
	VPADDD.BCST 16(DI), Z8, Z8
	VPADDD.BCST 20(DI), Z9, Z9
	VPADDD.BCST 24(DI), Z10, Z10
	VPADDD.BCST 28(DI), Z11, Z11
	VPADDD Z20, Z12, Z12
	VPADDD Z22, Z13, Z13
	VPADDD Z23, Z14, Z14
	VPADDD Z24, Z15, Z15
	VPADDD Z21, Z20, Z20
	BLOCKS
	XOR(0, Z0)
	XOR(1, Z1)
	XOR(2, Z2)
	XOR(3, Z3)
	XOR(4, Z4)
	XOR(5, Z5)
	XOR(6, Z6)
	XOR(7, Z7)
	XOR(8, Z8)
	XOR(9, Z9)
	XOR(10, Z10)
	XOR(11, Z11)
	XOR(12, Z12)
	XOR(13, Z13)
	XOR(14, Z14)
	XOR(15, Z15)
	ADDQ $1024, SI
	DECQ CX
	JNE chunk
	VZEROUPPER
	RET

// Offsets in a segment.
#define SEGMENT_KEY 0
#define SEGMENT_NONCE 8
#define SEGMENT_BASE 16
#define SEGMENT_MASK 20
#define SEGMENT_SIZE 24

#define ROW(i, z) VMOVDQU32 z, (64*i-256)(SI);
#define ROW_ADD(i, z) VPADDD (64*i-256)(SI), z, z;
#define STORE(i, z) VMOVDQU64 z, (64*i)(SI);

// func chachaLanes(segments *segment, n int, stream *[16][64]byte)
TEXT ·chachaLanes(SB), NOSPLIT, $0-24
	MOVQ segments+0(FP), DI
	MOVQ n+8(FP), CX
	MOVQ stream+16(FP), SI
	SIGMA
	VPXORD Z4, Z4, Z4
	VPXORD Z5, Z5, Z5
	VPXORD Z6, Z6, Z6
	VPXORD Z7, Z7, Z7
	VPXORD Z8, Z8, Z8
	VPXORD Z9, Z9, Z9
	VPXORD Z10, Z10, Z10
	VPXORD Z11, Z11, Z11
	VPXORD Z12, Z12, Z12
	VPXORD Z13, Z13, Z13
	VPXORD Z14, Z14, Z14
	VPXORD Z15, Z15, Z15

segment:
	MOVQ SEGMENT_KEY(DI), AX
	MOVQ SEGMENT_NONCE(DI), DX
	MOVL SEGMENT_MASK(DI), R8
	KMOVW R8, K1
	VPBROADCASTD 0(AX), K1, Z4
	VPBROADCASTD 4(AX), K1, Z5
	VPBROADCASTD 8(AX), K1, Z6
	VPBROADCASTD 12(AX), K1, Z7
	VPBROADCASTD 16(AX), K1, Z8
	VPBROADCASTD 20(AX), K1, Z9
	VPBROADCASTD 24(AX), K1, Z10
	VPBROADCASTD 28(AX), K1, Z11
	VPBROADCASTD SEGMENT_BASE(DI), K1, Z12
	VPBROADCASTD (DX), K1, Z13
	VPBROADCASTD 4(DX), K1, Z14
	VPBROADCASTD 8(DX), K1, Z15
	ADDQ $SEGMENT_SIZE, DI
	DECQ CX
	JNE segment
	VPADDD numbers<>(SB), Z12, Z12

	// The stream's memory holds the states meanwhile.
	ROW(4, Z4)
	ROW(5, Z5)
	ROW(6, Z6)
	ROW(7, Z7)
	ROW(8, Z8)
	ROW(9, Z9)
	ROW(10, Z10)
	ROW(11, Z11)
	ROW(12, Z12)
	ROW(13, Z13)
	ROW(14, Z14)
	ROW(15, Z15)
	MOVL $10, R8
rounds:
	DOUBLE_ROUND
	DECL R8
	JNE rounds
	SIGMA_ADD
	ROW_ADD(4, Z4)
	ROW_ADD(5, Z5)
	ROW_ADD(6, Z6)
	ROW_ADD(7, Z7)
	ROW_ADD(8, Z8)
	ROW_ADD(9, Z9)
	ROW_ADD(10, Z10)
	ROW_ADD(11, Z11)
	ROW_ADD(12, Z12)
	ROW_ADD(13, Z13)
	ROW_ADD(14, Z14)
	ROW_ADD(15, Z15)
	BLOCKS
	STORE(0, Z0)
	STORE(1, Z1)
	STORE(2, Z2)
	STORE(3, Z3)
	STORE(4, Z4)
	STORE(5, Z5)
	STORE(6, Z6)
	STORE(7, Z7)
	STORE(8, Z8)
	STORE(9, Z9)
	STORE(10, Z10)
	STORE(11, Z11)
	STORE(12, Z12)
	STORE(13, Z13)
	STORE(14, Z14)
	STORE(15, Z15)
	VZEROUPPER
	RET
