#include "textflag.h"

// func prefetch(list *uintptr, n int)
TEXT ·prefetch(SB), NOSPLIT, $0-16
	MOVQ list+0(FP), AX
	MOVQ n+8(FP), CX

next:
	DECQ CX
	JLT  done
	MOVQ (AX), DX
	PREFETCHT0 (DX)
	ADDQ $8, AX
	JMP  next

done:
	RET
