package gpukern_test

import (
	"fmt"
	"slices"
	"testing"

	. "github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/packet"
)

const l2Ops = OpsHeader | OpL2Encap

// l2Sets are the sets of operations that packets of these encapsulations go through.
var l2Sets = []Ops{l2Ops, OpL2Encap | OpChecksum, OpsHeader}

func TestTheEngineFindsBehindMPLSAndPPPoEWhatTheReferenceFinds(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := kernref.NewGenerator(seed + 5000)
			l := kernref.Lists{Rules: g.Rules(g.IntN(100)), Routes: g.Routes(g.IntN(100))}
			for _, ops := range l2Sets {
				agree(t, g.L2Encaps(300), NewCPU(Config{Ops: ops, Tables: compile(t, l)}), l)
			}
		})
	}
}

func TestTheHeadersKernelFindsBehindMPLSAndPPPoEWhatTheReferenceFinds(t *testing.T) {
	for seed := range uint64(6) {
		g := kernref.NewGenerator(seed + 6000)
		l := kernref.Lists{Rules: g.Rules(g.IntN(50)), Routes: g.Routes(g.IntN(50))}
		k := newHeadersKernel(t, "gk_headers", compile(t, l), &l.HashKey)
		for _, ops := range l2Sets {
			k.same(t, g.L2Encaps(150), ops, l)
		}
	}
	g := kernref.NewGenerator(6100)
	k := newHeadersKernel(t, "gk_headers", Tables{}, new([40]byte))
	c := NewCPU(Config{Ops: l2Ops})
	for range 12 { // cut at every byte
		p := g.L2Encap()
		var packets [][][]byte
		for n := range min(len(p), 120) + 1 {
			packets = append(packets, kernref.One(p[:n]), [][]byte{p[:n], p[n:]})
		}
		b := kernref.BatchOf(packets...)
		again := &packet.Batch{Arena: &packet.Arena{Mem: slices.Clone(b.Arena.Mem), Shift: b.Arena.Shift}, D: slices.Clone(b.D)}
		k.same(t, b, l2Ops, kernref.Lists{})
		agree(t, again, c, kernref.Lists{})
	}
}

// l2 returns a packet of an EtherType: addresses, the type, the headers given, and IPv4 with UDP or what rest says.
func l2(ether string, headers, rest string) []byte {
	if rest == "" {
		rest = "\x45\x00\x00\x1c\x00\x00\x40\x00\x40\x11\xae\xa9\xc6\x12\x00\x01\xc6\x12\x00\x02\x00\x01\x00\x02\x00\x08\x00\x00"
	}
	return []byte("\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02" + ether + headers + rest)
}

func TestWhatIsBehindMPLSAndPPPoE(t *testing.T) {
	const label, bottom = "\x00\x01\x00\x40", "\x00\x01\x01\x40"
	const ip6 = "\x60\x00\x00\x00\x00\x00\x3b\x40" + "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" + "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02"
	eight := ""
	for range 7 {
		eight += label
	}
	const is4, is6, cut = packet.FlagIPv4 | packet.FlagIPChecksumOK | packet.FlagL4NoChecksum, packet.FlagIPv6, packet.FlagTruncated
	for _, tc := range []struct {
		name  string
		p     []byte
		l3    uint8
		flags packet.Flags
	}{
		{"PPPoE IPv4", l2("\x88\x64", "\x11\x00\x00\x05\x00\x1e\x00\x21", ""), 22, is4},
		{"PPPoE IPv6", l2("\x88\x64", "\x11\x00\x00\x05\x00\x2a\x00\x57", ip6), 22, is6},
		{"PPPoE LCP", l2("\x88\x64", "\x11\x00\x00\x05\x00\x1e\xc0\x21", ""), 14, 0},
		{"PPPoE of another version", l2("\x88\x64", "\x21\x00\x00\x05\x00\x1e\x00\x21", ""), 14, 0},
		{"PPPoE of another code", l2("\x88\x64", "\x11\x09\x00\x05\x00\x1e\x00\x21", ""), 14, 0},
		{"PPPoE discovery", l2("\x88\x63", "\x11\x00\x00\x05\x00\x1e\x00\x21", ""), 14, 0},
		{"PPPoE cut in its header", l2("\x88\x64", "\x11\x00\x00\x05\x00\x1e\x00", "\x21")[:21], 0, cut},
		{"PPPoE that ends with it", l2("\x88\x64", "\x11\x00\x00\x05\x00\x1e\x00", "\x21"), 22, cut},
		{"PPPoE behind a tag", l2("\x81\x00", "\x00\x07\x88\x64\x11\x00\x00\x05\x00\x1e\x00\x21", ""), 26, is4 | packet.FlagVLAN},
		{"MPLS IPv4", l2("\x88\x47", bottom, ""), 18, is4},
		{"MPLS IPv6", l2("\x88\x47", label+bottom, ip6), 22, is6},
		{"MPLS upstream", l2("\x88\x48", label+bottom, ""), 22, is4},
		{"MPLS of eight labels", l2("\x88\x47", eight+bottom, ""), 46, is4},
		{"MPLS of nine labels", l2("\x88\x47", eight+label+bottom, ""), 14, 0},
		{"MPLS pseudowire", l2("\x88\x47", bottom, "\x00\x00\x00\x00\x02\x00\x00\x00\x00\x01"), 14, 0},
		{"MPLS cut in a label", l2("\x88\x47", label, "\x00\x01\x01"), 0, cut},
		{"MPLS cut behind its stack", l2("\x88\x47", label, bottom), 0, cut},
	} {
		b := kernref.BatchOf(kernref.One(tc.p))
		agree(t, b, NewCPU(Config{Ops: l2Ops}), kernref.Lists{})
		if d := b.D[0]; d.L3 != tc.l3 || d.Flags&^packet.FlagL4NoChecksum != tc.flags&^packet.FlagL4NoChecksum {
			t.Errorf("%s: L3 %d, flags %#x, want %d, %#x", tc.name, d.L3, d.Flags, tc.l3, tc.flags)
		}
		b = kernref.BatchOf(kernref.One(tc.p))
		agree(t, b, NewCPU(Config{}), kernref.Lists{})
		if d := b.D[0]; d.Flags&(packet.FlagIPv4|packet.FlagIPv6) != 0 {
			t.Errorf("%s: without the operation it is IP: %+v", tc.name, d)
		}
	}
}
