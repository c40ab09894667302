//go:build amd64 && !purego

#include "textflag.h"

// Both forms look at the 64 positions of a block in four steps of every fourth position: a load from
// text+k holds the windows that begin at k, k+4, k+8 and so on, one in each lane, and a load four bytes
// further on their second halves. No byte has to be moved. The four masks are woven together at the end.

DATA lower<>+0(SB)/4, $0x20202020
GLOBL lower<>(SB), RODATA|NOPTR, $4
DATA mul4<>+0(SB)/4, $0x9e3b24c5
GLOBL mul4<>(SB), RODATA|NOPTR, $4
DATA mul8<>+0(SB)/4, $0x85ebca6b
GLOBL mul8<>(SB), RODATA|NOPTR, $4
DATA one<>+0(SB)/4, $1
GLOBL one<>(SB), RODATA|NOPTR, $4

// STEP512 looks at the windows in Z0 (first halves) and Z1 (second), and sets the bits of out where one may
// be an anchor's. tables.go has it in Go.
#define STEP512(out) \
	VPORD     Z31, Z0, Z0      \
	VPORD     Z31, Z1, Z1      \
	VPMULLD   Z30, Z0, Z0      \ // h4
	VPMULLD   Z29, Z1, Z1      \
	VPADDD    Z0, Z1, Z1       \ // h8
	VPSLLD    $8, Z0, Z2       \
	VPSRLD    X26, Z2, Z2      \
	KXNORW    K1, K1, K1       \
	VPXORD    Z3, Z3, Z3       \
	VPGATHERDD (DI)(Z2*4), K1, Z3 \
	VPSRLD    $27, Z0, Z4      \
	VPSRLD    $24, Z0, Z5      \
	VPSRLD    $27, Z1, Z6      \
	VPSRLD    $22, Z1, Z7      \
	VPRORVD   Z4, Z3, Z4       \
	VPRORVD   Z5, Z3, Z5       \
	VPRORVD   Z6, Z3, Z6       \
	VPRORVD   Z7, Z3, Z7       \
	VPANDD    Z4, Z5, Z4       \
	VPTERNLOGD $0xF8, Z6, Z7, Z4 \ // Z4 | Z6 & Z7
	VPTESTMD  Z28, Z4, K2      \
	KMOVW     K2, out

// WEAVE adds the bits of in, at every fourth bit from that of lanes, to R12.
#define WEAVE(in, lanes) \
	PDEPQ lanes, in, in \
	ORQ   in, R12

// func candidates512(text *byte, size int, filter *uint32, bits uint32, masks *uint64, blocks int)
TEXT ·candidates512(SB), NOSPLIT, $0-48
	MOVQ text+0(FP), SI
	MOVQ size+8(FP), CX
	MOVQ filter+16(FP), DI
	MOVL bits+24(FP), AX
	MOVQ masks+32(FP), DX
	MOVQ blocks+40(FP), BX
	NEGL AX
	ADDL $32, AX
	VMOVD AX, X26
	VPBROADCASTD lower<>(SB), Z31
	VPBROADCASTD mul4<>(SB), Z30
	VPBROADCASTD mul8<>(SB), Z29
	VPBROADCASTD one<>(SB), Z28
	MOVQ $0x1111111111111111, R13
	LEAQ (R13)(R13*1), R14
	LEAQ (R14)(R14*1), R15
	LEAQ (R15)(R15*1), R11

block:
	DECQ BX
	JLT  done
	CMPQ CX, $71               // the last load ends there
	JLT  edge
	VMOVDQU32 0(SI), Z0
	VMOVDQU32 4(SI), Z1
	STEP512(R8)
	VMOVDQU32 1(SI), Z0
	VMOVDQU32 5(SI), Z1
	STEP512(R9)
	VMOVDQU32 2(SI), Z0
	VMOVDQU32 6(SI), Z1
	STEP512(R10)
	VMOVDQU32 3(SI), Z0
	VMOVDQU32 7(SI), Z1
	STEP512(AX)

weave:
	XORL R12, R12
	WEAVE(R8, R13)
	WEAVE(R9, R14)
	WEAVE(R10, R15)
	WEAVE(AX, R11)
	MOVQ R12, (DX)
	ADDQ $8, DX
	ADDQ $64, SI
	SUBQ $64, CX
	JMP  block

// LOADEDGE loads 64 bytes from at on, with zeros for those behind the end, which are not read.
#define LOADEDGE(at, z) \
	MOVQ  CX, R12       \
	SUBQ  $at, R12      \
	CMOVQLT R8, R12     \
	CMPQ  R12, $64      \
	CMOVQGT R9, R12     \
	BZHIQ R12, R10, R12 \
	KMOVQ R12, K3       \
	VMOVDQU8.Z at(SI), K3, z

edge:
	// R8, R9 and R10 serve as constants until the steps use them for masks, so all eight loads come first.
	XORL R8, R8
	MOVQ $64, R9
	MOVQ $-1, R10
	LOADEDGE(0, Z0)
	LOADEDGE(4, Z1)
	LOADEDGE(1, Z16)
	LOADEDGE(5, Z17)
	LOADEDGE(2, Z18)
	LOADEDGE(6, Z19)
	LOADEDGE(3, Z20)
	LOADEDGE(7, Z21)
	STEP512(R8)
	VMOVDQA32 Z16, Z0
	VMOVDQA32 Z17, Z1
	STEP512(R9)
	VMOVDQA32 Z18, Z0
	VMOVDQA32 Z19, Z1
	STEP512(R10)
	VMOVDQA32 Z20, Z0
	VMOVDQA32 Z21, Z1
	STEP512(AX)
	JMP weave

done:
	VZEROUPPER
	RET
