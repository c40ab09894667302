package control

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/packet"
)

// outbox keeps the frames that a handler originates.
type outbox struct {
	datapath.Output
	frames [][]byte
}

func (o *outbox) Send(_ uint8, frame []byte) error {
	o.frames = append(o.frames, bytes.Clone(frame))
	return nil
}

func (o *outbox) AtEnd(func()) {}

// resets returns the resets in the outbox as text.
func (o *outbox) resets(w *world) (list []string) {
	w.t.Helper()
	for _, p := range o.frames {
		w.checksumsRight(p)
		tcp := gopacket.NewPacket(p, layers.LayerTypeEthernet, gopacket.Default).TransportLayer().(*layers.TCP)
		f := flowOf(p)
		if !tcp.RST || tcp.SYN || tcp.FIN || tcp.ACK {
			w.t.Errorf("%v is no plain reset", f)
		}
		list = append(list, fmt.Sprintf("%v %v->%v %d", f.dstMAC, f.src, f.dst, tcp.Seq))
	}
	return list
}

// Whatever discards a connection that is in use, both ends get resets with the numbers that they may expect: what they
// have acknowledged, and what the other has sent. Half-open ones get none.
func TestBothEndsOfADiscardedConnectionAreReset(t *testing.T) {
	const only = `
devices: [{name: gw0}, {name: gw1}]
snat: [198.18.2.1]
table: {size: 4096}
services:
  - {name: web, removed: drop, unhealthy: drop, health: {interval: 1h}, address: 198.18.1.1:80, backends: [{name: %s}]}
`
	const b12, b13 = "b12, address: 198.18.2.12:80", "b13, address: 198.18.2.13:80"
	for name, end := range map[string]func(w *world){
		"expiry": func(w *world) { w.now = w.now.Add(3 * time.Hour) },
		"drained": func(w *world) {
			if err := w.g.Drain("web", "b12", DrainOptions{Deadline: time.Second, Force: true}); err != nil {
				w.t.Fatal(err)
			}
			elapse(2 * time.Second)
		},
		"removed":   func(w *world) { w.reload(fmt.Sprintf(only, b13)) },
		"unhealthy": func(w *world) { w.setHealth("b12", false) },
		"shutdown":  func(w *world) { w.h.ResetAll(0, 10) },
	} {
		t.Run(name, func(t *testing.T) {
			life(t, fmt.Sprintf(only, b12), func(w *world) {
				var box outbox
				w.h.SetOutput(&box)
				to := flowOf(w.connect(host))
				w.expect(0, client("198.18.0.9:41000", web, "S").bytes(), 1)
				end(w)
				w.h.Tick(w.now)
				want := []string{
					fmt.Sprintf("02:00:00:00:00:c1 %s->%s %d", web, host, firstSeq),
					fmt.Sprintf("02:00:00:00:00:c1 %s->%s %d", web, host, firstSeq+16),
					fmt.Sprintf("02:00:00:00:00:b1 %v->%v %d", to.src, to.dst, firstSeq),
					fmt.Sprintf("02:00:00:00:00:b1 %v->%v %d", to.src, to.dst, firstSeq+24),
				}
				if diff := cmp.Diff(want, box.resets(w)); diff != "" {
					w.t.Error(diff)
				}
				if n := w.h.Connections(); n != 0 {
					w.t.Errorf("%d connections are left", n)
				}
				w.audit()
			})
		})
	}
}

// A backend with many connections becomes inactive: the sweep resets no more of them than the budget allows, and goes
// on later.
func TestDiscardedConnectionsAreResetAtABoundedRate(t *testing.T) {
	w := newWorld(t, strings.Replace(lived("", ", state: active"), "size: 4096", "size: 8000", 1), lived("", ""))
	var box outbox
	w.h.SetOutput(&box)
	for i := range 3000 {
		w.connect(fmt.Sprintf("198.18.%d.%d:40000", 32+i/250, 1+i%250))
	}
	off := strings.Replace(lived("", ", state: inactive"), "size: 4096", "size: 8000", 1)
	off = strings.Replace(strings.Replace(off, "2.11:80", "2.11:80, state: inactive", 1), "2.13:80", "2.13:80, state: inactive", 1)
	w.reload(off)
	for range 8 {
		w.h.Tick(w.now)
	}
	if n := w.h.Connections(); n != 2000 || len(box.frames) != 4000 {
		t.Errorf("%d connections are left, %d resets; want all but the burst of 1000", n, len(box.frames))
	}
	w.after(20 * time.Second)
	if n := w.h.Connections(); n != 0 || len(box.frames) != 12000 {
		t.Errorf("%d connections are left, %d resets", n, len(box.frames))
	}
}

