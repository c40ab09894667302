//go:build amd64 && !purego

#include "textflag.h"

// SHA-256 (FIPS 180-4 6.2) of 16 messages, one to a 32-bit lane.
//
//	Z0-Z7   a to h      Z8-Z23  the last 16 words of the schedule      Z24-Z31  scratch

// K constants (FIPS 180-4 4.2.2).
DATA constants<>+0(SB)/8, $0x71374491428a2f98
DATA constants<>+8(SB)/8, $0xe9b5dba5b5c0fbcf
DATA constants<>+16(SB)/8, $0x59f111f13956c25b
DATA constants<>+24(SB)/8, $0xab1c5ed5923f82a4
DATA constants<>+32(SB)/8, $0x12835b01d807aa98
DATA constants<>+40(SB)/8, $0x550c7dc3243185be
DATA constants<>+48(SB)/8, $0x80deb1fe72be5d74
DATA constants<>+56(SB)/8, $0xc19bf1749bdc06a7
DATA constants<>+64(SB)/8, $0xefbe4786e49b69c1
DATA constants<>+72(SB)/8, $0x240ca1cc0fc19dc6
DATA constants<>+80(SB)/8, $0x4a7484aa2de92c6f
DATA constants<>+88(SB)/8, $0x76f988da5cb0a9dc
DATA constants<>+96(SB)/8, $0xa831c66d983e5152
DATA constants<>+104(SB)/8, $0xbf597fc7b00327c8
DATA constants<>+112(SB)/8, $0xd5a79147c6e00bf3
DATA constants<>+120(SB)/8, $0x1429296706ca6351
DATA constants<>+128(SB)/8, $0x2e1b213827b70a85
DATA constants<>+136(SB)/8, $0x53380d134d2c6dfc
DATA constants<>+144(SB)/8, $0x766a0abb650a7354
DATA constants<>+152(SB)/8, $0x92722c8581c2c92e
DATA constants<>+160(SB)/8, $0xa81a664ba2bfe8a1
DATA constants<>+168(SB)/8, $0xc76c51a3c24b8b70
DATA constants<>+176(SB)/8, $0xd6990624d192e819
DATA constants<>+184(SB)/8, $0x106aa070f40e3585
DATA constants<>+192(SB)/8, $0x1e376c0819a4c116
DATA constants<>+200(SB)/8, $0x34b0bcb52748774c
DATA constants<>+208(SB)/8, $0x4ed8aa4a391c0cb3
DATA constants<>+216(SB)/8, $0x682e6ff35b9cca4f
DATA constants<>+224(SB)/8, $0x78a5636f748f82ee
DATA constants<>+232(SB)/8, $0x8cc7020884c87814
DATA constants<>+240(SB)/8, $0xa4506ceb90befffa
DATA constants<>+248(SB)/8, $0xc67178f2bef9a3f7
GLOBL constants<>(SB), RODATA|NOPTR, $256

// Reverses the bytes of words.
DATA reverse<>+0(SB)/8, $0x0405060700010203
DATA reverse<>+8(SB)/8, $0x0c0d0e0f08090a0b
GLOBL reverse<>(SB), RODATA|NOPTR, $16

// STEP is a round (6.2.2 step 3) with the word w and constant i of those at R8.
#define STEP(a, b, c, d, e, f, g, h, w, i) \
	VPADDD w, h, h; \
	VPADDD.BCST (4*i)(R8), h, h; \
	VPRORD $6, e, Z24; \
	VPRORD $11, e, Z25; \
	VPRORD $25, e, Z26; \
	VPTERNLOGD $0x96, Z24, Z25, Z26; \
	VMOVDQA32 e, Z27; \
	VPTERNLOGD $0xca, g, f, Z27; \
	VPADDD Z26, h, h; \
	VPADDD Z27, h, h; \
	VPADDD h, d, d; \
	VPRORD $2, a, Z28; \
	VPRORD $13, a, Z29; \
	VPRORD $22, a, Z30; \
	VPTERNLOGD $0x96, Z28, Z29, Z30; \
	VMOVDQA32 a, Z31; \
	VPTERNLOGD $0xe8, c, b, Z31; \
	VPADDD Z30, h, h; \
	VPADDD Z31, h, h;

// NEXT replaces the word w0 by the one 16 later (6.2.2 step 1).
#define NEXT(w0, w1, w9, w14) \
	VPRORD $7, w1, Z24; \
	VPRORD $18, w1, Z25; \
	VPSRLD $3, w1, Z26; \
	VPTERNLOGD $0x96, Z24, Z25, Z26; \
	VPRORD $17, w14, Z27; \
	VPRORD $19, w14, Z28; \
	VPSRLD $10, w14, Z29; \
	VPTERNLOGD $0x96, Z27, Z28, Z29; \
	VPADDD w9, w0, w0; \
	VPADDD Z26, w0, w0; \
	VPADDD Z29, w0, w0;

#define NONE(w0, w1, w9, w14)

