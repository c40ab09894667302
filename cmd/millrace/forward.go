package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/choose"
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
choice and its reason are printed.

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

// bridge is two devices and the loops that join them, one for each queue.
type bridge struct {
	engines *choose.Opener
	ends    [2]*device.Device
	drivers [2][]pmd.Driver // as the loops see them: wrapped
	bad     [2][]*pmd.Impair
	loops   []*stack.Loop
	looking []gpukern.Engine // of the loops
	undo    []func() error   // in reverse order
}

func runForward(ctx context.Context, c *console, f *forwardFlags, names []string) error {
	profiles, err := f.profiles()
	if err != nil {
		return err
	}
	engines, err := openEngines(c, f.engine)
	if err != nil {
		return err
	}
	defer closing(c, engines)
	b := &bridge{engines: engines}
	err = b.open(c, f, names, profiles)
	if err == nil {
		err = b.run(ctx, c, f, names)
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

// open opens the devices and makes the loops.
func (b *bridge) open(c *console, f *forwardFlags, names []string, profiles [2]pmd.Profile) error {
	ends := [2]endpoint{{names[0], f.driver, f.mode}, {names[1], f.driver, f.mode}}
	queues := f.queues
	if queues == 0 {
		queues = max(ends[0].queues(), ends[1].queues())
	}
	if f.capture != "" && queues > 1 {
		return fmt.Errorf("--capture writes one queue, the interfaces have %d (`ethtool -L DEV combined 1`)", queues)
	}
	arena, pools, err := device.NewArena(queues, names...)
	if err != nil {
		return err
	}
	b.undo = append(b.undo, func() error { return returned(arena, pools) })
	for i := range ends {
		if b.ends[i], err = ends[i].open(c, pools, true); err != nil {
			return err
		}
		b.undo = append(b.undo, b.ends[i].Close)
		b.drivers[i] = append([]pmd.Driver(nil), b.ends[i].Queues...)
	}
	if err := b.tap(f.capture, names); err != nil {
		return err
	}
	if err := b.impair(profiles, pools); err != nil {
		return err
	}
	return b.join(pools)
}

// tap copies what arrives on either side to a capture.
func (b *bridge) tap(path string, names []string) error {
	if path == "" {
		return nil
	}
	out, err := capture.Create(path, capture.WriterConfig{
		Interfaces: []capture.Interface{
			{LinkType: capture.LinkTypeEthernet, Name: names[0]},
			{LinkType: capture.LinkTypeEthernet, Name: names[1]},
		},
		Application: "millrace",
	})
	if err != nil {
		return err
	}
	b.undo = append(b.undo, out.Close)
	for i := range b.drivers {
		t := pcap.NewCapture(b.drivers[i][0], out, pcap.CaptureConfig{Rx: true, Epoch: stack.Wall(0).UnixNano(), Interface: i})
		b.undo = append(b.undo, t.Close)
		b.drivers[i][0] = t
	}
	return nil
}

// impair makes the devices bad ones.
func (b *bridge) impair(profiles [2]pmd.Profile, pools []*ring.Pool) error {
	for i, p := range profiles {
		if p == (pmd.Profile{}) {
			continue
		}
		for q, drv := range b.drivers[i] {
			m, err := pmd.NewImpair(drv, pmd.ImpairConfig{Profile: p, Pool: pools[q]})
			if err != nil {
				return err
			}
			b.undo = append(b.undo, m.Close)
			b.drivers[i][q] = m
			b.bad[i] = append(b.bad[i], m)
		}
	}
	return nil
}

// join makes a loop for each pair of queues.
func (b *bridge) join(pools []*ring.Pool) error {
	for q := range pools {
		engine, err := b.engines.Open(gpukern.Config{Ops: gpukern.OpParse}, pools[q].Arena())
		if err != nil {
			return engineError(err)
		}
		b.looking = append(b.looking, engine)
		b.undo = append(b.undo, engine.Close)
		l, err := stack.NewLoop(stack.Config{
			Devices: []pmd.Driver{b.drivers[0][q], b.drivers[1][q]},
			Pool:    pools[q],
			Engine:  engine,
			Handler: stack.Bridge{},
		})
		if err != nil {
			return err
		}
		b.undo = append(b.undo, l.Close)
		b.loops = append(b.loops, l)
	}
	return nil
}

// close undoes what was done, last first.
func (b *bridge) close() error {
	var errs []error
	for i := len(b.undo) - 1; i >= 0; i-- {
		errs = append(errs, b.undo[i]())
	}
	return errors.Join(errs...)
}

// run moves packets until ctx ends, and prints the counters.
func (b *bridge) run(ctx context.Context, c *console, f *forwardFlags, names []string) error {
	start := time.Now()
	if !f.json {
		c.printf("%s <-> %s: %s; %s; Ctrl-C ends\n", names[0], names[1], granted(b.drivers[0][0]), granted(b.drivers[1][0]))
	}
	if a, z := b.drivers[0][0].Info().MTU, b.drivers[1][0].Info().MTU; a != z && a > 0 && z > 0 { // 0 is unknown
		c.complain(fmt.Errorf("the MTU of %s is %d, that of %s is %d: larger packets cannot pass", names[0], a, names[1], z))
	}
	done := make(chan error, 1)
	go func() { done <- stack.RunAll(ctx, b.loops...) }()
	var err error
	if f.stats {
		err = b.watch(c, f.json, start, done)
	} else {
		err = <-done
	}
	s := b.count(start)
	if f.json {
		return errors.Join(err, c.jsonLine(s))
	}
	showForward(c, s)
	return err
}

// watch prints the counters each second until the loops are done.
func (b *bridge) watch(c *console, asJSON bool, start time.Time, done <-chan error) error {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	last := b.count(start)
	for {
		select {
		case err := <-done:
			return err
		case <-t.C:
		}
		now := b.count(start)
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

func granted(d pmd.Driver) string {
	info := d.Info()
	return info.Driver + " (" + info.Negotiated + ")"
}
