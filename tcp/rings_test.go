package tcp

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/tcp/seqnum"
)

// All windows together, floors included, promise no more than the rings hold; without a limit they promise more, and
// one connection alone is not limited by it.
func TestWindowsRespectTheRings(t *testing.T) {
	const conns, limit = 60, 4 << 20
	sum := func(limit int64) (total uint32, least uint32) {
		n := newNet(t)
		n.b.m.rxRings.limit = limit
		l, _ := n.listen(t, conns, nil)
		least = math.MaxUint32
		var far, near []*Conn
		for range conns {
			far = append(far, n.dial(t, nil))
		}
		n.run(100 * time.Millisecond)
		for range conns {
			near = append(near, l.Accept())
		}
		for round := range 3 {
			for i := range far {
				if near[i] == nil {
					t.Fatalf("connection %d was not accepted", i)
				}
				from := far[slices.IndexFunc(far, func(f *Conn) bool { return f.tuple == near[i].tuple.Reverse() })]
				n.pour(t, from, near[i], 20_000<<round, 10*time.Second)
			}
		}
		n.b.m.Each(func(c *Conn) {
			w := seqnum.Distance(c.rcvNxt, c.rcvAdv)
			total += w
			least = min(least, w)
		})
		var shares int64
		n.b.m.Each(func(c *Conn) {
			if c.active != nil {
				shares += int64(c.ringShare)
			}
		})
		if shares != n.b.m.rxRings.sum {
			t.Errorf("shares of %d bytes, counted %d", shares, n.b.m.rxRings.sum)
		}
		return total, least
	}
	free, _ := sum(0)
	bound, least := sum(limit)
	if bound > limit || bound*5/4 > free || least < minReceiveFloor/2 {
		t.Errorf("windows of %d bytes, the least %d, with a limit of %d; %d without", bound, least, limit, free)
	}
}

// A window of a long path counts by what may come within ringStall.
func TestLongPathsTakeLittleOfTheRings(t *testing.T) {
	n := newNet(t)
	a, b, _, _ := n.open(t, nil, nil)
	n.pour(t, a, b, 100_000, time.Minute)
	m := n.b.m
	m.rxRings = ringPromises{limit: 80 << 10, sum: 1 << 30} // full: only floors are left, an equal part for each
	b.rcvLimit = 1 << 20
	if got, want := m.initialReceive(b.opt), uint32(20<<10); m.slab.live != 1 || got != want {
		t.Errorf("a new connection gets %d beside %d, want %d", got, m.slab.live, want)
	}
	if got := b.receiveLimit(); got != 16<<10 {
		t.Errorf("the limit of one that exists is %d", got)
	}
	m.rxRings = ringPromises{limit: 1 << 20}
	for _, c := range []struct {
		rtt   time.Duration
		share uint32
		left  int64
	}{
		{time.Millisecond, 1 << 20, 1 << 19},
		{ringStall, 1 << 20, 1 << 19},
		{10 * ringStall, (1 << 20) / 10, 10 << 19},
		{time.Second, (1 << 20) / 100, m.unpromised()},
	} {
		us := uint32(c.rtt.Microseconds()) + 1
		b.tuning.rtt = us
		b.flags |= flagTimestamps
		b.tuning.rtt += uint32(timestampTick.Microseconds())
		share, left := ringUnit*uint32(b.ringShareOf(1<<20)), b.unpromised()
		if math.Abs(float64(share)-float64(c.share)) > float64(c.share)/50+ringUnit || math.Abs(float64(left)-float64(min(c.left, m.unpromised()))) > float64(c.left)/50 {
			t.Errorf("%v: a share of %d, %d left; want %d, %d", c.rtt, share, left, c.share, c.left)
		}
	}
}
