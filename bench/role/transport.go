package role

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"runtime/pprof"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/netpeer"
)

// profiled writes a CPU profile of the role to file, for whoever wants to know why; "" is none.
func profiled(file string, w roleWork, err error) (roleWork, error) {
	if err != nil || file == "" {
		return w, err
	}
	f, err := os.Create(file)
	if err != nil {
		return w, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return w, err
	}
	stop := w.stop
	w.stop = func() error {
		pprof.StopCPUProfile()
		return errors.Join(f.Close(), stop())
	}
	return w, nil
}

// openTCPServe offers netpeer's services by the stack -as over -dev with address -to.
func openTCPServe(o roleOptions) (roleWork, error) {
	if err := computeBeside(o.compute); err != nil {
		return roleWork{}, err
	}
	n, err := openStack(o)
	if err != nil {
		return roleWork{}, err
	}
	w, err := stackRole(n, func(ctx context.Context, c *netpeer.Counters) (func(), error) {
		if o.tls == "engine" {
			return func() {}, netpeer.ServeEngines(n, c)
		}
		return func() {}, netpeer.Serve(ctx, n, c)
	})
	return profiled(o.profile, w, err)
}

// openTCPLoad puts load -op with -conns connections on the server at -to.
func openTCPLoad(o roleOptions) (roleWork, error) {
	to, err := netip.ParseAddr(o.stream.To)
	if err != nil {
		return roleWork{}, err
	}
	o.stream.To = "198.18.0.2/24"
	n, err := openStack(o)
	if err != nil {
		return roleWork{}, err
	}
	return stackRole(n, func(ctx context.Context, c *netpeer.Counters) (func(), error) {
		return netpeer.Drive(ctx, n, netpeer.Load{Op: o.op, Conns: o.conns, To: to}, c)
	})
}

func openStack(o roleOptions) (netpeer.Net, error) {
	addr, err := netip.ParsePrefix(o.stream.To)
	if err != nil {
		return nil, err
	}
	n, err := netpeer.Open(o.as, netpeer.Config{Device: o.dev, Addr: addr, CC: o.cc, Loops: o.loops})
	if err != nil || o.tls != "crypto/tls" {
		return n, err
	}
	return netpeer.TLS(n), nil
}

// stackRole runs work over a stack until the end.
func stackRole(n netpeer.Net, work func(context.Context, *netpeer.Counters) (func(), error)) (roleWork, error) {
	return netRole(n.Close, work)
}

// netRole runs work until the end, and closes then what it runs over.
func netRole(closeNet func() error, work func(context.Context, *netpeer.Counters) (func(), error)) (roleWork, error) {
	c := new(netpeer.Counters)
	ctx, cancel := context.WithCancel(context.Background())
	wait, err := work(ctx, c)
	if err != nil {
		cancel()
		return roleWork{}, errors.Join(err, closeNet())
	}
	return roleWork{
		version: buildVersions(),
		counts:  func() (map[string]uint64, error) { return withRuntime(c.Counts()), nil },
		stop:    func() error { cancel(); wait(); return nil },
		close:   closeNet,
	}, nil
}

// heap returns the bytes of the heap that are in use, after collecting garbage twice, so that pools
// are empty.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// withRuntime adds what Go's runtime tells: allocations and pauses of the whole run.
func withRuntime(m map[string]uint64) map[string]uint64 {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	m["allocs"] = s.Mallocs
	gc := debug.GCStats{PauseQuantiles: make([]time.Duration, 101)}
	debug.ReadGCStats(&gc)
	m[harness.GCPause] = uint64(gc.PauseQuantiles[99])
	stop := []metrics.Sample{{Name: "/sched/pauses/stopping/gc:seconds"}}
	metrics.Read(stop)
	m[harness.GCStop] = quantile(stop[0].Value.Float64Histogram(), 0.99)
	return m
}

// quantile returns the upper bound of the bucket with quantile q of a histogram of seconds, in nanoseconds.
func quantile(h *metrics.Float64Histogram, q float64) uint64 {
	total, below := uint64(0), uint64(0)
	for _, n := range h.Counts {
		total += n
	}
	for i, n := range h.Counts {
		if below += n; n > 0 && float64(below) >= q*float64(total) {
			return uint64(h.Buckets[i+1] * 1e9)
		}
	}
	return 0
}

