package cuda

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/gpukern/image"
	"github.com/millrace/millrace/internal/testkit/hostkern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
)

func TestOpenSaysWhatIsMissing(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.so")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		set     func(d *hostkern.Driver)
		library string
		ordinal int
		kind    error
		says    []string
	}{
		{"no library", nil, "libcuda-that-is-not.so.1", 0, ErrNoDriver, []string{"libcuda-that-is-not.so.1", "install the NVIDIA driver"}},
		{"no library at all", nil, empty, 0, ErrNoDriver, []string{"empty.so"}},
		{"a library without the functions", nil, "libc.so.6", 0, ErrTooOld, []string{"libc.so.6", "no function cuInit", "CUDA 11.4"}},
		{
			"no device", func(d *hostkern.Driver) { d.Set("devices", 0) }, "", 0, ErrNoDevice,
			[]string{"cuInit", "CUDA_ERROR_NO_DEVICE (100)", "no CUDA-capable device is detected", "CUDA_VISIBLE_DEVICES"},
		},
		{
			"a driver that does not start", func(d *hostkern.Driver) { d.Fail("cuInit", 1, 999) }, "", 0, ErrNoDriver,
			[]string{"cuInit", "(999)", "nvidia-smi says why"},
		},
		{"a toolkit's stub", func(d *hostkern.Driver) { d.Fail("cuInit", 1, 34) }, "", 0, ErrNoDriver, []string{"stub"}},
		{
			"an old driver", func(d *hostkern.Driver) { d.Set("version", 11020) }, "", 0, ErrTooOld,
			[]string{"the driver is for CUDA 11.2, at least 11.4 is needed", "install a newer NVIDIA driver"},
		},
		{
			"an old GPU", func(d *hostkern.Driver) { d.Set("capability", 75) }, "", 0, ErrTooOld,
			[]string{"Fake GPU 0", "compute capability is 7.5", "8.0 or later"},
		},
		{"another GPU", func(d *hostkern.Driver) { d.Set("devices", 2) }, "", 2, ErrNoDevice, []string{"open device 2", "the driver shows 2"}},
		{"no such GPU", nil, "", -1, ErrNoDevice, []string{"open device -1"}},
		{
			"a GPU that another program has", func(d *hostkern.Driver) { d.Fail("cuDevicePrimaryCtxRetain", 1, 46) }, "", 0, ErrNoDevice,
			[]string{"cuDevicePrimaryCtxRetain", "end it"},
		},
		{
			"PTX that the driver does not know", func(d *hostkern.Driver) { d.Fail("cuModuleLoadDataEx", 1, 222) }, "", 0, ErrTooOld,
			[]string{"load module", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "install a newer NVIDIA driver"},
		},
		{"no memory", func(d *hostkern.Driver) { d.Fail("cuMemHostRegister_v2", 1, 2) }, "", 0, ErrOutOfMemory, []string{"nvidia-smi"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			drv := hostkern.OpenDriver(t)
			if c.set != nil {
				c.set(drv)
			}
			if c.library == "" {
				c.library = drv.Path
			}
			d, err := Open(Options{Library: c.library, Ordinal: c.ordinal})
			if err == nil {
				d.Close()
				t.Fatal("opened")
			}
			if !errors.Is(err, c.kind) {
				t.Errorf("%v is not %q", err, c.kind)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
		})
	}
}

// TestEveryCallMayFail has one call after the other fail, in all that a program does with a device. Each
// failure must come out as an error, and nothing be left over.
func TestEveryCallMayFail(t *testing.T) {
	for _, c := range []struct {
		name string
		in   func(d *Device) error
	}{
		{"open", nil},
		{"use", use},
	} {
		t.Run(c.name, func(t *testing.T) {
			drv := started(t)
			for n := 1; ; n++ {
				failed, closing := failAt(drv, n, c.in)
				left := drv.Faults()
				switch {
				case failed == nil && closing == nil && n > 20:
					return
				case closing != nil && isCode(closing, refusal):
					// The driver did not take one thing back: it goes with the context, or is the context.
					if !strings.HasPrefix(left, "the context ended with 1 ") && !strings.Contains(left, "1 contexts") && left != "" {
						t.Fatalf("close with failure of call %d (%v): %s", n, closing, left)
					}
					if strings.Contains(left, "1 contexts") {
						l, _ := openLibrary(drv.Path)
						l.release(0)
					}
					drv = started(t)
				case !isCode(failed, refusal):
					t.Fatalf("call %d: %v, close: %v", n, failed, closing)
				case left != "":
					t.Fatalf("after failure of call %d (%v): %s", n, failed, left)
				}
			}
		})
	}
}