#define STEPS16(next) \
	STEP(Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z8, 0) \
	next(Z8, Z9, Z17, Z22) \
	STEP(Z7, Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z9, 1) \
	next(Z9, Z10, Z18, Z23) \
	STEP(Z6, Z7, Z0, Z1, Z2, Z3, Z4, Z5, Z10, 2) \
	next(Z10, Z11, Z19, Z8) \
	STEP(Z5, Z6, Z7, Z0, Z1, Z2, Z3, Z4, Z11, 3) \
	next(Z11, Z12, Z20, Z9) \
	STEP(Z4, Z5, Z6, Z7, Z0, Z1, Z2, Z3, Z12, 4) \
	next(Z12, Z13, Z21, Z10) \
	STEP(Z3, Z4, Z5, Z6, Z7, Z0, Z1, Z2, Z13, 5) \
	next(Z13, Z14, Z22, Z11) \
	STEP(Z2, Z3, Z4, Z5, Z6, Z7, Z0, Z1, Z14, 6) \
	next(Z14, Z15, Z23, Z12) \
	STEP(Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z0, Z15, 7) \
	next(Z15, Z16, Z8, Z13) \
	STEP(Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z16, 8) \
	next(Z16, Z17, Z9, Z14) \
	STEP(Z7, Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z17, 9) \
	next(Z17, Z18, Z10, Z15) \
	STEP(Z6, Z7, Z0, Z1, Z2, Z3, Z4, Z5, Z18, 10) \
	next(Z18, Z19, Z11, Z16) \
	STEP(Z5, Z6, Z7, Z0, Z1, Z2, Z3, Z4, Z19, 11) \
	next(Z19, Z20, Z12, Z17) \
	STEP(Z4, Z5, Z6, Z7, Z0, Z1, Z2, Z3, Z20, 12) \
	next(Z20, Z21, Z13, Z18) \
	STEP(Z3, Z4, Z5, Z6, Z7, Z0, Z1, Z2, Z21, 13) \
	next(Z21, Z22, Z14, Z19) \
	STEP(Z2, Z3, Z4, Z5, Z6, Z7, Z0, Z1, Z22, 14) \
	next(Z22, Z23, Z15, Z20) \
	STEP(Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z0, Z23, 15) \
	next(Z23, Z8, Z16, Z21)

// FETCH has 16 bytes each of four messages in z: those of message i, i+4, i+8 and i+12 at R9.
#define FETCH4(a, b, c, d, k) \
	VBROADCASTI32X4 (AX)(R9*1), k, a; \
	VBROADCASTI32X4 16(AX)(R9*1), k, b; \
	VBROADCASTI32X4 32(AX)(R9*1), k, c; \
	VBROADCASTI32X4 48(AX)(R9*1), k, d;
#define FETCH(i, a, b, c, d) \
	MOVQ (8*i)(SI), AX; \
	VBROADCASTI32X4 (AX)(R9*1), a; \
	VBROADCASTI32X4 16(AX)(R9*1), b; \
	VBROADCASTI32X4 32(AX)(R9*1), c; \
	VBROADCASTI32X4 48(AX)(R9*1), d; \
	MOVQ (8*i+32)(SI), AX; \
	FETCH4(a, b, c, d, K1) \
	MOVQ (8*i+64)(SI), AX; \
	FETCH4(a, b, c, d, K2) \
	MOVQ (8*i+96)(SI), AX; \
	FETCH4(a, b, c, d, K3)

// TRANSPOSE exchanges words and messages within 128 bits, and reverses the bytes of words.
#define TRANSPOSE(a, b, c, d) \
	VPUNPCKLDQ b, a, Z24; \
	VPUNPCKHDQ b, a, Z25; \
	VPUNPCKLDQ d, c, Z26; \
	VPUNPCKHDQ d, c, Z27; \
	VPUNPCKLQDQ Z26, Z24, a; \
	VPUNPCKHQDQ Z26, Z24, b; \
	VPUNPCKLQDQ Z27, Z25, c; \
	VPUNPCKHQDQ Z27, Z25, d; \
	VPSHUFB Z31, a, a; \
	VPSHUFB Z31, b, b; \
	VPSHUFB Z31, c, c; \
	VPSHUFB Z31, d, d;

#define LOAD_STATE \
	VMOVDQU32 (DI), Z0; \
	VMOVDQU32 64(DI), Z1; \
	VMOVDQU32 128(DI), Z2; \
	VMOVDQU32 192(DI), Z3; \
	VMOVDQU32 256(DI), Z4; \
	VMOVDQU32 320(DI), Z5; \
	VMOVDQU32 384(DI), Z6; \
	VMOVDQU32 448(DI), Z7;

#define ADD_STATE(i, z) \
	VPADDD (64*i)(DI), z, z; \
	VMOVDQU32 z, (64*i)(DI);

// func sha256x16(state *[8][16]uint32, data *[16]unsafe.Pointer, blocks int)
TEXT ·sha256x16(SB), NOSPLIT, $0-24
	MOVQ state+0(FP), DI
	MOVQ data+8(FP), SI
	MOVQ blocks+16(FP), CX
	MOVL $0x00f0, AX
	KMOVW AX, K1
	MOVL $0x0f00, AX
	KMOVW AX, K2
	MOVL $0xf000, AX
	KMOVW AX, K3
	XORL R9, R9
	LOAD_STATE

block:
	FETCH(0, Z8, Z12, Z16, Z20)
	FETCH(1, Z9, Z13, Z17, Z21)
	FETCH(2, Z10, Z14, Z18, Z22)
	FETCH(3, Z11, Z15, Z19, Z23)
	VBROADCASTI32X4 reverse<>(SB), Z31
	TRANSPOSE(Z8, Z9, Z10, Z11)
	TRANSPOSE(Z12, Z13, Z14, Z15)
	TRANSPOSE(Z16, Z17, Z18, Z19)
	TRANSPOSE(Z20, Z21, Z22, Z23)
	LEAQ constants<>(SB), R8
	MOVL $3, BX
steps:
	STEPS16(NEXT)
	ADDQ $64, R8
	DECL BX
	JNE steps
	STEPS16(NONE)
	ADD_STATE(0, Z0)
	ADD_STATE(1, Z1)
	ADD_STATE(2, Z2)
	ADD_STATE(3, Z3)
	ADD_STATE(4, Z4)
	ADD_STATE(5, Z5)
	ADD_STATE(6, Z6)
	ADD_STATE(7, Z7)
	ADDQ $64, R9
	DECQ CX
	JNE block
	VZEROUPPER
	RET
