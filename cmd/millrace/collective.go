package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/collective"
	"github.com/millrace/millrace/internal/app/collectiveperf"
)

func newCollective(c *console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "collective",
		Short: "Collective operations: the choice of algorithms, measurements",
		Long: `Measure collective operations (all-reduce and its family) between ranks: on this
machine with --local, or on several, where the same command runs with another --rank on
each. plan shows the measured costs of links and which algorithm each size gets.`,
		Example: `  millrace collective plan --local 8
  millrace collective bench --local 4 --operation all-gather`,
		Args: unknownCommand,

		SuggestionsMinimumDistance: 2,
		RunE:                       showHelp,
	}
	cmd.AddCommand(newCollectivePlan(c), newCollectiveBench(c), newCollectiveDoctor(c))
	return cmd
}

// collectiveRank are the flags that make a process a rank.
type collectiveRank struct {
	local, rank, ranks int
	address, keyFile   string
	rails              []string
	timeout            time.Duration
	operation          string
	smallest, largest  int
	json               bool
}

func (f *collectiveRank) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.IntVar(&f.local, "local", 0, "run so many ranks on this machine")
	fl.IntVar(&f.rank, "rank", 0, "number of this rank, from 0")
	fl.IntVar(&f.ranks, "ranks", 0, "number of ranks")
	fl.StringVar(&f.address, "address", "", "address of rank 0: host and port")
	fl.StringVar(&f.keyFile, "key-file", "", "file with the key of all ranks")
	fl.StringSliceVar(&f.rails, "rail", nil, "local address of a rail (repeatable)")
	fl.DurationVar(&f.timeout, "timeout", collective.DefaultTimeout, "give up after this time without progress")
	fl.StringVar(&f.operation, "operation", string(collective.KindAllReduce), "operation")
	fl.IntVar(&f.smallest, "min", 8, "bytes of the smallest vector")
	fl.IntVar(&f.largest, "max", 16<<20, "bytes of the largest vector")
	fl.BoolVar(&f.json, "json", false, "print JSON")
	var kinds []string
	for _, k := range collective.Kinds() {
		kinds = append(kinds, string(k))
	}
	completeWords(cmd, "operation", kinds...)
}

// kind returns the operation.
func (f *collectiveRank) kind() (collective.Kind, error) {
	k := collective.Kind(f.operation)
	if !slices.Contains(collective.Kinds(), k) {
		return k, usage("--operation %q, want one of %v", f.operation, collective.Kinds())
	}
	return k, nil
}

// kindAndSizes returns what the flags name: the operation, and the sizes of its vectors in bytes.
func (f *collectiveRank) kindAndSizes() (collective.Kind, []int, error) {
	kind, err := f.kind()
	if err != nil {
		return "", nil, err
	}
	sizes, err := f.sizes()
	return kind, sizes, err
}

// sizes returns the powers of two from the smallest to the largest size, which is the last one.
func (f *collectiveRank) sizes() (list []int, err error) {
	if f.smallest < 1 || f.largest < f.smallest || f.largest > 1<<34 {
		return nil, usage("--min %d, --max %d; want 1 to %d bytes", f.smallest, f.largest, 1<<34)
	}
	for s := f.smallest; s < f.largest; s *= 2 {
		list = append(list, s)
	}
	return append(list, f.largest), nil
}