// refusal is the result of a call that fails.
const refusal = 802

// started returns a driver that is open already.
func started(t *testing.T) *hostkern.Driver {
	drv := hostkern.OpenDriver(t)
	if _, err := openLibrary(drv.Path); err != nil {
		t.Fatal(err)
	}
	return drv
}

// failAt opens a device and uses it, and has the n-th call fail: from the first on, or where in is not nil,
// from the first one of in on. It returns what failed, and what closing the device did.
func failAt(drv *hostkern.Driver, n int, in func(d *Device) error) (failed, closing error) {
	if in == nil {
		drv.Fail("", n, refusal)
	}
	d, err := Open(Options{Library: drv.Path})
	if err != nil {
		return err, nil
	}
	if in != nil {
		if err := loadProbe(d); err != nil {
			return err, d.Close()
		}
		drv.Fail("", n, refusal)
		failed = in(d)
	}
	return failed, d.Close()
}

// use does everything that a program does with a device, and closes what it makes.
func use(d *Device) (err error) {
	var open []func() error
	defer func() {
		for i := len(open) - 1; i >= 0; i-- {
			err = errors.Join(err, open[i]())
		}
	}()
	a, err := ring.NewArena(ring.ArenaConfig{Frames: 16})
	if err != nil {
		return err
	}
	open = append(open, a.Close)
	mem, err := d.Register(a.Mem)
	if err != nil {
		return err
	}
	open = append(open, mem.Close)
	block, err := d.AllocHost(16 * descSize)
	if err != nil {
		return err
	}
	open = append(open, block.Close)
	b := packet.NewBatch(a.View(), 16)
	for i := range 16 {
		b.Append(packet.Desc{Off: uint32(i) * 2048, Len: 64})
	}
	table, err := d.Upload(image.Image{Struct: make([]byte, 8), Parts: []image.Part{{Data: make([]byte, 100)}}})
	if err != nil {
		return err
	}
	open = append(open, table.Close)
	if err := useRunner(d, mem, block, b); err != nil {
		return err
	}
	if err := useResident(d, b); err != nil {
		return err
	}
	return useStream(d)
}

func useRunner(d *Device, mem *Region, desc *Block, b *packet.Batch) (err error) {
	s, err := d.NewStream(Patient)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r := &runner{d, mem, s, desc}
	return errors.Join(r.run(b, sumPass{1}.put), r.run(b, sumPass{1}.put))
}

func useResident(d *Device, b *packet.Batch) (err error) {
	r, err := d.NewResident(b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if _, err := r.Run(2, sumPass{1}.put); err != nil {
		return err
	}
	return r.Results(make([]packet.Desc, b.Len()))
}

func useStream(d *Device) (err error) {
	buf, err := d.Alloc(4096)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, buf.Close()) }()
	s, err := d.NewStream(Urgent)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := errors.Join(s.Fill(buf.Ptr, 1, buf.Size), s.Wait()); err != nil {
		return err
	}
	_, err = d.Free()
	return err
}

// sumPass is a pass of the kernel gk_probe_sum.
type sumPass struct{ add uint32 }

// sumParams is struct gk_probe_sum.
type sumParams struct {
	mem, desc Ptr
	n, add    uint32
}

func (p sumPass) put(r *Recorder, w Work) error {
	k, err := r.s.d.Kernel("gk_probe_sum")
	if err != nil {
		return err
	}
	return Record(r, k, Grid{Blocks: 2, Threads: 32}, &sumParams{w.Mem, w.Desc, uint32(w.N), p.add})
}
