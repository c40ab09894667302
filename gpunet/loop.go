package gpunet

import (
	"syscall"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpunet/queue"
	"github.com/millrace/millrace/socket"
)

const (
	// eventBudget bounds the events of a block in one poll.
	eventBudget = 64

	// A kernel wakes no loop: one that sleeps polls again after this, with connections and without.
	activePoll = clock.Time(50 * time.Microsecond)
	idlePoll   = clock.Time(time.Millisecond)
)

// loop has the blocks of one loop of the stack. It implements stack.Poller.
type loop struct {
	s      *Server
	blocks []*block
	now    clock.Time
}

// life is the state of a block.
type life uint8

const (
	silent    life = iota // it does not listen
	listening             // connections to its port are given to it
	stopped               // it was asked to end
	ended                 // it has ended, or destroyed its queue
)

// block is a thread block with its connections, by their index.
type block struct {
	l     *loop
	q     *queue.Block
	conns []*conn
	slow  []*conn // with bytes that found no slot in the queue
	port  uint16
	life  life
	ev    queue.Event
}

// Poll implements stack.Poller.
func (l *loop) Poll(now clock.Time) (n int) {
	l.now = now
	for _, b := range l.blocks {
		n += b.poll()
	}
	return n
}

// Arm implements stack.Poller.
func (l *loop) Arm() clock.Time {
	for _, b := range l.blocks {
		if b.q.Used() > 0 || b.q.Waiting() {
			return l.now + activePoll
		}
	}
	if len(l.blocks) == 0 {
		return clock.Never
	}
	return l.now + idlePoll
}

func (b *block) poll() (n int) {
	for n < eventBudget && b.q.Take(&b.ev) {
		b.handle(&b.ev)
		n++
	}
	b.q.Flush()
	slow := b.slow
	b.slow = nil
	for _, c := range slow {
		c.slow = false
		c.receive()
	}
	return n
}

func (b *block) handle(ev *queue.Event) {
	var c *conn
	if ev.Named {
		c = b.conns[ev.Conn.Index]
	}
	switch ev.Kind {
	case queue.Bytes:
		c.send(ev.Data)
	case queue.Credit:
		c.receive()
	case queue.ShutDown:
		c.end(shutting)
	case queue.Closed:
		b.conns[ev.Conn.Index] = nil
		c.end(closing)
	case queue.Listen:
		b.listen(ev.Port)
	case queue.Violation:
		b.l.s.stats.violations.Add(1)
		if c != nil {
			c.abort()
		}
	case queue.Exited, queue.BrokenQueue:
		if b.life != ended {
			b.l.s.stats.exited.Add(1)
		}
		b.life = ended
		b.abort()
	}
}

// listen answers glisten: a block has one port, which Serve has a listener for.
func (b *block) listen(port uint16) {
	switch {
	case b.life != silent:
		b.q.Listening(uint32(syscall.EINVAL))
	case !b.l.s.ports[port].Load():
		b.q.Listening(uint32(syscall.EADDRNOTAVAIL))
	default:
		b.life, b.port = listening, port
		b.q.Listening(0)
	}
}

func (b *block) stop() {
	if b.life == silent || b.life == listening {
		b.life = stopped
		b.q.Stop()
	}
	b.abort()
}

// abort resets all connections.
func (b *block) abort() {
	for _, c := range b.conns {
		if c != nil {
			c.abort()
		}
	}
}

// open assigns a connection to the block.
func (b *block) open(in socket.LoopConn) bool {
	k, ok := b.q.Open(remote(in))
	if !ok {
		return false
	}
	c := &conn{b: b, in: in, key: k}
	b.conns[k.Index] = c
	in.OnReady(c.ready)
	c.receive()
	return true
}
