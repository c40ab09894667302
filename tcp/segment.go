// Package tcp is TCP (RFC 9293): a pure machine for each connection, and a Mux that holds those of one
// loop: their table, listeners, half-open and TIME-WAIT records, timers and budget.
//
// Segments come from the host (stack/host), which has verified checksums and merged neighbours of a
// burst (Segment.Packets), and leave by an Output, which finds the way, cuts what is longer than one
// segment, and adds headers. Applications are served by package socket.
//
// The package is pure: Input(now, ...) and Poll(now) are all there is. Nothing here locks: a Mux
// belongs to one loop.
package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// Segment is a received segment, or several that were merged (GRO): the same flow, flags but PSH,
// options but timestamps' values, ECN, each following the one before. Everything in it is borrowed.
type Segment struct {
	Seq, Ack uint32
	Window   uint16 // as sent, before scaling; of the last one
	Urgent   uint16
	Flags    wire.TCPFlags // PSH if any of them had it
	AE       bool          // the accurate ECN bit (RFC 9768)
	ECN      wire.ECN      // of the IP header
	Packets  uint16        // merged, at least 1
	Len      uint32        // bytes of payload, in all Payload
	Payload  [][]byte
	Options  wire.TCPOptions // of the last one
	Raw      wire.TCP        // header and payload as received, for signatures; nil when merged
}

// Outgoing is what a connection sends: one segment, or as many as SegmentSize cuts it into. It is
// borrowed for the call.
type Outgoing struct {
	Tuple       *wire.Tuple
	Header      wire.TCPHeader // of the first; the next ones count on Seq, and only the last has FIN and PSH, only the first CWR (but see ACE)
	AE          bool
	ACE         bool // AE, CWR and ECE are one number (RFC 9768 3.2.2), which all segments have
	ECN         wire.ECN
	TTL         uint8     // hop limit; 0 is the host's
	Payload     [2][]byte // in order; either may be empty
	SegmentSize int       // payload of each segment but the last, at most the peer's MSS less options; the whole payload where it is one
	RouteCache  *uint64   // eight bytes of the connection for the Output, such as which way it found; 0 at first; nil where there is no connection

	// Sign, where not nil, completes the options of each segment with its signature after it was cut,
	// and before its checksum is filled in.
	Sign func(seg wire.TCP)
}

// Output is where segments go.
type Output interface {
	// Send sends o; false says that there is no room now, nothing was sent, and the caller will try
	// again when it is polled next.
	Send(now clock.Time, o *Outgoing) bool

	// MTU returns the largest IP packet that the way of t takes, in bytes, from what is known now; 0 is
	// that there is no way.
	MTU(t *wire.Tuple) int

	// Offload returns the most payload that one Outgoing may carry, in bytes: large where segments are
	// cut behind the Output.
	Offload() int
}

// Events tell what has become possible on a connection.
type Events uint16

// The bits of Events.
const (
	Readable   Events = 1 << iota // data, or the end of it
	Writable                      // room in the send buffer, after there was none
	Connected                     // the handshake is complete
	Closed                        // nothing more will happen; Err says why
	Acceptable                    // a listener has a connection
	Urgent                        // urgent data lies ahead
)

// Owner is told what happened to its connection or listener, once at the end of each burst. It may
// call the connection's methods.
type Owner interface {
	Ready(ev Events)
}

// segmentLen is SEG.LEN (RFC 9293 3.3.1): SYN and FIN count.
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
