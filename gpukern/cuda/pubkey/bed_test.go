package pubkey

import (
	"errors"
	"os"
	"testing"

	"github.com/millrace/millrace/gpukern/cuda"
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
	t.Run("fake", func(t *testing.T) { f(t, openFake(t, Config{Batch: max(1, n/3)}), n) })
	t.Run("gpu", func(t *testing.T) { f(t, newBed(t, cuda.Options{}, Config{}), many) })
}

// onDevice fails if the CPU has done a part of what the device was to do.
func (b *bed) onDevice(t *testing.T, n int) {
	t.Helper()
	if s := b.Stats(); s != (Stats{Device: uint64(n)}) {
		t.Errorf("%+v of %d operations; %v", s, n, b.Lost())
	}
}

// spoil changes a byte of a key on the device, as a fault of its memory does.
func (b *bed) spoil(t *testing.T, s *secret, at int) {
	t.Helper()
	var v [1]byte
	err := b.dev.Download(v[:], s.buf.Ptr+cuda.Ptr(at))
	stream, err2 := b.dev.NewStream(cuda.Patient)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(stream.Fill(s.buf.Ptr+cuda.Ptr(at), v[0]^1, 1), stream.Wait(), stream.Close()); err != nil {
		t.Fatal(err)
	}
}
