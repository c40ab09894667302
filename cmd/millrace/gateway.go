package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/prom"
	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gateway/daemon"
	"github.com/millrace/millrace/gateway/upgrade"
	"github.com/millrace/millrace/internal/app/lifetime"
	"github.com/millrace/millrace/metrics"
)

// gatewayFlags are the flags of gateway.
type gatewayFlags struct {
	engine string
	config string
	json   bool

	extraProcessor bool

	parse func() (*config.Config, error) // in place of reading the file; nil reads it
}

const gatewayLong = `Run the load balancer that a YAML file describes. At L4, connections to the service
addresses are distributed over healthy backends, by NAT, in tunnels, or by their
link address; the kernel keeps all packets that are not for a service. At L7,
requests to listeners go to pools of backends by routes (docs/http-gateway.md).

SIGHUP, or the command reload, reads the file again. Established connections
continue. If the file has errors, they are printed and the old configuration stays
in use. SIGUSR1 opens the access log again, after it was renamed. SIGINT, SIGTERM
and the command stop end the gateway. With errors in the file it does not start and
exits with code 3. The command upgrade replaces the process by another one, of
another program or with settings that a reload refuses, and no connection is
refused. It and the other commands ask the running gateway over its control socket.

Changes are logged to standard error, one per line. At the end the counters are
printed: received = forwarded + delivered + merged + dropped by reason.

--json logs JSON and prints the counters as one object: schema, received_packets,
originated_packets, forwarded_packets, delivered_packets, merged_packets,
dropped_packets, devices, engine, gateway, and http where there are listeners.`

const gatewayExamples = `  millrace gateway -c gateway.yaml
  millrace gateway check -c gateway.yaml && millrace gateway reload
  millrace gateway status`

func newGateway(c *console) *cobra.Command {
	var f gatewayFlags
	cmd := &cobra.Command{
		Use:     "gateway -c FILE",
		Short:   "Balance TCP, UDP, QUIC, TLS and HTTP over backends",
		Long:    gatewayLong,
		Example: gatewayExamples,
		Args:    unknownCommand,

		SuggestionsMinimumDistance: 2,
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.config, "config", "c", "", "configuration file")
	fl.StringVar(&f.engine, "engine", "", "engine that parses headers: cpu, cuda or auto (default: from the file)")
	fl.BoolVar(&f.extraProcessor, "extra-processor", false, "one processor (GOMAXPROCS) more for each loop")
	fl.BoolVar(&f.json, "json", false, "log and print JSON")
	completeWords(cmd, "engine", engineWords...)
	completeFiles(cmd, "config", "yaml", "yml")
	cmd.RunE = command(func(ctx context.Context, _ []string) error {
		if f.config == "" {
			return usage("no configuration file; name one with -c")
		}
		if f.config == standardInput {
			return usage("a reload reads the file again: name one instead of -")
		}
		if f.engine != "" {
			if err := checkEngine(f.engine); err != nil {
				return err
			}
		}
		return runGateway(ctx, c, &f)
	})
	cmd.AddCommand(
		newGatewayCheck(c), newGatewayConvert(c), newGatewayProxy(c), newSchema(c, &configFiles[0]), newGatewayReload(c), newGatewayUpgrade(c), newGatewayStatus(c), newGatewayTop(c), newGatewayDrain(c), newGatewayUndrain(c),
		newGatewayWeight(c), newGatewayConnections(c), newGatewayRoute(c), newGatewayRules(c), newGatewayCache(c), newGatewayDefence(c), newGatewayRole(c), newGatewayAnnounce(c), newGatewayStop(c),
	)
	return cmd
}

func runGateway(ctx context.Context, c *console, f *gatewayFlags) error {
	life := lifetime.Begin()
	defer life.End()
	predecessor, err := upgrade.Inherit()
	if err != nil {
		return err
	}
	errs, flush := c.queueErrors(f.json)
	defer flush()
	b, log := thisBuild(), c.logger(f.json)
	d, err := daemon.Open(f.config, daemon.Options{
		Predecessor: predecessor, Program: f.program(), Notify: lifetime.Notify,
		Log: log, LogDropped: errs.Dropped, Admin: true, Config: f.parse, Engine: f.engine, ExtraProcessor: f.extraProcessor, Metrics: prom.Handler, Firewall: firewall,
		Build: metrics.Build{Version: b.Version, Commit: b.Commit},
	})
	if err != nil {
		return engineError(starting(configured(err, f.config)))
	}
	log.Info("gateway", "version", b.Version, "config", f.config)
	var changes admin.Changes
	err = life.Run(ctx, d.Run, lifetime.Config{
		Name: "gateway", Log: log, Replaces: predecessor != nil, Replaced: d.Replaced,
		Reload:   func() (err error) { changes, err = d.Reload(); return err },
		Reloaded: logReload(c, log, f.json, func() []any { return daemon.LogChanges(&changes) }),
		Reopen:   d.ReopenLogs,
	})
	sum := d.Summary()
	err = errors.Join(err, d.Close()) // before anything is printed: its reader may be slow
	if f.json {
		return errors.Join(err, c.jsonLine(sum))
	}
	c.printf("%s", sum)
	return err
}

// program returns the command line of the gateway, see daemon.Options; nil where no file describes it.
func (f *gatewayFlags) program() func(file string) upgrade.Program {
	if f.parse != nil {
		return nil
	}
	return func(file string) upgrade.Program {
		args := []string{"gateway", "--config=" + cmp.Or(file, f.config)}
		if f.engine != "" {
			args = append(args, "--engine="+f.engine)
		}
		if f.extraProcessor {
			args = append(args, "--extra-processor")
		}
		if f.json {
			args = append(args, "--json")
		}
		return upgrade.Program{Args: args}
	}
}

// configured marks the errors of the configuration file.
func configured(err error, file string) error {
	path := new(fs.PathError)
	if errors.As(err, new(*config.Error)) || errors.As(err, &path) && path.Path == file {
		return coded{err, errConfig}
	}
	return err
}

// logReload logs the result of a reload, with what args returns if it is not nil. Errors of the file are printed with their
// lines, unless the log is JSON.
func logReload(c *console, log *slog.Logger, asJSON bool, args func() []any) func(error) {
	const result = "the old configuration stays in use"
	return func(err error) {
		if err == nil {
			line := []any{"result", "the new configuration is in use"}
			if args != nil {
				line = append(line, args()...)
			}
			log.Info("reload", line...)
			return
		}
		if asJSON {
			log.Error("reload", "result", result, "error", err.Error())
			return
		}
		c.complain(err)
		log.Error("reload", "result", result)
	}
}
