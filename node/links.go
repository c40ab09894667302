package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/devargs"
	"github.com/millrace/millrace/internal/rtnl"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/pmd/device"
)

// LinkState reports whether packets can come and go on an interface.
type LinkState uint8

// The states of an interface.
const (
	LinkUp        LinkState = iota
	LinkDown                // administratively down
	LinkNoCarrier           // up, without carrier
	LinkGone                // deleted; the driver is opened anew where one has its name again
	LinkFailed              // the interface is there, but its driver has ended with an error; it is opened anew
)

// String returns the state as logs and reports show it.
func (s LinkState) String() string {
	return [...]string{"up", "down", "no carrier", "gone", "not receiving"}[s]
}

// level is the level at which a change to the state is logged.
func (s LinkState) level() slog.Level {
	return [...]slog.Level{slog.LevelInfo, slog.LevelWarn, slog.LevelWarn, slog.LevelError, slog.LevelError}[s]
}

// Link is the interface of a device, as last seen. The node follows it because drivers
// do not say: an AF_XDP socket of an interface that is down receives nothing and
// reports no error, and frames with an old link address are dropped by the neighbours
// without a trace.
type Link struct {
	Name  string
	State LinkState
	MAC   [6]byte
	MTU   int // of network-layer packets; 0 is no limit

	index int    // the kernel's; 0 where there is no interface
	as    string // the interface's present name, where that is not Name
	set   int    // MTU of the interface, which may be larger than MTU
	most  int    // limit of MTU: larger packets do not fit the driver's frames
	peer  bool   // the interface is the other end of the wire, Linux's: its link address is not ours (TAP)
}

// newLink starts from what the driver says, so that the first look finds only real
// changes. It returns the interface of a device that has just been opened.
func (n *Node) newLink(name string, dev *device.Device) (Link, error) {
	info := dev.Queues[0].Info()
	in, err := rtnl.Dump(func() (netlink.Link, error) { return n.netlink.LinkByName(devargs.Kernel(name)) })
	switch {
	case err != nil && (n.cfg.OpenDevice != nil || dev.Driver.Named()): // no interface, so that its state never changes
		return Link{Name: name, MAC: info.MAC, MTU: info.MTU}, nil
	case err != nil:
		return Link{}, fmt.Errorf("devices: %s: %w", name, err)
	}
	l := Link{Name: name, index: in.Attrs().Index, MAC: info.MAC, MTU: info.MTU, set: info.MTU, most: info.MTU, peer: dev.Driver == device.TAP}
	if l.most != 0 && dev.Driver != device.AFXDP && !dev.Driver.Named() { // which refuse what passes the MTU at their start
		l.most = max(l.most, n.arena.FrameSize()-frameReserve)
	}
	return l, nil
}

// frameReserve is the part of a frame that no network-layer packet uses: XDP's
// headroom, the link header and pushed headers, as much as an MTU of 1500 leaves of
// 2048.
const frameReserve = 548

// look returns the interface as it is now, also under another name. One that has gone
// does not come back by itself: what is made under its name is not what the driver holds.
func (l *Link) look(nl *netlink.Handle) Link {
	now := *l
	if l.index == 0 {
		return now
	}
	if l.State == LinkGone {
		return now
	}
	in, err := nl.LinkByIndex(l.index) // which an interface keeps when it is renamed
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		now.State = LinkGone
		return now
	}
	if err != nil {
		return now // no answer says nothing
	}
	at := in.Attrs()
	if now.as = ""; at.Name != devargs.Kernel(l.Name) {
		now.as = at.Name
	}
	switch {
	case at.RawFlags&unix.IFF_UP == 0:
		now.State = LinkDown
	case at.RawFlags&unix.IFF_RUNNING == 0:
		now.State = LinkNoCarrier
	default:
		now.State = LinkUp
	}
	if !l.peer && len(at.HardwareAddr) == len(now.MAC) {
		now.MAC = [6]byte(at.HardwareAddr)
	}
	if l.most != 0 {
		now.MTU, now.set = min(at.MTU, l.most), at.MTU
	}
	return now
}

// Links returns the interfaces as last seen, in the order of the devices. The caller
// may keep the list.
func (n *Node) Links() []Link {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]Link(nil), n.links...)
}

// watchLinks compares the interfaces with the last call. It runs in one goroutine at a
// time: before Run in Start, then in watch. It holds no lock while it calls services,
// which may call the node. Changes are logged and reported to the services.
func (n *Node) watchLinks() {
	for i, old := range n.Links() {
		now := old.look(n.netlink)
		n.checkDriver(i, &now, time.Now())
		if now == old {
			continue
		}
		n.setLink(i, &old, &now)
	}
}

// failedAfter is the time that an interface remains whose driver has ended before that is a failure: one that is being deleted is
// still there when its driver ends.
const failedAfter = 500 * time.Millisecond

