package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/app/rdmaperf"
	"github.com/millrace/millrace/pmd/device"
)

func newRDMA(c *console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rdma",
		Short: "RDMA over Ethernet: a server, ping, bandwidth, latency",
		Long: `Measure RDMA over Ethernet (RoCEv2) in user space between two hosts: serve runs on
the one, and ping, bw and lat on the other. They need an interface with an address,
root, and no RDMA hardware. show lists the queue pairs of a running server.`,
		Example: `  millrace rdma serve --dev eth1
  millrace rdma bw --dev eth1 198.18.0.2`,
		Args: unknownCommand,

		SuggestionsMinimumDistance: 2,
		RunE:                       showHelp,
	}
	cmd.AddCommand(newRDMAServe(c), newRDMAShow(c), newRDMAPing(c), newRDMABandwidth(c), newRDMALatency(c))
	return cmd
}

// rdmaDevice are the flags that name a device.
type rdmaDevice struct {
	dev, addr string
	json      bool
}

func (d *rdmaDevice) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&d.dev, "dev", "", "interface, its driver (auto, afxdp, afpacket) after a colon")
	f.StringVar(&d.addr, "addr", "", "address of the interface to use (default: its first one)")
	f.BoolVar(&d.json, "json", false, "print JSON")
	complete(cmd, "dev", interfaceNames)
}

// open opens the device.
func (d *rdmaDevice) open() (*rdmaperf.Device, error) {
	if d.dev == "" {
		return nil, usage("no interface: name one with --dev")
	}
	name, driver, _ := strings.Cut(d.dev, ":")
	switch device.Driver(driver) {
	case "", "auto":
		driver = string(device.Auto)
	case device.AFXDP, device.AFPacket:
	default:
		return nil, usage("driver %q; want auto, afxdp or afpacket", driver)
	}
	var addr netip.Addr
	if d.addr != "" {
		var err error
		if addr, err = netip.ParseAddr(d.addr); err != nil {
			return nil, usage("--addr %q is no address; say such as 198.18.0.2", d.addr)
		}
	}
	return rdmaperf.Open(name, device.Driver(driver), addr)
}

// rdmaClient are the flags of a command that connects to a server.
type rdmaClient struct {
	rdmaDevice
	op      string
	test    rdmaperf.Test
	timeout time.Duration
}

// newRDMAClient completes a command that connects to a server: do does its work with the device.
func newRDMAClient(cmd *cobra.Command, f *rdmaClient, size, iterations int, do func(ctx context.Context, d *rdmaperf.Device) error) *cobra.Command {
	f.register(cmd)
	fl := cmd.Flags()
	fl.IntVarP(&f.test.Size, "size", "s", size, "bytes of a message")
	if iterations > 0 {
		fl.IntVarP(&f.test.Iterations, "iters", "n", iterations, "number of messages")
		fl.StringVar(&f.op, "op", "write", "operation: write, read or send")
		completeWords(cmd, "op", "write", "read", "send")
		fl.DurationVar(&f.timeout, "max-time", time.Minute, "give up after this time (0: never)")
	}
	cmd.Args = exactly("HOST[:PORT]")
	cmd.RunE = command(func(ctx context.Context, args []string) (err error) {
		if f.test.Peer, err = parseRDMAPeer(args[0]); err != nil {
			return err
		}
		if f.op != "" {
			if f.test.Op, err = rdmaperf.ParseOp(f.op); err != nil {
				return usage("--op: %w", err)
			}
		}
		if f.test.Size < 1 || f.test.Size > rdmaperf.MaxSize {
			return usage("--size %d, want 1 to %d", f.test.Size, rdmaperf.MaxSize)
		}
		if f.test.Iterations < 0 || iterations > 0 && f.test.Iterations == 0 {
			return usage("--iters %d, want at least 1", f.test.Iterations)
		}
		d, err := f.open()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		if f.timeout > 0 {
			late := coded{fmt.Errorf("no result within %v (--max-time)", f.timeout), errTimeout}
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, f.timeout, late)
			defer cancel()
		}
		if err := do(ctx, d); err != nil {
			if late := context.Cause(ctx); errors.Is(late, errTimeout) {
				return late
			}
			return err
		}
		return nil
	})
	return cmd
}

