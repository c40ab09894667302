package tcp

import (
	"errors"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/auth"
	"github.com/millrace/millrace/tcp/cc"
	"github.com/millrace/millrace/tcp/seqnum"
	"github.com/millrace/millrace/tcp/stamp"
	"github.com/millrace/millrace/wire"
)

// Conn is one connection: its transmission control block (RFC 9293 3.3.1). It belongs to
// its Mux, and calls of its methods to the owner of the Mux's loop.
//
// The owner of a Conn ends with exactly one call of Close or Abort, whatever happened
// before, also after the event Closed: the call returns the Conn to the Mux, and the Conn
// must not be used after.
//
// Fields are ordered by size: a page of Conns fits one size class of the allocator (see
// TestIdleConnectionsAreSmall). State that only a working connection needs lies in active,
// which an idle one does not have.
type Conn struct {
	m         *Mux
	owner     Owner
	opt       *Options    // shared and never written: changed options are a new value
	*active               // nil while compacted
	rare      *rare       // nil for most connections
	auth      *auth.State // nil without keys
	compacted compacted   // valid while active is nil

	tuple wire.Tuple

	id      uint32
	link    uint32     // the next connection in the Mux's list of dirty or of free ones
	peerFIN uint32     // sequence number of the peer's FIN, with flagPeerFIN
	armedAt clock.Time // when the wheel's entry fires: never after the earliest deadline

	aliveAt clock.Time // when the last acceptable segment arrived; keepalive counts from it

	// The send sequence space (RFC 9293 3.3.1): una <= nxt <= end. The FIN takes number end
	// once the application has closed, so that nxt can be end+1.
	una, nxt uint32
	end      uint32 // behind the last byte that was written
	sndEdge  uint32 // right edge of the peer's window: SND.UNA+SND.WND
	wl1, wl2 uint32 // SND.WL1, SND.WL2
	maxWnd   uint32 // the largest window that the peer had: bounds old ACKs (RFC 5961 5.2) and partial segments

	// The receive sequence space: rcvNxt <= rcvAdv. The edge never moves left (RFC 9293
	// 3.8.6).
	rcvNxt   uint32
	rcvAdv   uint32 // right edge of the window that the peer knows: RCV.NXT+RCV.WND
	rcvLimit uint32 // receive buffer, bytes
	tsRecent uint32 // TS.Recent (RFC 7323 4.3)
	tsOffset uint32 // added to the clock for our timestamps (RFC 7323 7.1)
	counts   *counts

	ecn ecnState

	flags     flags
	events    Events // to report at the next Poll
	segment   uint16 // options and payload of a full segment, bytes: the peer's MSS, within the path MTU
	peerMSS   uint16
	largestIn uint16 // the largest payload of one segment received: estimates the peer's MSS for the ACK policy

	state              State
	reason             reason // why the connection ended, or would: an ICMP error waits here for the timeout
	sndScale, rcvScale uint8
	unansweredProbes   uint8 // of the window or of keepalive, since the last sign of life
	quickACKs          uint8 // segments still to be acknowledged at once
}

// byteRange is [left, right) of sequence space; left == right is none.
type byteRange struct{ left, right uint32 }

// rare holds fields that few connections need. Outside of Conn it costs the others eight bytes.
type rare struct {
	corkAt       clock.Time   // when data that is held back for more leaves; never
	sndUrgent    uint32       // SND.UP
	rcvUrgent    uint32       // RCV.UP
	urgentRead   bool         // ReadUrgent has returned the byte before rcvUrgent
	records      []uint32     // ends of records that are not acknowledged, in order, with flagRecords
	retransmits  uint64       // segments sent again
	stamps       *stamp.Queue // with flagStamps
	deferUntil   clock.Time   // with flagDeferred: when Accept may return it without data
	challengedAt uint32       // timestamp of the last challenge ACK, 0 for none
	cookie       []byte       // Fast Open cookie for the SYN-ACK
	probe        pathProbe
	accurate     *accurateECN // with accurate ECN
}

const never = clock.Never

// flags are the one-bit facts of a connection.
type flags uint32

const (
	flagTimestamps     flags = 1 << iota // negotiated (RFC 7323 3.2)
	flagSACK                             // negotiated (RFC 2018 2)
	flagScaling                          // negotiated (RFC 7323 2.2)
	flagDirty                            // in the Mux's dirty list
	flagOrphaned                         // the application has called Close or Abort and reads no more
	flagTable                            // in the Mux's table
	flagFIN                              // the application has closed its direction: the FIN has number end
	flagPeerFIN                          // the FIN of the peer has number peerFIN, though data before it may be missing
	flagAckNow                           // an ACK leaves with the next Poll
	flagWantWrite                        // a Write found no room: report Writable when there is some
	flagMore                             // the last Write announced more
	flagReadShutdown                     // CloseRead: received data is acknowledged and discarded
	flagWindowProbe                      // a zero-window probe with the byte at nxt is in flight; nxt does not count it
	flagPassive                          // began in LISTEN
	flagBlocked                          // in the Mux's blocked list
	flagInteractive                      // data was answered by data before the delayed ACK: ACKs are worth a delay
	flagSndUrgent                        // SND.UP is ahead of SND.UNA
	flagRcvUrgent                        // RCV.UP is ahead of what was read
	flagFastOpen                         // data in a SYN was accepted, ours or the peer's
	flagClosedReported                   // Closed was reported
	flagTailProbe                        // a tail loss probe is due
	flagReset                            // a RST is to be sent
	flagTriedFastOpen                    // our SYN had a Fast Open option
	flagSynAck                           // a SYN of the peer wants its SYN-ACK
	flagStamps                           // rare.stamps is there
	flagDeferred                         // the listener waits for data before Accept
	flagRecords                          // the send queue may have ends of records, in rare.records
	flagStarved                          // the budget refused a Write; in the Mux's list of writers while nothing is queued
	flagDataInSYN                        // the application writes before the SYN leaves, and its data goes with it
	flagNotECT                           // the handshake had a SYN or SYN-ACK without ECN: send nothing ECN-capable
	flagECNPaused                        // SYNs that asked this peer for ECN were lost: ours do not
	flagRefused                          // data in order found no memory; in the Mux's list of those that announce when there is some
)