// spread lets the threads of this process, which was started on one CPU, run on the first n where n is
// more than one.
func spread(n int) error {
	if n < 2 {
		return nil
	}
	var set unix.CPUSet
	for i := range n {
		set.Set(i)
	}
	tasks, err := os.ReadDir("/proc/self/task")
	for _, t := range tasks {
		id, _ := strconv.Atoi(t.Name())
		err = errors.Join(err, unix.SchedSetaffinity(id, &set))
	}
	return err
}

// computeBeside starts n goroutines that compute until the process ends, and never call into the runtime: what
// a program does that has other work than its connections. The process may then run on all CPUs, because the
// question is who gets one of its GOMAXPROCS processors.
func computeBeside(n int) error {
	if n == 0 {
		return nil
	}
	if err := spread(allCPUs); err != nil {
		return err
	}
	for i := range n {
		go func() {
			for x := uint64(i) | 1; ; {
				x ^= x << 13
				x ^= x >> 7
				x ^= x << 17
				computed.Store(x)
			}
		}()
	}
	return nil
}

// allCPUs is more than there are: runtime.NumCPU is of a process that was started on one.
const allCPUs = 1024

// computed keeps the compiler from removing the work of computeBeside.
var computed atomic.Uint64

// openTCPMemory runs load -op over two stacks -as that are joined in memory, all on as many cores as
// they have loops.
func openTCPMemory(o roleOptions) (roleWork, error) {
	runtime.GOMAXPROCS(o.loops)
	if err := spread(o.loops); err != nil {
		return roleWork{}, err
	}
	p, err := openPair(&o)
	if err != nil {
		return roleWork{}, err
	}
	served := new(netpeer.Counters)
	ctx, cancel := context.WithCancel(context.Background())
	if o.way == "" {
		if err := netpeer.Serve(ctx, p.Server, served); err != nil {
			cancel()
			return roleWork{}, err
		}
	}
	before := heap()
	w, err := stackRole(p.Client, func(ctx context.Context, c *netpeer.Counters) (func(), error) {
		if o.way != "" {
			return func() {}, netpeer.EchoPair(ctx, p, o.way, o.loops, o.conns, served, c)
		}
		return netpeer.Drive(ctx, p.Client, netpeer.Load{Op: o.op, Conns: o.conns, Idle: o.idle, To: p.ServerAddr}, c)
	})
	if err != nil {
		cancel()
		return roleWork{}, err
	}
	counts := w.counts
	w.counts = func() (map[string]uint64, error) {
		m, err := counts()
		m["served bytes"] = served.Bytes()
		if o.op == "hold" {
			m[harness.HeapPerConn] = (heap() - before) / uint64(2*o.conns) // both ends are here
		}
		return m, err
	}
	w.close = func() error { cancel(); return p.Close() }
	return profiled(o.profile, w, nil)
}

// openPair opens the two ends of connections in memory.
func openPair(o *roleOptions) (*netpeer.Pair, error) {
	if o.loopback {
		return netpeer.MillraceLoopback(o.loops)
	}
	return netpeer.OpenPair(o.as, o.mtu, o.loops)
}

// openQUIC sends one QUIC stream between two UDP conns of stack -as, both ends in this process.
func openQUIC(o roleOptions) (roleWork, error) {
	p, err := netpeer.OpenPackets(o.as)
	if err != nil {
		return roleWork{}, err
	}
	c := new(netpeer.Counters)
	ctx, cancel := context.WithCancel(context.Background())
	if err := netpeer.DriveQUIC(ctx, p, c); err != nil {
		cancel()
		return roleWork{}, err
	}
	return roleWork{
		version: buildVersions(),
		counts:  func() (map[string]uint64, error) { return withRuntime(c.Counts()), nil },
		stop:    func() error { cancel(); return nil },
		close:   p.Close,
	}, nil
}

// buildVersions names the modules of the peers.
func buildVersions() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return runtime.Version()
	}
	s := runtime.Version()
	for _, m := range info.Deps {
		if m.Path == "gvisor.dev/gvisor" || m.Path == "github.com/quic-go/quic-go" {
			s += fmt.Sprintf(", %s %s", m.Path, m.Version)
		}
	}
	return s
}
