package control

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// here runs what Connections asks for at once, as a loop does that has nothing else to do.
func here(_ int, f func()) bool { f(); return true }

func (w *world) connections() (list []Connection) {
	w.g.Connections(w.now, here, func(c Connection) bool {
		list = append(list, c)
		return true
	})
	return list
}

func TestEveryConnectionIsListedOnce(t *testing.T) {
	w := newWorld(t, strings.Replace(fill(""), "size: 1024", "size: 10000, half_open: 5000", 1))
	if list := w.connections(); len(list) != 0 {
		t.Errorf("an empty table has %v", list)
	}
	for _, n := range []int{1, 1023, 1024, 1025, 2548} { // around the ends of pieces
		seen := map[netip.AddrPort]bool{}
		for i := range n {
			src := fmt.Sprintf("198.18.0.%d:%d", 1+i>>10, 1000+i&1023)
			w.expect(0, client(src, "198.18.1.1:53", "").bytes(), 1)
		}
		for _, c := range w.connections() {
			if seen[c.Client] {
				t.Errorf("%v is listed twice", c.Client)
			}
			seen[c.Client] = true
			if c.Service != "dns" || c.Backend != "d1" || c.Protocol != "udp" || c.Address.String() != "198.18.1.1:53" {
				t.Fatalf("%+v", c)
			}
		}
		if len(seen) != n {
			t.Errorf("%d of %d connections are listed", len(seen), n)
		}
	}
	given := 0
	w.g.Connections(w.now, here, func(Connection) bool { given++; return given < 3 })
	if given != 3 {
		t.Errorf("%d connections were given to one who wanted 3", given)
	}
	w.g.Connections(w.now, func(int, func()) bool { return false }, func(c Connection) bool {
		t.Errorf("a loop that has ended has %v", c)
		return true
	})
}

func TestAListedConnectionSaysWhatTheBackendSees(t *testing.T) {
	const l2 = `
devices: [{name: gw0}, {name: gw1}]
services:
  - {name: web, mode: l2, address: 198.18.1.1:80, backends: [{name: b1, address: 198.18.2.11}]}
`
	for name, c := range map[string]struct{ config, source, target string }{
		"the gateway's address": {strings.Replace(fill(""), "      - {name: b2, address: [198.18.2.12:8080, \"[2001:db8:2::12]:8080\"]}\n", "", 1), "198.18.2.1", "198.18.2.11:8080"},
		"the client's":          {strings.Replace(fill("source: client"), "      - {name: b2, address: [198.18.2.12:8080, \"[2001:db8:2::12]:8080\"]}\n", "", 1), "198.18.0.9", "198.18.2.11:8080"},
		"direct return":         {l2, "", "198.18.2.11:0"},
	} {
		w := newWorld(t, c.config)
		p := w.expect(0, client("198.18.0.9:4000", "198.18.1.1:80", "S").bytes(), 1)
		list := w.connections()
		if len(list) != 1 {
			t.Fatalf("%s: %v", name, list)
		}
		got := list[0]
		if got.Client.String() != "198.18.0.9:4000" || got.Target.String() != c.target || got.State != "syn_sent" || got.Expires < 29 || got.Expires > 31 {
			t.Errorf("%s: %+v", name, got)
		}
		if (got.Source == nil) != (c.source == "") {
			t.Fatalf("%s: %+v", name, got)
		}
		if got.Source != nil && (got.Source.Addr().String() != c.source || got.Source.Port() != uint16(p[34])<<8|uint16(p[35])) {
			t.Errorf("%s: source %v, the packet has port %d", name, got.Source, uint16(p[34])<<8|uint16(p[35]))
		}
	}
}

func TestWhatIsNotConfiguredIsUnknown(t *testing.T) {
	g := newWorld(t, fill("")).g
	for _, c := range []struct {
		service, backend string
		err              error
		hint             string
	}{
		{"", "", nil, ""},
		{"web", "b1", nil, ""},
		{"", "d1", nil, ""},
		{"dns", "", nil, ""},
		{"wep", "", ErrUnknownService, `did you mean "web"? there is web, dns`},
		{"web", "d1", ErrUnknownBackend, "there is b1, b2"},
		{"dns", "b1", ErrUnknownBackend, "there is d1"},
		{"", "b9", ErrUnknownBackend, "there is b1, b2, d1"},
	} {
		err := g.Known(c.service, c.backend)
		if !errors.Is(err, c.err) || err != nil && !strings.Contains(err.Error(), c.hint) {
			t.Errorf("%q of %q: %v, want %v %s", c.backend, c.service, err, c.err, c.hint)
		}
	}
}
