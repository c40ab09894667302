//go:build amd64 && !purego

#include "textflag.h"
#include "filter_amd64.h"

DATA five<>+0(SB)/4, $31
GLOBL five<>(SB), RODATA|NOPTR, $4
DATA nibble<>+0(SB)/8, $0x0000000400000000
DATA nibble<>+8(SB)/8, $0x0000000c00000008
DATA nibble<>+16(SB)/8, $0x0000001400000010
DATA nibble<>+24(SB)/8, $0x0000001c00000018
GLOBL nibble<>(SB), RODATA|NOPTR, $32

// HAS2 sets the lowest bit of each lane of to where the word in Y4 has both bits of the hash in h, which it
// destroys. The other bits of to mean nothing.
#define HAS2(h, to) \
	VPSRLD  $24, h, to   \
	VPSRLD  $16, h, h    \
	VPAND   Y10, to, to  \
	VPAND   Y10, h, h    \
	VPSRLVD to, Y4, to   \
	VPSRLVD h, Y4, h     \
	VPAND   h, to, to

// STEP2 looks at eight pairs that begin at SI+at, at+4 and so on. The lowest bits of Y5 and of Y6 tell where
// the first and the second position may be an anchor's.
#define STEP2(at) \
	VPOR    (at+0)(SI), Y15, Y0 \
	VPOR    (at+1)(SI), Y15, Y1 \
	VPOR    (at+4)(SI), Y15, Y2 \
	VPMULLD Y12, Y1, Y3     \
	VPSRLD  X9, Y3, Y3      \
	VPCMPEQD Y5, Y5, Y5     \
	VPXOR   Y4, Y4, Y4      \
	VPGATHERDD Y5, (DI)(Y3*4), Y4 \
	VPMULLD Y14, Y0, Y0     \ // h4
	VPMULLD Y13, Y2, Y2     \
	VPADDD  Y0, Y2, Y2      \ // h8
	VPSRLD  $8, Y1, Y1      \
	VPMULLD Y11, Y1, Y1     \
	HAS2(Y0, Y5)            \
	HAS2(Y2, Y3)            \
	HAS2(Y1, Y6)            \
	VPOR    Y3, Y5, Y5

// HALF2 looks at 32 positions from SI+at on and leaves a bit for each in out. Lane i of Y7 gets those of the
// positions 4i to 4i+3, which then move to their place.
#define HALF2(at, out) \
	STEP2(at)               \
	VPAND   Y8, Y5, Y7      \
	VPAND   Y8, Y6, Y6      \
	VPSLLD  $1, Y6, Y6      \
	VPOR    Y6, Y7, Y7      \
	STEP2(at+2)             \
	VPAND   Y8, Y5, Y5      \
	VPAND   Y8, Y6, Y6      \
	VPSLLD  $2, Y5, Y5      \
	VPSLLD  $3, Y6, Y6      \
	VPOR    Y5, Y7, Y7      \
	VPOR    Y6, Y7, Y7      \
	VPSLLVD nibble<>(SB), Y7, Y7 \
	VEXTRACTI128 $1, Y7, X5 \
	VPOR    X5, X7, X7      \
	VPSHUFD $0x4e, X7, X5   \
	VPOR    X5, X7, X7      \
	VPSHUFD $0xb1, X7, X5   \
	VPOR    X5, X7, X7      \
	VMOVD   X7, out

// func candidates2(text *byte, words *uint32, bits uint32, masks *uint64, blocks int)
TEXT ·candidates2(SB), NOSPLIT, $0-40
	MOVQ text+0(FP), SI
	MOVQ words+8(FP), DI
	MOVL bits+16(FP), AX
	MOVQ masks+24(FP), DX
	MOVQ blocks+32(FP), BX
	NEGL AX
	ADDL $32, AX
	VMOVD AX, X9
	VPBROADCASTD lower<>(SB), Y15
	VPBROADCASTD mul4<>(SB), Y14
	VPBROADCASTD mul8<>(SB), Y13
	VPBROADCASTD mulWord8<>(SB), Y12
	VPBROADCASTD mulOdd<>(SB), Y11
	VPBROADCASTD five<>(SB), Y10
	VPCMPEQD Y8, Y8, Y8
	VPSRLD $31, Y8, Y8         // ones

block:
	DECQ BX
	JLT  done
	HALF2(0, R8)
	HALF2(32, R9)
	SHLQ $32, R9
	ORQ  R9, R8
	MOVQ R8, (DX)
	ADDQ $8, DX
	ADDQ $64, SI
	JMP  block

done:
	VZEROUPPER
	RET
