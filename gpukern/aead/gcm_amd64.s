//go:build amd64 && !purego

#include "textflag.h"
#include "gcm_amd64.h"

DATA reverse<>+0(SB)/8, $0x08090a0b0c0d0e0f
DATA reverse<>+8(SB)/8, $0x0001020304050607
GLOBL reverse<>(SB), RODATA|NOPTR, $16

// The upper halves are what is reduced by.
DATA polynomial<>+0(SB)/8, $0x0000000000000001
DATA polynomial<>+8(SB)/8, $0xc200000000000000
DATA polynomial<>+16(SB)/8, $0x0000000000000001
DATA polynomial<>+24(SB)/8, $0xc200000000000000
DATA polynomial<>+32(SB)/8, $0x0000000000000001
DATA polynomial<>+40(SB)/8, $0xc200000000000000
DATA polynomial<>+48(SB)/8, $0x0000000000000001
DATA polynomial<>+56(SB)/8, $0xc200000000000000
GLOBL polynomial<>(SB), RODATA|NOPTR, $64

// The first counters behind the one of the tag, and what is added to make the next four.
DATA counters<>+0(SB)/8, $1
DATA counters<>+8(SB)/8, $0
DATA counters<>+16(SB)/8, $2
DATA counters<>+24(SB)/8, $0
DATA counters<>+32(SB)/8, $3
DATA counters<>+40(SB)/8, $0
DATA counters<>+48(SB)/8, $4
DATA counters<>+56(SB)/8, $0
GLOBL counters<>(SB), RODATA|NOPTR, $64

DATA steps<>+0(SB)/8, $4
DATA steps<>+8(SB)/8, $0
DATA steps<>+16(SB)/8, $4
DATA steps<>+24(SB)/8, $0
DATA steps<>+32(SB)/8, $4
DATA steps<>+40(SB)/8, $0
DATA steps<>+48(SB)/8, $4
DATA steps<>+56(SB)/8, $0
GLOBL steps<>(SB), RODATA|NOPTR, $64


// FIRST_COUNTER encrypts the counter 1, for the tag (SP 800-38D 7.1 steps 2 and 7), and makes those behind it.
#define FIRST_COUNTER(skip) \
	MOVL $0x01000000, AX; \
	VMOVDQU (R10), X0; \
	VPINSRD $3, AX, X0, X0; \
	VPSHUFB X13, X0, X1; \
	VSHUFI32X4 $0, Z1, Z1, Z14; \
	VPADDD counters<>(SB), Z14, Z14; \
	VPXORQ X16, X0, X0; \
	VAESENC X17, X0, X0; \
	VAESENC X18, X0, X0; \
	VAESENC X19, X0, X0; \
	VAESENC X20, X0, X0; \
	VAESENC X21, X0, X0; \
	VAESENC X22, X0, X0; \
	VAESENC X23, X0, X0; \
	VAESENC X24, X0, X0; \
	VAESENC X25, X0, X0; \
	CMPQ R12, $10; \
	JEQ skip; \
	VAESENC X26, X0, X0; \
	VAESENC X27, X0, X0; \
	VAESENC X28, X0, X0; \
	VAESENC X29, X0, X0; \
skip: \
	VAESENCLAST X30, X0, X15;

// ASSOCIATED hashes the R13 bytes at R11, a block at a time.
#define ASSOCIATED(next, last, done) \
	VPXORQ X11, X11, X11; \
	MOVQ R13, R14; \
next: \
	CMPQ R14, $16; \
	JLT last; \
	VMOVDQU (R11), X5; \
	VPSHUFB X13, X5, X5; \
	VPXORQ X11, X5, X5; \
	MULTIPLY_ONE \
	REDUCE_LANES \
	VMOVDQA64 X8, X11; \
	ADDQ $16, R11; \
	SUBQ $16, R14; \
	JMP next; \
