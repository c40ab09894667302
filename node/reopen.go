package node

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/devargs"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/stack"
)

// An interface that is deleted takes the sockets of its driver with it. The one that is made
// under its name later has another index, so its driver is opened anew on the same pools and
// takes the place of the old one. Between the two, the loops have drivers that are down.

// recovery is the state of a device whose interface is gone, or whose driver has ended.
type recovery struct {
	away    bool      // no loop has the dead driver any more
	failure string    // why the last attempt to open it failed, as logged
	err     error     // with which the driver has ended although the interface is there
	since   time.Time // when that was first seen; zero: it has not
}

// recoverable reports whether device i is opened again when its interface comes back. That of a
// TAP device does not: its driver makes it.
func (n *Node) recoverable(i int) bool {
	return n.cfg.OpenDevice == nil && n.cfg.Devices[i].Driver != device.TAP
}

// mayRecover reports whether any device may come back, so that loops go on without one.
func (n *Node) mayRecover() bool {
	for i := range n.cfg.Devices {
		if n.recoverable(i) {
			return true
		}
	}
	return false
}

// recoverDevices opens the devices again whose interfaces were gone and have come back, or whose drivers have ended. Others
// serve meanwhile: a loop waits for one command only.
func (n *Node) recoverDevices() {
	for i, old := range n.Links() {
		if old.State != LinkGone && old.State != LinkFailed || !n.recoverable(i) {
			continue
		}
		r := &n.recovery[i]
		if !r.away {
			if r.away = n.install(i, device.Absent(n.devices[i])); !r.away {
				return // the loops have ended
			}
		}
		c := n.cfg.Devices[i]
		if old.State == LinkFailed && !devargs.Is(c.Name) {
			c.Name = cmp.Or(old.as, c.Name)
		}
		if kernel := devargs.Below(c.Name); kernel != "" { // without one, opening shows whether it is back
			if _, err := n.netlink.LinkByName(kernel); err != nil {
				continue // not yet
			}
		}
		now, err := n.reopen(i, c)
		if err == nil {
			*r = recovery{}
			n.setLink(i, &old, &now)
			continue
		}
		if text := err.Error(); text != r.failure { // it is tried every second
			r.failure = text
			n.log.Error("device", "name", c.Name, "state", "not opened again", "error", text)
		}
	}
}

// reopen opens device i anew, gives its queues to the loops and steers to them. It has the driver
// that it had: another might not take what the other devices bring.
func (n *Node) reopen(i int, c Device) (l Link, err error) {
	c.Driver = n.devices[i].Driver
	var dev *device.Device
	err = inNamespace(n.namespace, func() (err error) {
		cfg := c.Config(n.pools)
		cfg.OnLoop = n.OnLoop
		dev, err = device.Open(cfg)
		return err
	})
	if err != nil {
		return l, err
	}
	if l, err = n.newLink(c.Name, dev); err != nil { // it has gone again
		return l, errors.Join(err, dev.Close())
	}
	l.Name = n.cfg.Devices[i].Name // the interface may have another by now
	if n.opened != nil {
		_ = inNamespace(n.namespace, func() error { n.opened(i, dev, l.index); return nil })
	}
	if !n.install(i, dev) {
		return l, errors.New("the loops have ended")
	}
	n.mu.Lock()
	if !n.takesAll[i] {
		err = dev.Steer(n.steered...)
		n.logSteering(i, dev)
	}
	if err == nil && n.offload {
		err = device.SetOffload(true, n.devices...)
	}
	if err != nil { // Update tries again
		n.log.Error("steering", "device", c.Name, "error", err.Error())
		n.steered, n.inSync = nil, false
	}
	n.mu.Unlock()
	n.logDevice(&c, dev)
	return l.look(n.netlink), nil
}

// install gives the loops the queues of dev in the place of those of device i, each between two
// of its iterations, and closes what was there. It reports false where the loops have ended: Close
// closes both then.
func (n *Node) install(i int, dev *device.Device) bool {
	n.mu.Lock()
	n.joining = append(n.joining, dev)
	n.mu.Unlock()
	for q, l := range n.loops {
		var err error
		if !n.OnLoop(q, func() { err = replace(l, i, dev.Queues[q]) }) {
			return false
		}
		if err != nil { // a dead driver may have nothing left that can be closed
			n.log.Debug("device", "name", n.cfg.Devices[i].Name, "queue", q, "error", err.Error())
		}
	}
	n.mu.Lock()
	old := n.devices[i]
	n.devices[i] = dev
	for q, drv := range old.Queues {
		n.earlier[i][q].Add(drv.Info().Stats)
	}
	n.joining = slices.DeleteFunc(n.joining, func(d *device.Device) bool { return d == dev })
	n.mu.Unlock()
	if err := old.Close(); err != nil {
		n.log.Debug("device", "name", n.cfg.Devices[i].Name, "error", err.Error())
	}
	return true
}

// replace gives device i of a loop another driver and closes the old one. The loop calls it, because
// the frames of the old one return to its pool.
func replace(l *stack.Loop, i int, drv pmd.Driver) error {
	old, err := l.Replace(i, drv)
	if err != nil {
		return err
	}
	return old.Close()
}

// saveNamespace keeps the network namespace of the calling thread, in which devices are opened
// again. Where there is no /proc, they are opened in that of the process.
func (n *Node) saveNamespace() error {
	f, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		n.log.Debug("device", "error", err.Error())
		return nil
	}
	n.namespace = f
	return nil
}

// inNamespace runs f on a thread in the network namespace ns.
func inNamespace(ns *os.File, f func() error) error {
	if ns == nil {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		moved, err := enter(ns)
		if !moved {
			defer runtime.UnlockOSThread() // one that has moved ends with its goroutine
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// enter moves the calling thread to ns and reports whether it was elsewhere. One that is there
// already needs no right for it: setns(2) would ask for CAP_SYS_ADMIN.
func enter(ns *os.File) (moved bool, err error) {
	var want, is unix.Stat_t
	if err := errors.Join(unix.Fstat(int(ns.Fd()), &want), unix.Stat("/proc/thread-self/ns/net", &is)); err != nil {
		return false, err
	}
	if want.Dev == is.Dev && want.Ino == is.Ino {
		return false, nil
	}
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return false, fmt.Errorf("enter the network namespace of the devices: %w", err)
	}
	return true, nil
}
