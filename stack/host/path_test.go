package host

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/udp"
	"github.com/millrace/millrace/wire"
)

func TestSegmentsLongerThanAFrameTravelInChains(t *testing.T) {
	w := newWorld(t, setting{mtu: 9000})
	w.exchange(text(2<<20, 4), 20*time.Second)
	a, b := w.settle()
	if a.TotalDropped()+b.TotalDropped() != unsolicited(&a)+unsolicited(&b) || a.ReceivedBytes/a.Received < 5000 {
		t.Errorf("%+v\n%+v", a, b)
	}
}

func TestASmallTransmitRingLosesNothing(t *testing.T) {
	w := newWorld(t, setting{slots: 16})
	w.exchange(text(1<<20, 5), 60*time.Second)
	a, b := w.settle()
	if a.TotalDropped()+b.TotalDropped() != unsolicited(&a)+unsolicited(&b) {
		t.Errorf("%+v\n%+v", a, b)
	}
}

func TestLoopback(t *testing.T) {
	for _, loops := range []int{1, 2} {
		w := newWorld(t, setting{loops: loops})
		w.listen(w.a, 7, true)
		var all []*sock
		data := text(200<<10, 6)
		for i := range w.a.Hosts {
			all = append(all, w.dial(w.a, i, addrA4, addrA4, 7), w.dial(w.a, i, addrA6, addrA6, 7))
		}
		for _, s := range all {
			s.send, s.shut = data, true
		}
		w.run(30*time.Second, func() bool {
			for _, s := range all {
				if !s.fin {
					return false
				}
			}
			return true
		})
		for i, s := range all {
			if !bytes.Equal(s.got, data) {
				t.Errorf("%d loops, connection %d: %d of %d bytes, %v %v", loops, i, len(s.got), len(data), s.c.State(), s.c.Err())
			}
			s.c.Close(w.now)
		}
		a, _ := w.settle()
		if a.TotalDropped() != unsolicited(&a) || a.Originated < 300 {
			t.Errorf("%+v", a)
		}
	}
}

// packets is a UDP socket of a world.
type packets struct {
	w   *world
	s   *udp.Socket
	got [][]byte
	of  []udp.Message
}

func (p *packets) Ready(udp.Events) {
	for {
		buf := make([]byte, 1<<16)
		m := []udp.Message{{Buffers: [][]byte{buf}}}
		if p.s.Read(p.w.now, m) == 0 {
			return
		}
		p.got, p.of = append(p.got, buf[:m[0].N]), append(p.of, m[0])
	}
}

// bind opens a socket on every loop, as sockets are.
func (w *world) bind(g *Group, port uint16) (all []*packets) {
	w.t.Helper()
	w.must(g.Each(func(now clock.Time, h *Host) error {
		p := &packets{w: w}
		all = append(all, p)
		var err error
		p.s, err = h.UDP.Bind(wire.Addr{}, port, &udp.Options{Share: true}, p)
		return err
	}))
	return all
}

func (p *packets) send(to netip.Prefix, port uint16, size int, data []byte) packet.Verdict {
	_, v := p.s.Write(p.w.now, []udp.Message{{Buffers: [][]byte{data[:len(data)/3], data[len(data)/3:]}, Remote: wire.AddrFrom(to.Addr()), RemotePort: port, SegmentSize: size}})
	return v
}

func TestDatagramsTravelWholeSegmentedAndInFragments(t *testing.T) {
	for _, s := range []setting{{}, {loops: 2, cross: true}, {mtu: 9000}, {loops: 3}} {
		w := newWorld(t, s)
		in, out := w.bind(w.b, 9), w.bind(w.a, 10)
		for _, to := range []netip.Prefix{addrB4, addrB6} {
			for _, c := range []struct{ n, size int }{{0, 0}, {1, 0}, {1400, 0}, {5000, 0}, {30_000, 0}, {10_000, 1000}, {9999, 1200}, {11_000, 5000}} {
				data := text(c.n, uint64(c.n))
				for _, x := range in {
					x.got, x.of = nil, nil
				}
				if v := out[0].send(to, 9, c.size, data); v != packet.Forward {
					t.Fatalf("%v", v)
				}
				want := 1
				if c.size > 0 {
					want = (c.n + c.size - 1) / c.size
				}
				var got [][]byte
				w.run(5*time.Second, func() bool {
					got = nil
					for _, x := range in {
						got = append(got, x.got...)
					}
					return len(got) == want
				})
				if len(got) != want || !bytes.Equal(bytes.Join(got, nil), data) {
					t.Errorf("%+v to %v: %d datagrams of %d bytes for %+v", s, to, len(got), len(bytes.Join(got, nil)), c)
				}
			}
		}
		w.settle()
	}
}