last: \
	TESTQ R14, R14; \
	JEQ done; \
	BZHIQ R14, R9, AX; \
	KMOVQ AX, K1; \
	VMOVDQU8.Z (R11), K1, X5; \
	VPSHUFB X13, X5, X5; \
	VPXORQ X11, X5, X5; \
	MULTIPLY_ONE \
	REDUCE_LANES \
	VMOVDQA64 X8, X11; \
done:

#define COUNTERS4 \
	COUNTER(Z0) \
	COUNTER(Z1) \
	COUNTER(Z2) \
	COUNTER(Z3)

#define LAST4 \
	VAESENCLAST Z30, Z0, Z0; \
	VAESENCLAST Z30, Z1, Z1; \
	VAESENCLAST Z30, Z2, Z2; \
	VAESENCLAST Z30, Z3, Z3;

// TAG makes the tag at R15 of the sums.
#define TAG \
	REDUCE \
	VPSHUFB X13, X11, X0; \
	VMOVQ R10, X1; \
	VPINSRQ $1, R11, X1, X1; \
	VPXORQ X1, X0, X0; \
	VMOVDQU X0, (R15);

#define START \
	MOVQ k+0(FP), DI; \
	MOVQ nonce+8(FP), R10; \
	MOVQ aad+16(FP), R11; \
	MOVQ aadLen+24(FP), R13; \
	MOVQ text+32(FP), SI; \
	MOVQ n+40(FP), BX; \
	MOVQ tag+48(FP), R15; \
	MOVQ $-1, R9; \
	VBROADCASTI32X4 reverse<>(SB), Z13; \
	KEYS

// TAIL_START has the masks of the last R8 bytes, and at CX the powers for them: they begin with the number of blocks plus one, for the
// lengths behind.
#define TAIL_START \
	MOVQ R8, R14; \
	LEAQ 15(R8), DX; \
	ANDQ $~15, DX; \
	LEAQ (POWERS+256)(DI), CX; \
	SUBQ DX, CX; \
	MASK(K1) \
	MASK(K2) \
	MASK(K3) \
	MASK(K4)

// PART_FIRST, PARTS2 and PARTS4 crypt and hash the last bytes, in one, two or four registers.
#define PART_FIRST(part) \
	part((SI), K1, Z0) \
	VPSHUFB Z13, Z5, Z5; \
	VPXORQ Z11, Z5, Z5; \
	MULTIPLY((CX), Z5)
#define PARTS2(part) \
	PART_FIRST(part) \
	part(64(SI), K2, Z1) \
	HASH_PART(64(CX))
#define PARTS4(part) \
	PARTS2(part) \
	part(128(SI), K3, Z2) \
	HASH_PART(128(CX)) \
	part(192(SI), K4, Z3) \
	HASH_PART(192(CX))

// func sealGCM(k *Image, nonce *[16]byte, aad *byte, aadLen int, text *byte, n int, tag *byte)
TEXT ·sealGCM(SB), NOSPLIT, $0-56
	START
	FIRST_COUNTER(first)
	ASSOCIATED(nextBlock, lastBlock, text)
	VMOVQ X15, R10
	VPEXTRQ $1, X15, R11
	MOVQ BX, R8

	// Each chunk is hashed beside the encryption of the next one, as it does not wait for that.
	CMPQ R8, $256
	JLT tail
	COUNTERS4
	ROUNDS_OF(ROUND4, rounds0)
	LAST4
	CRYPT4
chunk:
	REVERSE4(Z0, Z1, Z2, Z3)
	ADDQ $256, SI
	SUBQ $256, R8
	CMPQ R8, $256
	JLT lastChunk
	COUNTERS4
	ROUNDS_OF(ROUND4, rounds)
	LAST4
	HASH4
	CRYPT4
	JMP chunk
lastChunk:
	HASH4

tail:
	TESTQ R8, R8
	JEQ empty
	TAIL_START
	CMPQ R14, $128
	JGT four
	CMPQ R14, $64
	JGT two
	COUNTER(Z0)
	ROUNDS_OF(ROUND1, rounds1)
	VAESENCLAST Z30, Z0, Z0
	PART_FIRST(SEAL_PART)
	JMP lengths

