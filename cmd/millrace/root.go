package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"

	"github.com/millrace/millrace/internal/suggest"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The exit codes. They are part of the interface.
const (
	exitOK      = 0
	exitFailure = 1 // something failed, or a check did
	exitUsage   = 2 // the command line is wrong
	exitConfig  = 3 // the configuration file is wrong
	exitTimeout = 4 // what a command waits for did not happen in time
	exitLeft    = 5 // gateway convert has left something out
)

// errUsage, errConfig, errNotStarted, errReload and errTimeout choose the exit code of the errors that wrap them.
var (
	errUsage  = errors.New("wrong usage")
	errConfig = errors.New("wrong configuration")
	errReload = errors.New("rejected configuration") // of a running process, which keeps its own

	errNotStarted = fmt.Errorf("%w, nothing was started", errConfig) // of a command that starts what the file describes

	errTimeout = errors.New("timeout")  // of --wait
	errLeft    = errors.New("left out") // of convert
)

// coded is an error whose text stays as it is but that matches a code's sentinel.
type coded struct {
	error
	code error
}

func (c coded) Unwrap() []error { return []error{c.error, c.code} }

// starting marks an error of a command that would have started something.
func starting(err error) error {
	if errors.Is(err, errConfig) {
		return coded{err, errNotStarted}
	}
	return err
}

// usage returns an error about the command line.
func usage(format string, args ...any) error { return coded{fmt.Errorf(format, args...), errUsage} }

// errShown ends a command with code 1 whose message has been printed already.
var errShown = errors.New("failed")

// execute runs the program and returns its exit code.
func execute(ctx context.Context, args []string, c *console) int {
	root := newRoot(c)
	root.SetArgs(append([]string{}, args...)) // not nil, which stands for os.Args
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil { // --help comes before the check of arguments
		_, err = helpTopic(cmd)
	}
	var ran *failure
	var not notStarted
	switch {
	case errors.As(err, &not):
		c.complain(not.error)
		return not.code
	case err == nil && c.lost != nil && !errors.Is(c.lost, syscall.EPIPE): // a full disk; a reader may close its pipe early
		c.complain(c.lost)
		return exitFailure
	case err == nil:
		return exitOK
	case errors.Is(err, errShown) && errors.Is(err, errConfig):
		return exitConfig
	case errors.Is(err, errShown) && errors.Is(err, errLeft):
		return exitLeft
	case errors.Is(err, errShown):
		return exitFailure
	case errors.Is(err, errUsage), !errors.As(err, &ran): // cobra's own errors come before any command runs
		c.complain(fmt.Errorf("%w (see `%s --help`)", err, cmd.CommandPath()))
		return exitUsage
	}
	if errors.Is(err, errConfig) {
		headline := errConfig
		if errors.Is(err, errNotStarted) {
			headline = errNotStarted
		}
		c.complain(fmt.Errorf("%v\n%w", headline, err))
		return exitConfig
	}
	if errors.Is(err, errReload) {
		c.complain(fmt.Errorf("wrong configuration, the old one stays in use\n%w", err))
		return exitConfig
	}
	c.complain(err)
	if errors.Is(err, errTimeout) {
		return exitTimeout
	}
	return exitFailure
}

// failure is the error of a command, as opposed to those that cobra finds before it runs.
type failure struct{ error }

func (f *failure) Unwrap() error { return f.error }

