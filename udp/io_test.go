package udp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

func TestReadReportsHeaderFields(t *testing.T) {
	m, _ := newMux(Config{})
	s := bind(t, m, wire.Addr{}, 1, nil)
	m.Input(0, &wire.Tuple{Local: ours, LocalPort: 1, Remote: theirs, RemotePort: 9},
		&Datagram{Payload: [][]byte{[]byte("ab"), nil, []byte("cde")}, Len: 5, Interface: 3, TOS: 0xb9, TTL: 7, Time: 11})
	a, b := make([]byte, 2), make([]byte, 2)
	msg := []Message{{Buffers: [][]byte{a, nil, b}}, {}}
	if n := s.Read(0, msg); n != 1 {
		t.Fatal(n)
	}
	g := &msg[0]
	if g.N != 4 || !g.Truncated || string(a)+string(b) != "abcd" || g.Remote != theirs || g.RemotePort != 9 ||
		g.Local != ours || g.Interface != 3 || g.TOS != 0xb9 || g.TTL != 7 || g.Time != 11 || g.SegmentSize != 0 {
		t.Errorf("%+v %q %q", g, a, b)
	}
}

// TestMergedInputIsCut: what a device or the host has merged waits as single datagrams.
func TestMergedInputIsCut(t *testing.T) {
	m, _ := newMux(Config{})
	s := bind(t, m, wire.Addr{}, 1, nil)
	v := m.Input(0, &wire.Tuple{Local: ours, LocalPort: 1, Remote: theirs, RemotePort: 9},
		&Datagram{Payload: [][]byte{[]byte("abcd"), []byte("efg")}, Len: 7, SegmentSize: 3})
	got := []string{read(s), read(s), read(s), read(s)}
	if v != packet.Deliver || fmt.Sprint(got) != "[abc def g ]" || m.Stats().Received != 3 {
		t.Errorf("%v %q, %d received", v, got, m.Stats().Received)
	}
}

// TestGROEqualsNoGRO reads the same random arrivals with and without merging: what comes out, cut by
// SegmentSize, is the same.
func TestGROEqualsNoGRO(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		m, _ := newMux(Config{})
		plain, merged := bind(t, m, ours, 1, nil), bind(t, m, ours2, 1, &Options{GRO: true})
		for i := range 100 {
			d := Datagram{Payload: [][]byte{bytes.Repeat([]byte{byte(i)}, rnd.IntN(4)*100)}, TOS: uint8(rnd.IntN(8) / 7)}
			d.Len = len(d.Payload[0])
			from := uint16(rnd.IntN(8) / 7)
			for _, local := range []wire.Addr{ours, ours2} {
				m.Input(0, &wire.Tuple{Local: local, LocalPort: 1, Remote: theirs, RemotePort: from}, &d)
			}
		}
		want, _ := drain(plain, 65535)
		got, messages := drain(merged, []int{65535, 700, 300}[seed%3])
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Fatalf("seed %d: with GRO\n%q\nwithout\n%q", seed, short(got), short(want))
		}
		if seed%3 == 0 && messages == len(got) {
			t.Errorf("seed %d: nothing was merged", seed)
		}
	}
}

func short(list []string) (out []string) {
	for _, s := range list {
		out = append(out, fmt.Sprintf("%d", len(s)))
	}
	return out
}

// drain reads everything, cut into datagrams.
func drain(s *Socket, room int) (out []string, messages int) {
	b := make([]byte, room)
	for {
		msg := []Message{{Buffers: [][]byte{b[:room/2], b[room/2:]}}}
		if s.Read(0, msg) == 0 {
			return out, messages
		}
		messages++
		data, size := b[:msg[0].N], msg[0].SegmentSize
		for size > 0 && len(data) > size {
			out = append(out, string(data[:size]))
			data = data[size:]
		}
		out = append(out, string(data))
	}
}

