package daemon

import (
	"errors"
	"fmt"
	"sync"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l4/kernelflows"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/stack"
)

// kernelFlows is the kernel's part of the gateway: the table of connections that it forwards, and the programs at the
// devices.
type kernelFlows struct {
	table *kernelflows.Table // nil: off
	why   string             // it is off, although the configuration requests it

	mu      sync.Mutex // guards devices: the node opens them again in its own goroutine
	devices []flowDevice
}

// flowDevice is a device with a program, or without.
type flowDevice struct {
	name string
	open *device.Device // that has the program; nil: none
	why  string         // it has none
}

// errNoFlows reports that the configuration requests kernel flows that this system does not have.
var errNoFlows = errors.New("kernel_flows: on")

// openFlows makes the table, as the configuration says: always, never, or where it can be done.
func (d *Daemon) openFlows(cfg *config.Config) error {
	f := &d.flows
	f.devices = make([]flowDevice, len(cfg.Devices))
	for i, dev := range cfg.Devices {
		f.devices[i].name = dev.Name
	}
	if cfg.KernelFlows == config.KernelFlowsOff {
		return nil
	}
	var err error
	f.table, err = kernelflows.Open(kernelflows.Options{Loops: len(d.node.Loops()), Slots: cfg.Table.KernelFlows, Now: stack.Now})
	return d.orWithoutFlows(cfg, err)
}

// checkFlows ends the start or does without the kernel, as the configuration says, where devices have no program.
func (d *Daemon) checkFlows(cfg *config.Config) error {
	if d.flows.table == nil {
		return nil
	}
	return d.orWithoutFlows(cfg, d.flows.missing(cfg.KernelFlows == config.KernelFlowsOn))
}

// orWithoutFlows does without the kernel after an error, unless the configuration says that there is no doing without.
func (d *Daemon) orWithoutFlows(cfg *config.Config, err error) error {
	if err == nil {
		return nil
	}
	f := &d.flows
	if cfg.KernelFlows == config.KernelFlowsOn {
		return fmt.Errorf("%w: %w", errNoFlows, err)
	}
	f.why = err.Error()
	d.opt.Log.Info("kernel flows", "state", "off", "why", f.why)
	f.detach(&d.before)
	err = f.close()
	f.table = nil
	return err
}

// missing returns why devices have no program: where all of them must have one, or none has.
func (f *kernelFlows) missing(all bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for i := range f.devices {
		if dev := &f.devices[i]; dev.open == nil {
			errs = append(errs, fmt.Errorf("device %s: %s", dev.name, dev.why))
		}
	}
	if all || len(errs) == len(f.devices) {
		return errors.Join(errs...)
	}
	return nil
}

// hooks are where packets of a driver are judged. Packets that a program reads from a TAP device meet no hook.
var hooks = map[device.Driver]kernelflows.Hook{device.AFXDP: kernelflows.HookXDP, device.AFPacket: kernelflows.HookSocket}

// attachFlows attaches the programs to a device that has been opened; see node.OnOpened.
func (d *Daemon) attachFlows(i int, dev *device.Device, index int) {
	f := &d.flows
	if f.table == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at := &f.devices[i]
	at.open, at.why = nil, ""
	if err := f.attach(&d.before, i, dev, index); err != nil {
		at.why = err.Error()
		d.opt.Log.Warn("kernel flows", "device", at.name, "state", "off", "why", at.why)
		return
	}
	at.open = dev
	d.opt.Log.Info("kernel flows", "device", at.name, "state", "on")
}

func (f *kernelFlows) attach(before *prefilters, i int, dev *device.Device, index int) error {
	hook, ok := hooks[dev.Driver]
	if !ok {
		return fmt.Errorf("the driver %s has no place for programs", dev.Driver)
	}
	p, err := f.table.Attach(i, index, hook)
	if err != nil {
		return err
	}
	if err := before.setFlows(dev, p); err != nil {
		return errors.Join(err, f.table.Detach(i))
	}
	return nil
}

// linkChanged takes the program of a device out of use whose interface is gone: nothing is sent to it any more.
func (f *kernelFlows) linkChanged(i int, l node.Link) error {
	if f.table == nil || l.State != node.LinkGone {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.devices[i].open, f.devices[i].why = nil, "the interface is gone"
	return f.table.Detach(i)
}

// renewFlows has the handlers take the newest snapshot, and with it what the kernel forwards by an older one: no packet of
// these connections may come to a loop.
func (d *Daemon) renewFlows() {
	if d.flows.table == nil {
		return
	}
	for i, h := range d.gate.Handlers() {
		d.node.OnLoop(i, func() { h.TakeSnapshot(stack.Now()) })
	}
}

// detach ends the forwarding. What the table has counted can be read still.
func (f *kernelFlows) detach(before *prefilters) (err error) {
	if f.table == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.devices {
		dev := &f.devices[i]
		if dev.open == nil {
			continue
		}
		err = errors.Join(err, before.setFlows(dev.open, nil), f.table.Detach(i))
		dev.open, dev.why = nil, "the gateway ends"
	}
	return err
}

// close returns the memory. Handlers are not called any more.
func (f *kernelFlows) close() error {
	if f.table == nil {
		return nil
	}
	return f.table.Close()
}

// status returns what GET /v1/status shows.
func (f *kernelFlows) status() (s admin.KernelPrograms) {
	s.Why = f.why
	if f.table == nil {
		return s
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.devices {
		dev := &f.devices[i]
		s.On = s.On || dev.open != nil
		s.Devices = append(s.Devices, admin.KernelDevice{Name: dev.name, On: dev.open != nil, Why: dev.why})
	}
	t, err := f.table.Stats()
	if err != nil {
		s.Why = err.Error()
		return s
	}
	s.Entered, s.Slots, s.Packets = t.Entered, t.Slots, map[string]uint64{}
	for i, n := range t.Packets {
		s.Packets[kernelflows.Reasons[i]] = n
	}
	return s
}

// writeMetrics writes the counters of the programs.
func (f *kernelFlows) writeMetrics(w *metrics.Writer) {
	if f.table == nil {
		return
	}
	t, err := f.table.Stats()
	if err != nil {
		return
	}
	f.mu.Lock()
	for i := range f.devices {
		on := 0.0
		if f.devices[i].open != nil {
			on = 1
		}
		w.Gauge("millrace_l4_kernel_device_attached", "1 while the device has a program that forwards established connections.", on,
			metrics.Label{Name: "device", Value: f.devices[i].name})
	}
	f.mu.Unlock()
	for i, n := range t.Packets {
		w.Counter("millrace_l4_kernel_seen_packets_total",
			"Packets that the kernel's programs have seen, by result. All but forwarded and failed go to the gateway's loops.", n,
			metrics.Label{Name: "result", Value: kernelflows.Reasons[i]})
	}
	w.Gauge("millrace_l4_kernel_places", "Places for connections that the kernel forwards.", float64(t.Slots))
	w.Counter("millrace_l4_kernel_late_packets_total",
		"Packets that the kernel counted or took back after a loop had read the counters of their connection.", t.Late)
	w.Counter("millrace_l4_kernel_failed_keys_total", "Keys of connections that the kernel did not take.", t.Failed)
}