// run connects the rank, or all ranks of this machine, and calls do. args are those of the other processes.
func (f *collectiveRank) run(ctx context.Context, c *console, args []string, do func(comm *collective.Comm, out io.Writer) error) (err error) {
	cfg := collective.Config{Rank: f.rank, Size: f.ranks, Address: f.address}
	switch {
	case f.local < 0 || f.local > 64:
		return usage("--local %d, want 1 to 64", f.local)
	case f.local > 0 && (f.ranks > 0 || f.address != "" || f.rank > 0):
		return usage("--local starts all ranks: leave out --rank, --ranks and --address")
	case f.local == 0 && (f.ranks == 0 || f.address == ""):
		return usage("no ranks: say --local N, or --rank, --ranks and --address on each machine")
	case f.timeout <= 0:
		return usage("--timeout %v, want more than 0", f.timeout)
	}
	if f.local > 0 {
		args = append([]string{"collective"}, args...)
		args = append(args, "--operation", f.operation, "--min", fmt.Sprint(f.smallest), "--max", fmt.Sprint(f.largest), "--timeout", f.timeout.String())
		var wait func() error
		if cfg, wait, err = collectiveperf.Launch(ctx, f.local, args, c.err); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, wait()) }()
	} else if cfg.Key, err = collectiveperf.Key(f.keyFile); err != nil {
		return err
	}
	cfg.Rails, cfg.Timeout = f.rails, f.timeout
	comm, err := collective.Connect(ctx, cfg)
	if err != nil {
		return err
	}
	out := io.Discard
	if comm.Rank() == 0 {
		out = c.out
	}
	if err := do(comm, out); err != nil {
		return err
	}
	return comm.Close()
}

// collectivePlan is the JSON of plan.
type collectivePlan struct {
	Ranks     int                  `json:"ranks"`
	Operation collective.Kind      `json:"operation"`
	Costs     collective.Costs     `json:"costs"`
	Sizes     []collectivePlanSize `json:"sizes"`
}

type collectivePlanSize struct {
	Bytes      int                   `json:"bytes"`
	Algorithms []collective.Estimate `json:"algorithms"`
}

func newCollectivePlan(c *console) *cobra.Command {
	var f collectiveRank
	cmd := &cobra.Command{
		Use:   "plan --local N",
		Short: "Show the costs of links, and the algorithm of each size",
		Long: `Connect the ranks, measure their links, and print the costs that algorithms are chosen
by, and for each size the algorithms with their estimated times in microseconds, the
chosen one first. No vector is moved.

--json prints one object: schema, ranks, operation, costs (seconds: alpha, beta, alpha_far,
beta_far, gamma, work, work_byte; cores, measured), sizes (bytes, algorithms with
algorithm, seconds).`,
		Example: `  millrace collective plan --local 8
  millrace collective plan --rank 0 --ranks 2 --address 10.0.0.1:7400 --key-file key`,
		Args: exactly(),
	}
	f.register(cmd)
	cmd.RunE = command(func(ctx context.Context, _ []string) error {
		kind, sizes, err := f.kindAndSizes()
		if err != nil {
			return err
		}
		return f.run(ctx, c, []string{"plan"}, func(comm *collective.Comm, out io.Writer) error {
			p := collectivePlan{Ranks: comm.Size(), Operation: kind, Costs: comm.Costs()}
			for _, s := range sizes {
				p.Sizes = append(p.Sizes, collectivePlanSize{s, comm.Plan(kind, s)})
			}
			switch {
			case out == io.Discard:
				return nil
			case f.json:
				return c.json(p)
			}
			return showCollectivePlan(out, &p)
		})
	})
	return cmd
}

func showCollectivePlan(out io.Writer, p *collectivePlan) error {
	k := &p.Costs
	fmt.Fprintf(out, "%s, %d ranks\n", p.Operation, p.Ranks)
	fmt.Fprintf(out, "message %.1f us, byte %.3f ns; between machines %.1f us, %.3f ns; reduced byte %.3f ns\n", k.Alpha*1e6, k.Beta*1e9, k.AlphaFar*1e6, k.BetaFar*1e9, k.Gamma*1e9)
	fmt.Fprintf(out, "all ranks at a time, on %d cores: message %.1f us, byte %.3f ns of a core\n", k.Cores, k.Work*1e6, k.WorkByte*1e9)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "BYTES\tCHOSEN\tUS\tOTHERS\n")
	for _, s := range p.Sizes {
		var others []string
		for _, e := range s.Algorithms[1:] {
			others = append(others, fmt.Sprintf("%s %.1f", e.Algorithm, e.Seconds*1e6))
		}
		fmt.Fprintf(w, "%d\t%s\t%.1f\t%s\n", s.Bytes, s.Algorithms[0].Algorithm, s.Algorithms[0].Seconds*1e6, strings.Join(others, ", "))
	}
	return w.Flush()
}

