package cuda

import (
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/hostkern"
)

// openFake opens a device of a driver without a GPU.
func openFake(t testing.TB) (*Device, *hostkern.Driver) {
	t.Helper()
	drv := hostkern.OpenDriver(t)
	return open(t, drv), drv
}

func open(t testing.TB, drv *hostkern.Driver) *Device {
	t.Helper()
	d, err := Open(Options{Library: drv.Path, Management: drv.Path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := loadProbe(d); err != nil {
		t.Fatal(err)
	}
	return d
}

// loadProbe loads the kernels of testdata/probe.cu, which only tests run.
func loadProbe(d *Device) error {
	const file = "testdata/ptx/probe.ptx"
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	f, err := formOf(file, text)
	if err != nil {
		return err
	}
	return d.do(func() error { return d.loadForm(f) })
}

// devices runs a test on the driver without a GPU, and on the GPU where there is one. MILLRACE_MUST_GPU
// makes it a failure that there is none.
func devices(t *testing.T, f func(t *testing.T, d *Device)) {
	t.Run("fake", func(t *testing.T) {
		d, _ := openFake(t)
		f(t, d)
	})
	t.Run("gpu", func(t *testing.T) { f(t, openGPU(t)) })
}

// openGPU opens the machine's GPU.
func openGPU(t testing.TB) *Device {
	t.Helper()
	d, err := Open(Options{})
	if err != nil {
		if os.Getenv("MILLRACE_MUST_GPU") == "" && (errors.Is(err, ErrNoDriver) || errors.Is(err, ErrNoDevice)) {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := loadProbe(d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestGPUIsWhatTheKernelsNeed(t *testing.T) {
	d := openGPU(t)
	i := d.Info()
	t.Logf("%+v", i)
	if i.Capability < 80 || i.SMs < 1 || i.Memory < 1<<30 || i.Shared < 48<<10 || len(i.Modules) == 0 {
		t.Errorf("%+v", i)
	}
	d.kernels.Range(func(_, v any) bool {
		k := v.(*Kernel)
		t.Logf("%s of %s: %d threads, %d registers, %d bytes of local and %d of shared memory", k.Name, k.Form, k.Threads,
			k.Registers, k.Local, k.Shared)
		return true
	})
	if w, ok := d.Watts(); ok && (w < 1 || w > 2000) {
		t.Errorf("%v W", w)
	}
}

func TestOpenTellsWhatTheDeviceIs(t *testing.T) {
	d, _ := openFake(t)
	got := d.Info()
	if got.Name != "Fake GPU 0" || got.Bus != "0000:17:00.0" || got.Driver != "12.4" || got.Capability != 80 || got.SMs != 4 ||
		got.Memory != 1<<30 || got.L2 != 4<<20 || got.SharedSM != 228<<10 || got.Shared != 227<<10 {
		t.Errorf("%+v", got)
	}
}

func TestCloseEndsEverythingOnce(t *testing.T) {
	d, drv := openFake(t)
	b, err := d.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	h, err := d.AllocHost(100)
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.NewStream(Patient)
	if err != nil {
		t.Fatal(err)
	}
	var closers sync.WaitGroup
	for range 4 {
		closers.Go(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	closers.Wait()
	if f := drv.Faults(); f != "" {
		t.Error(f)
	}
	if n := drv.Calls("cuDevicePrimaryCtxRelease_v2"); n != 1 {
		t.Errorf("the context was given back %d times", n)
	}
	if err := errors.Join(b.Close(), h.Close(), s.Close(), d.Close()); err != nil {
		t.Errorf("closing what the device closed: %v", err)
	}
	if _, err := d.Alloc(100); err != ErrClosed {
		t.Errorf("allocate: %v", err)
	}
	if _, err := s.Done(); err != ErrClosed {
		t.Errorf("ask a stream: %v", err)
	}
}

func TestDevicesOfOneGPUShareItsContext(t *testing.T) {
	d, drv := openFake(t)
	e := open(t, drv)
	b, err := e.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := e.Alloc(100); err != nil {
		t.Error(err)
	}
}

func TestWatts(t *testing.T) {
	d, drv := openFake(t)
	if w, ok := d.Watts(); !ok || w != 100 {
		t.Errorf("%v W, %v", w, ok)
	}
	m := d.StartMeter()
	time.Sleep(250 * time.Millisecond)
	if w, ok := m.Watts(); !ok || w < 99 || w > 101 {
		t.Errorf("measured %v W, %v", w, ok)
	}
	none, err := Open(Options{Library: drv.Path, Management: "libnvidia-ml-that-is-not.so"})
	if err != nil {
		t.Fatal(err)
	}
	defer none.Close()
	if w, ok := none.Watts(); ok {
		t.Errorf("%v W without a library", w)
	}
	if w, ok := none.StartMeter().Watts(); ok {
		t.Errorf("%v W measured without a library", w)
	}
	if p := openPower(drv.Path, "0000:99:00.0"); p != nil {
		t.Error("found a GPU at another address")
	}
}
