package tcp

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/wire"
)

// TestConnectionsCarryDataBothWaysAndClose is RFC 9293 3.5 and 3.6, in the ordinary order.
func TestConnectionsCarryDataBothWaysAndClose(t *testing.T) {
	n := newNet(t)
	a, b, _, _ := n.open(t, nil, nil)
	n.pour(t, a, b, 300_000, 10*time.Second)
	n.pour(t, b, a, 300_000, 10*time.Second)
	a.CloseWrite(n.now)
	n.run(100 * time.Millisecond)
	if a.State() != StateFinWait2 || b.State() != StateCloseWait || !b.Finished() {
		t.Fatalf("after a FIN: %v and %v", a.State(), b.State())
	}
	b.Close(n.now)
	n.run(100 * time.Millisecond)
	if a.State() != StateTimeWait || a.Err() != nil || !a.Finished() {
		t.Fatalf("after both FINs: %v, %v", a.State(), a.Err())
	}
	a.Close(n.now)
	n.run(100 * time.Millisecond)
	if s := n.a.m.Stats(); s.Conns != 0 || s.Memory != 0 {
		t.Errorf("a has %d connections, %d bytes", s.Conns, s.Memory)
	}
	if s := n.b.m.Stats(); s.Conns != 0 || s.Memory != 0 {
		t.Errorf("b has %d connections, %d bytes", s.Conns, s.Memory)
	}
}

// TestStreamsSurviveLoss loses segments at random both ways.
func TestStreamsSurviveLoss(t *testing.T) {
	for _, congestion := range []string{"reno", "cubic", "bbr", "dctcp"} {
		for _, rate := range []float64{0.01, 0.1, 0.25} {
			for seed := range uint64(6) {
				n := newNet(t)
				r := rand.New(rand.NewPCG(seed, 1))
				lose := func(int, wire.TCP) bool { return r.Float64() < rate }
				o := &Options{Congestion: congestion, NoSACK: seed%3 == 1, NoTimestamps: seed%2 == 1, NoScaling: seed%5 == 2}
				a, b, _, _ := n.open(t, o, o)
				n.a.lose, n.b.lose = lose, lose
				n.pour(t, a, b, 200_000, 5*time.Hour)
				n.a.lose, n.b.lose = nil, nil
				a.Close(n.now)
				b.Close(n.now)
				n.run(3 * time.Minute)
				if s := n.a.m.Stats(); s.Conns != 0 || s.Memory != 0 {
					t.Errorf("%s %v %d: a has %d connections, %d bytes", congestion, rate, seed, s.Conns, s.Memory)
				}
			}
		}
	}
}

// TestDuplicatesAreCountedOnce has segments arrive again, whole, in part, merged, behind a hole and without text.
func TestDuplicatesAreCountedOnce(t *testing.T) {
	p := established(t, bare())
	want := uint64(0)
	send := func(what string, s seg, more uint64) {
		t.Helper()
		s.flags, s.ack, s.win = s.flags|ackF, 1, 10000
		p.send(s)
		if want += more; p.e.m.Stats().Duplicate != want {
			t.Errorf("%s: %d duplicates, want %d", what, p.e.m.Stats().Duplicate, want)
			want = p.e.m.Stats().Duplicate
		}
	}
	send("new", seg{seq: 1, n: 100}, 0)
	send("again", seg{seq: 1, n: 100}, 1)
	send("a part of it", seg{seq: 51, n: 50}, 1)
	send("more than it", seg{seq: 51, n: 100}, 1)
	send("behind a hole", seg{seq: 301, n: 100}, 0)
	send("again behind the hole", seg{seq: 301, n: 100}, 1)
	send("the hole, and a part of what is behind", seg{seq: 151, n: 200}, 1)
	send("an old ACK", seg{seq: 1}, 0)
	send("beyond the window", seg{seq: 1 << 20, n: 10}, 0)
	merged := parseSegment(&wireSegment{tuple: p.tuple, bytes: wire.AppendTCP(nil, &wire.TCPHeader{
		SrcPort: p.tuple.RemotePort, DstPort: p.tuple.LocalPort, Seq: p.irs + 1, Ack: p.iss + 1, Flags: ackF, Window: 10000,
	})})
	merged.Payload, merged.Len, merged.Packets = [][]byte{make([]byte, 40)}, 40, 4
	p.e.m.Input(p.now, &p.tuple, merged)
	want += 4
	send("four at once, and an old ACK", seg{seq: 1}, 0)
	send("behind the FIN's place", seg{seq: 401, flags: fin}, 0)
}

// TestBytesAckedIsPayload has SYN, payload and FIN acknowledged, of both kinds of open, and a FIN that only SACK reports.
func TestBytesAckedIsPayload(t *testing.T) {
	o := bare()
	o.NoSACK = false
	p := newPeer(t, o)
	check := func(what string, want uint64) {
		t.Helper()
		if i := p.c.Info(); i.BytesAcked != want {
			t.Errorf("%s: %d bytes acknowledged, want %d", what, i.BytesAcked, want)
		}
	}
	check("SYN sent", 0)
	p.send(seg{flags: syn | ackF, ack: 1, win: 10000, opts: wire.AppendNOP(wire.AppendSACKPermitted(wire.AppendMSS(nil, 1000)), 2)})
	check("SYN acknowledged", 0)
	p.write(100)
	check("sent", 0)
	p.send(seg{flags: ackF, seq: 1, ack: 41, win: 10000})
	check("a part", 40)
	p.c.CloseWrite(p.now)
	p.poll()
	p.send(seg{flags: ackF, seq: 1, ack: 41, win: 10000, opts: wire.AppendNOP(wire.AppendSACK(nil, wire.SACKBlock{Left: p.iss + 101, Right: p.iss + 102}), 2)})
	check("the FIN by SACK", 40)
	p.send(seg{flags: ackF, seq: 1, ack: 102, win: 10000})
	check("all", 100)

	p = fastOpenChild(t, 10)
	p.send(seg{flags: ackF, seq: 11, ack: 1, win: 10000})
	check("a passive open with data in the SYN", 0)
	p.write(5)
	p.send(seg{flags: ackF, seq: 11, ack: 6, win: 10000})
	check("its data", 5)
}

// TestPassiveBytesAcked has the listener's side send: its SYN-ACK was acknowledged before the connection began.
func TestPassiveBytesAcked(t *testing.T) {
	n := newNet(t)
	a, b, _, _ := n.open(t, nil, nil)
	for _, c := range []*Conn{a, b} {
		if i := c.Info(); i.BytesAcked != 0 {
			t.Errorf("%d bytes acknowledged after the handshake", i.BytesAcked)
		}
	}
	b.Write(n.now, make([]byte, 10))
	n.run(time.Second)
	if i := b.Info(); i.BytesAcked != 10 {
		t.Errorf("%d bytes acknowledged of 10", i.BytesAcked)
	}
}
