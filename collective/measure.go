package collective

import (
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/collective/numeric"
	"github.com/millrace/millrace/collective/schedule"
)

// Rounds and sizes of the measurement: some milliseconds in all.
const (
	probeSmall  = 8
	probeLarge  = 512 << 10
	smallRounds = 40
	largeRounds = 5
)

// measure measures the links of all ranks and makes the costs of all the same.
//
// One pair of ranks exchanges messages alone, of one machine and of two. Then all ranks send to their neighbours at a time: where they
// share cores that takes longer, and the difference is the work of a message. There a rank finds several messages at a time; the CPU time
// of the pair is that of messages for which a rank has to be woken. The larger one counts.
func (c *Comm) measure() error {
	near, far := c.probePairs()
	var k [9]float64 // alpha, beta, alpha far, beta far, gamma, work, work of a byte, cores (negative, so that Max is the fewest), CPU of a message
	var err error
	var work [2]float64
	if k[0], k[1], work[0], err = c.pingPong(near); err != nil {
		return err
	}
	if k[2], k[3], work[1], err = c.pingPong(far); err != nil {
		return err
	}
	if k[5], k[6], err = c.shift(); err != nil {
		return err
	}
	k[4] = reductionTime()
	k[7], k[8] = -float64(cores()), max(work[0], work[1])
	if err := c.AllReduce(Slice(k[:]), Slice(k[:]), Max); err != nil {
		return err
	}
	w := Costs{Alpha: k[0], Beta: k[1], AlphaFar: k[2], BetaFar: k[3], Gamma: k[4], Cores: int(-k[7]), Measured: true}
	if near == nil {
		w.Alpha, w.Beta = w.AlphaFar, w.BetaFar
	}
	if far == nil {
		w.AlphaFar, w.BetaFar = w.Alpha, w.Beta
	}
	most := 0
	for _, g := range c.groups {
		most = max(most, len(g))
	}
	share := float64(min(w.Cores, most)) / float64(most) // of a core, that a rank has
	w.Work, w.WorkByte = max(k[5]*share, k[8]), k[6]*share
	c.w.costs = w
	clear(c.chosen) // what fixed costs chose
	return nil
}

// probePairs returns two ranks of one machine and two of different ones; nil is that there are none.
func (c *Comm) probePairs() (near, far []int) {
	for _, g := range c.groups {
		if len(g) > 1 {
			near = g[:2]
			break
		}
	}
	if len(c.groups) > 1 {
		far = []int{c.groups[0][0], c.groups[1][0]}
	}
	return near, far
}

// pingPong measures the time of a message and of a byte between two ranks, and the CPU time of a message, while the others wait.
func (c *Comm) pingPong(pair []int) (alpha, beta, work float64, err error) {
	if pair != nil && (c.rank == pair[0] || c.rank == pair[1]) {
		peer := pair[0] + pair[1] - c.rank
		exchange := func(b Buffer) error {
			if c.rank == pair[0] {
				if err := c.Send(b, peer, 0); err != nil {
					return err
				}
				return c.Recv(b, peer, 0)
			}
			if err := c.Recv(b, peer, 0); err != nil {
				return err
			}
			return c.Send(b, peer, 0)
		}
		used := cpuTime()
		for range smallRounds / 2 {
			err = errors.Join(err, exchange(Slice(make([]byte, probeSmall))))
		}
		work = (cpuTime() - used) / (smallRounds / 2) // of one send and one receive
		if err == nil {
			alpha, beta, err = probe(exchange)
		}
		alpha, beta = alpha/2, beta/2 // there and back
	}
	if err != nil {
		return 0, 0, 0, err
	}
	return alpha, beta, work, c.Barrier()
}

// cpuTime returns the CPU time of this process, in seconds.
func cpuTime() float64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0 // it does not fail for the process itself
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// shift measures the same while all ranks send to the next one.
func (c *Comm) shift() (alpha, beta float64, err error) {
	n := c.Size()
	in := make([]byte, probeLarge)
	spans := []schedule.Span{{Lo: 0, Hi: 1}, {Lo: 1, Hi: 2}}
	s := schedule.Schedule{Blocks: 2, Steps: []schedule.Step{{
		Send: []schedule.Message{{Peer: (c.rank + 1) % n, Spans: spans[:1]}},
		Recv: []schedule.Message{{Peer: (c.rank + n - 1) % n, Spans: spans[1:]}},
	}}}
	alpha, beta, err = probe(func(b Buffer) error {
		return c.collective(call{name: "probe", count: b.n, root: -1}, false, func(r *run) error {
			to := Slice(in[:b.n])
			r.sched, r.block = &s, func(block int) part {
				if block == 0 {
					return part{b.memory(), 0, b.n}
				}
				return part{to.memory(), 0, b.n}
			}
			return r.execute()
		}).Wait()
	})
	if err != nil {
		return 0, 0, err
	}
	return alpha, beta, c.Barrier()
}

// probe returns the time of an exchange of a small vector, and of a byte of a large one: medians, since what other processes of the
// machine take is a part of the costs.
func probe(exchange func(b Buffer) error) (alpha, beta float64, err error) {
	median := func(size, rounds int) (float64, error) {
		b, times := Slice(make([]byte, size)), make([]float64, rounds)
		for i := range times {
			begin := time.Now()
			if err := exchange(b); err != nil {
				return 0, err
			}
			times[i] = time.Since(begin).Seconds()
		}
		slices.Sort(times)
		return times[rounds/2], nil
	}
	if alpha, err = median(probeSmall, smallRounds); err != nil {
		return 0, 0, err
	}
	large, err := median(probeLarge, largeRounds)
	return alpha, max(large-alpha, 0) / probeLarge, err
}

// reductionTime returns the time of a reduced byte.
func reductionTime() float64 {
	a, b := make([]float32, 64<<10), make([]float32, 64<<10)
	least := time.Duration(1 << 62)
	for range 3 {
		begin := time.Now()
		numeric.Reduce(numeric.Bytes(a), numeric.Bytes(b), Float32, Sum)
		least = min(least, time.Since(begin))
	}
	return least.Seconds() / float64(4*len(a))
}
