package tcp

import "errors"

// Why a connection ended, or did not come to be.
var (
	ErrRefused     = errors.New("tcp: connection refused")              // RST in answer to SYN
	ErrReset       = errors.New("tcp: connection reset by peer")        // RST
	ErrAborted     = errors.New("tcp: connection aborted")              // by Abort
	ErrTimeout     = errors.New("tcp: connection timed out")            // no answer, user timeout, keepalive
	ErrUnreachable = errors.New("tcp: network is unreachable")          // no way, or ICMP while connecting
	ErrHost        = errors.New("tcp: host is unreachable")             // ICMP while connecting
	ErrAuth        = errors.New("tcp: peer does not sign its segments") // RFC 5925, RFC 2385
	ErrNoPort      = errors.New("tcp: no local port is free")
	ErrInUse       = errors.New("tcp: address already in use")
	ErrTooMany     = errors.New("tcp: too many connections")
	ErrMemory      = errors.New("tcp: buffer budget is spent")
	ErrBadOption   = errors.New("tcp: option out of range")
)

// reason is one of the errors that ends a connection, in a byte.
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
