package datapath

import (
	"time"

	"github.com/millrace/millrace/wire"
)

// state is how far a connection has come. It selects the idle timeout (RFC 5382 REQ-5), and is confirmed
// when both sides have been seen. Sequence numbers are not checked, so no packet ends a connection at once:
// its two ends may still use it.
//
//	SYN from client          SYN+ACK from backend         ACK from client
//	---------------> synSent --------------------> answered ------------> established
//	                    |                             |                       |
//	                    +----- FIN or RST of either side, at any time --------+----> closing
//
//	direct modes, which do not see the backend:
//	SYN ---------> synSent ----- ACK from client ------> established
//	other -------> midFlow ----- another, later -------> established
//
// A connection in closing lives on as long as packets come more often than the FIN timeout: a
// forged RST, or one half closed early (RFC 9293 3.6), costs a live connection nothing. A new SYN
// ends it.
type state uint8

const (
	stateFree state = iota
	stateUDP
	stateSynSent
	stateAnswered
	stateMidFlow // picked up mid-flow: its first packet here was not a SYN
	stateEstablished
	stateClosing
	states
)

// fromClient returns the state after a segment with the given flags from the client. direct is of
// the connection.
func (s state) fromClient(flags wire.TCPFlags, direct bool) state {
	switch {
	case flags&(wire.FlagFIN|wire.FlagRST) != 0:
		return stateClosing
	case flags&(wire.FlagSYN|wire.FlagACK) != wire.FlagACK:
		return s
	case s == stateAnswered || direct && s == stateSynSent:
		return stateEstablished
	}
	return s
}

// fromBackend returns the state after a segment with the given flags from the backend.
func (s state) fromBackend(flags wire.TCPFlags) state {
	switch {
	case flags&(wire.FlagFIN|wire.FlagRST) != 0:
		return stateClosing
	case s == stateSynSent && flags&(wire.FlagSYN|wire.FlagACK) == wire.FlagSYN|wire.FlagACK:
		return stateAnswered
	case s == stateMidFlow:
		return stateEstablished
	}
	return s
}

// IdleTimes say how long a connection without packets is remembered: by how far it has come.
type IdleTimes struct {
	UDP            time.Duration
	TCPSYN         time.Duration // before the handshake is done
	TCPEstablished time.Duration
	TCPFIN         time.Duration // after a FIN or RST
}

// Timeouts are the idle times by state.
type Timeouts [states]ticks

// NewTimeouts returns the idle times by state.
func NewTimeouts(t IdleTimes) Timeouts {
	return Timeouts{
		stateUDP:         ticksIn(t.UDP),
		stateSynSent:     ticksIn(t.TCPSYN),
		stateAnswered:    ticksIn(t.TCPSYN),
		stateMidFlow:     ticksIn(t.TCPEstablished), // it may have been idle for long when it moves
		stateEstablished: ticksIn(t.TCPEstablished),
		stateClosing:     ticksIn(t.TCPFIN),
	}
}
