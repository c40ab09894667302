package gpukern_test

import (
	"fmt"
	"slices"
	"testing"

	. "github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

const tunnelOps = OpsHeader | OpTunnel

func TestTheEngineFindsInTunnelsWhatTheReferenceFinds(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := kernref.NewGenerator(seed + 1000)
			l := kernref.Lists{Rules: g.Rules(g.IntN(100)), Routes: g.Routes(g.IntN(100))}
			for _, ops := range []Ops{tunnelOps, OpsHeader, OpTunnel | OpFill | OpHash, OpFill} {
				b := g.Tunnels(400)
				if ops&OpFill != 0 {
					g.Unsum(b)
				}
				agree(t, b, NewCPU(Config{Ops: ops, Tables: compile(t, l)}), l)
			}
		})
	}
}

// TestTunnelsOfEveryKindAreGenerated keeps the generator from making less than the tests need.
func TestTunnelsOfEveryKindAreGenerated(t *testing.T) {
	g := kernref.NewGenerator(3)
	count := map[string]int{}
	for range 40 {
		b := g.Tunnels(300)
		kernref.Reference(b, tunnelOps, kernref.Lists{})
		for i := range b.D {
			d := &b.D[i]
			f := d.Flags
			if f&packet.FlagTunnel == 0 {
				continue
			}
			for name, is := range map[string]bool{
				"all":           true,
				"IPv4":          f&packet.FlagIPv4 != 0,
				"IPv6":          f&packet.FlagIPv6 != 0,
				"tagged":        f&packet.FlagVLAN != 0,
				"malformed":     f&packet.FlagMalformed != 0,
				"truncated":     f&packet.FlagTruncated != 0,
				"fragment":      f&packet.FlagFragment != 0,
				"not IP":        d.Proto == 0 && f&(packet.FlagIPv4|packet.FlagIPv6|packet.FlagMalformed) == 0 && d.L3 > 0,
				"far":           d.L3 > 128,
				"far TCP":       d.L4 > 128 && d.Proto == wire.ProtoTCP,
				"far ICMP":      d.L4 > 128 && d.Proto == wire.ProtoICMP,
				"right":         f.Has(packet.FlagIPChecksumOK | packet.FlagL4ChecksumOK),
				"outer IPv4":    f.Has(packet.FlagIPv6 | packet.FlagIPChecksumOK),
				"outer IPv6":    f.Has(packet.FlagIPv4) && d.L3 >= 54,
				"within tunnel": d.Proto == wire.ProtoGRE || d.Proto == wire.ProtoIPIP,
				"in pieces":     f&packet.FlagMore != 0 && f&packet.FlagL4ChecksumOK != 0,
			} {
				if is {
					count[name]++
				}
			}
		}
	}
	t.Log(count)
	for name, n := range count {
		if n < 20 {
			t.Errorf("%s: %d", name, n)
		}
	}
	if len(count) != 16 {
		t.Errorf("only %d kinds", len(count))
	}
}

// What was filled is right: the pass that verifies says so.
func TestFilledPacketsAreRight(t *testing.T) {
	right := 0
	for seed := range uint64(10) {
		g := kernref.NewGenerator(seed + 50)
		b := g.Unsum(g.Tunnels(400))
		fill, verify := NewCPU(Config{Ops: OpTunnel | OpFill}), NewCPU(Config{Ops: OpTunnel | OpChecksum})
		agree(t, b, fill, kernref.Lists{})
		filled := slices.Clone(b.D)
		agree(t, b, verify, kernref.Lists{})
		const sums = packet.FlagIPChecksumOK | packet.FlagL4ChecksumOK
		for i := range b.D {
			got, want := b.D[i].Flags, filled[i].Flags
			if got&want&sums != want&sums {
				t.Fatalf("packet %d: filled %#x, verified %#x\n% x", i, want, got, b.Bytes(i))
			}
			if want.Has(packet.FlagL4ChecksumOK) && want&packet.FlagOffload == 0 {
				right++
			}
		}
	}
	if right < 1000 {
		t.Errorf("only %d packets were filled", right)
	}
}

func TestCutTunnelsAgreeWithTheReference(t *testing.T) {
	g := kernref.NewGenerator(12)
	c := NewCPU(Config{Ops: tunnelOps})
	for range 40 {
		p := g.Tunnel()
		p = p[:min(len(p), 400)]
		var packets [][][]byte
		for n := range len(p) {
			packets = append(packets, kernref.One(p[:n]), [][]byte{p[:n], p[n:]})
		}
		for at := range min(len(p), 150) {
			for _, delta := range []byte{1, 0xff, 0x10, 0x80} {
				q := slices.Clone(p)
				q[at] += delta
				packets = append(packets, kernref.One(q))
			}
		}
		agree(t, kernref.BatchOf(packets...), c, kernref.Lists{})
	}
}
