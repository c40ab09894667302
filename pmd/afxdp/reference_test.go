package afxdp

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/exception"
)

func newBatch(r *rig) *packet.Batch { return packet.NewBatch(r.arena.View(), 64) }

// flow holds the fields that rules compare, in the reference.
type flow struct {
	src, dst     netip.Addr
	proto        int // -1 is unknown
	sport, dport int // or ICMP's type; -1 is unknown
	neighbor     netip.Addr
	rest         bool // a fragment after the first
}

// reference decides as bpf/steer.c does, the slow and obvious way: parse, then try each rule, those that
// the kernel's own addresses are kept from at the end.
func reference(rules []Rule, frame []byte) bool {
	f, ok := parse(frame)
	if !ok {
		return false
	}
	keep, wide := false, false
	for _, r := range rules {
		r, err := normalize(r)
		switch {
		case err != nil:
		case r.Kind == pmd.Keep:
			keep = keep || f.dst == r.Addr
		case !f.meets(r):
		case r.Kind == pmd.From || r.Bits != 0:
			wide = true
		default:
			return true
		}
	}
	return wide && !keep
}

// meets reports whether a packet is what a rule names.
func (f flow) meets(r Rule) bool {
	addr, port := f.dst, f.dport
	if r.Kind == pmd.From {
		addr, port = f.src, f.sport
	}
	discovery := f.proto == 58 && f.dport >= 133 && f.dport <= 137
	switch {
	case r.Kind == pmd.Neighbor:
		return f.neighbor == r.Addr
	case r.Bits != 0:
		return f.proto == int(r.Proto) && !discovery && netip.PrefixFrom(r.Addr, int(r.Bits)).Contains(addr)
	case addr != r.Addr:
		return false
	case r.Proto == 0:
		return true
	case f.proto != int(r.Proto) || discovery:
		return false
	case r.LaterFragments:
		return f.rest
	}
	return r.PortHi == 0 || port >= int(r.PortLo) && port <= int(r.PortHi)
}

func parse(frame []byte) (flow, bool) {
	f := flow{proto: -1, sport: -1, dport: -1}
	if len(frame) < 14 {
		return f, false
	}
	kind, p := binary.BigEndian.Uint16(frame[12:]), frame[14:]
	for tags := 0; tags < 2 && (kind == 0x8100 || kind == 0x88a8); tags++ {
		if len(p) < 4 {
			return f, false
		}
		kind, p = binary.BigEndian.Uint16(p[2:]), p[4:]
	}
	switch kind {
	case 0x0806:
		if len(p) < 28 || string(p[:6]) != "\x00\x01\x08\x00\x06\x04" {
			return f, false
		}
		f.neighbor = addrOf(p[24:28])
		return f, true
	case 0x0800:
		return parse4(f, p)
	case 0x86dd:
		return parse6(f, p)
	}
	return f, false
}

func addrOf(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a.Unmap() // the maps key IPv4 addresses as mapped ones
}

func parse4(f flow, p []byte) (flow, bool) {
	if len(p) < 20 || p[0]>>4 != 4 {
		return f, false
	}
	n := int(p[0]&15) * 4
	if n < 20 || n > len(p) {
		return f, false
	}
	f.src, f.dst, f.proto = addrOf(p[12:16]), addrOf(p[16:20]), int(p[9])
	if f.rest = (int(p[6])<<8|int(p[7]))&0x1fff != 0; !f.rest {
		f = parsePorts(f, p[n:])
	}
	return f, true
}

func parsePorts(f flow, p []byte) flow {
	if pmd.HasPorts(uint8(f.proto)) && len(p) >= 4 {
		f.sport, f.dport = int(p[0])<<8|int(p[1]), int(p[2])<<8|int(p[3])
	}
	if pmd.HasTypes(uint8(f.proto)) && len(p) >= 1 {
		f.sport, f.dport = int(p[0]), int(p[0])
	}
	return f
}