func TestGROKeepsApart(t *testing.T) {
	flow := wire.Tuple{Local: ours, LocalPort: 1, Remote: theirs, RemotePort: 9}
	other := flow
	other.RemotePort = 8
	elsewhere := flow
	elsewhere.Remote = ours2
	ab := Datagram{Payload: [][]byte{[]byte("ab")}, Len: 2, TTL: 5}
	for _, c := range []struct {
		name   string
		tuple  wire.Tuple
		change func(d *Datagram)
		sizes  string
	}{
		{"same", flow, func(*Datagram) {}, "[4/2]"},
		{"shorter", flow, func(d *Datagram) { d.Len = 1 }, "[3/2]"},
		{"longer", flow, func(d *Datagram) { d.Payload, d.Len = [][]byte{[]byte("abc")}, 3 }, "[2/0 3/0]"},
		{"empty", flow, func(d *Datagram) { d.Len = 0 }, "[2/0 0/0]"},
		{"port", other, func(*Datagram) {}, "[2/0 2/0]"},
		{"address", elsewhere, func(*Datagram) {}, "[2/0 2/0]"},
		{"TOS", flow, func(d *Datagram) { d.TOS = 1 }, "[2/0 2/0]"},
		{"TTL", flow, func(d *Datagram) { d.TTL = 6 }, "[2/0 2/0]"},
		{"interface", flow, func(d *Datagram) { d.Interface = 1 }, "[2/0 2/0]"},
	} {
		m, _ := newMux(Config{})
		s := bind(t, m, ours, 1, &Options{GRO: true})
		d := ab
		c.change(&d)
		m.Input(0, &flow, &ab)
		m.Input(0, &c.tuple, &d)
		var got []string
		for {
			msg := []Message{{Buffers: [][]byte{make([]byte, 100)}}}
			if s.Read(0, msg) == 0 {
				break
			}
			got = append(got, fmt.Sprintf("%d/%d", msg[0].N, msg[0].SegmentSize))
		}
		if fmt.Sprint(got) != c.sizes {
			t.Errorf("%s: %v, want %s", c.name, got, c.sizes)
		}
	}
}

func TestGROStaysWithinTheBuffer(t *testing.T) {
	m, _ := newMux(Config{})
	s := bind(t, m, ours, 1, &Options{GRO: true})
	for range 5 {
		input(m, ours, 1, theirs, 9, strings.Repeat("x", 100))
	}
	msg := []Message{{Buffers: [][]byte{make([]byte, 399)}}}
	if s.Read(0, msg); msg[0].N != 300 || msg[0].Truncated {
		t.Errorf("%d bytes, truncated %v", msg[0].N, msg[0].Truncated)
	}
	m.Poll(0)
	for range 70 {
		input(m, ours, 1, theirs, 9, "y")
	}
	msg[0].Buffers[0] = make([]byte, 1000)
	s.Read(0, msg)
	if s.Read(0, msg); msg[0].N != MaxCoalesced {
		t.Errorf("%d datagrams in one message", msg[0].N)
	}
}

// TestWriteCuts compares what is sent with a slow cut, for many sizes and offloads.
func TestWriteCuts(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		m, o := newMux(Config{})
		o.offload = rnd.IntN(2) * rnd.IntN(3000)
		s := connect(t, m, wire.Tuple{Local: ours, Remote: theirs, RemotePort: 9}, nil)
		var all []byte
		msg := []Message{{SegmentSize: rnd.IntN(500)}}
		for range rnd.IntN(4) {
			b := make([]byte, rnd.IntN(1000))
			for i := range b {
				b[i] = byte(rnd.Uint32())
			}
			all = append(all, b...)
			msg[0].Buffers = append(msg[0].Buffers, b)
		}
		o.room = rnd.IntN(4) // stops within the message
		for tries := 0; ; tries++ {
			n, v := s.Write(0, msg)
			if n == 1 {
				break
			}
			if v != packet.DropTxFull || tries > 10_000 {
				t.Fatalf("%d, %v after %d tries", n, v, tries)
			}
			o.room = 1 + rnd.IntN(3)
		}
		checkCut(t, o, all, msg[0].SegmentSize)
		if msg[0].N != len(all) {
			t.Errorf("N is %d of %d", msg[0].N, len(all))
		}
	}
}

