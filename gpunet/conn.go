package gpunet

import (
	"syscall"

	"github.com/millrace/millrace/gpunet/queue"
	"github.com/millrace/millrace/socket"
)

// sending is the state of the direction from the block to the peer. It only goes forward.
type sending uint8

const (
	flowing  sending = iota
	shutting         // a FIN follows the backlog
	closing          // the connection is closed behind the backlog; its slot is free
	over             // nothing follows: it is shut down, closed or failed
)

// conn is a connection that a block has accepted.
type conn struct {
	b       *block
	in      socket.LoopConn
	key     queue.Conn
	backlog []byte // from the block, for which TCP had no space: at most a ring
	sending sending
	slow    bool // in block.slow
	gone    bool // TCP has ended
}

// ready is called by the loop with events of the connection.
func (c *conn) ready(_ socket.LoopConn, ev socket.Events) {
	if ev&(socket.Failed|socket.Closed) != 0 {
		c.fail(ev)
		return
	}
	c.drain()
	c.receive()
}

// fail reports a reset or a time-out to the block. Closed alone is the end of both directions, in order.
func (c *conn) fail(ev socket.Events) {
	c.receive()
	if ev&socket.Failed != 0 && !c.gone {
		c.b.l.s.stats.reset.Add(1)
		c.b.q.Reset(c.key, errnoOf(c.in.SocketError()))
	}
	c.gone, c.sending, c.backlog = true, over, nil
}

// receive passes arrived bytes to the block, and the FIN behind them.
func (c *conn) receive() {
	if c.gone || c.sending == closing {
		return
	}
	p := c.in.Peek()
	total := len(p[0]) + len(p[1])
	n := c.b.q.Deliver(c.key, p)
	if n > 0 {
		c.in.Discard(n)
	}
	switch {
	case n < total && !c.slow: // until there is a slot, or a credit
		c.slow = true
		c.b.slow = append(c.b.slow, c)
	case n == total && c.in.Ready()&socket.PeerClosed != 0:
		c.b.q.Finish(c.key)
	}
}

// send writes bytes of the block to TCP. What it has no space for is copied, and acknowledged later.
func (c *conn) send(data [2][]byte) {
	for _, p := range data {
		if len(c.backlog) == 0 && c.sending == flowing {
			n, _ := c.in.Write(p) // an error follows as an event
			c.b.q.Acknowledge(c.key, n)
			p = p[n:]
		}
		c.backlog = append(c.backlog, p...)
	}
}

// drain writes the backlog, then the FIN or close that waits for it.
func (c *conn) drain() {
	if len(c.backlog) > 0 {
		n, _ := c.in.Write(c.backlog)
		c.backlog = c.backlog[:copy(c.backlog, c.backlog[n:])]
		if c.sending != closing {
			c.b.q.Acknowledge(c.key, n)
		}
	}
	if len(c.backlog) > 0 {
		return
	}
	switch c.sending {
	case shutting:
		_ = c.in.CloseWrite()
		c.sending = over
	case closing:
		_ = c.in.Close()
		c.sending, c.gone = over, true
	}
}

// end follows a shutdown or close of the block.
func (c *conn) end(to sending) {
	if c.gone || c.sending == over && to == shutting {
		return
	}
	c.sending = to
	c.drain()
}

// abort resets the connection, and reports that to the block.
func (c *conn) abort() {
	if c.gone {
		return
	}
	c.b.q.Reset(c.key, uint32(syscall.ECONNRESET))
	_ = c.in.Abort()
	c.gone, c.sending, c.backlog = true, over, nil
}
