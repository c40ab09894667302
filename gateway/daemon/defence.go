package daemon

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gateway/defence"
	"github.com/millrace/millrace/l4/inspection"
	"github.com/millrace/millrace/l7/proxy"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/stack"
)

// The rules of verdicts that the gateway decides on.
const (
	ruleLimits     = "limits"
	ruleClients    = "clients"
	ruleOperator   = "operator"
	ruleInspection = "inspection" // with the number of the rule
)

// openDefence loads the defence and attaches it to the devices that are not the gateway's.
func (d *Daemon) openDefence(cfg *config.Config) (err error) {
	if cfg.Defence == nil {
		return nil
	}
	if d.defence, err = defence.Open(cfg); err != nil {
		return fmt.Errorf("defence: %w", err)
	}
	d.driveDefence(cfg)
	for _, name := range cfg.Defence.Devices {
		if !slices.ContainsFunc(cfg.Devices, func(dev config.Device) bool { return dev.Name == name }) {
			err = errors.Join(err, d.defence.Attach(name))
		}
	}
	return err
}

// openPrograms opens the programs of the kernel: the defence and kernel flows.
func (d *Daemon) openPrograms(cfg *config.Config) error {
	if err := d.openDefence(cfg); err != nil {
		return err
	}
	if err := d.openFlows(cfg); err != nil || d.defence == nil && d.flows.table == nil {
		return err
	}
	err := d.node.OnOpened(func(i int, dev *device.Device, index int) {
		d.attachDefence(dev, cfg.Devices[i].Name, index)
		d.attachFlows(i, dev, index)
	})
	if err == nil && d.defence != nil {
		err = d.defence.Missing()
	}
	if err != nil {
		return err
	}
	return d.checkFlows(cfg)
}

// attachDefence attaches the defence to a device that has been opened; see node.OnOpened.
func (d *Daemon) attachDefence(dev *device.Device, name string, index int) {
	if d.defence == nil || !slices.Contains(d.defended, name) {
		return
	}
	how, err := d.defence.AttachTo(defence.Driver{
		Name: name, Index: index, XDP: dev.Driver == device.AFXDP, NoXDP: dev.Driver == device.TAP || dev.Driver.Named(),
		Set: func(f *pmd.Prefilter) error { return d.before.setDefence(dev, f) },
	})
	if err != nil {
		d.opt.Log.Warn("defence", "device", name, "state", "off", "why", err.Error())
		return
	}
	d.opt.Log.Info("defence", "device", name, "state", "on", "how", how)
}

// driveDefence has the parts of the gateway report sources, as a configuration says.
func (d *Daemon) driveDefence(cfg *config.Config) {
	d.defended = cfg.Defence.Devices
	d.drives.Store(&drives{cfg.Defence, cfg.Limits})
}

// drives holds the sources of verdicts.
type drives struct {
	*config.Defence
	limits config.Limits
}

// limitReporter returns what a loop calls with clients beyond the gateway's limits.
func (d *Daemon) limitReporter() func(netip.Addr, clock.Time) {
	var e excess
	return func(client netip.Addr, now clock.Time) {
		c := d.drives.Load()
		if c.Limits == nil {
			return
		}
		source := defence.Source(client)
		if !e.of(c.Limits.Excess, time.Second).Add(source.Addr(), 1, time.Duration(now)) {
			return
		}
		v := defence.Verdict{Source: source, Rule: ruleLimits, For: c.Limits.Time}
		if c.Limits.Action == "limit" {
			v.Rate, v.Burst = c.limits.Packets, int(float64(c.limits.Packets)*c.limits.Burst.Seconds())
		}
		_ = d.defence.Submit(v) // which counts errors
	}
}