func parse6(f flow, p []byte) (flow, bool) {
	if len(p) < 40 || p[0]>>4 != 6 {
		return f, false
	}
	f.src, f.dst = addrOf(p[8:24]), addrOf(p[24:40])
	next := int(p[6])
	p = p[40:]
	for headers := 0; headers <= 6; headers++ {
		size, need := 0, 4
		switch next {
		case 0, 43, 60:
			if len(p) >= 2 {
				size = (int(p[1]) + 1) * 8
			}
		case 51:
			if len(p) >= 2 {
				size = (int(p[1]) + 2) * 4
			}
		case 44:
			size, need = 8, 8
		default:
			f.proto = next
			f = parsePorts(f, p)
			if next == 58 && len(p) >= 24 && p[0] == 135 {
				f.neighbor = addrOf(p[8:24])
			}
			if next == 58 && len(p) >= 24 && p[0] == 136 {
				f.neighbor = f.dst
			}
			return f, true
		}
		if len(p) < need {
			return f, true
		}
		if next == 44 && (p[2] != 0 || p[3]&0xf8 != 0) {
			f.proto, f.rest = int(p[0]), true
			return f, true
		}
		next, p = int(p[0]), p[min(size, len(p)):]
	}
	return f, true
}

// fuzzRules are sixteen rules; a fuzzer's mask picks some.
var fuzzRules = []Rule{
	to(ourAddr, 6, 80), to(ourAddr, 6, 443), to(ourAddr, 17, 2000, 3000), to(ourAddr, 17), to(ourAddr, 1), to(ourAddr, 0), neighbor(ourAddr),
	from(backend, 6, 8080), from(backend, 17, 1, 65535), from(backend, 0), to(our6, 6, 443), to(our6, 17, 53), to(our6, 58), neighbor(our6),
	from(backend6, 17, 53), to(our6, 0),
}

// moreRules are sixteen of the kinds that came later: the upper half of the mask.
var moreRules = []Rule{
	{Addr: hostAddr, Kind: pmd.Keep},
	{Addr: our6, Kind: pmd.Keep},
	{Addr: ourAddr, Kind: pmd.Keep},
	{Addr: backend, Kind: pmd.Keep},
	to(ourAddr, 1, 3, 12), to(ourAddr, 1, 8), to(our6, 58, 1, 4), to(our6, 58, 128), from(backend, 1, 3, 12), from(backend6, 58, 1, 4),
	fragments(to(ourAddr, 17)), fragments(from(backend, 17)), fragments(to(our6, 17)), fragments(from(backend6, 6)),
	prefix(ourAddr, 1, 24), prefix(our6, 58, 64),
}

// FuzzSteering compares the program in the kernel with the reference.
func FuzzSteering(f *testing.F) {
	for i, c := range steerCases {
		f.Add(uint32(1)<<(i%32)|uint32(i*7), c.frame)
		f.Add(uint32(0xfff07fdf), c.frame)
		f.Add(uint32(0xfffe0000), c.frame)
	}
	p, s := loadSteering(f, false)
	last := -1
	f.Fuzz(func(t *testing.T, mask uint32, frame []byte) {
		if len(frame) < 14 || len(frame) > 3000 {
			return // less than BPF_PROG_TEST_RUN takes, or more
		}
		var rules []Rule
		for i, r := range append(fuzzRules, moreRules...) {
			if mask&(1<<i) != 0 {
				rules = append(rules, r)
			}
		}
		if int(mask) != last {
			must(t, s.Replace(rules...))
			last = int(mask)
		}
		if got, want := steers(t, p, s, frame), reference(rules, frame); got != want {
			t.Errorf("rules %v: steered %v, the reference says %v\n%x", rules, got, want, frame)
		}
		if m, err := exception.NewMatcher(rules...); err != nil || m.Claims(frame) != steers(t, p, s, frame) {
			t.Errorf("rules %v: the kernel's program and the matcher of exception paths differ, %v\n%x", rules, err, frame)
		}
	})
}
