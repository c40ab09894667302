package netpeer

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/rdma/memory"
	"github.com/millrace/millrace/rdma/roce"
	"github.com/millrace/millrace/rdma/transport"
	"github.com/millrace/millrace/wire"
)

// linkSide is a queue pair without a node: time and packets are arguments.
type linkSide struct {
	qp   *transport.QP
	addr wire.Addr
	key  uint32
	done int
	bad  error // a request that failed
}

const (
	linkVA     = 0x7000_0000_0000
	linkDepth  = 1024
	linkFrames = 512
)

// linkOptions describe both queue pairs of a link.
type linkOptions struct {
	size      int
	mtu       uint32
	window    uint32
	selective bool
	timeout   uint8
}

func newLinkSide(host byte, o *linkOptions) (*linkSide, error) {
	s := &linkSide{addr: wire.AddrFrom4([4]byte{198, 18, 0, host})}
	r := rand.New(rand.NewPCG(uint64(host), 1))
	tab := memory.NewTable(r.Uint32)
	access := memory.LocalWrite | memory.RemoteWrite
	var err error
	if s.key, err = tab.Register(1, make([]byte, o.size), linkVA, access); err != nil {
		return nil, err
	}
	s.qp, err = transport.New(transport.Config{
		Service: roce.RC, QPN: 0x100 + uint32(host), PD: 1, Memory: tab, SendDepth: linkDepth, Recv: transport.NewRecvQueue(1, true, nil), Window: o.window,
		RecvDone: func(transport.Completion) {},
		SendDone: func(c transport.Completion) {
			if s.done++; c.Status != transport.Success {
				s.bad = errors.New(c.Status.String())
			}
		},
	})
	return s, err
}

func newLink(o linkOptions) (a, b *linkSide, err error) {
	a, err1 := newLinkSide(1, &o)
	b, err2 := newLinkSide(2, &o)
	if err := errors.Join(err1, err2); err != nil {
		return nil, nil, err
	}
	attr := transport.Attr{
		MTU: o.mtu, Access: memory.RemoteWrite, MaxDestReads: 1, MaxReads: 1, RNRTimer: 1, Timeout: o.timeout, Retries: 7, RNRRetries: 7,
		SelectiveRepeat: o.selective,
	}
	for _, pair := range [][2]*linkSide{{a, b}, {b, a}} {
		attr.DestQP = pair[1].qp.QPN()
		for _, state := range []transport.State{transport.Init, transport.ReadyToReceive, transport.ReadyToSend} {
			if err := pair[0].qp.Modify(state, attr, pair[1].addr); err != nil {
				return nil, nil, err
			}
		}
	}
	return a, b, nil
}

// write returns a WRITE of the whole region to the other side's.
func (s *linkSide) write(to *linkSide, size int) transport.SendWR {
	return transport.SendWR{
		Op: transport.OpWrite, Flags: transport.Signaled, RemoteAddr: linkVA, RKey: to.key,
		List: []transport.SGE{{Addr: linkVA, Length: uint32(size), LKey: s.key}},
	}
}

func (s *linkSide) envelope(to *linkSide) roce.Envelope {
	return roce.Envelope{Src: s.addr, Dst: to.addr, SrcPort: 50000, TTL: 64}
}

// RDMAQueues is two queue pairs whose packets are built into frames, parsed and verified, with nothing between: what one core does
// for both sides of the protocol.
type RDMAQueues struct {
	a, b   *linkSide
	wr     transport.SendWR
	frames [linkFrames][]byte
	lens   [linkFrames]int
	frame  roce.Frame
}

// NewRDMAQueues returns queue pairs that write size bytes at a time.
func NewRDMAQueues(size int) (*RDMAQueues, error) {
	q := new(RDMAQueues)
	for i := range q.frames {
		q.frames[i] = make([]byte, 4096+roce.Overhead)
	}
	var err error
	if q.a, q.b, err = newLink(linkOptions{size: size, mtu: 4096, window: 256}); err == nil {
		q.wr = q.a.write(q.b, size)
	}
	return q, err
}

// Step posts n requests, and carries packets until all have completed.
func (q *RDMAQueues) Step(n int) error {
	for range n {
		if err := q.a.qp.PostSend(&q.wr); err != nil {
			return err
		}
	}
	for want := q.a.done + n; q.a.done < want; {
		q.carry(q.a, q.b)
		q.carry(q.b, q.a)
		if q.a.bad != nil {
			return q.a.bad
		}
	}
	return nil
}

