package tcp

import (
	"time"

	"github.com/millrace/millrace/tcp/cc"
	"github.com/millrace/millrace/tcp/ecn"
	"github.com/millrace/millrace/wire"
)

// Info is the state of a connection at one moment, as tcp_info of Linux has it.
type Info struct {
	Tuple      wire.Tuple
	State      State
	Congestion string // algorithm

	RTT, RTTVar, MinRTT, RTO time.Duration // RFC 6298; 0 before the first measurement
	Cwnd, Ssthresh           uint64        // bytes
	InFlight                 uint64        // sent, and neither acknowledged nor presumed lost, bytes
	Pacing                   uint64        // bytes per second; 0 is unpaced
	DeliveryRate             uint64        // bytes per second, the latest sample

	MSS     int // payload of a full segment now, bytes
	PeerMSS int // as announced
	PathMTU int // bytes

	SendWindow, ReceiveWindow     uint32 // bytes
	SendScale, ReceiveScale       uint8
	SendQueue, ReceiveQueue       int // bytes: unacknowledged; unread
	SendBuffer, ReceiveBuffer     int // bytes: their limits now
	Timestamps, SACK, ECN, AccECN bool
	FastOpen                      bool // data in the SYN was taken

	BytesAcked, BytesReceived uint64 // of payload
	Retransmits               uint64 // segments
	Reordering                uint32 // segments by which one was overtaken; 0 is none seen
	CE                        uint32 // packets that came marked (ECN)

	// Accurate ECN (RFC 9768).
	DeliveredCE                   uint32    // packets that the peer reports as marked
	ReceivedByECN, DeliveredByECN [4]uint32 // bytes of payload by ECN field, as wire.ECN has it
}

// Stats counts what happened in a Mux since it was made. Fields called levels can also
// fall.
type Stats struct {
	Conns, HalfOpen, TimeWait int   // levels
	Memory                    int64 // level: bytes of buffers

	ActiveOpens, PassiveOpens   uint64 // RFC 4022
	Failed, Resets              uint64 // attempts that failed; connections that a RST ended
	SegmentsIn, SegmentsOut     uint64
	BytesIn, BytesOut           uint64
	Retransmits                 uint64 // segments
	Timeouts, Probes            uint64 // retransmission timeouts; tail loss probes
	ResetsOut                   uint64
	ChallengeAcks               uint64 // RFC 5961
	ZeroWindowProbes, KeepAlive uint64
	OutOfOrder, Duplicate       uint64 // segments
	Pruned                      uint64 // out-of-order data dropped for lack of memory, bytes
	StalledPeers                uint64 // connections reset because their peers held memory and did not move

	CookiesSent, CookiesGood, CookiesBad uint64 // RFC 4987
	FastOpens                            uint64 // SYNs whose data was accepted (RFC 7413)
	AcceptOverflow                       uint64
	AuthFailed                           uint64
	TimeWaitReused                       uint64 // RFC 6191
}

// Info returns the state of the connection.
func (c *Conn) Info() Info {
	c.ensureActive()
	b := &c.sender.scoreboard
	i := Info{
		Tuple: c.tuple, State: c.state,
		Congestion: congestionName(c.opt),
		RTT:        b.SRTT(), RTTVar: b.RTTVar(), MinRTT: b.MinRTT(), RTO: b.RTO(),
		Cwnd: uint64(c.sender.cc.Window()), Ssthresh: uint64(c.sender.cc.Threshold()), InFlight: uint64(b.Flight()),
		Pacing: c.sender.pacing(), DeliveryRate: c.sender.deliveryRate, Reordering: b.Reordering(),
		MSS: c.mss(), PeerMSS: int(c.peerMSS), PathMTU: int(c.segment) + headersLen(&c.tuple),
		SendWindow: c.sndEdge - c.una, ReceiveWindow: c.rcvAdv - c.rcvNxt,
		SendScale: c.sndScale, ReceiveScale: c.rcvScale,
		SendQueue: c.Unacked(), ReceiveQueue: c.Readable(),
		SendBuffer: c.sendLimit(), ReceiveBuffer: int(c.rcvLimit),
		Timestamps: c.has(flagTimestamps), SACK: c.has(flagSACK),
		ECN: c.ecn.mode != ecn.None, AccECN: c.ecn.mode == ecn.Accurate,
		FastOpen: c.has(flagFastOpen), BytesAcked: b.Delivered(), BytesReceived: c.received,
		Retransmits: c.retransmits(), CE: c.receivedCE(),
	}
	if a := c.accurate(); a != nil {
		i.DeliveredCE = a.out.CE()
		for mark := range i.ReceivedByECN {
			i.ReceivedByECN[mark], i.DeliveredByECN[mark] = a.in.Payload(wire.ECN(mark)), a.out.Payload(wire.ECN(mark))
		}
	}
	return i
}

// congestionName returns the name of the congestion control that o chooses.
func congestionName(o *Options) string {
	if o.Congestion == "" {
		return cc.Default
	}
	return o.Congestion
}

func (c *Conn) retransmits() uint64 {
	if c.rare == nil {
		return 0
	}
	return c.rare.retransmits
}
