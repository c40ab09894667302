package cuda

import (
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/ring"
)

// echoParams is struct gk_probe_echo.
type echoParams struct {
	ask, answer Ptr
	life        uint64
}

// echoStop ends the kernel gk_probe_echo.
const echoStop = ^uint32(0)

// echo is a kernel that runs beside the host and answers what it is asked.
type echo struct {
	block  *Block
	stream *Stream
}

// startEcho starts the kernel for at most life.
func startEcho(t testing.TB, d *Device, life time.Duration) *echo {
	t.Helper()
	block, err := d.AllocHost(4096)
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.NewStream(Urgent)
	if err != nil {
		t.Fatal(err)
	}
	k, err := d.Kernel("gk_probe_echo")
	if err != nil {
		t.Fatal(err)
	}
	p := &echoParams{block.Ptr, block.Ptr + 128, uint64(life)}
	if err := Launch(s, k, Grid{Blocks: 1, Threads: 32}, p); err != nil {
		t.Fatal(err)
	}
	return &echo{block, s}
}

func (e *echo) word(at int) *uint32 { return wordAt(e.block.Mem, at) }

func (e *echo) stop(t testing.TB) {
	t.Helper()
	storeRelease(e.word(0), echoStop)
	if err := e.stream.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestKernelRunsBesideTheHost(t *testing.T) {
	d, _ := openFake(t)
	e := startEcho(t, d, 10*time.Second)
	for v := uint32(1); v <= 100; v++ {
		storeRelease(e.word(0), v)
		for until := time.Now().Add(5 * time.Second); loadAcquire(e.word(128)) != v; {
			if time.Now().After(until) {
				t.Fatalf("no answer to %d", v)
			}
		}
	}
	if ok, err := e.stream.Done(); ok || err != nil {
		t.Errorf("the kernel has ended: %v, %v", ok, err)
	}
	e.stop(t)
}

func TestKernelEndsByItself(t *testing.T) {
	d, _ := openFake(t)
	e := startEcho(t, d, 20*time.Millisecond)
	if err := e.stream.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestLostDeviceIsToldAndClosed(t *testing.T) {
	for _, code := range []Code{codeLaunchFailed, codeIllegalAddress} {
		d, drv := openFake(t)
		if err := d.Lost(); err != nil {
			t.Fatalf("lost before: %v", err)
		}
		a, err := ring.NewArena(ring.ArenaConfig{Frames: 4})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Register(a.Mem); err != nil {
			t.Fatal(err)
		}
		buf, err := d.Alloc(100)
		if err != nil {
			t.Fatal(err)
		}
		e := startEcho(t, d, time.Hour)
		drv.Lose(int(code))
		err = e.stream.Wait()
		if !errors.Is(err, ErrLost) || !isCode(err, code) {
			t.Fatalf("wait: %v", err)
		}
		if !isCode(d.Lost(), code) {
			t.Errorf("lost: %v", d.Lost())
		}
		if _, err := d.Alloc(100); !errors.Is(err, ErrLost) {
			t.Errorf("allocate: %v", err)
		}
		// What is closed now is given back with the context; its memory stays mapped until then.
		if err := buf.Close(); err != nil {
			t.Errorf("close a buffer: %v", err)
		}
		if err := e.block.Close(); err != nil {
			t.Errorf("close a block: %v", err)
		}
		e.block.Mem[0] = 1
		if err := d.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if n := len(d.lib.pinned.spans); n != 0 {
			t.Errorf("%d spans are registered still", n)
		}
		open(t, drv) // the next context works
	}
}

func TestOutOfMemoryIsNotTheEnd(t *testing.T) {
	d, drv := openFake(t)
	if _, err := d.Alloc(2 << 30); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("2 GiB: %v", err)
	}
	drv.Fail("cuMemAlloc_v2", 1, int(codeOutOfMemory))
	if _, err := d.Alloc(1); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("1 byte: %v", err)
	}
	if d.Lost() != nil {
		t.Errorf("lost: %v", d.Lost())
	}
	b, err := d.Alloc(1)
	if err != nil {
		t.Fatal(err)
	}
	if free, err := d.Free(); err != nil || free != 1<<30-1 {
		t.Errorf("%d bytes free, %v", free, err)
	}
	if b.Ptr%256 != 0 {
		t.Errorf("a buffer at %#x", b.Ptr)
	}
}
