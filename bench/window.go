package main

import (
	"context"
	"errors"
	"slices"
	"time"
)

// settle is the pause between the end of a sender and the end of what it sends to, so that packets
// on their way are counted.
const settle = 50 * time.Millisecond

// patience is how much longer than its window a run may take, to start and to end.
const patience = 30 * time.Second

// Window is what happened between two marks of all parts of a contestant.
type Window struct {
	first, last, final map[string]Mark
	cpu                map[string]time.Duration
	busy, wall         time.Duration
	cpus               int
	version            map[string]string
}

// runParts starts the parts in order (receivers first), measures them for a window and stops them
// in reverse order.
func runParts(ctx context.Context, t Timing, parts ...Part) (*Window, error) {
	ctx, cancel := context.WithTimeout(ctx, t.Warmup+t.Window+patience)
	defer cancel()
	var up []*process
	defer func() {
		for _, p := range up {
			p.kill()
		}
	}()
	for _, part := range parts {
		p, err := part.start(ctx)
		if err != nil {
			return nil, err
		}
		up = append(up, p)
	}
	if err := pause(ctx, t.Warmup); err != nil {
		return nil, err
	}
	w, err := measure(ctx, t.Window, up)
	if err != nil {
		return nil, err
	}
	w.final = map[string]Mark{}
	for i := len(up) - 1; i >= 0; i-- {
		m, err := up[i].stop(ctx)
		if err != nil {
			return nil, err
		}
		w.final[up[i].Name] = m
		w.version[up[i].Name] = up[i].hello.Version
		if err := pause(ctx, settle); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func measure(ctx context.Context, d time.Duration, up []*process) (*Window, error) {
	soft := softirqThreads(cpusOf(up))
	a, err := snap(ctx, up, soft)
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, d); err != nil {
		return nil, err
	}
	b, err := snap(ctx, up, soft)
	if err != nil {
		return nil, err
	}
	w := &Window{
		first: a.marks, last: b.marks, busy: b.busy - a.busy, wall: b.at.Sub(a.at), cpus: len(cpusOf(up)),
		cpu: map[string]time.Duration{}, version: map[string]string{},
	}
	for name, t := range b.cpu {
		w.cpu[name] = t - a.cpu[name]
	}
	return w, nil
}

type snapshot struct {
	at    time.Time
	marks map[string]Mark
	cpu   map[string]time.Duration
	busy  time.Duration
}

// snap reads the CPU clocks and then the counters: the clocks are the nearer in time to each other.
func snap(ctx context.Context, up []*process, soft map[int]int) (s snapshot, err error) {
	s.marks, s.cpu = map[string]Mark{}, map[string]time.Duration{}
	s.at = time.Now()
	for _, p := range up {
		t, err := processCPU(p.cmd.Process.Pid)
		if err != nil {
			return s, p.fail(err)
		}
		s.cpu[p.Name] = t
	}
	for _, pid := range soft {
		t, err := processCPU(pid)
		if err != nil {
			return s, err
		}
		s.cpu["ksoftirqd"] += t
	}
	s.busy, err = cpuBusy(cpusOf(up))
	for _, p := range up {
		m, merr := p.mark(ctx)
		s.marks[p.Name], err = m, errors.Join(err, merr)
	}
	return s, err
}

// Sample turns the window into a sample whose units are a count of one part.
func (w *Window) Sample(part, count string) Sample {
	a, b := w.first[part], w.last[part]
	s := Sample{
		Units:   float64(b.Counts[count] - a.Counts[count]),
		Seconds: float64(b.NS-a.NS) / 1e9,
		CPUs:    w.cpus,
		Parts:   map[string]float64{},
		Counts:  map[string]uint64{},
	}
	// The clocks were read just beside the counters: what they say is scaled to the counters' time.
	scale := over(s.Seconds, w.wall.Seconds())
	for name, t := range w.cpu {
		s.Parts[name] = t.Seconds() * scale
		s.CPU += s.Parts[name]
	}
	s.Busy = w.busy.Seconds() * scale
	return s
}

func cpusOf(up []*process) []int {
	var cpus []int
	for _, p := range up {
		if !slices.Contains(cpus, p.CPU) {
			cpus = append(cpus, p.CPU)
		}
	}
	return cpus
}