// offeredAndRefused is send for a packet of no flow as a dispatcher brings it: it is left as it is and not counted when it is
// offered, and decided when no other handler has taken it.
func (w *world) offeredAndRefused(from uint8, p []byte) sent {
	w.t.Helper()
	counted := func() (n [3]uint64) {
		return [3]uint64{w.h.Connections(), w.h.Count(packet.DropNoFlow), w.g.Status().Services[0].Dropped["no_flow"]}
	}
	before := counted()
	b := w.batch(from, p)
	w.describe(b)
	if w.h.Offer(w.now, b); b.D[0].Verdict != packet.DropNoFlow || !bytes.Equal(b.Bytes(0), p) || counted() != before {
		w.t.Errorf("offered: verdict %v, packet changed: %v, counted %v after %v", b.D[0].Verdict, !bytes.Equal(b.Bytes(0), p), counted(), before)
	}
	w.h.Refuse(w.now, b)
	return sent{b.D[0].Verdict, b.D[0].Port, bytes.Clone(b.Bytes(0))}
}

// Segments of no connection: what their senders get, and that another handler is asked first.
func TestUnknownSegmentsAreAnsweredAsTheServiceSays(t *testing.T) {
	for _, c := range []struct {
		keys            string
		client, backend string // "reset", "picked up" or "dropped"
		offered         bool   // the loop has another handler, which may know the connection
	}{
		{"", "reset", "reset", false},
		{"unknown: reset", "reset", "reset", false},
		{"unknown: drop", "dropped", "dropped", false},
		{"source: client", "picked up", "picked up", false},
		{"source: client\n    unknown: pickup", "picked up", "picked up", false},
		{"source: client\n    unknown: reset", "reset", "reset", false},
		{"source: client\n    unknown: drop", "dropped", "dropped", false},
		{"", "reset", "reset", true},
		{"unknown: drop", "dropped", "dropped", true},
		{"source: client", "picked up", "picked up", true},
		{"source: client\n    unknown: reset", "reset", "reset", true},
	} {
		w := newWorld(t, lived(c.keys, ""))
		to := flowOf(w.expect(0, client(host, web, "S").bytes(), 1))
		back := seg{src: to.dst, dst: to.src, flags: "PA", payload: "x", from: macBackend, to: macGw1, ack: 4711}
		w.now = w.now.Add(time.Hour) // as after a restart
		w.h.Tick(w.now)
		result := func(s sent, port uint8) string {
			switch {
			case s.verdict == packet.DropNoFlow:
				return "dropped"
			case s.verdict != packet.Forward || s.port != port:
				return "picked up"
			}
			w.checksumsRight(s.p)
			tcp := gopacket.NewPacket(s.p, layers.LayerTypeEthernet, gopacket.Default).TransportLayer().(*layers.TCP)
			if !tcp.RST || tcp.ACK || tcp.Seq != 4711 {
				t.Errorf("%q: %+v", c.keys, tcp)
			}
			return "reset"
		}
		send := w.send
		if c.offered {
			send = w.offeredAndRefused
		}
		if got := result(send(1, back.bytes()), 1); got != c.backend {
			t.Errorf("%q: the backend's is %s, want %s", c.keys, got, c.backend)
		}
		ask := client(host, web, "A")
		ask.ack = 4711
		if got := result(send(0, ask.bytes()), 0); got != c.client {
			t.Errorf("%q: the client's is %s, want %s", c.keys, got, c.client)
		}
		if got := send(0, client("198.18.0.9:40002", web, "R").bytes()).verdict; c.client != "picked up" && got != packet.DropNoFlow {
			t.Errorf("%q: a reset is answered: %v", c.keys, got)
		}
	}
}

