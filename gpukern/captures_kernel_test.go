package gpukern_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	. "github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/internal/testkit/testpcaps"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// laid returns a batch of packets that lie one behind the other in frames of 1 << shift bytes: packet i on byte
// i + by of a sixteen. One that does not fit a frame goes on in other descriptors, and where frames are small
// some do so for no reason.
func laid(packets [][]byte, shift uint8, by int) *packet.Batch {
	b := &packet.Batch{Arena: &packet.Arena{Shift: shift}}
	at, frame := 0, 1<<shift
	for i, p := range packets {
		for k := 0; k == 0 || len(p) > 0; k++ {
			at = (at+15)&^15 + (i+k+by)&15
			n := min(len(p), frame-15)
			if frame < 1<<16 && k == 0 && i%3 == 0 {
				n = min(n, 60+i%256)
			}
			if at/frame != (at+max(n, 1)-1)/frame {
				at = (at+frame-1)&^(frame-1) + (i+k+by)&15
			}
			d := packet.Desc{Off: uint32(at), Len: uint16(n)}
			if n < len(p) {
				d.Flags = packet.FlagMore
			}
			b.Arena.Mem = append(b.Arena.Mem, make([]byte, at+n-len(b.Arena.Mem))...)
			copy(b.Arena.Mem[at:], p[:n])
			b.D, p, at = append(b.D, d), p[n:], at+n
		}
	}
	b.Arena.Mem = append(b.Arena.Mem, make([]byte, -len(b.Arena.Mem)&(frame-1))...)
	return b
}

// copied returns a batch with memory of its own.
func copied(b *packet.Batch) *packet.Batch {
	return &packet.Batch{Arena: &packet.Arena{Mem: slices.Clone(b.Arena.Mem), Shift: b.Arena.Shift}, D: slices.Clone(b.D)}
}

// TestCapturesGoThroughTheHeadersKernel compares the kernel, the CPU form and the reference, descriptors and
// the bytes that are written, over packets at any place in small frames and in large ones.
func TestCapturesGoThroughTheHeadersKernel(t *testing.T) {
	g := kernref.NewGenerator(5)
	l := kernref.Lists{Rules: append(g.Rules(20), acl.Rule{DstPorts: acl.PortRange(443, 443)}, acl.Rule{Proto: wire.ProtoTCP}), Routes: g.Routes(20)}
	tables := compile(t, l)
	k := newHeadersKernel(t, "gk_headers", tables, &l.HashKey)
	chains := 0
	for at, path := range testpcaps.Files(t) {
		all := frames(t, path)
		for _, shift := range []uint8{11, 16} {
			b := laid(all[:min(len(all), 96)], shift, at)
			for _, ops := range []Ops{OpsHeader, l2Ops} {
				b := copied(b)
				onCPU := copied(b)
				k.same(t, b, ops, l)
				NewCPU(Config{Ops: ops, Tables: tables}).Submit(onCPU)
				if !slices.Equal(b.D, onCPU.D) || !bytes.Equal(b.Arena.Mem, onCPU.Arena.Mem) {
					t.Fatalf("%s, %v: kernel -, CPU form +:\n%s", path, ops, cmp.Diff(b.D, onCPU.D))
				}
				for i := range b.D {
					if b.D[i].Flags.Has(packet.FlagMore | packet.FlagL4ChecksumOK) {
						chains++
					}
				}
			}
		}
	}
	if chains < 250 {
		t.Errorf("only %d packets of several pieces in the captures", chains)
	}
}
