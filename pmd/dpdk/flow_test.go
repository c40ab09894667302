package dpdk

import (
	"encoding/binary"
	"errors"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/exception"
	"github.com/millrace/millrace/wire"
)

// fakeFlows is a device with rules: it has room for some, and refuses what it is set to.
type fakeFlows struct {
	room    int
	refuse  func(flowRule, flowAction) error
	keeps   bool // rules cannot be removed
	rules   map[uintptr]flowRule
	actions map[uintptr]flowAction
	next    uintptr
	calls   int // of create
	flushed bool
}

func (f *fakeFlows) create(r flowRule, a flowAction) (uintptr, error) {
	f.calls++
	if f.refuse != nil {
		if err := f.refuse(r, a); err != nil {
			return 0, err
		}
	}
	if f.room > 0 && len(f.rules) == f.room {
		return 0, unix.ENOSPC
	}
	f.next++
	f.rules[f.next], f.actions[f.next] = r, a
	return f.next, nil
}

func (f *fakeFlows) destroy(handle uintptr) error {
	if _, there := f.rules[handle]; !there {
		panic("a rule that is not there is destroyed")
	}
	if f.keeps {
		return unix.EIO
	}
	delete(f.rules, handle)
	delete(f.actions, handle)
	return nil
}

func (f *fakeFlows) flush() error {
	f.flushed = true
	clear(f.rules)
	return nil
}

func newFake() *fakeFlows {
	return &fakeFlows{rules: map[uintptr]flowRule{}, actions: map[uintptr]flowAction{}}
}

