package transport

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/rdma/roce"
)

// State is the state of a queue pair (10.3.1, figure 124).
type State uint8

// The states.
const (
	Reset          State = iota
	Init                 // receives may be posted
	ReadyToReceive       // requests are answered
	ReadyToSend          // and made
	Drained              // SQD: no new request begins; those in flight complete
	SendError            // SQE: of UC and UD; requests are answered, sends are flushed
	Error                // nothing moves; all that is posted is flushed
	states
)

// String returns the name of the specification.
func (s State) String() string {
	return [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR", "unknown"}[min(s, states)]
}

// Errors of Modify, PostSend and PostRecv.
var (
	ErrTransition = errors.New("rdma: the queue pair cannot change to this state from the one it is in")
	ErrAttribute  = errors.New("rdma: an attribute of the queue pair is missing or out of range")
	ErrState      = errors.New("rdma: not permitted in the state of the queue pair")
	ErrQueueFull  = errors.New("rdma: the queue is full: poll completions first")
	ErrRequest    = errors.New("rdma: invalid work request")
)

// transitions lists, for each state, those that Modify changes to (table 96). SendError is only entered by an error.
var transitions = [states][]State{
	Reset:          {Reset, Init, Error},
	Init:           {Reset, Init, ReadyToReceive, Error},
	ReadyToReceive: {Reset, ReadyToSend, Error},
	ReadyToSend:    {Reset, ReadyToSend, Drained, Error},
	Drained:        {Reset, ReadyToSend, Drained, Error},
	SendError:      {Reset, ReadyToSend, Error},
	Error:          {Reset, Error},
}

// mayChange reports whether Modify leads from one state to another.
func mayChange(from, to State) bool {
	for _, s := range transitions[from] {
		if s == to {
			return true
		}
	}
	return false
}

// answers reports whether requests of the peer are executed.
func (s State) answers() bool { return s >= ReadyToReceive && s <= SendError }

// sends reports whether packets of own requests leave.
func (s State) sends() bool { return s == ReadyToSend || s == Drained }

// acceptsSends reports whether PostSend takes requests; it flushes them where sends is false.
func (s State) acceptsSends() bool { return s >= ReadyToSend && s < states }

// Attr are the attributes that Modify sets. Each is read in the states that the comment names.
type Attr struct {
	PKey uint16 // Init. 0 is the default partition, 0xffff
	QKey uint32 // Init, UD: of datagrams that are accepted

	MTU          uint32 // ReadyToReceive: payload of a packet, 256 to 4096 bytes, a power of two; both sides have the same
	DestQP       uint32 // ReadyToReceive, RC and UC
	RecvPSN      uint32 // ReadyToReceive: of the first packet
	Access       Access // ReadyToReceive: what the peer may do, where regions permit it
	MaxDestReads uint8  // ReadyToReceive, RC: READs and atomics that the peer may have outstanding
	RNRTimer     uint8  // ReadyToReceive, RC: code of the wait that an RNR NAK asks for

	SendPSN    uint32 // ReadyToSend: of the first packet
	MaxReads   uint8  // ReadyToSend, RC: READs and atomics outstanding
	Timeout    uint8  // ReadyToSend, RC: code of roce.AckTimeout; 0 never repeats
	Retries    uint8  // ReadyToSend, RC: 0 to 7 repetitions without progress
	RNRRetries uint8  // ReadyToSend, RC: the same after RNR NAKs; 7 is without end

	SelectiveRepeat bool   // ReadyToReceive, RC: packets behind a gap are kept; both sides have it or none
	Window          uint32 // ReadyToReceive: packets in flight, if fewer than Config.Window; with SelectiveRepeat the peer keeps as many
}

// defaultPKey is the partition of every port: full member.
const defaultPKey = 0xffff

// check returns what is wrong with the attributes that a change to s reads.
func (a *Attr) check(s State, t roce.Transport) error {
	wrong := func(name string, v any) error { return fmt.Errorf("%w: %s is %v", ErrAttribute, name, v) }
	switch s {
	case ReadyToReceive:
		switch {
		case a.MTU < 256 || a.MTU > 4096 || a.MTU&(a.MTU-1) != 0:
			return wrong("MTU", a.MTU)
		case a.RecvPSN > roce.Mask24:
			return wrong("RecvPSN", a.RecvPSN)
		case t != roce.UD && (a.DestQP > roce.Mask24 || a.DestQP == 0):
			return wrong("DestQP", a.DestQP)
		case a.RNRTimer > 31:
			return wrong("RNRTimer", a.RNRTimer)
		case a.MaxDestReads > mostReads:
			return wrong("MaxDestReads", a.MaxDestReads)
		}
	case ReadyToSend:
		switch {
		case a.SendPSN > roce.Mask24:
			return wrong("SendPSN", a.SendPSN)
		case a.Timeout > 31:
			return wrong("Timeout", a.Timeout)
		case a.Retries > 7:
			return wrong("Retries", a.Retries)
		case a.RNRRetries > 7:
			return wrong("RNRRetries", a.RNRRetries)
		case a.MaxReads > mostReads:
			return wrong("MaxReads", a.MaxReads)
		}
	}
	return nil
}

// mostReads bounds READs and atomics that one side has outstanding.
const mostReads = 128
