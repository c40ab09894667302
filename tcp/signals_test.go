package tcp

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/wire"
)

// sackPeer is a peer that has agreed to SACK.
func sackPeer(t *testing.T) *peer {
	p := newPeer(t, &Options{NoTimestamps: true, NoScaling: true})
	p.expect(seg{flags: syn})
	p.send(seg{flags: syn | ackF, ack: 1, win: 10000, opts: wire.AppendSACKPermitted(wire.AppendNOP(wire.AppendMSS(nil, 1000), 2))})
	p.expect(seg{flags: ackF, seq: 1, ack: 1})
	return p
}

// blocks returns the SACK blocks of a segment, from the peer's SYN on.
func (p *peer) blocks(b wire.TCP) (out [][2]uint32) {
	var o wire.TCPOptions
	b.ParseOptions(&o)
	for _, x := range o.SACK[:o.SACKs] {
		out = append(out, [2]uint32{x.Left - p.irs, x.Right - p.irs})
	}
	return out
}

func (p *peer) wantBlocks(b wire.TCP, want ...[2]uint32) {
	p.t.Helper()
	got := p.blocks(b)
	if len(got) != len(want) {
		p.t.Fatalf("blocks %v, want %v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			p.t.Fatalf("blocks %v, want %v", got, want)
		}
	}
}

// TestSACKBlocks is RFC 2018 4 and RFC 2883 4.
func TestSACKBlocks(t *testing.T) {
	p := sackPeer(t)
	at := func(seq uint32, n int) wire.TCP {
		p.send(seg{flags: ackF, seq: seq, ack: 1, win: 10000, n: n})
		b := wire.TCP(p.e.out[0].bytes)
		p.e.out = p.e.out[1:]
		return b
	}
	p.wantBlocks(at(101, 100), [2]uint32{101, 201})
	p.wantBlocks(at(301, 100), [2]uint32{301, 401}, [2]uint32{101, 201})
	p.wantBlocks(at(501, 100), [2]uint32{501, 601}, [2]uint32{301, 401}, [2]uint32{101, 201})
	p.wantBlocks(at(201, 50), [2]uint32{101, 251}, [2]uint32{501, 601}, [2]uint32{301, 401})
	// a duplicate behind the hole: first what came twice, then the range that holds it
	p.wantBlocks(at(301, 100), [2]uint32{301, 401}, [2]uint32{301, 401}, [2]uint32{101, 251}, [2]uint32{501, 601})
	p.wantBlocks(at(1, 100), [2]uint32{301, 401}, [2]uint32{501, 601}) // the hole is filled up to 251
	// a duplicate of what was acknowledged
	p.wantBlocks(at(101, 100), [2]uint32{101, 201}, [2]uint32{301, 401}, [2]uint32{501, 601})
	p.wantBlocks(at(251, 50), [2]uint32{501, 601})
	p.wantBlocks(at(401, 100))
	if p.c.Readable() != 600 {
		t.Errorf("%d bytes", p.c.Readable())
	}
}

