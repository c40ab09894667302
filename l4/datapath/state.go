package datapath

import (
	"time"

	"github.com/millrace/millrace/wire"
)

// state is the progress of a connection. It selects the idle timeout, and decides whether the connection is
// confirmed: both sides have been seen.
//
//	SYN from client          SYN+ACK from backend         ACK from client
//	---------------> synSent --------------------> answered ------------> established
//
//	FIN of one side            FIN of the other           both acknowledged
//	---------------> halfClosed --------------> closing ------------------> timeWait
//
//	RST of either side, at any time
//	---------------> reset
//
//	direct modes, which do not see the backend:
//	SYN ---------> synSent ----- ACK from client ------> established
//
//	picked up, from either side:
//	ACK ---------> midFlow ----- verify (pickup.go) ---> established
//
// One direction of a half-closed connection may be used for as long as its ends like (RFC 9293 3.6).
type state uint8

const (
	stateFree state = iota
	stateUDP
	stateSynSent
	stateAnswered
	stateMidFlow // picked up mid-flow: its first packet here was not a SYN
	stateEstablished
	stateHalfClosed // one side has sent its FIN
	stateClosing    // both have, and at least one FIN is not acknowledged
	stateTimeWait   // both FINs are acknowledged
	stateReset
	states
)

// closed reports whether both ends have given the connection up: nothing but a segment that was on its way,
// or that is sent again, belongs to it. A SYN may take its place (RFC 9293 3.10.7.4, RFC 6191).
func (s state) closed() bool { return s >= stateTimeWait }

// confirmed reports whether both sides of a TCP connection have been seen. One that was reset may be half-open.
func (s state) confirmed() bool { return s >= stateEstablished && s != stateReset }

// ending reports whether the connection is no longer open in both directions.
func (s state) ending() bool { return s >= stateHalfClosed }

// fromClient moves the connection on by a segment with the given flags from the client. acknowledged says that both
// sides have acknowledged all that was sent.
func (c *Conn) fromClient(flags wire.TCPFlags, acknowledged bool) {
	if flags&(wire.FlagSYN|wire.FlagACK|wire.FlagRST) == wire.FlagACK &&
		(c.state == stateAnswered || c.direct() && c.state == stateSynSent) {
		c.state = stateEstablished
	}
	c.close(flags, connClientFIN, acknowledged)
}

// fromBackend moves the connection on by a segment with the given flags from the backend.
func (c *Conn) fromBackend(flags wire.TCPFlags, acknowledged bool) {
	if c.state == stateSynSent && flags&(wire.FlagSYN|wire.FlagACK) == wire.FlagSYN|wire.FlagACK {
		c.state = stateAnswered
	}
	c.close(flags, connBackendFIN, acknowledged)
}

// close moves the connection on by the RST, FIN or acknowledgement of a side; fin is the flag for its FIN. A FIN
// of a half-open connection is remembered until the connection is confirmed.
func (c *Conn) close(flags wire.TCPFlags, fin uint8, acknowledged bool) {
	const both = connClientFIN | connBackendFIN
	switch {
	case c.state == stateUDP || c.state.closed():
		return
	case flags.Has(wire.FlagRST):
		c.state = stateReset
		return
	case flags.Has(wire.FlagFIN):
		c.flags |= fin
	}
	switch seen := c.flags & both; {
	case c.state < stateEstablished || seen == 0:
	case seen != both:
		c.state = stateHalfClosed
	case acknowledged:
		c.state = stateTimeWait
	default:
		c.state = stateClosing
	}
}

// IdleTimes say how long a connection without packets is remembered: by how far it has come.
type IdleTimes struct {
	UDP            time.Duration
	TCPSYN         time.Duration // before the backend has answered
	TCPSYNReceived time.Duration // before the client has acknowledged the answer
	TCPEstablished time.Duration
	TCPHalfClosed  time.Duration // after the FIN of one side
	TCPFIN         time.Duration // after the FINs of both
	TCPReset       time.Duration // after a RST
}

// Timeouts are the idle times by state.
type Timeouts [states]ticks

// timeout returns the idle time of a connection. One that is picked up with both sides in sight is provisional: packets of both
// confirm it within a retransmission, or it was forged. In direct modes the client alone confirms it, and may have been idle
// for long.
func (s *Snapshot) timeout(c *Conn) ticks {
	if c.state == stateMidFlow && !c.direct() {
		return s.Timeouts[stateAnswered]
	}
	return s.Timeouts[c.state]
}

// NewTimeouts returns the idle times by state.
func NewTimeouts(t IdleTimes) Timeouts {
	return Timeouts{
		stateUDP:         ticksIn(t.UDP),
		stateSynSent:     ticksIn(t.TCPSYN),
		stateAnswered:    ticksIn(t.TCPSYNReceived),
		stateMidFlow:     ticksIn(t.TCPEstablished), // it may have been idle for long when it moves
		stateEstablished: ticksIn(t.TCPEstablished),
		stateHalfClosed:  ticksIn(t.TCPHalfClosed),
		stateClosing:     ticksIn(t.TCPFIN),
		stateTimeWait:    ticksIn(t.TCPFIN),
		stateReset:       ticksIn(t.TCPReset),
	}
}
