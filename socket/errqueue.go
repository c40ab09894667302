package socket

import (
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/tcp/stamp"
)

// Times to keep of a TCPConn, see TCPOptions.Stamps (SO_TIMESTAMPING of Linux, software timestamps).
const (
	StampSent     = stamp.Sent     // SOF_TIMESTAMPING_TX_SCHED: the last byte of a write was given to the network layer
	StampAcked    = stamp.Acked    // SOF_TIMESTAMPING_TX_ACK: the peer has acknowledged it
	StampReceived = stamp.Received // SOF_TIMESTAMPING_RX_SOFTWARE: when it arrived, in Received
)

// Origin is the source of a QueuedError, with the numbers of struct sock_extended_err of Linux.
type Origin uint8

// Values of Origin.
const (
	OriginLocal Origin = 1 // the stack itself
	OriginICMP  Origin = 2
	OriginICMP6 Origin = 3
	OriginStamp Origin = 4 // no error: a time that Stamps asked for
)

// QueuedError is an entry of the error queue of a socket (MSG_ERRQUEUE, struct sock_extended_err).
type QueuedError struct {
	Err        error // with the errno; ENOMSG for OriginStamp, as on Linux
	Origin     Origin
	Type, Code uint8          // of the ICMP message
	Info       uint32         // EMSGSIZE: the MTU, bytes. OriginStamp: StampSent or StampAcked
	ID         uint32         // OriginStamp: offset of the last byte of the write, from the first write with Stamps on
	Time       time.Time      // OriginStamp
	From       netip.Addr     // sender of the ICMP message
	To         netip.AddrPort // destination of the datagram
	Data       []byte         // of the datagram, as far as the ICMP message quotes it
}

// wallTime converts a time of the loops' clock.
func wallTime(at clock.Time) time.Time { return time.Now().Add(-stack.Now().Sub(at)) }

// ReadError takes the oldest entry of the error queue, and does not block: EAGAIN is that there is none. It has
// the times that Stamps of the options asks for; why the connection ended is in SocketError. Pollers report
// Failed while there is an entry. At most 256 wait.
func (c *TCPConn) ReadError() (QueuedError, error) {
	c.h.Enter()
	defer c.h.Exit()
	if c.c == nil {
		return QueuedError{}, c.wrapError("recvmsg", os.ErrClosed)
	}
	e, ok := c.c.NextStamp()
	if !ok {
		return QueuedError{}, c.wrapError("recvmsg", syscall.EAGAIN)
	}
	return QueuedError{Err: syscall.ENOMSG, Origin: OriginStamp, Info: uint32(e.Kind), ID: e.ID, Time: wallTime(e.At)}, nil
}

// ReadError takes the oldest entry of the error queue, and does not block: EAGAIN is that there is none. ICMP
// errors are queued while QueueErrors of the options is on (IP_RECVERR, IPV6_RECVERR), at most 32 on each
// loop. Pollers report Failed while there is an entry. SocketError has the error of the next entry then, nil behind the
// last one, as on Linux.
func (c *UDPConn) ReadError() (q QueuedError, err error) {
	found := false
	err = c.each("recvmsg", func(e *udpShard) error {
		if !found {
			q, found = e.nextError()
		}
		return nil
	})
	if err == nil && !found {
		err = c.wrapError("recvmsg", nil, syscall.EAGAIN)
	}
	return q, err
}

func (e *udpShard) nextError() (QueuedError, bool) {
	x, ok := e.u.NextError()
	if !ok {
		return QueuedError{}, false
	}
	q := QueuedError{
		Err: errnos[x.Err], Origin: OriginICMP, Type: x.Type, Code: x.Code, Info: uint32(x.MTU), From: x.From.Netip(),
		To: netip.AddrPortFrom(x.Remote.Netip(), x.RemotePort), Data: x.Data,
	}
	switch {
	case x.Local:
		q.Origin = OriginLocal
	case !x.Remote.Is4():
		q.Origin = OriginICMP6
	}
	return q, true
}

// SocketError returns the error that ICMP has reported and forgets it (SO_ERROR); nil is none.
func (c *UDPConn) SocketError() error {
	var found error
	err := c.each("getsockopt", func(e *udpShard) error {
		if found == nil {
			found = e.u.TakeErr()
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.wrapError("getsockopt", nil, found)
}

// Failed reports whether SocketError or ReadError has something (EPOLLERR).
func (c *UDPConn) Failed() (failed bool) {
	_ = c.each("poll", func(e *udpShard) error { // closed: nothing
		failed = failed || e.u.Failed()
		return nil
	})
	return failed
}
