package pool

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/health"
	"github.com/millrace/millrace/internal/testkit/testport"
)

// A Checker probes the backends of two pools over loopback: one listens, one does not.
func TestProbesFindWhichBackendsListen(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dead := testport.Hold(t)
	check := health.New()
	check.Interval, check.Timeout, check.Rise, check.Fall = 20*time.Millisecond, 10*time.Second, 1, 1
	list := func(o BackendOptions, addrs ...netip.AddrPort) (list []BackendOptions) {
		for _, a := range addrs {
			o.Address = a
			list = append(list, o)
		}
		return list
	}
	live := l.Addr().(*net.TCPAddr).AddrPort()
	one := newPool(t, Options{Name: "one", Check: check}, list(BackendOptions{}, live, dead))
	two := newPool(t, Options{Name: "two", Check: check}, list(BackendOptions{Down: true}, dead, live))
	three := newPool(t, Options{Name: "three"}, list(BackendOptions{}, dead)) // is not probed
	wake := make(chan struct{}, 1)
	c := health.NewChecker(health.Options{Notify: func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}})
	defer c.Close()
	probes := Probes{First: 1 << 31}
	c.Set(probes.Watch(0, []*Pool{one, two, three}))
	want := map[*Backend]bool{}
	for _, p := range []*Pool{one, two} {
		for _, b := range p.Backends() {
			want[b] = b.Address() == live
		}
	}
	deadline := time.After(30 * time.Second)
	for {
		missing := 0
		for b, healthy := range want {
			if b.Healthy() != healthy {
				missing++
			}
		}
		if missing == 0 {
			break
		}
		select {
		case <-wake:
			probes.Enter(second, c.Take())
		case <-deadline:
			t.Fatalf("%d backends are not what they should be", missing)
		}
	}
	if !three.Backends()[0].Healthy() {
		t.Error("a pool without probes has an unhealthy backend")
	}
	if s := one.Status(second).Backends[1]; s.Cause == nil || s.Since != second {
		t.Errorf("status %+v", s)
	}
	if err := one.Update(second, Options{Name: "one"}, list(BackendOptions{}, live, dead)); err != nil {
		t.Fatal(err)
	}
	if c.Set(probes.Watch(2*second, []*Pool{one, two, three})); c.Targets() != 2 || !one.Backends()[1].Healthy() {
		t.Errorf("without its check, pool one has %+v", one.Status(second).Backends)
	}
}

func TestProbesKeepTheNumbersOfThoseThatStay(t *testing.T) {
	o := Options{Check: health.New()}
	p := newPool(t, o, same(3))
	var probes Probes
	numbers := func() map[string]uint32 {
		m := map[string]uint32{}
		for _, w := range probes.Watch(0, []*Pool{p}) {
			m[w.Backend] = w.ID
		}
		return m
	}
	before := numbers()
	p.ByName("c").SetHealthy(0, false, nil)
	list := same(4)
	if err := p.Update(clock.Time(0), o, append(list[:1], list[2:]...)); err != nil {
		t.Fatal(err)
	}
	after := numbers()
	if len(after) != 3 || after["a"] != before["a"] || after["c"] != before["c"] || after["d"] <= before["c"] {
		t.Errorf("numbers %v, were %v", after, before)
	}
	for _, w := range probes.Watch(0, []*Pool{p}) {
		if w.Down != (w.Backend == "c") {
			t.Errorf("%s is down: %v", w.Backend, w.Down)
		}
	}
	probes.Enter(0, []health.Change{{ID: before["b"], State: health.State{}}, {ID: after["d"], State: health.State{}}, {ID: 99}})
	if p.ByName("d").Healthy() || !p.ByName("a").Healthy() {
		t.Error("a change went to another backend")
	}
}
