package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/pmd/pcap"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/stack"
)

// forwardFlags are the flags of forward.
type forwardFlags struct {
	driver, mode string
	engine       string
	queues       int
	impair       [2]string
	capture      string
	stats, json  bool
}

const forwardLong = `Forward every packet that arrives on one of two interfaces to the other,
unchanged, until Ctrl-C. The kernel receives none of them: do not name the
interface that you are logged in over.

--driver auto is afxdp, or afpacket where AF_XDP is missing or not permitted; the
choice and its reason are printed. A name like dpdk:0000:3b:00.0 or
dpdk:net_af_xdp0,iface=eth1 is a device of DPDK (millrace-cuda; docs/dpdk.md).
vhost:/run/vm1.sock is a virtual machine's port, virtio:/run/port.sock a port of
another program (docs/virtio.md).

--impair-a and --impair-b impair an interface, as netem does. The words are
  delay=10ms±2ms loss=1% dup=0.1% corrupt=1% reorder=1% ce=1% rate=100mbit
  queue=64 burst=1%,25% mtu=1400 seed=7
and apply to both directions until "rx:" or "tx:" selects one.

--engine selects what parses headers: cpu, cuda (an NVIDIA GPU; an error where none
can be used) or auto, which prints what it found and what it uses.

--capture writes each received packet, with its interface.

At the end every packet is accounted for:
received = forwarded + the sum of dropped.

--json prints one object on a line: schema, interfaces (list of two: device,
driver, negotiated, rx_packets, rx_bytes, rx_missed, rx_invalid, tx_packets,
tx_bytes, tx_invalid, impaired), received, forwarded, dropped (by reason),
in_flight, seconds, engine (name, device, ops, backends, redone_packets, fault,
calibrations). impaired is null, or lost, duplicated, corrupted, marked, reordered.
With --stats such a line is printed each second as well.`

const forwardExamples = `  millrace forward eth1 eth2
  millrace forward --stats --capture wire.pcapng eth1 eth2
  millrace forward --impair-a "delay=20ms loss=1%" --driver afpacket eth1 eth2`