// TestClassicECN is RFC 3168 6.1: a mark is echoed until the peer has reduced its window, and an echo
// answered once by CWR.
func TestClassicECN(t *testing.T) {
	o := bare()
	o.ECN = ECNClassic
	p := newPeer(t, o)
	p.expect(seg{flags: syn | ece | cwr})
	p.send(seg{flags: syn | ackF | ece, ack: 1, win: 10000, opts: wire.AppendMSS(nil, 1000)})
	p.expect(seg{flags: ackF, seq: 1, ack: 1})
	p.send(seg{flags: ackF, seq: 1, ack: 1, win: 10000, n: 10, ce: wire.CE})
	p.expect(seg{flags: ackF | ece, seq: 1, ack: 11})
	p.send(seg{flags: ackF, seq: 11, ack: 1, win: 10000, n: 10, ce: wire.ECT0})
	p.expect(seg{flags: ackF | ece, seq: 1, ack: 21})
	p.send(seg{flags: ackF | cwr, seq: 21, ack: 1, win: 10000, n: 10, ce: wire.ECT0})
	p.expect(seg{flags: ackF, seq: 1, ack: 31})

	p.write(4000)
	for i := range uint32(4) {
		p.expect(seg{flags: ackF, seq: 1 + 1000*i, ack: 31, n: 1000, ce: wire.ECT0})
	}
	before := p.c.Info().Cwnd
	p.after(10 * time.Millisecond)
	p.send(seg{flags: ackF | ece, seq: 31, ack: 1001, win: 10000})
	after := p.c.Info().Cwnd
	if after >= before {
		t.Errorf("the window is %d after an echo, was %d", after, before)
	}
	p.send(seg{flags: ackF | ece, seq: 31, ack: 2001, win: 10000})
	if got := p.c.Info().Cwnd; got < after {
		t.Errorf("a second reduction in the round trip: %d, was %d", got, after)
	}
	p.send(seg{flags: ackF, seq: 31, ack: 4001, win: 10000})
	p.write(2000)
	p.expect(seg{flags: ackF | cwr, seq: 4001, ack: 31, n: 1000, ce: wire.ECT0})
	p.expect(seg{flags: ackF, seq: 5001, ack: 31, n: 1000, ce: wire.ECT0})
	p.send(seg{flags: ackF, seq: 31, ack: 6001, win: 10000})
	p.write(1000)
	p.expect(seg{flags: ackF, seq: 6001, ack: 31, n: 1000, ce: wire.ECT0})
}

// TestSynAgainStillAsksForECN has other connections to the server fail between a SYN and the next: only the first SYN
// decides whether a connection asks, so that its SYN-ACK is read for what all of them asked (RFC 9768 3.1.5).
func TestSynAgainStillAsksForECN(t *testing.T) {
	o := bare()
	o.ECN = ECNClassic
	p := newPeer(t, o)
	p.expect(seg{flags: syn | ece | cwr})
	for range 2 {
		p.e.m.passive.ecnFailures.Failed(int64(p.now), &p.c.tuple.Remote)
	}
	p.after(time.Second)
	p.expect(seg{flags: syn | ece | cwr})
	p.send(seg{flags: syn | ackF | ece, ack: 1, win: 10000, opts: wire.AppendMSS(nil, 1000)})
	p.expect(seg{flags: ackF, seq: 1, ack: 1})
	if !p.c.Info().ECN {
		t.Error("ECN is not agreed")
	}
}

// TestAccurateECN is RFC 9768 3.1 and 3.2: the handshake tells how SYN and SYN-ACK came, then each ACK
// how many packets were marked.
func TestAccurateECN(t *testing.T) {
	o := bare()
	o.ECN = ECNAccurate
	p := newPeer(t, o)
	if b := p.expect(seg{flags: syn | ece | cwr}); !b.AE() {
		t.Error("the SYN does not ask for it")
	}
	p.send(seg{flags: syn | ackF | cwr, ack: 1, win: 10000, ce: wire.ECT0, opts: wire.AppendMSS(nil, 1000)})
	if b := p.expect(seg{flags: ackF, seq: 1, ack: 1}); !b.AE() { // 0b100: the SYN-ACK came as ECT(0)
		t.Error("the ACK does not tell how the SYN-ACK came")
	}
	if i := p.c.Info(); !i.AccECN {
		t.Error("not agreed")
	}
	ace := func(b wire.TCP) int {
		n := int(b.Flags() >> 6)
		if b.AE() {
			n |= 4
		}
		return n
	}
	for i, want := range []int{6, 7, 0, 1} {
		p.send(seg{flags: ackF | ece, ae: true, seq: 1 + 10*uint32(i), ack: 1, win: 10000, n: 10, ce: wire.CE})
		b := wire.TCP(p.e.out[0].bytes)
		if p.e.out = p.e.out[1:]; ace(b) != want {
			t.Errorf("after %d marks ACE is %d, want %d", i+1, ace(b), want)
		}
	}
	p.write(3000)
	before := p.c.Info().Cwnd
	p.send(seg{flags: ackF | ece, ae: true, seq: 41, ack: 1001, win: 10000}) // 5: none
	if got := p.c.Info().Cwnd; got < before {
		t.Errorf("reduced without a mark: %d", got)
	}
	p.send(seg{flags: ackF | cwr, ae: true, seq: 41, ack: 2001, win: 10000}) // 6: one
	if got := p.c.Info().Cwnd; got >= before {
		t.Errorf("not reduced: %d, was %d", got, before)
	}
	if got := p.c.accurate().out.CE(); got != 1 {
		t.Errorf("the peer has reported %d", got)
	}
}

