//go:build amd64 && !purego

#include "textflag.h"

// Both forms add 16-bit little-endian words as signed numbers after flipping their top bit, which takes
// 0x8000 from each: x^0x8000 as int16 is x-0x8000. A multiply-add by ones then sums neighbours into 32-bit
// lanes exactly, and 0x8000 for every word is given back at the end: the result is the true sum of the
// words. n is at most 65536, so every lane and the total stay below 2^31 in magnitude.

DATA flip<>+0(SB)/4, $0x80008000
GLOBL flip<>(SB), RODATA|NOPTR, $4
DATA ones<>+0(SB)/4, $0x00010001
GLOBL ones<>(SB), RODATA|NOPTR, $4

// func sumAVX512(b *byte, n int) uint32
//
// Any n from 1: the last 1 to 256 bytes are loaded under masks, whose zeros flip to -0x8000 and count as
// words like the others.
TEXT ·sumAVX512(SB), NOSPLIT, $0-20
	MOVQ b+0(FP), SI
	MOVQ n+8(FP), CX
	VPBROADCASTD flip<>(SB), Z30
	VPBROADCASTD ones<>(SB), Z31
	VPXORQ Z0, Z0, Z0
	VPXORQ Z1, Z1, Z1
	VPXORQ Z2, Z2, Z2
	VPXORQ Z3, Z3, Z3
	XORL   DX, DX             // steps of 64 bytes, for the 0x8000s
	CMPQ   CX, $256
	JLT    tail

loop:
	VPXORQ 0(SI), Z30, Z4
	VPXORQ 64(SI), Z30, Z5
	VPXORQ 128(SI), Z30, Z6
	VPXORQ 192(SI), Z30, Z7
	VPDPWSSD Z31, Z4, Z0
	VPDPWSSD Z31, Z5, Z1
	VPDPWSSD Z31, Z6, Z2
	VPDPWSSD Z31, Z7, Z3
	ADDQ   $256, SI
	ADDL   $4, DX
	SUBQ   $256, CX
	CMPQ   CX, $256
	JGE    loop

tail:
	CMPQ   CX, $64
	JLT    last
	VPXORQ 0(SI), Z30, Z4
	VPDPWSSD Z31, Z4, Z0
	ADDQ   $64, SI
	ADDL   $1, DX
	SUBQ   $64, CX
	JMP    tail

last:
	MOVQ   $-1, AX
	BZHIQ  CX, AX, AX         // the low CX bits
	KMOVQ  AX, K1
	VMOVDQU8.Z (SI), K1, Z5
	VPXORQ Z5, Z30, Z5
	VPDPWSSD Z31, Z5, Z1
	ADDL   $1, DX
	VPADDD Z0, Z1, Z0
	VPADDD Z2, Z3, Z2
	VPADDD Z0, Z2, Z0
	VEXTRACTI64X4 $1, Z0, Y1
	VPADDD Y0, Y1, Y0
	VEXTRACTI128 $1, Y0, X1
	VPADDD X0, X1, X0
	VPSHUFD $0x4e, X0, X1
	VPADDD X0, X1, X0
	VPSHUFD $0xb1, X0, X1
	VPADDD X0, X1, X0
	VMOVD  X0, AX
	SHLL   $20, DX            // 32 words in a step, 0x8000 each
	ADDL   DX, AX
	VZEROUPPER
	MOVL   AX, ret+16(FP)
	RET

// func sumAVX2(b *byte, n int) uint32
//
// n is a multiple of 32.
TEXT ·sumAVX2(SB), NOSPLIT, $0-20
	MOVQ b+0(FP), SI
	MOVQ n+8(FP), CX
	MOVL CX, DX               // for the 0x8000s
	VPBROADCASTD flip<>(SB), Y14
	VPBROADCASTD ones<>(SB), Y15
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	VPXOR Y2, Y2, Y2
	VPXOR Y3, Y3, Y3
	CMPQ  CX, $128
	JLT   tail

loop:
	VPXOR 0(SI), Y14, Y4
	VPXOR 32(SI), Y14, Y5
	VPXOR 64(SI), Y14, Y6
	VPXOR 96(SI), Y14, Y7
	VPMADDWD Y15, Y4, Y4
	VPMADDWD Y15, Y5, Y5
	VPMADDWD Y15, Y6, Y6
	VPMADDWD Y15, Y7, Y7
	VPADDD Y4, Y0, Y0
	VPADDD Y5, Y1, Y1
	VPADDD Y6, Y2, Y2
	VPADDD Y7, Y3, Y3
	ADDQ  $128, SI
	SUBQ  $128, CX
	CMPQ  CX, $128
	JGE   loop

tail:
	TESTQ CX, CX
	JZ    reduce
	VPXOR 0(SI), Y14, Y4
	VPMADDWD Y15, Y4, Y4
	VPADDD Y4, Y0, Y0
	ADDQ  $32, SI
	SUBQ  $32, CX
	JMP   tail

reduce:
	VPADDD Y0, Y1, Y0
	VPADDD Y2, Y3, Y2
	VPADDD Y0, Y2, Y0
	VEXTRACTI128 $1, Y0, X1
	VPADDD X0, X1, X0
	VPSHUFD $0x4e, X0, X1
	VPADDD X0, X1, X0
	VPSHUFD $0xb1, X0, X1
	VPADDD X0, X1, X0
	VMOVD  X0, AX
	SHLL  $14, DX             // half as many words as bytes, 0x8000 each
	ADDL  DX, AX
	VZEROUPPER
	MOVL  AX, ret+16(FP)
	RET