// parseRDMAPeer reads an address with or without a port.
func parseRDMAPeer(s string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.AddrPortFrom(a, rdmaperf.Port), nil
	}
	a, err := netip.ParseAddrPort(s)
	if err != nil || a.Port() == 0 {
		return a, usage("%q is no address; say such as 198.18.0.2 or 198.18.0.2:7174", s)
	}
	return a, nil
}

func newRDMAServe(c *console) *cobra.Command {
	var d rdmaDevice
	var port uint16
	var socket string
	cmd := &cobra.Command{
		Use:   "serve --dev DEVICE[:DRIVER]",
		Short: "Answer rdma ping, bw and lat",
		Long: `Answer the commands rdma ping, bw and lat of other hosts until Ctrl-C or SIGTERM. The
interface stays the kernel's: only UDP port 4791 of the address is taken. --socket is
the control socket of rdma show; an empty path is none.

At the end the state is printed, as rdma show does. --json logs JSON and prints it as
one object with schema.`,
		Example: `  millrace rdma serve --dev eth1
  millrace rdma serve --dev eth1:afpacket --addr 2001:db8::2 --port 7200`,
		Args: exactly(),
	}
	d.register(cmd)
	cmd.Flags().Uint16Var(&port, "port", rdmaperf.Port, "port of RDMA-CM")
	socketFlag(cmd, &socket, rdmaperf.DefaultSocket, "unix socket")
	cmd.RunE = command(func(ctx context.Context, _ []string) error {
		dev, err := d.open()
		if err != nil {
			return err
		}
		log := c.logger(d.json)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		control := make(chan error, 1)
		if socket == "" {
			control <- nil
		} else {
			go func() {
				err := rdmaperf.ServeControl(ctx, socket, dev.Context, log)
				if err != nil {
					cancel()
				}
				control <- err
			}()
		}
		log.Info("rdma", "state", "up", "address", dev.Context.Addr(), "port", port, "control", socket)
		err = rdmaperf.Serve(ctx, dev.Context, port, log)
		cancel()
		report := dev.Context.Report()
		if err := errors.Join(err, <-control, dev.Close()); err != nil {
			return err
		}
		if d.json {
			return c.jsonLine(report)
		}
		showRDMA(c, &report)
		return nil
	})
	return cmd
}

func newRDMAPing(c *console) *cobra.Command {
	var f rdmaClient
	var interval time.Duration
	count := 5
	cmd := &cobra.Command{
		Use:   "ping --dev DEVICE[:DRIVER] HOST[:PORT]",
		Short: "Read from a server's memory at intervals",
		Long: `Connect to rdma serve by RDMA-CM and read from its memory at intervals, each time with
one RDMA READ. The times are whole round trips in microseconds.

--json prints one object at the end: schema, peer, op, bytes, iterations, min_us, max_us,
typical_us (the median), average_us, deviation_us, p99_us, p99_9_us.`,
		Example: `  millrace rdma ping --dev eth1 198.18.0.2
  millrace rdma ping --dev eth1 -c 0 -i 200ms 198.18.0.2:7200`,
	}
	newRDMAClient(cmd, &f, 64, 0, func(ctx context.Context, d *rdmaperf.Device) error {
		if count < 0 || interval < 0 {
			return usage("--count %d, --interval %v; want none below 0", count, interval)
		}
		l, err := rdmaperf.Ping(ctx, d.Context, f.test, interval, count, func(n int, t time.Duration) {
			if !f.json {
				c.printf("%d bytes from %s: seq=%d time=%.1f us\n", f.test.Size, f.test.Peer, n, float64(t)/1e3)
			}
		})
		if err != nil {
			return err
		}
		if f.json {
			return c.json(l)
		}
		c.printf("%d reads, min/avg/max/mdev = %.1f/%.1f/%.1f/%.1f us\n", l.Iterations, l.Min, l.Average, l.Max, l.Deviation)
		return nil
	})
	cmd.Flags().IntVarP(&count, "count", "c", 5, "number of reads (0: until Ctrl-C)")
	cmd.Flags().DurationVarP(&interval, "interval", "i", time.Second, "time between reads")
	return cmd
}

