package control

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/packet"
)

// handled returns a function that has the handler decide the same packet again, as it came and as the
// engine sees it.
func (w *world) handled(p []byte) (once func() packet.Verdict) {
	b := w.batch(0, p)
	if err := w.engine.Submit(b); err != nil {
		w.t.Fatal(err)
	}
	w.engine.Poll(make([]*packet.Batch, 1))
	was := b.D[0]
	return func() packet.Verdict {
		b.D[0] = was
		copy(w.arena.Mem[was.Off:], p)
		w.h.Handle(w.now, b)
		return b.D[0].Verdict
	}
}

func TestNeitherTunnelsNorAnswersAllocate(t *testing.T) {
	bad := client(host, web, "S").bytes()
	bad[len(bad)-1] ^= 1
	for _, c := range tunnels {
		w := newWorld(t, strings.ReplaceAll(fmt.Sprintf(tunnelConfig, c.mode, c.backend), "{name: web,", "{name: web, mss: auto,"))
		for name, p := range map[string][]byte{
			"a tunnel": client(host, web, "S").bytes(), "a tunnel of IPv6": client("[2001:db8::9]:40000", "[2001:db8:1::1]:80", "S").bytes(),
			"a wrong checksum": bad, "a clamped MSS": synWith(host, web, "S", mss1460),
			"too big": large(host, web, "S", 1490), "too big, IPv6": large("[2001:db8::9]:40000", "[2001:db8:1::1]:80", "S", 1490),
		} {
			w.allocatesNothing(name, p)
		}
	}
	w := newWorld(t, fmt.Sprintf(rejectConfig, "reject"))
	w.allocatesNothing("a reset", client(host, web, "S").bytes())
	w.allocatesNothing("port unreachable", client(host, dns, "").bytes())
}

func (w *world) allocatesNothing(name string, p []byte) {
	w.t.Helper()
	once := w.handled(p)
	if v := once(); v != packet.Forward {
		w.t.Fatalf("%s: %v", name, v)
	}
	if n := testing.AllocsPerRun(50, func() { once() }); n != 0 {
		w.t.Errorf("%s: %.1f allocations a packet", name, n)
	}
}

// BenchmarkTunnel is one packet through the handler, its bytes copied into the frame anew.
func BenchmarkTunnel(b *testing.B) {
	wrong := large(host, web, "PA", 1400)
	wrong[len(wrong)-1] ^= 1
	for _, c := range append(tunnels, struct{ mode, backend string }{"l2", backend4}) {
		w := newWorld(b, fmt.Sprintf(tunnelConfig, c.mode, c.backend))
		for _, p := range []struct {
			name string
			p    []byte
		}{{"64", client(host, web, "S").bytes()}, {"1400", large(host, web, "S", 1400)}, {"1400, wrong checksum", wrong}} {
			once := w.handled(p.p)
			b.Run(fmt.Sprintf("%s to %s/%s", c.mode, c.backend, p.name), func(b *testing.B) {
				for b.Loop() {
					once()
				}
			})
		}
	}
}
