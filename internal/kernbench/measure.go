package kernbench

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/millrace/millrace/packet"
)

// measure runs a path over a load until it has been measured for d, at least three times. Every result
// of every run is compared; what is not right makes the figure an error.
func measure(ctx context.Context, p *path, o *Op, t *tables, l *load, e *expectation, d time.Duration) Figure {
	f := Figure{Path: p.name, Batch: p.batch, NotRun: p.absent}
	if p.absent != "" {
		return f
	}
	if err := f.take(ctx, p, o, t, l, e, d); err != nil {
		f.fail(err)
	}
	return f
}

func (f *Figure) fail(err error) {
	f.Error = err.Error()
	f.PacketsPerSecond, f.BytesPerSecond, f.Best = 0, 0, 0
}

func (f *Figure) take(ctx context.Context, p *path, o *Op, t *tables, l *load, e *expectation, d time.Duration) (err error) {
	w, err := newWork(l, p.copies, p.batch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	r, err := p.open(o, t, l)
	var absent *AbsentError
	if errors.As(err, &absent) {
		f.NotRun = absent.Why
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	return f.sections(ctx, r, w, e, d)
}

// sections runs w again and again: once to warm up, then timed. Poison and comparison are not in the
// time, but bound it: what takes long to compare is measured less often.
func (f *Figure) sections(ctx context.Context, r runner, w *work, e *expectation, d time.Duration) error {
	var rates []float64
	var spent time.Duration
	seen, meter := newFlowsSeen(), openMeter()
	for begin := time.Now(); ; {
		w.poison(e)
		meter.begin()
		took, err := r.run(w)
		if err != nil {
			return err
		}
		meter.end()
		n, err := w.check(e, seen)
		if err != nil {
			return err
		}
		f.Verified += uint64(n)
		if f.Runs++; f.Runs == 1 { // the first touches everything for the first time
			meter.reset()
			continue
		}
		f.Packets += uint64(n)
		spent += took
		rates = append(rates, float64(n)/took.Seconds())
		if len(rates) >= 3 && (spent >= d || time.Since(begin) > 4*d) || ctx.Err() != nil {
			break
		}
	}
	slices.Sort(rates)
	f.PacketsPerSecond, f.Best = rates[len(rates)/2], rates[len(rates)-1]
	f.BytesPerSecond = f.PacketsPerSecond * bytesCounted(w.load, e)
	f.NoRoom = seen.none
	f.CPUWatts, f.GPUWatts = meter.watts()
	return nil
}

// bytesCounted returns how many bytes of a packet count: those of the payload where only that is
// looked at.
func bytesCounted(l *load, e *expectation) float64 {
	if e.text {
		return float64(l.text) / float64(len(l.desc))
	}
	return l.mean()
}

// AbsentError says why a path cannot run an operation. It is no failure.
type AbsentError struct{ Why string }

// Error implements error.
func (a *AbsentError) Error() string { return a.Why }

// timer is a runner that times single batches.
type timer interface {
	one(b []*packet.Batch) (time.Duration, error)
}

// latency times single batches of n packets for d, at least 100 and at most 100 000 of them.
func latency(ctx context.Context, p *path, o *Op, t *tables, l *load, e *expectation, n int, d time.Duration) (f Latency) {
	f = Latency{Path: p.name, Batch: n, NotRun: p.absent}
	if p.absent != "" {
		return f
	}
	if err := f.take(ctx, p, o, t, l, e, d); err != nil {
		f.Error = err.Error()
	}
	return f
}

func (f *Latency) take(ctx context.Context, p *path, o *Op, t *tables, l *load, e *expectation, d time.Duration) (err error) {
	w, err := newWork(l, 1, f.Batch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	r, err := p.open(o, t, l)
	var absent *AbsentError
	if errors.As(err, &absent) {
		f.NotRun = absent.Why
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	one, ok := r.(timer)
	if !ok {
		f.NotRun = "it has no single batches"
		return nil
	}
	return f.batches(ctx, one, w, e, d)
}

// batches times the batches of w in turn, and compares all of them after each round.
func (f *Latency) batches(ctx context.Context, r timer, w *work, e *expectation, d time.Duration) error {
	const least, most = 100, 100_000
	var times []time.Duration
	seen, rounds := newFlowsSeen(), 0
	for begin := time.Now(); ; rounds++ {
		w.poison(e)
		first := len(times)
		for i := range w.batches {
			took, err := r.one(w.batches[i : i+1])
			if err != nil {
				return err
			}
			times = append(times, took)
		}
		n, err := w.check(e, seen)
		if err != nil {
			return err
		}
		f.Verified += uint64(n)
		if rounds == 0 && len(w.batches) < most/2 { // the first touches everything for the first time
			times = times[:first]
		}
		if len(times) >= most || len(times) >= least && time.Since(begin) > d || ctx.Err() != nil && len(times) > 0 {
			break
		}
	}
	slices.Sort(times)
	f.N = len(times)
	at := func(q float64) float64 { return float64(times[int(q*float64(len(times)-1))].Nanoseconds()) / 1e3 }
	f.P50, f.P99, f.Least = at(0.5), at(0.99), at(0)
	return nil
}