// accurate is a peer that has agreed to accurate ECN, and has got the ACK of its SYN-ACK.
func accurate(t *testing.T) *peer {
	o := bare()
	o.ECN = ECNAccurate
	p := newPeer(t, o)
	p.expect(seg{flags: syn | ece | cwr})
	p.send(seg{flags: syn | ackF | cwr, ack: 1, win: 10000, opts: wire.AppendMSS(nil, 1000)})
	p.expect(seg{flags: ackF | cwr, seq: 1, ack: 1})
	return p
}

// TestEverySegmentHasTheCounter is RFC 9768 3.2.2: CWR is a bit of a number, which offload must not take for RFC 3168's.
func TestEverySegmentHasTheCounter(t *testing.T) {
	p := accurate(t)
	p.send(seg{flags: ackF | ece, ae: true, seq: 1, ack: 1, win: 10000, n: 10, ce: wire.CE})
	p.expect(seg{flags: ackF | cwr, seq: 1, ack: 11})
	p.write(3000)
	for _, s := range []seg{{seq: 1, n: 988}, {seq: 989, n: 1000}, {seq: 1989, n: 1000}, {seq: 2989, n: 12}} { // the first has the option
		s.flags, s.ack = ackF|cwr, 11
		if b := p.expect(s); !b.AE() {
			t.Error("not 6")
		}
	}
}

// TestMarksOfPureACKsCount is RFC 9768 3.2.2: r.cep counts every packet of the peer, but each of those without data is
// not answered, as two such ends would never be silent again (section 3.2.2.5.1). Of marked data one in two is
// acknowledged at once, and the first after a packet that was not marked.
func TestMarksOfPureACKsCount(t *testing.T) {
	p := accurate(t)
	p.send(seg{flags: ackF | ece, ae: true, seq: 1, ack: 1, win: 10000, ce: wire.CE})
	p.send(seg{flags: ackF | ece, ae: true, seq: 1, ack: 1, win: 10000, ce: wire.CE})
	p.quiet()
	p.write(10)
	p.expect(seg{flags: ackF | ece | cwr, seq: 1, ack: 1, n: 10}) // 5 and 2 are 7
	p.send(seg{flags: ackF | ece, ae: true, seq: 1, ack: 11, win: 10000, ce: wire.CE})
	p.quiet()
	for range 2 {
		p.quiet()
		p.send(seg{flags: ackF | ece, ae: true, seq: 1, ack: 11, win: 10000, ce: wire.CE})
	}
	p.expect(seg{flags: ackF | cwr, seq: 11, ack: 1}) // one in three is: 10
	p.c.quickACKs = 0
	p.send(seg{flags: ackF | ece, ae: true, seq: 1, ack: 11, win: 10000, n: 10, ce: wire.CE})
	p.quiet()
	p.send(seg{flags: ackF | ece, ae: true, seq: 11, ack: 11, win: 10000, n: 10, ce: wire.CE})
	p.expect(seg{flags: ackF, seq: 11, ack: 21}) // with data one in two: 12
}

// TestAMarkedSYNIsNotCounted is RFC 9768 3.2.2.2: the SYN-ACK reports a marked SYN, the server's counter does not. It is
// congestion; and since the SYN was not ECN-capable, the path has changed it, so that nothing else is (section 3.2.2.3).
func TestAMarkedSYNIsNotCounted(t *testing.T) {
	o := bare()
	o.ECN = ECNAccurate
	p := newPeer(t, o)
	p.expect(seg{flags: syn | ece | cwr})
	p.send(seg{flags: syn | ackF | cwr, ae: true, ack: 1, win: 10000, opts: wire.AppendMSS(nil, 1000)})
	p.expect(seg{flags: ackF | cwr, seq: 1, ack: 1})
	before := p.c.Info().Cwnd
	if before >= 10_000 {
		t.Errorf("the window is %d after a marked SYN", before)
	}
	p.write(4000)
	if w := p.e.out[0]; w.ecn != wire.NotECT {
		t.Errorf("sent %v", w.ecn)
	}
	p.send(seg{flags: ackF | ece, ae: true, seq: 1, ack: 1001, win: 10000}) // 5 still
	if got := p.c.Info().Cwnd; got < before {
		t.Errorf("reduced from %d to %d without a mark", before, got)
	}
	p.send(seg{flags: ackF | cwr, ae: true, seq: 1, ack: 2001, win: 10000}) // 6
	if got := p.c.Info().Cwnd; got >= before {
		t.Errorf("not reduced by a mark: %d, was %d", got, before)
	}
}