two:
	COUNTER(Z0)
	COUNTER(Z1)
	ROUNDS_OF(ROUND2, rounds2)
	VAESENCLAST Z30, Z0, Z0
	VAESENCLAST Z30, Z1, Z1
	PARTS2(SEAL_PART)
	JMP lengths

four:
	COUNTERS4
	ROUNDS_OF(ROUND4, rounds4)
	LAST4
	PARTS4(SEAL_PART)

lengths:
	LENGTHS_ADD
	TAG
	VZEROUPPER
	RET

empty:
	LENGTHS_BLOCK
	VPXORQ X11, X5, X5
	MULTIPLY_ONE
	TAG
	VZEROUPPER
	RET

// func openGCM(k *Image, nonce *[16]byte, aad *byte, aadLen int, text *byte, n int, tag *byte)
TEXT ·openGCM(SB), NOSPLIT, $0-56
	START
	FIRST_COUNTER(first)
	ASSOCIATED(nextBlock, lastBlock, text)
	VMOVQ X15, R10
	VPEXTRQ $1, X15, R11
	MOVQ BX, R8

chunk:
	CMPQ R8, $256
	JLT tail
	COUNTERS4
	ROUNDS_OF(ROUND4, rounds)
	LAST4
	LOAD4
	REVERSE4(Z5, Z12, Z15, Z31)
	HASH4
	CRYPT4
	ADDQ $256, SI
	SUBQ $256, R8
	JMP chunk

tail:
	TESTQ R8, R8
	JEQ empty
	TAIL_START
	CMPQ R14, $128
	JGT four
	CMPQ R14, $64
	JGT two
	COUNTER(Z0)
	ROUNDS_OF(ROUND1, rounds1)
	VAESENCLAST Z30, Z0, Z0
	PART_FIRST(OPEN_PART)
	JMP lengths

two:
	COUNTER(Z0)
	COUNTER(Z1)
	ROUNDS_OF(ROUND2, rounds2)
	VAESENCLAST Z30, Z0, Z0
	VAESENCLAST Z30, Z1, Z1
	PARTS2(OPEN_PART)
	JMP lengths

four:
	COUNTERS4
	ROUNDS_OF(ROUND4, rounds4)
	LAST4
	PARTS4(OPEN_PART)

lengths:
	LENGTHS_ADD
	TAG
	VZEROUPPER
	RET

empty:
	LENGTHS_BLOCK
	VPXORQ X11, X5, X5
	MULTIPLY_ONE
	TAG
	VZEROUPPER
	RET

// func encryptBlock(k *Image, dst *[16]byte)
TEXT ·encryptBlock(SB), NOSPLIT, $0-16
	MOVQ k+0(FP), DI
	MOVQ dst+8(FP), SI
	MOVL ROUNDS(DI), CX
	VMOVDQU (SI), X0
	VPXOR ROUND(DI), X0, X0
round:
	ADDQ $16, DI
	DECL CX
	JEQ last
	VAESENC ROUND(DI), X0, X0
	JMP round
last:
	VAESENCLAST ROUND(DI), X0, X0
	VMOVDQU X0, (SI)
	RET

// func multiplyPowers(k *Image)
TEXT ·multiplyPowers(SB), NOSPLIT, $0-8
	MOVQ k+0(FP), DI
	MOVQ $240, CX
	VMOVDQU64 (POWERS+256)(DI), X5
power:
	MULTIPLY_ONE
	REDUCE_LANES
	VMOVDQA64 X8, X5
	VMOVDQU64 X5, POWERS(DI)(CX*1)
	SUBQ $16, CX
	JGE power
	VZEROUPPER
	RET

// func substituteWord(w uint32) uint32
TEXT ·substituteWord(SB), NOSPLIT, $0-12
	MOVL w+0(FP), AX
	VMOVD AX, X0
	VPSHUFD $0, X0, X0 // four equal columns: their rows may be shifted
	VPXOR X1, X1, X1
	VAESENCLAST X1, X0, X0
	VMOVD X0, AX
	MOVL AX, ret+8(FP)
	RET
