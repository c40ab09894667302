package netsim

import (
	"fmt"
	"testing"
	"time"
)

// TestBBRAndCubicShareABottleneck is that neither starves the other, however long the queue is. BBR takes more
// than its share of a short queue and less of a long one (draft-ietf-ccwg-bbr 1, 3): CUBIC fills the queue, and
// BBR keeps out of it. (A queue of three packets, a fifth of the product at 10 ms, starves CUBIC.)
func TestBBRAndCubicShareABottleneck(t *testing.T) {
	for _, rtt := range []time.Duration{10 * time.Millisecond, 40 * time.Millisecond} {
		for _, times := range []float64{0.2, 1, 4} {
			if times < 1 && rtt < 20*time.Millisecond {
				continue
			}
			for seed := range uint64(3) {
				t.Run(fmt.Sprintf("rtt %v queue %v BDP seed %d", rtt, times, seed), func(t *testing.T) {
					t.Parallel()
					n, left, right, _ := bottleneck(seed+1, 2, rtt, 0, 0, queueOf(rtt, times))
					var flows [2]*Flow
					for i, cc := range []string{"bbr", "cubic"} {
						flows[i] = n.Flow(FlowConfig{From: left[i], To: right[i], Bytes: 1 << 40, Congestion: cc, Start: time.Duration(i) * 100 * time.Millisecond})
					}
					const from, to = 5 * time.Second, 45 * time.Second
					n.Run(to + time.Second)
					bbr, cubic := flows[0].Goodput(from, to)/goldenRate, flows[1].Goodput(from, to)/goldenRate
					t.Logf("bbr %.2f, cubic %.2f of the link", bbr, cubic)
					if min(bbr, cubic) < 0.2 || bbr+cubic < 0.9 {
						t.Errorf("bbr %.2f, cubic %.2f of the link", bbr, cubic)
					}
				})
			}
		}
	}
}
