package gpukern_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	. "github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/flow"
	"github.com/millrace/millrace/gpukern/image"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/internal/testkit/guardpages"
	"github.com/millrace/millrace/internal/testkit/hostkern"
	"github.com/millrace/millrace/packet"
)

// threads are those of a block: fewer than may be, so that there are several blocks.
const threads = 64

// headersKernel runs a kernel of headers.cu over batches, as an engine does.
type headersKernel struct {
	l      *hostkern.Library
	name   string
	image  image.Image
	tables []byte

	flows         *flow.Table // nil is none
	state         image.Image
	structOfState []byte
	generation    uint32

	list struct{ texts, lines, pieces unsafe.Pointer } // of texts, for OpLiterals
}

func newHeadersKernel(t testing.TB, name string, tables Tables, key *[40]byte) *headersKernel {
	t.Helper()
	k := &headersKernel{l: hostkern.Open(t), name: name, image: tables.Image(key)}
	k.tables = hostkern.Place(k.image)
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
	p := &hostkern.Pass{
		Mem: unsafe.Pointer(&b.Arena.Mem[0]), Size: uint64(len(b.Arena.Mem)), Desc: unsafe.Pointer(&b.D[0]),
		Tables: unsafe.Pointer(&k.tables[0]), Generation: k.generation, N: uint32(len(b.D)), Ops: uint32(ops), Shift: uint32(b.Arena.Shift),
		Texts: k.list.texts, Lines: k.list.lines, Pieces: k.list.pieces,
	}
	for _, at := range []unsafe.Pointer{p.Mem, p.Desc, p.Tables} {
		if uintptr(at)%16 != 0 {
			t.Fatalf("%#x is on no boundary of 16", at)
		}
		pin.Pin(at)
	}
	if k.structOfState != nil {
		p.State = unsafe.Pointer(&k.structOfState[0])
		pin.Pin(p.State)
		p.Epoch = k.flows.Epoch()
	}
	k.l.Run(t, k.name, unsafe.Pointer(p), (len(b.D)+threads-1)/threads, threads, 0)
	runtime.KeepAlive(k)
}

