// Package conformance holds every pmd.Driver to the contract of package pmd, with one table of tests.
//
// A Subject says how to open a driver and what it promises; Run puts it through the table. Packets
// come from and go to the outside by functions of the Rig that Open returns: the other end of a wire,
// a raw socket of Linux, a capture file. The outside is the oracle: what it sent and saw is compared
// with what the driver says.
//
// Each call of Rx and Tx in these tests is checked against the contract: room, order, whole packets,
// stamps, and bytes; after each test every frame of the arena is accounted for (ring.Audit), every
// counter compared, and the driver closed, which must bring all frames home.
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

	Caps      pmd.Caps // that Info must tell, no more and no less
	FrameSize int      // of the arena, bytes; 0 is 2048
	Longest   int      // bytes of the longest packet, with its Ethernet header; 0 is 1514
	Link      bool     // it has a link, which Rig.Link takes down and up
	Goes      bool     // its device can be taken away, by Rig.Remove
	Lends     bool     // frames that are received stay the queue's, which has all packets from the start
	Longer    bool     // longer packets pass: nothing looks at their length
	Shorter   bool     // packets without a whole Ethernet header pass
	Flood     int      // packets that are too many for a queue without frames; 0: it holds its sender back
}

// Setup is what Open opens a queue with.
type Setup struct {
	Arena   *ring.Arena // for pools of others than the queue's
	Pool    *ring.Pool  // the queue's
	Inbound [][]byte    // what will be sent to the queue: for drivers whose packets must be there at first
}

// Rig is an open queue and the outside of it. Functions that are nil stand for what there is not.
type Rig struct {
	Queue   pmd.Driver    // also a ring.Holder
	Holders []ring.Holder // whoever else holds frames of the arena

	// Send gives a packet to the wire; false says that the wire holds it back. Nil: all of
	// Setup.Inbound is there from the start.
	Send func(p []byte) bool
	// Lost counts packets that Send gave to the wire and the wire lost by itself.
	Lost func() uint64
	// Recv returns the next packet that came out of the queue, nil where there is none yet.
	Recv func() []byte
	Late bool // Recv has packets only after Close of the queue

	Release func(b *packet.Batch) // hands a batch back; nil: its frames go to the pool
	Link    func(up bool) error   // takes the device down and up
	Remove  func() error          // takes the device away
}

// test is one line of the table.
type test struct {
	name  string
	where func(s *Subject) bool // whether it says anything about the subject; nil is always
	run   func(t testing.TB, s *Subject)
}

var table = []test{
	{"the queue says what it can do", nil, saysWhatItCanDo},
	{"where nothing is to be done nothing is done", nil, doesNothing},
	{"every packet arrives whole and once, in the order of its flow", nil, receivesAll},
	{"Rx appends to the batch and never passes its room", nil, appends},
	{"without a free frame nothing leaks, losses are counted, and Rx recovers", nil, survivesExhaustion},
	{"Tx takes packets from the front and in the end all arrive", nil, sendsAll},
	{"every frame of the pool can be on its way out", nil, sendsThePool},
	{"an unfinished packet stays with the caller", nil, leavesUnfinished},
	{"packets too long or too short are counted, not cut, and the others go", nil, refusesOdd},
	{"packets of several frames pass whole", long, passesChains},
	{"a packet of several frames waits for room, and one that never fits is counted", long, waitsForRoom},
	{"a packet of several frames is counted where frames stand alone", alone, refusesChains},
	{"traffic both ways is counted as the far end counts it", nil, countsBothWays},
	{"Info may be called by anybody at any time", nil, tellsAnybody},
	{"a sleeper is woken by a packet", polled, wakesSleeper},
	{"Rx and Tx allocate nothing", nil, allocatesNothing},
	{"Close under traffic brings every frame home, and is final", nil, closesUnderTraffic},
	{"a link that is down says so until it is up", linked, tellsLinkDown},
	{"Close while the link is down brings every frame home", linked, closesWhileDown},
	{"a device that is taken away is gone for good", goes, tellsGone},
}

func long(s *Subject) bool   { return s.Caps&pmd.CapMultiBuf != 0 && s.longest() > s.frameSize() }
func alone(s *Subject) bool  { return s.Caps&pmd.CapMultiBuf == 0 }
func linked(s *Subject) bool { return s.Link }
func goes(s *Subject) bool   { return s.Goes }
func polled(s *Subject) bool { return s.Caps&pmd.CapPoll != 0 }

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

// Run tests the subject: a subtest for each line of the table that says anything about it.
func Run(t *testing.T, s Subject) {
	for _, c := range table {
		if c.where == nil || c.where(&s) {
			t.Run(c.name, func(t *testing.T) { c.run(t, &s) })
		}
	}
}
