package cuda

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/millrace/millrace/ring"
)

// The benchmarks of this file measure the machine, on its GPU: what the bus carries, and what a launch and
// a doorbell cost. What kernels make of that is measured in bench.

// probeBytes is the memory that is read in one go.
const probeBytes = 256 << 20

// readAgain has the device read memory b.N times.
func readAgain(b *testing.B, d *Device, mem Ptr) {
	s, sum := must(d.NewStream(Patient))(b), must(d.AllocHost(4))(b)
	from, to := must(d.NewEvent())(b), must(d.NewEvent())(b)
	k := must(d.Kernel("gk_probe_read"))(b)
	blocks := must(k.Resident(256, 0))(b)
	read := func() error {
		return Launch(s, k, Grid{Blocks: blocks, Threads: 256}, &readParams{mem, probeBytes, sum.Ptr})
	}
	if err := errors.Join(read(), s.Wait(), from.Record(s)); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := read(); err != nil {
			b.Fatal(err)
		}
	}
	if err := errors.Join(to.Record(s), to.Wait()); err != nil {
		b.Fatal(err)
	}
	report(b, must(to.Since(from))(b))
}

func report(b *testing.B, took time.Duration) {
	b.ReportMetric(float64(b.N)*probeBytes/took.Seconds()/1e9, "GB/s")
}

// hostMemory is memory that the device maps.
func hostMemory(b *testing.B, d *Device) *Region {
	a := must(ring.NewArena(ring.ArenaConfig{Frames: probeBytes / 2048}))(b)
	b.Cleanup(func() { a.Close() })
	b.Logf("pages: %s", a.Pages())
	return register(b, d, a.Mem[:probeBytes])
}

func BenchmarkReadHostInPlace(b *testing.B) {
	d := openGPU(b)
	readAgain(b, d, hostMemory(b, d).Ptr)
}

func BenchmarkReadDevice(b *testing.B) {
	d := openGPU(b)
	readAgain(b, d, must(d.Alloc(probeBytes))(b).Ptr)
}

func BenchmarkCopyIn(b *testing.B) {
	d := openGPU(b)
	mem, buf := hostMemory(b, d), must(d.Alloc(probeBytes))(b)
	s, from, to := must(d.NewStream(Patient))(b), must(d.NewEvent())(b), must(d.NewEvent())(b)
	if err := from.Record(s); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := d.do(func() error { return s.copyIn(buf.Ptr, mem.Mem) }); err != nil {
			b.Fatal(err)
		}
	}
	if err := errors.Join(to.Record(s), to.Wait()); err != nil {
		b.Fatal(err)
	}
	report(b, must(to.Since(from))(b))
}

func BenchmarkLaunchAndWait(b *testing.B) {
	d := openGPU(b)
	s, mem := must(d.NewStream(Urgent))(b), must(d.AllocHost(4096))(b)
	k := must(d.Kernel("gk_probe_read"))(b)
	for b.Loop() {
		if err := Launch(s, k, Grid{Blocks: 1, Threads: 32}, &readParams{mem.Ptr + 1024, 16, mem.Ptr}); err != nil {
			b.Fatal(err)
		}
		if err := s.Wait(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOwner is the price of a call through the goroutine that owns the context.
func BenchmarkOwner(b *testing.B) {
	d := openGPU(b)
	for b.Loop() {
		if err := d.do(func() error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDoorbell is the time from a word that the host writes to the answer of a kernel that waits.
func BenchmarkDoorbell(b *testing.B) {
	d := openGPU(b)
	runtime.LockOSThread()
	e := startEcho(b, d, time.Minute)
	for v := uint32(1); b.Loop(); v++ {
		storeRelease(e.word(0), v)
		for loadAcquire(e.word(128)) != v {
		}
	}
	e.stop(b)
}
