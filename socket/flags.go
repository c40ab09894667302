package socket

import (
	"io"
	"net"
	"syscall"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp"
)

// SendFlags say how WriteWith sends, as the flags of send(2) do.
type SendFlags uint8

// The bits of SendFlags.
const (
	More           SendFlags = 1 << iota // MSG_MORE: hold back what does not fill a segment, for at most 200 ms
	EndOfRecord                          // MSG_EOR: no segment has both the last byte and a later one
	SendOutOfBand                        // MSG_OOB: the last byte is urgent
	SendDontWait                         // MSG_DONTWAIT: return EAGAIN instead of waiting for room
	knownSendFlags = SendDontWait<<1 - 1
)

// ReceiveFlags say how ReadWith reads, as the flags of recv(2) do.
type ReceiveFlags uint8

// The bits of ReceiveFlags.
const (
	PeekData          ReceiveFlags = 1 << iota // MSG_PEEK: leave the data to be read again
	ReceiveOutOfBand                           // MSG_OOB: read the urgent byte
	ReceiveDontWait                            // MSG_DONTWAIT: return EAGAIN instead of waiting for data
	WaitAll                                    // MSG_WAITALL: return less than len(b) only at the end, an error or the urgent mark
	knownReceiveFlags = WaitAll<<1 - 1
)

// WriteWith is Write with flags. With SendDontWait it returns how many bytes had room, or EAGAIN if none had.
func (c *TCPConn) WriteWith(b []byte, f SendFlags) (int, error) {
	now := c.h.Enter()
	if f&^knownSendFlags != 0 {
		c.h.Exit()
		return 0, c.wrapError("write", syscall.EOPNOTSUPP)
	}
	n := 0
	if c.wq.head == nil {
		var err error
		n, err = c.writeWith(now, b, f)
		if n == len(b) || err != nil {
			c.h.Exit()
			return n, c.wrapError("write", err)
		}
	}
	if f&SendDontWait != 0 {
		c.h.Exit()
		return n, c.wrapError("write", wouldBlock(n))
	}
	w := newWaiter()
	w.buf, w.n, w.flags = b[n:], n, f
	c.wq.park(w, c, c.writeDeadline())
	c.h.Exit()
	w.wait()
	n, err := w.n, w.err
	w.free()
	return n, c.wrapError("write", err)
}

// wouldBlock returns the error of a call that must not wait and has moved n bytes.
func wouldBlock(n int) error {
	if n > 0 {
		return nil
	}
	return syscall.EAGAIN
}

// writeWith copies what the send buffer has room for, without blocking.
func (c *TCPConn) writeWith(now clock.Time, b []byte, f SendFlags) (n int, err error) {
	if err := c.writeError(now); err != nil {
		return 0, err
	}
	if c.flags&connecting != 0 { // not even queued, so that WriteReady says what Write does
		return 0, nil
	}
	switch {
	case f&SendOutOfBand != 0:
		n = c.c.WriteUrgent(now, b)
	case f&More != 0:
		n = c.c.WriteMore(now, b)
	default:
		n = c.c.Write(now, b)
	}
	if f&EndOfRecord != 0 && n == len(b) {
		c.c.EndRecord()
	}
	return n, nil
}

// Received holds the properties of a read.
type Received struct {
	Left int       // bytes that can be read behind those returned, 1 for the end alone (TCP_INQ)
	Time time.Time // when the last byte arrived, if Stamps of the options asks for it
}

// ReadWith is Read with flags. With ReceiveOutOfBand it returns the urgent byte, EINVAL without one or if
// UrgentOutOfBand of the options is off, or EAGAIN before it arrives; it does not wait.
func (c *TCPConn) ReadWith(b []byte, f ReceiveFlags) (n int, r Received, err error) {
	switch {
	case f&^knownReceiveFlags != 0:
		return 0, r, c.wrapError("read", syscall.EOPNOTSUPP)
	case f&ReceiveOutOfBand != 0:
		return c.readUrgent(b, f)
	}
	for {
		k, last, parked, err := c.tryReadWith(b[n:], f)
		n, r = n+k, last
		done := n == len(b) || f&WaitAll == 0 || f&PeekData != 0
		switch {
		case parked == nil && (err != nil || done):
			if n > 0 { // the error, if it lasts, is that of the next call
				err = nil
			}
			return n, r, c.wrapError("read", err)
		case parked != nil:
			if err := parked.waitAndFree(); err != nil {
				return n, r, c.wrapError("read", err)
			}
		case c.atMark():
			return n, r, nil
		}
	}
}

