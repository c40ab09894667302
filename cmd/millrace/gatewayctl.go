package main

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/gateway/config"
)

// control is what the verbs have in common that speak to a running gateway.
type control struct {
	socket string
	json   bool
}

// newControl returns a verb that speaks to a running gateway; cmd has its words, do its work.
func newControl(c *console, cmd *cobra.Command, do func(ctx context.Context, g *admin.Client, f *control, args []string) error) *cobra.Command {
	var f control
	cmd.Flags().StringVar(&f.socket, "socket", config.DefaultSocket, "control socket of the gateway")
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
	completeFiles(cmd, "socket", "sock")
	cmd.RunE = verb(func(ctx context.Context, args []string) error {
		err := do(ctx, admin.NewClient(f.socket), &f, args)
		if e := new(admin.Error); errors.As(err, &e) && e.Code == http.StatusUnprocessableEntity {
			return coded{err, errReload}
		}
		if err != nil && ctx.Err() != nil {
			return errors.New("interrupted")
		}
		return err
	})
	return cmd
}

// exactly wants as many arguments as there are names.
func exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return usage("%s is missing", names[len(args)])
		}
		if len(args) > len(names) {
			return usage("%q is one argument too many", args[len(names)])
		}
		return nil
	}
}

// done prints what a command has come to: a line, or {} as JSON.
func (f *control) done(c *console, format string, args ...any) error {
	if f.json {
		return c.jsonLine(struct{}{})
	}
	c.printf(format+"\n", args...)
	return nil
}

func newGatewayCheck(c *console) *cobra.Command {
	var config string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check -c FILE",
		Short: "Check a configuration file",
		Long: `Check a configuration file, and the list files that it names, and do nothing
else. All mistakes are shown, each with its place and what is likely meant.

Exit code 0 without mistakes, 3 with.

--json prints one object: valid, mistakes (list of file, line, column, message,
source, hint).`,
		Example: `  millrace gateway check -c gateway.yaml && millrace gateway reload`,
		Args:    exactly(),
	}
	cmd.Flags().StringVarP(&config, "config", "c", "", "configuration file")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	completeFiles(cmd, "config", "yaml", "yml")
	cmd.RunE = verb(func(context.Context, []string) error {
		if config == "" {
			return usage("no configuration file; name one with -c")
		}
		return check(c, config, asJSON)
	})
	return cmd
}

// checked is what check --json prints.
type checked struct {
	Valid    bool             `json:"valid"`
	Mistakes []config.Problem `json:"mistakes"`
}

func check(c *console, file string, asJSON bool) error {
	_, err := config.Load(file)
	ce := new(config.Error)
	switch {
	case err != nil && (!asJSON || !errors.As(err, &ce)):
		return configured(err, file)
	case err != nil:
		return errors.Join(c.json(checked{Mistakes: ce.Problems}), coded{errShown, errConfig})
	case asJSON:
		return c.json(checked{Valid: true, Mistakes: []config.Problem{}})
	}
	c.printf("%s: the configuration is valid\n", file)
	return nil
}

func newGatewayReload(c *console) *cobra.Command {
	return newControl(c, &cobra.Command{
		Use:   "reload",
		Short: "Have a running gateway read its configuration file again",
		Long: `Have a running gateway read its configuration file again, as SIGHUP does, and
wait for the outcome. Connections live on, services that have not changed keep
their tables. If anything is wrong with the file the mistakes are printed, the
old configuration stays, and the exit code is 3.

--json prints {} when the new configuration is in use.`,
		Example: `  millrace gateway reload`,
		Args:    exactly(),
	}, func(ctx context.Context, g *admin.Client, f *control, _ []string) error {
		if err := g.Reload(ctx); err != nil {
			return err
		}
		return f.done(c, "the new configuration is in use")
	})
}

func newGatewayStop(c *console) *cobra.Command {
	return newControl(c, &cobra.Command{
		Use:   "stop",
		Short: "End a running gateway",
		Long: `End a running gateway, as SIGTERM does. Its connections are lost, unless their
packets go to another gateway with the same configuration.

--json prints {}.`,
		Example: `  millrace gateway stop`,
		Args:    exactly(),
	}, func(ctx context.Context, g *admin.Client, f *control, _ []string) error {
		if err := g.Stop(ctx); err != nil {
			return err
		}
		return f.done(c, "the gateway ends")
	})
}

