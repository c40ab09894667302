package gpukern

import (
	"bytes"
	"os"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/internal/hostkern"
	"github.com/millrace/millrace/packet"
)

// gkPass is struct gk_pass of gpukern/cuda/pass.h.
type gkPass struct {
	mem               unsafe.Pointer
	size              uint64
	desc              unsafe.Pointer
	tables, state     unsafe.Pointer
	n, ops            uint32
	shift, epoch      uint32
	generation, spare uint32
}

// threads are those of a block: fewer than may be, so that there are several blocks.
const threads = 64

// headersKernel runs a kernel of headers.cu over batches, as an engine does.
type headersKernel struct {
	l      *hostkern.Library
	name   string
	image  Image
	tables []byte
}

func newHeadersKernel(t testing.TB, name string, tables Tables, key *[40]byte) *headersKernel {
	t.Helper()
	k := &headersKernel{l: hostkern.Open(t), name: name, image: tables.Image(key)}
	k.tables = k.image.place()
	return k
}

// run does the pass over b with ops.
func (k *headersKernel) run(t testing.TB, b *packet.Batch, ops Ops) {
	t.Helper()
	if len(b.D) == 0 {
		return
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	p := &gkPass{
		mem: unsafe.Pointer(&b.Arena.Mem[0]), size: uint64(len(b.Arena.Mem)), desc: unsafe.Pointer(&b.D[0]),
		tables: unsafe.Pointer(&k.tables[0]), n: uint32(len(b.D)), ops: uint32(ops), shift: uint32(b.Arena.Shift),
	}
	for _, at := range []unsafe.Pointer{p.mem, p.desc, p.tables} {
		if uintptr(at)%16 != 0 {
			t.Fatalf("%#x is on no boundary of 16", at)
		}
		pin.Pin(at)
	}
	k.l.Run(t, k.name, unsafe.Pointer(p), (len(b.D)+threads-1)/threads, threads, 0)
	runtime.KeepAlive(k)
}

// same fails where the kernel and the reference differ over b, in descriptors or in the arena.
func (k *headersKernel) same(t testing.TB, b *packet.Batch, ops Ops, l Lists) {
	t.Helper()
	ref := &packet.Batch{Arena: &packet.Arena{Mem: slices.Clone(b.Arena.Mem), Shift: b.Arena.Shift}, D: slices.Clone(b.D)}
	k.run(t, b, ops)
	Reference(ref, ops, l)
	for i := range b.D {
		if b.D[i] != ref.D[i] {
			t.Fatalf("%v: packet %d of %d: kernel -, reference +:\n%s\n% x", ops, i, len(b.D), cmp.Diff(b.D[i], ref.D[i]), b.Bytes(i))
		}
		if !bytes.Equal(b.Bytes(i), ref.Bytes(i)) {
			t.Fatalf("%v: packet %d of %d: kernel, reference:\n% x\n% x", ops, i, len(b.D), b.Bytes(i), ref.Bytes(i))
		}
	}
	if !bytes.Equal(b.Arena.Mem, ref.Arena.Mem) {
		t.Fatalf("%v: the kernel wrote elsewhere than into packets", ops)
	}
}

// coreOps are what gk_headers_core does.
const coreOps = OpParse | OpChecksum | OpHash

func TestTheHeadersKernelGivesTheGoldenVectors(t *testing.T) {
	text, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	v, err := ReadVectors(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	k := newHeadersKernel(t, "gk_headers", v.Lists.compile(t), new([40]byte))
	b := batchOf(v.Packets...)
	k.run(t, b, OpsHeader)
	for i, got := range finds(b) {
		if want := v.Finds[i]; got != want {
			t.Errorf("packet %d: kernel %+v, want %+v", i, got, want)
		}
	}
}

func TestTheHeadersKernelAgreesWithTheReference(t *testing.T) {
	for seed := range uint64(12) {
		g := newGenerator(seed + 100)
		l := Lists{Rules: g.rules(g.IntN(200)), Routes: g.routes(g.IntN(500))}
		if seed%3 == 0 {
			copy(l.HashKey[:], g.bytes(40))
		}
		all := newHeadersKernel(t, "gk_headers", l.compile(t), &l.HashKey)
		core := newHeadersKernel(t, "gk_headers_core", l.compile(t), &l.HashKey)
		for _, n := range []int{1, 31, 32, 33, 64, 65, 200} {
			b := g.batch(n)
			again := &packet.Batch{Arena: b.Arena, D: slices.Clone(b.D)}
			all.same(t, b, OpsHeader, l)
			core.same(t, again, coreOps, l)
		}
	}
}

// allOps are the sets of operations that tunnels go through.
var allOps = []Ops{tunnelOps, OpsHeader, OpTunnel | OpFill | OpHash, OpFill, OpTunnel}

func TestTheHeadersKernelFindsInTunnelsWhatTheReferenceFinds(t *testing.T) {
	for seed := range uint64(10) {
		g := newGenerator(seed + 2000)
		l := Lists{Rules: g.rules(g.IntN(50)), Routes: g.routes(g.IntN(50))}
		k := newHeadersKernel(t, "gk_headers", l.compile(t), &l.HashKey)
		for _, ops := range allOps {
			k.same(t, g.tunnels(150), ops, l)
			k.same(t, g.batch(60), ops, l)
		}
	}
}

// TestCutPacketsInTheHeadersKernel cuts packets at every byte, and lays them on every place of a sixteen.
func TestCutPacketsInTheHeadersKernel(t *testing.T) {
	g := newGenerator(13)
	k := newHeadersKernel(t, "gk_headers", Tables{}, new([40]byte))
	for i := range 24 {
		p := g.packet()
		if i%2 == 0 {
			p = g.tunnel()
		}
		p = p[:min(len(p), 400)]
		var packets [][][]byte
		for n := range len(p) + 1 {
			packets = append(packets, one(p[:n]), [][]byte{p[:n], p[n:]})
		}
		b := batchOf(packets...)
		for i := range b.D {
			d := &b.D[i]
			by := uint32(g.IntN(64))
			copy(b.Arena.Mem[d.Off+by:], slices.Clone(b.Bytes(i)))
			d.Off += by
		}
		for _, ops := range allOps[:3] {
			again := &packet.Batch{Arena: &packet.Arena{Mem: slices.Clone(b.Arena.Mem), Shift: b.Arena.Shift}, D: slices.Clone(b.D)}
			k.same(t, again, ops, Lists{})
		}
	}
}

// TestTheHeadersKernelReadsNothingOutsideOfFrames puts packets at the end of memory, and writes descriptors
// that point beyond.
func TestTheHeadersKernelReadsNothingOutsideOfFrames(t *testing.T) {
	const size = 1 << 12
	mem := guarded(t, size)
	k := newHeadersKernel(t, "gk_headers", Tables{}, new([40]byte))
	g := newGenerator(14)
	b := packet.NewBatch(&packet.Arena{Mem: mem, Shift: 12}, 4)
	for i := range 60 {
		p := g.packet()
		if i%2 == 0 {
			p = g.tunnel()
		}
		for n := 0; n <= len(p); n += 1 + g.IntN(8) {
			b.Reset()
			copy(mem[size-n:], p[:n])
			b.Append(packet.Desc{Off: uint32(size - n), Len: uint16(n)})
			k.same(t, b, tunnelOps, Lists{})
		}
	}
	for _, d := range []packet.Desc{
		{Off: size, Len: 1},
		{Off: size - 60, Len: 61},
		{Off: 1 << 31, Len: 60},
		{Off: ^uint32(0), Len: 0xffff},
	} {
		b.Reset()
		d.Flags, d.L4, d.Hash, d.Proto, d.Stamp = packet.FlagIPv4, 9, 9, 9, 9
		b.Append(d)
		b.Append(packet.Desc{Off: 0, Len: 60, Flags: packet.FlagMore})
		b.Append(d)
		d.Flags |= packet.FlagOffload
		b.Append(d)
		k.run(t, b, tunnelOps|OpFill)
		d.L4, d.Hash, d.Proto = 0, 0, 0
		for i, flags := range []packet.Flags{packet.FlagMalformed, packet.FlagMalformed | packet.FlagMore, 0, packet.FlagMalformed | packet.FlagOffload} {
			want := d
			if i == 1 {
				want = packet.Desc{Len: 60}
			}
			want.Flags = flags
			if b.D[i] != want {
				t.Errorf("%d: %+v, want %+v", i, b.D[i], want)
			}
		}
	}
}

// TestTheHeadersKernelKeepsToTheFrame gives packets that end in their frame and descriptors that go on into
// the next, which is in the arena.
func TestTheHeadersKernelKeepsToTheFrame(t *testing.T) {
	k := newHeadersKernel(t, "gk_headers", Tables{}, new([40]byte))
	b := packet.NewBatch(&packet.Arena{Mem: make([]byte, 1<<13), Shift: 11}, 2)
	b.Append(packet.Desc{Off: 1<<11 - 60, Len: 60})
	b.Append(packet.Desc{Off: 1<<11 - 60, Len: 61})
	k.run(t, b, OpsHeader)
	if b.D[0].Flags != 0 || b.D[1].Flags != packet.FlagMalformed {
		t.Errorf("flags %#x, %#x", b.D[0].Flags, b.D[1].Flags)
	}
}
