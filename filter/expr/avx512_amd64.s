//go:build amd64 && !purego

#include "textflag.h"

// Registers of decideAVX512: SI mem, R12 the last offset of which 64 bytes can be read, DX descriptor, R8 table, R13
// verdict, R10 all flags, R15 all verdicts, R11 0. BX counts up to 0, from the number of packets below it, and indexes
// R9, the end of the verdicts, or DI, that of the list; then R9 is their begin.
// Layout of packet.Desc, 32 bytes: Off 0, Len 4, L3 7, Flags 28, Proto 30.

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

// EQUAL and RANGE make the tests, whose results are K3. Broadcasts are from memory: from a register they need the
// same port as VPERMB and comparisons.
#define EQUAL \
	VPANDD   Z17, Z0, Z0     \
	VPCMPEQD Z18, Z0, K3

#define RANGE \
	VPBROADCASTD 4(DX), K6, Z0  \
	VPANDD  Z17, Z0, Z0         \
	VPSUBD  Z18, Z0, Z0         \
	VPCMPUD $2, Z19, Z0, K3

// VERDICT looks the results in K3 up. The entry's low byte is the length that it is for.
#define VERDICT \
	KMOVW   K3, R13               \
	MOVWLZX (R8)(R13*2), R13      \
	MOVWLZX 4(DX), CX             \
	MOVBLZX R13B, R14             \
	SHRL    $8, R13               \
	CMPL    CX, R14               \
	CMOVLCS R11, R13

// STORE writes a verdict and goes to the next packet, STORELISTED to that of the list.
#define STORE \
	MOVB R13, (R9)(BX*1)  \
	ORL  R13, R15         \
	ORL  28(DX), R10      \
	ADDQ $32, DX          \
	INCQ BX

#define STORELISTED \
	MOVL (DI)(BX*4), AX   \
	MOVB R13, (R9)(AX*1)  \
	ORL  R13, R15         \
	ORL  28(DX), R10      \
	INCQ BX

// LISTED finds the descriptor of the list's next packet.
#define LISTED \
	MOVL (DI)(BX*4), DX   \
	SHLQ $5, DX           \
	ADDQ d+32(FP), DX

// COUNT begins to count: at back without a list, or at listed.
#define COUNT(back) \
	XORL  R10, R10          \
	XORL  R15, R15          \
	MOVQ  verdicts+48(FP), R9 \
	MOVQ  d+32(FP), DX      \
	MOVQ  n+40(FP), BX      \
	MOVQ  list+56(FP), DI   \
	LEAQ  (DI)(BX*4), AX    \
	TESTQ DI, DI            \
	CMOVQNE AX, DI          \
	LEAQ  (R9)(BX*1), AX    \
	CMOVQEQ AX, R9          \
	NEGQ  BX                \
	TESTQ DI, DI            \
	JEQ   back

// DONE returns what was seen.
#define DONE \
	VZEROUPPER              \
	SHLL $16, R10           \
	ORL  R15, R10           \
	MOVL R10, seen+64(FP)   \
	RET

// func decideAVX512(h *headerTable, table *uint16, mem *byte, size int, d *packet.Desc, n int, verdicts *uint8, list *uint32) (seen uint32)
//
// Layout of headerTable.regs: pick 0, keep 64, mask 72, low 136, span 200, spans 264, sized 266.
TEXT ·decideAVX512(SB), NOSPLIT, $0-68
	MOVQ h+0(FP), CX
	MOVQ table+8(FP), R8
	MOVQ mem+16(FP), SI
	MOVQ size+24(FP), R12
	SUBQ $64, R12
	VMOVDQU8  0(CX), Z16   // pick
	KMOVQ     64(CX), K1   // keep
	VMOVDQU32 72(CX), Z17  // mask
	VMOVDQU32 136(CX), Z18 // low
	VMOVDQU32 200(CX), Z19 // span
	KMOVW     266(CX), K6  // sized
	XORL      R11, R11
	COUNT(all)

	// Only the packets of a list.
list:
	LISTED
	LANES(listFar)

listLanes:
	RANGE
	VERDICT
	STORELISTED
	JNZ list
	DONE

listFar:
	FARLANES(listLanes)

all:
	CMPB 264(CX), $0
	JNE  range

equal:
	LANES(equalFar)

equalLanes:
	EQUAL
	VERDICT
	STORE
	JNZ equal
	DONE

equalFar:
	FARLANES(equalLanes)

range:
	LANES(rangeFar)