// command makes a cobra run function of one that takes the context and the arguments.
func command(run func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
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
		Long: `Millrace is a gateway and a network stack in user space. The gateway routes HTTP/1.1,
2 and 3, WebSocket and gRPC, passes TLS and TCP through, and balances packets of
TCP, UDP and QUIC. The stack terminates TCP, UDP, TLS, QUIC and HTTP without the
kernel's. Other commands filter, forward and analyse packets.

Exit codes: 0 success; 1 something failed, or a check did; 2 wrong command line;
3 wrong configuration file; 4 a timeout passed (gateway drain --wait); 5 gateway convert
has left something out.

JSON: every document that --json prints has "schema": 1 at its top level. Within
a schema, keys are added but never renamed or removed.

Environment: MILLRACE_SOCKET is the default of --socket in the commands that ask
a running gateway or stack; NO_COLOR turns colours off.`,
		Example: `  millrace doctor                      what this machine can do, and what it lacks
  millrace replay trace.pcap           analyse every packet of a capture
  millrace forward eth1 eth2           bridge two devices
  millrace gateway -c gateway.yaml     route HTTP, balance TCP, UDP and QUIC
  millrace serve DIR                   serve the files of a folder
  millrace stack up -c stack.yaml      run a host in user space
  millrace bench kern --quick          how fast the batch engine is here`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          unknownCommand,

		SuggestionsMinimumDistance: 2,
	}
	root.SetOut(c.out)
	root.SetErr(c.err)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		if topic, err := helpTopic(cmd); err == nil {
			topic.InitDefaultHelpFlag()
			io.WriteString(cmd.OutOrStdout(), helpOf(topic))
		}
	})
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return coded{suggestFlag(cmd.Flags(), wordFlagError(err)), errUsage}
	})
	version := root.Flags().Bool("version", false, "print the version")
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *version {
			c.printf("millrace %s\n", thisBuild().Version)
			return nil
		}
		return showHelp(cmd, args)
	}
	root.SetHelpCommand(newHelp())
	root.AddCommand(newDoctor(c), newDPDK(c), newReplay(c), newFilter(c), newForward(c), newGateway(c), newServe(c), newStack(c), newExec(c), newSupervise(), newNet(c), newRDMA(c), newCollective(c), newWS(c), newGet(c), newBench(c), newVersion(c), newMan(c))
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Args, cmd.SuggestionsMinimumDistance, cmd.RunE = unknownCommand, 2, showHelp
		}
	}
	return root
}

// showHelp runs a command that only has others.
func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// unknownCommand returns the error of arguments that name no command.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usage("unknown command %q, did you mean %s?", args[0], strings.Join(near, " or "))
	}
	return usage("unknown command %q", args[0])
}

// helpTopic returns the command that the arguments beside --help name, below cmd: cobra takes the word behind --help
// for its value. A word that is no command is an error.
func helpTopic(cmd *cobra.Command) (*cobra.Command, error) {
	for _, name := range cmd.Flags().Args() {
		if !cmd.HasAvailableSubCommands() {
			return cmd, nil
		}
		next, _, err := cmd.Find([]string{name})
		if err != nil || next == cmd {
			return cmd, unknownCommand(cmd, []string{name})
		}
		cmd = next
	}
	return cmd, nil
}

// newHelp returns the command help. Cobra's own prints a message and succeeds where there is no such command.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND...]",
		Short: "Help about a command",
		Long:  `Print the help of a command, as COMMAND --help does.`,
		Example: `  millrace help replay
  millrace help gateway status`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			found, _, err := cmd.Root().Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, sub := range found.Commands() {
				if sub.IsAvailableCommand() && strings.HasPrefix(sub.Name(), prefix) {
					names = append(names, sub.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			found := cmd.Root()
			for _, name := range args {
				next, _, err := found.Find([]string{name})
				if err != nil || next == found {
					return unknownCommand(found, []string{name})
				}
				found = next
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	}
}

// wordFlagError reports what is wrong with the number or the choice that a flag was given.
func wordFlagError(err error) error {
	var invalid *pflag.InvalidValueError
	var parse *strconv.NumError
	if !errors.As(err, &invalid) || !errors.As(err, &parse) {
		return err
	}
	wrong := "is not a whole number"
	switch {
	case errors.Is(parse.Err, strconv.ErrRange):
		wrong = "is out of range"
	case parse.Func == "ParseFloat":
		wrong = "is not a number"
	case parse.Func == "ParseBool":
		wrong = "is neither true nor false"
	}
	return fmt.Errorf("--%s: %q %s", invalid.GetFlag().Name, invalid.GetValue(), wrong)
}

// suggestFlag adds the nearest flag to the error of an unknown one.
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
