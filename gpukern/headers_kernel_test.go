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
