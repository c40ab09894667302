// Package kernbench measures the operations of the batch engine, and those with public keys: on one core, on all cores, and on
// the GPU from host memory and from device memory. `millrace bench kern` and the suite kern show what
// it finds.
//
// For each operation and size of packets it makes a load: packets in an arena, descriptors as a driver
// leaves them, and tables. The CPU form says what each descriptor must be, and a sample of that is
// compared with the reference (internal/kernref). Then every path runs over the load again and again. Before
// each run every result is poisoned, and after each run every result is compared: a rate in the report
// is one of right results. Poison and comparison are not in the time.
package kernbench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/millrace/millrace/gpukern/choose"
	"github.com/millrace/millrace/gpukern/cuda"
)

// Config defines what is measured. Zero values are the usual ones.
type Config struct {
	Ops      []string      // names of operations, or of groups of them ("acl"); none are all
	Sizes    []string      // none are all
	Packets  int           // of a load, at most; 0 is DefaultPackets
	Time     time.Duration // measured for each figure; 0 is DefaultTime
	Batches  []int         // packets of batches that are timed one by one; none are DefaultBatches
	Quick    bool          // fewer sizes and packets, and less time, where nothing else is said
	Engine   string        // "cpu", "cuda" (an error where there is none) or "auto"; "" is auto
	Captures string        // folder of real captures; "" is none
	Cores    int           // that take part in "all cores"; 0 is all that this process may use
	Seed     uint64        // of packets and tables; 0 is 1
	Version  string        // of the program
	Device   cuda.Options  // which GPU

	// Progress, if it is set, is called before each figure: which one of how many.
	Progress func(at, of int, what string)
}

// The usual values.
const (
	DefaultPackets = 1 << 17
	DefaultTime    = 200 * time.Millisecond
	quickPackets   = 1 << 15
	quickTime      = 40 * time.Millisecond
	maxPackets     = 1 << 20
)

// DefaultBatches are the sizes of batches that are timed one by one.
var DefaultBatches = []int{32, 64, 256, 1024, 4096}

func (c *Config) defaults() error {
	c.Packets = cmp.Or(c.Packets, map[bool]int{false: DefaultPackets, true: quickPackets}[c.Quick])
	c.Time = cmp.Or(c.Time, map[bool]time.Duration{false: DefaultTime, true: quickTime}[c.Quick])
	c.Seed, c.Engine = cmp.Or(c.Seed, 1), cmp.Or(c.Engine, "auto")
	if len(c.Batches) == 0 {
		c.Batches = DefaultBatches
	}
	if c.Quick && len(c.Sizes) == 0 {
		c.Sizes = []string{Size64, Size1408, SizeCapture, SizeHostile}
	}
	switch {
	case c.Packets < 32 || c.Packets > maxPackets:
		return fmt.Errorf("%d packets: say 32 to %d", c.Packets, maxPackets)
	case c.Cores < 0:
		return fmt.Errorf("%d cores: say 0 for all, or more", c.Cores)
	case c.Time <= 0:
		return fmt.Errorf("a time of %v: say more than nothing", c.Time)
	case slices.Min(c.Batches) < 1:
		return errors.New("batches have at least one packet")
	}
	_, err := chooseSizes(c.Sizes)
	return err
}

// Check returns the error of c, before anything is made. It is stricter than Run: captures that were asked
// for and are not there are a mistake.
func (c Config) Check() error {
	if err := c.checkCaptures(); err != nil {
		return err
	}
	if err := c.defaults(); err != nil {
		return err
	}
	_, _, err := chooseOps(c.Ops)
	return err
}

// checkCaptures refuses a folder without captures, and captures that are asked for by name without a folder.
// With the usual sizes they were not named by the user: a note lists them then.
func (c *Config) checkCaptures() error {
	if c.Captures == "" {
		if slices.Contains(c.Sizes, SizeCapture) {
			return fmt.Errorf("%w: name a folder with --captures", ErrNoCaptures)
		}
		return nil
	}
	if _, err := os.ReadDir(c.Captures); err != nil {
		return fmt.Errorf("captures: %w", err)
	}
	if len(captureFiles(c.Captures)) == 0 {
		return fmt.Errorf("%w in %s: files named *.pcap or *.pcapng are read", ErrNoCaptures, c.Captures)
	}
	return nil
}

// Run measures the cells of cfg. When ctx ends the report has what was measured until then. Its errors are
// about what all need: a wrong name, no memory, no GPU where one was asked for. What goes wrong with a
// single figure stands in the report.
func Run(ctx context.Context, cfg Config) (rep *Report, err error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	ops, keys, err := chooseOps(cfg.Ops)
	if err != nil {
		return nil, err
	}
	b := &bench{cfg: cfg}
	if err := b.open(); err != nil {
		return nil, errors.Join(err, b.close())
	}
	defer func() { err = errors.Join(err, b.close()) }()
	b.plan(ops, keys)
	for i := range ops {
		if ctx.Err() != nil {
			break
		}
		b.op(ctx, &ops[i])
	}
	err = b.keys(ctx, keys)
	if b.gpu != nil && len(cfg.Ops) == 0 && ctx.Err() == nil {
		calibrations, failed := Calibrate(cfg.Device, choose.DefaultSizes)
		b.rep.Calibrations, err = append(b.rep.Calibrations, calibrations...), errors.Join(err, failed)
	}
	b.rep.Stopped = ctx.Err() != nil
	return b.rep, err
}

// bench is a run on its way.
type bench struct {
	cfg   Config
	rep   *Report
	load  *load
	gpu   *gpu     // nil without
	texts [][]byte // of the captures, once they are asked for
	paths []path
	at    int // figures measured
	of    int
}

func (b *bench) open() (err error) {
	b.rep = newReport(&b.cfg)
	if b.load, err = newLoad(b.cfg.Packets); err != nil {
		return err
	}
	cpus := processors()
	if b.cfg.Cores > 0 && b.cfg.Cores < len(cpus) {
		cpus = cpus[:b.cfg.Cores]
	}
	b.rep.Machine.Cores = len(cpus)
	b.paths = []path{onePath(), allPath(cpus)}
	return b.openGPU()
}

func (b *bench) close() error {
	var errs []error
	if b.gpu != nil {
		errs = append(errs, b.gpu.close())
	}
	if b.load != nil {
		errs = append(errs, b.load.close())
	}
	return errors.Join(errs...)
}

// sizes returns those of an operation that are asked for.
func (b *bench) sizes(o *Op) []string {
	all := o.Sizes()
	if len(b.cfg.Sizes) == 0 {
		return all
	}
	return slices.DeleteFunc(all, func(s string) bool { return !slices.Contains(b.cfg.Sizes, s) })
}

// plan counts the figures.
func (b *bench) plan(ops []Op, keys []KeyOp) {
	b.of = len(keys) * len(b.keyPaths())
	for i := range ops {
		n := len(b.sizes(&ops[i]))
		b.of += n * len(b.paths)
		if ops[i].latency && n > 0 {
			b.of += len(b.paths) * len(b.cfg.Batches)
		}
	}
}

// progress tells what is measured next.
func (b *bench) progress(what string) {
	if b.cfg.Progress != nil {
		b.cfg.Progress(b.at, b.of, what)
	}
	b.at++
}

// op measures an operation with all of its sizes.
func (b *bench) op(ctx context.Context, o *Op) {
	sizes := b.sizes(o)
	if len(sizes) == 0 {
		return
	}
	if b.cfg.Progress != nil {
		b.cfg.Progress(b.at, b.of, o.Name+": tables")
	}
	t, err := makeTables(o, b.cfg.Seed, b.captureTexts)
	for i, size := range sizes {
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			b.broken(o, size, err)
			continue
		}
		c, err := prepare(o, size, t, b.load, &b.cfg)
		if err != nil {
			b.broken(o, size, err)
			continue
		}
		b.row(ctx, c)
		if i == 0 && o.latency {
			b.latencies(ctx, c)
		}
	}
}

// broken reports an operation with packets of a size that cannot be measured. That there are no captures
// is no failure.
func (b *bench) broken(o *Op, size string, err error) {
	b.at += len(b.paths)
	if errors.Is(err, ErrNoCaptures) {
		b.note(err.Error())
		return
	}
	b.rep.Rows = append(b.rep.Rows, Row{Op: o.Name, Size: size, Error: err.Error(), Figures: []Figure{}})
}

// captureTexts returns the payloads of the captures; nil where there are none.
func (b *bench) captureTexts() [][]byte {
	if b.texts == nil && b.cfg.Captures != "" {
		b.texts, _ = Payloads(b.cfg.Captures) // that there are none is reported where captures are measured
	}
	return b.texts
}

// row measures all paths over the load.
func (b *bench) row(ctx context.Context, c *trial) {
	row := c.row()
	for i := range b.paths {
		if ctx.Err() != nil {
			break
		}
		p := &b.paths[i]
		b.progress(c.op.Name + ", " + c.size + ", " + p.name)
		row.Figures = append(row.Figures, c.measure(ctx, p, b.cfg.Time))
	}
	b.rep.Rows = append(b.rep.Rows, row)
}

// row returns the row of the report, without figures.
func (c *trial) row() Row {
	n := len(c.load.desc)
	return Row{
		Op: c.op.Name, Size: c.size, Figures: []Figure{}, Packets: n, MeanBytes: c.load.mean(),
		TextBytes: float64(c.load.text) / float64(n), Matches: len(c.want.matches), Sampled: c.want.sampled,
	}
}

// latencies times single batches of all sizes on all paths that have some.
func (b *bench) latencies(ctx context.Context, c *trial) {
	for i := range b.paths {
		p := &b.paths[i]
		for _, n := range b.cfg.Batches {
			b.progress(fmt.Sprintf("%s, %s, %s, batches of %d", c.op.Name, c.size, p.name, n))
			if ctx.Err() != nil || p.absent != "" || p.whole || n > len(b.load.desc) {
				continue
			}
			b.rep.Latency = append(b.rep.Latency, c.latency(ctx, p, n, b.cfg.Time))
		}
	}
}

// note adds a note once.
func (b *bench) note(s string) {
	if !slices.Contains(b.rep.Notes, s) {
		b.rep.Notes = append(b.rep.Notes, s)
	}
}
