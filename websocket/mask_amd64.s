//go:build amd64 && !purego

#include "textflag.h"

// func xorKeyAVX2(dst, src *byte, n int, key uint32)
//
// Steps of 128 bytes, then of 32. All loads of a step precede its stores, so dst may be src.
TEXT ·xorKeyAVX2(SB), NOSPLIT, $0-28
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	MOVL key+24(FP), AX
	VMOVD AX, X0
	VPBROADCASTD X0, Y0
	SUBQ $128, CX
	JLT  rest

loop:
	VPXOR 0(SI), Y0, Y1
	VPXOR 32(SI), Y0, Y2
	VPXOR 64(SI), Y0, Y3
	VPXOR 96(SI), Y0, Y4
	VMOVDQU Y1, 0(DI)
	VMOVDQU Y2, 32(DI)
	VMOVDQU Y3, 64(DI)
	VMOVDQU Y4, 96(DI)
	ADDQ $128, SI
	ADDQ $128, DI
	SUBQ $128, CX
	JGE  loop

rest:
	ADDQ $128, CX             // 0, 32, 64 or 96
	JEQ  done

last:
	VPXOR (SI), Y0, Y1
	VMOVDQU Y1, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	SUBQ $32, CX
	JGT  last

done:
	VZEROUPPER
	RET
