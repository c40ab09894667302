package tcp

import (
	"errors"

	"github.com/millrace/millrace/tcp/cc"
)

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

// String returns the name that RFC 9293 gives the state.
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
