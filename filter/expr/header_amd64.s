//go:build amd64 && !purego

#include "textflag.h"

// Registers of decideAVX512: SI mem, R12 the last offset of which 64 bytes can be read, DX descriptor, BX how
// many are left, R8 table, R9 verdict, R10 all flags, R15 all verdicts, R11 0.
// Layout of packet.Desc, 32 bytes: Off 0, Len 4, Flags 28.

// LANES loads 64 bytes and brings the fields of all tests into the lanes of Z0.
#define LANES(far) \
	MOVL     0(DX), AX             \
	CMPQ     AX, R12               \
	JGT      far                   \
	VPERMB.Z (SI)(AX*1), Z16, K1, Z0

// FARLANES does so where the memory ends within 64 bytes: it reads the packet alone.
#define FARLANES(back) \
	MOVWLZX    4(DX), CX             \
	MOVL       $64, R13              \
	CMPL       CX, R13               \
	CMOVLGT    R13, CX               \
	MOVQ       $-1, R13              \
	BZHIQ      CX, R13, R13          \
	KMOVQ      R13, K2               \
	VMOVDQU8.Z (SI)(AX*1), K2, Z0    \
	VPERMB.Z   Z0, Z16, K1, Z0       \
	JMP        back

// VERDICT looks the results in K3 up. The entry's low byte is the length that it is for.
#define VERDICT \
	KMOVW   K3, R13               \
	MOVWLZX (R8)(R13*2), R13      \
	MOVWLZX 4(DX), CX             \
	MOVBLZX R13B, R14             \
	SHRL    $8, R13               \
	CMPL    CX, R14               \
	CMOVLCS R11, R13              \
	MOVB    R13, (R9)             \
	ORL     R13, R15              \
	ORL     28(DX), R10           \
	INCQ    R9                    \
	ADDQ    $32, DX               \
	DECQ    BX

// func decideAVX512(h *headerTable, table *uint16, mem *byte, size int, d *packet.Desc, n int, verdicts *uint8) uint32
//
// Layout of headerTable: pick 0, keep 64, mask 72, low 136, span 200, spans 264.
TEXT ·decideAVX512(SB), NOSPLIT, $0-60
	MOVQ h+0(FP), DI
	MOVQ table+8(FP), R8
	MOVQ mem+16(FP), SI
	MOVQ size+24(FP), R12
	SUBQ $64, R12
	MOVQ d+32(FP), DX
	MOVQ n+40(FP), BX
	MOVQ verdicts+48(FP), R9
	VMOVDQU8  0(DI), Z16   // pick
	KMOVQ     64(DI), K1   // keep
	VMOVDQU32 72(DI), Z17  // mask
	VMOVDQU32 136(DI), Z18 // low
	VMOVDQU32 200(DI), Z19 // span
	XORL      R10, R10
	XORL      R11, R11
	XORL      R15, R15
	CMPB      264(DI), $0
	JNE       range

equal:
	LANES(equalFar)

equalLanes:
	VPANDD   Z17, Z0, Z0
	VPCMPEQD Z18, Z0, K3
	VERDICT
	JNZ equal
	JMP done

equalFar:
	FARLANES(equalLanes)

range:
	LANES(rangeFar)

rangeLanes:
	VPANDD  Z17, Z0, Z0
	VPSUBD  Z18, Z0, Z0
	VPCMPUD $2, Z19, Z0, K3 // lane - low <= span
	VERDICT
	JNZ range
	JMP done

rangeFar:
	FARLANES(rangeLanes)

done:
	VZEROUPPER
	SHLL $16, R10
	ORL  R15, R10
	MOVL R10, ret+56(FP)
	RET