rangeLanes:
	RANGE
	VERDICT
	STORE
	JNZ range
	DONE

rangeFar:
	FARLANES(rangeLanes)

// The loop of decideJoinedAVX512. R11 is the table's headerTable and BP its flags; the other registers are those of
// decideAVX512. R14 are the results.
// Layout of headerTable: regs 0 and 272, carry 544, index 548, variable 552, short 576, flags 580.

// FIELDS brings the fields of the first register into the lanes of Z1. AX is where the packet is, CX its length.
#define FIELDS(far) \
	MOVL     0(DX), AX            \
	CMPQ     AX, R12              \
	JGT      far                  \
	ADDQ     SI, AX               \
	MOVWLZX  4(DX), CX            \
	VPERMB.Z (AX), Z16, K1, Z1    \
	XORL     R14, R14

// VARIABLE loads the field at the variable offset, and says in R14 whether it is within the packet.
#define VARIABLE \
	MOVL         552(R11), R13        \
	MOVWLZX      (AX)(R13*1), R13     \
	ANDL         556(R11), R13        \
	SHRXL        BP, R13, R13         \
	ADDL         560(R11), R13        \
	VPBROADCASTD (AX)(R13*1), K5, Z1  \
	ADDL         $4, R13              \
	CMPL         CX, R13              \
	SBBL         R14, R14             \
	ANDNL        568(R11), R14, R14

// FIRST and SECOND make the tests of a register.
#define FIRST \
	VPANDD  Z17, Z1, Z1     \
	VPSUBD  Z18, Z1, Z1     \
	VPCMPUD $2, Z19, Z1, K7 \
	KMOVW   K7, R13         \
	ORL     R13, R14

#define SECOND \
	VPERMB.Z     (AX), Z20, K2, Z2  \
	VPBROADCASTD 4(DX), K4, Z2      \
	VPANDD  Z21, Z2, Z2             \
	VPSUBD  Z22, Z2, Z2             \
	VPCMPUD $2, Z23, Z2, K7         \
	KMOVW   K7, R13                 \
	SHLL    $16, R13                \
	ORL     R13, R14

// JOINED looks the results in R14 up. Packets shorter than the entry's low byte are undecided.
#define JOINED \
	ADDL    544(R11), R14         \
	PEXTL   548(R11), R14, R14    \
	MOVWLZX (R8)(R14*2), R13      \
	MOVBLZX R13B, R14             \
	SHRL    $8, R13               \
	CMPL    CX, R14               \
	CMOVLCS 576(R11), R13

// func decideJoinedAVX512(h *headerTable, table *uint16, mem *byte, size int, d *packet.Desc, n int, verdicts *uint8, list *uint32) (seen uint32)
//
// A packet within h.variable.reach bytes of the memory's end is left undecided.
TEXT ·decideJoinedAVX512(SB), NOSPLIT, $8-68
	MOVQ h+0(FP), R11
	MOVQ table+8(FP), R8
	MOVQ mem+16(FP), SI
	MOVQ size+24(FP), R12
	MOVL 572(R11), AX              // reach
	SUBQ AX, R12
	VMOVDQU8  0(R11), Z16
	KMOVQ     64(R11), K1
	VMOVDQU32 72(R11), Z17
	VMOVDQU32 136(R11), Z18
	VMOVDQU32 200(R11), Z19
	VMOVDQU8  272(R11), Z20
	KMOVQ     336(R11), K2
	VMOVDQU32 344(R11), Z21
	VMOVDQU32 408(R11), Z22
	VMOVDQU32 472(R11), Z23
	KMOVW     266(R11), K3
	KMOVW     538(R11), K4
	KMOVW     564(R11), K5
	MOVL      580(R11), BP
	COUNT(next)

list:
	LISTED
	FIELDS(listFar)
	TESTL $0x100, BP
	JE    listSized
	VARIABLE

listSized:
	TESTL $0x400, BP
	JE    listFirst
	VPBROADCASTD 4(DX), K3, Z1

listFirst:
	FIRST
	TESTL $0x200, BP
	JE    listJoined
	SECOND

listJoined:
	JOINED

listStore:
	STORELISTED
	JNZ list
	DONE

listFar:
	MOVL $2, R13
	JMP  listStore

next:
	FIELDS(far)
	TESTL $0x100, BP
	JE    nextSized
	VARIABLE

nextSized:
	TESTL $0x400, BP
	JE    nextFirst
	VPBROADCASTD 4(DX), K3, Z1

