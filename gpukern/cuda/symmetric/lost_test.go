package symmetric

import (
	"bytes"
	"slices"
	"testing"

	"github.com/millrace/millrace/gpukern/aead"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/gpukern/digest"
)

// refusal is the result of a call that fails, and does not end the context.
const refusal = 802

// flightStream is the stream of the first flight, which is made.
func (b *bed) flightStream(t *testing.T) *cuda.Stream {
	t.Helper()
	if !b.ready() {
		t.Fatal(b.Lost())
	}
	return b.flights[0].Stream
}

// copied seals texts that are copied while the n-th call of a name fails: they are sealed all the same. It returns whether there was
// such a call.
func copied(t *testing.T, name string, n, code int) bool {
	t.Helper()
	b := openFake(t, Config{Batch: 2, Bytes: 8 << 10})
	x := newTexts(t, 6, gpuAlgorithms...)
	x.random(5, 300)
	x.seal(t)
	x.put(x.before)
	b.drv.Fail(name, n, code)
	if done := b.Seal(&x.b); done != 5 {
		t.Fatalf("call %d of %q fails: %d sealed", n, name, done)
	}
	b.drv.Fail("", 0, 0)
	x.expect(t, x.b.Mem, x.sealed)
	s := b.Stats()
	if s.Device+s.CPU != 5 || s.Lost > s.CPU || (s.CPU > 0) != (b.Lost() != nil) || s.Torn+s.Faults > 0 {
		t.Fatalf("call %d of %q fails: %+v, %v", n, name, s, b.Lost())
	}
	return b.Lost() != nil
}

// TestEveryCallMayFail has one call of the driver after the other fail, and calls of each kind lose the device.
func TestEveryCallMayFail(t *testing.T) {
	n := 1
	for copied(t, "", n, refusal) {
		n++
	}
	if n < 20 {
		t.Errorf("%d calls", n)
	}
	for name := range calls {
		for n := 1; n < 5; n++ {
			copied(t, name, n, 719)
		}
	}
}

// calls are those of a launch, and whether the kernel may have run when they fail.
var calls = map[string]bool{
	"cuMemcpyHtoDAsync_v2": false, "cuMemsetD8Async": false, "cuLaunchKernel": false,
	"cuMemcpyDtoHAsync_v2": true, "cuEventRecord": true, "cuEventQuery": true,
}

// inArea seals n texts in an area and has lose lose the device meanwhile: each text is sealed, or untouched and then sealed by the CPU,
// or torn and zero. It returns how many are torn.
func inArea(t *testing.T, n, size int, lose func(b *bed)) (torn uint64) {
	t.Helper()
	b := openFake(t, Config{Batch: 4, Bytes: 4 << 10})
	x := newTexts(t, 7, gpuAlgorithms...)
	x.random(n, size)
	x.seal(t)
	mem := mapped(t, len(x.before))
	a, err := b.Register(mem)
	if err != nil {
		t.Fatal(err)
	}
	x.b.Mem = mem[:len(x.before)]
	x.put(x.before)
	b.flightStream(t)
	lose(b)
	done, err := b.SealIn(a, &x.b)
	if err != nil {
		t.Fatal(err)
	}
	b.drv.Fail("", 0, 0)
	want, good := slices.Clone(x.sealed), 0
	for i := range x.b.Ops {
		switch op := &x.b.Ops[i]; op.Result {
		case aead.Done:
			good++
		case aead.Torn:
			clear(want[op.Text:][:op.Len+aead.TagSize])
		default:
			t.Errorf("operation %d is %v", i, op.Result)
		}
	}
	s := b.Stats()
	if good != done || uint64(n-good) != s.Torn || s.Device+s.CPU+s.Torn != uint64(n) {
		t.Errorf("%d are done, %d as returned, of %d; %+v", good, done, n, s)
	}
	x.expect(t, x.b.Mem, want)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	return s.Torn
}

// TestAnyCallMayLoseTheDeviceInPlace has calls of each kind lose it, or fail.
func TestAnyCallMayLoseTheDeviceInPlace(t *testing.T) {
	for _, code := range []int{refusal, 719} {
		for name, tears := range calls {
			torn := uint64(0)
			for n := 1; n < 5; n++ {
				torn += inArea(t, 12, 2500, func(b *bed) { b.drv.Fail(name, n, code) })
			}
			if tears && torn == 0 {
				t.Errorf("%s, %d: no text was torn", name, code)
			}
		}
	}
}

// TestAResultThatIsMissing: operations that the kernel has no result for are done again, and counted.
func TestAResultThatIsMissing(t *testing.T) {
	b := openFake(t, Config{})
	x := newTexts(t, 10, aead.ChaCha20Poly1305)
	x.add(0, 50, 8)
	x.add(0, 60, 8)
	x.seal(t)
	x.put(x.before)
	b.flightStream(t)
	f := b.flights[0]
	b.check(&x.b, seal, uint64(len(x.b.Mem)))
	if b.resolve(&x.b); b.Lost() != nil {
		t.Fatal(b.Lost())
	}
	f.load(b.aeadWork(&x.b, seal, where{}, &kernelChaCha, []int32{0, 1}), 0, 2, 1<<20)
	f.Begin()
	clear(f.Host.Mem[f.results:][:2])
	b.take(f)
	x.expect(t, x.b.Mem, x.sealed)
	if s := b.Stats(); s != (Stats{CPU: 2, Faults: 2}) {
		t.Errorf("%+v", s)
	}
}

// TestWithoutADevice does everything on the CPU.
func TestWithoutADevice(t *testing.T) {
	e, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{Engine: e}
	x := newTexts(t, 11, append(slices.Clone(gpuAlgorithms), aead.AES256CBCSHA256)...)
	for i := range 100 {
		x.add(i%3, x.IntN(300), 8)
	}
	x.add(3, 160, 8)
	x.roundTrip(t, func() int { return b.Seal(&x.b) }, func() int { return b.Open(&x.b) })
	a, err := e.Register(x.b.Mem)
	if err != nil {
		t.Fatal(err)
	}
	x.put(x.before)
	if done, err := e.SealIn(a, &x.b); done != 101 || err != nil {
		t.Errorf("%d, %v", done, err)
	}
	x.expect(t, x.b.Mem, x.sealed)
	batch, want := sums(digest.SHA256, 1, []int{1, 2, 3})
	if done := e.Sum(&batch); done != 3 || !bytes.Equal(batch.Mem, want) {
		t.Errorf("%d sums", done)
	}
	if _, err := e.SealResident(nil, &x.b); err == nil {
		t.Error("memory of no device")
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// TestSmallCallsAreTheCPUs, and long texts, by the bytes of a call.
func TestSmallCallsAreTheCPUs(t *testing.T) {
	b := openFake(t, Config{Least: 1000, Bytes: 4 << 10})
	for _, c := range []struct {
		size   int
		device bool
	}{{999, false}, {1000, true}, {4<<10 - 32, true}, {4<<10 - 31, false}} {
		before := b.Stats()
		x := newTexts(t, 12, aead.AES128GCM)
		x.add(0, c.size, 16)
		x.roundTrip(t, func() int { return b.Seal(&x.b) }, func() int { return b.Open(&x.b) })
		want := Stats{Device: before.Device, CPU: before.CPU + 2}
		if c.device {
			want = Stats{Device: before.Device + 2, CPU: before.CPU}
		}
		if s := b.Stats(); s != want || b.Lost() != nil {
			t.Errorf("%d bytes: %+v, want %+v; %v", c.size, s, want, b.Lost())
		}
	}
}