// TestLateACKsReportNoMarks is RFC 9768 3.2.2.5: the field of an ACK that brings nothing new may be older than the
// last, and would look like seven marks.
func TestLateACKsReportNoMarks(t *testing.T) {
	p := accurate(t)
	p.write(4000)
	p.send(seg{flags: ackF | cwr, ae: true, seq: 1, ack: 1001, win: 10000}) // 6: one
	reduced := p.c.Info().Cwnd
	p.send(seg{flags: ackF | cwr, ae: true, seq: 1, ack: 4001, win: 10000})
	p.write(4000)
	grown := p.c.Info().Cwnd
	if grown < reduced {
		t.Fatalf("%d, then %d", reduced, grown)
	}
	p.send(seg{flags: ackF | ece, ae: true, seq: 1, ack: 4001, win: 10000}) // 5: from before
	if got := p.c.Info().Cwnd; got < grown {
		t.Errorf("reduced from %d to %d by an ACK that was overtaken", grown, got)
	}
}

// TestLaterACKsAreRecognized: a newer timestamp shows one.
func TestLaterACKsAreRecognized(t *testing.T) {
	for _, c := range []struct {
		stamps bool
		val    uint32
		sacks  uint8
		want   bool
	}{
		{true, 101, 0, true},
		{true, 100, 0, false},
		{true, 100, 1, false},
		{true, 99, 1, false},
		{false, 0, 1, false}, // what it SACKs may be known already: what it delivers decides
		{false, 0, 0, false},
	} {
		x := Conn{tsRecent: 100}
		if c.stamps {
			x.flags = flagTimestamps
		}
		var s Segment
		s.Options.TSVal, s.Options.SACKs = c.val, c.sacks
		if x.later(&s) != c.want {
			t.Errorf("%+v", c)
		}
	}
}

// TestClearedACEEndsECN is RFC 9768 3.2.2.1, Table 4: where the field of the handshake's last ACK has been cleared on its
// way, nothing that is sent is ECN-capable; nor where it reports a mark of a SYN-ACK that was not (section 3.2.2.3).
func TestClearedACEEndsECN(t *testing.T) {
	for _, c := range []struct {
		flags wire.TCPFlags
		ae    bool
		want  wire.ECN
		told  uint32
	}{{cwr, false, wire.ECT0, 0}, {cwr, true, wire.NotECT, 1}, {ece, false, wire.ECT0, 0}, {ece, true, wire.ECT0, 0}, {0, false, wire.NotECT, 0}} {
		n := newNet(t)
		n.a.rewrite = func(s wire.TCP) {
			if !s.Flags().Has(syn) {
				s.SetFlags(s.Flags()&^(ece|cwr) | c.flags)
				s.SetAE(c.ae)
			}
		}
		_, b, _, _ := n.open(t, &Options{ECN: ECNAccurate}, &Options{ECN: ECNAccurate})
		if got := b.accurate().out.CE(); c.told != got {
			t.Errorf("flags %v: %d counted, want %d", c.flags, got, c.told)
		}
		b.Write(n.now, []byte("text"))
		b.m.Poll(n.now)
		if got := n.b.out[len(n.b.out)-1].ecn; got != c.want {
			t.Errorf("flags %v: sent %v, want %v", c.flags, got, c.want)
		}
	}
}

