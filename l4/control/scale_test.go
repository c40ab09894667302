package control

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gateway/health"
	"github.com/millrace/millrace/l4/datapath"
)

// many returns a configuration of n services with four backends each; those of every tenth have
// weights of their own, and the first service has the given keys.
func many(n int, first string) string {
	var s strings.Builder
	s.WriteString("devices: [{name: gw0}, {name: gw1}]\nsnat: [198.18.255.1]\ntable: {size: 1024}\nservices:\n")
	for i := range n {
		fmt.Fprintf(&s, "  - name: s%d\n    address: 198.19.%d.%d:80\n", i, i>>8, i&255)
		if i == 0 {
			s.WriteString(first)
		}
		s.WriteString("    backends:\n")
		for j := range 4 {
			weight := 1
			if i%10 == 0 {
				weight = 1 + (i/10+j)%7
			}
			fmt.Fprintf(&s, "      - {name: b%d, address: 198.18.%d.%d:%d, weight: %d}\n", j, i>>8&127, i&255, 8000+j, weight)
		}
	}
	return s.String()
}

func openMany(tb testing.TB, n int) (*world, *config.Config) {
	c := parse(tb, many(n, ""))
	return newWorldWith(tb, c, hopsOf(c)), c
}

func BenchmarkHealthChangeWith10000Services(b *testing.B) {
	w, _ := openMany(b, 10_000)
	up := false
	for b.Loop() {
		w.g.mu.Lock()
		w.g.healthChanged([]health.Change{{ID: 4 * 777, State: health.State{Healthy: up}}})
		w.g.mu.Unlock()
		up = !up
	}
}

func BenchmarkReloadOf10000Services(b *testing.B) {
	for _, c := range []struct{ name, first string }{{"nothing changes", ""}, {"one changes", "    slow_start: 1s\n"}} {
		b.Run(c.name, func(b *testing.B) {
			w, one := openMany(b, 10_000)
			other := parse(b, many(10_000, c.first))
			for b.Loop() {
				one, other = other, one
				if err := w.g.Reload(one); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkParse10000Services(b *testing.B) {
	src := []byte(many(10_000, ""))
	for b.Loop() {
		if _, err := config.Parse("f", src); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen10000Services(b *testing.B) {
	c := parse(b, many(10_000, ""))
	hops := hopsOf(c)
	before := heap()
	for b.Loop() {
		w := newWorldWith(b, c, hops)
		w.events = nil
		b.ReportMetric(float64(heap()-before)/1e6, "MB")
		w.g.Close()
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A reload keeps all that it does not change: the very same objects.
func TestAReloadReplacesNothingThatStaysTheSame(t *testing.T) {
	w, _ := openMany(t, 50)
	was := w.g.snap.Load()
	w.reload(many(50, "    slow_start: 1s\n"))
	now := w.g.snap.Load()
	for i := range was.Services {
		if same := was.Services[i] == now.Services[i]; same != (i != 0) {
			t.Errorf("service %d: the same is %v", i, same)
		}
		if was.Services[i].NewFlow != now.Services[i].NewFlow || was.Services[i].MidFlow != now.Services[i].MidFlow {
			t.Errorf("service %d has another table", i)
		}
	}
	for i := range was.Backends {
		if same := was.Backends[i] == now.Backends[i]; same != (i >= 4) {
			t.Errorf("backend %d: the same is %v", i, same)
		}
	}
	for i := range was.Endpoints {
		if was.Endpoints[i] != now.Endpoints[i] {
			t.Errorf("endpoint %d was replaced", i)
		}
	}
	w.reload(many(50, "    slow_start: 1s\n"))
	if last := w.g.snap.Load(); last.Services[0] != now.Services[0] {
		t.Error("a reload of the same file replaced a service")
	}
}

// What one backend's health changes is its own service alone.
func TestAHealthChangeTouchesItsServiceAlone(t *testing.T) {
	w, _ := openMany(t, 50)
	was := w.g.snap.Load()
	w.g.mu.Lock()
	w.g.healthChanged([]health.Change{{ID: 4*7 + 1}})
	w.g.mu.Unlock()
	now := w.g.snap.Load()
	for i := range was.Services {
		if same := was.Services[i] == now.Services[i]; same != (i != 7) {
			t.Errorf("service %d: the same is %v", i, same)
		}
	}
	for i := range was.Backends {
		if same := was.Backends[i] == now.Backends[i]; same != (i != 4*7+1) {
			t.Errorf("backend %d: the same is %v", i, same)
		}
	}
	if now.Backends[4*7+1].Usable {
		t.Error("the backend is still usable")
	}
}

// Services whose backends have the same names and weights share a table, and lead to their own.
func TestServicesShareTables(t *testing.T) {
	w, c := openMany(t, 50)
	s := w.g.snap.Load()
	for i, sv := range s.Services {
		p := sv.NewFlow[datapath.Family4]
		for hash := range uint64(20) {
			id, _ := p.Pick(hash)
			if s.Backends[id].Service != uint32(i) {
				t.Fatalf("service %d leads to a backend of service %d", i, s.Backends[id].Service)
			}
		}
	}
	if n := w.g.pools.Len(); n != 6 { // one, and five of services with weights of their own
		t.Errorf("%d tables of %d services", n, len(c.Services))
	}
}

// Addresses may go from one service to another in one reload, and come back.
func TestAnAddressMovesBetweenServices(t *testing.T) {
	config := func(a, b string) string {
		s := strings.Replace(many(2, ""), "198.19.0.0:80", a, 1)
		return strings.Replace(s, "198.19.0.1:80", b, 1)
	}
	w := newWorld(t, config("198.19.9.1:80", "198.19.9.2:80"))
	for _, c := range [][2]string{{"198.19.9.2:80", "198.19.9.1:80"}, {"198.19.9.1:80", "198.19.9.2:80"}, {"198.19.9.3:80", "198.19.9.1:80"}} {
		w.reload(config(c[0], c[1]))
		for i, at := range c {
			w.now = w.now.Add(24 * time.Hour) // no connection is left
			p := w.expect(0, client("198.18.0.9:1000", at, "S").bytes(), 1)
			if want := fmt.Sprintf("198.18.0.%d", i); flowOf(p).dst.Addr() != netip.MustParseAddr(want) {
				t.Errorf("%s leads to %v, want %s", at, flowOf(p).dst, want)
			}
		}
	}
}