nextFirst:
	FIRST
	TESTL $0x200, BP
	JE    nextJoined
	SECOND

nextJoined:
	JOINED

nextStore:
	STORE
	JNZ next
	DONE

far:
	MOVL $2, R13
	JMP  nextStore

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

// The first 16 numbers.
DATA count<>+0(SB)/8, $0x0000000100000000
DATA count<>+8(SB)/8, $0x0000000300000002
DATA count<>+16(SB)/8, $0x0000000500000004
DATA count<>+24(SB)/8, $0x0000000700000006
DATA count<>+32(SB)/8, $0x0000000900000008
DATA count<>+40(SB)/8, $0x0000000b0000000a
DATA count<>+48(SB)/8, $0x0000000d0000000c
DATA count<>+56(SB)/8, $0x0000000f0000000e
GLOBL count<>(SB), RODATA|NOPTR, $64

#define BROADCAST(number, z) \
	MOVL number, R9        \
	VPBROADCASTD R9, z

// func findAVX512(t *parsedTable, d *packet.Desc, n int, verdicts *uint8, list *uint32) (undecided int)
//
// Layout of packet.Desc, 32 bytes: L3 7, Flags 28, Proto 30.
TEXT ·findAVX512(SB), NOSPLIT, $0-48
	MOVQ t+0(FP), DI
	MOVQ d+8(FP), DX
	MOVQ n+16(FP), BX
	MOVQ verdicts+24(FP), SI
	MOVQ list+32(FP), R8
	VMOVDQU32 descs<>(SB), Z0
	VMOVDQU32 count<>(SB), Z1
	BROADCAST($0x7, Z16)          // IPv4, IPv6, VLAN
	BROADCAST($0x18, Z17)         // later fragment, options; 4 bits higher in Flags
	BROADCAST($0x1fe0, Z18)       // protocol; 11 bits higher
	BROADCAST($0x1e00, Z19)       // notParsed
	BROADCAST($14, Z20)
	BROADCAST($4, Z21)            // FlagVLAN
	BROADCAST($2, Z22)            // undecided
	BROADCAST($3, Z23)
	BROADCAST($16, Z24)
	MOVL $-1, R10

group:
	CMPQ BX, $16
	JGE  full
	BZHIL BX, R10, R10            // the descriptors that are left

full:
	KMOVW R10, K1
	KMOVW R10, K2
	KMOVW R10, K3
	VPXORD Z3, Z3, Z3
	VPXORD Z4, Z4, Z4
	VPGATHERDD 28(DX)(Z0*1), K2, Z3
	VPGATHERDD 4(DX)(Z0*1), K3, Z4
	VPANDD Z16, Z3, Z5
	VPSRLD $4, Z3, Z6
	VPANDD Z17, Z6, Z6
	VPSRLD $11, Z3, Z7
	VPANDD Z18, Z7, Z7
	VPTERNLOGD $0xfe, Z6, Z7, Z5  // or of the three
	KMOVW K1, K2
	VPXORD Z6, Z6, Z6
	VPGATHERDD (DI)(Z5*1), K2, Z6
	VPANDD Z23, Z6, Z6
	VPTESTMD Z19, Z3, K4
	VPSRLD $24, Z4, Z4            // L3
	VPCMPD $4, Z20, Z4, K5
	VPTESTNMD Z21, Z3, K5, K5     // not 14, and no tag
	KORW K4, K5, K4
	VMOVDQA32 Z22, K4, Z6
	VPCMPEQD Z22, Z6, K1, K5
	VPMOVDB Z6, K1, (SI)
	VPCOMPRESSD Z1, K5, Z7
	VMOVDQU32 Z7, (R8)
	KMOVW K5, R9
	POPCNTL R9, R9
	LEAQ (R8)(R9*4), R8
	VPADDD Z24, Z1, Z1
	ADDQ $512, DX
	ADDQ $16, SI
	SUBQ $16, BX
	JGT  group
	VZEROUPPER
	SUBQ list+32(FP), R8
	SHRQ $2, R8
	MOVQ R8, undecided+40(FP)
	RET

// The bytes of dwords in the opposite order.
DATA swap<>+0(SB)/8, $0x0405060700010203
DATA swap<>+8(SB)/8, $0x0c0d0e0f08090a0b
GLOBL swap<>(SB), RODATA|NOPTR, $16

