package socket

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/udp"
	"github.com/millrace/millrace/wire"
)

// UDPConn is a UDP socket. It implements net.PacketConn, and net.Conn if it is connected. Its methods may be
// called by several goroutines at once.
//
// An unconnected socket has a shard on each loop of the host, because the loop of a datagram follows from its
// 5-tuple. A connected one has a shard on the loop of its 5-tuple.
type UDPConn struct {
	s       *Stack
	fan     fanIn
	shards  []udpShard
	net     string
	bound   wire.Addr // of ListenPacketWith
	local   atomic.Pointer[net.UDPAddr]
	remote  atomic.Pointer[net.UDPAddr] // nil unless connected
	cmsgs   atomic.Uint32
	options optionSocket
	process atomic.Pointer[Process]
}

// udpShard is the part of a UDPConn on one loop, which guards it.
type udpShard struct {
	c       *UDPConn
	i       int
	h       *host.Host
	u       *udp.Socket // nil after Close
	wq      deadlineQueue
	pollers watchList
	onReady func(in LoopUDPConn, ev Events)
}

// Ready implements udp.Owner.
func (e *udpShard) Ready(ev udp.Events) {
	if e.u == nil {
		return
	}
	if e.onReady != nil {
		e.onReady(LoopUDPConn{e}, Events(ev))
	} else {
		e.completeCalls(ev)
	}
	out := Events(ev)
	if e.u.Failed() {
		out |= Failed
	}
	e.pollers.mark(out)
}

// completeCalls completes the calls of blocked goroutines.
func (e *udpShard) completeCalls(ev udp.Events) {
	if ev&udp.Readable != 0 {
		e.serveWaiters()
	}
	if ev&udp.Writable != 0 {
		e.completeWrites()
	}
}

// serveWaiters copies received datagrams to the buffers of blocked readers.
func (e *udpShard) serveWaiters() {
	if !e.u.Readable() {
		return
	}
	e.c.fan.serve(e.i, func(w *waiter) bool {
		w.n, w.err = e.read(w.msgs)
		return w.n > 0 || w.err != nil
	})
}

// read copies received datagrams without blocking, or returns the error of an ICMP message.
func (e *udpShard) read(msgs []udp.Message) (int, error) {
	if e.u == nil {
		return 0, net.ErrClosed
	}
	// An ICMP error is reported once, by the next read or write (RFC 1122 4.1.3.3).
	if err := e.u.TakeErr(); err != nil {
		return 0, err
	}
	return e.u.Read(e.h.Now(), msgs), nil
}

// completeWrites sends the messages of blocked writers that there is room for.
func (e *udpShard) completeWrites() {
	for e.wq.head != nil {
		w := e.wq.head
		n, err := e.write(w.msgs)
		w.n += n
		w.msgs = w.msgs[n:]
		if len(w.msgs) > 0 && err == nil {
			return
		}
		e.wq.wakeFirst(err)
	}
}

// write sends the messages that there is room for. It counts those that are lost in a way that UDP permits.
func (e *udpShard) write(msgs []udp.Message) (n int, err error) {
	if e.u == nil {
		return 0, net.ErrClosed
	}
	if e.wq.deadline != 0 && e.wq.expired(stack.Now()) {
		return 0, os.ErrDeadlineExceeded
	}
	if err := e.u.TakeErr(); err != nil {
		return 0, err
	}
	for n < len(msgs) {
		k, v := e.u.Write(e.h.Now(), msgs[n:])
		n += k
		// With a full transmit queue the rest waits: the stack does not lose datagrams for its own lack of room.
		if n == len(msgs) || v == packet.DropTxFull {
			return n, nil
		}
		if err := sendError(v); err != nil {
			return n, err
		}
		if v == packet.DropNoNeighbor && e.c.remote.Load() != nil {
			return n, udp.ErrHost // as the read or write after a neighbour has just not answered
		}
		n++
	}
	return n, nil
}

