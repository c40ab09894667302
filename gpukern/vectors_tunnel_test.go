package gpukern_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	. "github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/packet"
)

const tunnelHead = `# What every engine finds. Written by: go test ./gpukern -run Golden -update
# rule SRC DST SPORTS DPORTS PROTO; route PREFIX NEXTHOP; ops NAME[+NAME...]; packet HEX[+HEX...]
# find L3 L4 PAYLOAD PROTO FLAGS HASH RULE NEXTHOP; filled HEX[+HEX...]
`

// tunnelFiles are the files of vectors beside golden.txt, and the operations that they are for.
var tunnelFiles = map[string]Ops{
	"tunnels.txt": tunnelOps,
	"fill.txt":    OpParse | OpHash | OpTunnel | OpFill,
}

// piecesOf returns copies of the bytes of each packet of b, which has them as v has.
func piecesOf(v *kernref.Vectors, b *packet.Batch) (all [][][]byte) {
	at := 0
	for _, pieces := range v.Packets {
		var now [][]byte
		for range pieces {
			now = append(now, bytes.Clone(b.Bytes(at)))
			at++
		}
		all = append(all, now)
	}
	return all
}

// changedIn returns the packets of all that are not those of v, and nil for the others.
func changedIn(v *kernref.Vectors, all [][][]byte) [][][]byte {
	for i := range all {
		if kernref.Hex(all[i]) == kernref.Hex(v.Packets[i]) {
			all[i] = nil
		}
	}
	return all
}

// writeTunnels makes vectors of tunnels.
func writeTunnels(t *testing.T, name string, ops Ops) {
	t.Helper()
	g := kernref.NewGenerator(2027)
	v := &kernref.Vectors{Ops: ops, Lists: kernref.Lists{Rules: g.Rules(12), Routes: g.Routes(12)}}
	for i := range 160 {
		p := g.Tunnel()
		if i%3 == 0 {
			p = g.DamageTunnel(p)
		}
		if i%8 == 0 {
			p = g.Packet()
		}
		v.Packets = append(v.Packets, g.Split(p[:min(len(p), 400)]))
	}
	b := kernref.BatchOf(v.Packets...)
	if ops&OpFill != 0 {
		v.Packets = piecesOf(v, g.Unsum(b))
		b = kernref.BatchOf(v.Packets...)
	}
	kernref.Reference(b, ops, v.Lists)
	v.Finds, v.Matches, v.Filled = finds(b), matches(b), changedIn(v, piecesOf(v, b))
	if err := os.WriteFile(filepath.Join("testdata", name), append([]byte(tunnelHead), v.Bytes()...), 0o644); err != nil {
		t.Fatal(err)
	}
}

// readTunnels reads a file of vectors.
func readTunnels(t *testing.T, name string) *kernref.Vectors {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	v, err := kernref.ReadVectors(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := append([]byte(tunnelHead), v.Bytes()...); !bytes.Equal(got, text) {
		t.Error("what is read, written out, differs from the file")
	}
	return v
}

// gives fails where run does not find in the packets of v what v says, or leaves them otherwise.
func gives(v *kernref.Vectors, t *testing.T, run func(*packet.Batch)) {
	t.Helper()
	b := kernref.BatchOf(v.Packets...)
	run(b)
	filled := changedIn(v, piecesOf(v, b))
	for i, got := range finds(b) {
		if got != v.Finds[i] {
			t.Errorf("packet %d: %+v, want %+v", i, got, v.Finds[i])
		}
		if got, want := kernref.Hex(filled[i]), kernref.Hex(v.Filled[i]); got != want {
			t.Errorf("packet %d: %s, want %s", i, got, want)
		}
	}
}

func TestGoldenVectorsOfTunnels(t *testing.T) {
	for name, ops := range tunnelFiles {
		if *update {
			writeTunnels(t, name, ops)
		}
		v := readTunnels(t, name)
		if v.Ops != ops {
			t.Errorf("%s is for %v, not %v", name, v.Ops, ops)
		}
		t.Run(name+"/reference", func(t *testing.T) {
			gives(v, t, func(b *packet.Batch) { kernref.Reference(b, v.Ops, v.Lists) })
		})
		t.Run(name+"/cpu", func(t *testing.T) {
			c := NewCPU(Config{Ops: v.Ops, Tables: compile(t, v.Lists)})
			gives(v, t, func(b *packet.Batch) {
				if err := c.Submit(b); err != nil {
					t.Fatal(err)
				}
			})
		})
		t.Run(name+"/kernel", func(t *testing.T) {
			k := newHeadersKernel(t, "gk_headers", compile(t, v.Lists), new([40]byte))
			gives(v, t, func(b *packet.Batch) { k.run(t, b, v.Ops) })
		})
	}
}

func TestTheVectorsOfTunnelsSayAll(t *testing.T) {
	for name := range tunnelFiles {
		v := readTunnels(t, name)
		var union packet.Flags
		filled := 0
		for i, d := range v.Finds {
			union |= d.Flags
			filled += min(len(v.Filled[i]), 1)
		}
		if every := packet.FlagMore - 1 - packet.FlagL4NoChecksum + packet.FlagTunnel; union|packet.FlagL4NoChecksum != every|packet.FlagL4NoChecksum {
			t.Errorf("%s never has flags %b", name, every&^union)
		}
		if want := v.Ops&OpFill != 0; want != (filled > 40) {
			t.Errorf("%s: %d packets are filled", name, filled)
		}
	}
}
