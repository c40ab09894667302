package udp

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

func TestTheMostSpecificSocketReceives(t *testing.T) {
	m, _ := newMux(Config{})
	share := &Options{Share: true}
	flow := wire.Tuple{Local: ours, LocalPort: 53, Remote: theirs, RemotePort: 1000}
	every := bind(t, m, wire.Addr{}, 53, share)
	every4 := bind(t, m, wire.Unspecified4, 53, share)
	one := bind(t, m, ours, 53, share)
	joined := connect(t, m, flow, share)
	only6 := bind(t, m, wire.Addr{}, 54, &Options{V6Only: true})
	for _, c := range []struct {
		local, remote wire.Addr
		port, from    uint16
		want          *Socket
	}{
		{ours, theirs, 53, 1000, joined},
		{ours, theirs, 53, 1001, one},
		{ours, ours2, 53, 1000, one},
		{ours2, theirs, 53, 1000, every4},
		{ours6, peer6, 53, 1000, every},
		{ours6, peer6, 54, 1, only6},
		{ours, theirs, 54, 1, nil},
		{ours, theirs, 55, 1, nil},
	} {
		v := input(m, c.local, c.port, c.remote, c.from, "x")
		if c.want == nil {
			if v != packet.DropNoSocket {
				t.Errorf("%v:%d: %v", c.local, c.port, v)
			}
			continue
		}
		if v != packet.Deliver || read(c.want) != "x" {
			t.Errorf("%v:%d from %v:%d: %v, not where it belongs", c.local, c.port, c.remote, c.from, v)
		}
	}
	joined.Close(0)
	if input(m, ours, 53, theirs, 1000, "y"); read(one) != "y" {
		t.Error("a closed socket still receives")
	}
}

