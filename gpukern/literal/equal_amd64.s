//go:build amd64 && !purego

#include "textflag.h"

DATA caseBit<>+0(SB)/8, $0x2020202020202020
GLOBL caseBit<>(SB), RODATA|NOPTR, $8

// func equal512(record *uint64, text *byte, size int) bool
//
// One load each, whatever the size: bytes that a mask leaves out are not read.
TEXT ·equal512(SB), NOSPLIT, $0-25
	MOVQ record+0(FP), DI
	MOVQ text+8(FP), SI
	MOVQ size+16(FP), CX
	MOVQ $-1, AX
	BZHIQ CX, AX, AX           // the low CX bits
	KMOVQ AX, K1
	KMOVQ 8(DI), K2            // fold
	VMOVDQU8.Z (SI), K1, Z0
	VMOVDQU8.Z 16(DI), K1, Z1
	VPBROADCASTQ caseBit<>(SB), Z2
	VMOVDQU8.Z Z2, K2, Z2
	VPXORQ Z0, Z1, Z0
	VPANDNQ Z0, Z2, Z0
	VPTESTMB Z0, Z0, K1
	KORTESTQ K1, K1
	SETEQ ret+24(FP)
	VZEROUPPER
	RET
