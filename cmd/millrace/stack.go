package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/prom"
	"github.com/millrace/millrace/internal/app/lifetime"
	"github.com/millrace/millrace/internal/app/stackd"
	"github.com/millrace/millrace/metrics"
)

func newStack(c *console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stack",
		Short: "Run a host in user space: addresses, TCP, UDP, services",
		Long: `Run a host on a network device, in user space: it answers ping, and serves echo,
discard, chargen, daytime, HTTP and iperf3 over Millrace's TCP and UDP instead of
the kernel's. The command net shows its state.`,
		Example: `  millrace stack up --dev eth1 --addr 198.18.0.2/24
  millrace net sockets`,
		Args: unknownCommand,

		SuggestionsMinimumDistance: 2,
		RunE:                       showHelp,
	}
	cmd.AddCommand(newStackUp(c), newStackReload(c), newStackDown(c), newSchema(c, &configFiles[1]))
	return cmd
}

// stackFlags are the flags of stack up.
type stackFlags struct {
	config, engine, socket string
	in                     io.Reader // of the file name "-"
	devices, addrs, routes []string
	check, json            bool
	extraProcessor, rdma   bool
}

const stackUpLong = `Bring addresses up on network devices and serve them until Ctrl-C, SIGTERM or
the command stack down. A YAML file ("-" is standard input) names devices and
services. Without one, --dev and --addr suffice, and every service runs on its
well-known port (echo 7, discard 9, daytime 13, chargen 19, HTTP 80, iperf3 5201).

--dev names an interface and, after a colon, its driver: auto (the default),
afxdp, afpacket or tap; or a device of DPDK, as dpdk:net_af_xdp0,iface=eth1
(millrace-cuda; docs/dpdk.md), or a port of a virtual machine, vhost:/run/vm1.sock
(docs/virtio.md). An --addr belongs to the --dev before it. With -c they add to the
file's devices.

If the kernel has an address on the interface, it keeps that address, and the host
takes only packets to its own addresses. Otherwise the host takes every packet.

With errors in the file the host does not start and exits with code 3. --check
reports them and does nothing else. SIGHUP, or the command stack reload, reads the
file again.

--socket is the control socket: the flag, else the environment, else the file; an
empty path is none. metrics.listen of the file serves Prometheus.

At the end the counters are printed: received + originated = sent + delivered +
dropped by reason.

--json logs JSON and prints the counters as one object, as net stats --json does.
With --check it prints one object: schema, valid, errors (list of file, line,
column, message, hint, source).`

const stackUpExamples = `  millrace stack up --dev eth1 --addr 198.18.0.2/24 --route default=198.18.0.1
  millrace stack up -c stack.yaml --check && millrace stack up -c stack.yaml
  millrace stack up --dev tap0:tap --addr 198.18.7.2/24 --addr 2001:db8:7::2/64`

func newStackUp(c *console) *cobra.Command {
	f := stackFlags{in: c.in}
	cmd := &cobra.Command{
		Use:     "up [-c FILE] [--dev DEVICE[:DRIVER] --addr ADDRESS/LENGTH]...",
		Short:   "Serve addresses on network devices",
		Long:    stackUpLong,
		Example: stackUpExamples,
		Args:    exactly(),
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.config, "config", "c", "", "configuration file; - is standard input")
	fl.StringArrayVar(&f.devices, "dev", nil, "interface to serve on, its driver after a colon")
	fl.Var(&addrFlag{&f}, "addr", "address of the --dev before it: 198.18.0.2/24, dhcp, slaac")
	fl.StringArrayVar(&f.routes, "route", nil, "route: NETWORK=GATEWAY, or default=GATEWAY")
	fl.StringVar(&f.engine, "engine", "", "engine that parses headers: cpu, cuda or auto (default: from the file)")
	fl.BoolVar(&f.extraProcessor, "extra-processor", false, "one processor (GOMAXPROCS) more for each loop")
	fl.BoolVar(&f.rdma, "rdma", false, "an RDMA device on the first address, for millrace exec --rdma")
	socketFlag(cmd, &f.socket, stackd.DefaultSocket, "unix socket")
	fl.BoolVar(&f.check, "check", false, "report errors and do nothing else")
	fl.BoolVar(&f.json, "json", false, "log and print JSON")
	completeFiles(cmd, "config", "yaml", "yml")
	completeWords(cmd, "engine", engineWords...)
	complete(cmd, "dev", interfaceNames)
	cmd.RunE = command(func(ctx context.Context, _ []string) error {
		named := cmd.Flags().Changed("socket") || os.Getenv(socketVariable) != ""
		cfg, err := f.load(named)
		if f.check {
			return f.checked(c, cfg, err)
		}
		if err != nil {
			return starting(err)
		}
		return runStack(ctx, c, &f, cfg, named)
	})
	return cmd
}

func runStack(ctx context.Context, c *console, f *stackFlags, cfg *stackd.Config, named bool) error {
	life := lifetime.Begin()
	defer life.End()
	errs, flush := c.queueErrors(f.json)
	defer flush()
	b, log := thisBuild(), c.logger(f.json)
	d, err := stackd.Open(cfg, stackd.Options{
		Log: log, LogDropped: errs.Dropped, Metrics: prom.Handler, Load: f.reload(named),
		Build: metrics.Build{Version: b.Version, Commit: b.Commit},
	})
	if err != nil {
		return engineError(err)
	}
	log.Info("stack", "version", b.Version, "state", "up", "control", cfg.Control.Socket)
	err = life.Run(ctx, d.Run, lifetime.Config{
		Name: "stack", Log: log, Reload: d.ReloadFile, Reloaded: logReload(c, log, f.json, nil),
	})
	closed := d.Close() // first: what it sends is counted
	s := d.Stats()
	if f.json {
		return errors.Join(err, closed, c.jsonLine(s))
	}
	showStackStats(c, &s)
	return errors.Join(err, closed)
}

func newStackReload(c *console) *cobra.Command {
	return newNetControl(c, &cobra.Command{
		Use:   "reload",
		Short: "Reload the configuration of a running stack",
		Long: `Make a running stack read its configuration file again, as SIGHUP does, and wait
for the result. Addresses, routes, neighbours and services that the file has no
longer are removed, new ones come up, and all others keep their connections. If
the file has errors, they are printed, the old configuration stays in use, and the
exit code is 3. Other changes need a restart: exit code 1.

--json prints one object, schema, when the new configuration is in use.`,
		Example: `  millrace stack reload`,
		Args:    exactly(),
	}, func(ctx context.Context, s *stackd.Client, f *netControl) error {
		err := s.Reload(ctx)
		if e := new(stackd.Error); errors.As(err, &e) && e.Code == http.StatusUnprocessableEntity {
			return coded{err, errReload}
		}
		if err != nil {
			return err
		}
		if f.json {
			return c.jsonLine(struct{}{})
		}
		c.printf("the new configuration is in use\n")
		return nil
	})
}

func newStackDown(c *console) *cobra.Command {
	return newNetControl(c, &cobra.Command{
		Use:   "down",
		Short: "Stop a running stack",
		Long: `Stop a running stack, as SIGTERM does. Services have two seconds to finish their
requests, and peers two more to acknowledge what was sent; then the remaining
connections are reset. The command waits for the end of the process.

--json prints one object: schema.`,
		Example: `  millrace stack down`,
		Args:    exactly(),
	}, func(ctx context.Context, s *stackd.Client, f *netControl) error {
		if err := s.Stop(ctx); err != nil {
			return err
		}
		if f.json {
			return c.jsonLine(struct{}{})
		}
		c.printf("the stack has stopped\n")
		return nil
	})
}
