package tcp

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/tcp/cc"
	"github.com/millrace/millrace/wire"
)

// narrow loses segments that do not fit a path of mtu bytes, as a hole in it does that says nothing.
func narrow(mtu *int) func(int, wire.TCP) bool {
	return func(_ int, s wire.TCP) bool { return len(s)+wire.IPv4Len > *mtu }
}

// TestABlackHoleIsFoundAndSearched is RFC 4821 7.6 and 7.7: timeouts make segments short, and probes
// find what the path takes.
func TestABlackHoleIsFoundAndSearched(t *testing.T) {
	for _, probe := range []bool{false, true} {
		n := newNet(t)
		a, b, _, _ := n.open(t, &Options{PathProbe: probe}, nil)
		n.pour(t, a, b, 100_000, time.Minute)
		if got := a.Info().PathMTU; got != 1500 {
			t.Fatalf("at first %d", got)
		}
		mtu := 1420
		n.a.lose = narrow(&mtu)
		n.pour(t, a, b, 100_000, 10*time.Minute)
		if got := a.Info().PathMTU; got > mtu || !probe && got != blackHoleMTU {
			t.Errorf("probing %v: %d in the black hole", probe, got)
		}
		n.run(5 * time.Second)
		n.pour(t, a, b, 5_000_000, 10*time.Minute)
		if got := a.Info().PathMTU; probe && (got > mtu || got < mtu-probeGranularity) {
			t.Errorf("found %d, the path takes %d", got, mtu)
		}
		mtu = 1500
		n.run(11 * time.Minute)
		n.pour(t, a, b, 3_000_000, 10*time.Minute)
		if got := a.Info().PathMTU; probe && got < mtu-probeGranularity {
			t.Errorf("found %d, the path takes %d again", got, mtu)
		}
	}
}

// TestALostProbeMayBeChance is RFC 4821 7.6: one loss says nothing of the size.
func TestALostProbeMayBeChance(t *testing.T) {
	n := newNet(t)
	a, b, _, _ := n.open(t, &Options{PathProbe: true}, nil)
	a.reduceSegmentSize(1240)
	a.ensureRare().probe.ceiling = 1459
	lost := 0
	n.a.lose = func(_ int, s wire.TCP) bool {
		if len(s) > 1300 && lost == 0 {
			lost++
			return true
		}
		return false
	}
	for range 20 { // some round trips each, as probes keep a distance
		n.pour(t, a, b, 400_000, time.Minute)
	}
	if got := a.Info().PathMTU; lost != 1 || got < 1499-probeGranularity {
		t.Errorf("after %d lost probes found %d", lost, got)
	}
}

// TestALostProbeIsNoCongestion is RFC 4821 7.5: where the probe alone is lost, that says nothing of the path's load.
func TestALostProbeIsNoCongestion(t *testing.T) {
	for _, name := range []string{"reno", "cubic", "bbr"} {
		n := newNet(t)
		a, b, _, _ := n.open(t, &Options{PathProbe: true, Congestion: name}, nil)
		mtu := 1280
		n.a.lose = narrow(&mtu)
		n.pour(t, a, b, 100_000, time.Minute) // finds the black hole by timeouts
		n.run(5 * time.Second)
		probes := 0
		n.a.lose = func(i int, s wire.TCP) bool {
			lost := narrow(&mtu)(i, s)
			if lost {
				probes++
			}
			return lost
		}
		before := a.Info().Cwnd
		a.sender.cwr = false
		for probes == 0 {
			n.pour(t, a, b, 100_000, time.Minute)
		}
		n.pour(t, a, b, 20_000, time.Minute)
		if a.sender.cwr {
			t.Errorf("%s: tells of a reduction", name)
		}
		if got := a.Info().Cwnd; got < before {
			t.Errorf("%s: the window fell from %d to %d by a probe of the path", name, before, got)
		}
	}
}

