package netsim

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/pmd"
)

// Paths that deliver up to 2 ms late, at a round-trip time of 1.2 ms.
const (
	reorderRate = 1e9
	reorderTime = 3 * time.Second
	reorderSkip = 500 * time.Millisecond
	reorderBack = 600 * time.Microsecond
)

var (
	heldPath   = pmd.Impairment{Rate: reorderRate, Queue: pmd.Queue{Packets: 1000}, Delay: 600 * time.Microsecond, Reorder: 10, ReorderHold: 2 * time.Millisecond}
	jitterPath = pmd.Impairment{Rate: reorderRate, Queue: pmd.Queue{Packets: 1000}, Delay: 1600 * time.Microsecond, Jitter: time.Millisecond}
)

// overPath has one flow send over a path. It returns its goodput in Mbit/s, and how many segments it sent
// again though they were not lost.
func overPath(t *testing.T, path pmd.Impairment, cc string) (mbit float64, vain int) {
	t.Helper()
	n := New(1)
	a, b := n.Host(HostConfig{}), n.Host(HostConfig{})
	l := n.Pipe(path, 1)
	n.Path(a, b, l)
	n.Path(b, a, n.Pipe(pmd.Impairment{Rate: reorderRate, Delay: reorderBack}, 2))
	f := n.Flow(FlowConfig{From: a, To: b, Bytes: 1 << 40, Congestion: cc})
	n.Run(reorderTime)
	if err := f.Err(); err != nil {
		t.Error(err)
	}
	return f.Goodput(reorderSkip, reorderTime) / 1e6, int(a.TCP.Stats().Retransmits) - int(l.Count.Lost())
}

// TestReorderingIsNoLoss is that late segments cost neither throughput nor, once the connection knows of
// them, retransmissions.
func TestReorderingIsNoLoss(t *testing.T) {
	for name, path := range map[string]pmd.Impairment{"held": heldPath, "jitter": jitterPath} {
		for _, cc := range []string{"reno", "cubic", "bbr"} {
			t.Run(fmt.Sprint(name, " ", cc), func(t *testing.T) {
				t.Parallel()
				mbit, vain := overPath(t, path, cc)
				t.Logf("%.0f Mbit/s, %d segments sent again in vain", mbit, vain)
				if mbit < 900 {
					t.Errorf("%.0f Mbit/s of 957", mbit)
				}
				if vain > 60 {
					t.Errorf("%d segments of about 250 000 were sent again in vain", vain)
				}
			})
		}
	}
}

// TestReorderingWithLoss has the same paths lose 0.5 %. The loss-based controls are compared with themselves on a
// path that loses as much and keeps the order.
func TestReorderingWithLoss(t *testing.T) {
	for name, path := range map[string]pmd.Impairment{"held": heldPath, "jitter": jitterPath} {
		for cc, least := range map[string]float64{"reno": 0.8, "cubic": 0.8, "bbr": 0.9} {
			t.Run(fmt.Sprint(name, " ", cc), func(t *testing.T) {
				t.Parallel()
				path := path
				path.Loss = 0.5
				ordered := path
				ordered.Reorder, ordered.Jitter = 0, 0
				want, _ := overPath(t, ordered, cc)
				mbit, vain := overPath(t, path, cc)
				t.Logf("%.0f Mbit/s, in order %.0f; %d segments sent again in vain", mbit, want, vain)
				if mbit < least*want {
					t.Errorf("%.0f Mbit/s, in order %.0f", mbit, want)
				}
				if vain > 80 {
					t.Errorf("%d segments were sent again in vain", vain)
				}
			})
		}
	}
}