// readMsgs blocks until it has read at least one message. With dontWait it returns EAGAIN instead. The caller
// owns w.
func (c *UDPConn) readMsgs(w *waiter, msgs []udp.Message, dontWait bool) (int, error) {
	w.msgs = msgs
	park := w
	if dontWait {
		park = nil
	}
	for {
		i, err := c.fan.next(park, &c.fan)
		if err != nil {
			return 0, err
		}
		if i >= 0 {
			if n, err := c.readFrom(i, msgs); n > 0 || err != nil {
				return n, err
			}
			continue
		}
		if dontWait {
			return 0, syscall.EAGAIN
		}
		w.wait()
		return w.n, w.err
	}
}

// readFrom reads from one loop, and lets other readers have the rest.
func (c *UDPConn) readFrom(i int, msgs []udp.Message) (int, error) {
	e := &c.shards[i]
	e.h.Enter()
	defer e.h.Exit()
	n, err := e.read(msgs)
	if e.u != nil {
		e.serveWaiters()
	}
	return n, err
}

// writeMsgs sends all messages, or returns how many it sent before an error.
func (c *UDPConn) writeMsgs(w *waiter, msgs []udp.Message) (int, error) {
	e := c.sender(msgs)
	e.h.Enter()
	n := 0
	if e.wq.head == nil {
		var err error
		n, err = e.write(msgs)
		if n == len(msgs) || err != nil {
			e.h.Exit()
			return n, err
		}
	}
	w.msgs, w.n = msgs[n:], n
	e.wq.park(w, c)
	e.h.Exit()
	w.wait()
	return w.n, w.err
}

// sender returns the shard that sends to a peer. It is the same one for all datagrams of the peer, because
// the order of datagrams is kept on one loop only.
func (c *UDPConn) sender(msgs []udp.Message) *udpShard {
	if len(c.shards) == 1 || len(msgs) == 0 {
		return &c.shards[0]
	}
	return &c.shards[int(msgs[0].RemotePort)%len(c.shards)]
}

// expire implements expirer, for writes. The waiter does not know its shard, and few writes have deadlines:
// all shards are searched.
func (c *UDPConn) expire(w *waiter) {
	for i := range c.shards {
		e := &c.shards[i]
		e.h.Enter()
		e.wq.expire(w)
		e.h.Exit()
	}
}

// Close implements net.PacketConn. Blocked calls return net.ErrClosed.
func (c *UDPConn) Close() error {
	if !c.fan.close(net.ErrClosed) {
		return c.wrapError("close", nil, net.ErrClosed)
	}
	c.s.unregister(c)
	c.closeShards()
	return c.options.close()
}

func (c *UDPConn) closeShards() {
	for i := range c.shards {
		c.shards[i].close()
	}
}

func (e *udpShard) close() {
	now := e.h.Enter()
	defer e.h.Exit()
	if e.u == nil {
		return
	}
	e.u.Close(now)
	e.u = nil
	e.wq.wakeAll(net.ErrClosed)
	e.pollers.clear()
}

// LocalAddr returns a *net.UDPAddr.
func (c *UDPConn) LocalAddr() net.Addr { return c.local.Load() }

// RemoteAddr returns a *net.UDPAddr, or nil if the socket is not connected.
func (c *UDPConn) RemoteAddr() net.Addr {
	if a := c.remote.Load(); a != nil {
		return a
	}
	return nil
}

// SetDeadline implements net.Conn.
func (c *UDPConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *UDPConn) SetReadDeadline(t time.Time) error {
	return c.wrapError("set", nil, c.fan.setDeadline(t))
}

// SetWriteDeadline implements net.Conn. A write blocks only while the transmit queue of the device is full.
func (c *UDPConn) SetWriteDeadline(t time.Time) error {
	return c.each("set", func(e *udpShard) error {
		e.wq.setDeadline(t)
		return nil
	})
}

// each calls f for each shard, with its loop held.
func (c *UDPConn) each(op string, f func(e *udpShard) error) error {
	return c.wrapError(op, nil, c.fan.each(func(i int) error {
		if c.shards[i].u == nil {
			return net.ErrClosed
		}
		return f(&c.shards[i])
	}))
}

// wrapError wraps an error in a net.OpError.
func (c *UDPConn) wrapError(op string, to net.Addr, err error) error {
	if err == nil {
		return nil
	}
	if to == nil {
		to = c.RemoteAddr()
	}
	return opError(op, c.net, c.local.Load(), to, errnoError(op, err))
}
