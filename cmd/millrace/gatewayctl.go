package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/regfile"
	"github.com/millrace/millrace/l4/inspection"
	l7control "github.com/millrace/millrace/l7/control"
)

func newGatewayCheck(c *console) *cobra.Command {
	var config, before string
	var asJSON, all bool
	cmd := &cobra.Command{
		Use:   "check -c FILE",
		Short: "Check a configuration file",
		Long: `Check a configuration file ("-" is standard input) and the lists and certificates
that it names, and do nothing else. Errors are printed with line, column, the offending
line and a suggestion: the first 20, or with --all every one.

--diff OLD says what changes from the file OLD: services, listeners, routes, pools,
backends and keys that are added (+), removed (-) or changed (~), and what a reload
refuses because it needs a restart. The first 20 changes are printed.

Exit code 0 without errors, 3 otherwise.

--json prints one object: schema, valid, errors (list of file, line, column,
message, source, hint) and more_errors (how many are left out of list files with
very many); with --diff also changes (list of what, service, pool, backend, listener,
route, key, old, new, restart; at most 1000) and more_changes (how many are left out).`,
		Example: `  millrace gateway check -c gateway.yaml && millrace gateway reload
  millrace gateway check -c new.yaml --diff /etc/millrace/gateway.yaml`,
		Args: exactly(),
	}
	cmd.Flags().StringVarP(&config, "config", "c", "", "configuration file; - is standard input")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&all, "all", false, "print all errors, however many")
	cmd.Flags().StringVar(&before, "diff", "", "say what changes from this configuration file")
	completeFiles(cmd, "config", "yaml", "yml")
	completeFiles(cmd, "diff", "yaml", "yml")
	cmd.RunE = command(func(context.Context, []string) error {
		if config == "" {
			return usage("no configuration file; name one with -c")
		}
		if config == standardInput && before == standardInput {
			return usage("-c and --diff are both standard input; name a file for one of them")
		}
		err := check(c, config, before, asJSON)
		if all {
			return allProblems(err)
		}
		return err
	})
	return cmd
}

// checkResult is the result of check --json.
type checkResult struct {
	Valid  bool             `json:"valid"`
	Errors []config.Problem `json:"errors"`

	MoreErrors int `json:"more_errors,omitempty"` // of list files, how many are left out

	Changes     []config.Change `json:"changes,omitempty"`      // with --diff
	MoreChanges int             `json:"more_changes,omitempty"` // how many are left out
}

// What check --diff and reload print at most.
const (
	shownChanges = 20
	jsonChanges  = 1000
)

// allProblems returns err with the text of all problems that it holds.
func allProblems(err error) error {
	ce := new(config.Error)
	if !errors.As(err, &ce) {
		return err
	}
	return coded{errors.New(ce.Text(len(ce.Problems))), errConfig}
}

// check checks a file, and says what changes from the file before, if that is not "".
func check(c *console, file, before string, asJSON bool) error {
	cfg, err := examineGateway(c, file)
	ce := new(config.Error)
	switch {
	case err != nil && (!asJSON || !errors.As(err, &ce)):
		return configured(err, file)
	case err != nil:
		return errors.Join(c.json(checkResult{Errors: ce.Problems, MoreErrors: ce.More}), coded{errShown, errConfig})
	}
	var changes []config.Change
	if before != "" {
		old, err := loadGateway(c, before)
		if err != nil {
			return configured(err, before)
		}
		changes = config.Diff(old, cfg)
	}
	if asJSON {
		n := min(len(changes), jsonChanges)
		return c.json(checkResult{Valid: true, Errors: []config.Problem{}, Changes: changes[:n], MoreChanges: len(changes) - n})
	}
	c.printf("%s: the configuration is valid\n", inputName(file))
	if before != "" {
		if len(changes) == 0 {
			c.printf("nothing changes from %s\n", inputName(before))
		}
		printChanges(c, changes, len(changes))
	}
	return nil
}

// printChanges prints the first of so many changes, and how many there are more.
func printChanges(c *console, changes []config.Change, all int) {
	n := min(len(changes), shownChanges)
	for _, change := range changes[:n] {
		c.printf("  %s\n", change)
	}
	if more := all - n; more > 0 {
		c.printf("  ... and %s more\n", group(uint64(more)))
	}
}

// standardInput is the file name that stands for it, and inputName its name in messages.
const standardInput = "-"

func inputName(file string) string {
	if file == standardInput {
		return "<stdin>"
	}
	return file
}

