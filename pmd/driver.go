// Package pmd holds the poll-mode drivers: the way of packets into and out of an arena.
//
// A Driver is one queue of one device. Nothing is pushed: a loop polls Rx, gets a batch of frames
// that are now its own, and hands frames back by Tx. The package holds the interface, the memory
// driver and the wrapper Impair, which is a Driver around a Driver. Drivers with a device or a file
// live one folder down (afxdp, afpacket, tap, pcap), so that their dependencies stay there.
package pmd

import (
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
)

// Errors of all drivers. They are returned wrapped in an OpError: test with errors.Is.
var (
	ErrClosed       = errors.New("driver is closed")
	ErrDown         = errors.New("device is down")
	ErrGone         = errors.New("device is gone")
	ErrBusy         = errors.New("device queue is in use")
	ErrPermission   = errors.New("not permitted")
	ErrNotSupported = errors.New("not supported")
)

// Driver moves packets between one device queue and an arena. It belongs to one loop: no method
// but Info may be called from two goroutines at once.
type Driver interface {
	// Rx appends received packets to b, at most b.Room(), and passes their frames to the caller.
	// It never blocks; no packet is 0, nil. It sets b.Base to now and each Stamp to the packet's
	// arrival. A packet of several descriptors (packet.FlagMore) comes whole; one of more than
	// cap(b.D) is dropped and counted as invalid.
	//
	// An error concerns the device, not a packet. ErrDown repeats until the link is up, and then
	// Rx works again. Every other error is final, such as ErrGone, because an interface that comes
	// back is another one and wants a driver of its own, io.EOF after the last packet of a file and
	// ErrClosed after Close.
	Rx(now clock.Time, b *packet.Batch) (int, error)

	// Tx takes the frames of the first n packets of b, in order, and returns n; the others stay
	// the caller's, who tries again or drops them. It never blocks. Frames go to the pool that
	// the driver was opened with as soon as the device is done with them. A packet of several
	// descriptors (packet.FlagMore) is taken whole or not at all.
	Tx(now clock.Time, b *packet.Batch) (int, error)

	// Info describes the queue and counts what it did. It may be called at any time, from any
	// goroutine.
	Info() Info

	// Close stops the queue and gives every frame that it holds to its pool. Close is final and
	// may be called twice.
	Close() error
}

// Caps are what a queue can do, as bits.
type Caps uint32

// The bits of Caps.
const (
	CapPoll       Caps = 1 << iota // Info.FD becomes readable when Rx has packets: a loop may sleep on it
	CapTimed                       // packets become ready by the passage of time: poll at least every millisecond
	CapZeroCopy                    // the device reads and writes frames itself
	CapMultiBuf                    // packets may span several frames
	CapNeedWakeup                  // the kernel asks for wake-ups; idle queues cost no system call
	CapBusyPoll                    // the kernel's busy polling is on
	CapOffload                     // Tx takes packets with packet.FlagOffload; no other driver is ever given one
)

var capNames = []string{"poll", "timed", "zero-copy", "multi-buffer", "need-wakeup", "busy-poll", "offload"}

// String returns the names of the set bits, joined by commas.
func (c Caps) String() string {
	var on []string
	for i, name := range capNames {
		if c&(1<<i) != 0 {
			on = append(on, name)
		}
	}
	return strings.Join(on, ",")
}

// Info describes a queue.
type Info struct {
	Driver  string  // "afxdp", "afpacket", "tap", "memory", "pcap"
	Device  string  // interface or file
	Queue   int     // number of the queue on its device
	MTU     int     // largest network-layer packet, bytes; 0 is unknown
	MAC     [6]byte // link address; zero where there is none
	Caps    Caps
	FD      int    // to sleep on with poll(2); -1 where there is none
	Bell    *Bell  // rings when Rx has packets, of drivers without a file; nil where there is none
	Granted string // what was asked and what the kernel granted, for people ("native, copy, need_wakeup")
	Stats   Stats
}

// Stats counts what a queue did since it was opened. Packets, not descriptors.
type Stats struct {
	RxPackets, RxBytes uint64 // handed to the caller
	TxPackets, TxBytes uint64 // taken from the caller
	RxDropped          uint64 // lost before Rx: ring full or no frame, as told by the device
	RxInvalid          uint64 // refused by the device or the driver as unusable
	TxInvalid          uint64 // taken by Tx but refused by the device
	Wakeups            uint64 // system calls made to move packets
}

// OpError is an error with the place where it happened.
type OpError struct {
	Op     string // "open", "bind", "rx", "tx", ...
	Device string
	Queue  int
	Err    error  // matches one of the package's errors where one fits
	Remedy string // what the user can do, if anything is known; one sentence
}

// Error implements error: what failed, why, and the remedy.
func (e *OpError) Error() string {
	s := fmt.Sprintf("%s %s queue %d: %v", e.Op, e.Device, e.Queue, e.Err)
	if e.Remedy != "" {
		s += " (" + e.Remedy + ")"
	}
	return s
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }
