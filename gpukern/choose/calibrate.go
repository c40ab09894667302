package choose

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
)

// Backend is one side that calibration measures.
type Backend struct {
	Name string

	// Open returns an engine with operations and the tables that will be used. Calibration closes it.
	Open func(ops gpukern.Ops) (gpukern.Engine, error)

	// Batch returns a batch of n packets of size bytes in memory that the back end reaches as it will
	// reach the packets of a driver. It is called again for the same n and size. Calibration returns
	// nothing: the memory is the caller's.
	Batch func(n, size int) (*packet.Batch, error)
}

// Plan reports what calibration measures and how long it may take.
type Plan struct {
	Ops   []gpukern.Ops // sets of operations, each measured for itself
	Sizes []int         // of packets, in bytes; nil is DefaultSizes
	Time  time.Duration // for everything; 0 is DefaultTime
}

// What a Plan measures by default.
const DefaultTime = 300 * time.Millisecond

// DefaultSizes are the sizes of packets that are measured: the smallest, a usual one and a full one.
var DefaultSizes = []int{64, 512, 1408}

// counts are the sizes of the batches that are timed with no other in flight.
var counts = []int{32, 128, 256}

// inFlight is the number of batches that are kept under way to measure the rate.
const inFlight = 8

// Calibrate measures both back ends and returns a calibration for each set of operations and size, in the
// order of the plan. It stops with the error of ctx.
func Calibrate(ctx context.Context, cpu, gpu Backend, p Plan) ([]gpukern.Calibration, error) {
	if p.Sizes == nil {
		p.Sizes = DefaultSizes
	}
	if p.Time == 0 {
		p.Time = DefaultTime
	}
	each := p.Time / time.Duration(2*max(1, len(p.Ops)*len(p.Sizes)))
	var all []gpukern.Calibration
	for _, ops := range p.Ops {
		first := len(all)
		for _, size := range p.Sizes {
			all = append(all, gpukern.Calibration{Ops: ops, Bytes: size})
		}
		part := all[first:]
		if err := cpu.measure(ctx, part, each, func(c *gpukern.Calibration) *gpukern.CostModel { return &c.CPU }); err != nil {
			return nil, err
		}
		if err := gpu.measure(ctx, part, each, func(c *gpukern.Calibration) *gpukern.CostModel { return &c.GPU }); err != nil {
			return nil, err
		}
	}
	for i := range all {
		breakEven(&all[i])
	}
	return all, nil
}

// measure fills in the cost models of one back end for one set of operations.
func (b *Backend) measure(ctx context.Context, part []gpukern.Calibration, limit time.Duration, model func(*gpukern.Calibration) *gpukern.CostModel) error {
	e, err := b.Open(part[0].Ops)
	if err != nil {
		return fmt.Errorf("calibrate %s: %w", b.Name, err)
	}
	defer e.Close()
	for i := range part {
		if err := ctx.Err(); err != nil {
			return err
		}
		l, err := b.costModel(e, part[i].Bytes, limit)
		if err != nil {
			return fmt.Errorf("calibrate %s, %v, %d B: %w", b.Name, part[i].Ops, part[i].Bytes, err)
		}
		*model(&part[i]) = l
	}
	return nil
}

// costModel measures one packet size within a time.
func (b *Backend) costModel(e gpukern.Engine, size int, limit time.Duration) (gpukern.CostModel, error) {
	share := limit / time.Duration(len(counts)+1)
	var samples []sample
	for _, n := range counts {
		batch, err := b.Batch(n, size)
		if err != nil {
			return gpukern.CostModel{}, err
		}
		ns, err := timeAlone(e, batch, share)
		if err != nil {
			return gpukern.CostModel{}, err
		}
		samples = append(samples, sample{n, ns})
	}
	var l gpukern.CostModel
	var err error
	l.FixedNs, l.PacketNs = fit(samples)
	l.PipelinedNs, err = b.pipelined(e, size, share)
	return l, err
}

// minRuns are timed however long they take: the first warms the caches and is not counted.
const minRuns = 3

// timeAlone returns the median time of a batch with no other in flight, in nanoseconds.
func timeAlone(e gpukern.Engine, b *packet.Batch, limit time.Duration) (float64, error) {
	var times []float64
	done := make([]*packet.Batch, 1)
	end := time.Now().Add(limit)
	for i := 0; i <= minRuns || time.Now().Before(end); i++ {
		start := time.Now()
		if err := e.Submit(b); err != nil {
			return 0, err
		}
		if err := await(e, done, start); err != nil {
			return 0, err
		}
		if i > 0 {
			times = append(times, float64(time.Since(start)))
		}
	}
	return median(times), nil
}

// patience is the time that a batch may take before calibration gives the back end up.
const patience = 5 * time.Second

// await polls until a batch comes back.
func await(e gpukern.Engine, done []*packet.Batch, since time.Time) error {
	for spins := 1; e.Poll(done) == 0; spins++ {
		if spins%1024 == 0 && time.Since(since) > patience {
			return fmt.Errorf("no answer within %v", patience)
		}
	}
	return nil
}

// pipelined returns the time of a packet, in nanoseconds, with several batches in flight.
func (b *Backend) pipelined(e gpukern.Engine, size int, limit time.Duration) (float64, error) {
	free := make([]*packet.Batch, 0, inFlight)
	for range min(inFlight, max(1, e.Info().Depth)) {
		batch, err := b.Batch(smallBatch, size)
		if err != nil {
			return 0, err
		}
		free = append(free, batch)
	}
	all, packets := len(free), 0
	done := make([]*packet.Batch, inFlight)
	start := time.Now()
	last := start
	for i := 0; i < minRuns*all || time.Since(start) < limit; {
		for len(free) > 0 {
			if err := e.Submit(free[len(free)-1]); err != nil {
				return 0, err
			}
			free = free[:len(free)-1]
			i++
		}
		if err := await(e, done[:1], last); err != nil {
			return 0, err
		}
		last = time.Now()
		free = append(free, done[0])
		packets += smallBatch
	}
	ns := float64(last.Sub(start)) / float64(packets)
	for len(free) < all {
		if err := await(e, done[:1], time.Now()); err != nil {
			return 0, err
		}
		free = append(free, done[0])
	}
	return ns, nil
}