func (q *RDMAQueues) carry(from, to *linkSide) {
	e, n := from.envelope(to), 0
	from.qp.Poll(0, func(_ uint32, p *roce.Packet, pieces [][]byte) bool {
		if n == len(q.frames) {
			return false
		}
		q.lens[n] = roce.Build(q.frames[n], &e, p, pieces...)
		n++
		return true
	})
	for i := range n {
		if q.frame.Parse(q.frames[i][:q.lens[i]]) == roce.Accepted && q.frame.Verify() == roce.Accepted {
			to.qp.Input(0, &q.frame)
		}
	}
}

// LossyLink is a link in virtual time.
type LossyLink struct {
	Bits  float64       // per nanosecond
	Delay time.Duration // each way
	Loss  float64       // share of packets, each way

	now    clock.Time
	busy   clock.Time
	r      *rand.Rand
	flying flight
	seq    int
}

// inFlight is a frame that arrives at a time.
type inFlight struct {
	at    clock.Time
	seq   int
	to    *linkSide
	frame []byte
}

type flight []inFlight

func (f flight) Len() int { return len(f) }
func (f flight) Less(i, j int) bool {
	return f[i].at < f[j].at || f[i].at == f[j].at && f[i].seq < f[j].seq
}
func (f flight) Swap(i, j int) { f[i], f[j] = f[j], f[i] }
func (f *flight) Push(x any)   { *f = append(*f, x.(inFlight)) }
func (f *flight) Pop() any {
	old := *f
	x := old[len(old)-1]
	*f = old[:len(old)-1]
	return x
}

// Write writes 64 KiB so many times and returns how long it takes on the link, and how many packets were repeated.
func (l *LossyLink) Write(ctx context.Context, messages int, selective bool, seed uint64) (time.Duration, uint64, error) {
	a, b, err := newLink(linkOptions{size: chunk, mtu: 1024, window: 2048, selective: selective, timeout: 10})
	if err != nil {
		return 0, 0, err
	}
	l.r, l.now, l.busy, l.flying = rand.New(rand.NewPCG(seed, 6)), 0, 0, nil
	wr, posted := a.write(b, chunk), 0
	for a.done < messages && ctx.Err() == nil {
		for posted < messages && posted-a.done < linkDepth {
			if err := a.qp.PostSend(&wr); err != nil {
				return 0, 0, err
			}
			posted++
		}
		next := min(a.qp.Poll(l.now, l.output(a, b, true)), b.qp.Poll(l.now, l.output(b, a, false)))
		if len(l.flying) > 0 {
			next = min(next, l.flying[0].at)
		}
		if a.bad != nil || next == clock.Never {
			return 0, 0, fmt.Errorf("%d of %d messages: %w", a.done, messages, a.bad)
		}
		l.advance(next)
	}
	return time.Duration(l.now), a.qp.Counters().Repeated, ctx.Err()
}

// advance delivers what arrives until a time.
func (l *LossyLink) advance(next clock.Time) {
	l.now = max(l.now, next)
	for len(l.flying) > 0 && l.flying[0].at <= l.now {
		p := heap.Pop(&l.flying).(inFlight)
		var f roce.Frame
		if f.Parse(p.frame) == roce.Accepted && f.Verify() == roce.Accepted {
			p.to.qp.Input(l.now, &f)
		}
	}
}

// output is the way of packets from one side. With shaped, they share the rate of the link.
func (l *LossyLink) output(from, to *linkSide, shaped bool) transport.Output {
	e := from.envelope(to)
	return func(_ uint32, p *roce.Packet, pieces [][]byte) bool {
		frame := make([]byte, 1024+roce.Overhead)
		frame = frame[:roce.Build(frame, &e, p, pieces...)]
		at := l.now
		if shaped {
			l.busy = max(l.busy, l.now).Add(time.Duration(float64(8*len(frame)) / l.Bits))
			at = l.busy
		}
		if l.r.Float64() >= l.Loss {
			l.seq++
			heap.Push(&l.flying, inFlight{at.Add(l.Delay), l.seq, to, frame})
		}
		return true
	}
}