// TestMarksOfBothDirectionsAreCounted: whatever the path marks, each end knows in the end what the other has received,
// by option exactly and by the ACE field in its low bits, though ACKs are lost and segments leave in bursts.
func TestMarksOfBothDirectionsAreCounted(t *testing.T) {
	for _, control := range []string{"reno", "cubic", "bbr", "dctcp"} {
		for _, strip := range []bool{false, true} {
			r := rand.New(rand.NewPCG(7, 7))
			n := newNet(t)
			for _, e := range []*end{n.a, n.b} {
				e.mark = func() bool { return r.IntN(5) == 0 }
				e.rewrite = func(s wire.TCP) {
					for i := wire.TCPLen; strip && i < s.DataOffset(); {
						switch kind := s[i]; {
						case kind == wire.OptionNOP || kind == wire.OptionEnd:
							i++
						case kind == wire.TCPOptAccECN0 || kind == wire.TCPOptAccECN1:
							for range s[i+1] {
								s[i] = wire.OptionNOP
								i++
							}
						default:
							i += int(s[i+1])
						}
					}
				}
			}
			o := &Options{ECN: ECNAccurate, Congestion: control}
			a, b, _, _ := n.open(t, o, o)
			n.b.lose = func(_ int, s wire.TCP) bool { return len(s.Payload()) == 0 && r.IntN(10) == 0 }
			n.pour(t, a, b, 2<<20, time.Minute)
			n.pour(t, b, a, 2<<20, time.Minute)
			n.b.lose = nil
			n.pour(t, a, b, 1<<17, time.Minute)
			n.pour(t, b, a, 1<<17, time.Minute)
			n.run(time.Second)
			for _, x := range [][2]*Conn{{a, b}, {b, a}} {
				i, peer := x[0].Info(), x[1].Info()
				if peer.CE < 50 || (i.DeliveredCE-peer.CE)&7 != 0 {
					t.Errorf("%s: %d packets were marked, %d are known", control, peer.CE, i.DeliveredCE)
				}
				if want := peer.ReceivedByECN; !strip && (i.DeliveredByECN != want || i.DeliveredCE != peer.CE) {
					t.Errorf("%s: %v, the peer has received %v; %d packets of %d", control, i.DeliveredByECN, want, i.DeliveredCE, peer.CE)
				}
			}
		}
	}
}

// TestDCTCPEchoesEveryMark is RFC 8257 3.2: what came before a change of marks is acknowledged first.
func TestDCTCPEchoesEveryMark(t *testing.T) {
	o := bare()
	o.Congestion = "dctcp"
	p := newPeer(t, o)
	p.expect(seg{flags: syn | ece | cwr})
	p.send(seg{flags: syn | ackF | ece, ack: 1, win: 10000, opts: wire.AppendMSS(nil, 1000)})
	p.expect(seg{flags: ackF, seq: 1, ack: 1})
	p.c.quickACKs = 0
	p.send(seg{flags: ackF, seq: 1, ack: 1, win: 10000, n: 10, ce: wire.ECT0})
	p.quiet()
	p.send(seg{flags: ackF, seq: 11, ack: 1, win: 10000, n: 10, ce: wire.CE})
	p.expect(seg{flags: ackF, seq: 1, ack: 11})
	p.expect(seg{flags: ackF | ece, seq: 1, ack: 21})
	p.send(seg{flags: ackF, seq: 21, ack: 1, win: 10000, n: 10, ce: wire.ECT0})
	p.expect(seg{flags: ackF, seq: 1, ack: 31})
}

// TestIdleRestart is RFC 5681 4.1: after a silence longer than the timeout sending begins slowly.
func TestIdleRestart(t *testing.T) {
	n := newNet(t)
	a, b, _, _ := n.open(t, nil, nil)
	n.pour(t, a, b, 1_000_000, time.Minute)
	grown := a.Info().Cwnd
	n.run(10 * time.Second)
	a.Write(n.now, make([]byte, 200_000))
	n.a.m.Poll(n.now)
	sent := 0
	for _, w := range n.a.out {
		sent += len(wire.TCP(w.bytes).Payload())
	}
	if grown < 100_000 || sent > 15_000 {
		t.Errorf("%d bytes at once after a silence; the window was %d", sent, grown)
	}
}
