package tcp

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// wireSegment is a segment on its way, as bytes of TCP.
type wireSegment struct {
	tuple wire.Tuple // as the receiver sees the flow
	at    clock.Time
	ecn   wire.ECN
	bytes []byte
}

// end is one of two hosts: a Mux whose segments go to the other after a delay.
type end struct {
	m       *Mux
	mtu     int // of the path
	link    int // MTU of the interface, where it is larger
	most    int // Offload
	full    bool
	out     []wireSegment
	lose    func(n int, t wire.TCP) bool // drops segment number n
	rewrite func(t wire.TCP)             // changes segments on their way; nil does not
	mark    func() bool                  // whether the path marks an ECN-capable segment; nil is never
	sent    int
	last    packet.Verdict
	t       testing.TB
}

func (e *end) MTU(*wire.Tuple) int     { return e.mtu }
func (e *end) LinkMTU(*wire.Tuple) int { return max(e.mtu, e.link) }
func (e *end) Offload() int            { return e.most }

// Send cuts what it gets into segments and checks what every Output may rely on.
func (e *end) Send(now clock.Time, o *Outgoing) bool {
	if e.full {
		return false
	}
	data := append(append([]byte{}, o.Payload[0]...), o.Payload[1]...)
	h := o.Header
	if len(h.Options) > wire.TCPMaxOptions {
		e.t.Fatalf("%d bytes of options", len(h.Options))
	}
	for first := true; first || len(data) > 0; first = false {
		n := len(data)
		if o.SegmentSize > 0 {
			n = min(n, o.SegmentSize)
		}
		x := h
		if n < len(data) {
			x.Flags &^= wire.FlagFIN | wire.FlagPSH
		}
		if !first && !o.ACE {
			x.Flags &^= wire.FlagCWR
		}
		seg := wire.TCP(append(wire.AppendTCP(nil, &x), data[:n]...))
		seg.SetAE(o.AE)
		if o.Sign != nil {
			o.Sign(seg)
		}
		if len(seg)+headersLen(o.Tuple)-wire.TCPLen > e.mtu {
			e.t.Fatalf("a segment of %d bytes for an MTU of %d", len(seg), e.mtu)
		}
		if e.rewrite != nil {
			e.rewrite(seg)
		}
		if e.lose == nil || !e.lose(e.sent, seg) {
			mark := o.ECN
			if mark != wire.NotECT && e.mark != nil && e.mark() {
				mark = wire.CE
			}
			e.out = append(e.out, wireSegment{o.Tuple.Reverse(), now, mark, seg})
		}
		e.sent++
		h.Seq += uint32(n)
		data = data[n:]
	}
	return true
}

// deliver gives the Mux a segment.
func (e *end) deliver(now clock.Time, w *wireSegment) {
	e.last = e.m.Input(now, &w.tuple, parseSegment(w))
}

// parseSegment makes a Segment of bytes.
func parseSegment(w *wireSegment) *Segment {
	b := wire.TCP(w.bytes)
	s := &Segment{
		Seq: b.Seq(), Ack: b.Ack(), Window: b.Window(), Urgent: b.Urgent(), Flags: b.Flags(), AE: b.AE(),
		ECN: w.ecn, Packets: 1, Len: uint32(len(b.Payload())), Payload: [][]byte{b.Payload()}, Raw: b,
	}
	b.ParseOptions(&s.Options)
	return s
}

// net is two ends in virtual time.
type net struct {
	a, b  *end
	now   clock.Time
	delay time.Duration
}

var (
	addrA = wire.AddrFrom4([4]byte{198, 18, 0, 1})
	addrB = wire.AddrFrom4([4]byte{198, 18, 0, 2})
)

const testPort = 80

func newNet(t testing.TB) *net {
	n := &net{now: clock.Time(time.Hour), delay: 5 * time.Millisecond}
	n.a, n.b = newEnd(t, n.now, 1), newEnd(t, n.now, 2)
	return n
}

func newEnd(t testing.TB, now clock.Time, seed byte) *end {
	e := &end{mtu: 1500, most: 64 << 10, t: t}
	e.m = NewMux(Config{Output: e, Now: now, Secret: [32]byte{seed}, Seed: uint64(seed)})
	return e
}

// run lets d pass.
func (n *net) run(d time.Duration) {
	stop := n.now.Add(d)
	for {
		next := min(n.a.m.Poll(n.now), n.b.m.Poll(n.now))
		for _, w := range [][]wireSegment{n.a.out, n.b.out} {
			if len(w) > 0 {
				next = min(next, w[0].at.Add(n.delay))
			}
		}
		if next > stop {
			n.now = stop
			return
		}
		n.now = max(n.now, next)
		n.pass(n.a, n.b)
		n.pass(n.b, n.a)
	}
}

// pass delivers what has arrived.
func (n *net) pass(from, to *end) {
	for len(from.out) > 0 && from.out[0].at.Add(n.delay) <= n.now {
		w := from.out[0]
		from.out = from.out[1:]
		to.deliver(n.now, &w)
	}
}

// app is an owner that collects events.
type app struct{ events Events }

func (a *app) Ready(e Events) { a.events |= e }

// open connects a to a listener of b.
func (n *net) open(t testing.TB, oa, ob *Options) (ca, cb *Conn, aa, ab *app) {
	t.Helper()
	aa, ab = &app{}, &app{}
	l, err := n.b.m.Listen(wire.Addr{}, testPort, 16, ob, ab)
	if err != nil {
		t.Fatal(err)
	}
	ca, err = n.a.m.Connect(n.now, wire.Tuple{Local: addrA, Remote: addrB, RemotePort: testPort}, oa, aa)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		n.run(10 * time.Millisecond)
		if cb = l.Accept(); cb != nil {
			break
		}
	}
	if cb == nil || ca.State() != StateEstablished || cb.State() != StateEstablished {
		t.Fatalf("not connected: %v", ca.State())
	}
	cb.SetOwner(ab)
	return ca, cb, aa, ab
}

// pour writes data to a and reads it from b until all has come, or limit has passed.
func (n *net) pour(t testing.TB, a, b *Conn, size int, limit time.Duration) {
	t.Helper()
	stop := n.now.Add(limit)
	buf := make([]byte, 32<<10)
	var wrote, read int
	for read < size {
		for wrote < size {
			k := min(len(buf), size-wrote)
			for i := range k {
				buf[i] = pattern(wrote + i)
			}
			k = a.Write(n.now, buf[:k])
			if k == 0 {
				break
			}
			wrote += k
		}
		n.run(time.Millisecond)
		for k := b.Read(n.now, buf); k > 0; k = b.Read(n.now, buf) {
			for i := range k {
				if buf[i] != pattern(read+i) {
					t.Fatalf("byte %d is %d, want %d", read+i, buf[i], pattern(read+i))
				}
			}
			read += k
		}
		if n.now > stop {
			t.Fatalf("after %v %d of %d bytes, %d written; %s; %s", limit, read, size, wrote, brief(a), brief(b))
		}
	}
}

func pattern(i int) byte { return byte(i*7 + i>>8*31 + i>>16) }

func brief(c *Conn) string {
	i := c.Info()
	return fmt.Sprintf("%v cwnd %d flight %d sendq %d window %d rtx %d rto %v", i.State, i.Cwnd, i.InFlight, i.SendQueue, i.SendWindow, i.Retransmits, i.RTO)
}