// TestTooBigMakesSegmentsShorter is RFC 1191 3 and RFC 5927 7: an ICMP error about what is in flight is
// believed, others are not.
func TestTooBigMakesSegmentsShorter(t *testing.T) {
	n := newNet(t)
	a, b, _, _ := n.open(t, nil, nil)
	tuple := a.Tuple()
	big := ip.ICMPError{Kind: ip.TooBig, MTU: 1000}
	a.Write(n.now, make([]byte, 20_000))
	n.a.m.Poll(n.now)
	for _, seq := range []uint32{a.una - 1, a.nxt} {
		if n.a.m.ICMP(n.now, &tuple, seq, big) || a.Info().PathMTU != 1500 {
			t.Errorf("believed an error about %d, in flight are %d to %d", seq, a.una, a.nxt)
		}
	}
	mtu := 1000
	n.a.out = nil
	n.a.lose = narrow(&mtu)
	if !n.a.m.ICMP(n.now, &tuple, a.una, big) || a.Info().PathMTU != 1000 {
		t.Errorf("did not believe an error about what is in flight: %d", a.Info().PathMTU)
	}
	cwnd := a.Info().Cwnd
	n.run(100 * time.Millisecond)
	if b.Readable() != 20_000 {
		t.Errorf("%d bytes arrived", b.Readable())
	}
	if a.Info().Cwnd < cwnd {
		t.Errorf("the congestion window fell from %d to %d", cwnd, a.Info().Cwnd)
	}
}

// outage has everything of n vanish for d, while a sends to b.
func outage(t *testing.T, n *net, a, b *Conn, d time.Duration) {
	t.Helper()
	down := true
	n.a.lose = func(int, wire.TCP) bool { return down }
	n.b.lose = n.a.lose
	a.Write(n.now, make([]byte, 20_000))
	n.run(d)
	down = false
	n.run(3*d + 5*time.Second) // until the next timeout
	for b.Readable() > 0 {
		b.Discard(n.now, b.Readable())
	}
	if left := a.Unacked(); left > 0 {
		t.Fatalf("%d bytes are not acknowledged", left)
	}
}

// TestSegmentsGrowAfterAnOutage: timeouts in a row may be of an outage. When data arrives again, the size from before is
// tried first, whether the connection searches for a larger MTU or not (RFC 4821 7.7).
func TestSegmentsGrowAfterAnOutage(t *testing.T) {
	for _, o := range []Options{{}, {PathProbe: true}, {NoSACK: true}, {NoTimestamps: true}, {Congestion: "bbr"}} {
		for _, most := range []int{64 << 10, 1} { // segmentation offload, and none
			for _, d := range []time.Duration{2 * time.Second, 6 * time.Second, 20 * time.Second} {
				n := newNet(t)
				n.a.most = most
				a, b, _, _ := n.open(t, &o, nil)
				n.pour(t, a, b, 100_000, time.Minute)
				full := a.mss()
				outage(t, n, a, b, d)
				if a.mss() == full {
					t.Fatalf("%v: no black hole was suspected", d)
				}
				resent := n.a.m.Stats().Retransmits
				start := n.now
				n.pour(t, a, b, 100_000, time.Minute)
				if a.mss() != full {
					t.Errorf("%s, %v: segments of %d bytes after 100 kB, want %d", probeName(&o), d, a.mss(), full)
				}
				if took := n.now.Sub(start); took > 150*time.Millisecond { // 15 round trips
					t.Errorf("%s, %v: 100 kB took %v", probeName(&o), d, took)
				}
				if k := n.a.m.Stats().Retransmits - resent; k > 0 {
					t.Errorf("%s, %v: %d segments were sent again", probeName(&o), d, k)
				}
			}
		}
	}
}

