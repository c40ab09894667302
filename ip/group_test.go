package ip

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// igmpFrame makes a query or report from 198.18.0.9.
func igmpFrame(m []byte, dst string) []byte {
	binary.BigEndian.PutUint16(m[2:], 0)
	binary.BigEndian.PutUint16(m[2:], wire.Fold(wire.Sum(m, 0)))
	d := addr(dst)
	b := wire.AppendEthernet(nil, wire.MAC{1, 0, 0x5e, d[13] & 0x7f, d[14], d[15]}, wire.MAC{2, 0, 0, 0, 0, 9}, wire.EtherTypeIPv4)
	b = wire.AppendIPv4(b, &wire.IPv4Header{Src: addr("198.18.0.9").As4(), Dst: d.As4(), Proto: wire.ProtoIGMP, TTL: 1, PayloadLen: len(m)})
	return append(b, m...)
}

// mldFrame makes a query from fe80::9.
func mldFrame(m []byte, dst wire.Addr) []byte {
	return icmp6Frame(wire.MulticastMAC6(dst), wire.MAC{2, 0, 0, 0, 0, 9}, addr("fe80::9"), dst, 1, m)
}

// query makes a general or specific query of the newest version.
func queryFrame(is4 bool, group wire.Addr, sources ...wire.Addr) []byte {
	if is4 {
		m := []byte{0x11, 10, 0, 0, 0, 0, 0, 0, 2, 125, 0, byte(len(sources))}
		dst := "224.0.0.1"
		if group != (wire.Addr{}) {
			copy(m[4:], group[12:])
			dst = group.String()
		}
		for _, s := range sources {
			m = append(m, s[12:]...)
		}
		return igmpFrame(m, dst)
	}
	m := make([]byte, 28)
	m[0], m[4], m[5], m[24], m[27] = mldQuery, 3, 232, 2, byte(len(sources))
	copy(m[8:], group[:])
	for _, s := range sources {
		m = append(m, s[:]...)
	}
	if group == (wire.Addr{}) {
		group = allNodes
	}
	return mldFrame(m, group)
}

// groupRecord is a group record as it was sent.
type groupRecord struct {
	kind    recordKind
	group   wire.Addr
	sources int
}

// reportsOf reads the reports among frames, as RFC 3376 4.2 and RFC 3810 5.2 have them.
func reportsOf(t *testing.T, frames [][]byte, group wire.Addr) (list []groupRecord) {
	t.Helper()
	for _, f := range frames {
		var m []byte
		size := 4
		switch {
		case f[12] == 8 && f[13] == 0 && f[23] == wire.ProtoIGMP && f[38] == igmpReport3:
			m = f[38:]
			if f[22] != 1 || f[14] != 0x46 || f[34] != 148 || wire.AddrFrom4(wire.IPv4(f[14:]).Dst()) != igmpRouters || wire.SumPlain(m, 0) != 0xffff {
				t.Fatalf("%x", f)
			}
		case f[12] == 0x86 && f[20] == 0 && f[62] == mldReport2:
			m, size = f[62:], 16
			if f[21] != 1 || wire.Addr(wire.IPv6(f[14:]).Dst()) != mldRouters {
				t.Fatalf("%x", f)
			}
		default:
			continue
		}
		k := int(binary.BigEndian.Uint16(m[6:]))
		m = m[8:]
		for range k {
			n := int(binary.BigEndian.Uint16(m[2:]))
			var g wire.Addr
			if size == 4 {
				g = wire.AddrFrom4([4]byte(m[4:8]))
			} else {
				g = wire.Addr(m[4:20])
			}
			if g == group {
				list = append(list, groupRecord{recordKind(m[0]), g, n})
			}
			m = m[4+size*(1+n):]
		}
		if len(m) != 0 {
			t.Fatalf("%d bytes behind the records of %x", len(m), f)
		}
	}
	return list
}

var groupCases = []struct {
	c          struct{ name, a, b, bits string }
	group      string
	s1, s2, s3 string
}{
	{pairs[0], "233.252.0.1", "198.18.0.50", "198.18.0.51", "198.18.0.52"},
	{pairs[1], "ff0e::db8:1", "2001:db8::50", "2001:db8::51", "2001:db8::52"},
}

