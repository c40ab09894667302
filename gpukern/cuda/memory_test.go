package cuda

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/gpukern/image"
	"github.com/millrace/millrace/internal/testkit/hostkern"
	"github.com/millrace/millrace/ring"
)

// randomBytes returns n bytes on the Go heap.
func randomBytes(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestCopiesThereAndBack(t *testing.T) {
	devices(t, func(t *testing.T, d *Device) {
		const n = 100_000
		in, out, s := must(d.AllocHost(n))(t), must(d.AllocHost(n))(t), must(d.NewStream(Patient))(t)
		a, b := must(d.Alloc(n))(t), must(d.Alloc(n))(t)
		copy(in.Mem, randomBytes(n, 1))
		err := errors.Join(
			s.CopyIn(a.Ptr, in, 0, n),
			s.Fill(b.Ptr, 0x5a, n),
			s.CopyWithin(b.Ptr+100, a.Ptr+100, n-200),
			s.CopyOut(out, 0, b.Ptr, n),
			s.Wait(),
		)
		if err != nil {
			t.Fatal(err)
		}
		want := bytes.Repeat([]byte{0x5a}, n)
		copy(want[100:n-100], in.Mem[100:])
		if !bytes.Equal(out.Mem[:n], want) {
			t.Error("what came back differs")
		}
	})
}

// must fails the test on an error: must(f())(t).
func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestBlocksAreWholePagesOfZeros(t *testing.T) {
	d, _ := openFake(t)
	b := must(d.AllocHost(1))(t)
	if len(b.Mem) != 4096 || !bytes.Equal(b.Mem, make([]byte, 4096)) {
		t.Errorf("%d bytes", len(b.Mem))
	}
	if _, err := d.AllocHost(0); err == nil {
		t.Error("mapped nothing")
	}
}

// readParams is struct gk_probe_read.
type readParams struct {
	mem  Ptr
	size uint64
	sum  Ptr
}

// sumOf has the device add up the words of memory that it maps.
func sumOf(t *testing.T, d *Device, mem Ptr, n int) uint32 {
	t.Helper()
	s, sum := must(d.NewStream(Patient))(t), must(d.AllocHost(4))(t)
	k := must(d.Kernel("gk_probe_read"))(t)
	if err := Launch(s, k, Grid{Blocks: 3, Threads: 256}, &readParams{mem, uint64(n), sum.Ptr}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Wait(), s.Close()); err != nil {
		t.Fatal(err)
	}
	v := loadAcquire(wordAt(sum.Mem, 0))
	if err := sum.Close(); err != nil {
		t.Fatal(err)
	}
	return v
}

func wordSum(mem []byte) (sum uint32) {
	for i := 0; i < len(mem); i += 4 {
		sum += *wordAt(mem, i)
	}
	return sum
}

func TestArenaIsReadInPlace(t *testing.T) {
	devices(t, func(t *testing.T, d *Device) {
		for _, huge := range []ring.Huge{ring.HugeOff, ring.HugeAuto} {
			a := must(ring.NewArena(ring.ArenaConfig{Frames: 1500, Huge: huge}))(t)
			copy(a.Mem, randomBytes(len(a.Mem), 3))
			r := must(d.Register(a.Mem))(t)
			if got, want := sumOf(t, d, r.Ptr, len(a.Mem)), wordSum(a.Mem); got != want {
				t.Errorf("%s pages: sum %#x, want %#x", a.Pages(), got, want)
			}
			if got, want := sumOf(t, d, r.Ptr+2048, 4080), wordSum(a.Mem[2048:][:4080]); got != want {
				t.Errorf("%s pages, a part: sum %#x, want %#x", a.Pages(), got, want)
			}
			if err := errors.Join(r.Close(), a.Close()); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestRegisteredMemoryIsShared(t *testing.T) {
	devices(t, func(t *testing.T, d *Device) {
		mem := must(mapMemory(8 * 4096))(t)
		defer unmap(mem)
		whole := must(d.Register(mem[4096 : 7*4096]))(t)
		again := must(d.Register(mem[4096 : 7*4096]))(t)
		part := must(d.Register(mem[2*4096 : 3*4096]))(t)
		if again.Ptr != whole.Ptr || part.Ptr != whole.Ptr+4096 {
			t.Errorf("whole %#x, again %#x, part %#x", whole.Ptr, again.Ptr, part.Ptr)
		}
		for _, bad := range [][]byte{mem, mem[:2*4096], mem[6*4096:]} {
			if _, err := d.Register(bad); !errors.Is(err, ErrOverlap) {
				t.Errorf("registered %d bytes that overlap: %v", len(bad), err)
			}
		}
		if err := errors.Join(whole.Close(), whole.Close(), again.Close()); err != nil {
			t.Fatal(err)
		}
		copy(mem, randomBytes(len(mem), 4))
		if got, want := sumOf(t, d, part.Ptr, 4096), wordSum(part.Mem); got != want {
			t.Errorf("the part's sum is %#x, want %#x", got, want)
		}
		if err := part.Close(); err != nil {
			t.Fatal(err)
		}
		all := must(d.Register(mem))(t) // nothing is left of the spans that overlapped it
		if err := all.Close(); err != nil {
			t.Error(err)
		}
	})
}

// register registers memory for as long as the test runs: it is unregistered before what was there before
// is given back.
func register(t testing.TB, d *Device, mem []byte) *Region {
	t.Helper()
	r := must(d.Register(mem))(t)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func TestRegisterNothing(t *testing.T) {
	d, _ := openFake(t)
	if _, err := d.Register(nil); err == nil {
		t.Error("registered nothing")
	}
}

func TestMemoryThatSomebodyElseRegistered(t *testing.T) {
	d, drv := openFake(t)
	mem := must(mapMemory(4 * 4096))(t)
	defer unmap(mem)
	theirs := func(b []byte) {
		if err := d.do(func() error { return d.lib.hostRegister(b, registerPortable|registerDeviceMap) }); err != nil {
			t.Fatal(err)
		}
	}
	theirs(mem[:2*4096])
	theirs(mem[3*4096:])
	if _, err := d.Register(mem); !errors.Is(err, ErrOverlap) {
		t.Errorf("two parts of it: %v", err)
	}
	if _, err := d.Register(mem[4096 : 3*4096]); !errors.Is(err, ErrOverlap) {
		t.Errorf("half of it: %v", err)
	}
	r := must(d.Register(mem[:2*4096]))(t)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if n := drv.Calls("cuMemHostUnregister"); n != 0 {
		t.Errorf("unregistered what others registered, %d times", n)
	}
	for _, at := range []Ptr{r.Ptr, r.Ptr + 3*4096} {
		if err := d.do(func() error { return d.lib.hostUnregister(uintptr(at)) }); err != nil {
			t.Error(err)
		}
	}
}

func TestRegionsOutliveTheDeviceThatRegisteredThem(t *testing.T) {
	drv := hostkern.OpenDriver(t)
	first, second := open(t, drv), open(t, drv)
	mem := must(mapMemory(4096))(t)
	defer unmap(mem)
	must(first.Register(mem))(t)
	r := must(second.Register(mem))(t)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	copy(mem, randomBytes(4096, 5))
	if got, want := sumOf(t, second, r.Ptr, 4096), wordSum(mem); got != want {
		t.Errorf("sum %#x, want %#x", got, want)
	}
}

func TestUploadPatchesPointers(t *testing.T) {
	devices(t, func(t *testing.T, d *Device) {
		parts := [][]byte{randomBytes(1, 6), randomBytes(5*stageHalf/2+17, 7), nil, randomBytes(4096, 8)}
		m := image.Image{Struct: randomBytes(48, 9)}
		for i, p := range parts {
			m.Parts = append(m.Parts, image.Part{At: 8 + 8*i, Data: p})
		}
		before := bytes.Clone(m.Struct)
		table := must(d.Upload(m))(t)
		if !bytes.Equal(before, m.Struct) {
			t.Error("the image was changed")
		}
		got := make([]byte, len(m.Struct))
		if err := d.Download(got, table.Ptr); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got[:8], before[:8]) || !bytes.Equal(got[40:], before[40:]) {
			t.Error("the struct's other fields were changed")
		}
		for i, p := range parts {
			at := Ptr(*wordAt(got, 8+8*i)) | Ptr(*wordAt(got, 12+8*i))<<32
			if at%partAlign != 0 || at < table.Ptr || at+Ptr(len(p)) > table.Ptr+Ptr(table.Size) {
				t.Errorf("part %d lies at %#x", i, at)
				continue
			}
			back := make([]byte, len(p))
			if err := d.Download(back, at); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(back, p) {
				t.Errorf("part %d of %d bytes differs", i, len(p))
			}
		}
		if err := errors.Join(table.Close(), table.Close()); err != nil {
			t.Error(err)
		}
	})
}

// TestUploadWaitsForItsHalves holds the copies back while an upload has more than the stage.
func TestUploadWaitsForItsHalves(t *testing.T) {
	devices(t, func(t *testing.T, d *Device) {
		e, ev := startEcho(t, d, 10*time.Second), must(d.NewEvent())(t)
		if err := errors.Join(ev.Record(e.stream), d.stage.stream.After(ev)); err != nil {
			t.Fatal(err)
		}
		data := randomBytes(4*stageHalf, 10)
		buf := must(d.Alloc(len(data)))(t)
		uploaded := make(chan error)
		go func() { uploaded <- d.stage.upload(d, buf.Ptr, data) }()
		time.Sleep(50 * time.Millisecond)
		e.stop(t)
		if err := <-uploaded; err != nil {
			t.Fatal(err)
		}
		back := make([]byte, len(data))
		if err := d.Download(back, buf.Ptr); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(back, data) {
			t.Error("what was uploaded differs")
		}
	})
}

// TestFakeDriverIsStrict makes sure that what the tests above rely on is noticed.
func TestFakeDriverIsStrict(t *testing.T) {
	d, drv := openFake(t)
	drv.Set("stall", 100)
	b := must(d.Alloc(100))(t)
	heap := make([]byte, 100)
	s := must(d.NewStream(Patient))(t)
	if err := d.do(func() error { return s.copyIn(b.Ptr, heap) }); err == nil {
		t.Error("copied from the heap")
	}
	if f := drv.Faults(); !bytes.Contains([]byte(f), []byte("not registered")) || !bytes.Contains([]byte(f), []byte("1 buffers")) {
		t.Errorf("faults: %q", f)
	}
	if err := s.Fill(b.Ptr, 0, 1000); err == nil {
		t.Error("filled memory behind a buffer")
	}
	e := startEcho(t, d, 10e9)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if f := drv.Faults(); !bytes.Contains([]byte(f), []byte("cuMemFree waits for a kernel")) {
		t.Errorf("faults: %q", f)
	}
	e.stop(t)
}

func TestUnmapIsOfWholeMappings(t *testing.T) {
	mem := must(mapMemory(5000))(t)
	if len(mem) != 8192 {
		t.Errorf("%d bytes", len(mem))
	}
	if err := unmap(mem); err != nil {
		t.Error(err)
	}
	if err := unmap(mem); err != unix.EINVAL {
		t.Errorf("unmapped twice: %v", err)
	}
}

// TestAContextThatIsNotReleasedIsReleasedByClose has the driver keep the context when the last user of registered
// memory ends: the device's Close tries again, and does not unregister the memory twice.
func TestAContextThatIsNotReleasedIsReleasedByClose(t *testing.T) {
	drv := hostkern.OpenDriver(t)
	d, err := Open(Options{Library: drv.Path})
	if err != nil {
		t.Fatal(err)
	}
	mem := must(mapMemory(4096))(t)
	defer unmap(mem)
	r := must(d.Register(mem))(t)
	drv.Fail("cuDevicePrimaryCtxRelease_v2", 1, refusal)
	if err := r.Close(); !isCode(err, refusal) {
		t.Errorf("the region closed: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if left := drv.Faults(); left != "" {
		t.Error(left)
	}
}
