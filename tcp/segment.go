// Package tcp is TCP (RFC 9293): a pure machine for each connection, and a Mux that holds
// those of one loop: their table, listeners, half-open and TIME-WAIT records, timers and
// budget.
//
// Segments come from the host (stack/host), which has verified checksums and merged
// neighbours of a burst (Segment.Packets), and leave by an Output, which finds the way,
// cuts what is longer than one segment, and adds headers. Applications are served by
// package socket.
//
// Parts that know nothing of connections are packages of their own: loss (what is lost and
// sent again), cc (how much may be in flight), ecn (feedback of marks), buffer (bytes, and
// the budget that all connections of a loop share), stamp (times for programs), auth
// (TCP-AO and MD5), syncookie and seqnum.
//
// The package is pure: Input(now, ...) and Poll(now) are all there is. Nothing here locks:
// a Mux belongs to one loop.
package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// Segment is a received segment, or several that were merged (GRO): one flow, the same
// flags but PSH, the same options but later timestamps, the same ECN field, and each
// following the one before. All of it is borrowed for the call.
type Segment struct {
	Seq, Ack uint32
	Window   uint16 // as sent, before scaling (RFC 7323 2.2); of the last segment merged
	Urgent   uint16
	Flags    wire.TCPFlags // with PSH where any of them had it
	AE       bool          // the accurate ECN bit (RFC 9768)
	ECN      wire.ECN      // of the IP header
	TTL      uint8         // or hop limit, the same of all segments merged
	Packets  uint16        // how many segments were merged, at least 1: ACK policy and ECN count packets, not bytes
	Len      uint32        // bytes of payload, in all Payload
	Payload  [][]byte
	Placed   bool            // the payload is not in Payload, but where Mux.Place said
	Options  wire.TCPOptions // of the last one
	Raw      wire.TCP        // header and payload as received, for signatures; nil when merged, since a signature covers one segment
}

// Outgoing is the output of a connection: one segment, or as many as SegmentSize cuts it into.
// The Output borrows it for the call; payload must be copied or be on its way when Send
// returns.
type Outgoing struct {
	Tuple       *wire.Tuple
	Header      wire.TCPHeader // of the first; the next ones advance Seq, only the last has FIN and PSH, only the first CWR (but see ACE)
	AE          bool
	ACE         bool // AE, CWR and ECE are one number (RFC 9768 3.2.2), which every segment carries
	ECN         wire.ECN
	TTL         uint8     // hop limit; 0 is the host's
	TOS         uint8     // DSCP; the lower two bits are 0, as ECN has them
	Fragment    bool      // routers may fragment it: no DF bit
	Payload     [2][]byte // in order; either may be empty
	SegmentSize int       // payload of each segment but the last, at most the peer's MSS less options; the whole payload where it is one
	RouteCache  *uint64   // eight bytes of the connection in which the Output may keep the route it found; 0 at first; nil without a connection

	// Sign, where not nil, completes each segment's options with its signature after
	// segmentation and before its checksum is filled in: a signature covers the segment as
	// it leaves (RFC 5925 5.1).
	Sign func(seg wire.TCP)
}

// Output is where segments go: the host's network layer, or a test.
type Output interface {
	// Send sends o. False is that there is no room now: nothing was sent, and the
	// connection tries again at the next Poll.
	Send(now clock.Time, o *Outgoing) bool

	// MTU returns the largest IP packet that the route of t takes, in bytes, as far as is
	// known now; 0 is no route.
	MTU(t *wire.Tuple) int

	// LinkMTU returns the largest IP packet that the interface of that route receives, in
	// bytes: what a path on the way to the peer takes does not bound what the peer may send.
	LinkMTU(t *wire.Tuple) int

	// Offload returns the most payload of one Outgoing, in bytes. It is large where
	// segments are cut behind the Output, so that a connection pays once for many of them.
	Offload() int
}

// Events are the conditions that are reported to an Owner.
type Events uint16

// The bits of Events.
const (
	Readable   Events = 1 << iota // data, or the end of it
	Writable                      // room in the send buffer, after there was none
	Connected                     // the handshake is complete
	Closed                        // the connection is over; Err has the reason
	Acceptable                    // a listener has a connection
	Urgent                        // urgent data lies ahead
	Stamped                       // NextStamp has something
)

// Owner handles the events of its connection or listener. Ready is called once at the end
// of each burst, from Poll, and may call the connection's methods: what they cause leaves
// with the same Poll.
type Owner interface {
	Ready(ev Events)
}

// behindSYN returns s as the processing of text takes it: the SYN has the number SEG.SEQ,
// and text and FIN follow it (RFC 9293 3.4).
func behindSYN(s *Segment) Segment {
	x := *s
	x.Seq++
	x.Flags &^= wire.FlagSYN
	return x
}

// segmentLen is SEG.LEN (RFC 9293 3.3.1): SYN and FIN take a sequence number each.
func segmentLen(s *Segment) uint32 {
	n := s.Len
	if s.Flags.Has(wire.FlagSYN) {
		n++
	}
	if s.Flags.Has(wire.FlagFIN) {
		n++
	}
	return n
}