// TestABlackHoleCostsLittle: a path that takes 576 bytes is found, and stays so. To try the size from before costs two
// segments, and the rung below two, every ten minutes; no timeout and no reduction.
func TestABlackHoleCostsLittle(t *testing.T) {
	for _, o := range []Options{{}, {NoSACK: true}} {
		n := newNet(t)
		a, b, _, _ := n.open(t, &o, nil)
		n.pour(t, a, b, 100_000, time.Minute)
		mtu := 576
		n.a.lose = narrow(&mtu)
		n.pour(t, a, b, 100_000, 10*time.Minute)
		if got := a.Info().PathMTU; got != mtu {
			t.Fatalf("found %d, the path takes %d", got, mtu)
		}
		lost, timeouts := 0, n.a.m.Stats().Timeouts
		n.a.lose = func(i int, s wire.TCP) bool {
			if narrow(&mtu)(i, s) {
				lost++
				return true
			}
			return false
		}
		n.pour(t, a, b, 2_000_000, 10*time.Minute)
		n.run(time.Minute)
		n.pour(t, a, b, 2_000_000, 10*time.Minute)
		if got := a.Info().PathMTU; got != mtu || lost > 2*maxProbeFailures {
			t.Errorf("%s: %d after %d segments were lost", probeName(&o), got, lost)
		}
		n.run(11 * time.Minute)
		n.pour(t, a, b, 2_000_000, 10*time.Minute)
		if lost > 4*maxProbeFailures {
			t.Errorf("%s: %d segments were lost in two searches", probeName(&o), lost)
		}
		if k := n.a.m.Stats().Timeouts - timeouts; k > 0 {
			t.Errorf("%s: %d timeouts", probeName(&o), k)
		}
		mtu = 1280
		n.run(11 * time.Minute)
		n.pour(t, a, b, 2_000_000, 10*time.Minute)
		if got := a.Info().PathMTU; got != mtu {
			t.Errorf("%s: %d, where the path takes %d again", probeName(&o), got, mtu)
		}
		mtu = 1500
		n.run(11 * time.Minute)
		n.pour(t, a, b, 2_000_000, 10*time.Minute)
		if got := a.Info().PathMTU; got != mtu {
			t.Errorf("%s: %d, where the path takes %d again", probeName(&o), got, mtu)
		}
	}
}

func probeName(o *Options) string {
	return fmt.Sprintf("PathProbe %v, NoSACK %v, NoTimestamps %v, %s", o.PathProbe, o.NoSACK, o.NoTimestamps, congestionName(o))
}

// mssControl notes the segment size that it is given.
type mssControl struct {
	cc.Controller
	mss uint32
}

func (c *mssControl) SetMSS(mss uint32) { c.mss = mss; c.Controller.SetMSS(mss) }

// Connections follow the MTU of their link, down and up: one with data in flight sends it again, an idle one keeps the size for
// when it is active again. A size that a search for a black hole has found stays, and so does the application's.
func TestConnectionsFollowTheMTUOfTheirLink(t *testing.T) {
	n := newNet(t)
	a, b, _, _ := n.open(t, nil, nil)
	n.pour(t, a, b, 100_000, time.Minute)
	set := func(mtu int) {
		n.a.mtu, n.b.mtu = mtu, mtu
		n.a.m.PathsChanged(n.now)
		n.b.m.PathsChanged(n.now)
	}
	want := func(mtu int) {
		t.Helper()
		if got := a.Info().PathMTU; got != mtu {
			t.Errorf("path MTU %d, want %d", got, mtu)
		}
	}
	if a.Write(n.now, make([]byte, 50_000)) != 50_000 {
		t.Fatal("not written")
	}
	a.m.Poll(n.now)
	before := a.Info().Retransmits
	n.a.out = nil
	set(1300) // what is in flight now is too long, and lost
	want(1300)
	for got, end, buf := 0, n.now.Add(5*time.Second), make([]byte, 1<<10); got < 50_000; got += b.Read(n.now, buf) {
		if n.run(time.Millisecond); n.now > end {
			t.Fatalf("%d bytes in time", got)
		}
	}
	n.pour(t, a, b, 100_000, 5*time.Second)
	if a.Info().Retransmits == before {
		t.Error("what was in flight was not sent again")
	}
	n.run(5 * time.Second)
	if a.active != nil {
		t.Fatal("not compacted")
	}
	control := &mssControl{Controller: a.compacted.cc}
	a.compacted.cc = control
	set(1400)
	if a.active != nil || control.mss != uint32(a.mss()) {
		t.Errorf("an idle connection became active, or its congestion control counts in segments of %d bytes", control.mss)
	}
	n.pour(t, a, b, 100_000, 5*time.Second)
	want(1400)
	set(1500)
	want(1500)
	a.ensureRare().probe.suspected = true
	a.reduceSegmentSize(1240)
	set(1400)
	want(1280)
	set(1200)
	want(1200)
}