// A packet that is offered first and refused then costs its sender one of the packets and one of the connections that it may
// send.
func TestARefusedPacketCountsOnceAgainstLimits(t *testing.T) {
	w := newWorld(t, strings.Replace(fmt.Sprintf(limited, 0, 0), "name: web,", "name: web, source: client,", 1))
	var got []packet.Verdict
	for port := range 3 {
		p := client(fmt.Sprintf("198.18.0.9:%d", 40000+port), web, "A").bytes()
		b := w.batch(0, p)
		w.describe(b)
		w.h.Offer(w.now, b)
		w.h.Refuse(w.now, b)
		got = append(got, b.D[0].Verdict)
	}
	if diff := cmp.Diff([]packet.Verdict{packet.Forward, packet.Forward, packet.DropRateLimit}, got); diff != "" {
		t.Error(diff)
	}
	b := w.batch(0, client("198.18.0.9:40000", web, "A").bytes())
	w.describe(b)
	if w.h.Offer(w.now, b); b.D[0].Verdict != packet.DropRateLimit {
		t.Errorf("the fourth packet is offered: %v", b.D[0].Verdict)
	}
}

// An ICMP error about a connection that the gateway does not know may be about one of another handler: with a direct mode the
// gateway leads it to a backend by its hash only if no other takes it.
func TestErrorsAboutUnknownConnectionsAreOffered(t *testing.T) {
	w := newWorld(t, strings.Replace(directConfig, "{name: web,", "{name: web, unknown: auto,", 1))
	fromBackend := answer(client(host, web, "A").bytes(), "A").bytes()
	m := message{src: "198.18.0.254", dst: "198.18.1.1", kind: 3, code: 1, about: fromBackend, from: macClient, to: macGw0}
	for name, decide := range map[string]func(clock.Time, *packet.Batch){"Refuse": w.h.Refuse, "Handle": w.h.Handle} {
		b := w.batch(0, m.bytes())
		w.describe(b)
		if w.h.Offer(w.now, b); b.D[0].Verdict != packet.DropNoFlow {
			t.Errorf("offered: %v", b.D[0].Verdict)
		}
		if decide(w.now, b); b.D[0].Verdict != packet.Forward {
			t.Errorf("%s: %v", name, b.D[0].Verdict)
		}
	}
}

// A gateway that ends resets a few connections at a time, by the hops of now, and goes on where it ended.
func TestConnectionsAreResetAFewAtATime(t *testing.T) {
	w := newWorld(t, withBackends("keep", 12))
	var box outbox
	w.h.SetOutput(&box)
	for i := range 7 {
		w.connect(fmt.Sprintf("198.18.0.9:%d", 1000+i))
	}
	w.after(0)
	s := *w.g.snap.Load() // another way to the backend, of which no packet has told the handler
	s.Endpoints = slices.Clone(s.Endpoints)
	replace(s.Endpoints, 0).Hop.MAC[5]++
	w.g.snap.Store(&s)
	at := 0
	for i, want := range []struct {
		reset, next int
		more        bool
	}{{3, 3, true}, {3, 6, true}, {1, 7, false}} {
		reset, next, more := w.h.ResetAll(at, 3)
		if reset != want.reset || next != want.next || more != want.more {
			t.Errorf("call %d: %d reset, next %d, more %v; want %+v", i, reset, next, more, want)
		}
		if left := w.h.Connections(); left != uint64(7-next) {
			t.Errorf("call %d: %d connections are left", i, left)
		}
		at = next
	}
	for _, r := range box.resets(w) {
		if !strings.HasPrefix(r, "02:00:00:00:00:c1 ") && !strings.HasPrefix(r, "02:00:00:00:00:b2 ") {
			t.Errorf("a reset by the hop of before: %s", r)
		}
	}
}
