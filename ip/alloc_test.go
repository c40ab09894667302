package ip

import (
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// sink is an output that keeps nothing.
type sink struct{ room [2048]byte }

func (s *sink) Frame(_ uint8, n int) []byte { return s.room[:n] }
func (s *sink) Send(uint8, int)             {}

// What happens for each packet allocates nothing.
func TestNoAllocations(t *testing.T) {
	for _, c := range pairs {
		l, a, x := meet(t, c, nil)
		h := Header{Src: addr(c.b), Dst: addr(c.a), Proto: wire.ProtoICMP}
		echo := errorFrame(a, x, c.b, c.a, map[string]uint8{"IPv4": 8, "IPv6": 128}[c.name], 0, 1, make([]byte, 56))
		datagram := ipFrame(a, x, &h, udpTo(&h, 100))
		de, dd := a.describe(echo), a.describe(datagram)
		a.cfg.Output = &sink{}
		out := Header{Src: addr(c.a), Dst: addr(c.b), Proto: wire.ProtoUDP, DontFragment: true}
		payload := make([]byte, 100)
		p, _ := a.Route(l.now, addr(c.b), wire.Addr{}, AnyDev)
		ref := p.Ref
		var g Datagram
		for name, f := range map[string]func(){
			"echo": func() {
				if a.Input(l.now, 0, echo, &de, &g) != packet.Deliver {
					t.Error("not answered")
				}
			},
			"fast path": func() {
				var p FastPacket
				if !a.FastPath(datagram, &dd, &p) {
					t.Error("slow")
				}
			},
			"datagram": func() {
				if a.Input(l.now, 0, datagram, &dd, &g) != packet.Undecided {
					t.Error("not passed on")
				}
			},
			"local": func() { a.Local(0, h.Src); a.Local(0, h.Dst) },
			"route": func() { a.Route(l.now, addr(c.b), h.Dst, AnyDev) },
			"path":  func() { a.Path(l.now, ref) },
			"confirm": func() {
				l.now = l.now.Add(2 * time.Second)
				a.Confirm(l.now, ref)
			},
			"send": func() {
				if a.Node.Send(l.now, a.Path(l.now, ref), &out, payload[:8], payload[8:]) != packet.Forward {
					t.Error("not sent")
				}
			},
			"reject": func() {
				l.now = l.now.Add(time.Second)
				a.Reject(l.now, 0, datagram[14:], PortUnreachable)
			},
			"poll": func() { a.Poll(l.now) },
		} {
			if n := testing.AllocsPerRun(100, f); n != 0 {
				t.Errorf("%s %s: %v allocations", c.name, name, n)
			}
		}
	}
}

// Neighbours that answer and are verified again and again allocate nothing.
func TestNoAllocationsOfNeighbours(t *testing.T) {
	for _, c := range pairs {
		l := newLAN(t)
		a := l.add(1, nil).addAddr(c.a + c.bits)
		x := wire.MAC{2, 0, 0, 0, 0, 2}
		a.udp(c.a, c.b, nil, nil)
		answer := claim(c.name == "IPv4", x, c.b, a, c.a)
		d := a.describe(answer)
		var g Datagram
		a.Input(l.now, 0, answer, &d, &g)
		a.cfg.Output, a.cfg.Changed = &sink{}, nil
		p, _ := a.Route(l.now, addr(c.b), wire.Addr{}, AnyDev)
		ref := p.Ref
		if n := testing.AllocsPerRun(100, func() {
			for range 60 { // reachable, stale, delay, probe
				l.now = l.now.Add(time.Second)
				a.Poll(l.now)
				a.Path(l.now, ref)
				if a.neigh.find(addr(c.b), 0).state == nudProbe {
					a.Input(l.now, 0, answer, &d, &g)
				}
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
		if s := a.entry(c.b).State; s == "failed" || s == "incomplete" || s == "none" {
			t.Errorf("%s: %s", c.name, s)
		}
	}
}
