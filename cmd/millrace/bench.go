package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/app/kernbench"
)

// benchFlags are the flags of bench kern.
type benchFlags struct {
	cfg        kernbench.Config
	json, list bool
	plot       string
}

const benchLong = `Measure parts of Millrace on this machine.`

const benchKernLong = `Measure the operations of the batch engine: on one core, on all cores, and, with a
GPU, from host memory through the ring and in bulk, and from the GPU's own memory.
Operations with keys follow: signatures, verifications and key exchanges, and texts
of 1408 bytes that are sealed, hashed and authenticated.
Cases that the CPU wins are in the same table.

Every result of every run is compared: the CPU form with the slow reference on a
sample, and every path with the CPU form on all packets; results are poisoned
before each run. "verified" counts what was compared. A wrong result is an error
and exit code 1, not a rate.

Packets have 64, 256 and 1408 bytes, the IMIX of 7 x 60, 4 x 590 and 1 x 1514, or
come from the captures in a folder (--captures, or $MILLRACE_PCAPS); literals are
searched in adversarial text too. GB/s count the packets' bytes without the
frame check sequence; those of literals count payloads alone.

Latencies are of single batches, from Submit to Poll, one at a time.

Ctrl-C stops and prints what was measured.

--json prints one object: schema, version, machine, seed, packets, seconds, notes,
stopped, rows (list: op, size, packets, mean_bytes, text_mean_bytes, matches,
reference_sample, error, figures: list of path, batch, packets_per_second,
best_packets_per_second, bytes_per_second, runs, packets, verified, seconds,
thread_cpu_seconds, no_room, cpu_watts, gpu_watts, not_run, error), latency
(list: op, size, path, batch, least_us, p50_us, p99_us, batches, verified,
not_run, error), keys (list: op, error, gpu_from_one_core, gpu_from_all_cores,
figures: list of path, operations, operations_per_second, runs, verified, cpu_watts,
gpu_watts, not_run, error; calls: list of operations, ms, runs) and calibrations
(list: ops, bytes, break_even, break_even_alone, cpu, gpu: fixed_ns, packet_ns,
pipelined_ns, and text). A path is cpu-one, cpu-all, cuda-ring, cuda-host or
cuda-resident.`

const benchKernExamples = `  millrace bench kern --quick
  millrace bench kern --ops header,literals --sizes 64,captures --captures pcaps
  millrace bench kern --engine cuda --json >kern.json
  millrace bench kern --plot plots`

// drawCharts draws a report into a folder. It is nil in the static program: fonts are 8 MB.
var drawCharts func(rep *kernbench.Report, dir string) error

func newBench(c *console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure parts of Millrace",
		Long:  benchLong,
		Args:  unknownCommand,

		SuggestionsMinimumDistance: 2,
		RunE:                       showHelp,
	}
	cmd.AddCommand(newBenchKern(c))
	return cmd
}

func newBenchKern(c *console) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:     "kern",
		Short:   "Measure the operations of the batch engine",
		Long:    benchKernLong,
		Example: benchKernExamples,
		Args:    cobra.NoArgs,
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&f.cfg.Ops, "ops", nil, "operations, or groups such as acl and keys (default: all)")
	fl.StringSliceVar(&f.cfg.Sizes, "sizes", nil, "sizes of packets (default: all)")
	fl.IntVar(&f.cfg.Packets, "packets", 0, "different packets, at most (default 131072)")
	fl.DurationVar(&f.cfg.Time, "time", 0, "time measured for each figure (default 200ms)")
	fl.IntVar(&f.cfg.Cores, "cores", 0, "how many cores are all (default: those that it may use)")
	fl.Uint64Var(&f.cfg.Seed, "seed", 1, "seed of packets and tables")
	fl.StringVar(&f.cfg.Engine, "engine", "auto", "cpu, cuda (an error without a GPU) or auto")
	fl.StringVar(&f.cfg.Captures, "captures", os.Getenv("MILLRACE_PCAPS"), "folder of pcap files")
	fl.BoolVar(&f.cfg.Quick, "quick", false, "fewer sizes and packets, and less time")
	fl.BoolVar(&f.json, "json", false, "print JSON")
	fl.StringVar(&f.plot, "plot", "", "folder to draw SVG files into")
	fl.BoolVar(&f.list, "list", false, "list the operations and sizes, and end")
	fl.Lookup("captures").DefValue = ""
	completeWords(cmd, "engine", engineWords...)
	completeWords(cmd, "sizes", kernbench.Sizes()...)
	cmd.RunE = command(func(ctx context.Context, _ []string) error {
		if f.list {
			return listOps(c, f.json)
		}
		return runBenchKern(ctx, c, &f)
	})
	return cmd
}

