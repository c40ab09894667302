package pmd

import "sync/atomic"

// RxDepth sets how many packets of a driver may wait for Rx, of those that its ring has room for. Frames in a receive ring are
// used in turn, so a deep one costs cache even while few packets wait: measured, 12 % of the CPU time of a bulk stream where
// the frames exceed the second-level cache. A host that knows its load asks for the depth that it needs. The driver reports
// it in Info.RxDepth; without a call of Set the ring is as deep as it was opened.
type RxDepth struct{ packets atomic.Int32 }

// Set makes room for so many packets from the next Rx on, at most as many as the ring has. 0 is all of it. Any goroutine may
// call it.
func (d *RxDepth) Set(packets int) { d.packets.Store(int32(packets)) }

// Packets returns what Set has asked for, or most where that is less or nothing.
func (d *RxDepth) Packets(most int) int {
	if n := int(d.packets.Load()); n > 0 {
		return min(n, most)
	}
	return most
}