func newForward(c *console) *cobra.Command {
	var f forwardFlags
	cmd := &cobra.Command{
		Use:     "forward A B",
		Short:   "Bridge two devices, as a bump in the wire",
		Long:    forwardLong,
		Example: forwardExamples,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 || args[0] == args[1] {
				return usage("forward bridges two different interfaces; name both")
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.driver, "driver", "auto", "auto, afxdp, afpacket or tap")
	fl.StringVar(&f.mode, "mode", "auto", "XDP mode: auto, native or generic")
	fl.StringVar(&f.engine, "engine", "cpu", "engine that parses packets: cpu, cuda or auto")
	fl.IntVar(&f.queues, "queues", 0, "queues of each interface, a loop for each (0: all)")
	fl.StringVar(&f.impair[0], "impair-a", "", "impairment of interface A")
	fl.StringVar(&f.impair[1], "impair-b", "", "impairment of interface B")
	fl.StringVar(&f.capture, "capture", "", "pcap or pcapng file to write, with one queue only")
	fl.BoolVar(&f.stats, "stats", false, "print the counters each second")
	fl.BoolVar(&f.json, "json", false, "print JSON")
	completeWords(cmd, "driver", "auto", "afxdp", "afpacket", "tap")
	completeWords(cmd, "mode", "auto", "native", "generic")
	completeWords(cmd, "engine", engineWords...)
	cmd.ValidArgsFunction = twoInterfaces
	cmd.RunE = command(func(ctx context.Context, args []string) error { return runForward(ctx, c, &f, args) })
	return cmd
}

// bridge is a node with two devices that forwards between them, and the wrappers around their drivers.
type bridge struct {
	node     *node.Node
	profiles [2]pmd.Profile
	devices  []*device.Device // as the node's loops see them: wrapped
	impaired [2][]*pmd.Impair
	capture  *capture.Writer // nil without
}

func runForward(ctx context.Context, c *console, f *forwardFlags, names []string) error {
	profiles, err := f.profiles()
	if err != nil {
		return err
	}
	b := &bridge{profiles: profiles}
	err = b.open(c, f, names)
	if err == nil {
		err = b.run(ctx, c, f)
	}
	return errors.Join(err, b.close())
}

// profiles parses the flags that name no device, so that errors show before anything is opened.
func (f *forwardFlags) profiles() (p [2]pmd.Profile, err error) {
	e := endpoint{driver: f.driver, mode: f.mode}
	if err := errors.Join(e.check(), checkEngine(f.engine)); err != nil {
		return p, err
	}
	if f.queues < 0 || f.capture != "" && f.queues > 1 {
		return p, usage("--queues %d: say 0 or more, and 1 with --capture", f.queues)
	}
	for i, text := range f.impair {
		if p[i], err = pmd.ParseProfile(text); err != nil {
			return p, coded{fmt.Errorf("--impair-%c: %w", 'a'+i, err), errUsage}
		}
	}
	return p, nil
}

// open opens the node with its one service.
func (b *bridge) open(c *console, f *forwardFlags, names []string) (err error) {
	ends := [2]endpoint{{names[0], f.driver, f.mode}, {names[1], f.driver, f.mode}}
	queues := f.queues
	if queues == 0 {
		queues = max(ends[0].queues(), ends[1].queues())
	}
	if f.capture != "" && queues > 1 {
		return fmt.Errorf("--capture writes one queue, the interfaces have %d (`ethtool -L DEV combined 1`)", queues)
	}
	if err := b.openCapture(f.capture, names); err != nil {
		return err
	}
	b.node, err = node.Open(node.Config{
		Devices: []node.Device{ends[0].device(true), ends[1].device(true)}, Loops: queues, Burst: stack.DefaultBurst,
		OpenDevice: b.openDevice, Engine: f.engine, Ops: gpukern.OpParse, Log: c.warnings(),
	})
	if err != nil {
		return engineError(err)
	}
	handlers := make([]stack.Handler, len(b.node.Loops()))
	for i := range handlers {
		handlers[i] = stack.Bridge{}
	}
	return b.node.Add(node.Service{Name: "bridge", Handlers: handlers})
}

// openCapture creates the file of --capture.
func (b *bridge) openCapture(path string, names []string) (err error) {
	if path == "" {
		return nil
	}
	b.capture, err = capture.Create(path, capture.WriterConfig{
		Interfaces: []capture.Interface{
			{LinkType: capture.LinkTypeEthernet, Name: names[0]},
			{LinkType: capture.LinkTypeEthernet, Name: names[1]},
		},
		Application: "millrace",
	})
	return err
}

// openDevice opens the next device of the node and wraps its drivers: a capture of what arrives, and around
// it the impairment, so that the capture has what was on the wire.
func (b *bridge) openDevice(c node.Device, pools []*ring.Pool) (*device.Device, error) {
	d, err := openDevice(c, pools)
	if err != nil {
		return nil, err
	}
	i := len(b.devices)
	queues := append([]pmd.Driver(nil), d.Queues...)
	if b.capture != nil {
		cfg := pcap.CaptureConfig{Rx: true, Epoch: stack.Wall(0).UnixNano(), Interface: i}
		queues[0] = pcap.NewCapture(queues[0], b.capture, cfg)
	}
	if p := b.profiles[i]; p != (pmd.Profile{}) {
		for q, drv := range queues {
			m, err := pmd.NewImpair(drv, pmd.ImpairConfig{Profile: p, Pool: pools[q]})
			if err != nil {
				return nil, errors.Join(err, closeDrivers(queues), d.Close())
			}
			queues[q], b.impaired[i] = m, append(b.impaired[i], m)
		}
	}
	wrapped := device.New(d.Driver, queues, func() error { return errors.Join(closeDrivers(queues), d.Close()) })
	wrapped.Why = d.Why
	b.devices = append(b.devices, wrapped)
	return wrapped, nil
}

// closeDrivers closes wrappers, which return the frames that they hold, with the drivers in them.
func closeDrivers(queues []pmd.Driver) error {
	var errs []error
	for _, q := range queues {
		errs = append(errs, q.Close())
	}
	return errors.Join(errs...)
}

// close releases everything. The capture is written to until the drivers are closed.
func (b *bridge) close() error {
	var errs []error
	if b.node != nil {
		errs = append(errs, b.node.Close())
	}
	if b.capture != nil {
		errs = append(errs, b.capture.Close())
	}
	return errors.Join(errs...)
}

// run moves packets until ctx ends, and prints the counters.
func (b *bridge) run(ctx context.Context, c *console, f *forwardFlags) error {
	if !f.json {
		a, z := b.node.Info(0), b.node.Info(1)
		c.printf("%s <-> %s: %s; %s; Ctrl-C ends\n", a.Device, z.Device, negotiated(a), negotiated(z))
	}
	if err := b.node.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- b.node.Run(ctx) }()
	var err error
	if f.stats {
		err = b.watch(c, f.json, done)
	} else {
		err = <-done
	}
	s := b.count()
	if f.json {
		return errors.Join(err, c.jsonLine(s))
	}
	showForward(c, s)
	return err
}

// watch prints the counters each second until the loops are done.
func (b *bridge) watch(c *console, asJSON bool, done <-chan error) error {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	last := b.count()
	for {
		select {
		case err := <-done:
			return err
		case <-t.C:
		}
		now := b.count()
		if asJSON {
			if err := c.jsonLine(now); err != nil {
				c.complain(err)
			}
		} else {
			showRates(c, last, now)
		}
		last = now
	}
}

func negotiated(i pmd.Info) string { return i.Driver + " (" + i.Negotiated + ")" }
