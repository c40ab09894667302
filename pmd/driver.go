// Package pmd holds the poll-mode drivers, which move packets into and out of an arena.
//
// A Driver is one queue of one device. Nothing is pushed: a loop polls Rx, owns the frames of the
// batch that it gets, and passes frames on by Tx. The package holds the interface, the memory
// driver and the wrapper Impair, which is a Driver around a Driver. Drivers with a device or a file
// live one folder down (afxdp, afpacket, tap, pcap), so that their dependencies stay there.
package pmd

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

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

// Driver moves packets between one device queue and an arena, as a DPDK poll-mode driver does for one
// queue pair. It belongs to one loop: no method but Info may be called from two goroutines at once.
// So nothing on the way of a packet needs a lock.
type Driver interface {
	// Rx appends received packets to b, at most b.Room(), and passes their frames to the caller.
	// It never blocks; no packet is 0, nil. The count is of descriptors. It sets b.Base to now and each
	// Stamp to the packet's arrival. A packet of several descriptors (packet.FlagMore) comes whole; one
	// of more than cap(b.D) is dropped and counted as invalid, because waiting would block the queue
	// behind it for ever.
	//
	// An error concerns the device, not a packet. ErrDown repeats until the link is up, and then
	// Rx works again. Every other error is final: ErrGone, because an interface that comes back has
	// another index and needs a new driver, io.EOF after the last packet of a file, and ErrClosed
	// after Close.
	Rx(now clock.Time, b *packet.Batch) (int, error)

	// Tx takes the frames of the first n descriptors of b, in order, and returns n. The others stay
	// the caller's, which tries again or drops them. It never blocks. Frames go to the pool that
	// the driver was opened with as soon as the device has sent or copied them: until then the device
	// may still read them, so the caller must not touch a frame after Tx. A packet of several
	// descriptors (packet.FlagMore) is taken whole or not at all.
	Tx(now clock.Time, b *packet.Batch) (int, error)

	// Info describes the queue and returns its counters. Any goroutine may call it at any time.
	Info() Info

	// Close stops the queue and gives every frame that it holds to its pool. Close is final and
	// may be called twice.
	Close() error
}

// Caps are the capabilities of a queue, as bits.
type Caps uint32

// The bits of Caps.
const (
	CapPoll             Caps = 1 << iota // Info.FD becomes readable when Rx has packets: a loop may sleep on it
	CapTimed                             // packets become ready as time passes, without an event: poll at least every millisecond
	CapZeroCopy                          // the device reads and writes frames itself
	CapMultiBuf                          // packets may span several frames
	CapNeedWakeup                        // the kernel sets a flag when it needs a system call (XDP_USE_NEED_WAKEUP): busy queues need none
	CapBusyPoll                          // the kernel's busy polling is on
	CapOffload                           // Tx takes packets with packet.FlagOffload; no other driver is ever given one
	CapExternal                          // Tx takes packets with external payload (packet.Arena.External); no other driver is ever given one
	CapOffloadUDP                        // with CapOffload: those packets may be datagrams too (packet.GSOUDP)
	CapPartialChecksums                  // senders on this machine leave TCP and UDP checksums to a device that does not exist: gpukern.CompleteChecksum
	CapRxChecksum                        // Rx sets packet.FlagL4ChecksumOK where the device has verified that checksum
)

var capNames = []string{"poll", "timed", "zero-copy", "multi-buffer", "need-wakeup", "busy-poll", "offload", "external", "udp-offload", "partial-checksums", "rx-checksum"}

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

// Counter is a named counter of a device.
type Counter struct {
	Name  string // as the driver spells it: "rx_phy_discard_packets"
	Value uint64
}

// Info describes a queue.
type Info struct {
	Driver     string  // "afxdp", "afpacket", "tap", "memory", "pcap"
	Device     string  // interface or file
	Queue      int     // number of the queue on its device
	MTU        int     // largest network-layer packet, bytes; 0 is unknown
	MAC        [6]byte // link address; zero where there is none
	Caps       Caps
	RxRing     int              // packets that may wait for Rx, of drivers that lose what comes beyond; 0 is unknown
	FD         int              // to sleep on with poll(2); -1 where there is none
	Notifier   *Notifier        // called when Rx has packets, of drivers without a file; nil where there is none
	RxDepth    *RxDepth         // of drivers whose ring may be less deep than it is; nil where there is none
	Placer     *Placer          // of drivers that place payload; nil where there is none
	Extended   func() []Counter // counters of the device that only its driver knows, by its names; nil where there are none
	Negotiated string           // modes and features in use, for people ("native, copy, need_wakeup")
	Stats      Stats
}

// Notifier wakes the loop that receives from a driver without a file to sleep on, because the sender
// is in the same process: the sender calls Notify after each Tx. A driver that has one reports it in
// Info.Notifier; a wrapper passes it on.
type Notifier struct{ wake atomic.Pointer[func()] }

// Attach makes Notify call wake from now on, in the goroutine of the sender. wake must not block, and
// should be cheap while the receiver is awake. nil detaches.
func (n *Notifier) Attach(wake func()) {
	if wake == nil {
		n.wake.Store(nil)
		return
	}
	n.wake.Store(&wake)
}

// Notify reports an arrival. Drivers call it once the packet can be received: a receiver that polls
// before it sleeps then misses none.
func (n *Notifier) Notify() {
	if f := n.wake.Load(); f != nil {
		(*f)()
	}
}

// OpError is an error with the place where it happened.
type OpError struct {
	Op     string // "open", "bind", "rx", "tx", ...
	Device string
	Queue  int
	Err    error  // wraps one of the package's errors where one fits
	Remedy string // what the user can do, one sentence; "" where nothing is known
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
