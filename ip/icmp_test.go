package ip

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/icmp"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// host2 is a node with one address, and a tap that stands for the other host, whose link address is known.
func meet(t testing.TB, c struct{ name, a, b, bits string }, change func(*Config)) (*lan, *station, *station) {
	l := newLAN(t)
	a, x := l.add(1, change).addAddr(c.a+c.bits), l.tap(2)
	if err := a.AddNeighbor(l.now, 0, addr(c.b), x.mac); err != nil {
		t.Fatal(err)
	}
	l.after(5 * time.Second)
	x.inbox = nil
	return l, a, x
}

// ipFrame makes a frame of an IP packet with an Ethernet header from x to a.
func ipFrame(a, x *station, h *Header, payload []byte) []byte {
	p := Path{TTL: 64}
	t := wire.EtherTypeIPv6
	if h.Dst.Is4() {
		t = wire.EtherTypeIPv4
	}
	mac := a.mac
	if h.Dst.Multicast() || h.Dst == wire.Broadcast4 {
		mac = wire.Broadcast
	}
	wire.AppendEthernet(p.Header[:0], mac, x.mac, t)
	b := make([]byte, 54+len(payload))
	n := p.Put(b, h, len(payload))
	return append(b[:n], payload...)
}

// udpTo makes a UDP datagram with its checksum.
func udpTo(h *Header, n int) []byte {
	h.Proto = wire.ProtoUDP
	b := append(wire.AppendUDP(nil, 40002, 40001, n), make([]byte, n)...)
	wire.UDP(b).FillChecksum(pseudo(h, len(b)))
	return b
}

// errorFrame makes an ICMP error from x about the packet quoted.
func errorFrame(a, x *station, from, to string, typ, code uint8, rest uint32, quote []byte) []byte {
	h := Header{Src: addr(from), Dst: addr(to), Proto: wire.ProtoICMP}
	m := append(wire.AppendICMP(nil, typ, code, rest), quote...)
	if h.Dst.Is4() {
		wire.ICMP(m).FillChecksum()
	} else {
		h.Proto = wire.ProtoICMPv6
		wire.ICMPv6(m).FillChecksum(pseudo(&h, len(m)))
	}
	return ipFrame(a, x, &h, m)
}

// RFC 1122 3.2.2.1, RFC 4443 3.1: what each code means.
func TestErrorsReceived(t *testing.T) {
	type said struct {
		typ, code uint8
		kind      ErrorKind
	}
	cases := map[string][]said{
		"IPv4": {
			{3, 0, NetUnreachable},
			{3, 1, HostUnreachable},
			{3, 2, ProtoUnreachable},
			{3, 3, PortUnreachable},
			{3, 5, NetUnreachable},
			{3, 6, NetUnreachable},
			{3, 7, HostUnreachable},
			{3, 9, Prohibited},
			{3, 10, Prohibited},
			{3, 11, NetUnreachable},
			{3, 12, HostUnreachable},
			{3, 13, Prohibited},
			{11, 0, TimeExceeded},
			{12, 0, ParameterProblem},
		},
		"IPv6": {
			{1, 0, NetUnreachable},
			{1, 1, Prohibited},
			{1, 3, HostUnreachable},
			{1, 4, PortUnreachable},
			{1, 5, Prohibited},
			{1, 6, Prohibited},
			{3, 0, TimeExceeded},
			{4, 0, ParameterProblem},
			{4, 1, ProtoUnreachable},
		},
	}
	for _, c := range pairs {
		l, a, x := meet(t, c, nil)
		l.keep = true
		a.udp(c.a, c.b, []byte("to be quoted"), nil)
		l.settle()
		quote := l.seen[len(l.seen)-1][14:]
		for _, e := range cases[c.name] {
			a.errors = nil
			if v := a.feed(0, errorFrame(a, x, c.b, c.a, e.typ, e.code, 0, quote)); v != packet.Deliver || len(a.errors) != 1 {
				t.Fatalf("%s %v: %v, %v", c.name, e, v, a.errors)
			}
			got := a.errors[0]
			want := wire.Tuple{Local: addr(c.a), Remote: addr(c.b), LocalPort: 40001, RemotePort: 40002}
			if got.Kind != e.kind || got.Tuple != want || got.Proto != wire.ProtoUDP || got.From != addr(c.b) || got.Local || !bytes.Contains(got.Quote, []byte("to be")) {
				t.Errorf("%s %v: %+v", c.name, e, got)
			}
		}
		a.errors = nil
		for name, q := range map[string][]byte{
			"cut":     quote[:len(quote)-12-1],
			"foreign": ipFrame(a, x, &Header{Src: addr(c.b), Dst: addr(c.a), Proto: 17}, udpTo(&Header{Src: addr(c.b), Dst: addr(c.a)}, 8))[14:],
			"nothing": {},
		} {
			if v := a.feed(0, errorFrame(a, x, c.b, c.a, cases[c.name][0].typ, 0, 0, q)); v != packet.DropICMP || len(a.errors) != 0 {
				t.Errorf("%s, %s: %v, %v", c.name, name, v, a.errors)
			}
		}
		a.confirmErrors = false
		if v := a.feed(0, errorFrame(a, x, c.b, c.a, cases[c.name][0].typ, 0, 0, quote)); v != packet.DropICMP {
			t.Errorf("%s: about no packet of this host: %v", c.name, v)
		}
	}
}

