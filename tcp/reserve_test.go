package tcp

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
)

// fill puts a pattern that begins with byte number at into what Reserve has returned.
func fill(room [2][]byte, at int) (n int) {
	for _, p := range room {
		for i := range p {
			p[i] = byte((at + n) * 7 / 3)
			n++
		}
	}
	return n
}

// TestReserveAndWrite mixes both ways to send with acknowledgments, in all sizes: the peer reads the same stream.
func TestReserveAndWrite(t *testing.T) {
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		d := newDirectPair(t, Options{NoDelay: true})
		sent, got := 0, 0
		read := func() {
			d.turn()
			for _, p := range d.b.Peek() {
				for _, x := range p {
					if x != byte(got*7/3) {
						t.Fatalf("seed %d: byte %d is %d", seed, got, x)
					}
					got++
				}
			}
			d.b.Discard(d.now, d.b.Readable())
			d.turn()
		}
		for range 300 {
			size := 1 + rnd.IntN(1<<(1+rnd.IntN(17)))
			switch rnd.IntN(4) {
			case 0:
				b := make([]byte, size)
				fill([2][]byte{b}, sent)
				sent += d.a.Write(d.now, b)
			case 1:
				read()
			default:
				room := d.a.Reserve(size)
				n := fill(room, sent)
				if n > size {
					t.Fatalf("%d bytes of %d", n, size)
				}
				k := n
				if rnd.IntN(3) == 0 {
					k = rnd.IntN(n + 1)
				}
				if !d.a.Commit(d.now, k) && n > 0 {
					t.Fatal("not committed")
				}
				sent += k
			}
		}
		for got < sent {
			before := got
			if read(); got == before {
				d.now += clock.Time(1e6)
			}
		}
		d.now += clock.Time(time.Second) // the delayed ACK
		d.turn()
		if s := d.ma.Stats(); s.Memory != 0 {
			t.Errorf("seed %d: %d bytes are left", seed, s.Memory)
		}
	}
}

// TestReserveIsSafe: what ends or changes the connection between Reserve and Commit makes the room void, and frees it.
func TestReserveIsSafe(t *testing.T) {
	for name, c := range map[string]struct {
		between func(d *directPair)
		ok      bool
	}{
		"nothing":         {func(d *directPair) {}, true},
		"close":           {func(d *directPair) { d.a.Close(d.now) }, false},
		"end of writing":  {func(d *directPair) { d.a.CloseWrite(d.now) }, false},
		"abort":           {func(d *directPair) { d.a.Abort(d.now) }, false},
		"reset":           {func(d *directPair) { d.b.Abort(d.now); d.mb.Poll(d.now); d.db.to(d.now, d.ma) }, false},
		"a write":         {func(d *directPair) { d.a.Write(d.now, []byte("x")) }, false},
		"another Reserve": {func(d *directPair) { d.a.Reserve(9000) }, true},
		"Commit of none":  {func(d *directPair) { d.a.Commit(d.now, 0) }, false},
	} {
		d := newDirectPair(t, Options{})
		room := d.a.Reserve(9000)
		if len(room[0])+len(room[1]) != 9000 {
			t.Fatal(name, len(room[0]), len(room[1]))
		}
		c.between(d)
		if d.a.flags&flagOrphaned != 0 && d.ma.reserved.c != nil {
			t.Errorf("%s: reserved by a connection that was given back", name)
		}
		if d.a.flags&flagOrphaned == 0 || name == "close" {
			if ok := d.a.Commit(d.now, 9000); ok != c.ok {
				t.Errorf("%s: committed %v", name, ok)
			}
		}
		if d.ma.reserved.c != nil || d.ma.reserved.spare != nil {
			t.Errorf("%s: reserved still", name)
		}
		d.turn()
		if n := d.b.Readable(); c.ok && n != 9000 || !c.ok && n > 1 {
			t.Errorf("%s: %d bytes arrive", name, n)
		}
		if d.a.owner = nil; d.ma.Stats().Memory != 0 {
			t.Errorf("%s: %d bytes are left", name, d.ma.Stats().Memory)
		}
	}
	d := newDirectPair(t, Options{})
	d.a.Reserve(10)
	defer func() {
		if recover() == nil {
			t.Error("more is committed than was reserved")
		}
	}()
	d.a.Commit(d.now, 11)
}