// RFC 3376 3.2, RFC 3810 4.2: the filter of an interface follows from what the sockets want.
func TestFilterOfInterface(t *testing.T) {
	type want struct {
		include bool
		sources []int
	}
	for _, c := range groupCases {
		src := []wire.Addr{addr(c.s1), addr(c.s2), addr(c.s3)}
		for _, k := range []struct {
			sockets []want
			pass    []bool
		}{
			{[]want{{true, []int{0}}}, []bool{true, false, false}},
			{[]want{{true, []int{0}}, {true, []int{1}}}, []bool{true, true, false}},
			{[]want{{false, nil}}, []bool{true, true, true}},
			{[]want{{false, []int{0, 1}}}, []bool{false, false, true}},
			{[]want{{false, []int{0, 1}}, {false, []int{1, 2}}}, []bool{true, false, true}},
			{[]want{{false, []int{0, 1}}, {true, []int{0}}}, []bool{true, false, true}},
			{[]want{{false, []int{0}}, {true, nil}}, []bool{false, true, true}},
		} {
			l := newLAN(t)
			a := l.add(1, nil).addAddr(c.c.a + c.c.bits)
			for i, w := range k.sockets {
				var list []wire.Addr
				for _, s := range w.sources {
					list = append(list, src[s])
				}
				if err := a.Listen(l.now, uint32(i), 0, addr(c.group), w.include, list); err != nil {
					t.Fatal(err)
				}
			}
			x := l.tap(2)
			for i, s := range src {
				h := Header{Src: s, Dst: addr(c.group)}
				f := ipFrame(a, x, &h, udpTo(&h, 10))
				if got := a.feed(0, f) == packet.Undecided; got != k.pass[i] {
					t.Errorf("%s %v: from source %d passes: %v", c.c.name, k.sockets, i, got)
				}
			}
			for i := range k.sockets {
				_ = a.Listen(l.now, uint32(i), 0, addr(c.group), true, nil)
			}
			if a.Local(0, addr(c.group)) != NotLocal {
				t.Errorf("%s: still a member", c.c.name)
			}
		}
	}
}

// RFC 3376 5.1, RFC 3810 6.1: changes are reported at once and once more.
func TestStateChangeReports(t *testing.T) {
	for _, c := range groupCases {
		t.Run(c.c.name, func(t *testing.T) {
			l := newLAN(t)
			a := l.add(1, nil).addAddr(c.c.a + c.c.bits)
			l.after(5 * time.Second)
			l.keep = true
			g := addr(c.group)
			step := func(what string, include bool, sources []wire.Addr, want ...groupRecord) {
				l.seen = nil
				if err := a.Listen(l.now, 7, 0, g, include, sources); err != nil {
					t.Fatal(err)
				}
				l.settle()
				if got := reportsOf(t, l.seen, g); !slices.Equal(got, want) {
					t.Errorf("%s: %v, want %v", what, got, want)
				}
				l.after(3 * time.Second)
				if got := reportsOf(t, l.seen, g); !slices.Equal(got, slices.Concat(want, want)) {
					t.Errorf("%s: in all %v", what, got)
				}
			}
			one, two := []wire.Addr{addr(c.s1)}, []wire.Addr{addr(c.s1), addr(c.s2)}
			step("join", false, nil, groupRecord{toExclude, g, 0})
			step("exclude", false, two, groupRecord{blockOld, g, 2})
			step("exclude one", false, one, groupRecord{allowNew, g, 1})
			step("include", true, two, groupRecord{toInclude, g, 2})
			step("include one", true, one, groupRecord{blockOld, g, 1})
			step("include other", true, []wire.Addr{addr(c.s2)}, groupRecord{allowNew, g, 1}, groupRecord{blockOld, g, 1})
			step("leave", true, nil, groupRecord{blockOld, g, 1})
			step("join", false, nil, groupRecord{toExclude, g, 0})
			step("leave", true, nil, groupRecord{toInclude, g, 0})
			if len(a.groups.index) != map[string]int{"IPv4": 0, "IPv6": 1}[c.c.name] {
				t.Errorf("%d groups are kept", len(a.groups.index))
			}
		})
	}
}

// RFC 3376 5.2, RFC 3810 6.2: queries are answered within the time they give.
func TestQueries(t *testing.T) {
	for _, c := range groupCases {
		t.Run(c.c.name, func(t *testing.T) {
			l := newLAN(t)
			a := l.add(1, nil).addAddr(c.c.a + c.c.bits)
			g := addr(c.group)
			if err := a.Listen(l.now, 1, 0, g, true, []wire.Addr{addr(c.s1), addr(c.s2)}); err != nil {
				t.Fatal(err)
			}
			l.after(5 * time.Second)
			l.keep = true
			is4 := c.c.name == "IPv4"
			ask := func(f []byte, want ...groupRecord) {
				t.Helper()
				l.seen = nil
				if v := a.feed(0, f); v != packet.Deliver {
					t.Fatal(v)
				}
				l.after(1100 * time.Millisecond)
				if got := reportsOf(t, l.seen, g); !slices.Equal(got, want) {
					t.Errorf("%v, want %v", got, want)
				}
			}
			ask(queryFrame(is4, wire.Addr{}), groupRecord{isInclude, g, 2})
			ask(queryFrame(is4, g), groupRecord{isInclude, g, 2})
			ask(queryFrame(is4, g, addr(c.s1), addr(c.s3)), groupRecord{isInclude, g, 1})
			ask(queryFrame(is4, g, addr(c.s3)))
			_ = a.Listen(l.now, 1, 0, g, false, []wire.Addr{addr(c.s1)})
			l.after(5 * time.Second)
			ask(queryFrame(is4, wire.Addr{}), groupRecord{isExclude, g, 1})
			ask(queryFrame(is4, g, addr(c.s1), addr(c.s3)), groupRecord{isInclude, g, 1})
			// Queries without end are answered at most ten times a second.
			l.seen = nil
			q := queryFrame(is4, wire.Addr{})
			if is4 {
				q = igmpFrame([]byte{0x11, 1, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0}, "224.0.0.1")
			}
			for range 1000 {
				a.feed(0, q)
				l.after(time.Millisecond)
			}
			if n := len(reportsOf(t, l.seen, g)); n < 1 || n > 11 {
				t.Errorf("%d answers in a second", n)
			}
		})
	}
}

