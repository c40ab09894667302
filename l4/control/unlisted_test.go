package control

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/metrics"
)

// beside returns a configuration with services of one backend each, in this order behind one with so many that scrapes
// list only the next.
func beside(names ...string) string {
	var s strings.Builder
	s.WriteString("devices: [{name: gw0}, {name: gw1}]\nsnat: [198.18.2.1]\ntable: {size: 1024}\nservices:\n")
	s.WriteString("  - name: big\n    address: 198.18.1.9:80\n    backends:\n")
	for i := range maxListed - 1 {
		fmt.Fprintf(&s, "      - {name: b%d, address: 198.19.%d.%d:80}\n", i, i>>8, i&255)
	}
	for _, name := range names {
		fmt.Fprintf(&s, "  - {name: %s, address: 198.18.1.%d:80, unknown: drop, backends: [{address: 198.18.2.%d:80}]}\n", name, name[0], name[0])
	}
	return s.String()
}

// The sums of services without series of their own count what these do, and no more: they neither fall nor jump while
// services and backends come, go and change places.
func TestSumsOfUnlistedServicesOnlyGrow(t *testing.T) {
	w := newWorld(t, beside("a", "b", "c"))
	ports, opened, dropped := 1000, 0.0, 0.0
	check := func(what string) {
		t.Helper()
		w.after(0)
		got, _ := w.scrapeOf(metrics.Selection{})
		if n := got[`millrace_l4_backend_connections_opened_total{address="",backend="_other",service="_other"}`]; n != opened {
			t.Errorf("%s: %v connections opened, want %v", what, n, opened)
		}
		if n := got[`millrace_l4_service_drop_packets_total{reason="no_flow",service="_other"}`]; n != dropped {
			t.Errorf("%s: %v packets dropped, want %v", what, n, dropped)
		}
		if n := got[`millrace_l4_backend_packets_total{address="",backend="_other",direction="to",service="_other"}`]; n != opened {
			t.Errorf("%s: %v packets, want %v", what, n, opened)
		}
	}
	use := func(service string, n int, listed bool) {
		t.Helper()
		to := fmt.Sprintf("198.18.1.%d:80", service[0])
		for range n {
			ports++
			w.expect(0, client(fmt.Sprintf("198.18.0.9:%d", ports), to, "S").bytes(), 1)
			w.send(0, client(fmt.Sprintf("198.18.0.10:%d", ports), to, "A").bytes())
		}
		if !listed {
			opened, dropped = opened+float64(n), dropped+float64(n)
		}
		check(fmt.Sprintf("%d of %s", n, service))
	}
	reload := func(names ...string) {
		t.Helper()
		w.reload(beside(names...))
		check(fmt.Sprint("reload ", names))
	}
	use("a", 5, true)
	use("b", 7, false)
	use("c", 3, false)
	reload("c", "b", "a")
	use("c", 2, true)
	use("a", 4, false)
	w.reload(strings.Replace(beside("c", "b", "a"), "address: 198.18.2.98:80", "address: 198.18.2.198:80", 1))
	check("another backend of b")
	reload("c", "a") // b and its backends go
	w.after(3 * time.Hour)
	for range 3 {
		w.looks()
	}
	if _, ok := w.g.reg.services.of["b"]; ok {
		t.Fatal("b has its number still")
	}
	check("released")
	reload("a", "c")
	use("c", 1, false)
	reload("a", "c", "b")
	use("b", 2, false)
	reload("b", "c", "a")
	use("a", 3, false)
	use("b", 3, true)
}
