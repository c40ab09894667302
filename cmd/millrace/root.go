package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/millrace/millrace/internal/suggest"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The exit codes. They are part of the interface.
const (
	exitOK      = 0
	exitFailure = 1 // something did not work, or was found wanting
	exitUsage   = 2 // the command line is wrong
	exitConfig  = 3 // the configuration file is wrong
)

// errUsage, errConfig and errReload choose the exit code of the errors that wrap them.
var (
	errUsage  = errors.New("wrong usage")
	errConfig = errors.New("wrong configuration")
	errReload = errors.New("refused configuration") // of a gateway that runs on
)

// coded is an error whose text stays as it is but that matches a code's sentinel.
type coded struct {
	error
	code error
}

func (c coded) Unwrap() []error { return []error{c.error, c.code} }

// usage makes an error about the command line.
func usage(format string, args ...any) error { return coded{fmt.Errorf(format, args...), errUsage} }

// errShown ends a verb with code 1 whose message has been printed already.
var errShown = errors.New("failed")

// execute runs the program and returns its exit code.
func execute(ctx context.Context, args []string, c *console) int {
	root := newRoot(c)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	var ran *failure
	switch {
	case err == nil && c.lost != nil && !errors.Is(c.lost, syscall.EPIPE): // a full disk: half a result is none; who closes a pipe has read enough
		c.complain(c.lost)
		return exitFailure
	case err == nil:
		return exitOK
	case errors.Is(err, errShown) && errors.Is(err, errConfig):
		return exitConfig
	case errors.Is(err, errShown):
		return exitFailure
	case errors.Is(err, errUsage), !errors.As(err, &ran): // cobra's own errors come before any verb runs
		c.complain(fmt.Errorf("%w (see `%s --help`)", err, cmd.CommandPath()))
		return exitUsage
	}
	if errors.Is(err, errConfig) {
		c.complain(fmt.Errorf("wrong configuration, nothing was started\n%w", err))
		return exitConfig
	}
	if errors.Is(err, errReload) {
		c.complain(fmt.Errorf("wrong configuration, the old one stays\n%w", err))
		return exitConfig
	}
	c.complain(err)
	return exitFailure
}

// failure is what a verb returned, as opposed to what cobra found wrong before it ran.
type failure struct{ error }

func (f *failure) Unwrap() error { return f.error }

// verb makes a cobra run function of one that needs the context and the arguments.
func verb(run func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := run(cmd.Context(), args); err != nil {
			return &failure{err}
		}
		return nil
	}
}

func newRoot(c *console) *cobra.Command {
	root := &cobra.Command{
		Use:   "millrace",
		Short: "Userspace packet processing",
		Long: `Millrace takes packets from a network device or a capture, looks at each of
them once, and filters, forwards or balances them, without the kernel's stack.

Exit codes: 0 done; 1 something failed or was found wanting; 2 wrong command
line; 3 wrong configuration file.`,
		Example: `  millrace doctor                      what this machine can do, and what it lacks
  millrace replay trace.pcap           look at every packet of a capture
  millrace forward eth1 eth2           join two devices
  millrace gateway -c gateway.yaml     balance load
  millrace bench kern --quick          how fast the batch engine is here`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noSuchVerb,

		SuggestionsMinimumDistance: 2,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(c.out)
	root.SetErr(c.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return coded{suggestFlag(cmd.Flags(), err), errUsage}
	})
	root.AddCommand(newDoctor(c), newReplay(c), newForward(c), newGateway(c), newStack(c), newNet(c), newBench(c), newVersion(c), newMan(c))
	return root
}

// noSuchVerb is what is wrong with arguments that lead to no verb.
func noSuchVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usage("no verb %q, did you mean %s?", args[0], strings.Join(near, " or "))
	}
	return usage("no verb %q", args[0])
}

// suggestFlag adds the flag that was probably meant to the error of an unknown one.
func suggestFlag(flags *pflag.FlagSet, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	var names []string
	flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	best := suggest.Nearest(unknown.GetSpecifiedName(), 2, names...)
	if best == "" {
		return err
	}
	return fmt.Errorf("%w, did you mean --%s?", err, best)
}
