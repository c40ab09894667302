package ebpf

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ProgramStats count the runs of a program at a hook and their time, as the kernel does.
type ProgramStats struct {
	Interface string `json:"interface"`
	Hook      string `json:"hook"`
	ID        uint32 `json:"id"`
	Name      string `json:"name"`
	Object    string `json:"object,omitempty"`

	Runs     uint64        `json:"runs"`    // in the interval
	Time     time.Duration `json:"time_ns"` // in the interval
	AllRuns  uint64        `json:"all_runs"`
	AllTime  time.Duration `json:"all_time_ns"`
	Measured bool          `json:"measured"` // false: a component of a dispatcher, whose runs the kernel does not count
}

// Stats has the kernel count runs and time for an interval, and returns the counts of each program at a hook of the
// interface, or of all interfaces where only is "". The counts are of intervals in which somebody counts. A dispatcher's
// include those of its components, which the kernel does not count apart.
func (s *Store) Stats(ctx context.Context, only string, interval time.Duration) ([]ProgramStats, error) {
	hooks, err := s.Hooks(only)
	if err != nil {
		return nil, err
	}
	counting, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		return nil, fmt.Errorf("have the kernel count runs (Linux 5.8): %w", permission(err))
	}
	defer counting.Close()
	list := []ProgramStats{}
	for _, h := range hooks {
		if h.Dispatcher != 0 {
			list = append(list, ProgramStats{Interface: h.Interface, Hook: h.Hook, ID: h.Dispatcher, Name: "dispatcher", Measured: true})
		}
		for _, c := range h.Chain {
			list = append(list, ProgramStats{Interface: h.Interface, Hook: h.Hook, ID: c.ID, Name: c.Name, Object: c.Object, Measured: h.Dispatcher == 0})
		}
	}
	before := make([]ebpf.ProgramStats, len(list))
	for i := range list {
		if before[i], err = programStats(list[i].ID); err != nil {
			return nil, err
		}
	}
	select {
	case <-ctx.Done():
	case <-time.After(interval):
	}
	for i := range list {
		now, err := programStats(list[i].ID)
		if err != nil {
			return nil, err
		}
		p := &list[i]
		p.AllRuns, p.AllTime = now.RunCount, now.Runtime
		p.Runs, p.Time = now.RunCount-min(before[i].RunCount, now.RunCount), now.Runtime-min(before[i].Runtime, now.Runtime)
	}
	return list, nil
}

// programStats reads the counts of a program; none of one that is gone.
func programStats(id uint32) (ebpf.ProgramStats, error) {
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if errors.Is(err, unix.ENOENT) {
		return ebpf.ProgramStats{}, nil
	}
	if err != nil {
		return ebpf.ProgramStats{}, permission(err)
	}
	defer p.Close()
	st, err := p.Stats()
	if err != nil {
		return ebpf.ProgramStats{}, err
	}
	return *st, nil
}
