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

// Offsets of 16 descriptors of 32 bytes.
DATA descs<>+0(SB)/8, $0x0000002000000000
DATA descs<>+8(SB)/8, $0x0000006000000040
DATA descs<>+16(SB)/8, $0x000000a000000080
DATA descs<>+24(SB)/8, $0x000000e0000000c0
DATA descs<>+32(SB)/8, $0x0000012000000100
DATA descs<>+40(SB)/8, $0x0000016000000140
DATA descs<>+48(SB)/8, $0x000001a000000180
DATA descs<>+56(SB)/8, $0x000001e0000001c0
GLOBL descs<>(SB), RODATA|NOPTR, $64

// The bytes of dwords in the opposite order.
DATA swap<>+0(SB)/8, $0x0405060700010203
DATA swap<>+8(SB)/8, $0x0c0d0e0f08090a0b
GLOBL swap<>(SB), RODATA|NOPTR, $16

// func describeAVX512(d *packet.Desc, n int, off, length *laneValues) (more uint64)
//
// Layout of packet.Desc, 32 bytes: Off 0, Len 4 (16 bits), Flags 28, of which FlagMore is bit 11.
TEXT ·describeAVX512(SB), NOSPLIT, $0-40
	MOVQ d+0(FP), DX
	MOVQ n+8(FP), CX
	MOVQ off+16(FP), DI
	MOVQ length+24(FP), SI
	MOVQ $-1, AX
	BZHIQ CX, AX, AX              // descriptors that are there
	XORL  R8, R8                  // more
	XORL  CX, CX                  // first packet of the group
	VMOVDQU32 descs<>(SB), Z0
	MOVL $0xffff, R9
	VPBROADCASTD R9, Z1
	MOVL $0x800, R9
	VPBROADCASTD R9, Z2

group:
	KMOVW AX, K1
	KMOVW AX, K2
	KMOVW AX, K3
	VPXORD Z3, Z3, Z3
	VPXORD Z4, Z4, Z4
	VPXORD Z5, Z5, Z5
	VPGATHERDD (DX)(Z0*1), K1, Z3
	VPGATHERDD 4(DX)(Z0*1), K2, Z4
	VPGATHERDD 28(DX)(Z0*1), K3, Z5
	VPANDD   Z1, Z4, Z4
	VPTESTMD Z2, Z5, K4
	VMOVDQU32 Z3, (DI)
	VMOVDQU32 Z4, (SI)
	KMOVW K4, R9
	SHLQ  CX, R9
	ORQ   R9, R8
	ADDQ  $512, DX
	ADDQ  $64, DI
	ADDQ  $64, SI
	SHRQ  $16, AX
	ADDQ  $16, CX
	CMPQ  CX, $64
	JLT   group
	VZEROUPPER
	MOVQ R8, more+32(FP)
	RET

// func loadAVX512(mem *byte, off, length, x *laneValues, c *column, dst *laneValues) (valid uint64)
//
// Indices of a gather are signed: mem and they are moved by 2^31.
// Layout of column: at 24, mask 28, right 32.
TEXT ·loadAVX512(SB), NOSPLIT, $0-56
	MOVQ mem+0(FP), BX
	MOVL $0x80000000, R9
	ADDQ R9, BX
	VPBROADCASTD R9, Z16
	MOVQ off+8(FP), DI
	MOVQ length+16(FP), SI
	MOVQ x+24(FP), DX
	MOVQ c+32(FP), R10
	MOVQ dst+40(FP), R11
	VPBROADCASTD 24(R10), Z17
	VPBROADCASTD 28(R10), Z18
	MOVL 32(R10), R9
	VMOVD R9, X19
	MOVL $4, R9
	VPBROADCASTD R9, Z20
	MOVL $0x10000, R9             // maxIndex
	VPBROADCASTD R9, Z21
	VBROADCASTI32X4 swap<>(SB), Z22
	XORL R8, R8
	XORL CX, CX

group:
	VMOVDQU32 (DX), Z0
	VPCMPUD   $2, Z21, Z0, K1     // x <= maxIndex
	VPADDD    Z17, Z0, Z0         // start of the four bytes
	VPADDD    Z20, Z0, Z1         // and their end
	VPCMPUD   $2, (SI), Z1, K1, K1
	VPADDD    (DI), Z0, Z0
	VPXORD    Z16, Z0, Z0
	VPXORD    Z2, Z2, Z2
	KMOVW     K1, R9
	VPGATHERDD (BX)(Z0*1), K1, Z2
	VPSHUFB   Z22, Z2, Z2
	VPSRLD    X19, Z2, Z2
	VPANDD    Z18, Z2, Z2
	VMOVDQU32 Z2, (R11)
	SHLQ CX, R9
	ORQ  R9, R8
	ADDQ $64, DX
	ADDQ $64, DI
	ADDQ $64, SI
	ADDQ $64, R11
	ADDQ $16, CX
	CMPQ CX, $64
	JLT  group
	VZEROUPPER
	MOVQ R8, valid+48(FP)
	RET