func TestAddressesInUse(t *testing.T) {
	share, alone := &Options{Share: true}, &Options{}
	flow := wire.Tuple{Local: ours, LocalPort: 53, Remote: theirs, RemotePort: 1}
	for _, c := range []struct {
		name   string
		first  func(m *Mux) error
		second func(m *Mux) error
		ok     bool
	}{
		{"twice", try(ours, alone), try(ours, alone), false},
		{"any and one", try(wire.Addr{}, alone), try(ours, alone), false},
		{"one and any", try(ours, alone), try(wire.Addr{}, alone), false},
		{"two addresses", try(ours, alone), try(ours2, alone), true},
		{"shared", try(ours, share), try(ours, share), true},
		{"one shares", try(ours, share), try(ours, alone), false},
		{"the other shares", try(ours, alone), try(ours, share), false},
		{"IPv4 and IPv6 alone", try(wire.Unspecified4, alone), try(wire.Addr{}, &Options{V6Only: true}), true},
		{"IPv4 and both", try(wire.Unspecified4, alone), try(wire.Addr{}, alone), false},
		{"IPv6 alone and an address of IPv4", try(wire.Addr{}, &Options{V6Only: true}), try(ours, alone), true},
		{"bound and connected", try(ours, alone), tryConnect(flow, alone), false},
		{"connected twice", tryConnect(flow, alone), tryConnect(flow, alone), false},
		{"connected twice and shared", tryConnect(flow, share), tryConnect(flow, share), false},
		{"connected to two", tryConnect(flow, alone), tryConnect(wire.Tuple{Local: ours, LocalPort: 53, Remote: ours2, RemotePort: 1}, alone), true},
	} {
		m, _ := newMux(Config{})
		if err := c.first(m); err != nil {
			t.Fatal(c.name, err)
		}
		if err := c.second(m); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrInUse) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func try(a wire.Addr, o *Options) func(*Mux) error {
	return func(m *Mux) error { _, err := m.Bind(a, 53, o, nil); return err }
}

func tryConnect(t wire.Tuple, o *Options) func(*Mux) error {
	return func(m *Mux) error { _, err := m.Connect(t, o, nil); return err }
}

func TestConnectRejectsInvalidTuples(t *testing.T) {
	m, _ := newMux(Config{})
	for _, f := range []wire.Tuple{
		{Remote: theirs, RemotePort: 1},
		{Local: ours, RemotePort: 1},
		{Local: ours, Remote: theirs},
		{Local: ours, Remote: peer6, RemotePort: 1},
		{Local: wire.Unspecified4, Remote: theirs, RemotePort: 1},
	} {
		if _, err := m.Connect(f, nil, nil); !errors.Is(err, ErrAddress) {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

func TestPortsAreChosen(t *testing.T) {
	owned := func(t *wire.Tuple) bool { return t.LocalPort%4 == 1 }
	m, _ := newMux(Config{PortFirst: 60000, PortLast: 60009, Owns: owned})
	flow := wire.Tuple{Local: ours, Remote: theirs, RemotePort: 1}
	for range 3 { // 60001, 60005, 60009
		s := connect(t, m, flow, nil)
		if p := s.Tuple().LocalPort; p < 60000 || p > 60009 || p%4 != 1 {
			t.Errorf("port %d", p)
		}
	}
	if _, err := m.Connect(flow, nil, nil); !errors.Is(err, ErrNoPort) {
		t.Error(err)
	}
	flow.RemotePort = 2 // another peer: the ports serve again
	connect(t, m, flow, nil)
	seen := map[uint16]bool{}
	for range 7 {
		seen[bind(t, m, wire.Addr{}, 0, nil).Tuple().LocalPort] = true
	}
	if len(seen) != 7 || seen[60001] {
		t.Errorf("ports %v", seen)
	}
	if _, err := m.Bind(wire.Addr{}, 0, nil, nil); !errors.Is(err, ErrNoPort) {
		t.Error(err)
	}
}

// TestASearchForAPortIsBounded connects to a peer from every port. One call then tries few ports, and what
// the first has learned the later ones know, until a socket closes.
func TestASearchForAPortIsBounded(t *testing.T) {
	tries := 0
	m, _ := newMux(Config{Owns: func(*wire.Tuple) bool { tries++; return true }})
	flow := wire.Tuple{Local: ours, Remote: theirs, RemotePort: 1}
	var all []*Socket
	for port := 49152; port <= 65535; port++ {
		flow.LocalPort = uint16(port)
		all = append(all, connect(t, m, flow, nil))
	}
	flow.LocalPort = 0
	dial := func() (s *Socket, calls int, err error) {
		for {
			calls++
			if s, err = m.Connect(flow, nil, nil); err != ErrPortSearch {
				return s, calls, err
			}
		}
	}
	if _, calls, err := dial(); !errors.Is(err, ErrNoPort) || calls < len(all)/600 {
		t.Fatalf("%v after %d calls, want %v", err, calls, ErrNoPort)
	}
	if _, calls, err := dial(); !errors.Is(err, ErrNoPort) || calls != 1 || tries != 0 {
		t.Errorf("%v after %d calls and %d tries, want %v at once", err, calls, tries, ErrNoPort)
	}
	all[100].Close(0)
	if s, _, err := dial(); err != nil || s.Tuple().LocalPort != 49252 {
		t.Errorf("%v after a socket has closed", err)
	}
	all[200].Close(0)
	flow.LocalPort = 49352
	b := bind(t, m, wire.Addr{}, 49352, nil)
	flow.LocalPort = 0
	if _, _, err := dial(); !errors.Is(err, ErrNoPort) {
		t.Errorf("the port of an unconnected socket: %v", err)
	}
	b.Close(0)
	if s, _, err := dial(); err != nil || s.Tuple().LocalPort != 49352 {
		t.Errorf("%v after an unconnected socket has closed", err)
	}
}

func TestSocketsAreBounded(t *testing.T) {
	m, _ := newMux(Config{MaxSockets: 2})
	a := bind(t, m, wire.Addr{}, 0, nil)
	connect(t, m, wire.Tuple{Local: ours, Remote: theirs, RemotePort: 1}, nil)
	if _, err := m.Bind(wire.Addr{}, 0, nil, nil); !errors.Is(err, ErrTooMany) {
		t.Error(err)
	}
	if _, err := m.Connect(wire.Tuple{Local: ours, Remote: theirs, RemotePort: 1}, nil, nil); !errors.Is(err, ErrTooMany) {
		t.Error(err)
	}
	a.Close(0)
	a.Close(0)
	bind(t, m, wire.Addr{}, 0, nil)
	n := 0
	m.Each(func(*Socket) { n++ })
	if n != 2 || m.Stats().Sockets != 2 {
		t.Errorf("%d sockets, %d counted", n, m.Stats().Sockets)
	}
}

// TestChecksums: RFC 768 lets IPv4 do without, RFC 8200 8.1 and RFC 6935 let IPv6 only where a socket says so.
func TestChecksums(t *testing.T) {
	m, o := newMux(Config{})
	plain := bind(t, m, wire.Addr{}, 1, nil)
	tunnel := bind(t, m, wire.Addr{}, 2, &Options{NoChecksum: true})
	for _, c := range []struct {
		local, remote wire.Addr
		port          uint16
		want          packet.Verdict
	}{
		{ours, theirs, 1, packet.Deliver},
		{ours6, peer6, 1, packet.DropL4Checksum},
		{ours6, peer6, 2, packet.Deliver},
	} {
		v := m.Input(0, &wire.Tuple{Local: c.local, LocalPort: c.port, Remote: c.remote, RemotePort: 9},
			&Datagram{NoChecksum: true})
		if v != c.want {
			t.Errorf("%v:%d: %v, want %v", c.local, c.port, v, c.want)
		}
	}
	for _, s := range []*Socket{plain, tunnel} {
		s.Write(0, []Message{{Remote: peer6, RemotePort: 9}})
	}
	if o.sent[0].NoChecksum || !o.sent[1].NoChecksum {
		t.Error("checksums are left out where they must not be")
	}
	if m.Stats().Dropped[packet.DropL4Checksum] != 1 {
		t.Error("the drop is not counted")
	}
}

func TestInterfaces(t *testing.T) {
	m, _ := newMux(Config{})
	share := func(iface uint32) *Options { return &Options{Share: true, Interface: iface} }
	first := bind(t, m, ours, 1, share(1))
	rest := bind(t, m, wire.Addr{}, 1, share(0))
	flow := wire.Tuple{Local: ours, LocalPort: 1, Remote: theirs, RemotePort: 9}
	joined := connect(t, m, flow, share(3))
	for _, c := range []struct {
		iface uint32
		want  *Socket
	}{{1, first}, {2, rest}, {3, joined}, {1, first}, {0, rest}} {
		m.Input(0, &flow, &Datagram{Payload: [][]byte{{'x'}}, Len: 1, Interface: c.iface})
		if read(c.want) != "x" {
			t.Errorf("interface %d: not where it belongs", c.iface)
		}
	}
}

func TestInputRejectsImpossibleLengths(t *testing.T) {
	m, _ := newMux(Config{})
	bind(t, m, wire.Addr{}, 1, nil)
	for _, d := range []Datagram{{Len: -1}, {Len: 65528}, {Len: 1, SegmentSize: -1}, {Len: 2000, SegmentSize: 1}} {
		if v := m.Input(0, &wire.Tuple{Local: ours, LocalPort: 1, Remote: theirs}, &d); v != packet.DropMalformed {
			t.Errorf("%+v: %v", d, v)
		}
	}
}

func TestICMP(t *testing.T) {
	m, _ := newMux(Config{})
	s := connect(t, m, wire.Tuple{Local: ours, LocalPort: 1, Remote: theirs, RemotePort: 2}, nil)
	other := bind(t, m, ours, 3, nil)
	for _, c := range []struct {
		kind  ip.ErrorKind
		local bool
		want  error
	}{
		{ip.PortUnreachable, false, ErrRefused},
		{ip.ProtoUnreachable, false, ErrProtocol},
		{ip.Prohibited, false, ErrProhibited},
		{ip.HostUnreachable, false, nil},
		{ip.HostUnreachable, true, ErrHost},
		{ip.TooBig, false, nil},
		{ip.TimeExceeded, false, nil},
	} {
		vouched := m.ICMP(0, &ip.ICMPError{Kind: c.kind, Local: c.local, Tuple: s.Tuple()})
		if !vouched || s.Readable() != (c.want != nil) || !errors.Is(s.TakeErr(), c.want) || s.TakeErr() != nil {
			t.Errorf("kind %d: vouched for %v", c.kind, vouched)
		}
	}
	for _, f := range []wire.Tuple{
		{Local: ours, LocalPort: 1, Remote: theirs, RemotePort: 3},
		{Local: ours, LocalPort: 3, Remote: theirs, RemotePort: 2},
	} {
		if m.ICMP(0, &ip.ICMPError{Kind: ip.PortUnreachable, Tuple: f}) || s.Readable() || other.Readable() {
			t.Errorf("%+v: somebody was told", f)
		}
	}
}

// What an unconnected socket has sent is vouched for, if it was too long; and nothing that it has not sent.
func TestPathMTUOfUnconnectedSockets(t *testing.T) {
	for _, to := range []wire.Addr{theirs, peer6} {
		m, _ := newMux(Config{})
		s := bind(t, m, wire.Addr{}, 3, nil)
		from := ours
		if to == peer6 {
			from = ours6
		}
		sent := wire.Tuple{Local: from, LocalPort: 3, Remote: to, RemotePort: 2}
		vouched := func(k ip.ErrorKind, x wire.Tuple) bool { return m.ICMP(0, &ip.ICMPError{Kind: k, Tuple: x}) }
		if vouched(ip.TooBig, sent) {
			t.Error("vouched for what was never sent")
		}
		s.Write(0, []Message{{Remote: to, RemotePort: 2}})
		if !vouched(ip.TooBig, sent) {
			t.Error("not vouched for what was sent")
		}
		for _, f := range []func(x *wire.Tuple){
			func(x *wire.Tuple) { x.LocalPort++ },
			func(x *wire.Tuple) { x.RemotePort++ },
			func(x *wire.Tuple) { x.Remote[15]++ },
			func(x *wire.Tuple) { x.Remote[7]++ },
		} {
			x := sent
			if f(&x); vouched(ip.TooBig, x) {
				t.Errorf("vouched for %+v", x)
			}
		}
		if vouched(ip.PortUnreachable, sent) || s.Readable() {
			t.Error("an unconnected socket was told of an error")
		}
		for i := range 100 * peerCacheSize {
			s.Write(0, []Message{{Remote: to, RemotePort: uint16(i>>8) | 1, Local: from}, {Remote: to, RemotePort: 2}})
		}
		if !vouched(ip.TooBig, sent) || len(m.recentPeers) != peerCacheSize {
			t.Errorf("among many peers: %d places", len(m.recentPeers))
		}
	}
}

// TestGroups follows RFC 3376 3.1 and RFC 1122 4.1.3.5.
func TestGroups(t *testing.T) {
	m, o := newMux(Config{})
	share := &Options{Share: true}
	all := bind(t, m, wire.Addr{}, 5, share)
	some := bind(t, m, wire.Addr{}, 5, share)
	none := bind(t, m, wire.Addr{}, 5, share)
	own := bind(t, m, many, 5, share)
	unicast := bind(t, m, ours, 5, share)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(all.Listen(0, 1, many, false, []wire.Addr{ours2}))
	must(some.Listen(0, 0, many, true, []wire.Addr{ours2}))
	must(own.Listen(0, 2, many, false, nil))
	must(unicast.Listen(0, 0, many, false, nil))
	for _, c := range []struct {
		iface  uint32
		source wire.Addr
		want   []*Socket
	}{
		{1, theirs, []*Socket{all}},
		{1, ours2, []*Socket{some}},
		{2, theirs, []*Socket{own}},
		{2, ours2, []*Socket{some, own}},
		{3, theirs, nil},
	} {
		v := m.Input(0, &wire.Tuple{Local: many, LocalPort: 5, Remote: c.source, RemotePort: 1},
			&Datagram{Payload: [][]byte{{'x'}}, Len: 1, Interface: c.iface})
		if (v == packet.Deliver) != (len(c.want) > 0) {
			t.Errorf("by %d from %v: %v", c.iface, c.source, v)
		}
		for _, s := range c.want {
			if read(s) != "x" {
				t.Errorf("by %d from %v: socket %d has nothing", c.iface, c.source, s.id)
			}
		}
		for _, s := range []*Socket{all, some, none, own, unicast} {
			if s.Readable() {
				t.Errorf("by %d from %v: socket %d has it too", c.iface, c.source, s.id)
			}
		}
	}
	if err := none.Listen(0, 0, ours, false, nil); !errors.Is(err, ErrNotMulticast) {
		t.Error(err)
	}
	if err := none.Listen(0, 0, many, true, nil); !errors.Is(err, ErrNotMember) {
		t.Error(err)
	}
	must(some.Listen(0, 0, many, true, nil))
	if include, sources := some.Filter(0, many); !include || sources != nil {
		t.Error("a group that was left is still wanted")
	}
	for _, s := range []*Socket{all, some, none, own, unicast} {
		s.Close(0)
	}
	if len(o.wanted) != 0 {
		t.Errorf("closed sockets are members: %v", o.wanted)
	}
}

// TestADatagramLongerThanTheBuffer is received where none waits.
func TestADatagramLongerThanTheBuffer(t *testing.T) {
	m, _ := newMux(Config{})
	s := bind(t, m, ours, 5, &Options{ReceiveBuffer: 2304})
	long := make([]byte, 9000)
	for range 2 {
		input := func() packet.Verdict {
			return m.Input(0, &wire.Tuple{Local: ours, LocalPort: 5, Remote: theirs, RemotePort: 1}, &Datagram{Payload: [][]byte{long}, Len: len(long)})
		}
		if v := input(); v != packet.Deliver {
			t.Fatal(v)
		}
		if v := input(); v != packet.DropSocketFull {
			t.Errorf("a second one: %v", v)
		}
		if got := read(s); len(got) == 0 {
			t.Error("nothing was received")
		}
	}
}

// TestGroupsOfOthers is IP_MULTICAST_ALL: a socket without membership gets what comes to a group of others, but not where it has asked for
// some sources of the group, and not another version's.
func TestGroupsOfOthers(t *testing.T) {
	m, _ := newMux(Config{})
	with := func(o Options) *Options { o.Reuse = true; return &o }
	member := bind(t, m, wire.Addr{}, 5, with(Options{}))
	if err := member.Listen(0, 0, many, false, nil); err != nil {
		t.Fatal(err)
	}
	all := bind(t, m, wire.Addr{}, 5, with(Options{AllGroups4: true}))
	six := bind(t, m, wire.Addr{}, 5, with(Options{AllGroups6: true}))
	choosy := bind(t, m, wire.Addr{}, 5, with(Options{AllGroups4: true}))
	if err := choosy.Listen(0, 0, many, true, []wire.Addr{ours2}); err != nil {
		t.Fatal(err)
	}
	bound := bind(t, m, ours, 5, with(Options{AllGroups4: true}))
	input := func(from wire.Addr) packet.Verdict {
		return m.Input(0, &wire.Tuple{Local: many, LocalPort: 5, Remote: from, RemotePort: 1}, &Datagram{Payload: [][]byte{{'x'}}, Len: 1, Interface: 1})
	}
	if v := input(theirs); v != packet.Deliver || read(member) != "x" || read(all) != "x" || six.Readable() || choosy.Readable() || bound.Readable() {
		t.Errorf("%v: six %v, choosy %v, bound %v", v, six.Readable(), choosy.Readable(), bound.Readable())
	}
	member.Close(0)
	if v := input(theirs); v != packet.Deliver || read(all) != "x" {
		t.Error(v)
	}
	o := all.Options()
	o.AllGroups4 = false
	all.SetOptions(&o)
	if v := input(theirs); v == packet.Deliver || all.Readable() {
		t.Error(v)
	}
}

func TestBroadcastGoesToEverySocketOfThePort(t *testing.T) {
	m, _ := newMux(Config{})
	share := &Options{Share: true}
	a, b := bind(t, m, wire.Addr{}, 5, share), bind(t, m, wire.Unspecified4, 5, share)
	one := bind(t, m, ours, 5, share)
	v := m.Input(0, &wire.Tuple{Local: wire.Broadcast4, LocalPort: 5, Remote: theirs, RemotePort: 1},
		&Datagram{Payload: [][]byte{{'x'}}, Len: 1, Broadcast: true})
	if v != packet.Deliver || read(a) != "x" || read(b) != "x" || one.Readable() {
		t.Error(v)
	}
	if s := m.Stats(); s.Received != 1 || s.Queued != 2 {
		t.Errorf("%+v", s)
	}
}

// eventRecorder is an Owner that notes what it hears, and may do something.
type eventRecorder struct {
	events []Events
	do     func()
}

func (e *eventRecorder) Ready(ev Events) {
	e.events = append(e.events, ev)
	if e.do != nil {
		e.do()
	}
}

func TestOwnersAreCalledOncePerBurst(t *testing.T) {
	m, o := newMux(Config{})
	var a, b eventRecorder
	s, _ := m.Bind(ours, 1, nil, &a)
	r, _ := m.Bind(ours, 2, nil, &b)
	for range 3 {
		input(m, ours, 1, theirs, 9, "x")
		input(m, ours, 2, theirs, 9, "x")
	}
	a.do = func() { r.Close(0) } // before r's owner hears
	if next := m.Poll(0); len(a.events) != 1 || a.events[0] != Readable || len(b.events) != 0 {
		t.Errorf("%v %v, next %d", a.events, b.events, next)
	}
	a.do = nil
	o.room = 0
	if n, v := s.Write(0, []Message{{Remote: theirs, RemotePort: 1}}); n != 0 || v != packet.DropTxFull {
		t.Errorf("%d, %v", n, v)
	}
	m.Poll(0)
	m.Poll(0)
	if len(a.events) != 2 || a.events[1] != Writable {
		t.Errorf("%v", a.events)
	}
	late := &eventRecorder{}
	s.SetOwner(late)
	if m.Poll(0); len(late.events) != 1 || late.events[0] != Readable {
		t.Errorf("a new owner hears %v", late.events)
	}
	late.do = func() { input(m, ours, 1, theirs, 9, "again") }
	s.SetOwner(late)
	if next := m.Poll(5); next != 5 {
		t.Errorf("with news left, the next Poll is at %d", next)
	}
}

// TestFloods: one socket is flooded, then many; memory is bounded, and another socket still receives.
func TestFloods(t *testing.T) {
	const budget = 1 << 20
	m, _ := newMux(Config{Budget: budget})
	big := strings.Repeat("x", 1400)
	honest := bind(t, m, ours, 9999, nil)
	for port := range uint16(100) {
		s := bind(t, m, ours, 1+port, nil)
		for range 1000 {
			input(m, ours, 1+port, theirs, 7, big)
			input(m, ours, 1+port, theirs, 7, "")
		}
		if s.Queued() > DefaultReceiveBuffer {
			t.Fatalf("a socket holds %d bytes", s.Queued())
		}
		if v := input(m, ours, 9999, theirs, 1, "honest"); v != packet.Deliver || read(honest) != "honest" {
			t.Fatalf("with %d sockets flooded: %v", port+1, v)
		}
	}
	if st := m.Stats(); st.Memory > budget || st.Lost == 0 || st.Dropped[packet.DropSocketFull] == 0 {
		t.Errorf("%+v", st)
	}
	m.Each(func(s *Socket) {
		for read(s) != "" || s.Readable() {
		}
	})
	if st := m.Stats(); st.Memory != 0 || m.pool.cached > maxCached {
		t.Errorf("%d bytes are left, %d kept", st.Memory, m.pool.cached)
	}
}

func TestEveryDatagramIsAccountedFor(t *testing.T) {
	m, _ := newMux(Config{Budget: 20_000})
	bind(t, m, ours, 1, &Options{ReceiveBuffer: 5000})
	for i := range 100 {
		input(m, ours, uint16(i%3), theirs, 7, "some data")
	}
	st := m.Stats()
	total := st.Queued
	for _, n := range st.Dropped {
		total += n
	}
	if total != 100 || st.Received != 100 {
		t.Errorf("%+v", st)
	}
}

func TestClosingFreesMemory(t *testing.T) {
	m, _ := newMux(Config{})
	s := bind(t, m, ours, 1, nil)
	for range 10 {
		input(m, ours, 1, theirs, 7, "data")
	}
	l, ok := s.Lease(0)
	if !ok || string(l.Payload()) != "data" {
		t.Fatal("no lease")
	}
	var msg Message
	l.Describe(&msg)
	if msg.N != 4 || msg.Remote != theirs || msg.RemotePort != 7 || msg.Local != ours {
		t.Errorf("%+v", msg)
	}
	s.Close(0)
	if m.Stats().Memory == 0 {
		t.Error("a lease takes no memory")
	}
	l.Release()
	if n := m.Stats().Memory; n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}

// TestTheLongestQueueDoesNotMakeRoomForItself: what comes to it is dropped, and so is what comes to one
// that has as much.
func TestTheLongestQueueDoesNotMakeRoomForItself(t *testing.T) {
	m, _ := newMux(Config{Budget: 6 * (2048 + nodeOverhead)})
	a, b := bind(t, m, ours, 1, nil), bind(t, m, ours, 2, nil)
	big := strings.Repeat("x", 1000)
	for i := range 6 {
		if v := input(m, ours, uint16(1+i%2), theirs, 7, big); v != packet.Deliver {
			t.Fatal(v)
		}
	}
	for port := range uint16(2) {
		if v := input(m, ours, 1+port, theirs, 7, big); v != packet.DropSocketFull {
			t.Errorf("port %d: %v", 1+port, v)
		}
	}
	if a.waitingCount() != 3 || b.waitingCount() != 3 {
		t.Errorf("%d and %d wait", a.waitingCount(), b.waitingCount())
	}
}

// TestReadingMakesRoom passes far more than a queue holds.
func TestReadingMakesRoom(t *testing.T) {
	m, _ := newMux(Config{})
	s := bind(t, m, ours, 1, &Options{ReceiveBuffer: 1000})
	for i := range 100 {
		if v := input(m, ours, 1, theirs, 7, "some"); v != packet.Deliver || s.Queued() == 0 {
			t.Fatalf("datagram %d: %v", i, v)
		}
		if i%2 == 0 {
			read(s)
		} else if l, ok := s.Lease(0); ok {
			l.Release()
		}
		if s.Queued() != 0 {
			t.Fatalf("%d bytes are left", s.Queued())
		}
	}
}

// retrier is an owner that tries a write again whenever it may.
type retrier struct {
	s     *Socket
	tries int
	done  bool
}

func (r *retrier) Ready(ev Events) {
	if ev&Writable != 0 && !r.done {
		r.tries++
		n, _ := r.s.Write(0, []Message{{Remote: theirs, RemotePort: 1}})
		r.done = n == 1
	}
}

// TestWriteIsTriedAgainWithoutOtherEvents has no room in the Output for a while, of whose end nothing tells: the Mux asks to be
// polled until the write has succeeded.
func TestWriteIsTriedAgainWithoutOtherEvents(t *testing.T) {
	m, o := newMux(Config{})
	s := bind(t, m, ours, 1000, nil)
	r := &retrier{s: s}
	s.SetOwner(r)
	m.Poll(0)
	o.room = 0
	if n, v := s.Write(0, []Message{{Remote: theirs, RemotePort: 1}}); n != 0 || v != packet.DropTxFull {
		t.Fatal(n, v)
	}
	now := clock.Time(1)
	for range 5 {
		next := m.Poll(now)
		if next <= now || next > now.Add(time.Millisecond) {
			t.Fatalf("the next poll is at %v, now is %v", next, now)
		}
		now = next
	}
	o.room = 1
	if next := m.Poll(now); next != clock.Never || !r.done || r.tries != 6 || len(o.sent) != 1 {
		t.Errorf("next poll %v, sent after %d tries: %v", next, r.tries, r.done)
	}
}

// TestConnectChangesThePeer of a bound socket: what comes from others goes to who is bound beside it, the route of the old peer is
// forgotten, and Disconnect restores what Bind has made.
func TestConnectChangesThePeer(t *testing.T) {
	m, _ := newMux(Config{})
	other := wire.AddrFrom4([4]byte{198, 18, 0, 8})
	s := bind(t, m, wire.Addr{}, 53, &Options{Reuse: true})
	beside := bind(t, m, wire.Addr{}, 53, &Options{Reuse: true})
	if input(m, ours, 53, theirs, 7, "newest"); read(beside) != "newest" {
		t.Error("the socket that was bound last does not get it")
	}
	for _, peer := range []wire.Addr{theirs, other, theirs} {
		s.routeCache = 99
		if err := s.Connect(ours, peer, 7); err != nil || s.routeCache != 0 {
			t.Fatal(err, s.routeCache)
		}
		if input(m, ours, 53, peer, 7, "peer"); read(s) != "peer" {
			t.Error("the peer does not reach it")
		}
		if input(m, ours, 53, peer, 8, "another port"); read(beside) != "another port" {
			t.Error("another port of the peer reaches it")
		}
	}
	if err := beside.Connect(ours, theirs, 7); err != ErrInUse {
		t.Error(err)
	}
	beside.Close(0)
	if v := input(m, ours2, 53, theirs, 7, "x"); v != packet.DropNoSocket {
		t.Error("another address of the host reaches it:", v)
	}
	for _, bad := range []error{s.Connect(wire.Addr{}, theirs, 7), s.Connect(ours, theirs, 0), s.Connect(ours6, theirs, 7), s.Connect(ours, wire.Addr{}, 7)} {
		if bad != ErrAddress {
			t.Error(bad)
		}
	}
	if err := s.Disconnect(); err != nil {
		t.Fatal(err)
	}
	if input(m, ours2, 53, other, 9, "anyone"); read(s) != "anyone" || s.Tuple().Remote != (wire.Addr{}) {
		t.Error("it has a peer still")
	}
	c := connect(t, m, wire.Tuple{Local: ours, Remote: theirs, RemotePort: 9}, nil)
	if c.Connect(ours, theirs, 7) != ErrAddress || c.Disconnect() != ErrAddress {
		t.Error("a socket of Mux.Connect changes its peer")
	}
	s.Close(0)
	c.Close(0)
	if s.Connect(ours, theirs, 7) != ErrAddress || s.Disconnect() != ErrAddress || len(m.ports)+len(m.flows) != 0 {
		t.Error("a closed socket is in the tables")
	}
}
