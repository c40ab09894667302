package loss

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// Ack holds what a received segment acknowledges. The caller has checked SND.UNA
// <= Una <= SND.NXT (RFC 9293 3.10.7.4, RFC 5961 5): an ACK of data that was never sent,
// with which a receiver could speed the sender up, does not come this far.
type Ack struct {
	Una  uint32
	SACK []wire.SACKBlock // as received and in that order, borrowed; the first may be a DSACK (RFC 2883)

	// Echo is when the segment was sent that caused this ACK, by the echoed timestamp (RFC
	// 7323 4.1), rounded down to Options.Tick; 0 is unknown.
	Echo clock.Time

	// Duplicate means that the segment has no data, no SYN, no FIN and an unchanged window
	// (RFC 5681 2). It counts only where the peer has no SACK.
	Duplicate bool

	// Packets is the number of ACKs that were merged into this one; 0 is 1.
	Packets uint16
}

// Events are the changes by an ACK or a timer.
type Events uint16

// The bits of Events.
const (
	Recover   Events = 1 << iota // fast recovery began: data was lost (RFC 6675 5, RFC 8985 6.2, RFC 6582 3.2)
	Recovered                    // all that was in flight when recovery or a timeout began is acknowledged
	Timeout                      // the retransmission timer ran out (RFC 6298 5)
	Backoff                      // it ran out again for the same data
	Undo                         // what began the episode was no loss: restore the window (RFC 4015, RFC 5682)
	ProbeLost                    // a tail loss was repaired by its own probe: reduce once (RFC 8985 7.4.2)
	Reneged                      // the peer has dropped data that it had SACKed (RFC 2018 8)
	Probe                        // the probe timer ran out: Scoreboard.Probe returns what to send (RFC 8985 7.3)
	Marked                       // segments were found lost: Board.Lost has them
	Reordered                    // a segment arrived that later ones had overtaken (RFC 8985 4)
)

// Sample holds the measurements of one ACK. Lengths are bytes of sequence space.
type Sample struct {
	Events    Events
	Acked     uint32 // newly acknowledged by Una
	Delivered uint32 // newly known to have arrived, by Una or SACK: each byte counts once
	Lost      uint32 // newly marked lost
	Flight    uint32 // pipe before this ACK (RFC 6675 4)

	RTT time.Duration // of the newest segment delivered that was sent once (Karn), or by its echo; 0: none

	// The delivery rate sample (draft-cheng-iccrg-delivery-rate-estimation 3.3): RateBytes
	// were delivered within RateInterval. An interval of 0 is no sample.
	RateBytes    uint64
	RateInterval time.Duration
	Prior        uint64 // Board.Delivered when the newest delivered segment was sent
	PriorLost    uint64 // Board.TotalLost then
	SentFlight   uint32 // pipe just after that segment was sent
	AppLimited   bool   // the sender had nothing to send in that time
	Duplicated   bool   // the peer reports a segment that arrived twice (DSACK, RFC 2883)
	Resent       bool   // the newest delivered segment was a retransmission
}
