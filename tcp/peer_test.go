package tcp

import (
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// peer is a scripted end of one connection. Numbers are relative: ours and the peer's both begin with
// the SYN at 0.
type peer struct {
	t        *testing.T
	e        *end
	now      clock.Time
	c        *Conn
	app      *app
	tuple    wire.Tuple
	iss, irs uint32 // ours, the peer's
	stamp    uint32 // the peer's timestamp, with stamps
	stamps   bool
	next     clock.Time
}

// seg is a segment of a script.
type seg struct {
	flags    wire.TCPFlags
	seq, ack uint32
	n        int // bytes of payload
	win      uint16
	urg      uint16
	ce       wire.ECN
	ae       bool
	opts     []byte
}

const (
	fin  = wire.FlagFIN
	syn  = wire.FlagSYN
	rst  = wire.FlagRST
	psh  = wire.FlagPSH
	ackF = wire.FlagACK
	urg  = wire.FlagURG
	ece  = wire.FlagECE
	cwr  = wire.FlagCWR
)

const peerISS = 0xfffffff0 // numbers wrap soon

// newPeer begins to connect; the SYN has been sent.
func newPeer(t *testing.T, o *Options) *peer {
	p := &peer{t: t, e: newEnd(t, clock.Time(time.Hour), 1), now: clock.Time(time.Hour), app: &app{}, irs: peerISS}
	var err error
	p.c, err = p.e.m.Connect(p.now, wire.Tuple{Local: addrA, Remote: addrB, RemotePort: testPort}, o, p.app)
	if err != nil {
		t.Fatal(err)
	}
	p.tuple, p.iss = p.c.Tuple(), p.c.una
	p.poll()
	return p
}

// bare are options without those of TCP.
func bare() *Options { return &Options{NoTimestamps: true, NoSACK: true, NoScaling: true} }

// established is a peer after the handshake, with a window of 10 000 bytes and segments of 1000.
func established(t *testing.T, o *Options) *peer {
	p := newPeer(t, o)
	p.expect(seg{flags: syn})
	p.send(seg{flags: syn | ackF, ack: 1, win: 10000, opts: wire.AppendMSS(nil, 1000)})
	p.expect(seg{flags: ackF, seq: 1, ack: 1})
	return p
}

// inState brings a peer to a state by the shortest way.
func inState(t *testing.T, s State) *peer {
	if s == StateSynReceived {
		p := newPeer(t, bare())
		p.expect(seg{flags: syn})
		p.send(seg{flags: syn, win: 10000})
		p.expect(seg{flags: syn | ackF, ack: 1})
		return p
	}
	p := established(t, bare())
	if s == StateCloseWait || s == StateLastAck {
		p.send(seg{flags: fin | ackF, seq: 1, ack: 1, win: 10000})
		p.expect(seg{flags: ackF, seq: 1, ack: 2})
	}
	if s >= StateFinWait1 && s != StateCloseWait {
		p.c.CloseWrite(p.now)
		p.poll()
		p.expect(seg{flags: fin | ackF, seq: 1, ack: p.c.rcvNxt - p.irs})
	}
	switch s {
	case StateFinWait2:
		p.send(seg{flags: ackF, seq: 1, ack: 2, win: 10000})
	case StateClosing:
		p.send(seg{flags: fin | ackF, seq: 1, ack: 1, win: 10000})
		p.expect(seg{flags: ackF, seq: 2, ack: 2})
	}
	if p.c.State() != s {
		t.Fatalf("in %v, want %v", p.c.State(), s)
	}
	return p
}

func (p *peer) poll() { p.next = p.e.m.Poll(p.now) }

// send has a segment arrive.
func (p *peer) send(s seg) packet.Verdict {
	p.t.Helper()
	opts := s.opts
	if p.stamps {
		opts = wire.AppendTimestamps(wire.AppendNOP(append([]byte{}, opts...), 2), p.stamp, 0)
	}
	h := wire.TCPHeader{
		SrcPort: p.tuple.RemotePort, DstPort: p.tuple.LocalPort, Seq: p.irs + s.seq, Ack: p.iss + s.ack,
		Flags: s.flags, Window: s.win, Urgent: s.urg, Options: opts,
	}
	b := wire.AppendTCP(nil, &h)
	// The stream begins behind the SYN, which takes the number before its first byte (RFC 9293 3.4).
	first := int(s.seq) - 1
	if s.flags.Has(syn) {
		first++
	}
	for i := range s.n {
		b = append(b, pattern(first+i))
	}
	wire.TCP(b).SetAE(s.ae)
	p.e.deliver(p.now, &wireSegment{tuple: p.tuple, ecn: s.ce, bytes: b})
	p.poll()
	return p.e.last
}

// expect takes the next segment that was sent.
func (p *peer) expect(want seg) wire.TCP {
	p.t.Helper()
	if len(p.e.out) == 0 {
		p.t.Fatalf("nothing was sent, want %v %d:%d(%d) ack %d", want.flags, want.seq, want.seq+uint32(want.n), want.n, want.ack)
	}
	w := p.e.out[0]
	p.e.out = p.e.out[1:]
	b := wire.TCP(w.bytes)
	got := seg{flags: b.Flags(), seq: b.Seq() - p.iss, n: len(b.Payload())}
	if got.flags.Has(ackF) {
		got.ack = b.Ack() - p.irs
	}
	if got.flags&^psh != want.flags&^psh || got.seq != want.seq || got.n != want.n || got.ack != want.ack {
		p.t.Fatalf("sent %v %d:%d(%d) ack %d, want %v %d:%d(%d) ack %d", got.flags, got.seq, got.seq+uint32(got.n), got.n, got.ack,
			want.flags, want.seq, want.seq+uint32(want.n), want.n, want.ack)
	}
	if want.win != 0 && b.Window() != want.win {
		p.t.Fatalf("window %d, want %d", b.Window(), want.win)
	}
	if want.ce != 0 && w.ecn != want.ce {
		p.t.Fatalf("sent %v, want %v", w.ecn, want.ce)
	}
	return b
}

// quiet checks that nothing was sent.
func (p *peer) quiet() {
	p.t.Helper()
	if len(p.e.out) > 0 {
		b := wire.TCP(p.e.out[0].bytes)
		p.t.Fatalf("sent %v %d(%d) ack %d", b.Flags(), b.Seq()-p.iss, len(b.Payload()), b.Ack()-p.irs)
	}
}

// after lets time pass, with the polls that are wanted.
func (p *peer) after(d time.Duration) {
	stop := p.now.Add(d)
	for p.next <= stop {
		p.now = max(p.next, p.now+1)
		p.poll()
	}
	p.now = stop
	p.poll()
}

// write has the application write n bytes.
func (p *peer) write(n int) {
	p.t.Helper()
	if got := p.c.Write(p.now, make([]byte, n)); got != n {
		p.t.Fatalf("wrote %d of %d", got, n)
	}
	p.poll()
}

// state checks the state and why it came to an end.
func (p *peer) state(s State, err error) {
	p.t.Helper()
	if p.c.State() != s || p.c.Err() != err {
		p.t.Fatalf("%v, %v; want %v, %v", p.c.State(), p.c.Err(), s, err)
	}
}
