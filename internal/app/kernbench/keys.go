package kernbench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/gpukern/cuda/pubkey"
	"github.com/millrace/millrace/gpukern/cuda/symmetric"
)

// KeyRow is a public-key operation, or one with symmetric keys.
type KeyRow struct {
	Op      string      `json:"op"`
	Error   string      `json:"error,omitempty"`
	Figures []KeyFigure `json:"figures"`
	Calls   []KeyCall   `json:"calls"` // of the GPU

	// FromOne and FromAll are the operations of the smallest call measured from which on the GPU takes less time than one core
	// and than all cores; 0 is never.
	FromOne int `json:"gpu_from_one_core"`
	FromAll int `json:"gpu_from_all_cores"`
}

// KeyFigure is the rate of one path.
type KeyFigure struct {
	Path       string  `json:"path"` // cpu-one, cpu-all or cuda-host
	Operations int     `json:"operations"`
	PerSecond  float64 `json:"operations_per_second"` // median of the runs
	Runs       int     `json:"runs"`
	Verified   int     `json:"verified"` // of the last run: all of it
	CPUWatts   float64 `json:"cpu_watts,omitempty"`
	GPUWatts   float64 `json:"gpu_watts,omitempty"`
	NotRun     string  `json:"not_run,omitempty"`
	Error      string  `json:"error,omitempty"`
}

// KeyCall is the time that a call with so many operations takes on the GPU.
type KeyCall struct {
	Operations   int     `json:"operations"`
	Milliseconds float64 `json:"ms"` // median
	Runs         int     `json:"runs"`
}

// keyLoad is a load of operations of one kind.
type keyLoad struct {
	n     int
	gpu   func(n int)                    // does the first n by the engine
	core  func(from, to int)             // does operations by the best form of the CPU, on the calling core
	check func(from, to int) (right int) // compares results, and poisons them
	close func() error
}

// Figure returns the figure of a path; nil where there is none with a rate.
func (r *KeyRow) Figure(path string) *KeyFigure {
	for i := range r.Figures {
		if f := &r.Figures[i]; f.Path == path && f.PerSecond > 0 {
			return f
		}
	}
	return nil
}

// Ratio returns how many times as fast a path is as another one; 0 where either has no figure.
func (r *KeyRow) Ratio(path, over string) float64 {
	a, b := r.Figure(path), r.Figure(over)
	if a == nil || b == nil {
		return 0
	}
	return a.PerSecond / b.PerSecond
}

// allCores returns the path of all cores; that of one where there is one.
func (r *KeyRow) allCores() string {
	if r.Figure(PathAll) == nil {
		return PathOne
	}
	return PathAll
}

// keyCalls are the operations of calls that are timed.
var keyCalls = []int{1, 16, 64, 256, 1024, 4096, 16384}