// checkDriver makes the state of device i LinkFailed where its interface is there and a loop gets nothing from it any more: its
// driver has ended with an error. Otherwise the link would seem to be up.
func (n *Node) checkDriver(i int, l *Link, now time.Time) {
	r := &n.recovery[i]
	if l.State == LinkGone || l.index == 0 && !n.devices[i].Driver.Named() {
		return
	}
	if r.away { // the loops have no driver to ask
		l.State = LinkFailed
		return
	}
	if r.err = n.driverError(i); r.err == nil {
		r.since = time.Time{}
		return
	}
	if r.since.IsZero() {
		r.since = now
	}
	if now.Sub(r.since) >= failedAfter {
		l.State = LinkFailed
	}
}

// driverError returns the error with which the driver of device i has ended in any loop; nil while it works.
func (n *Node) driverError(i int) error {
	for _, l := range n.loops {
		if err := l.Failed(i); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}

// setLink enters, logs and reports a change of the interface of device i.
func (n *Node) setLink(i int, old, now *Link) {
	n.mu.Lock()
	n.links[i] = *now
	n.mu.Unlock()
	if now.State == LinkFailed && old.State != LinkFailed {
		n.log.Error("device", "name", now.Name, "error", n.recovery[i].err.Error())
	}
	n.logLink(old, now, n.recoverable(i))
	for _, s := range n.services {
		if s.LinkChanged != nil {
			s.LinkChanged(i, *now)
		}
	}
}

// logLink says what changed. A new link address or MTU is a warning: neighbours and
// peers have to learn it. reopens says that the device will follow its name.
func (n *Node) logLink(old, now *Link, reopens bool) {
	if now.State != old.State {
		args := []any{"device", now.Name, "state", now.State.String()}
		switch {
		case now.State == LinkGone && reopens:
			args = append(args, "waiting", "for an interface of this name")
		case now.State == LinkGone:
			args = append(args, "remedy", "restart when the interface is back")
		case now.State == LinkFailed && reopens:
			args = append(args, "waiting", "until the driver can be opened again")
		case now.State == LinkFailed:
			args = append(args, "remedy", "restart")
		}
		n.log.Log(context.Background(), now.State.level(), "link", args...)
	}
	if now.as != old.as {
		n.log.Warn("link", "device", now.Name, "renamed", cmp.Or(now.as, now.Name))
	}
	if now.set != old.set && now.set > now.MTU {
		n.log.Warn("link", "device", now.Name, "set_mtu", now.set, "takes_mtu", now.MTU,
			"why", "the driver's memory is for packets of the MTU at the start: larger ones are lost", "remedy", "lower the MTU, or restart")
	}
	if now.MAC != old.MAC || now.MTU != old.MTU {
		n.log.Warn("link", "device", now.Name, "mac", net.HardwareAddr(now.MAC[:]).String(), "mtu", now.MTU,
			"was_mac", net.HardwareAddr(old.MAC[:]).String(), "was_mtu", old.MTU)
	}
}

// updateEvery is the interval at which claims and links are compared: addresses that a reload
// removed go back to the kernel when their last connection has ended.
const updateEvery = time.Second

// watch follows links and claims until ctx ends. Claims are compared with a ticker as
// well as on Update: those of a gateway also shrink when the last connection of a
// removed address ends, which no one reports.
func (n *Node) watch(ctx context.Context) {
	tick := time.NewTicker(updateEvery)
	defer tick.Stop()
	changes := n.linkUpdates
	n.watchChecksums(time.Now()) // what comes from now on counts: a client may send at once
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-changes:
			if !ok { // the kernel has ended it, by an overflow: the ticker goes on
				changes = nil
			}
			n.unlessSuspended(func() {
				n.watchLinks()
				n.recoverDevices()
			})
		case <-tick.C:
			n.unlessSuspended(n.watchAll)
		}
	}
}

// watchAll compares links and claims, and reads counters.
func (n *Node) watchAll() {
	n.watchLinks()
	n.recoverDevices()
	n.watchChecksums(time.Now())
	n.watchLosses(time.Now())
	if err := n.Update(); err != nil {
		n.log.Error("steering", "error", err.Error())
	}
}

// openNetlink opens what tells of interfaces, in the network namespace of the calling
// thread: that of the devices. Without the subscription changes are seen every
// updateEvery.
func (n *Node) openNetlink() (err error) {
	if n.netlink, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	updates := make(chan netlink.LinkUpdate)
	err = netlink.LinkSubscribeWithOptions(updates, n.closed, netlink.LinkSubscribeOptions{
		ErrorCallback: func(err error) { n.log.Debug("link", "error", err.Error()) },
	})
	if err != nil {
		n.log.Warn("link", "error", err.Error())
		return nil
	}
	n.linkUpdates = updates
	return nil
}

// drainLinks is called after closed has ended the subscription: its goroutine may be in
// the middle of a send. It discards what the subscription still has to say, so that it
// can end.
func (n *Node) drainLinks() {
	if n.linkUpdates == nil {
		return
	}
	go func() {
		for range n.linkUpdates {
		}
	}()
}

// writeLinks writes the state of the interfaces.
func (n *Node) writeLinks(w *metrics.Writer) {
	for _, l := range n.Links() {
		up := 0.0
		if l.State == LinkUp {
			up = 1
		}
		w.Gauge("millrace_device_up", "1 while the interface is up and has carrier, and its driver receives.", up, metrics.Label{Name: "device", Value: l.Name})
	}
}
