package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/prom"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gateway/daemon"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/node"
)

// gatewayFlags are the flags of gateway, as given.
type gatewayFlags struct {
	engine string
	config string
	json   bool
}

const gatewayLong = `Run the load balancer that a YAML file describes: connections to the service
addresses are spread over healthy backends, by NAT, in tunnels, or by their link
address. The kernel keeps all packets that are not for a service.

SIGHUP, or the verb reload, reads the file again: established connections live
on, and if anything is wrong with the file the mistakes are printed and the old
configuration stays. SIGINT, SIGTERM and the verb stop end it. A mistake in the
file is shown with its place and ends the start with exit code 3. The other
verbs speak to the running gateway over its control socket.

Changes are logged to standard error, a line each. At the end the counters are
printed: received = forwarded + delivered + dropped by reason.

--json logs JSON and prints the counters as one object: received_packets,
forwarded_packets, delivered_packets, dropped_packets, devices, gateway.`

const gatewayExamples = `  millrace gateway -c gateway.yaml
  millrace gateway check -c gateway.yaml && millrace gateway reload
  millrace gateway status`

func newGateway(c *console) *cobra.Command {
	var f gatewayFlags
	cmd := &cobra.Command{
		Use:     "gateway -c FILE",
		Short:   "Balance TCP and UDP over backends",
		Long:    gatewayLong,
		Example: gatewayExamples,
		Args:    noSuchVerb,

		SuggestionsMinimumDistance: 2,
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.config, "config", "c", "", "configuration file")
	fl.StringVar(&f.engine, "engine", "", "what looks at the headers: cpu, cuda or auto (default: as the file says)")
	fl.BoolVar(&f.json, "json", false, "log and print JSON")
	completeWords(cmd, "engine", engineWords...)
	completeFiles(cmd, "config", "yaml", "yml")
	cmd.RunE = verb(func(ctx context.Context, _ []string) error {
		if f.config == "" {
			return usage("no configuration file; name one with -c")
		}
		if f.engine != "" {
			if err := checkEngine(f.engine); err != nil {
				return err
			}
		}
		return runGateway(ctx, c, &f)
	})
	cmd.AddCommand(
		newGatewayCheck(c), newGatewayReload(c), newGatewayStatus(c), newGatewayDrain(c), newGatewayUndrain(c),
		newGatewayWeight(c), newGatewayConnections(c), newGatewayAnnounce(c), newGatewayStop(c),
	)
	return cmd
}

func runGateway(ctx context.Context, c *console, f *gatewayFlags) error {
	hup := make(chan os.Signal, 1) // before anything is open: an early SIGHUP must not end the process
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // whoever reads the log may end before we do; children do not inherit it
	b, log := thisBuild(), c.logger(f.json)
	d, err := daemon.Open(f.config, daemon.Options{
		Log: log, Admin: true, Engine: f.engine, Metrics: prom.Handler,
		Build: metrics.Build{Version: b.Version, Commit: b.Commit},
	})
	if err != nil {
		return engineError(configured(err, f.config))
	}
	log.Info("gateway", "version", b.Version, "config", f.config)
	if err := node.Notify("READY=1"); err != nil {
		log.Warn("gateway", "error", err.Error())
	}
	ctx, cancel := context.WithCancel(ctx)
	var reloads sync.WaitGroup
	reloads.Go(func() { reloadLoop(ctx, hup, d.Reload, refused(c, log, f.json)) })
	err = d.Run(ctx)
	if err := node.Notify("STOPPING=1"); err != nil {
		log.Warn("gateway", "error", err.Error())
	}
	cancel()
	reloads.Wait()
	if f.json {
		err = errors.Join(err, c.jsonLine(d.Summary()))
	} else {
		c.printf("%s", d.Summary())
	}
	return errors.Join(err, d.Close())
}

// configured marks the errors that the configuration file is to blame for.
func configured(err error, file string) error {
	path := new(fs.PathError)
	if errors.As(err, new(*config.Error)) || errors.As(err, &path) && path.Path == file {
		return coded{err, errConfig}
	}
	return err
}

// refused tells of a reload that failed: its mistakes as they show best, or as a line of the log.
func refused(c *console, log *slog.Logger, asJSON bool) func(error) {
	const result = "the old configuration stays"
	return func(err error) {
		if err == nil {
			log.Info("reload", "result", "the new configuration is in use")
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

// reloadLoop reloads at every signal until ctx ends, and tells what came of it.
func reloadLoop(ctx context.Context, hup <-chan os.Signal, reload func() error, tell func(error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			tell(reload())
		}
	}
}
