//go:build amd64 && !purego

#include "textflag.h"
#include "filter_amd64.h"

// The 64 positions of a block are looked at in two steps of 16 pairs: a load from text+k holds the bytes from
// position k on in its first lane of four, those from k+4 on in the second, and so on. No byte has to be
// moved. The masks of even and odd positions of both steps are woven together at the end.

DATA five<>+0(SB)/4, $0x1f1f1f1f
GLOBL five<>(SB), RODATA|NOPTR, $4
DATA upper<>+0(SB)/8, $0x2020202000000000 // of two words in eight bytes, the second begins at bit 32
GLOBL upper<>(SB), RODATA|NOPTR, $8
DATA pair<>+0(SB)/4, $0x00010001
GLOBL pair<>(SB), RODATA|NOPTR, $4

// CONSTANTS512 leaves what STEP512 needs: bits in AX.
#define CONSTANTS512 \
	NEGL AX                        \
	ADDL $32, AX                   \
	VMOVD AX, X26                  \
	VPBROADCASTD lower<>(SB), Z31  \
	VPBROADCASTD mul4<>(SB), Z30   \
	VPBROADCASTD mul8<>(SB), Z29   \
	VPBROADCASTD pair<>(SB), Z28   \
	VPBROADCASTD mulWord8<>(SB), Z27 \
	VPBROADCASTD mulOdd<>(SB), Z25 \
	VPBROADCASTD five<>(SB), Z24   \
	VPBROADCASTQ upper<>(SB), Z23  \
	VPSLLD $16, Z28, Z22           \
	MOVL $0xAAAAAAAA, AX           \
	KMOVD AX, K4

// STEP512 looks at 16 pairs: a, b and c of pairs.go are in Z0, Z1 and Z2. It sets the bits of even and odd
// where the first and the second position may be an anchor's. A hash becomes two bytes, each a bit's number,
// of what VPMULTISHIFTQB fetches from the word: the word's bit is the lowest of a byte then.
#define STEP512(even, odd) \
	VPORD     Z31, Z0, Z0      \
	VPORD     Z31, Z1, Z1      \
	VPORD     Z31, Z2, Z2      \
	VPMULLD   Z27, Z1, Z3      \
	VPSRLD    X26, Z3, Z3      \
	KXNORW    K1, K1, K1       \
	VPXORD    Z4, Z4, Z4       \
	VPGATHERDD (DI)(Z3*4), K1, Z4 \
	VPMULLD   Z30, Z0, Z0      \ // h4
	VPMULLD   Z29, Z2, Z2      \
	VPADDD    Z0, Z2, Z2       \ // h8
	VPSRLD    $8, Z1, Z1       \
	VPMULLD   Z25, Z1, Z1      \
	VPSRLD    $16, Z0, Z0      \
	VMOVDQU16 Z2, K4, Z0       \ // the upper halves of h8 and h4
	VPTERNLOGD $0xEA, Z23, Z24, Z0 \ // Z0 & Z24 | Z23
	VPTERNLOGD $0xEA, Z23, Z24, Z1 \
	VPMULTISHIFTQB Z4, Z0, Z0  \
	VPMULTISHIFTQB Z4, Z1, Z1  \
	VPSRLD    $8, Z0, Z2       \
	VPSRLD    $8, Z1, Z3       \
	VPANDD    Z0, Z2, Z2       \
	VPANDD    Z1, Z3, Z3       \
	VPTESTMD  Z28, Z2, K2      \
	VPTESTMD  Z22, Z3, K3      \
	KMOVW     K2, even         \
	KMOVW     K3, odd

// WEAVE adds the bits of in, at every fourth bit from that of lanes, to R12.
#define WEAVE(in, lanes) \
	PDEPQ lanes, in, in \
	ORQ   in, R12

// LOADEDGE loads 64 bytes from at on, with zeros for those behind the end, which are not read.
#define LOADEDGE(at, z) \
	XORL  AX, AX        \
	MOVQ  CX, R12       \
	SUBQ  $at, R12      \
	CMOVQLT AX, R12     \
	MOVL  $64, AX       \
	CMPQ  R12, AX       \
	CMOVQGT AX, R12     \
	MOVQ  $-1, AX       \
	BZHIQ R12, AX, R12  \
	KMOVQ R12, K3       \
	VMOVDQU8.Z at(SI), K3, z

// func candidates512(text *byte, size int, words *uint32, bits uint32, masks *uint64, blocks int)
TEXT ·candidates512(SB), NOSPLIT, $0-48
	MOVQ text+0(FP), SI
	MOVQ size+8(FP), CX
	MOVQ words+16(FP), DI
	MOVL bits+24(FP), AX
	MOVQ masks+32(FP), DX
	MOVQ blocks+40(FP), BX
	CONSTANTS512
	MOVQ $0x1111111111111111, R13
	LEAQ (R13)(R13*1), R14
	LEAQ (R14)(R14*1), R15
	LEAQ (R15)(R15*1), R11

block:
	DECQ BX
	JLT  done
	CMPQ CX, $70               // the last load ends there
	JLT  edge
	VMOVDQU32 0(SI), Z0
	VMOVDQU32 1(SI), Z1
	VMOVDQU32 4(SI), Z2
	STEP512(R8, R9)
	VMOVDQU32 2(SI), Z0
	VMOVDQU32 3(SI), Z1
	VMOVDQU32 6(SI), Z2
	STEP512(R10, AX)

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

edge:
	LOADEDGE(0, Z0)
	LOADEDGE(1, Z1)
	LOADEDGE(4, Z2)
	STEP512(R8, R9)
	LOADEDGE(2, Z0)
	LOADEDGE(3, Z1)
	LOADEDGE(6, Z2)
	STEP512(R10, AX)
	JMP weave

done:
	VZEROUPPER
	RET