func checkCut(t *testing.T, o *outbox, all []byte, size int) {
	t.Helper()
	if size == 0 || size > len(all) {
		size = len(all)
	}
	for i, s := range o.sent {
		if s.Len != len(s.data) || s.SegmentSize != min(size, s.Len) || s.Len > max(size, o.offload) {
			t.Fatalf("piece %d: %d bytes, Len %d, SegmentSize %d of %d, offload %d", i, len(s.data), s.Len, s.SegmentSize, size, o.offload)
		}
		if i < len(o.sent)-1 && s.Len%size != 0 {
			t.Fatalf("piece %d of %d has a short datagram", i, len(o.sent))
		}
		if !strings.HasPrefix(string(all), s.data) {
			t.Fatalf("piece %d has other bytes", i)
		}
		all = all[len(s.data):]
	}
	if len(all) > 0 || len(o.sent) == 0 {
		t.Fatalf("%d bytes were not sent", len(all))
	}
}

func TestWriteAddresses(t *testing.T) {
	for _, c := range []struct {
		name        string
		bound       wire.Addr
		o           Options
		msg         Message
		v           packet.Verdict
		from, to    wire.Addr
		ttl, tos    uint8
		iface       uint32
		hint, loops bool
	}{
		{name: "any", msg: Message{Remote: theirs, RemotePort: 1}, v: packet.Forward, to: theirs},
		{name: "bound", bound: ours, msg: Message{Remote: theirs, RemotePort: 1}, v: packet.Forward, from: ours, to: theirs},
		{name: "packet info", msg: Message{Remote: theirs, RemotePort: 1, Local: ours2}, v: packet.Forward, from: ours2, to: theirs},
		{name: "to nobody", v: packet.DropMalformed},
		{name: "to port 0", msg: Message{Remote: theirs}, v: packet.DropMalformed},
		{name: "to any", msg: Message{Remote: wire.Unspecified4, RemotePort: 1}, v: packet.DropMalformed},
		{name: "from IPv4 to IPv6", bound: ours, msg: Message{Remote: peer6, RemotePort: 1}, v: packet.DropNoRoute},
		{name: "from any IPv4 to IPv6", bound: wire.Unspecified4, msg: Message{Remote: peer6, RemotePort: 1}, v: packet.DropNoRoute},
		{name: "from IPv6 alone to IPv4", o: Options{V6Only: true}, msg: Message{Remote: theirs, RemotePort: 1}, v: packet.DropNoRoute},
		{name: "options", o: Options{TTL: 3, TOS: 0xb8, Interface: 2}, msg: Message{Remote: theirs, RemotePort: 1}, v: packet.Forward, to: theirs, ttl: 3, tos: 0xb8, iface: 2},
		{name: "ECN beside DSCP", o: Options{TOS: 0xb8}, msg: Message{Remote: theirs, RemotePort: 1, TOS: 2}, v: packet.Forward, to: theirs, tos: 0xba},
		{name: "message before options", o: Options{TTL: 3, TOS: 0xb8, Interface: 2}, msg: Message{Remote: theirs, RemotePort: 1, TTL: 4, TOS: 0x21, Interface: 1}, v: packet.Forward, to: theirs, ttl: 4, tos: 0x21, iface: 1},
		{name: "multicast", msg: Message{Remote: many, RemotePort: 1}, v: packet.Forward, to: many, ttl: 1, loops: true},
		{name: "multicast options", o: Options{MulticastTTL: 9, MulticastInterface: 5, NoLoop: true, TTL: 3}, msg: Message{Remote: many, RemotePort: 1}, v: packet.Forward, to: many, ttl: 9, iface: 5},
		{name: "bound to a group", bound: many, msg: Message{Remote: theirs, RemotePort: 1}, v: packet.Forward, to: theirs},
	} {
		m, o := newMux(Config{})
		s := bind(t, m, c.bound, 7, &c.o)
		_, v := s.Write(0, []Message{c.msg})
		if v != c.v {
			t.Errorf("%s: %v, want %v", c.name, v, c.v)
		}
		if v != packet.Forward {
			continue
		}
		d := o.sent[0]
		if d.t.Local != c.from || d.t.LocalPort != 7 || d.t.Remote != c.to || d.TTL != c.ttl || d.TOS != c.tos || d.Interface != c.iface || d.Loop != c.loops || d.RouteCache != nil {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
}

func TestOnlyConnectedSocketsCacheRoutes(t *testing.T) {
	m, o := newMux(Config{})
	s := connect(t, m, wire.Tuple{Local: ours, Remote: theirs, RemotePort: 9}, nil)
	s.Write(0, []Message{{}, {Remote: theirs, RemotePort: 9}, {Remote: ours2, RemotePort: 9}, {Local: ours2}})
	var hints []bool
	for _, d := range o.sent {
		hints = append(hints, d.RouteCache != nil)
	}
	if fmt.Sprint(hints) != "[true true false false]" {
		t.Error(hints)
	}
}

func TestWriteLimits(t *testing.T) {
	m, o := newMux(Config{})
	s := bind(t, m, wire.Addr{}, 1, nil)
	for _, c := range []struct {
		to   wire.Addr
		n    int
		want packet.Verdict
	}{
		{theirs, 65507, packet.Forward},
		{theirs, 65508, packet.DropTooBig},
		{peer6, 65527, packet.Forward},
		{peer6, 65528, packet.DropTooBig},
		{theirs, 0, packet.Forward},
	} {
		_, v := s.Write(0, []Message{{Remote: c.to, RemotePort: 1, Buffers: [][]byte{make([]byte, c.n)}}})
		if v != c.want {
			t.Errorf("%d bytes to %v: %v", c.n, c.to, v)
		}
	}
	o.verdict = packet.DropNoRoute
	n, v := s.Write(0, []Message{{Remote: theirs, RemotePort: 1}, {Remote: theirs, RemotePort: 1}})
	if n != 0 || v != packet.DropNoRoute {
		t.Errorf("%d, %v", n, v)
	}
	if st := s.Stats(); st.Sent != 3 || m.Stats().Sent != 3 {
		t.Errorf("%+v", st)
	}
}

// TestSteadyStateAllocatesNothing receives, reads, leases and sends.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	m := NewMux(Config{Output: nowhere{}})
	s := bind(t, m, wire.Addr{}, 1, &Options{GRO: true})
	c := connect(t, m, wire.Tuple{Local: ours, LocalPort: 2, Remote: theirs, RemotePort: 9}, nil)
	payload := make([]byte, 1200)
	d := &Datagram{Payload: [][]byte{payload}, Len: len(payload)}
	t1 := &wire.Tuple{Local: ours, LocalPort: 1, Remote: theirs, RemotePort: 9}
	t2 := &wire.Tuple{Local: ours, LocalPort: 2, Remote: theirs, RemotePort: 9}
	in := []Message{{Buffers: [][]byte{make([]byte, 65535)}}}
	out := []Message{{Buffers: [][]byte{make([]byte, 65000)}, SegmentSize: 1200, Remote: theirs, RemotePort: 3}}
	n := testing.AllocsPerRun(100, func() {
		for range 20 {
			m.Input(0, t1, d)
			m.Input(0, t2, d)
		}
		m.Poll(0)
		for s.Read(0, in) > 0 {
		}
		for l, ok := c.Lease(0); ok; l, ok = c.Lease(0) {
			l.Release()
		}
		out[0].N = 0
		s.Write(0, out)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// nowhere is an Output that takes everything.
type nowhere struct{}

// Offload implements Output.
func (nowhere) Offload() int { return 0 }

func (nowhere) Send(clock.Time, *Outgoing) packet.Verdict { return packet.Forward }
