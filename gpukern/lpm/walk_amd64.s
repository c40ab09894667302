//go:build amd64 && !purego

#include "textflag.h"

// func prefetchAsm(base unsafe.Pointer, shift uint64, at *uint32, n int)
TEXT ·prefetchAsm(SB), NOSPLIT, $0-32
	MOVQ base+0(FP), SI
	MOVQ shift+8(FP), CX
	MOVQ at+16(FP), DI
	MOVQ n+24(FP), DX
	TESTQ DX, DX
	JLE  done

loop:
	MOVL (DI), AX
	ADDQ $4, DI
	SHLQ CX, AX
	PREFETCHT0 (SI)(AX*1)
	DECQ DX
	JNZ  loop

done:
	RET

// func bucketsAVX512(base unsafe.Pointer, q *bucketQuery, n int, out *uint16)
//
// A bucket has 5 keys of four bytes and values from byte 20 on, or 10 and values from byte 40 on: the
// number of keys that are not above the address is the value's. Sixteen words are read of either; the
// trie's last node has one behind it.
TEXT ·bucketsAVX512(SB), NOSPLIT, $0-32
	MOVQ base+0(FP), SI
	MOVQ q+8(FP), DI
	MOVQ n+16(FP), DX
	MOVQ out+24(FP), R8
	TESTQ DX, DX
	JLE  none

next:
	MOVL 4(DI), AX            // index of the first node
	MOVL 8(DI), CX            // 0 or 1, the logarithm of its nodes
	MOVL 12(DI), R9           // where the value goes
	ADDQ $16, DI
	SHLQ $5, AX
	ADDQ SI, AX
	LEAQ (CX)(CX*4), R10
	ADDQ $5, R10              // 5 or 10 keys
	MOVQ $-1, R11
	BZHIQ R10, R11, R11
	KMOVW R11, K1
	VPBROADCASTD -16(DI), Z0
	VMOVDQU32 (AX), Z1
	VPCMPUD $2, Z0, Z1, K1, K2 // key <= address
	KMOVW K2, R11
	POPCNTL R11, R11
	LEAQ (AX)(R10*4), AX
	MOVWLZX (AX)(R11*2), AX
	MOVW AX, (R8)(R9*2)
	DECQ DX
	JNZ  next
	VZEROUPPER

none:
	RET
