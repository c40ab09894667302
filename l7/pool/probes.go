package pool

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/health"
)

// Probes wires pools to a health.Checker. It numbers their backends for the Checker and enters what that finds. A number
// is that of one backend for ever. Probes is not safe for concurrent use.
//
//	checker.Set(probes.Watch(now, pools))   after each change of the configuration
//	probes.Enter(now, checker.Take())  when the Checker calls Options.Notify
type Probes struct {
	// First is the first number, for a Checker that watches others too.
	First    uint32
	next     uint32
	numbers  map[*Backend]uint32
	backends map[uint32]*Backend
}

// Watch returns what a Checker has to watch for the pools: the backends of those with Options.Check. Others are taken for
// healthy, now and from then on, if they were watched before.
func (x *Probes) Watch(now clock.Time, pools []*Pool) (list []health.Watch) {
	old := x.numbers
	x.numbers, x.backends = map[*Backend]uint32{}, map[uint32]*Backend{}
	for _, p := range pools {
		s := p.snap.Load()
		if s.Check == nil {
			continue
		}
		for _, b := range s.list {
			id, known := old[b]
			if !known {
				id = x.First + x.next
				x.next++
			}
			x.numbers[b], x.backends[id] = id, b
			list = append(list, health.Watch{
				ID: id, Target: health.Target{At: b.address, Path: b.path, Backend: b.name, Service: s.Name}, Check: s.Check, Down: !b.Healthy(),
			})
		}
	}
	for b := range old {
		if _, watched := x.numbers[b]; !watched {
			b.SetHealthy(now, true, nil)
		}
	}
	return list
}

// Enter enters what the Checker's Take returned: all changes of a pool at once.
func (x *Probes) Enter(now clock.Time, changes []health.Change) {
	pools := map[*Pool][]health.Change{}
	for _, c := range changes {
		if b := x.backends[c.ID]; b != nil {
			pools[b.pool] = append(pools[b.pool], c)
		}
	}
	for p, changes := range pools {
		p.lock()
		for _, c := range changes {
			x.backends[c.ID].setHealthy(now, c.Healthy, c.Cause)
		}
		p.unlock()
	}
}

// Healthy reports what active probes found last.
func (b *Backend) Healthy() bool { return b.flags.Load()&flagUnhealthy == 0 }