// Whichever loop an unconnected socket has sent by, and whichever receives the report that its datagram was too long: all
// loops come to know. A report about a datagram that was not sent changes nothing.
func TestPathMTUOfDatagramsReachesAllLoops(t *testing.T) {
	w := newWorld(t, setting{loops: 3})
	out := w.bind(w.a, 10)
	to := wire.AddrFrom(addrB4.Addr())
	mtu := func(h *Host) int {
		p, _ := h.IP.Route(w.now, to, wire.Addr{}, ip.AnyDev)
		return h.IP.MTU(w.now, p, to)
	}
	for i, h := range w.a.Hosts {
		port, limit := uint16(100+i), 1400-i
		receive := func(port uint16) (confirmed bool) {
			confirmed = h.onICMP(w.now, &ip.ICMPError{
				Kind: ip.TooBig, Proto: wire.ProtoUDP, MTU: limit, Quote: make([]byte, 8),
				Tuple: wire.Tuple{Local: wire.AddrFrom(addrA4.Addr()), LocalPort: 10, Remote: to, RemotePort: port},
			})
			w.run(20*time.Millisecond, func() bool { return false })
			return confirmed
		}
		out[(i+1)%3].send(addrB4, port, 0, []byte("x"))
		receive(port + 50)
		if mtu(h) <= limit {
			t.Errorf("loop %d: a report about a datagram that was not sent was stored", i)
		}
		receive(port)
		if out[i].send(addrB4, port+200, 0, []byte("x")); !receive(port + 200) {
			t.Errorf("loop %d does not confirm what it has sent itself", i)
		}
		for k, o := range w.a.Hosts {
			if k != i && mtu(o) != limit { // the loop itself has it from its node, where that confirms
				t.Errorf("received by loop %d: %d on loop %d, not %d", i, mtu(o), k, limit)
			}
		}
	}
	for range 2 * maxPending { // no loop runs them
		w.a.Hosts[0].onICMP(w.now, &ip.ICMPError{Kind: ip.TooBig, Proto: wire.ProtoUDP, Quote: make([]byte, 8)})
	}
	if n := len(w.a.Hosts[0].pending); n > maxPending+2 {
		t.Errorf("%d commands wait", n)
	}
	w.settle()
}

// reports counts the events of a UDP socket.
type reports int

func (r *reports) Ready(udp.Events) { *r++ }

// The owner of a socket learns of an error that another loop has received, also where its own loop has nothing else to do.
func TestAnErrorFromAnotherLoopReachesTheOwner(t *testing.T) {
	w := newWorld(t, setting{loops: 2})
	var events [2]reports
	for i, h := range w.a.Hosts {
		w.must(h.locked(func(now clock.Time, h *Host) error {
			s, err := h.UDP.Bind(wire.Addr{}, 10, &udp.Options{Share: true, QueueErrors: true}, &events[i])
			if err == nil && i == 1 {
				s.Write(now, []udp.Message{{Buffers: [][]byte{[]byte("x")}, Remote: wire.AddrFrom(addrB4.Addr()), RemotePort: 200}})
			}
			return err
		}))
	}
	w.run(20*time.Millisecond, func() bool { return false })
	before := events[1]
	w.a.Hosts[0].onICMP(w.now, &ip.ICMPError{
		Kind: ip.PortUnreachable, Proto: wire.ProtoUDP, Quote: make([]byte, 8),
		Tuple: wire.Tuple{Local: wire.AddrFrom(addrA4.Addr()), LocalPort: 10, Remote: wire.AddrFrom(addrB4.Addr()), RemotePort: 200},
	})
	for range 3 { // iterations, in which no time passes
		w.poll()
	}
	if events[1] != before+1 {
		t.Errorf("the owner had %d events, want 1", events[1]-before)
	}
	w.settle()
}

func TestAFloodOfDatagramsIsDelayedNotLost(t *testing.T) {
	w := newWorld(t, setting{slots: 16})
	w.bind(w.b, 9)
	out := w.bind(w.a, 10)[0]
	out.send(addrB4, 9, 0, nil)
	w.run(time.Second, func() bool { return false }) // the neighbour is known
	full := false
	for range 10_000 {
		if v := out.send(addrB4, 9, 0, make([]byte, 1000)); v == packet.DropTxFull {
			full = true
			break
		}
	}
	if !full {
		t.Error("there was room without end")
	}
	w.settle()
}

// bounded is a device that looks whether packets lie within their frames.
type bounded struct {
	pmd.Driver
	t testing.TB
}

func (p bounded) Tx(now clock.Time, b *packet.Batch) (int, error) {
	for i := range b.D {
		if b.Arena.Headroom(&b.D[i])+int(b.D[i].Len) > b.Arena.FrameSize() {
			p.t.Errorf("a packet goes beyond its frame: %+v", b.D[i])
		}
	}
	return p.Driver.Tx(now, b)
}

func TestPacketsAboutAsLongAsAFrame(t *testing.T) {
	for mtu := 2048 - headroom - 14 - 1; mtu <= 2048-headroom-14+1; mtu++ {
		w := newWorld(t, setting{mtu: mtu, wrap: func(d pmd.Driver) pmd.Driver { return bounded{d, t} }, both: true})
		w.exchange(text(100<<10, 7), 20*time.Second)
		w.settle()
	}
}

// TestLinkMTUIsNotThePaths: what a router on the way reports bounds what is sent, not what is received: LinkMTU, from which TCP
// announces its MSS (RFC 9293 3.7.1, MUST-67), stays that of the interface.
func TestLinkMTUIsNotThePaths(t *testing.T) {
	w := newWorld(t, setting{})
	h := w.a.Hosts[0]
	flow := wire.Tuple{Local: wire.AddrFrom(addrA4.Addr()), LocalPort: 10, Remote: wire.AddrFrom(addrB4.Addr()), RemotePort: 100}
	h.IP.Apply(w.now, &ip.Change{Kind: ip.PathMTU, Addr: flow.Remote, MTU: 1300})
	o := tcpOutput{h}
	if path, link := o.MTU(&flow), o.LinkMTU(&flow); path != 1300 || link != 1500 {
		t.Errorf("the path takes %d, want 1300; the link %d, want 1500", path, link)
	}
	flow.Remote = wire.AddrFrom4([4]byte{203, 0, 113, 1})
	if n := o.LinkMTU(&flow); n != 0 {
		t.Errorf("%d without a route", n)
	}
}