// refusalReporter returns what a worker calls with clients whose requests it refuses.
func (d *Daemon) refusalReporter() func(netip.Addr, proxy.Refusal, int) {
	var e excess
	return func(client netip.Addr, _ proxy.Refusal, n int) {
		c := d.drives.Load()
		if c.Clients == nil {
			return
		}
		source := defence.Source(client)
		if e.of(c.Clients.Refused, c.Clients.Window).Add(source.Addr(), n, time.Duration(stack.Now())) {
			_ = d.defence.Submit(defence.Verdict{Source: source, Rule: ruleClients, For: c.Clients.Time})
		}
	}
}

// verdict has the defence drop the client of a flow that inspection has blocked. It is called on the goroutine of a loop.
func (d *Daemon) verdict(v *inspection.Verdict) {
	c := d.drives.Load()
	if c == nil || c.Inspection == nil || v.Action == inspection.ActionAlert {
		return
	}
	rule := ruleInspection
	if v.Rule != nil {
		rule += fmt.Sprintf(" %d:%d", v.Rule.GID, v.Rule.SID)
	}
	_ = d.defence.Submit(defence.Verdict{Source: defence.Source(v.Client), Rule: rule, For: c.Inspection.Time}) // which counts errors
}

// excess is a counter that is made anew when the configuration changes.
type excess struct {
	counter *defence.Excess
	most    int
	window  time.Duration
}

func (e *excess) of(most int, window time.Duration) *defence.Excess {
	if e.counter == nil || e.most != most || e.window != window {
		*e = excess{defence.NewExcess(most, window), most, window}
	}
	return e.counter
}

// reloadDefence gives the defence a configuration.
func (d *Daemon) reloadDefence(cfg *config.Config) error {
	if d.defence == nil {
		return nil // a reload cannot add it: its devices need a restart
	}
	if err := d.defence.Reload(cfg); err != nil {
		return fmt.Errorf("defence: %w", err)
	}
	d.driveDefence(cfg)
	return nil
}

// closeDefence returns the maps. The devices are closed.
func (d *Daemon) closeDefence() error {
	if d.defence == nil {
		return nil
	}
	return errors.Join(d.defence.Detach(), d.defence.Close())
}

var errNoDefence = &admin.Error{Message: "the gateway has no defence: add defence to its configuration", Code: http.StatusNotFound}

// showDefence returns the verdicts and what rules have dropped.
func (d *Daemon) showDefence() (any, error) {
	if d.defence == nil {
		return nil, errNoDefence
	}
	return d.defence.Status()
}

// addVerdict puts a verdict of the operator in force.
func (d *Daemon) addVerdict(r *http.Request) error {
	var req admin.DefenceVerdict
	if err := body(r, &req); err != nil {
		return err
	}
	switch {
	case d.defence == nil:
		return errNoDefence
	case !req.Source.IsValid() || req.Packets < 0 || req.Burst < 0 || req.Time < 0 || req.Forever && req.Time != 0:
		return badRequest("a verdict needs a source, and no negative numbers")
	}
	rule := ruleOperator
	if req.Rule != "" {
		rule += " " + req.Rule
	}
	return verdictError(d.defence.Add(defence.Verdict{
		Source: req.Source, Rule: rule, Rate: req.Packets, Burst: req.Burst, For: time.Duration(req.Time),
	}, req.Forever))
}

// removeVerdict takes a verdict back.
func (d *Daemon) removeVerdict(r *http.Request) error {
	var req admin.DefenceSource
	if err := body(r, &req); err != nil {
		return err
	}
	switch {
	case d.defence == nil:
		return errNoDefence
	case !req.Source.IsValid():
		return badRequest("source is not a prefix")
	}
	return verdictError(d.defence.Remove(req.Source))
}

// verdictError gives an error the status that clients see.
func verdictError(err error) error {
	switch {
	case errors.Is(err, defence.ErrUnknown):
		return &admin.Error{Message: err.Error(), Code: http.StatusNotFound}
	case errors.Is(err, defence.ErrAccepted), errors.Is(err, defence.ErrFull), errors.Is(err, defence.ErrListed):
		return &admin.Error{Message: err.Error(), Code: http.StatusConflict}
	}
	return err
}