// loadGateway checks a file or standard input.
func loadGateway(c *console, file string) (*config.Config, error) {
	if file == standardInput {
		return config.Read(inputName(file), c.in)
	}
	return config.Load(file)
}

// examineGateway checks a file or standard input, and the files of rules that it names. The error has the errors of all.
func examineGateway(c *console, file string) (*config.Config, error) {
	in := c.in
	if file != standardInput {
		f, err := regfile.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	cfg, err := config.Examine(inputName(file), in)
	if cfg == nil {
		return nil, err
	}
	return cfg, config.JoinErrors(config.JoinErrors(err, inspection.Check(cfg)), l7control.CheckFirewalls(cfg, firewall))
}

func newGatewayReload(c *console) *cobra.Command {
	var dryRun bool
	cmd := newControl(c, &cobra.Command{
		Use:   "reload",
		Short: "Reload the configuration of a running gateway",
		Long: `Make a running gateway read its configuration file again, as SIGHUP does, and
wait for the result. Connections continue, and unchanged services keep their
tables. If the file has errors, they are printed, the old configuration stays in
use, and the exit code is 3. The first 20 changes of services, listeners, routes,
pools, backends and keys are printed; what other files contain is not compared.

--dry-run says what would change, and changes nothing. It fails where a reload would.

--json prints one object, when the new configuration is in use: schema, added,
removed, changed (how many), changes (list of what, service, pool, backend, listener,
route, key, old, new, restart; at most 1000), more_changes (how many are left out),
and of a dry run refused (why a reload would fail).`,
		Example: `  millrace gateway reload
  millrace gateway reload --dry-run`,
		Args: exactly(),
	}, func(ctx context.Context, g *admin.Client, f *control, _ []string) error {
		changes, err := g.Reload(ctx, dryRun)
		if err != nil {
			return err
		}
		var refused error
		if changes.Refused != "" {
			refused = errors.New("a reload would be refused: " + changes.Refused)
		}
		if f.json {
			return errors.Join(c.jsonLine(changes), refused)
		}
		all := len(changes.List) + changes.More
		switch {
		case dryRun && all == 0:
			c.printf("no key would change; the files that the configuration names would be read again\n")
		case dryRun:
			c.printf("a reload would change:\n")
		case all == 0:
			c.printf("the new configuration is in use: no key has changed, and the files that it names were read again\n")
		default:
			c.printf("the new configuration is in use\n")
		}
		printChanges(c, changes.List, all)
		return refused
	})
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would change, and change nothing")
	return cmd
}

func newGatewayStop(c *console) *cobra.Command {
	return newControl(c, &cobra.Command{
		Use:   "stop",
		Short: "Stop a running gateway",
		Long: `Stop a running gateway, as SIGTERM does, and wait for the end of its process: its
addresses and interfaces are free then. Its connections are lost, unless their
packets go to another gateway with the same configuration. Requests in progress
have the time of timeouts.drain.

--json prints one object: schema.`,
		Example: `  millrace gateway stop`,
		Args:    exactly(),
	}, func(ctx context.Context, g *admin.Client, f *control, _ []string) error {
		if err := g.Stop(ctx); err != nil {
			return err
		}
		return f.done(c, "the gateway has stopped")
	})
}

func newGatewayAnnounce(c *console) *cobra.Command {
	return newControl(c, &cobra.Command{
		Use:   "announce",
		Short: "Announce the addresses of a running gateway",
		Long: `Announce the service and SNAT addresses of a running gateway to its neighbours, by
gratuitous ARP and unsolicited neighbour advertisements. The gateway does so by
itself when it starts, when an address is added, and when a link comes up. Use this
command to take over from another gateway. With sync.role the gateways do that by
themselves, and only the active one announces: see millrace gateway role.

--json prints one object: schema.`,
		Example: `  millrace gateway announce`,
		Args:    exactly(),
	}, func(ctx context.Context, g *admin.Client, f *control, _ []string) error {
		if err := g.Announce(ctx); err != nil {
			return err
		}
		return f.done(c, "the addresses are announced")
	})
}

const drainLong = `Send a backend no new connections. Its connections continue until they end or,
with a deadline, until then. The drain lasts until undrain, until the file changes
the backend's state, or until the gateway stops. A backend of a pool takes requests
of its sticky clients until the deadline; its requests end by themselves.

The last backend of a service that takes new connections is drained with --force
only.

--wait returns when the backend has no connections left, and prints their number to
standard error meanwhile. With --timeout it gives up after that time with exit code
4; the backend drains on. It fails if the backend takes new connections again.

--json prints one object: schema.`

func newGatewayDrain(c *console) *cobra.Command {
	var deadline time.Duration
	var force bool
	var wait drainWait
	cmd := &cobra.Command{
		Use:   "drain SERVICE BACKEND",
		Short: "Send a backend no new connections",
		Long:  drainLong,
		Example: `  millrace gateway drain web b1
  millrace gateway drain web b1 --deadline 5m
  millrace gateway drain web b1 --wait --timeout 10m && ssh b1 reboot`,
		Args:              exactly("SERVICE", "BACKEND"),
		ValidArgsFunction: serviceAndBackend(),
	}
	newControl(c, cmd, func(ctx context.Context, g *admin.Client, f *control, args []string) error {
		t := admin.Target{Service: args[0], Backend: args[1]}
		if deadline < 0 {
			return usage("--deadline %v is negative", deadline)
		}
		if err := wait.check(); err != nil {
			return err
		}
		if err := forceable(g.Drain(ctx, admin.Drain{Target: t, Deadline: admin.Duration(deadline), Force: force})); err != nil {
			return err
		}
		if !wait.on {
			return f.done(c, "%s of %s drains", args[1], args[0])
		}
		if err := wait.until(ctx, c, g, t); err != nil {
			return err
		}
		return f.done(c, "%s of %s is drained", args[1], args[0])
	})
	fl := cmd.Flags()
	fl.DurationVar(&deadline, "deadline", 0, "end its connections after this time (default: from the file)")
	fl.BoolVar(&force, "force", false, "drain also the last backend that takes new connections")
	fl.BoolVar(&wait.on, "wait", false, "return when it has no connections left")
	fl.DurationVar(&wait.timeout, "timeout", 0, "with --wait: give up after this time")
	return cmd
}

// forceable adds to the refusal of a change that it can be forced.
func forceable(err error) error {
	if e := new(admin.Error); errors.As(err, &e) && e.Code == http.StatusConflict {
		return fmt.Errorf("%w (--force does it)", err)
	}
	return err
}

func newGatewayUndrain(c *console) *cobra.Command {
	return newControl(c, &cobra.Command{
		Use:   "undrain SERVICE BACKEND",
		Short: "Send a drained backend new connections again",
		Long: `Send a backend that drains, or has drained, new connections again.

--json prints one object: schema.`,
		Example: `  millrace gateway undrain web b1`,
		Args:    exactly("SERVICE", "BACKEND"),

		ValidArgsFunction: serviceAndBackend(),
	}, func(ctx context.Context, g *admin.Client, f *control, args []string) error {
		if err := g.Undrain(ctx, admin.Target{Service: args[0], Backend: args[1]}); err != nil {
			return err
		}
		return f.done(c, "%s of %s takes connections", args[1], args[0])
	})
}

func newGatewayWeight(c *console) *cobra.Command {
	var force bool
	cmd := newControl(c, &cobra.Command{
		Use:   "weight SERVICE BACKEND WEIGHT",
		Short: "Set the weight of a backend",
		Long: `Set a backend's share of new connections: 0 to 1000, or "config" for the weight in
the configuration. It lasts until the next change, until the file changes the
weight, or until the gateway stops. Open connections stay on their backends.
The last backend of a service that takes new connections gets weight 0 with --force
only.

--json prints one object: schema.`,
		Example: `  millrace gateway weight web b1 50
  millrace gateway weight web b1 config`,
		Args: exactly("SERVICE", "BACKEND", "WEIGHT"),

		ValidArgsFunction: serviceAndBackend("config"),
	}, func(ctx context.Context, g *admin.Client, f *control, args []string) error {
		w := admin.Weight{Target: admin.Target{Service: args[0], Backend: args[1]}, Force: force}
		if args[2] != "config" {
			n, err := strconv.Atoi(args[2])
			if err != nil || n < 0 || n > config.MaxWeight {
				return usage("weight %q: say 0 to %d, or config", args[2], config.MaxWeight)
			}
			w.Weight = &n
		}
		if err := forceable(g.SetWeight(ctx, w)); err != nil {
			return err
		}
		return f.done(c, "%s of %s has weight %s", args[1], args[0], args[2])
	})
	cmd.Flags().BoolVar(&force, "force", false, "0 also for the last backend that takes new connections")
	return cmd
}
