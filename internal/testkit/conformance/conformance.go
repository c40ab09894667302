// Package conformance checks that a pmd.Driver keeps the contract of package pmd, with one table of tests.
//
// A Subject says how to open a driver and what it promises; Run runs the table against it. Packets
// come from and go to a far end by functions of the Rig that Open returns: the other end of a wire,
// a raw socket of Linux, a capture file. The far end is the oracle: what it sent and received is compared
// with what the driver reports.
//
// Each call of Rx and Tx in these tests is checked against the contract: room, order, whole packets,
// stamps, and bytes; after each test every frame of the arena is accounted for (ring.Audit), every
// counter compared, and the driver closed, which must return all frames.
//
// A new driver is tested by one more Subject (drivers_test.go).
package conformance

import (
	"testing"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// Subject is a driver to be tested, and what it promises.
type Subject struct {
	// Open opens a queue for one test and undoes at the test's end what Close of the queue does not.
	Open func(t testing.TB, s Setup) Rig

	Caps      pmd.Caps // exactly those of Info
	FrameSize int      // of the arena, bytes; 0 is 2048
	Shared    bool     // the arena is shared memory
	Longest   int      // bytes of the longest packet, with its Ethernet header; 0 is 1514
	Link      bool     // it has a link, which Rig.Link sets down and up
	Removable bool     // Rig.Remove can remove its device
	Resident  bool     // received frames stay the queue's, which has all packets from the start
	AnyLength bool     // packets longer than Longest pass: the device does not check
	Runts     bool     // packets without a whole Ethernet header pass
	Lends     int      // frames that the device takes at once, and keeps while the queue is open
	Flood     int      // packets that overflow a queue without frames; 0: its sender has to wait instead
}

// Setup is what Open opens a queue with.
type Setup struct {
	Arena   *ring.Arena // for pools of others than the queue's
	Pool    *ring.Pool  // the queue's
	Inbound [][]byte    // what will be sent to the queue: for drivers that need all packets at Open
}

// Rig is an open queue and its far end. A function that is nil is not supported.
type Rig struct {
	Queue   pmd.Driver    // also a ring.Holder
	Holders []ring.Holder // the other owners of frames of the arena

	// Send sends a packet to the queue; false means that the link is full. Nil: all of
	// Setup.Inbound is there from the start.
	Send func(p []byte) bool
	// Lost counts packets that Send has sent and the link has lost.
	Lost func() uint64
	// Recv returns the next packet that the queue has sent, nil where there is none yet.
	Recv       func() []byte
	AfterClose bool // Recv has packets only after Close of the queue

	Release func(b *packet.Batch) // returns a batch to the driver; nil: its frames go to the pool
	Link    func(up bool) error   // sets the device down and up
	Remove  func() error          // removes the device
}

// test is one line of the table.
type test struct {
	name  string
	where func(s *Subject) bool // whether it applies to the subject; nil is always
	run   func(t testing.TB, s *Subject)
}

var table = []test{
	{"Info is complete and its Caps are those promised", nil, infoIsComplete},
	{"empty batches and idle calls do nothing", nil, idleDoesNothing},
	{"every packet arrives whole and once, in the order of its flow", nil, receivesAll},
	{"Rx appends to the batch and never passes its room", nil, appends},
	{"without a free frame nothing leaks, losses are counted, and Rx recovers", nil, survivesExhaustion},
	{"Tx takes packets from the front and in the end all arrive", nil, sendsAll},
	{"every frame of the pool can be in transmission", nil, sendsThePool},
	{"an incomplete packet stays with the caller", nil, leavesIncomplete},
	{"packets too long or too short are counted, not cut, and the others are sent", nil, rejectsInvalidLengths},
	{"packets of several frames pass whole", multiFrame, passesChains},
	{"a packet of several frames waits for room, and one that never fits is counted", multiFrame, waitsForRoom},
	{"a packet of several frames is counted as invalid without multi-buffer", singleFrame, rejectsChains},
	{"traffic both ways is counted as the far end counts it", nil, countsBothWays},
	{"Info may be called from any goroutine at any time", nil, infoFromAnyGoroutine},
	{"a packet wakes a poll(2) on Info.FD", polled, wakesSleeper},
	{"Rx and Tx allocate nothing", nil, allocatesNothing},
	{"Close under traffic returns every frame, and is final", nil, closesUnderTraffic},
	{"ErrDown repeats until the link is up", linked, linkDown},
	{"Close while the link is down returns every frame", linked, closesWhileDown},
	{"ErrGone of a removed device is final", removable, deviceGone},
}

func multiFrame(s *Subject) bool  { return s.Caps&pmd.CapMultiBuf != 0 && s.longest() > s.frameSize() }
func singleFrame(s *Subject) bool { return s.Caps&pmd.CapMultiBuf == 0 }
func linked(s *Subject) bool      { return s.Link }
func removable(s *Subject) bool   { return s.Removable }
func polled(s *Subject) bool      { return s.Caps&pmd.CapPoll != 0 }

func (s *Subject) longest() int {
	if s.Longest == 0 {
		return 1514
	}
	return s.Longest
}

func (s *Subject) frameSize() int {
	if s.FrameSize == 0 {
		return 2048
	}
	return s.FrameSize
}

// Run tests the subject: a subtest for each line of the table that applies to it.
func Run(t *testing.T, s Subject) {
	for _, c := range table {
		if c.where == nil || c.where(&s) {
			t.Run(c.name, func(t *testing.T) { c.run(t, &s) })
		}
	}
}
