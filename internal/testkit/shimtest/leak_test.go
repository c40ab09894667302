package shimtest

import (
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/millrace/millrace/shim"
)

// connections is how many TestConnectionsLeaveNothing opens, in all. MILLRACE_SHIM_CONNECTIONS has another number.
func connections(t *testing.T) int {
	t.Helper()
	v := os.Getenv("MILLRACE_SHIM_CONNECTIONS")
	if v == "" {
		return 5000
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// use is what a node and its peer hold.
type use struct {
	descriptors, goroutines, frames int
	heap                            int64 // bytes
	conns                           int   // of both stacks, TIME-WAIT included
	memory                          int64 // of send and receive buffers
	shim                            shim.UserStats
}

func (b *bed) use() (u use) {
	b.t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		b.t.Fatal(err)
	}
	u.descriptors, u.goroutines, u.frames = len(fds), runtime.NumGoroutine(), b.Used()
	for _, s := range b.stacks() {
		t, _ := s.Stats()
		u.conns += t.Conns + t.HalfOpen + t.TimeWait
		u.memory += t.Memory
	}
	for _, v := range b.Stats().Users {
		u.shim.Sockets, u.shim.Channels, u.shim.Rings, u.shim.Lookups = u.shim.Sockets+v.Sockets, u.shim.Channels+v.Channels, u.shim.Rings+v.Rings, u.shim.Lookups+v.Lookups
	}
	runtime.GC()
	runtime.GC() // what has a finalizer
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.heap = int64(m.HeapAlloc)
	return u
}

// backTo reports whether no more is held than before, but for what a runtime takes and gives back as it likes.
func (u use) backTo(before use) bool {
	return u.descriptors <= before.descriptors && u.goroutines <= before.goroutines+4 && u.frames <= before.frames+8 && u.conns <= before.conns &&
		u.memory <= before.memory && u.shim == before.shim && u.heap <= before.heap+2<<20
}

// timeWait is for how long a connection that was closed first here stays in TIME-WAIT.
const timeWait = 65 * time.Second

// TestConnectionsLeaveNothing opens and closes connections by two programs at once, on both tiers. Descriptors, frames,
// buffers, the counts of users and the heap are back at the start then.
func TestConnectionsLeaveNothing(t *testing.T) {
	count := connections(t)
	onTiers(t, func(t *testing.T, env []string) {
		b := newBed(t, 1, nil).with(t, env)
		for port := range 16 {
			if err := serveTCP(b.B, strconv.Itoa(1000+port), func(c net.Conn) { _, _ = io.Copy(c, struct{ io.Reader }{c}) }); err != nil {
				t.Fatal(err)
			}
		}
		many := func(n int) {
			first, second := b.start("many", strconv.Itoa(n/2), "50", "1000"), b.start("many", strconv.Itoa(n/2), "1", "1000")
			first.ends()
			second.ends()
		}
		before := b.use()
		many(count / 10) // maps and pools have their size
		b.settles(use{
			descriptors: before.descriptors + 10, goroutines: before.goroutines, frames: before.frames, heap: 1 << 40, memory: before.memory, conns: count,
		})
		before = b.use()
		before.conns = 0
		begin := time.Now()
		many(count)
		t.Logf("%d connections in %v", count, time.Since(begin))
		b.settles(before)
		t.Logf("before %+v\nafter  %+v", before, b.use())
	})
}

// settles waits until no more is held than in want. In the long form connections leave TIME-WAIT, too.
func (b *bed) settles(want use) {
	b.t.Helper()
	end := time.Now().Add(limit)
	if os.Getenv("MILLRACE_SHIM_CONNECTIONS") != "" {
		end = end.Add(timeWait)
	} else {
		want.conns = 1 << 20
	}
	for !b.use().backTo(want) {
		if time.Now().After(end) {
			b.t.Fatalf("before %+v\nafter  %+v", want, b.use())
		}
		time.Sleep(100 * time.Millisecond)
	}
}
