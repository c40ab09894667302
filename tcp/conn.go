package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/auth"
	"github.com/millrace/millrace/tcp/seqnum"
	"github.com/millrace/millrace/wire"
)

// Conn is one connection. It belongs to its Mux, and calls of its methods to the Mux's loop.
//
// Whoever holds a Conn ends with exactly one call of Close or Abort, whatever happened before, also
// after Closed: it gives the Conn back, which must not be used after.
type Conn struct {
	m         *Mux
	owner     Owner
	opt       *Options    // never written: changed options are a new value
	*active               // nil at rest
	rare      *rare       // nil for most
	auth      *auth.State // nil without keys
	compacted compacted   // while awake is nil

	tuple wire.Tuple

	id      uint32
	link    uint32     // the next connection in the Mux's list of dirty or free ones
	peerFIN uint32     // number of the peer's FIN, with flagPeerFIN
	armedAt clock.Time // when the timer's entry fires, at the latest when something is due

	aliveAt clock.Time // the last segment

	// The send sequence space (RFC 9293 3.3.1). The FIN has number end, once the application has closed.
	una, nxt uint32
	end      uint32 // behind what was written
	sndEdge  uint32 // right edge of the peer's window: SND.UNA+SND.WND
	wl1, wl2 uint32 // SND.WL1, SND.WL2
	maxWnd   uint32 // the largest window that the peer had

	// The receive sequence space.
	rcvNxt   uint32
	rcvAdv   uint32 // right edge of the window that the peer was told: RCV.NXT+RCV.WND
	rcvLimit uint32 // bytes to hold at most
	tsRecent uint32 // TS.Recent (RFC 7323 4.3)
	tsOffset uint32
	received uint64 // bytes of payload, in order

	ecn ecnState

	flags     flags
	events    Events // to be told
	segment   uint16 // options and payload of a full segment: peer's MSS, within the path MTU
	peerMSS   uint16
	largestIn uint16 // the largest payload that came in one segment

	state              State
	reason             reason
	sndScale, rcvScale uint8
	unansweredProbes   uint8 // probes since the peer was heard: window or keepalive
	quickACKs          uint8 // segments to acknowledge at once
}

// byteRange is a range of sequence numbers.
type byteRange struct{ left, right uint32 }

// rare is what few connections need.
type rare struct {
	corkAt       clock.Time // when held-back data leaves; never
	sndUrgent    uint32     // SND.UP
	rcvUrgent    uint32     // RCV.UP
	retransmits  uint64     // segments
	challengedAt uint32     // timestamp of the last challenge ACK
	cookie       []byte     // of Fast Open, for the SYN-ACK
	probe        pathProbe
}

const never = clock.Never

// flags are what a connection knows in one bit each.
type flags uint32

const (
	flagTimestamps     flags = 1 << iota // RFC 7323 3, agreed
	flagSACK                             // RFC 2018 2, agreed
	flagScaling                          // RFC 7323 2, agreed
	flagDirty                            // in the Mux's list
	flagOrphaned                         // the application gave the connection back
	flagTable                            // in the Mux's table
	flagFIN                              // the application sends no more: FIN has number end
	flagPeerFIN                          // the peer's FIN has number peerFIN
	flagAckNow                           // an ACK is to be sent at once
	flagWantWrite                        // a Write had not room for all
	flagMore                             // the last Write has more to come
	flagReadShutdown                     // the application reads no more
	flagWindowProbe                      // a zero-window probe, one byte at nxt, is in the way
	flagPassive                          // began in LISTEN
	flagBlocked                          // the Output had no room
	flagInteractive                      // data is answered by data: ACKs ride on it
	flagSndUrgent                        // SND.UP is ahead
	flagRcvUrgent                        // RCV.UP is ahead of what was read
	flagFastOpen                         // data in the SYN was taken
	flagClosedReported                   // Closed was told
	flagTailProbe                        // a tail loss probe is due
	flagReset                            // a RST is to be sent
	flagTriedFastOpen                    // the SYN had a Fast Open option
	flagSynAck                           // the peer's SYN is to be answered
	flagNotECT                           // the path clears what accurate ECN says: nothing is sent ECN-capable
)

func (c *Conn) has(f flags) bool { return c.flags&f != 0 }

// mss is the payload of a full segment that has no options but those that all have.
func (c *Conn) mss() int { return int(c.segment) - c.optionsLen() }

// window returns how many bytes of new sequence space the peer has room for.
func (c *Conn) window() uint32 { return seqnum.Distance(c.nxt, c.sndEdge) }

// unsent returns how many written bytes were not sent.
func (c *Conn) unsent() uint32 { return seqnum.Distance(c.nxt, c.end) }

// outstanding reports whether something sent is not acknowledged.
func (c *Conn) outstanding() bool { return c.una != c.nxt }

// finSent and finAcked tell how far our FIN has come.
func (c *Conn) finSent() bool  { return c.has(flagFIN) && c.nxt == c.end+1 }
func (c *Conn) finAcked() bool { return c.finSent() && c.una == c.nxt }

// State returns the state.
func (c *Conn) State() State { return c.state }

// Err returns why the connection ended: nil while it has not, or ended in order.
func (c *Conn) Err() error {
	if c.state != StateClosed {
		return nil
	}
	return reasonErrors[c.reason]
}

// Tuple returns the addresses and ports.
func (c *Conn) Tuple() wire.Tuple { return c.tuple }

// Owner returns who is told of events.
func (c *Conn) Owner() Owner { return c.owner }

// SetOwner names who is told of events, and has it told at the next Poll what is possible already.
func (c *Conn) SetOwner(o Owner) {
	c.owner = o
	if c.Readable() > 0 || c.Finished() {
		c.report(Readable)
	}
	if c.has(flagClosedReported) {
		c.report(Closed)
	}
	if c.state >= StateEstablished {
		c.report(Connected)
	}
}

// report notes an event for the owner.
func (c *Conn) report(e Events) {
	c.events |= e
	c.m.markDirty(c)
}

// ensureRare returns the part of c that few connections have.
func (c *Conn) ensureRare() *rare {
	if c.rare == nil {
		c.rare = &rare{corkAt: never}
	}
	return c.rare
}