// listOps prints what can be measured.
func listOps(c *console, asJSON bool) error {
	type entry struct {
		Name  string   `json:"name"`
		Title string   `json:"title"`
		Sizes []string `json:"sizes"`
	}
	var all []entry
	for _, o := range kernbench.Ops() {
		all = append(all, entry{o.Name, o.Title, o.Sizes()})
	}
	for _, o := range append(kernbench.KeyOps(), kernbench.TextOps()...) {
		all = append(all, entry{o.Name, o.Title, []string{}})
	}
	if asJSON {
		return c.json(struct {
			Operations []entry `json:"operations"`
		}{all})
	}
	for _, e := range all {
		c.printf("%s %s\n", c.paint(bold, fmt.Sprintf("%-17s", e.Name)), e.Title)
		if len(e.Sizes) > 0 {
			c.printf("%18s%s\n", "", strings.Join(e.Sizes, " "))
		}
	}
	return nil
}

func runBenchKern(ctx context.Context, c *console, f *benchFlags) error {
	if err := checkEngine(f.cfg.Engine); err != nil {
		return err
	}
	cfg := f.cfg
	cfg.Version = thisBuild().Version
	if err := cfg.Check(); err != nil {
		return coded{err, errUsage}
	}
	if f.plot != "" && drawCharts == nil {
		return coded{errors.New("this program draws no charts: the one with GPUs does (`make build-cuda`)"), errUsage}
	}
	if f.plot != "" {
		if err := os.MkdirAll(f.plot, 0o755); err != nil {
			return fmt.Errorf("plots: %w", err)
		}
	}
	rep, err := runKern(ctx, c, cfg)
	if rep == nil {
		return err
	}
	if f.json {
		err = errors.Join(err, c.json(rep))
	} else {
		showKern(c, rep)
	}
	if f.plot != "" {
		err = errors.Join(err, drawCharts(rep, f.plot))
	}
	for _, s := range rep.Failed() {
		c.complain(errors.New(s))
	}
	if err == nil && len(rep.Failed()) > 0 {
		return errShown
	}
	return err
}

// runKern measures with a bar on a terminal. Its error names the remedy where no GPU can be used; there is no report then.
func runKern(ctx context.Context, c *console, cfg kernbench.Config) (*kernbench.Report, error) {
	steps := &steps{}
	if c.live {
		cfg.Progress = steps.show(c)
	}
	rep, err := kernbench.Run(ctx, cfg)
	steps.end()
	if rep == nil {
		return nil, engineError(err)
	}
	return rep, err
}

// showKern prints the tables.
func showKern(c *console, rep *kernbench.Report) {
	m := &rep.Machine
	c.line("cpu", "%s, %d cores used, %s", m.CPU, m.Cores, m.Vector)
	if m.GPU != "" {
		c.line("gpu", "%s, %s, driver %s", m.GPU, m.GPUBus, m.Driver)
	}
	c.line("loads", "at most %d packets, %v for each figure, seed %d", rep.Packets, time.Duration(rep.Seconds*1e9), rep.Seed)
	for _, n := range rep.Notes {
		c.line("note", "%s", n)
	}
	c.printf("\n")
	rep.WriteText(c.out)
	c.printf("\n")
	c.line("verified", "%s results compared", group(rep.Verified()))
	if rep.Stopped {
		c.line("stopped", "before the end")
	}
}

// steps is the progress of a measurement on a terminal.
type steps struct{ bar *progressbar.ProgressBar }

// show draws a bar that says what is measured.
func (s *steps) show(c *console) func(at, of int, what string) {
	return func(at, of int, what string) {
		if s.bar == nil {
			s.bar = progressbar.NewOptions(of,
				progressbar.OptionSetWriter(c.err),
				progressbar.OptionSetWidth(20),
				progressbar.OptionThrottle(50*time.Millisecond),
				progressbar.OptionClearOnFinish(),
			)
		}
		s.bar.Describe(fmt.Sprintf("%-40s", what))
		_ = s.bar.Set(min(at, of)) // printing the result reports a terminal that is gone
	}
}

// end removes the bar.
func (s *steps) end() {
	if s.bar != nil {
		_ = s.bar.Finish()
	}
}
