//go:build amd64 && !purego

#include "textflag.h"

// CRC-32 by multiplication without carries (Gopal and others, Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
// Instruction, Intel 2009), on bytes that are stored to dst in the same step.
//
// A register of 128 bits is moved n bits ahead by two products: its low half with x^(n+32) mod P, its high half with
// x^(n-32) mod P. The constants are those remainders, reflected and shifted by one.

// n = 512: four registers of 16 bytes, or one of 64
DATA k512<>+0(SB)/8, $0x154442bd4
DATA k512<>+8(SB)/8, $0x1c6e41596
GLOBL k512<>(SB), RODATA|NOPTR, $16

// n = 2048: four registers of 64 bytes
DATA k2048<>+0(SB)/8, $0x11542778a
DATA k2048<>+8(SB)/8, $0x1322d1430
GLOBL k2048<>(SB), RODATA|NOPTR, $16

// n = 128
DATA k128<>+0(SB)/8, $0x1751997d0
DATA k128<>+8(SB)/8, $0x0ccaa009e
GLOBL k128<>(SB), RODATA|NOPTR, $16

// n = 32: x^64 mod P
DATA k64<>+0(SB)/8, $0x163cd6124
GLOBL k64<>(SB), RODATA|NOPTR, $8

// P and floor(x^64/P), reflected: Barrett's reduction
DATA barrett<>+0(SB)/8, $0x1db710641
DATA barrett<>+8(SB)/8, $0x1f7011641
GLOBL barrett<>(SB), RODATA|NOPTR, $16

// FOLD16 moves acc 128 bits ahead, by the constant in X0, and adds next; it uses X5.
#define FOLD16(acc, next) \
	MOVOA     acc, X5;      \
	PCLMULQDQ $0x00, X0, acc; \
	PCLMULQDQ $0x11, X0, X5; \
	PXOR      X5, acc;      \
	PXOR      next, acc

// REDUCE folds X1 to X4 and the rest of src, CX bytes, into 32 bits in AX.
#define REDUCE(again, done) \
	MOVOU     k128<>(SB), X0; \
	FOLD16(X1, X2);         \
	FOLD16(X1, X3);         \
	FOLD16(X1, X4);         \
again:                      \
	CMPQ      CX, $16;      \
	JLT       done;         \
	MOVOU     (SI), X6;     \
	MOVOU     X6, (DI);     \
	FOLD16(X1, X6);         \
	ADDQ      $16, SI;      \
	ADDQ      $16, DI;      \
	SUBQ      $16, CX;      \
	JMP       again;        \
done:                       \
	FINISH

// FINISH folds X1 into 32 bits in AX. X0 has the constants for 128 bits.
#define FINISH \
	PCMPEQB   X3, X3;       \
	PSRLQ     $32, X3;      \
	PCLMULQDQ $0x01, X1, X0; \
	PSRLDQ    $8, X1;       \
	PXOR      X0, X1;       \
	MOVOA     X1, X2;       \
	MOVQ      k64<>(SB), X0; \
	PSRLDQ    $4, X2;       \
	PAND      X3, X1;       \
	PCLMULQDQ $0x00, X0, X1; \
	PXOR      X2, X1;       \
	MOVOU     barrett<>(SB), X0; \
	MOVOA     X1, X2;       \
	PAND      X3, X1;       \
	PCLMULQDQ $0x10, X0, X1; \
	PAND      X3, X1;       \
	PCLMULQDQ $0x00, X0, X1; \
	PXOR      X2, X1;       \
	PEXTRD    $1, X1, AX

// STEP16 moves acc 512 bits ahead, by the constant in X0, and adds the 16 bytes at off, which it stores.
#define STEP16(acc, off) \
	MOVOU     off(SI), X6;  \
	MOVOU     X6, off(DI);  \
	MOVOA     acc, X5;      \
	PCLMULQDQ $0x00, X0, acc; \
	PCLMULQDQ $0x11, X0, X5; \
	PXOR      X6, X5;       \
	PXOR      X5, acc

// func foldSSE(crc uint32, dst, src *byte, n int) uint32
//
// n is a multiple of 16, at least 64. The state is not inverted.
TEXT ·foldSSE(SB), NOSPLIT, $0-36
	MOVL  crc+0(FP), AX
	MOVQ  AX, X7
	MOVQ  dst+8(FP), DI
	MOVQ  src+16(FP), SI
	MOVQ  n+24(FP), CX
	MOVOU 0(SI), X1
	MOVOU 16(SI), X2
	MOVOU 32(SI), X3
	MOVOU 48(SI), X4
	MOVOU X1, 0(DI)
	MOVOU X2, 16(DI)
	MOVOU X3, 32(DI)
	MOVOU X4, 48(DI)
	PXOR  X7, X1
	MOVOU k512<>(SB), X0