// func copyAVX512(mem *byte, size int, d *packet.Desc, n int, rows *[width][rowLen]byte, off, length *laneValues) (flags uint32)
//
// Layout of packet.Desc, 32 bytes: Off 0, Len 4 (16 bits), Flags 28.
TEXT ·copyAVX512(SB), NOSPLIT, $0-60
	MOVQ mem+0(FP), SI
	MOVQ size+8(FP), R12
	SUBQ $64, R12
	MOVQ d+16(FP), DX
	MOVQ n+24(FP), BX
	MOVQ rows+32(FP), DI
	MOVQ off+40(FP), R8
	MOVQ length+48(FP), R9
	XORL R10, R10

next:
	MOVL    0(DX), AX
	MOVWLZX 4(DX), CX
	MOVL    AX, (R8)
	MOVL    CX, (R9)
	ORL     28(DX), R10
	CMPQ    AX, R12
	JGT     far
	VMOVDQU64 (SI)(AX*1), Z0

store:
	VMOVDQU64 Z0, (DI)
	ADDQ $32, DX
	ADDQ $64, DI
	ADDQ $4, R8
	ADDQ $4, R9
	DECQ BX
	JNZ  next
	VZEROUPPER
	MOVL R10, flags+56(FP)
	RET

far:
	MOVL    $64, R13
	CMPL    CX, R13
	CMOVLGT R13, CX
	MOVQ    $-1, R13
	BZHIQ   CX, R13, R13
	KMOVQ   R13, K2
	VMOVDQU8.Z (SI)(AX*1), K2, Z0
	JMP     store

// Offsets of 16 rows of 64 bytes.
DATA rows<>+0(SB)/8, $0x0000004000000000
DATA rows<>+8(SB)/8, $0x000000c000000080
DATA rows<>+16(SB)/8, $0x0000014000000100
DATA rows<>+24(SB)/8, $0x000001c000000180
DATA rows<>+32(SB)/8, $0x0000024000000200
DATA rows<>+40(SB)/8, $0x000002c000000280
DATA rows<>+48(SB)/8, $0x0000034000000300
DATA rows<>+56(SB)/8, $0x000003c000000380
GLOBL rows<>(SB), RODATA|NOPTR, $64

// func loadAVX512(mem *byte, off, length, x *laneValues, c *column, dst *laneValues, rows *[width][rowLen]byte) (valid uint64)
//
// What ends within a row is read from there. Indices of a gather are signed: mem and they are moved by 2^31.
// Layout of column: at 24, mask 28, right 32.
TEXT ·loadAVX512(SB), NOSPLIT, $0-64
	MOVQ mem+0(FP), BX
	MOVL $0x80000000, R9
	ADDQ R9, BX
	VPBROADCASTD R9, Z16
	MOVQ off+8(FP), DI
	MOVQ length+16(FP), SI
	MOVQ x+24(FP), DX
	MOVQ c+32(FP), R10
	MOVQ dst+40(FP), R11
	MOVQ rows+48(FP), AX
	VPBROADCASTD 24(R10), Z17
	VPBROADCASTD 28(R10), Z18
	MOVL 32(R10), R9
	VMOVD R9, X19
	MOVL $4, R9
	VPBROADCASTD R9, Z20
	MOVL $0x10000, R9             // maxIndex
	VPBROADCASTD R9, Z21
	VBROADCASTI32X4 swap<>(SB), Z22
	VMOVDQU32 rows<>(SB), Z23
	MOVL $64, R9
	VPBROADCASTD R9, Z24
	XORL R8, R8
	XORL CX, CX

group:
	VMOVDQU32 (DX), Z0
	VPCMPUD   $2, Z21, Z0, K1     // x <= maxIndex
	VPADDD    Z17, Z0, Z0         // start of the four bytes
	VPADDD    Z20, Z0, Z1         // and their end
	VPCMPUD   $2, (SI), Z1, K1, K1
	VPCMPUD   $2, Z24, Z1, K1, K2 // in the row
	KANDNW    K1, K2, K3          // not there
	KMOVW     K1, R9
	VPADDD    Z23, Z0, Z1
	VPXORD    Z2, Z2, Z2
	VPGATHERDD (AX)(Z1*1), K2, Z2
	KTESTW    K3, K3
	JZ        have
	VPADDD    (DI), Z0, Z0
	VPXORD    Z16, Z0, Z0
	VPGATHERDD (BX)(Z0*1), K3, Z2

have:
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
	ADDQ $1024, AX
	ADDQ $16, CX
	CMPQ CX, $64
	JLT  group
	VZEROUPPER
	MOVQ R8, valid+56(FP)
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