func (c *Conn) has(f flags) bool { return c.flags&f != 0 }

// mss is the payload of a full segment with only the options that every segment has. SACK
// blocks make single segments shorter.
func (c *Conn) mss() int { return int(c.segment) - c.optionsLen() }

// window returns how many bytes of new sequence space the peer accepts.
func (c *Conn) window() uint32 { return seqnum.Distance(c.nxt, c.sndEdge) }

// unsent returns how many written bytes were never sent.
func (c *Conn) unsent() uint32 { return seqnum.Distance(c.nxt, c.end) }

// outstanding reports whether something that was sent is not acknowledged.
func (c *Conn) outstanding() bool { return c.una != c.nxt }

// finSent and finAcked report how far our FIN has come.
func (c *Conn) finSent() bool  { return c.has(flagFIN) && c.nxt == c.end+1 }
func (c *Conn) finAcked() bool { return c.finSent() && c.una == c.nxt }

// State returns the state.
func (c *Conn) State() State { return c.state }

// Err returns why the connection ended: nil while it has not, or where both sides closed in
// order.
func (c *Conn) Err() error {
	if c.state != StateClosed {
		return nil
	}
	return reasonErrors[c.reason]
}

// Tuple returns the addresses and ports.
func (c *Conn) Tuple() wire.Tuple { return c.tuple }

// Owner returns the handler of events.
func (c *Conn) Owner() Owner { return c.owner }

// SetOwner sets the handler of events. The next Poll reports to it what is already
// possible, because the events themselves may have gone to the owner before.
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

// ensureRare returns the part of the state that few connections have, and makes it where it
// is missing.
func (c *Conn) ensureRare() *rare {
	if c.rare == nil {
		c.rare = &rare{corkAt: never}
	}
	return c.rare
}

// State is the state of a connection (RFC 9293 3.3.2). LISTEN is a Listener's, and
// TIME-WAIT a record's; a Conn in TIME-WAIT only keeps what is not read yet.
type State uint8

// States.
const (
	StateClosed State = iota
	StateSynSent
	StateSynReceived
	StateEstablished
	StateFinWait1
	StateFinWait2
	StateCloseWait
	StateClosing
	StateLastAck
	StateTimeWait
)

var stateNames = [...]string{"CLOSED", "SYN-SENT", "SYN-RECEIVED", "ESTABLISHED", "FIN-WAIT-1", "FIN-WAIT-2", "CLOSE-WAIT", "CLOSING", "LAST-ACK", "TIME-WAIT"}

// String returns the name of the state in RFC 9293.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// Why a connection ended, or did not come to be. Err, Connect and Listen return them.
var (
	ErrRefused     = errors.New("tcp: connection refused")              // RST in answer to SYN
	ErrReset       = errors.New("tcp: connection reset by peer")        // RST
	ErrAborted     = errors.New("tcp: connection aborted")              // by Abort
	ErrTimeout     = errors.New("tcp: connection timed out")            // no answer, user timeout, keepalive
	ErrUnreachable = errors.New("tcp: network is unreachable")          // no way, or ICMP while connecting
	ErrHost        = errors.New("tcp: host is unreachable")             // ICMP while connecting
	ErrAuth        = errors.New("tcp: peer does not sign its segments") // RFC 5925, RFC 2385
	ErrPortSearch  = errors.New("tcp: the search for a free local port goes on")
	ErrNoPort      = errors.New("tcp: no local port is free")
	ErrInUse       = errors.New("tcp: address already in use")
	ErrConnected   = errors.New("tcp: a connection has these addresses and ports")
	ErrTooMany     = errors.New("tcp: too many connections")
	ErrMemory      = errors.New("tcp: buffer budget is spent")
	ErrBadOption   = errors.New("tcp: option out of range")
	ErrCongestion  = cc.ErrUnknown // no congestion control has the name of Options
)

// reason is one of the errors that end a connection, in a byte.
type reason uint8

const (
	closedInOrder reason = iota // in order, or not at all
	refused
	reset
	aborted
	timedOut
	unreachable
	hostUnreachable
	outOfMemory
)

var reasonErrors = [...]error{
	refused: ErrRefused, reset: ErrReset, aborted: ErrAborted, timedOut: ErrTimeout,
	unreachable: ErrUnreachable, hostUnreachable: ErrHost, outOfMemory: ErrMemory,
}
