package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"

	"github.com/millrace/millrace/gateway"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/pmd/device"
)

// linkState says whether packets can come and go on an interface.
type linkState uint8

const (
	linkUp linkState = iota
	linkDown
	linkGone
)

// link is the interface of a device, as last seen.
type link struct {
	name  string
	index int // another one under the same name is a stranger
	state linkState
}

// look returns the present state of the interface. One that has gone does not come back: what is
// made under its name is not what the driver holds.
func (l *link) look() linkState {
	in, err := net.InterfaceByName(l.name)
	switch {
	case l.state == linkGone || err != nil || in.Index != l.index:
		return linkGone
	case in.Flags&net.FlagUp == 0 || in.Flags&net.FlagRunning == 0:
		return linkDown
	}
	return linkUp
}

// watchLinks logs what has become of the interfaces since the last call.
func (d *Daemon) watchLinks() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.links {
		l := &d.links[i]
		now := l.look()
		if now == l.state {
			continue
		}
		l.state = now
		d.opt.Log.Log(context.Background(), [...]slog.Level{slog.LevelInfo, slog.LevelWarn, slog.LevelError}[now], "link", "device", l.name,
			"state", [...]string{"up", "down, or without carrier", "gone: restart the gateway when the interface is back"}[now])
	}
}

// writeLinks writes the state of the interfaces.
func (d *Daemon) writeLinks(w *metrics.Writer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.links {
		up := 0.0
		if l.state == linkUp {
			up = 1
		}
		w.Gauge("millrace_device_up", "1 while the interface is up and has carrier.", up, metrics.Label{Name: "device", Value: l.name})
	}
}

// findInterfaces reports a device whose interface does not exist, before any is touched. A TAP
// device is made by its driver.
func findInterfaces(devices []gateway.Device) error {
	for _, dev := range devices {
		if device.Driver(dev.Driver) == device.TAP {
			continue
		}
		if _, err := net.InterfaceByName(dev.Name); err == nil {
			continue
		}
		all, err := net.Interfaces()
		if err != nil {
			return fmt.Errorf("devices: %w", err)
		}
		var names []string
		for _, in := range all {
			names = append(names, in.Name)
		}
		return fmt.Errorf("devices: there is no interface %q here, only %s", dev.Name, strings.Join(names, ", "))
	}
	return nil
}
