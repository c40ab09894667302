// Command bench measures Millrace against its peers.
//
//	go -C bench run . -list
//	go -C bench run . -suite packet-io [-rounds 5] [-duration 1s] [-only rx] [-json] [-strict]
//
// A suite is a set of measures; every contestant of a measure runs in each round, pinned, in turn,
// with the first place rotating. Results go to bench/results/SUITE.{json,md}. Progress goes to
// stderr. README.md says how to read the tables and how to add a suite.
//
// `bench role ...` is not for people: it is how the program runs parts of itself as contestants.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
	"github.com/millrace/millrace/internal/testkit/checkout"
)

// Exit codes.
const (
	exitOK          = 0
	exitFailed      = 1 // the suite could not be run or written
	exitUsage       = 2
	exitUnmet       = 3 // with -strict: a gate is not met or a contestant failed
	exitInterrupted = 130
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "role" {
		os.Exit(role.Run(os.Args[2:]))
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	cancel()
	os.Exit(code)
}

// defaultRounds is how often each contestant runs.
const defaultRounds = 5

type flags struct {
	suite, out, merge  string
	only               []string
	list, json, strict bool
	quick, page        bool
	rounds, repeat     int
	ownRounds          bool // -rounds was given
	duration, warmup   time.Duration
}

func parseFlags(args []string, stderr io.Writer) (flags, error) {
	var f flags
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&f.suite, "suite", "", "suite to run; -list names them")
	fs.Func("only", "run only what has this text in its \"measure/contestant\", or that of another -only; stored with -out alone", func(text string) error {
		f.only = append(f.only, text)
		return nil
	})
	fs.StringVar(&f.out, "out", "", "folder of the results (default bench/results)")
	fs.StringVar(&f.merge, "merge", "", "suite kern: take the figures of all operations from a file that `millrace bench kern --json` wrote, on a machine with a GPU")
	fs.BoolVar(&f.quick, "quick", false, "suite kern: all operations with fewer sizes and packets, and less time")
	fs.BoolVar(&f.page, "performance", false, "write docs/performance.md and the README's table of the results in "+publishedDir+", and end")
	fs.BoolVar(&f.list, "list", false, "list the suites and end")
	fs.BoolVar(&f.json, "json", false, "print JSON, not Markdown")
	fs.BoolVar(&f.strict, "strict", false, "exit with 3 when a gate is not met or a contestant failed")
	fs.IntVar(&f.rounds, "rounds", defaultRounds, "runs of each contestant; a suite may have a default of its own")
	fs.IntVar(&f.repeat, "repeat", 2, "how often a run that other processes disturbed is repeated")
	fs.DurationVar(&f.duration, "duration", time.Second, "measured window of a run")
	fs.DurationVar(&f.warmup, "warmup", 200*time.Millisecond, "time before the window")
	if err := fs.Parse(args); err != nil {
		return f, err
	}
	fs.Visit(func(set *flag.Flag) { f.ownRounds = f.ownRounds || set.Name == "rounds" })
	switch {
	case fs.NArg() > 0:
		return f, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case f.list || f.page:
		return f, nil
	case (f.merge != "" || f.quick) && f.suite != kern.Name:
		return f, errors.New("-merge and -quick are of the suite kern")
	case f.suite == "":
		return f, errors.New("which suite? -list names them")
	case f.rounds < 1 || f.repeat < 0 || f.duration <= 0 || f.warmup < 0:
		return f, errors.New("-rounds and -duration must be positive, -repeat and -warmup not negative")
	}
	return f, nil
}

// run is main with its surroundings as arguments; it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	f, err := parseFlags(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintln(stderr, "bench:", err)
		return exitUsage
	case f.page:
		if err := writePerformance(); err != nil {
			fmt.Fprintln(stderr, "bench:", err)
			return exitFailed
		}
		return exitOK
	case f.list:
		for _, s := range suites {
			fmt.Fprintf(stdout, "%-12s %s\n", s.Name, s.Title)
		}
		return exitOK
	}
	s, ok := suiteNamed(f.suite)
	if !ok {
		fmt.Fprintf(stderr, "bench: no suite %q: -list names them\n", f.suite)
		return exitUsage
	}
	res, err := f.execute(ctx, s, stderr)
	if ctx.Err() != nil {
		fmt.Fprintln(stderr, "bench: interrupted; nothing was stored")
		return exitInterrupted
	}
	if err == nil {
		err = f.report(res, stdout)
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return exitFailed
	}
	gates, failures := res.Unmet()
	if gates+failures > 0 {
		fmt.Fprintf(stderr, "bench: %d gates not met, %d runs failed\n", gates, failures)
		if f.strict {
			return exitUnmet
		}
	}
	return exitOK
}

func (f flags) execute(ctx context.Context, s harness.Suite, stderr io.Writer) (*harness.Result, error) {
	root, err := checkout.Root()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	e := &harness.Env{Root: root, Self: self, Merge: f.merge, Quick: f.quick, Log: func(format string, args ...any) {
		fmt.Fprintf(stderr, "%6.1fs  "+format+"\n", append([]any{time.Since(begin).Seconds()}, args...)...)
	}}
	return harness.Run(ctx, s, e, f.plan(s))
}

func (f flags) plan(s harness.Suite) harness.Plan {
	p := harness.Plan{Rounds: f.rounds, Repeat: f.repeat, Only: f.only, Timing: harness.Timing{Warmup: f.warmup, Window: f.duration}}
	if !f.ownRounds {
		p.Rounds = cmp.Or(s.Rounds, defaultRounds)
	}
	return p
}

// report prints the result and, when the whole suite was run, stores it.
func (f flags) report(res *harness.Result, stdout io.Writer) error {
	text := res.Markdown()
	if f.json {
		b, err := res.Encode()
		if err != nil {
			return err
		}
		text = string(b)
	}
	if _, err := io.WriteString(stdout, text); err != nil {
		return err
	}
	if f.only != nil && f.out == "" {
		return nil
	}
	out := f.out
	if out == "" {
		root, err := checkout.Root()
		if err != nil {
			return err
		}
		out = filepath.Join(root, "bench", "results")
	}
	return res.Write(out)
}