// TestReserveFollowsTheSendBuffer: no more than its room, none without memory, and Writable follows both.
func TestReserveFollowsTheSendBuffer(t *testing.T) {
	d := newDirectPair(t, Options{SendBuffer: 20_000})
	var seen Events
	d.a.SetOwner(ownerFunc(func(ev Events) { seen |= ev }))
	d.ma.Poll(d.now)
	sent := 0
	for room := d.a.Reserve(1 << 20); len(room[0]) > 0; room = d.a.Reserve(1 << 20) {
		n := len(room[0]) + len(room[1])
		d.a.Commit(d.now, n)
		sent += n
	}
	if sent != 20_000 {
		t.Errorf("%d bytes fit", sent)
	}
	seen = 0
	d.turn()
	if seen&Writable == 0 {
		t.Error("Writable does not follow")
	}

	d = newDirectPair(t, Options{})
	d.a.SetOwner(ownerFunc(func(ev Events) { seen |= ev }))
	d.turn()
	d.ma.buffers.Budget = 0
	if room := d.a.Reserve(1000); len(room[0]) > 0 {
		t.Error("there is no memory")
	}
	if d.a.Commit(d.now, 0) {
		t.Error("nothing was reserved")
	}
	d.ma.buffers.Budget = defaultBudget
	seen = 0
	d.turn()
	if seen&Writable == 0 {
		t.Error("Writable does not follow memory")
	}
	if room := d.a.Reserve(1000); len(room[0]) != 1000 || !d.a.Commit(d.now, 10) {
		t.Error("the writer gets nothing")
	}
}

// TestLittleInALargeReservation is copied: memory that waits for an ACK follows what was written.
func TestLittleInALargeReservation(t *testing.T) {
	d := newDirectPair(t, Options{NoDelay: true})
	d.a.Reserve(64 << 10)
	d.a.Commit(d.now, 100)
	if m := d.ma.Stats().Memory; m > 4<<10 {
		t.Errorf("%d bytes for 100", m)
	}
}

// TestReserveDoesNotAllocate in the steady state.
func TestReserveDoesNotAllocate(t *testing.T) {
	d := newDirectPair(t, Options{NoDelay: true})
	for _, size := range []int{1, 1448, 16 << 10, 64 << 10} {
		step := func() {
			room := d.a.Reserve(size)
			d.a.Commit(d.now, len(room[0])+len(room[1]))
			d.turn()
			d.b.Discard(d.now, d.b.Readable())
			d.turn()
		}
		for range 200 {
			step()
		}
		if n := testing.AllocsPerRun(200, step); n != 0 {
			t.Errorf("%d bytes: %v allocations", size, n)
		}
	}
}

// BenchmarkFromAFile moves bytes from an AF_UNIX socket to the send buffer: in place, and by a buffer and Write. The peer discards
// them. cpu-ns/op is the CPU time of the thread, of which the writer's system call and the way to the peer are a part.
func BenchmarkFromAFile(b *testing.B) {
	for _, size := range []int{256, 1448, 4 << 10, 16 << 10, 64 << 10} {
		for _, way := range []string{"reserve", "write"} {
			b.Run(fmt.Sprint(size, way), func(b *testing.B) { benchmarkFromAFile(b, size, way == "reserve") })
		}
	}
}

func benchmarkFromAFile(b *testing.B, size int, reserve bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	_ = unix.SetsockoptInt(fds[1], unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<20)
	d := newDirectPair(b, Options{NoDelay: true})
	data, buf := make([]byte, size), make([]byte, 64<<10)
	begin := threadTime()
	for range b.N {
		_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(fds[1]), uintptr(unsafe.Pointer(&data[0])), uintptr(size))
		for left := size; left > 0; {
			if reserve {
				room := d.a.Reserve(64 << 10)
				v := [2]unix.Iovec{{Base: unsafe.SliceData(room[0])}, {Base: unsafe.SliceData(room[1])}}
				v[0].SetLen(len(room[0]))
				v[1].SetLen(len(room[1]))
				n, _, _ := unix.RawSyscall(unix.SYS_READV, uintptr(fds[0]), uintptr(unsafe.Pointer(&v)), 2)
				d.a.Commit(d.now, int(n))
				left -= int(n)
			} else {
				n, _, _ := unix.RawSyscall(unix.SYS_READ, uintptr(fds[0]), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
				for p := buf[:n]; len(p) > 0; p = p[d.a.Write(d.now, p):] {
				}
				left -= int(n)
			}
			d.turn()
			d.b.Discard(d.now, d.b.Readable())
			d.turn()
		}
	}
	b.SetBytes(int64(size))
	b.ReportMetric(float64(threadTime()-begin)/float64(b.N), "cpu-ns/op")
}

// threadTime is the CPU time of the calling thread, ns.
func threadTime() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return ts.Nano()
}