// same fails where the kernel and the reference differ over b, in descriptors or in the arena.
func (k *headersKernel) same(t testing.TB, b *packet.Batch, ops Ops, l kernref.Lists) {
	t.Helper()
	ref := &packet.Batch{Arena: &packet.Arena{Mem: slices.Clone(b.Arena.Mem), Shift: b.Arena.Shift}, D: slices.Clone(b.D)}
	k.run(t, b, ops)
	kernref.Reference(ref, ops, l)
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
	v, err := kernref.ReadVectors(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	k := newHeadersKernel(t, "gk_headers", compile(t, v.Lists), new([40]byte))
	b := kernref.BatchOf(v.Packets...)
	k.run(t, b, OpsHeader)
	for i, got := range finds(b) {
		if want := v.Finds[i]; got != want {
			t.Errorf("packet %d: kernel %+v, want %+v", i, got, want)
		}
	}
}

func TestTheHeadersKernelAgreesWithTheReference(t *testing.T) {
	for seed := range uint64(12) {
		g := kernref.NewGenerator(seed + 100)
		l := kernref.Lists{Rules: g.Rules(g.IntN(200)), Routes: g.Routes(g.IntN(500))}
		if seed%3 == 0 {
			copy(l.HashKey[:], g.Bytes(40))
		}
		all := newHeadersKernel(t, "gk_headers", compile(t, l), &l.HashKey)
		core := newHeadersKernel(t, "gk_headers_core", compile(t, l), &l.HashKey)
		for _, n := range []int{1, 31, 32, 33, 64, 65, 200} {
			b := g.Batch(n)
			again := &packet.Batch{Arena: b.Arena, D: slices.Clone(b.D)}
			all.same(t, b, OpsHeader, l)
			core.same(t, again, coreOps, l)
		}
	}
}

// TestCutPacketsInTheHeadersKernel cuts packets at every byte, and lays them on every place of a sixteen.
func TestCutPacketsInTheHeadersKernel(t *testing.T) {
	g := kernref.NewGenerator(13)
	k := newHeadersKernel(t, "gk_headers", Tables{}, new([40]byte))
	for i := range 24 {
		p := g.Packet()
		if i%2 == 0 {
			p = g.L2Encap()
		}
		p = p[:min(len(p), 400)]
		var packets [][][]byte
		for n := range len(p) + 1 {
			packets = append(packets, kernref.One(p[:n]), [][]byte{p[:n], p[n:]})
		}
		b := kernref.BatchOf(packets...)
		for i := range b.D {
			d := &b.D[i]
			by := uint32(g.IntN(64))
			copy(b.Arena.Mem[d.Off+by:], slices.Clone(b.Bytes(i)))
			d.Off += by
		}
		for _, ops := range l2Sets {
			again := &packet.Batch{Arena: &packet.Arena{Mem: slices.Clone(b.Arena.Mem), Shift: b.Arena.Shift}, D: slices.Clone(b.D)}
			k.same(t, again, ops, kernref.Lists{})
		}
	}
}

// TestTheHeadersKernelReadsNothingOutsideOfFrames puts packets at the end of memory, and writes descriptors
// that point beyond.
func TestTheHeadersKernelReadsNothingOutsideOfFrames(t *testing.T) {
	const size = 1 << 12
	mem := guardpages.New(t, size)
	k := newHeadersKernel(t, "gk_headers", Tables{}, new([40]byte))
	g := kernref.NewGenerator(14)
	b := packet.NewBatch(&packet.Arena{Mem: mem, Shift: 12}, 4)
	for i := range 60 {
		p := g.Packet()
		if i%2 == 0 {
			p = g.L2Encap()
		}
		for n := 0; n <= len(p); n += 1 + g.IntN(8) {
			b.Reset()
			copy(mem[size-n:], p[:n])
			b.Append(packet.Desc{Off: uint32(size - n), Len: uint16(n)})
			k.same(t, b, l2Ops, kernref.Lists{})
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
		k.run(t, b, l2Ops)
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

// TestTheHeadersKernelSeesOffsetsThatWrap has a packet that ends where 32 bits do: its end is no small number.
func TestTheHeadersKernelSeesOffsetsThatWrap(t *testing.T) {
	k := newHeadersKernel(t, "gk_headers", Tables{}, new([40]byte))
	b := packet.NewBatch(&packet.Arena{Mem: make([]byte, 1<<16), Shift: 16}, 2)
	b.Append(packet.Desc{Off: 1<<32 - 0xffff, Len: 0xffff})
	b.Append(packet.Desc{Off: 1, Len: 0xffff})
	k.run(t, b, OpsHeader)
	if b.D[0].Flags != packet.FlagMalformed || b.D[1].Flags != 0 {
		t.Errorf("flags %#x, %#x", b.D[0].Flags, b.D[1].Flags)
	}
}

// TestTheHeadersKernelKeepsFlows does all operations at once, over packets whose flows come back.
func TestTheHeadersKernelKeepsFlows(t *testing.T) {
	g := kernref.NewGenerator(15)
	ops := l2Ops | OpFlow
	l := kernref.Lists{Rules: g.Rules(60), Routes: g.Routes(60), Flows: &kernref.Flows{Idle: 8}}
	k := newHeadersKernel(t, "gk_headers", compile(t, l), &l.HashKey)
	k.flows = newFlows(t, flow.Config{Flows: 4096, Seed: 1})
	k.state = State(k.flows)
	k.structOfState, k.generation = hostkern.Place(k.state), 1
	c := NewCPU(Config{Ops: ops, Tables: compile(t, l), Flows: newFlows(t, flow.Config{Flows: 4096, Seed: 1})})
	slots, names := map[uint32]uint32{}, map[uint32]uint32{}
	for round := range 6 {
		g := kernref.Generator{Rand: rand.New(rand.NewPCG(uint64(round/2), 9))} // each twice
		b := g.L2Encaps(150)
		ref := &packet.Batch{Arena: b.Arena, D: slices.Clone(b.D)}
		cpu := &packet.Batch{Arena: b.Arena, D: slices.Clone(b.D)}
		k.run(t, b, ops)
		kernref.Reference(ref, ops, l)
		if err := c.Submit(cpu); err != nil {
			t.Fatal(err)
		}
		c.Poll(make([]*packet.Batch, 1))
		for i := range b.D {
			got, want := b.D[i], ref.D[i]
			first := i == 0 || b.D[i-1].Flags&packet.FlagMore == 0
			if first && ((got.Flow == 0) != (want.Flow == 0) || got.Flow&1 != want.Flow&1) {
				t.Fatalf("packet %d: flow %d, want one like %d", i, got.Flow, want.Flow)
			}
			if first && got.Flow != 0 {
				if slot := slots[want.Flow>>1]; slot != 0 && slot != got.Flow>>1 {
					t.Fatalf("packet %d: slot %d, and before %d", i, got.Flow>>1, slot)
				}
				if name := names[got.Flow>>1]; name != 0 && name != want.Flow>>1 {
					t.Fatalf("packet %d: two flows have slot %d", i, got.Flow>>1)
				}
				slots[want.Flow>>1], names[got.Flow>>1] = got.Flow>>1, want.Flow>>1
				got.Flow = want.Flow
			}
			if got != want {
				t.Fatalf("round %d, packet %d: kernel -, reference +:\n%s\n% x", round, i, cmp.Diff(got, want), b.Bytes(i))
			}
		}
	}
	if len(slots) < 200 {
		t.Errorf("only %d flows", len(slots))
	}
}

// TestTablesLieAsTheKernelsReadThem compares Tables.Image with struct gk_tables.
func TestTablesLieAsTheKernelsReadThem(t *testing.T) {
	dir := t.TempDir()
	tables := new(Tables)
	v4, _ := tables.ACL.Images()
	r4, _ := tables.Routes.Images()
	hash := HashImage(&DefaultHashKey)
	at, text := 0, "#include \"tables.h\"\n"
	for _, f := range []struct {
		name string
		m    image.Image
	}{{"hash", hash}, {"acl4", v4}, {"acl6", v4}, {"lpm4", r4}, {"lpm6", r4}} {
		text += fmt.Sprintf("static_assert(offsetof(struct gk_tables, %s) == %d, \"\");\n", f.name, at)
		text += fmt.Sprintf("static_assert(sizeof(((struct gk_tables *)0)->%s) == %d, \"\");\n", f.name, len(f.m.Struct))
		at += len(f.m.Struct)
	}
	file := filepath.Join(dir, "layout.cc")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	hostkern.Open(t) // skips where there is no compiler
	out, err := exec.Command("clang++-19", "-DGK_HOST", "-fsyntax-only", "-Wno-unused-function", "-I", hostkern.Sources(), "-x", "c++", file).CombinedOutput()
	if err != nil {
		t.Errorf("tables.h differs from Tables.Image:\n%s", out)
	}
}

// FuzzHeadersKernel compares the kernel with the reference over packets of any bytes.
func FuzzHeadersKernel(f *testing.F) {
	g := kernref.NewGenerator(16)
	for range 20 {
		f.Add(fuzzInput(g.Split(g.L2Encap()), g.Split(g.Damage(g.Packet())), kernref.One(g.Damage(g.L2Encap()))), byte(g.Uint32()))
	}
	l := fuzzTables()
	k := newHeadersKernel(f, "gk_headers", compile(f, l), &l.HashKey)
	f.Fuzz(func(t *testing.T, data []byte, by byte) {
		b := fuzzBatch(data)
		for i := range b.D { // anywhere in a sixteen
			d, to := &b.D[i], uint32(by&15)
			d.Len = min(d.Len, 1<<11-15)
			copy(b.Arena.Mem[d.Off+to:], bytes.Clone(b.Bytes(i)))
			d.Off += to
		}
		again := &packet.Batch{Arena: b.Arena, D: slices.Clone(b.D)}
		k.same(t, b, l2Ops, l)
		k.same(t, again, OpsHeader, l)
	})
}
