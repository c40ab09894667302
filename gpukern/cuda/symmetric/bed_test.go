package symmetric

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/millrace/millrace/gpukern/aead"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/internal/testkit/guardpages"
	"github.com/millrace/millrace/internal/testkit/hostkern"
)

// bed is a device with an engine.
type bed struct {
	*Engine
	dev *cuda.Device
	drv *hostkern.Driver // nil on a GPU
}

func newBed(t testing.TB, o cuda.Options, cfg Config) *bed {
	t.Helper()
	d, err := cuda.Open(o)
	if err != nil {
		if o.Library == "" && os.Getenv("MILLRACE_MUST_GPU") == "" && (errors.Is(err, cuda.ErrNoDriver) || errors.Is(err, cuda.ErrNoDevice)) {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	cfg.Device = d
	if cfg.Least == 0 {
		cfg.Least = 1 // everything on the device
	}
	e, err := New(cfg)
	if err != nil {
		t.Fatal(errors.Join(err, d.Close()))
	}
	t.Cleanup(func() {
		if err := errors.Join(e.Close(), d.Close()); err != nil {
			t.Error(err)
		}
	})
	return &bed{Engine: e, dev: d}
}

// openFake has the kernels run on the CPU.
func openFake(t testing.TB, cfg Config) *bed {
	t.Helper()
	drv := hostkern.OpenDriver(t)
	b := newBed(t, cuda.Options{Library: drv.Path, Management: drv.Path}, cfg)
	b.drv = drv
	return b
}

// devices runs a test on the driver without a GPU with n operations, and on the GPU where there is one with many.
func devices(t *testing.T, n, many int, f func(t *testing.T, b *bed, n int)) {
	t.Run("fake", func(t *testing.T) { f(t, openFake(t, Config{Batch: max(1, n/3), Bytes: 256 << 10}), n) })
	t.Run("gpu", func(t *testing.T) { f(t, newBed(t, cuda.Options{}, Config{}), many) })
}

// onDevice fails if the CPU has done a part of what the device was to do.
func (b *bed) onDevice(t *testing.T, n int) {
	t.Helper()
	if s := b.Stats(); s != (Stats{Device: uint64(n)}) {
		t.Errorf("%+v of %d operations; %v", s, n, b.Lost())
	}
}

// gpuAlgorithms have kernels.
var gpuAlgorithms = []aead.Algorithm{aead.ChaCha20Poly1305, aead.AES128GCM, aead.AES256GCM}

// texts makes batches of random operations, whose memory has guard bytes between all parts.
type texts struct {
	*rand.Rand
	b      aead.Batch
	before []byte // the memory with the plaintexts
	sealed []byte // and with what it becomes
}

func newTexts(t testing.TB, seed byte, algorithms ...aead.Algorithm) *texts {
	t.Helper()
	x := &texts{Rand: rand.New(rand.NewChaCha8([32]byte{seed}))}
	for _, a := range algorithms {
		k, err := aead.NewKey(a, x.bytes(a.KeySize()))
		if err != nil {
			t.Fatal(err)
		}
		x.b.Keys = append(x.b.Keys, k)
	}
	return x
}

func (x *texts) bytes(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(x.Uint32())
	}
	return p
}

// add adds an operation under the key of that index.
func (x *texts) add(key, size, aadSize int) {
	op := aead.Op{Key: uint32(key), Len: uint32(size), AADLen: uint16(aadSize), Packet: uint32(len(x.b.Ops))}
	copy(op.Nonce[:], x.bytes(16))
	guard := func() { x.before = append(x.before, bytes.Repeat([]byte{0xa5}, 1+x.IntN(33))...) }
	guard()
	op.AAD = uint32(len(x.before))
	x.before = append(x.before, x.bytes(aadSize)...)
	guard()
	op.Text = uint32(len(x.before))
	x.before = append(x.before, x.bytes(size+aead.TagSize)...)
	guard()
	x.b.Ops = append(x.b.Ops, op)
}

// random adds n operations of up to most bytes.
func (x *texts) random(n, most int) {
	for range n {
		x.add(x.IntN(len(x.b.Keys)), x.IntN(most+1), x.IntN(40))
	}
}

// seal has the CPU seal the texts: the reference, whose own tests compare it with the standard library.
func (x *texts) seal(t testing.TB) {
	t.Helper()
	x.sealed = slices.Clone(x.before)
	ref := aead.Batch{Mem: x.sealed, Keys: x.b.Keys, Ops: slices.Clone(x.b.Ops)}
	c, err := aead.NewForm(aead.FormStandard)
	if err != nil {
		t.Fatal(err)
	}
	if n := c.Seal(&ref); n != len(ref.Ops) {
		t.Fatalf("%d of %d sealed", n, len(ref.Ops))
	}
}

// put copies memory to that of the batch.
func (x *texts) put(mem []byte) {
	if len(x.b.Mem) != len(mem) {
		x.b.Mem = make([]byte, len(mem))
	}
	copy(x.b.Mem, mem)
	for i := range x.b.Ops {
		x.b.Ops[i].Result = aead.Pending
	}
}

// plain is what opening leaves: the texts, with the tags as they were sealed.
func (x *texts) plain() []byte {
	mem := slices.Clone(x.before)
	for i := range x.b.Ops {
		op := &x.b.Ops[i]
		copy(mem[op.Text+op.Len:][:aead.TagSize], x.sealed[op.Text+op.Len:])
	}
	return mem
}

// expect compares the memory of the batch.
func (x *texts) expect(t *testing.T, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	wrong := 0
	for i := range x.b.Ops {
		op := &x.b.Ops[i]
		end := op.Text + op.Len + aead.TagSize
		if g, w := got[op.Text:end], want[op.Text:end]; !bytes.Equal(g, w) {
			if wrong++; wrong < 4 {
				at := slices.IndexFunc(g, func(byte) bool { return true })
				for at = range g {
					if g[at] != w[at] {
						break
					}
				}
				t.Errorf("operation %d, %v, %d bytes at %d, %d of associated data, %v: differs from byte %d on", i, x.b.Keys[op.Key].Algorithm(), op.Len, op.Text%16, op.AADLen, op.Result, at)
			}
		}
	}
	if wrong == 0 {
		t.Error("bytes outside of the texts have changed")
	}
	t.Fatalf("%d of %d texts are wrong", wrong, len(x.b.Ops))
}

// mapped returns memory that a device can map.
func mapped(t testing.TB, n int) []byte {
	t.Helper()
	return guardpages.New(t, align(n, os.Getpagesize()))
}