// RFC 1191, RFC 8201: which reports of a path MTU count, and for how long.
func TestPathMTU(t *testing.T) {
	tooBig := map[string]func(mtu uint32) (uint8, uint8, uint32){
		"IPv4": func(mtu uint32) (uint8, uint8, uint32) { return 3, 4, mtu },
		"IPv6": func(mtu uint32) (uint8, uint8, uint32) { return 2, 0, mtu },
	}
	for _, c := range pairs {
		t.Run(c.name, func(t *testing.T) {
			l, a, x := meet(t, c, nil)
			l.keep = true
			a.udp(c.a, c.b, make([]byte, 1400), func(h *Header) { h.DontFragment = true })
			l.settle()
			quote := l.seen[len(l.seen)-1][14:]
			mtu := func() int {
				p, _ := a.Route(l.now, addr(c.b), wire.Addr{}, AnyDev)
				return a.MTU(l.now, p, addr(c.b))
			}
			receive := func(mtu uint32) packet.Verdict {
				typ, code, rest := tooBig[c.name](mtu)
				return a.feed(0, errorFrame(a, x, c.b, c.a, typ, code, rest, quote[:100]))
			}
			a.confirmErrors = false
			if v := receive(1300); v != packet.DropICMP || mtu() != 1500 {
				t.Errorf("no sender confirmed it: %v, %d", v, mtu())
			}
			a.confirmErrors = true
			if v := receive(1490); v != packet.DropICMP || mtu() != 1500 {
				t.Errorf("larger than what was sent: %v, %d", v, mtu())
			}
			if v := receive(uint32(len(quote))); v != packet.DropICMP || mtu() != 1500 {
				t.Errorf("as large as what was sent: %v, %d", v, mtu())
			}
			if v := receive(1400); v != packet.Deliver || mtu() != 1400 || a.countChanges(PathMTU) != 1 {
				t.Errorf("%v, %d", v, mtu())
			}
			if v := receive(1420); v != packet.Deliver || mtu() != 1400 {
				t.Errorf("raised: %v, %d", v, mtu())
			}
			if v := a.udp(c.a, c.b, make([]byte, 1400), func(h *Header) { h.DontFragment = true }); v != packet.DropTooBig {
				t.Errorf("sent nevertheless: %v", v)
			}
			l.after(9 * time.Minute)
			if mtu() != 1400 {
				t.Errorf("after nine minutes: %d", mtu())
			}
			l.after(2 * time.Minute)
			if mtu() != 1500 {
				t.Errorf("after eleven minutes: %d", mtu())
			}
			receive(100)
			if want := map[string]int{"IPv4": 576, "IPv6": 1500}[c.name]; mtu() != want {
				t.Errorf("a forged 100: %d, want %d", mtu(), want)
			}
			if c.name == "IPv4" {
				l.after(11 * time.Minute)
				receive(0)
				if mtu() != 1006 { // RFC 1191 7: the plateau below 1428
					t.Errorf("an old router: %d", mtu())
				}
			}
		})
	}
}

// The cache of path MTUs is bounded.
func TestPathMTUFlood(t *testing.T) {
	l := newLAN(t)
	a := l.add(1, func(c *Config) { c.MaxPathMTU = 100 }).addAddr("2001:db8::1/64")
	for i := range 10000 {
		dst := addr("2001:db8:1::")
		binary.BigEndian.PutUint32(dst[12:], uint32(i))
		a.Apply(l.now, &Change{Kind: PathMTU, Addr: dst, MTU: 1300})
	}
	if k := a.Stats().PathMTUs; k != 100 {
		t.Errorf("%d entries", k)
	}
}

