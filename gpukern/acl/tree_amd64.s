//go:build amd64 && !purego

#include "textflag.h"

// A 4x4 transposition of sixteen numbers, which is its own inverse.
DATA across<>+0(SB)/4, $0
DATA across<>+4(SB)/4, $4
DATA across<>+8(SB)/4, $8
DATA across<>+12(SB)/4, $12
DATA across<>+16(SB)/4, $1
DATA across<>+20(SB)/4, $5
DATA across<>+24(SB)/4, $9
DATA across<>+28(SB)/4, $13
DATA across<>+32(SB)/4, $2
DATA across<>+36(SB)/4, $6
DATA across<>+40(SB)/4, $10
DATA across<>+44(SB)/4, $14
DATA across<>+48(SB)/4, $3
DATA across<>+52(SB)/4, $7
DATA across<>+56(SB)/4, $11
DATA across<>+60(SB)/4, $15
GLOBL across<>(SB), RODATA|NOPTR, $64

DATA parts<>+0(SB)/4, $0x20     // bits of windowWord
DATA parts<>+4(SB)/4, $0x40
DATA parts<>+8(SB)/4, $0x7ffffc // of nodeFirst, as words
GLOBL parts<>(SB), RODATA|NOPTR, $12

// KEYS loads sixteen keys and leaves the four words in a, b, c, d: lane 4i+j has packet 4j+i.
#define KEYS(at, a, b, c, d, e, f, g, h) \
	VMOVDQU32 at+0(DI), e    \
	VMOVDQU32 at+64(DI), f   \
	VMOVDQU32 at+128(DI), g  \
	VMOVDQU32 at+192(DI), h  \
	VPUNPCKLDQ f, e, a       \
	VPUNPCKHDQ f, e, c       \
	VPUNPCKLDQ h, g, b       \
	VPUNPCKHDQ h, g, d       \
	VPUNPCKLQDQ b, a, e      \
	VPUNPCKHQDQ b, a, f      \
	VPUNPCKLQDQ d, c, g      \
	VPUNPCKHQDQ d, c, h

// STEP replaces the words e of sixteen packets that are at inner nodes, those of k, by those that their keys
// s, d, p, q choose. width has the widths of e's windows.
#define STEP(e, width, k, s, d, p, q, t, u) \
	VPTESTMD Z28, e, K3         \
	VPTESTMD Z29, e, K4         \
	VPBLENDMD d, s, K3, t       \
	VPBLENDMD q, p, K3, u       \
	VPBLENDMD u, t, K4, t       \
	VPRORVD e, t, t             \
	VPSLLVD width, Z31, u       \
	VPANDND t, u, t             \
	VPSRLD $5, e, u             \
	VPANDD Z30, u, u            \
	VPADDD t, u, u              \
	VPGATHERDD (SI)(u*4), k, e

// func descendAVX512(words *uint32, keys *treeKey, at *uint32, n int)
//
// Thirty-two packets go down together, in two registers, until all are at leaves. n is a multiple of 32.
TEXT ·descendAVX512(SB), NOSPLIT, $0-32
	MOVQ words+0(FP), SI
	MOVQ keys+8(FP), DI
	MOVQ at+16(FP), R8
	MOVQ n+24(FP), DX
	VMOVDQU32 across<>(SB), Z27
	VPBROADCASTD parts<>+0(SB), Z28
	VPBROADCASTD parts<>+4(SB), Z29
	VPBROADCASTD parts<>+8(SB), Z30
	VPTERNLOGD $0xff, Z31, Z31, Z31

next:
	KEYS(0, Z4, Z5, Z6, Z7, Z0, Z1, Z2, Z3)
	KEYS(256, Z12, Z13, Z14, Z15, Z8, Z9, Z10, Z11)
	VPERMD (R8), Z27, Z16
	VPERMD 64(R8), Z27, Z17
	VPSRLD $28, Z16, Z18
	VPSRLD $28, Z17, Z19
	VPTESTMD Z18, Z18, K1
	VPTESTMD Z19, Z19, K2
	KORTESTW K1, K2
	JZ leaves

step:
	STEP(Z16, Z18, K1, Z0, Z1, Z2, Z3, Z20, Z21)
	STEP(Z17, Z19, K2, Z8, Z9, Z10, Z11, Z22, Z23)
	VPSRLD $28, Z16, Z18
	VPSRLD $28, Z17, Z19
	VPTESTMD Z18, Z18, K1
	VPTESTMD Z19, Z19, K2
	KORTESTW K1, K2
	JNZ step

leaves:
	VPERMD Z16, Z27, Z16
	VPERMD Z17, Z27, Z17
	VMOVDQU32 Z16, (R8)
	VMOVDQU32 Z17, 64(R8)
	ADDQ $512, DI
	ADDQ $128, R8
	SUBQ $32, DX
	JNZ next
	VZEROUPPER
	RET

// func compareAVX512(blocks *block, places *uint64, keys *treeKey, at *uint32, found *uint16, n int)
//
// A packet is compared with four rules at once: eight numbers each, of which byte i of the mask has a bit.
// Rule i matches where the byte is 0xff. places are inverted, so that the zero behind the last is none.
TEXT ·compareAVX512(SB), NOSPLIT, $0-48
	MOVQ blocks+0(FP), SI
	MOVQ places+8(FP), R13
	MOVQ keys+16(FP), DI
	MOVQ at+24(FP), R8
	MOVQ found+32(FP), R9
	MOVQ n+40(FP), DX

packet:
	VBROADCASTI32X4 (DI), Z0
	MOVL (R8), AX

block:
	MOVL AX, BX
	ANDL $0xffffff, BX
	MOVQ BX, CX
	SHLQ $7, CX
	VPSUBW (SI)(CX*1), Z0, Z1
	VPCMPUW $2, 64(SI)(CX*1), Z1, K1 // number - lo <= span
	KMOVD K1, R10
	MOVL R10, R11
	NOTL R11
	SUBL $0x01010101, R11            // borrows where a byte of the mask is 0xff
	ANDL R10, R11
	ANDL $0x80808080, R11
	TZCNTL R11, R10                  // 8i+7 of the first rule that matches, 32 for none
	ANDL $0x38, R10
	MOVQ (R13)(BX*8), BX
	SHRXQ R10, BX, BX
	SHRXQ R10, BX, BX                // by 16i, or 64
	NOTL BX
	MOVWLZX BX, BX
	MOVWLZX (R9), CX
	CMPL BX, CX
	CMOVLCC CX, BX
	MOVW BX, (R9)
	TESTL $0x0f000000, AX
	JNZ more

done:
	ADDQ $16, DI
	ADDQ $4, R8
	ADDQ $2, R9
	DECQ DX
	JNZ packet
	VZEROUPPER
	RET

more:
	TESTL R11, R11
	JNZ done
	SUBL $0xffffff, AX               // the next block, of one less
	JMP block
