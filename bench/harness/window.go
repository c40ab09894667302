package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// settle is the pause between the end of a sender and the end of what it sends to, so that packets
// on their way are counted.
const settle = 50 * time.Millisecond

// patience is how much longer than its window a run may take, to start and to end.
const Patience = 30 * time.Second

// Window is what happened between two marks of all parts of a contestant.
type Window struct {
	First, Last, Final map[string]Mark
	softirq            time.Duration // CPU time of ksoftirqd
	busy, wall         time.Duration
	cpus               int
	Version            map[string]string
}

// RunParts starts the parts in order (receivers first), measures them for a window and stops them
// in reverse order.
func RunParts(ctx context.Context, t Timing, parts ...Part) (*Window, error) {
	ctx, cancel := context.WithTimeout(ctx, t.Warmup+t.Window+Patience)
	defer cancel()
	var up []*process
	defer func() {
		for _, p := range up {
			p.Kill()
		}
	}()
	for _, part := range parts {
		p, err := part.Start(ctx)
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
	w.Final = map[string]Mark{}
	for i := len(up) - 1; i >= 0; i-- {
		m, err := up[i].stop(ctx)
		if err != nil {
			return nil, err
		}
		w.Final[up[i].Name] = m
		w.Version[up[i].Name] = up[i].hello.Version
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
		First: a.marks, Last: b.marks, softirq: b.softirq - a.softirq, busy: b.busy - a.busy,
		wall: b.at.Sub(a.at), cpus: len(cpusOf(up)), Version: map[string]string{},
	}
	return w, nil
}

type snapshot struct {
	at            time.Time
	marks         map[string]Mark
	softirq, busy time.Duration
}

// snap reads the kernel's clocks and asks the parts for theirs.
func snap(ctx context.Context, up []*process, soft map[int]int) (s snapshot, err error) {
	s.at, s.marks = time.Now(), map[string]Mark{}
	for _, pid := range soft {
		t, err := ProcessCPU(pid)
		if err != nil {
			return s, err
		}
		s.softirq += t
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
	a, b := w.First[part], w.Last[part]
	s := Sample{
		Units:   float64(b.Counts[count] - a.Counts[count]),
		Seconds: float64(b.NS-a.NS) / 1e9,
		CPUs:    w.cpus,
		Parts:   map[string]float64{},
		Counts:  map[string]uint64{},
	}
	for name := range w.First {
		s.Parts[name] = w.partCPU(name) * s.Seconds
		s.CPU += s.Parts[name]
	}
	// What the harness reads itself is scaled to the time between the counters.
	scale := over(s.Seconds, w.wall.Seconds())
	s.Parts["ksoftirqd"] = w.softirq.Seconds() * scale
	s.CPU += s.Parts["ksoftirqd"]
	s.Busy = w.busy.Seconds() * scale
	return s
}

// partCPU returns the CPU seconds per second of a part. The part tells its CPU time together with its
// counters: on a busy machine the harness would read it much earlier or later.
func (w *Window) partCPU(name string) float64 {
	a, b := w.First[name], w.Last[name]
	return over(float64(b.CPU-a.CPU), float64(b.NS-a.NS))
}

func cpusOf(up []*process) []int {
	var cpus []int
	for _, p := range up {
		for _, cpu := range append([]int{p.CPU}, p.Also...) {
			if !slices.Contains(cpus, cpu) {
				cpus = append(cpus, cpu)
			}
		}
	}
	return cpus
}

// OnCore is a contestant that is one program on CPU 1, which counts what count names.
func OnCore(name, absent, count string, argv ...string) Contestant {
	const part = "program"
	return Contestant{Name: name, Absent: absent, Run: func(ctx context.Context, t Timing) (Sample, error) {
		w, err := RunParts(ctx, t, Part{Name: part, Argv: argv, CPU: 1})
		if err != nil {
			return Sample{}, err
		}
		s := w.Sample(part, count)
		s.Own, s.Version = s.Parts[part], w.Version[part]
		if allocs, told := w.Final[part].Counts["allocs"]; told {
			s.Counts["allocs"] = allocs
		}
		return s, nil
	}}
}

// Delivered makes the sample of a run in which packets go from one part to another and own is the
// contestant. It checks the books: no packet arrives that was not sent, and the gaps in the sequence numbers are the losses.
func (w *Window) Delivered(from, own, to string) (Sample, error) {
	s := w.Sample(to, "packets")
	s.Own, s.Version = s.Parts[own], w.Version[own]
	offered, got := w.Final[from].Counts["packets"], w.Final[to].Counts
	received := got["packets"]
	s.Counts["offered"], s.Counts["received"] = offered, received
	s.Counts["reordered"] = got["reordered"]
	switch {
	case received > offered:
		return s, fmt.Errorf("%d packets received but only %d sent", received, offered)
	case received == 0:
		return s, fmt.Errorf("nothing arrived of %d packets sent", offered)
	}
	s.Counts["lost"] = offered - received
	if gaps := got["gaps"]; got["reordered"] == 0 && gaps > s.Counts["lost"] {
		return s, fmt.Errorf("%d packets lost, but the sequence numbers say %d", s.Counts["lost"], gaps)
	}
	return s, nil
}

// Arrived makes the sample of packets without numbers.
func (w *Window) Arrived() (Sample, error) {
	s := w.Sample("sink", "packets")
	s.Own, s.Version = s.Parts["gateway"], w.Version["gateway"]
	offered, received := w.Final["source"].Counts["packets"], w.Final["sink"].Counts["packets"]
	s.Counts["offered"], s.Counts["received"] = offered, received
	if received == 0 || received > offered {
		return s, fmt.Errorf("%d packets arrived of %d sent", received, offered)
	}
	s.Counts["lost"] = offered - received
	return s, nil
}

// Served turns a window into a sample of a server.
func (w *Window) Served(part, count string) (Sample, error) {
	s := w.Sample(part, count)
	s.Own, s.Version = s.Parts["server"], w.Version["server"]
	client := w.Final["client"].Counts
	for _, name := range []string{"p50 ns", "p99 ns", "failed"} {
		if n := client[name]; n > 0 {
			s.Counts[name] = n
		}
	}
	if s.Units == 0 {
		return s, errors.New("nothing arrived")
	}
	return s, nil
}