func newCollectiveBench(c *console) *cobra.Command {
	var f collectiveRank
	var iterations int
	var sweep bool
	cmd := &cobra.Command{
		Use:   "bench --local N",
		Short: "Measure an operation at each size",
		Long: `Measure an operation of float32 vectors (reductions: sum) at each size, and check its
result. The time of an iteration is that of the slowest rank. Bus bandwidth is what each
link carries, counted as nccl-tests does. --sweep measures each algorithm, and by how
much the chosen one is slower than the fastest.

--json prints a line for each row: schema, operation, algorithm, chosen, bytes, median_us, min_us,
max_us, cpu_us (of all ranks, for an operation), algorithm_gb_per_second,
bus_gb_per_second, estimated_us.`,
		Example: `  millrace collective bench --local 8
  millrace collective bench --local 8 --sweep --min 1024 --max 1048576
  millrace collective bench --rank 1 --ranks 2 --address 10.0.0.1:7400 --key-file key`,
		Args: exactly(),
	}
	f.register(cmd)
	cmd.Flags().IntVarP(&iterations, "iters", "n", 0, "iterations (0: by size)")
	cmd.Flags().BoolVar(&sweep, "sweep", false, "measure each algorithm")
	cmd.RunE = command(func(ctx context.Context, _ []string) error {
		kind, sizes, err := f.kindAndSizes()
		if err != nil {
			return err
		}
		if iterations < 0 {
			return usage("--iters %d, want none below 0", iterations)
		}
		args := []string{"bench", "--iters", fmt.Sprint(iterations), fmt.Sprintf("--sweep=%v", sweep)}
		return f.run(ctx, c, args, func(comm *collective.Comm, out io.Writer) error {
			b := collectiveBench{c: c, json: f.json, out: out, silent: out == io.Discard}
			return b.run(comm, collectiveperf.Test{Kind: kind, Type: collective.Float32, Op: collective.Sum, Iterations: iterations}, sizes, sweep)
		})
	})
	return cmd
}

// collectiveBench prints rows as they come.
type collectiveBench struct {
	c            *console
	out          io.Writer
	json, silent bool
}

func (b *collectiveBench) run(comm *collective.Comm, t collectiveperf.Test, sizes []int, sweep bool) error {
	fixed := t.Iterations
	if !b.json {
		fmt.Fprintf(b.out, "%10s  %-20s %12s %12s %12s %12s %10s\n", "BYTES", "ALGORITHM", "MEDIAN US", "MIN US", "CPU US", "ESTIMATE US", "BUS GB/S")
	}
	for _, size := range sizes {
		t.Bytes, t.Warmup = size, 3
		if t.Iterations = fixed; fixed == 0 {
			t.Iterations = min(max((16<<20)/size, 10), 500)
		}
		if !sweep {
			r, err := collectiveperf.Run(comm, t)
			if err != nil {
				return err
			}
			if err := b.row(&r); err != nil {
				return err
			}
			continue
		}
		results, err := collectiveperf.Sweep(comm, t)
		if err != nil {
			return err
		}
		for i := range results {
			if err := b.row(&results[i]); err != nil {
				return err
			}
		}
		if !b.json {
			fmt.Fprintf(b.out, "%10s  the choice is %.0f %% slower than the fastest\n", "", 100*collectiveperf.Excess(results))
		}
	}
	return nil
}

func (b *collectiveBench) row(r *collectiveperf.Result) error {
	switch {
	case b.silent:
		return nil
	case b.json:
		return b.c.jsonLine(r)
	}
	name := string(r.Algorithm)
	if r.Chosen {
		name += " *"
	}
	_, err := fmt.Fprintf(b.out, "%10d  %-20s %12.1f %12.1f %12.1f %12.1f %10.3f\n", r.Bytes, name, r.Median, r.Least, r.CPU, r.Estimated, r.Bus)
	return err
}
