package packet

import (
	"encoding/binary"
	"unsafe"
)

// A large packet may have only its first bytes in a frame, and the rest where the driver received it: external payload, as
// the external buffers of an rte_mbuf. A gateway decides a packet by its headers, so 64 KiB of payload need not move to
// 32 frames and out of them again.
//
//	frame   | Offload, length, address | ... | Ethernet, IP, TCP, first payload |
//	driver                                        | the rest of the payload |
//
// The external bytes belong to the driver and are valid until its next Rx: for one iteration of the loop. A handler that keeps
// the packet longer copies them to frames first. Only drivers with pmd.CapExternal are given such a packet to send.

// OffloadExternal, in Offload.Flags beside OffloadPlaced, marks placed payload as external: the packet has one descriptor,
// and External returns its other bytes.
const OffloadExternal = 0x40

// ExternalHeadroom is the headroom in bytes that a packet with external payload needs.
const ExternalHeadroom = externalAt + 8

// externalAt is the offset in the frame of the address of the external bytes.
const externalAt = 16

// External borrows the bytes of the packet with FlagOffload, whose first descriptor is d, that lie behind those of its frame;
// nil for a packet that has all of its bytes in frames.
func (a *Arena) External(d *Desc) []byte {
	b := a.Mem[d.Off&^(1<<a.Shift-1):]
	if b[0]&OffloadExternal == 0 {
		return nil
	}
	address := uintptr(binary.NativeEndian.Uint64(b[externalAt:]))
	// The memory is outside of the Go heap (SetExternal), so the address is no pointer that the collector has to see.
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&address)), binary.NativeEndian.Uint32(b[OffloadLen:]))
}

// SetExternal notes, after SetOffload, that the packet whose only descriptor is d goes on in p, which lies outside of the Go heap and
// stays the caller's.
func (a *Arena) SetExternal(d *Desc, p []byte) {
	a.SetPlaced(d, len(p))
	b := a.Mem[d.Off&^(1<<a.Shift-1):]
	b[0] |= OffloadExternal
	binary.NativeEndian.PutUint64(b[externalAt:], uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))))
}

// ClearExternal notes that all bytes of the packet that starts with d are in frames: the caller has copied them.
func (a *Arena) ClearExternal(d *Desc) {
	a.Mem[d.Off&^(1<<a.Shift-1)] &^= OffloadExternal | OffloadPlaced
}
