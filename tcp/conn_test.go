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
