package control

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/node/nexthop"
)

// One goroutine is the loop; others reload, change health and hops, and read. Under the race
// detector this shows that snapshots and counters are all they share; without it, that nothing that
// was running breaks.
func TestTheLoopRunsOnWhileAllElseChanges(t *testing.T) {
	a, b := withBackends("keep", 11, 12), withBackends("keep", 12, 13, 14)
	w := newWorld(t, a, b)
	was := w.open(100)
	var background sync.WaitGroup
	stop := make(chan struct{})
	every := func(f func(i int)) {
		background.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					f(i)
				}
			}
		})
	}
	configs := []*config.Config{parse(t, b), parse(t, a)}
	every(func(i int) {
		if err := w.g.Reload(configs[i%2]); err != nil {
			t.Error(err)
		}
	})
	every(func(i int) {
		w.g.hopChanged(netip.MustParseAddr("198.18.2.14"), nexthop.Hop{MAC: macBackend, Dev: 1, State: nexthop.State(i % 2)})
	})
	every(func(int) { w.g.Status(); w.g.Steering(); time.Sleep(time.Millisecond) })
	for range 20 {
		for src, backend := range was {
			if got := flowOf(w.expect(0, client(src, web, "A").bytes(), 1)).dst.String(); got != backend {
				t.Fatalf("moved from %s to %s", backend, got)
			}
		}
		w.now = w.now.Add(time.Second)
		w.h.Tick(w.now)
	}
	close(stop)
	background.Wait()
}
