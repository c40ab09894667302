package kernbench

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// AbsentError reports why a path cannot run an operation. It is no failure.
type AbsentError struct{ Why string }

// Error implements error.
func (a *AbsentError) Error() string { return a.Why }

// with opens a path over the load, with its flow table filled, calls f and closes everything. It returns
// why the path does not do this operation, if so.
func (c *trial) with(p *path, batch int, f func(r runner, w *work) error) (absent string, err error) {
	if p.absent != "" {
		return p.absent, nil
	}
	r, err := p.open(c)
	var none *AbsentError
	if errors.As(err, &none) {
		return none.Why, nil
	}
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	w, err := r.work(c.load, batch)
	if err != nil {
		return "", err
	}
	if err := c.fill(r, w); err != nil {
		return "", err
	}
	return "", f(r, w)
}

// measure runs a path over the load until it has been measured for d, at least three times. Every result
// of every run is compared; what is not right makes the figure an error.
func (c *trial) measure(ctx context.Context, p *path, d time.Duration) Figure {
	f := Figure{Path: p.name, Batch: p.batch}
	var err error
	f.NotRun, err = c.with(p, 0, func(r runner, w *work) error { return f.runs(ctx, c, r, w, d, p.power) })
	if err != nil {
		f = Figure{Path: p.name, Batch: f.Batch, Runs: f.Runs, Error: err.Error()}
	}
	return f
}

// runs runs w again and again: once to warm up, then timed. Poison and comparison are not in the time, but
// bound it: what takes long to compare is measured less often.
func (f *Figure) runs(ctx context.Context, c *trial, r runner, w *work, d time.Duration, power func() (float64, bool)) error {
	var rates []float64
	var spent time.Duration
	runtime.LockOSThread() // whose CPU time is reported
	defer runtime.UnlockOSThread()
	meter := openMeter(power)
	for begin := time.Now(); ; {
		w.poison(c.want)
		meter.begin()
		cpu := threadTime()
		took, err := r.run(w)
		if err != nil {
			return err
		}
		cpu = threadTime() - cpu
		meter.end()
		n, err := w.check(c.want)
		if err != nil {
			return err
		}
		f.Verified += uint64(n)
		if f.Runs++; f.Runs == 1 { // the first touches everything for the first time
			meter.reset()
			continue
		}
		f.Packets += uint64(n)
		f.Seconds += took.Seconds()
		f.ThreadSeconds += cpu.Seconds()
		spent += took
		rates = append(rates, float64(n)/took.Seconds())
		if len(rates) >= 3 && (spent >= d || time.Since(begin) > 4*d) || ctx.Err() != nil {
			break
		}
	}
	slices.Sort(rates)
	f.PacketsPerSecond, f.Best = rates[len(rates)/2], rates[len(rates)-1]
	f.BytesPerSecond = f.PacketsPerSecond * c.bytesCounted()
	f.NoRoom = w.noRoom()
	f.CPUWatts, f.GPUWatts = meter.watts()
	return nil
}

// threadTime returns the CPU time of the calling thread.
func threadTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) // cannot fail
	return time.Duration(ts.Nano())
}

// bytesCounted returns how many bytes of a packet count: those of the payload where only that is
// looked at.
func (c *trial) bytesCounted() float64 {
	if c.want.text {
		return float64(c.load.text) / float64(len(c.load.desc))
	}
	return c.load.mean()
}

// latency times single batches of n packets for d, at least leastBatches and at most 100 000 of them.
func (c *trial) latency(ctx context.Context, p *path, n int, d time.Duration) Latency {
	f := Latency{Op: c.op.Name, Size: c.size, Path: p.name, Batch: n}
	var err error
	f.NotRun, err = c.with(p, n, func(r runner, w *work) error { return f.times(ctx, c, r, w, d) })
	if err != nil {
		f = Latency{Op: f.Op, Size: f.Size, Path: f.Path, Batch: n, Error: err.Error()}
	}
	return f
}

// leastBatches are timed however long they take.
var leastBatches = 100

// times times the batches of w in turn, and compares all of them after each round.
func (f *Latency) times(ctx context.Context, c *trial, r runner, w *work, d time.Duration) error {
	const most = 100_000
	var times []time.Duration
	one := &work{load: w.load, lap: 1}
	for begin, round := time.Now(), 0; ; round++ {
		w.poison(c.want)
		first := len(times)
		for i := range w.batches {
			one.batches = w.batches[i : i+1]
			took, err := r.run(one)
			if err != nil {
				return err
			}
			times = append(times, took)
		}
		n, err := w.check(c.want)
		if err != nil {
			return err
		}
		f.Verified += uint64(n)
		if round == 0 && len(w.batches) < most/2 { // the first touches everything for the first time
			times = times[:first]
		}
		if len(times) >= most || len(times) >= leastBatches && time.Since(begin) > d || ctx.Err() != nil && len(times) > 0 {
			break
		}
	}
	slices.Sort(times)
	f.N = len(times)
	at := func(q float64) float64 { return float64(times[int(q*float64(len(times)-1))].Nanoseconds()) / 1e3 }
	f.P50, f.P99, f.Least = at(0.5), at(0.99), at(0)
	return nil
}
