package node

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/pmd/device"
)

// A queue of AF_XDP and the XDP program of an interface have one owner. A process that replaces another opens the devices once the other
// has closed them; the other keeps its loops and tables, and opens them again if the new one fails.

// errSuspend is the error of SuspendDevices.
var errSuspend = errors.New("it cannot be opened again by this process or another one")

// SuspendDevices closes the devices. Their packets go to the kernel until a process opens them; loops go on, and their tables stay. On an
// error nothing has changed.
func (n *Node) SuspendDevices() error {
	for i, dev := range n.cfg.Devices {
		if !n.recoverable(i) {
			return fmt.Errorf("device %s: %w", dev.Name, errSuspend)
		}
	}
	n.suspending.Lock()
	defer n.suspending.Unlock()
	n.suspended = true
	for i := range n.cfg.Devices {
		if !n.install(i, device.Absent(n.devices[i])) {
			return errors.New("the loops have ended")
		}
	}
	return nil
}

// ResumeDevices opens the devices again after SuspendDevices. While another process still has one it tries again, until the node closes.
func (n *Node) ResumeDevices() {
	n.suspending.Lock()
	defer n.suspending.Unlock()
	if !n.suspended {
		return
	}
	for i, old := range n.Links() {
		for logged := false; ; logged = true {
			now, err := n.reopen(i, n.cfg.Devices[i])
			if err == nil {
				n.setLink(i, &old, &now)
				break
			}
			if !logged {
				n.log.Warn("device", "name", n.cfg.Devices[i].Name, "state", "not opened again", "error", err.Error())
			}
			select {
			case <-n.ended:
				return
			case <-time.After(busyInterval):
			}
		}
	}
	n.suspended = false
}

// unlessSuspended runs f, unless the devices are suspended.
func (n *Node) unlessSuspended(f func()) {
	n.suspending.Lock()
	defer n.suspending.Unlock()
	if !n.suspended {
		f()
	}
}