// RFC 1122 3.2.2.1, RFC 1812 4.3.2, RFC 4443 2.4, 3.1, 3.4: the errors that we send, as x/net reads them.
func TestErrorsSent(t *testing.T) {
	for _, c := range pairs {
		t.Run(c.name, func(t *testing.T) {
			l, a, x := meet(t, c, nil)
			h := Header{Src: addr(c.b), Dst: addr(c.a)}
			frame := ipFrame(a, x, &h, udpTo(&h, 1300))
			a.Reject(l.now, 0, frame[14:], PortUnreachable)
			l.settle()
			if len(x.inbox) != 1 {
				t.Fatalf("%d frames", len(x.inbox))
			}
			f := x.inbox[0]
			head, proto, typ, code, most := 34, 1, 3, 3, 576
			if c.name == "IPv6" {
				head, proto, typ, code, most = 54, 58, 1, 4, 1280
			}
			m, err := icmp.ParseMessage(proto, f[head:])
			if err != nil {
				t.Fatal(err)
			}
			body, ok := m.Body.(*icmp.DstUnreach)
			if !ok || m.Code != code || !bytes.HasPrefix(frame[14:], body.Data) || len(f)-14 != most {
				t.Errorf("type %v, want %d; code %d; %d bytes", m.Type, typ, m.Code, len(f)-14)
			}
			h.Proto = 200
			frame = ipFrame(a, x, &h, []byte("a protocol without a consumer"))
			x.inbox = nil
			if v := a.feed(0, frame); v != packet.DropUnsupported {
				t.Errorf("%v", v)
			}
			l.settle()
			f = x.inbox[0]
			if c.name == "IPv4" && (f[34] != 3 || f[35] != 2) || c.name == "IPv6" && (f[54] != 4 || f[55] != 1 || binary.BigEndian.Uint32(f[58:]) != 6) {
				t.Errorf("%x", f)
			}
		})
	}
}

// RFC 1122 3.2.2, RFC 4443 2.4 e: no errors about errors, to or about many, about unspecified sources or later
// fragments.
func TestErrorsNotSent(t *testing.T) {
	for _, c := range pairs {
		l, a, x := meet(t, c, nil)
		group, all := "224.0.0.1", "198.18.0.255"
		if c.name == "IPv6" {
			group, all = "ff02::1", "ff02::1"
		}
		plain := Header{Src: addr(c.b), Dst: addr(c.a)}
		quote := ipFrame(a, x, &plain, udpTo(&plain, 10))[14:]
		frames := map[string][]byte{}
		for _, dst := range []string{group, all} {
			h := Header{Src: addr(c.b), Dst: addr(dst)}
			frames["to "+dst] = ipFrame(a, x, &h, udpTo(&h, 10))
		}
		for _, src := range []string{"0.0.0.0", "255.255.255.255", "224.0.0.9", "198.18.0.255"} {
			if c.name == "IPv6" {
				src = map[string]string{"0.0.0.0": "::", "255.255.255.255": "ff02::1", "224.0.0.9": "ff02::9", "198.18.0.255": "ff05::1"}[src]
			}
			h := Header{Src: addr(src), Dst: addr(c.a)}
			frames["from "+src] = ipFrame(a, x, &h, udpTo(&h, 10))
		}
		typ := uint8(3)
		if c.name == "IPv6" {
			typ = 1
		}
		frames["error"] = errorFrame(a, x, c.b, c.a, typ, 0, 0, quote)
		if c.name == "IPv4" {
			f := ipFrame(a, x, &plain, udpTo(&plain, 16))
			wire.IPv4(f[14:]).SetFragmentOffset(64)
			frames["fragment"] = f
		}
		for name, f := range frames {
			a.Reject(l.now, 0, f[14:], PortUnreachable)
			l.settle()
			if len(x.inbox) != 0 {
				t.Fatalf("%s %s: an error was sent: %x", c.name, name, x.inbox[0])
			}
		}
	}
}