// has lists the addresses of the rules in the device.
func (f *fakeFlows) has() string {
	var list []string
	for _, r := range f.rules {
		list = append(list, r.addr.String())
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func service(addr string, port uint16) pmd.Rule {
	return pmd.Rule{Addr: netip.MustParseAddr(addr), Proto: wire.ProtoTCP, PortLo: port}
}

func TestRulesFollowClaims(t *testing.T) {
	f := newFake()
	table := newFlowTable(f, flowActions(2, true))
	a, b, c := service("198.18.0.1", 80), service("198.18.0.2", 80), service("2001:db8::3", 443)
	for _, step := range []struct {
		claims []pmd.Rule
		has    string
		calls  int // of create, in all
	}{
		{nil, "", 0},
		{[]pmd.Rule{a, b, b}, "198.18.0.1 198.18.0.2", 2},
		{[]pmd.Rule{b, a}, "198.18.0.1 198.18.0.2", 2}, // nothing to do
		{[]pmd.Rule{b, c}, "198.18.0.2 2001:db8::3", 3},
		{nil, "", 3},
		{[]pmd.Rule{a}, "198.18.0.1", 4},
	} {
		if err := table.replace(step.claims); err != nil {
			t.Fatal(err)
		}
		s := table.status.Load()
		if f.has() != step.has || f.calls != step.calls || s.claims != len(step.claims) || s.steered != s.claims || s.refusal() != nil {
			t.Errorf("%v: the device has %q by %d calls, status %+v", step.claims, f.has(), f.calls, s)
		}
	}
	if err := table.close(); err != nil || f.has() != "" || !f.flushed {
		t.Error("rules stay after close:", f.has(), err)
	}
	if err := table.replace([]pmd.Rule{a}); !errors.Is(err, pmd.ErrClosed) || f.has() != "" {
		t.Errorf("replace after close: %v, the device has %q", err, f.has())
	}
}

func TestDeviceWithoutRulesIsAskedOnce(t *testing.T) {
	f := newFake()
	f.refuse = func(flowRule, flowAction) error { return unix.ENOSYS }
	table := newFlowTable(f, flowActions(2, true))
	for range 3 {
		if err := table.replace([]pmd.Rule{service("198.18.0.1", 80), service("198.18.0.2", 80)}); err != nil {
			t.Fatal(err)
		}
		s := table.status.Load()
		if f.calls != 1 || s.steered != 0 || s.claims != 2 || !errors.Is(s.refusal(), unix.ENOSYS) {
			t.Errorf("%d calls, %+v, %v", f.calls, s, s.refusal())
		}
	}
	if err := table.close(); err != nil || f.flushed {
		t.Error("a device without rules is flushed:", err)
	}
}

// TestSupportedActionIsFound has a device refuse kinds of rules and actions, which it is not asked for again.
func TestSupportedActionIsFound(t *testing.T) {
	for _, c := range []struct {
		queues  int
		rss     bool
		refuses flowAction // bits of actions that the device does not know
		v6      bool       // it knows IPv6
		want    flowAction // 0: none
		calls   int        // of create, for four rules of two kinds
	}{
		{1, true, 0, true, flowMark | flowQueue, 4},
		{1, true, flowMark, true, 0, 2},
		{2, true, 0, true, flowMark | flowRSS, 4},
		{2, true, flowRSS, true, flowMark | flowPass, 6},
		{2, true, flowMark, true, flowRSS, 8},
		{2, true, flowMark | flowRSS, true, 0, 6},
		{2, false, 0, true, flowMark | flowQueue, 4},
		{2, false, flowMark, true, flowQueue, 6},
		{2, false, flowMark, false, flowQueue, 5},
	} {
		f := newFake()
		f.refuse = func(r flowRule, a flowAction) error {
			if a&c.refuses != 0 || !c.v6 && r.addr.Is6() {
				return unix.ENOTSUP
			}
			return nil
		}
		table := newFlowTable(f, flowActions(c.queues, c.rss))
		rules := []pmd.Rule{service("198.18.0.1", 80), service("198.18.0.2", 80), service("2001:db8::1", 80), service("2001:db8::2", 80)}
		if err := table.replace(rules); err != nil {
			t.Fatal(err)
		}
		for _, a := range f.actions {
			if a != c.want {
				t.Errorf("%+v: action %b", c, a)
			}
		}
		want := 4
		switch {
		case c.want == 0:
			want = 0
		case !c.v6:
			want = 2
		}
		s := table.status.Load()
		if len(f.rules) != want || f.calls != c.calls || s.steered != want || want < 4 && !errors.Is(s.refusal(), unix.ENOTSUP) {
			t.Errorf("%+v: %d rules after %d calls, %+v", c, len(f.rules), f.calls, s)
		}
		before := f.calls
		if _ = table.replace(rules); c.want == 0 && f.calls != before {
			t.Errorf("%+v: refused rules are tried again", c)
		}
	}
}

// TestBlocksOfPorts has a device that compares whole ports only, as DPDK's TAP driver: it still gets the rules of those.
func TestBlocksOfPorts(t *testing.T) {
	f := newFake()
	f.refuse = func(r flowRule, _ flowAction) error {
		if r.mask != 0 && r.mask != 0xffff {
			return unix.ENOTSUP
		}
		return nil
	}
	table := newFlowTable(f, flowActions(2, true))
	block := service("198.18.0.9", 1024)
	block.PortHi = 2047
	for range 2 {
		_ = table.replace([]pmd.Rule{block, service("198.18.0.1", 80), {Addr: block.Addr, Proto: wire.ProtoTCP}})
		if s := table.status.Load(); s.steered != 2 || f.has() != "198.18.0.1 198.18.0.9" {
			t.Errorf("%+v, the device has %q", s, f.has())
		}
	}
}

func TestFullDevice(t *testing.T) {
	f := newFake()
	f.room = 2
	table := newFlowTable(f, flowActions(1, true))
	a, b, c := service("198.18.0.1", 80), service("198.18.0.2", 80), service("198.18.0.3", 80)
	_ = table.replace([]pmd.Rule{a, b, c})
	if s := table.status.Load(); s.steered != 2 || !errors.Is(s.refusal(), unix.ENOSPC) || s.describe() != ", rte_flow steers 2 of 3 claims" {
		t.Errorf("%+v %s", s, s.describe())
	}
	_ = table.replace([]pmd.Rule{b, c})
	if s := table.status.Load(); s.steered != 2 || f.has() != "198.18.0.2 198.18.0.3" {
		t.Errorf("%+v, the device has %q", s, f.has())
	}
	f.keeps = true
	if err := table.replace([]pmd.Rule{a}); !errors.Is(err, unix.EIO) {
		t.Error("a rule that cannot be removed:", err)
	}
	f.keeps = false
	if err := table.replace([]pmd.Rule{a}); err != nil || f.has() != "198.18.0.1" {
		t.Error(err, f.has())
	}
}

// TestEveryFlowState takes the table through every state, by every call.
func TestEveryFlowState(t *testing.T) {
	for from := range flowStates {
		for to := range flowStates {
			table := newFlowTable(newFake(), nil)
			table.state = from
			may := from == to || to == flowsClosed || from == flowsUntried // nothing leads back, and none leads out of a refusal but the end
			if table.to(to); (table.state == to) != may {
				t.Errorf("%d to %d: %d", from, to, table.state)
			}
		}
	}
}

// TestRulesAgreeWithMatcher compares the rules of devices with the matcher, which decides in software: a rule may name no packet
// that no claim names. Packets have no tags and are no fragments, as devices look at them.
func TestRulesAgreeWithMatcher(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(list ...int) int { return list[r.IntN(len(list))] }
	addrs := []netip.Addr{netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("198.18.0.2"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")}
	hits := 0
	for range 20_000 {
		var claims []pmd.Rule
		for range 1 + r.IntN(3) {
			c := pmd.Rule{Addr: addrs[r.IntN(4)], Kind: pmd.RuleKind(r.IntN(4)), Proto: uint8(pick(0, 6, 6, 17, 1, 58, 132)), LaterFragments: r.IntN(8) == 0}
			if c.Kind >= pmd.Neighbor {
				c.Proto, c.LaterFragments = 0, false
			} else if pmd.HasPorts(c.Proto) && !c.LaterFragments && r.IntN(2) == 0 {
				c.PortLo = uint16(1 + r.IntN(40))
				c.PortHi = uint16(pick(0, int(c.PortLo)+r.IntN(9)))
			}
			if r.IntN(8) == 0 && c.Kind == pmd.To && !c.LaterFragments { // a prefix
				c.PortLo, c.PortHi, c.Proto, c.Bits = 0, 0, 1, 24
				if c.Addr.Is6() {
					c.Proto = 58
				}
			}
			if c.Validate() == nil {
				claims = append(claims, c)
			}
		}
		m, err := exception.NewMatcher(claims...)
		if err != nil {
			t.Fatal(err)
		}
		p, src, dst := somePacket(r, addrs)
		inDevice := false
		for _, c := range steerable(claims) {
			for _, f := range flowRules(c) {
				inDevice = inDevice || f.matches(p, src, dst)
			}
		}
		if inDevice && !m.Claims(p) {
			t.Fatalf("claims %v: the device marks % x", claims, p)
		}
		if inDevice {
			hits++
		}
	}
	if hits < 500 {
		t.Errorf("only %d packets meet a rule", hits)
	}
}

// somePacket returns a packet between two of the addresses, of one family.
func somePacket(r *rand.Rand, addrs []netip.Addr) (p []byte, src, dst netip.Addr) {
	at := 2 * r.IntN(2)
	src, dst = addrs[at+r.IntN(2)], addrs[at+r.IntN(2)]
	proto := []uint8{6, 17, 1, 58, 132}[r.IntN(5)]
	l4 := make([]byte, 40)
	binary.BigEndian.PutUint16(l4, uint16(1+r.IntN(48)))
	binary.BigEndian.PutUint16(l4[2:], uint16(1+r.IntN(48)))
	if src.Is4() {
		p = append(make([]byte, 12), 8, 0, 0x45, 0, 0, 60, 0, 0, 0, 0, 64, proto, 0, 0)
	} else {
		p = append(make([]byte, 12), 0x86, 0xdd, 0x60, 0, 0, 0, 0, 40, proto, 64)
	}
	p = append(append(append(p, src.AsSlice()...), dst.AsSlice()...), l4...)
	return p, src, dst
}

// matches is the comparison of a device: a slow form for the test.
func (f flowRule) matches(p []byte, src, dst netip.Addr) bool {
	proto, l4 := p[23], p[34:]
	if src.Is6() {
		proto, l4 = p[20], p[54:]
	}
	addr, port := dst, binary.BigEndian.Uint16(l4[2:])
	if f.source {
		addr, port = src, binary.BigEndian.Uint16(l4)
	}
	return addr == f.addr && (f.proto == 0 || f.proto == proto && port&f.mask == f.port)
}

func TestPortBlocksCoverTheirRange(t *testing.T) {
	for _, c := range []struct{ lo, hi, blocks int }{
		{80, 80, 1}, {8080, 8081, 1}, {8081, 8082, 2}, {1024, 65535, 6}, {0, 65535, 1}, {0, 1023, 1}, {1, 1023, 0}, {65535, 65535, 1}, {3, 20, 5}, {1, 255, 8}, {1, 511, 0},
	} {
		list := portBlocks(flowRule{}, uint32(c.lo), uint32(c.hi))
		if len(list) != c.blocks {
			t.Errorf("%v: %v", c, list)
		}
		for port := range 1 << 16 {
			in := 0
			for _, f := range list {
				if uint16(port)&f.mask == f.port {
					in++
				}
			}
			if want := port >= c.lo && port <= c.hi && c.blocks > 0; in > 1 || (in == 1) != want {
				t.Fatalf("%v: port %d is in %d of %v", c, port, in, list)
			}
		}
	}
}

func TestRSSTypesAreThoseOfTheRule(t *testing.T) {
	v4, v6 := netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("2001:db8::1")
	got := map[uint64]bool{}
	for _, a := range []netip.Addr{v4, v6} {
		for _, proto := range []uint8{0, 6, 17} {
			got[flowRule{addr: a, proto: proto}.rssTypes()] = true
		}
	}
	if want := map[uint64]bool{0x3c: true, 0x10: true, 0x20: true, 0xf00: true, 0x400: true, 0x800: true}; !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
}
