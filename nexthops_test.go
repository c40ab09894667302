package millrace

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/node/nexthop"
)

// watched collects what a resolver reports.
type watched struct {
	mu   sync.Mutex
	hops map[netip.Addr]nexthop.Hop
}

func (w *watched) changed(a netip.Addr, h nexthop.Hop) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hops[a] = h
}

// await waits until the hop to a has a state.
func (w *watched) await(t *testing.T, a netip.Addr, want nexthop.State) nexthop.Hop {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		w.mu.Lock()
		h, ok := w.hops[a]
		w.mu.Unlock()
		if ok && h.State == want {
			return h
		}
		if time.Now().After(end) {
			t.Fatalf("the hop to %s is %+v (%v), want it %s", a, h, ok, want)
		}
	}
}

func TestNextHopsAreThoseOfTheStack(t *testing.T) {
	a, b, closeBoth := pairOf(t)
	defer closeBoth()
	r := NextHops(a)
	defer r.Close()
	peer, absent, far := netip.MustParseAddr("198.18.0.2"), netip.MustParseAddr("198.18.0.77"), netip.MustParseAddr("192.0.2.1")
	w := &watched{hops: map[netip.Addr]nexthop.Hop{}}
	r.Watch([]netip.Addr{peer, absent, far, netip.MustParseAddr("198.18.0.1")}, w.changed)
	hop := w.await(t, peer, nexthop.Ready)
	mac := b.Loops()[0].Devices()[0].Info().MAC
	if hop.MAC != mac || hop.Dev != 0 {
		t.Errorf("the hop is %+v, want the link address %x", hop, mac)
	}
	w.await(t, absent, nexthop.Unresolved)
	w.await(t, far, nexthop.NoRoute)
	w.await(t, netip.MustParseAddr("198.18.0.1"), nexthop.NoRoute) // the stack's own
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