// RFC 4443 2.4 f, RFC 1812 4.3.2.8: errors are limited.
func TestErrorRate(t *testing.T) {
	for _, c := range pairs {
		l, a, x := meet(t, c, func(c *Config) { c.ErrorRate = 100 })
		h := Header{Src: addr(c.b), Dst: addr(c.a)}
		f := ipFrame(a, x, &h, udpTo(&h, 10))
		for range 1000 {
			a.Reject(l.now, 0, f[14:], PortUnreachable)
		}
		l.settle()
		if k := len(x.inbox); k != errorBurst {
			t.Errorf("%s: %d errors at once", c.name, k)
		}
		for range 100 {
			l.after(10 * time.Millisecond)
			for range 10 {
				a.Reject(l.now, 0, f[14:], PortUnreachable)
			}
		}
		l.settle()
		if k := len(x.inbox) - errorBurst; k < 90 || k > 110 {
			t.Errorf("%s: %d errors in a second", c.name, k)
		}
		if s := a.Stats(); s.Errors+s.ErrorsLimited != 2000 {
			t.Errorf("%s: %d sent and %d held of 2000", c.name, s.Errors, s.ErrorsLimited)
		}
	}
}

// Redirects change nothing, and are counted.
func TestRedirects(t *testing.T) {
	for _, c := range pairs {
		l, a, x := meet(t, c, nil)
		plain := Header{Src: addr(c.a), Dst: addr(c.b)}
		quote := ipFrame(a, x, &plain, udpTo(&plain, 10))[14:]
		before := len(a.Routes())
		var f []byte
		if c.name == "IPv4" {
			f = errorFrame(a, x, c.b, c.a, 5, 1, 0xc6120009, quote)
		} else {
			m := append([]byte{137, 0, 0, 0, 0, 0, 0, 0}, addrBytes("fe80::9")...)
			f = icmp6Frame(a.mac, x.mac, addr("fe80::1"), addr(c.a), 255, append(m, addrBytes(c.b)...))
		}
		for range 10 {
			if v := a.feed(0, f); v != packet.DropICMP {
				t.Errorf("%s: %v", c.name, v)
			}
		}
		p, _ := a.Route(l.now, addr(c.b), wire.Addr{}, AnyDev)
		if p == nil || p.NextHop != addr(c.b) || len(a.Routes()) != before || a.Stats().Redirects != 10 {
			t.Errorf("%s: %+v, %d redirects", c.name, p, a.Stats().Redirects)
		}
	}
}

// RFC 1122 3.2.2.6: echo requests to many are not answered.
func TestEchoToGroupsAndBroadcasts(t *testing.T) {
	for _, dst := range []string{"198.18.0.255", "255.255.255.255", "224.0.0.1"} {
		l, a, x := meet(t, pairs[0], nil)
		h := Header{Src: addr("198.18.0.2"), Dst: addr(dst), Proto: wire.ProtoICMP}
		m := wire.AppendICMP(nil, wire.ICMPEcho, 0, 1)
		wire.ICMP(m).FillChecksum()
		if v := a.feed(0, ipFrame(a, x, &h, m)); v != packet.DropICMP {
			t.Errorf("%s: %v", dst, v)
		}
		l.settle()
		if len(x.inbox) != 0 {
			t.Errorf("%s was answered", dst)
		}
	}
}

// RFC 1122 3.2.1.3, 3.3.6, RFC 6274: what cannot come from a link is dropped.
func TestMartians(t *testing.T) {
	_, a, x := meet(t, pairs[0], nil)
	_, b, y := meet(t, pairs[1], nil)
	for src, want := range map[string]packet.Verdict{
		"198.18.0.1": packet.DropMartian, "127.0.0.1": packet.DropMartian, "224.0.0.5": packet.DropMartian,
		"255.255.255.255": packet.DropMartian, "198.18.0.255": packet.DropMartian, "0.0.0.0": packet.DropMartian, "198.18.0.2": packet.Undecided,
		"0.1.2.3": packet.DropMartian, "240.0.0.1": packet.DropMartian, "254.1.2.3": packet.DropMartian,
	} {
		h := Header{Src: addr(src), Dst: addr("198.18.0.1")}
		if v := a.feed(0, ipFrame(a, x, &h, udpTo(&h, 10))); v != want {
			t.Errorf("from %s: %v, want %v", src, v, want)
		}
	}
	for src, want := range map[string]packet.Verdict{
		"::ffff:198.18.0.2": packet.DropMartian,
		"2001:db8::1":       packet.DropMartian, "::1": packet.DropMartian, "ff02::1": packet.DropMartian, "::": packet.DropMartian,
		"::198.18.0.2": packet.DropMartian, "64:ff9b::198.18.0.2": packet.Undecided, "2001:db8::2": packet.Undecided,
	} {
		h := Header{Src: addr(src), Dst: addr("2001:db8::1")}
		if v := b.feed(0, ipFrame(b, y, &h, udpTo(&h, 10))); v != want {
			t.Errorf("from %s: %v, want %v", src, v, want)
		}
	}
	h := Header{Src: addr("198.18.0.2"), Dst: addr("198.18.0.1")}
	f := ipFrame(a, x, &h, udpTo(&h, 10))
	for i := range 6 {
		f[i] = 0xff
	}
	if v := a.feed(0, f); v != packet.DropNotOurs {
		t.Errorf("one address in a frame to all: %v", v)
	}
	f[0] = 2
	if v := a.feed(0, f); v != packet.DropNotOurs {
		t.Errorf("a frame to another host: %v", v)
	}
	h.Dst = addr("198.18.0.9")
	if v := a.feed(0, ipFrame(a, x, &h, udpTo(&h, 10))); v != packet.DropNotOurs {
		t.Errorf("a packet to another host: %v", v)
	}
}