// tryReadWith reads what there is, or parks a waiter for data and returns it.
func (c *TCPConn) tryReadWith(b []byte, f ReceiveFlags) (n int, r Received, parked *waiter, err error) {
	now := c.h.Enter()
	defer c.h.Exit()
	if c.rq.head == nil || len(b) == 0 {
		if f&PeekData != 0 {
			n, err = c.peek(now, b)
		} else {
			n, err = c.read(now, b)
		}
		if n > 0 || err != nil || len(b) == 0 {
			return n, c.received(), nil, err
		}
	}
	if f&ReceiveDontWait != 0 {
		return 0, r, nil, syscall.EAGAIN
	}
	parked = newWaiter()
	c.rq.park(parked, c, c.readDeadline())
	return 0, r, parked, nil
}

// peek copies received data and leaves it in the queue.
func (c *TCPConn) peek(now clock.Time, b []byte) (n int, err error) {
	if _, err := c.read(now, nil); err != nil {
		return 0, err
	}
	for _, p := range c.c.Peek() {
		n += copy(b[n:], p)
	}
	if n == 0 && len(b) > 0 && c.c.Finished() {
		return 0, c.endError(io.EOF)
	}
	return n, nil
}

// received returns what is known of a read that has just been done.
func (c *TCPConn) received() Received {
	r := Received{Left: c.inQueue()}
	if c.c == nil {
		return r
	}
	if at, ok := c.c.ReceivedAt(); ok {
		r.Time = wallTime(at)
	}
	return r
}

// inQueue returns how many bytes can be read, 1 for the end alone.
func (c *TCPConn) inQueue() int {
	if c.c == nil {
		return 0
	}
	n := c.c.ReceiveQueue()
	if n == 0 && c.c.Finished() {
		return 1
	}
	return n
}

// readUrgent is ReadWith with ReceiveOutOfBand.
func (c *TCPConn) readUrgent(b []byte, f ReceiveFlags) (n int, r Received, err error) {
	c.h.Enter()
	defer c.h.Exit()
	n, err = c.urgent(b, f)
	return n, Received{Left: c.inQueue()}, c.wrapError("read", err)
}

func (c *TCPConn) urgent(b []byte, f ReceiveFlags) (int, error) {
	if c.c == nil {
		return 0, net.ErrClosed
	}
	urgent, err := c.c.ReadUrgent(f&PeekData != 0)
	switch {
	case err == tcp.ErrUrgentLater && c.c.PeerClosed():
		return 0, io.EOF
	case err != nil:
		return 0, err
	}
	return copy(b, []byte{urgent}), nil
}

func (c *TCPConn) atMark() bool {
	c.h.Enter()
	defer c.h.Exit()
	return c.c != nil && c.c.AtMark()
}

// Queues are the lengths of a connection's queues, in bytes.
type Queues struct {
	Receive int  // that a read returns before it stops at the urgent mark (SIOCINQ, FIONREAD)
	Send    int  // that are not acknowledged, the end counted as one (SIOCOUTQ)
	Unsent  int  // of Send, not sent yet (SIOCOUTQNSD)
	AtMark  bool // the next byte to be read is the urgent one (SIOCATMARK)
}

// Queues returns the lengths of the queues.
func (c *TCPConn) Queues() (Queues, error) {
	c.h.Enter()
	defer c.h.Exit()
	return LoopConn{c}.Queues()
}

// Queues is TCPConn.Queues for callbacks.
func (in LoopConn) Queues() (Queues, error) {
	c := in.c
	if c.c == nil {
		return Queues{}, c.wrapError("get", net.ErrClosed)
	}
	return Queues{c.c.ReceiveQueue(), c.c.Unacked(), c.c.Unsent(), c.c.AtMark()}, nil
}

// ReadWith is TCPConn.ReadWith for callbacks: it returns 0 bytes instead of EAGAIN.
func (in LoopConn) ReadWith(b []byte, f ReceiveFlags) (n int, err error) {
	c := in.c
	switch {
	case f&ReceiveOutOfBand != 0:
		n, err = c.urgent(b, f)
	case f&PeekData != 0:
		n, err = c.peek(c.h.Now(), b)
	default:
		n, err = c.read(c.h.Now(), b)
	}
	return n, c.wrapError("read", err)
}

// WriteWith is Write with flags.
func (in LoopConn) WriteWith(b []byte, f SendFlags) (int, error) {
	n, err := in.c.writeWith(in.c.h.Now(), b, f)
	return n, in.c.wrapError("write", err)
}
