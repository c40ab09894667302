package gpukern_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	. "github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// compile returns l as an engine takes it.
func compile(t testing.TB, l kernref.Lists) Tables {
	t.Helper()
	tables, err := l.Tables()
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

// agree runs the engine and the reference over b and fails where they differ, or where the engine wrote into packets.
func agree(t testing.TB, b *packet.Batch, c *CPU, l kernref.Lists) {
	t.Helper()
	arena := *b.Arena
	arena.Mem = slices.Clone(arena.Mem)
	ref := &packet.Batch{Arena: &arena, D: slices.Clone(b.D)}
	if err := c.Submit(b); err != nil {
		t.Fatal(err)
	}
	c.Poll(make([]*packet.Batch, 1))
	kernref.Reference(ref, c.Info().Ops, l)
	if !bytes.Equal(arena.Mem, b.Arena.Mem) {
		for i := range b.D {
			if !bytes.Equal(b.Bytes(i), ref.Bytes(i)) {
				t.Errorf("packet %d: engine, reference:\n% x\n% x", i, b.Bytes(i), ref.Bytes(i))
			}
		}
		t.Fatal("the engine wrote into packets")
	}
	if d := cmp.Diff(b.Matches, ref.Matches, cmpopts.EquateEmpty()); d != "" {
		t.Fatalf("matches: engine -, reference +:\n%s", d)
	}
	for i := range b.D {
		if b.D[i] != ref.D[i] {
			t.Fatalf("packet %d of %d: engine -, reference +:\n%s\n% x", i, len(b.D), cmp.Diff(b.D[i], ref.D[i]), b.Bytes(i))
		}
	}
}

func TestTheEngineAgreesWithTheReference(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := kernref.NewGenerator(seed)
			l := kernref.Lists{Rules: g.Rules(g.IntN(200)), Routes: g.Routes(g.IntN(500))}
			if seed%3 == 0 {
				copy(l.HashKey[:], g.Bytes(40))
			}
			c := NewCPU(Config{Tables: compile(t, l), HashKey: l.HashKey})
			for _, n := range []int{0, 1, 100, tuple.ChunkSize, tuple.ChunkSize + 1, 1000} {
				agree(t, g.Batch(n), c, l)
			}
		})
	}
}

func TestOperationsThatAreOffLeaveZeros(t *testing.T) {
	g := kernref.NewGenerator(1)
	l := kernref.Lists{Rules: g.Rules(100), Routes: g.Routes(100)}
	for ops := OpParse; ops <= OpsHeader; ops++ {
		agree(t, g.Batch(300), NewCPU(Config{Ops: ops, Tables: compile(t, l)}), l)
	}
}

// TestCutAndChangedPackets cuts each packet at every byte and changes every header byte.
func TestCutAndChangedPacketsAgreeWithTheReference(t *testing.T) {
	g := kernref.NewGenerator(2)
	c := NewCPU(Config{})
	for range 60 {
		p := g.Packet()
		var packets [][][]byte
		for n := range len(p) {
			packets = append(packets, kernref.One(p[:n]), [][]byte{p[:n], p[n:]})
		}
		for at := range min(len(p), 90) {
			for _, delta := range []byte{1, 0xff, 0x10, 0x80} {
				q := slices.Clone(p)
				q[at] += delta
				packets = append(packets, kernref.One(q))
			}
		}
		agree(t, kernref.BatchOf(packets...), c, kernref.Lists{})
	}
}

func TestTheWalkAlongExtensionHeadersEnds(t *testing.T) {
	for n := range wire.MaxExtHeaders + 3 {
		p := make([]byte, 54, 300)
		binary.BigEndian.PutUint16(p[12:], wire.EtherTypeIPv6)
		ip := wire.IPv6(p[14:])
		ip.SetVersion()
		next := 20
		for range n {
			p[next] = wire.ProtoDestOpts
			next = len(p)
			p = append(p, make([]byte, 8)...)
		}
		p[next] = wire.ProtoUDP
		p = append(p, 0, 1, 0, 2, 0, 8, 0, 0)
		wire.IPv6(p[14:]).SetPayloadLen(uint16(len(p) - 54))
		b := kernref.BatchOf(kernref.One(p))
		agree(t, b, NewCPU(Config{}), kernref.Lists{})
		if got, want := b.D[0].Flags&packet.FlagMalformed != 0, n > wire.MaxExtHeaders; got != want {
			t.Errorf("%d extension headers: malformed %v", n, got)
		}
	}
}

// A checksum that the sending device makes counts as right, whatever lies in its field, and the mark that
// the driver set stays; of every other finding nothing changes.
func TestAChecksumLeftToTheDeviceCountsAsRight(t *testing.T) {
	for seed := range uint64(20) {
		g := kernref.NewGenerator(seed)
		b := g.Batch(300)
		first := true
		for i := range b.D {
			if first && i%2 == 0 {
				b.D[i].Flags |= packet.FlagOffload
			}
			first = b.D[i].Flags&packet.FlagMore == 0
		}
		marked := slices.Clone(b.D)
		agree(t, b, NewCPU(Config{}), kernref.Lists{})
		right := 0
		for i := range b.D {
			f := b.D[i].Flags
			if (f^marked[i].Flags)&packet.FlagOffload != 0 {
				t.Fatalf("the mark of packet %d changed: %#x", i, f)
			}
			plain := f&(packet.FlagOffload|packet.FlagFragment|packet.FlagTruncated) == packet.FlagOffload
			if plain && b.D[i].Proto == wire.ProtoTCP && b.D[i].Payload != 0 {
				right++
				if f&packet.FlagL4ChecksumOK == 0 {
					t.Fatalf("packet %d: %#x", i, f)
				}
			}
		}
		if right < 10 {
			t.Fatalf("only %d packets to look at", right)
		}
	}
}