// withExtensions puts extension headers between the IPv6 header of a frame and its payload.
func withExtensions(f []byte, first uint8, ext []byte) []byte {
	g := slices.Concat(f[:54], ext, f[54:])
	g[20] = first
	wire.IPv6(g[14:]).SetPayloadLen(uint16(len(g) - 54))
	return g
}

// RFC 8200 4.2 to 4.7: extension headers, and what is answered to those that cannot be taken.
func TestExtensionHeaders(t *testing.T) {
	option := func(next, typ uint8) []byte { return []byte{next, 0, typ, 4, 0, 0, 0, 0} }
	const udp = wire.ProtoUDP
	for name, c := range map[string]struct {
		first   uint8
		ext     []byte
		verdict packet.Verdict
		code    int // of a parameter problem, -1 none
		pointer uint32
	}{
		"padding":                  {0, option(udp, 1), packet.Undecided, -1, 0},
		"unknown, skip":            {60, option(udp, 0x1e), packet.Undecided, -1, 0},
		"unknown, drop":            {60, option(udp, 0x5e), packet.DropUnsupported, -1, 0},
		"unknown, report":          {60, option(udp, 0x9e), packet.DropUnsupported, 2, 42},
		"unknown, report unicast":  {0, option(udp, 0xde), packet.DropUnsupported, 2, 42},
		"options too long":         {60, []byte{udp, 0, 1, 9, 0, 0, 0, 0}, packet.DropMalformed, -1, 0},
		"hop by hop second":        {60, append(option(0, 1), option(udp, 1)...), packet.DropMalformed, -1, 0},
		"routing, at its end":      {43, []byte{udp, 0, 0, 0, 0, 0, 0, 0}, packet.Undecided, -1, 0},
		"routing, going on":        {43, []byte{udp, 0, 0, 1, 0, 0, 0, 0}, packet.DropUnsupported, 0, 42},
		"atomic fragment":          {44, []byte{udp, 0, 0, 0, 1, 2, 3, 4}, packet.Undecided, -1, 0},
		"nothing follows":          {59, nil, packet.Deliver, -1, 0},
		"nothing after options":    {60, option(59, 1), packet.Deliver, -1, 0},
		"unknown header":           {60, option(222, 1), packet.DropUnsupported, 1, 40},
		"nine headers":             {60, bytes.Repeat(option(60, 1), 9), packet.DropMalformed, -1, 0},
		"authentication":           {51, []byte{udp, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1}, packet.DropUnsupported, 1, 6},
		"length beyond the packet": {60, []byte{udp, 200, 1, 4, 0, 0, 0, 0}, packet.DropMalformed, -1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l, a, x := meet(t, pairs[1], nil)
			h := Header{Src: addr("2001:db8::2"), Dst: addr("2001:db8::1")}
			f := withExtensions(ipFrame(a, x, &h, udpTo(&h, 10)), c.first, c.ext)
			v := a.feed(0, f)
			if v != c.verdict && !(c.verdict == packet.DropMalformed && v == packet.DropTruncated) {
				t.Errorf("%v, want %v", v, c.verdict)
			}
			if v == packet.Undecided && (a.got[0].Proto != udp || len(a.gotBytes[0]) != 18) {
				t.Errorf("%+v", a.got[0])
			}
			l.settle()
			switch {
			case c.code < 0 && len(x.inbox) != 0:
				t.Errorf("answered: %x", x.inbox[0])
			case c.code >= 0 && len(x.inbox) != 1:
				t.Error("not answered")
			case c.code >= 0:
				if f := x.inbox[0]; f[54] != 4 || int(f[55]) != c.code || binary.BigEndian.Uint32(f[58:]) != c.pointer {
					t.Errorf("type %d, code %d, pointer %d", f[54], f[55], binary.BigEndian.Uint32(f[58:]))
				}
			}
		})
	}
}

