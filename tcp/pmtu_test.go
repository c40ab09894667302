package tcp

import (
	"testing"
	"time"

	"github.com/millrace/millrace/ip"
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