loop:
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $64, CX
	CMPQ CX, $64
	JLT  rest
	STEP16(X1, 0)
	STEP16(X2, 16)
	STEP16(X3, 32)
	STEP16(X4, 48)
	JMP  loop

rest:
	REDUCE(again, done)
	MOVL AX, ret+32(FP)
	RET

// func foldShort(crc uint32, src *byte, n int, mask *byte, masked int) uint32
//
// n and masked are multiples of 16, n is at least 16. The first bytes count as ones where those of mask, masked of them, are. Nothing is
// copied, and one register is enough: the lengths are those of headers. The state is not inverted.
TEXT ·foldShort(SB), NOSPLIT, $0-44
	MOVL  crc+0(FP), AX
	MOVQ  AX, X7
	MOVQ  src+8(FP), SI
	MOVQ  n+16(FP), CX
	MOVQ  mask+24(FP), DI
	MOVQ  masked+32(FP), DX
	MOVOU k128<>(SB), X0
	MOVOU (SI), X1
	CMPQ  DX, $0
	JLE   begin
	MOVOU (DI), X6
	POR   X6, X1

begin:
	PXOR X7, X1

next:
	ADDQ  $16, SI
	ADDQ  $16, DI
	SUBQ  $16, DX
	SUBQ  $16, CX
	JLE   finish
	MOVOU (SI), X6
	CMPQ  DX, $0
	JLE   add
	MOVOU (DI), X2
	POR   X2, X6

add:
	FOLD16(X1, X6)
	JMP next

finish:
	FINISH
	MOVL AX, ret+40(FP)
	RET

// STEP64 is STEP16 for a register of 64 bytes and the constant in Z0; it uses Z5 and Z6.
#define STEP64(acc, off) \
	VMOVDQU64  off(SI), Z6;  \
	VMOVDQU64  Z6, off(DI);  \
	VPCLMULQDQ $0x11, Z0, acc, Z5; \
	VPCLMULQDQ $0x00, Z0, acc, acc; \
	VPTERNLOGD $0x96, Z6, Z5, acc

// JOIN64 moves Z1 512 bits ahead and adds next; it uses Z5.
#define JOIN64(next) \
	VPCLMULQDQ $0x11, Z0, Z1, Z5; \
	VPCLMULQDQ $0x00, Z0, Z1, Z1; \
	VPTERNLOGD $0x96, next, Z5, Z1

// func foldAVX512(crc uint32, dst, src *byte, n int) uint32
//
// n is a multiple of 16, at least 256. The state is not inverted. Four registers hide the latency of the product: with one
// the loop takes three times as long.
TEXT ·foldAVX512(SB), NOSPLIT, $0-36
	VPXORQ  Z7, Z7, Z7
	MOVL    crc+0(FP), AX
	VMOVD   AX, X7
	MOVQ    dst+8(FP), DI
	MOVQ    src+16(FP), SI
	MOVQ    n+24(FP), CX
	VMOVDQU64 0(SI), Z1
	VMOVDQU64 64(SI), Z2
	VMOVDQU64 128(SI), Z3
	VMOVDQU64 192(SI), Z4
	VMOVDQU64 Z1, 0(DI)
	VMOVDQU64 Z2, 64(DI)
	VMOVDQU64 Z3, 128(DI)
	VMOVDQU64 Z4, 192(DI)
	VPXORQ  Z7, Z1, Z1
	VBROADCASTI32X4 k2048<>(SB), Z0

wide:
	ADDQ $256, SI
	ADDQ $256, DI
	SUBQ $256, CX
	CMPQ CX, $256
	JLT  join
	STEP64(Z1, 0)
	STEP64(Z2, 64)
	STEP64(Z3, 128)
	STEP64(Z4, 192)
	JMP  wide

join:
	VBROADCASTI32X4 k512<>(SB), Z0
	JOIN64(Z2)
	JOIN64(Z3)
	JOIN64(Z4)

narrow:
	CMPQ CX, $64
	JLT  rest
	STEP64(Z1, 0)
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $64, CX
	JMP  narrow

rest:
	VEXTRACTI32X4 $1, Z1, X2
	VEXTRACTI32X4 $2, Z1, X3
	VEXTRACTI32X4 $3, Z1, X4
	VZEROUPPER
	REDUCE(again, done)
	MOVL AX, ret+32(FP)
	RET