// A packet with a source route is dropped; other options are ignored (RFC 6274 3.13).
func TestOptions4(t *testing.T) {
	_, a, x := meet(t, pairs[0], nil)
	h := Header{Src: addr("198.18.0.2"), Dst: addr("198.18.0.1")}
	for name, c := range map[string]struct {
		options []byte
		want    packet.Verdict
	}{
		"no-operations": {[]byte{1, 1, 1, 1}, packet.Undecided},
		"router alert":  {[]byte{148, 4, 0, 0}, packet.Undecided},
		"loose route":   {[]byte{131, 3, 4, 0}, packet.DropDenied},
		"strict route":  {[]byte{137, 3, 4, 0}, packet.DropDenied},
		"too long":      {[]byte{7, 9, 4, 0}, packet.DropMalformed},
	} {
		f := ipFrame(a, x, &h, udpTo(&h, 10))
		f = slices.Concat(f[:34], c.options, f[34:])
		p := wire.IPv4(f[14:])
		p.SetHeaderLen(24)
		p.SetTotalLen(uint16(len(p)))
		p.FillChecksum()
		if v := a.feed(0, f); v != c.want {
			t.Errorf("%s: %v, want %v", name, v, c.want)
		}
	}
}

// A node that follows hands over what the leader has to see, and learns from it.
func TestFollower(t *testing.T) {
	for _, c := range pairs {
		t.Run(c.name, func(t *testing.T) {
			l := newLAN(t)
			var follower *station
			leader := l.add(1, nil)
			follower = l.add(3, func(cfg *Config) { cfg.Follower, cfg.Links[0].MAC = true, leader.mac })
			follower.cfg.Changed = func(now clock.Time, ch Change) { leader.Apply(now, &ch) }
			leader.cfg.Changed = func(now clock.Time, ch Change) { follower.Apply(now, &ch) }
			leader.addAddr(c.a + c.bits)
			b := l.add(2, nil).addAddr(c.b + c.bits)
			l.after(5 * time.Second)
			if follower.Local(0, addr(c.a)) != Unicast || len(follower.Routes()) != len(leader.Routes()) {
				t.Fatalf("%v, %v", follower.Addrs(), follower.Routes())
			}
			if v := follower.feed(0, claim(c.name == "IPv4", b.mac, c.b, leader, c.a)); v != packet.Handover {
				t.Errorf("%v", v)
			}
			follower.udp(c.a, c.b, []byte("x"), nil)
			l.settle()
			if len(b.got) != 1 || follower.entry(c.b).State != "reachable" || leader.entry(c.b).State != "reachable" {
				t.Errorf("%d datagrams, %v, %v", len(b.got), follower.entry(c.b), leader.entry(c.b))
			}
			if err := leader.DelAddr(l.now, 0, addr(c.a)); err != nil || follower.Local(0, addr(c.a)) != NotLocal {
				t.Errorf("%v, %v", err, follower.Addrs())
			}
		})
	}
}

// The number of extension headers is bounded whatever the engine has found.
func TestExtensionHeaderCount(t *testing.T) {
	l, a, x := meet(t, pairs[1], nil)
	h := Header{Src: addr("2001:db8::2"), Dst: addr("2001:db8::1")}
	for n, want := range map[int]packet.Verdict{wire.MaxExtHeaders: packet.Undecided, wire.MaxExtHeaders + 1: packet.DropMalformed} {
		ext := bytes.Repeat([]byte{60, 0, 1, 4, 0, 0, 0, 0}, n)
		ext[8*n-8] = wire.ProtoUDP
		f := withExtensions(ipFrame(a, x, &h, udpTo(&h, 10)), 60, ext)
		var g Datagram
		if v := a.Input(l.now, 0, f, &packet.Desc{L3: 14, Flags: packet.FlagIPv6}, &g); v != want {
			t.Errorf("%d headers: %v, want %v", n, v, want)
		}
	}
}
