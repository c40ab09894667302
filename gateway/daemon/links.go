package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gateway/datapath"
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
	mac   [6]byte
	mtu   int  // of network-layer packets; 0 is no limit
	most  int  // what mtu may be: larger packets do not fit the driver's frames
	peer  bool // the interface is the other end of the wire, Linux's: its link address is not ours (TAP)
}

// newLink returns the interface of a device that has just been opened.
func (d *Daemon) newLink(name string, dev *device.Device) (link, error) {
	in, err := net.InterfaceByName(name)
	if err != nil {
		return link{}, fmt.Errorf("devices: %s: %w", name, err)
	}
	info := dev.Queues[0].Info()
	l := link{name: name, index: in.Index, mac: info.MAC, mtu: info.MTU, most: info.MTU, peer: dev.Driver == device.TAP}
	if l.most != 0 && dev.Driver != device.AFXDP { // which refuses what passes the MTU that it was opened with
		l.most = max(l.most, d.largest())
	}
	return l, nil
}

// look returns the interface as it is now. One that has gone does not come back: what is made under
// its name is not what the driver holds.
func (l *link) look() link {
	now := *l
	in, err := net.InterfaceByName(l.name)
	if l.state == linkGone || err != nil || in.Index != l.index {
		now.state = linkGone
		return now
	}
	now.state = linkUp
	if in.Flags&net.FlagUp == 0 || in.Flags&net.FlagRunning == 0 {
		now.state = linkDown
	}
	if !l.peer && len(in.HardwareAddr) == len(now.mac) {
		now.mac = [6]byte(in.HardwareAddr)
	}
	if l.most != 0 {
		now.mtu = min(in.MTU, l.most)
	}
	return now
}

// frameReserve is what of a frame is not for the network-layer packet: headroom of XDP, link header, pushed headers, as
// much as 1500 bytes leave of 2048.
const frameReserve = 548

// largest returns the largest packet that fits a frame.
func (d *Daemon) largest() int { return d.arena.FrameSize() - frameReserve }

// watchLinks looks what has become of the interfaces since the last call: it is logged, the gateway
// works with new link addresses and MTUs, and where neighbours have to know they are told.
func (d *Daemon) watchLinks() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.links {
		l := &d.links[i]
		now := l.look()
		if now == *l {
			continue
		}
		if now.state != l.state {
			d.opt.Log.Log(context.Background(), [...]slog.Level{slog.LevelInfo, slog.LevelWarn, slog.LevelError}[now.state], "link", "device", l.name,
				"state", [...]string{"up", "down, or without carrier", "gone: restart the gateway when the interface is back"}[now.state])
		}
		if now.mac != l.mac || now.mtu != l.mtu {
			d.opt.Log.Warn("link", "device", l.name, "mac", net.HardwareAddr(now.mac[:]).String(), "mtu", now.mtu,
				"was_mac", net.HardwareAddr(l.mac[:]).String(), "was_mtu", l.mtu)
			d.gate.SetDevice(i, datapath.Device{Name: l.name, MAC: now.mac, MTU: now.mtu})
		}
		if now.state == linkUp && (l.state != linkUp || now.mac != l.mac) {
			d.Announce()
		}
		*l = now
	}
}

// linkChanges returns what tells of changes of interfaces until ctx ends. Without it they are seen at
// the next steerEvery.
func (d *Daemon) linkChanges(ctx context.Context) <-chan netlink.LinkUpdate {
	updates := make(chan netlink.LinkUpdate)
	err := netlink.LinkSubscribeWithOptions(updates, ctx.Done(), netlink.LinkSubscribeOptions{
		ErrorCallback: func(err error) { d.opt.Log.Debug("link", "error", err.Error()) },
	})
	if err != nil {
		d.opt.Log.Warn("link", "error", err.Error())
		return nil
	}
	return updates
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
func findInterfaces(devices []config.Device) error {
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
