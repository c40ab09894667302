//go:build amd64 && !purego

#include "textflag.h"

// func decideAVX512(h *headerTable, table *uint32, mem *byte, d *packet.Desc, n int, verdicts *uint8) uint32
//
// For each packet: load up to 64 bytes, gather the fields of all tests into lanes (VPERMB), compare all
// lanes, and look the results up. Layout of headerTable: pick 0, keep 64, mask 72, k 136, end 200,
// equal 264, above 268. Layout of packet.Desc, 32 bytes: Off 0, Len 4, Flags 28. R15 collects all
// verdicts and, 16 bits higher, all flags.
TEXT ·decideAVX512(SB), NOSPLIT, $0-52
	MOVQ h+0(FP), DI
	MOVQ table+8(FP), R8
	MOVQ mem+16(FP), SI
	MOVQ d+24(FP), DX
	MOVQ n+32(FP), BX
	MOVQ verdicts+40(FP), R9
	VMOVDQU8  0(DI), Z16   // pick
	KMOVQ     64(DI), K1   // keep
	VMOVDQU32 72(DI), Z17  // mask
	VMOVDQU32 136(DI), Z18 // k
	VMOVDQU32 200(DI), Z19 // end
	MOVL      264(DI), R10 // equal
	MOVL      268(DI), R11 // above
	MOVL      $64, R12
	XORL      R15, R15

next:
	MOVL    0(DX), AX
	MOVWLZX 4(DX), CX
	MOVQ    $-1, R13
	MOVL    CX, DI
	CMPL    CX, R12
	CMOVLGT R12, DI
	BZHIQ   DI, R13, R13
	KMOVQ   R13, K2
	VMOVDQU8.Z (SI)(AX*1), K2, Z0 // bytes behind the packet are not read
	VPERMB.Z   Z0, Z16, K1, Z0
	VPANDD     Z17, Z0, Z0
	VPCMPEQD   Z18, Z0, K3
	VPCMPUD    $6, Z18, Z0, K4    // lane > k
	VPBROADCASTD CX, Z1
	VPCMPUD    $6, Z1, Z19, K5    // end > length: the field is outside the packet
	KMOVW   K3, R13
	KMOVW   K4, R14
	ANDL    R10, R13
	ANDL    R11, R14
	ORL     R14, R13
	MOVL    (R8)(R13*4), R13
	KMOVW   K5, R14
	MOVL    R13, DI
	SHRL    $16, R13
	XORL    CX, CX
	ANDL    R14, DI               // tests that were made outside the packet
	CMOVLNE CX, R13               // reject it
	MOVB    R13, (R9)
	ORL     R13, R15
	MOVWLZX 28(DX), AX
	SHLL    $16, AX
	ORL     AX, R15
	INCQ    R9
	ADDQ    $32, DX
	DECQ    BX
	JNZ     next
	VZEROUPPER
	MOVL R15, ret+48(FP)
	RET