// func computeAVX512(x, y *laneValues, c *column, dst *laneValues)
//
// Layout of column: at 24, mask 28, right 32, left 36.
TEXT ·computeAVX512(SB), NOSPLIT, $0-32
	MOVQ x+0(FP), DX
	MOVQ y+8(FP), SI
	MOVQ c+16(FP), R10
	MOVQ dst+24(FP), DI
	VPBROADCASTD 24(R10), Z17
	VPBROADCASTD 28(R10), Z18
	MOVL  32(R10), R9
	VMOVD R9, X19
	MOVL  36(R10), R9
	VMOVD R9, X20
	MOVL  $4, CX

group:
	VPANDD (DX), Z18, Z0
	VPSRLD X19, Z0, Z0
	VPSLLD X20, Z0, Z0
	VPADDD (SI), Z0, Z0
	VPADDD Z17, Z0, Z0
	VMOVDQU32 Z0, (DI)
	ADDQ $64, DX
	ADDQ $64, SI
	ADDQ $64, DI
	DECL CX
	JNZ  group
	VZEROUPPER
	RET

// IN adds the packets of a group whose values are in the range in Z4, Z5, Z6 to acc.
#define IN(values, acc) \
	VPANDD  Z4, values, Z7  \
	VPSUBD  Z5, Z7, Z7      \
	VPCMPUD $2, Z6, Z7, K5  \
	KORW    K5, acc, acc

// func inRangesAVX512(v *laneValues, r *rangeTest, n int) (hit uint64)
//
// Layout of rangeTest, 12 bytes: mask 0, low 4, span 8.
TEXT ·inRangesAVX512(SB), NOSPLIT, $0-32
	MOVQ v+0(FP), DX
	MOVQ r+8(FP), SI
	MOVQ n+16(FP), CX
	VMOVDQU32 0(DX), Z0
	VMOVDQU32 64(DX), Z1
	VMOVDQU32 128(DX), Z2
	VMOVDQU32 192(DX), Z3
	KXORW K1, K1, K1
	KXORW K2, K2, K2
	KXORW K3, K3, K3
	KXORW K4, K4, K4

range:
	VPBROADCASTD 0(SI), Z4
	VPBROADCASTD 4(SI), Z5
	VPBROADCASTD 8(SI), Z6
	IN(Z0, K1)
	IN(Z1, K2)
	IN(Z2, K3)
	IN(Z3, K4)
	ADDQ $12, SI
	DECQ CX
	JNZ  range
	VZEROUPPER
	KUNPCKWD K1, K2, K1
	KUNPCKWD K3, K4, K3
	KUNPCKDQ K1, K3, K1
	KMOVQ K1, AX
	MOVQ  AX, hit+24(FP)
	RET

// func inSetAVX512(v *laneValues, set *portSet) (hit uint64)
TEXT ·inSetAVX512(SB), NOSPLIT, $0-24
	MOVQ v+0(FP), DX
	MOVQ set+8(FP), SI
	MOVL $1, R9
	VPBROADCASTD R9, Z4
	MOVL $31, R9
	VPBROADCASTD R9, Z5
	XORL R8, R8
	XORL CX, CX

group:
	VMOVDQU32 (DX), Z0
	VPANDD  Z5, Z0, Z1
	VPSLLVD Z1, Z4, Z1            // the bit in its word
	VPSRLD  $5, Z0, Z0
	KXNORW  K1, K1, K1
	VPXORD  Z2, Z2, Z2
	VPGATHERDD (SI)(Z0*4), K1, Z2
	VPTESTMD Z1, Z2, K2
	KMOVW K2, R9
	SHLQ CX, R9
	ORQ  R9, R8
	ADDQ $64, DX
	ADDQ $16, CX
	CMPQ CX, $64
	JLT  group
	VZEROUPPER
	MOVQ R8, hit+16(FP)
	RET

// func expandAVX512(accepted, undecided uint64, n int, verdicts *uint8)
TEXT ·expandAVX512(SB), NOSPLIT, $0-32
	KMOVQ accepted+0(FP), K1
	KMOVQ undecided+8(FP), K2
	MOVQ  n+16(FP), CX
	MOVQ  verdicts+24(FP), DI
	MOVQ  $-1, AX
	BZHIQ CX, AX, AX
	KMOVQ AX, K3
	MOVL  $0x01010101, AX
	VPBROADCASTD AX, Z0
	VPADDB Z0, Z0, Z1
	VMOVDQU8.Z Z0, K1, Z0
	VMOVDQU8 Z1, K2, Z0           // a packet is not both
	VMOVDQU8 Z0, K3, (DI)
	VZEROUPPER
	RET