// RFC 3376 7.2, RFC 2236, RFC 3810 8.2, RFC 2710: with an older querier the older messages are sent, and
// those of others suffice.
func TestOlderQueriers(t *testing.T) {
	for _, c := range groupCases {
		is4 := c.c.name == "IPv4"
		l := newLAN(t)
		a := l.add(1, nil).addAddr(c.c.a + c.c.bits)
		l.after(5 * time.Second)
		g := addr(c.group)
		query, report, done := mldFrame(append([]byte{mldQuery, 0, 0, 0, 3, 232, 0, 0}, make([]byte, 16)...), allNodes), mldReport1, mldDone1
		at := 62
		if is4 {
			query, report, done, at = igmpFrame([]byte{0x11, 10, 0, 0, 0, 0, 0, 0}, "224.0.0.1"), igmpReport2, igmpLeave2, 38
		}
		if v := a.feed(0, query); v != packet.Deliver {
			t.Fatal(v)
		}
		l.keep = true
		count := func(typ uint8) (n int) {
			for _, f := range l.seen {
				if len(f) > at && (f[23] == wire.ProtoIGMP || f[12] == 0x86) && f[at] == typ {
					n++
				}
			}
			return n
		}
		_ = a.Listen(l.now, 1, 0, g, false, nil)
		l.after(3 * time.Second)
		if n := count(report); n < 2 || len(reportsOf(t, l.seen, g)) != 0 {
			t.Errorf("%s: %d reports of the older version", c.c.name, n)
		}
		l.seen = nil
		_ = a.Listen(l.now, 1, 0, g, true, nil)
		l.after(3 * time.Second)
		if n := count(done); n < 1 {
			t.Errorf("%s: %d ends", c.c.name, n)
		}
		l.after(5 * time.Minute)
		l.seen = nil
		_ = a.Listen(l.now, 1, 0, g, false, nil)
		l.settle()
		if len(reportsOf(t, l.seen, g)) != 1 {
			t.Errorf("%s: the older querier is remembered for ever", c.c.name)
		}
	}
}

// Groups that exist for all hosts are never reported; the numbers are bounded.
func TestGroupLimits(t *testing.T) {
	l := newLAN(t)
	a := l.add(1, func(c *Config) { c.MaxGroups = 10 }).addAddr("198.18.0.1/24")
	l.keep = true
	if a.Local(0, addr("224.0.0.1")) != Multicast || a.Local(0, addr("ff02::1")) != Multicast {
		t.Error("not in the groups of all")
	}
	failed := 0
	for i := range 20 {
		g := addr("233.252.0.0")
		g[15] = byte(i)
		if a.Listen(l.now, 1, 0, g, false, nil) == ErrFull {
			failed++
		}
	}
	if failed != 10 {
		t.Errorf("%d of 20 groups rejected", failed)
	}
	if err := a.Listen(l.now, 1, 0, addr("233.252.0.1"), true, make([]wire.Addr, maxGroupSources+1)); err != ErrFull {
		t.Error(err)
	}
	if err := a.Listen(l.now, 1, 0, addr("198.18.0.7"), false, nil); err != ErrAddress {
		t.Error(err)
	}
}

func TestFloats(t *testing.T) {
	for c, want := range map[uint8]int{0: 0, 127: 127, 128: 128, 0x8f: 248, 0xff: 31744} {
		if got := float8(c); got != want {
			t.Errorf("float8(%#x) = %d, want %d", c, got, want)
		}
	}
	for c, want := range map[uint16]int{0: 0, 32767: 32767, 32768: 32768, 0xffff: 8387584} {
		if got := float16(c); got != want {
			t.Errorf("float16(%#x) = %d, want %d", c, got, want)
		}
	}
}

// RFC 3376 4, RFC 3810 5: what has come from another link is not for the groups of this one.
func TestQueriesFromOtherLinks(t *testing.T) {
	for _, c := range groupCases {
		is4 := c.c.name == "IPv4"
		l := newLAN(t)
		a := l.add(1, nil).addAddr(c.c.a + c.c.bits)
		l.after(5 * time.Second)
		near := queryFrame(is4, wire.Addr{})
		far := slices.Clone(near)
		if is4 {
			wire.IPv4(far[14:]).SetTTL(2)
			wire.IPv4(far[14:]).FillChecksum()
		} else {
			wire.IPv6(far[14:]).SetHopLimit(2)
		}
		if v := a.feed(0, far); v != packet.DropDenied {
			t.Errorf("%s: %v", c.c.name, v)
		}
		if v := a.feed(0, near); v != packet.Deliver {
			t.Errorf("%s: %v", c.c.name, v)
		}
	}
}