func newGatewayAnnounce(c *console) *cobra.Command {
	return newControl(c, &cobra.Command{
		Use:   "announce",
		Short: "Have a running gateway announce its addresses",
		Long: `Have a running gateway tell its neighbours that its service and SNAT addresses
are at its link addresses: by gratuitous ARP and unsolicited neighbour
advertisements. It does so by itself when it starts, when an address is added,
and when a link comes up; this is for a take-over from another gateway.

--json prints {}.`,
		Example: `  millrace gateway announce`,
		Args:    exactly(),
	}, func(ctx context.Context, g *admin.Client, f *control, _ []string) error {
		if err := g.Announce(ctx); err != nil {
			return err
		}
		return f.done(c, "the addresses are announced")
	})
}

const drainLong = `Have a backend take no new connections. Those that it has go on until they
end or, with a deadline, until then. It lasts until undrain, until the file
changes the backend's state, or until the gateway ends.

--json prints {}.`

func newGatewayDrain(c *console) *cobra.Command {
	var deadline time.Duration
	cmd := &cobra.Command{
		Use:   "drain SERVICE BACKEND",
		Short: "Have a backend take no new connections",
		Long:  drainLong,
		Example: `  millrace gateway drain web b1
  millrace gateway drain web b1 --deadline 5m`,
		Args: exactly("SERVICE", "BACKEND"),
	}
	newControl(c, cmd, func(ctx context.Context, g *admin.Client, f *control, args []string) error {
		d := admin.Drain{Target: admin.Target{Service: args[0], Backend: args[1]}, Deadline: admin.Duration(deadline)}
		if deadline < 0 {
			return usage("--deadline %v is negative", deadline)
		}
		if err := g.Drain(ctx, d); err != nil {
			return err
		}
		return f.done(c, "%s of %s drains", args[1], args[0])
	})
	cmd.Flags().DurationVar(&deadline, "deadline", 0, "end its connections after this time (default: what the file says)")
	return cmd
}

func newGatewayUndrain(c *console) *cobra.Command {
	return newControl(c, &cobra.Command{
		Use:   "undrain SERVICE BACKEND",
		Short: "Have a drained backend take connections again",
		Long: `Have a backend that drains, or has drained, take connections again.

--json prints {}.`,
		Example: `  millrace gateway undrain web b1`,
		Args:    exactly("SERVICE", "BACKEND"),
	}, func(ctx context.Context, g *admin.Client, f *control, args []string) error {
		if err := g.Undrain(ctx, admin.Target{Service: args[0], Backend: args[1]}); err != nil {
			return err
		}
		return f.done(c, "%s of %s takes connections", args[1], args[0])
	})
}

func newGatewayWeight(c *console) *cobra.Command {
	return newControl(c, &cobra.Command{
		Use:   "weight SERVICE BACKEND WEIGHT",
		Short: "Give a backend another share of new connections",
		Long: `Give a backend another share of new connections: 0 to 1000, or "config" for
what the configuration says. It lasts until the next one, until the file changes
the weight, or until the gateway ends. Open connections stay where they are.

--json prints {}.`,
		Example: `  millrace gateway weight web b1 50
  millrace gateway weight web b1 config`,
		Args: exactly("SERVICE", "BACKEND", "WEIGHT"),
	}, func(ctx context.Context, g *admin.Client, f *control, args []string) error {
		w := admin.Weight{Target: admin.Target{Service: args[0], Backend: args[1]}}
		if args[2] != "config" {
			n, err := strconv.Atoi(args[2])
			if err != nil || n < 0 || n > config.MaxWeight {
				return usage("weight %q: say 0 to %d, or config", args[2], config.MaxWeight)
			}
			w.Weight = &n
		}
		if err := g.SetWeight(ctx, w); err != nil {
			return err
		}
		return f.done(c, "%s of %s has weight %s", args[1], args[0], args[2])
	})
}