func newRDMABandwidth(c *console) *cobra.Command {
	var f rdmaClient
	cmd := &cobra.Command{
		Use:   "bw --dev DEVICE[:DRIVER] HOST[:PORT]",
		Short: "Measure bandwidth",
		Long: `Send messages to rdma serve, up to 128 at a time, and print the columns of perftest's
ib_write_bw, ib_read_bw and ib_send_bw: bytes, iterations, peak and average in MiB (2^20
bytes) a second, and millions of messages a second. The peak is the highest average over
any span of the run; beyond 20000 iterations it is not computed.

--json prints one object: schema, peer, op, bytes, iterations, peak_mib_per_second (null if
not computed), average_mib_per_second, messages_per_second, seconds, repeated_packets.`,
		Example: `  millrace rdma bw --dev eth1 198.18.0.2
  millrace rdma bw --dev eth1 --op read -s 1048576 -n 1000 198.18.0.2`,
	}
	return newRDMAClient(cmd, &f, 65536, 5000, func(ctx context.Context, d *rdmaperf.Device) error {
		b, err := rdmaperf.RunBandwidth(ctx, d.Context, f.test)
		if err != nil {
			return err
		}
		if f.json {
			return c.json(b)
		}
		peak := "-"
		if b.Peak != nil {
			peak = strconv.FormatFloat(*b.Peak, 'f', 2, 64)
		}
		w := tabwriter.NewWriter(c.out, 0, 0, 3, ' ', 0)
		fmt.Fprintf(w, "#bytes\t#iterations\tBW peak[MiB/s]\tBW average[MiB/s]\tMsgRate[Mpps]\n")
		fmt.Fprintf(w, "%d\t%d\t%s\t%.2f\t%.6f\n", b.Size, b.Iterations, peak, b.Average, b.Rate/1e6)
		return w.Flush()
	})
}

func newRDMALatency(c *console) *cobra.Command {
	var f rdmaClient
	cmd := &cobra.Command{
		Use:   "lat --dev DEVICE[:DRIVER] HOST[:PORT]",
		Short: "Measure latency",
		Long: `Exchange one message at a time with rdma serve, and print the columns of perftest's
ib_write_lat, ib_read_lat and ib_send_lat, in microseconds: half of the round trip with
write and send, and the whole one with read. write is WRITE with immediate data each
way.

--json prints one object: schema, peer, op, bytes, iterations, min_us, max_us, typical_us (the
median), average_us, deviation_us, p99_us, p99_9_us.`,
		Example: `  millrace rdma lat --dev eth1 198.18.0.2
  millrace rdma lat --dev eth1 --op send -s 64 --json 198.18.0.2`,
	}
	return newRDMAClient(cmd, &f, 8, 1000, func(ctx context.Context, d *rdmaperf.Device) error {
		l, err := rdmaperf.RunLatency(ctx, d.Context, f.test)
		if err != nil {
			return err
		}
		if f.json {
			return c.json(l)
		}
		w := tabwriter.NewWriter(c.out, 0, 0, 3, ' ', 0)
		fmt.Fprintf(w, "#bytes\t#iterations\tt_min[us]\tt_max[us]\tt_typical[us]\tt_avg[us]\tt_stdev[us]\t99%%[us]\t99.9%%[us]\n")
		fmt.Fprintf(w, "%d\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\n", l.Size, l.Iterations, l.Min, l.Max, l.Typical, l.Average, l.Deviation, l.P99, l.P999)
		return w.Flush()
	})
}
