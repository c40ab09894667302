//go:build amd64 && !purego

#include "textflag.h"

DATA lanes<>+0(SB)/4, $63
DATA lanes<>+4(SB)/4, $32
DATA lanes<>+8(SB)/4, $0xffff
DATA lanes<>+12(SB)/4, $0xff
DATA lanes<>+16(SB)/4, $0x80
GLOBL lanes<>(SB), RODATA|NOPTR, $20

// func scanAVX512(items *item, q *scanQuery, n int)
//
// Four items at a time, each in a quarter of a register: its words are dst, sports, dports, and place,
// proto, marks. Bit 4i of a mask is about the first word of item i, and so on.
TEXT ·scanAVX512(SB), NOSPLIT, $0-24
	MOVQ items+0(FP), SI
	MOVQ q+8(FP), DI
	MOVQ n+16(FP), DX
	VPBROADCASTD lanes<>+0(SB), Z26
	VPBROADCASTD lanes<>+8(SB), Z28
	VPBROADCASTD lanes<>+12(SB), Z29
	VPBROADCASTD lanes<>+16(SB), Z30

next:
	MOVL 16(DI), BX           // the first of four items
	VBROADCASTI32X4 (DI), Z0  // the packet
	VPBROADCASTD 20(DI), Z10  // itemAsks where it has no ports

four:
	MOVQ BX, AX
	SHLQ $4, AX
	VMOVDQU32 (SI)(AX*1), Z1
	VPSHUFD $0xff, Z1, Z2     // the last word of each item in all four
	VPSRLD $24, Z2, Z3        // marks
	VPANDD Z26, Z3, Z4        // last bits that do not count; all from 32 on
	VPXORD Z0, Z1, Z5
	VPSRLVD Z4, Z5, Z5
	VPTESTNMD Z5, Z5, K1      // dst is alike
	VPSUBW Z1, Z0, Z6
	VPANDD Z28, Z6, Z6        // port - first
	VPSRLD $16, Z1, Z7
	VPCMPUD $2, Z7, Z6, K2    // is at most the span
	VPSRLD $16, Z2, Z8
	VPANDD Z29, Z8, Z8        // proto
	VPCMPUD $0, Z0, Z8, K3
	VPTESTNMD Z8, Z8, K4
	KORW K3, K4, K3           // is alike, or any
	VPTESTNMD Z10, Z3, K4
	KANDW K3, K4, K3          // and ports that are asked for are there
	VPTESTMD Z30, Z3, K4      // the last of the list
	KMOVW K1, R8
	KMOVW K2, R9
	KMOVW K3, R10
	KMOVW K4, R11
	ANDL $0x1111, R8
	ANDL $0x6666, R9
	ANDL $0x8888, R10
	ORL  R9, R8
	ORL  R10, R8
	MOVL R8, R9
	SHRL $1, R9
	ANDL R9, R8
	MOVL R8, R9
	SHRL $2, R9
	ANDL R9, R8
	ANDL $0x1111, R8          // all four words are
	BLSMSKL R11, R12          // up to the first last
	ANDL R12, R8
	JNZ  hit
	ADDL $4, BX
	TESTL R11, R11
	JZ   four
	MOVL $0, 28(DI)
	JMP  done

hit:
	TZCNTL R8, R8
	SHRL $2, R8
	ADDL R8, BX
	MOVL BX, 28(DI)

done:
	ADDQ $32, DI
	DECQ DX
	JNZ  next
	VZEROUPPER
	RET