// keys measures the operations with keys. They share the GPU with nothing else, as the paths of packets are closed by then.
func (b *bench) keys(ctx context.Context, ops []KeyOp) (err error) {
	if len(ops) == 0 || ctx.Err() != nil {
		return nil
	}
	cfg := pubkey.Config{Least: 1}
	for i := range ops {
		cfg.Batch = min(pubkey.DefaultBatch, max(cfg.Batch, b.keyRound(&ops[i])))
	}
	if b.gpu != nil {
		cfg.Device = b.gpu.dev
	}
	engine, err := pubkey.New(cfg)
	if err != nil {
		return fmt.Errorf("public keys: %w", err)
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	ciphers, err := symmetric.New(symmetric.Config{Device: cfg.Device, Least: 1})
	if err != nil {
		return fmt.Errorf("symmetric keys: %w", err)
	}
	defer func() { err = errors.Join(err, ciphers.Close()) }()
	for i := range ops {
		if ctx.Err() != nil {
			break
		}
		b.rep.Keys = append(b.rep.Keys, b.keyRow(ctx, keyEngines{engine, ciphers}, &ops[i]))
	}
	return nil
}

// keyPaths are the paths of public-key operations.
func (b *bench) keyPaths() []string {
	if b.gpu == nil {
		return []string{PathOne, PathAll}
	}
	return []string{PathOne, PathAll, PathHost}
}

// keyEngines are the engines of operations with keys.
type keyEngines struct {
	public    *pubkey.Engine
	symmetric *symmetric.Engine
}

// open makes a load of n operations.
func (e keyEngines) open(o *KeyOp, n int) (*keyLoad, error) {
	if o.text != nil {
		return o.text(e.symmetric, n)
	}
	return o.open(e.public, n)
}

// onCPU returns how many operations the engines have done on the CPU, the results that the device lacked, and why it was lost.
func (e keyEngines) onCPU() (done, faults uint64, lost error) {
	p, s := e.public.Stats(), e.symmetric.Stats()
	return p.CPU + s.CPU, p.Faults + s.Faults, errors.Join(e.public.Lost(), e.symmetric.Lost())
}

// keyRow measures all paths of an operation.
func (b *bench) keyRow(ctx context.Context, engines keyEngines, o *KeyOp) (row KeyRow) {
	row = KeyRow{Op: o.Name, Figures: []KeyFigure{}, Calls: []KeyCall{}}
	if b.cfg.Progress != nil {
		b.cfg.Progress(b.at, b.of, o.Name+": inputs")
	}
	before, _, _ := engines.onCPU()
	l, err := engines.open(o, b.keyRound(o))
	if err != nil {
		row.Error = err.Error()
		b.at += len(b.keyPaths())
		return row
	}
	defer func() {
		if err := l.close(); err != nil && row.Error == "" {
			row.Error = err.Error()
		}
	}()
	for _, p := range b.keyPaths() {
		b.progress(o.Name + ", " + p)
		row.Figures = append(row.Figures, b.keyFigure(ctx, l, p))
	}
	if b.gpu == nil {
		return row
	}
	for _, k := range keyCalls {
		if k <= l.n && ctx.Err() == nil {
			row.Calls = append(row.Calls, keyCall(l, k, b.cfg.Time))
		}
	}
	if done, faults, lost := engines.onCPU(); done != before || faults > 0 {
		row.Error = fmt.Sprintf("the CPU did %d operations of the GPU, %d faults: %v", done-before, faults, lost)
	}
	row.breakEven()
	return row
}

// keyRound returns the operations of a load.
func (b *bench) keyRound(o *KeyOp) int {
	return max(keyLeast, int(int64(o.round)*int64(b.cfg.Packets)/DefaultPackets))
}

// keyLeast are the fewest operations of a load: lanes of the CPU's forms are filled.
const keyLeast = 64

// keyFigure measures one path: a run to warm up, then at least three.
func (b *bench) keyFigure(ctx context.Context, l *keyLoad, path string) KeyFigure {
	cores, n := b.rep.Machine.Cores, l.n
	f := KeyFigure{Path: path}
	run := func() { l.gpu(n) }
	meter, gpuWatts := openMeter(nil), func() (float64, bool) { return 0, false }
	switch path {
	case PathOne:
		n = max(keyLeast, l.n/256)
		run = func() { l.core(0, n) }
	case PathAll:
		if cores < 2 {
			f.NotRun = "there is one core"
			return f
		}
		n = max(keyLeast*cores, l.n/16)
		n = min(n, l.n)
		run = func() { shared(n, cores, l.core) }
	}
	f.Operations = n
	run()
	if path == PathHost {
		gpuWatts = b.gpu.dev.StartMeter().Watts
	}
	var rates []float64
	var spent time.Duration
	for len(rates) < 3 || spent < b.cfg.Time && ctx.Err() == nil {
		meter.begin()
		start := time.Now()
		run()
		took := time.Since(start)
		meter.end()
		spent += took
		rates = append(rates, float64(n)/took.Seconds())
	}
	slices.Sort(rates)
	f.PerSecond, f.Runs = rates[len(rates)/2], len(rates)
	f.CPUWatts, _ = meter.watts()
	f.GPUWatts, _ = gpuWatts()
	if f.Verified = l.verify(n); f.Verified != n {
		f = KeyFigure{Path: path, Operations: n, Runs: f.Runs, Verified: f.Verified, Error: fmt.Sprintf("%d of %d results are right", f.Verified, n)}
	}
	return f
}

// verify compares the first n results, on all cores.
func (l *keyLoad) verify(n int) (right int) {
	counts := make([]int, n)
	shared(n, runtime.GOMAXPROCS(0), func(from, to int) {
		if from < to {
			counts[from] = l.check(from, to)
		}
	})
	for _, c := range counts {
		right += c
	}
	return right
}

// shared has so many goroutines do a share of n operations each.
func shared(n, parts int, f func(from, to int)) {
	var all sync.WaitGroup
	for i := range parts {
		all.Go(func() { f(n*i/parts, n*(i+1)/parts) })
	}
	all.Wait()
}

// keyCall times calls of n operations.
func keyCall(l *keyLoad, n int, d time.Duration) KeyCall {
	l.gpu(n)
	var times []time.Duration
	for begin := time.Now(); len(times) < 3 || time.Since(begin) < d/4; {
		start := time.Now()
		l.gpu(n)
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	return KeyCall{Operations: n, Milliseconds: times[len(times)/2].Seconds() * 1e3, Runs: len(times)}
}

// breakEven finds the smallest call from which on the GPU is faster than one core, and than all cores at once.
func (r *KeyRow) breakEven() {
	took := map[int]float64{}
	for _, c := range r.Calls {
		took[c.Operations] = c.Milliseconds / 1e3
	}
	from := func(path string) int {
		f := r.Figure(path)
		if f == nil {
			return 0
		}
		return fromOn(took, func(n int) bool { return took[n] < float64(n)/f.PerSecond })
	}
	r.FromOne, r.FromAll = from(PathOne), from(r.allCores())
}

// fromOn returns the smallest size from which on the GPU is faster at all sizes that were measured; 0 is never.
func fromOn(measured map[int]float64, faster func(n int) bool) (from int) {
	for _, n := range slices.Backward(slices.Sorted(maps.Keys(measured))) {
		if !faster(n) {
			break
		}
		from = n
	}
	return from
}
