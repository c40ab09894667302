package node

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/devargs"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/afxdp"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/stack"
)

// Device is an interface of a node, a device of DPDK or a vhost-user socket.
type Device struct {
	Name   string        // as `ip link` shows it; "dpdk:", "vhost:" or "virtio:" with the name there and arguments
	Driver device.Driver // "" is device.Auto
	Mode   string        // AF_XDP: "auto" (and ""), "native" or "generic"
	All    bool          // take every packet, so that the kernel's stack gets none
	Ring   int           // packets of a queue that may wait for their loop, as device.Config.Ring; 0 is device.DefaultRing
}

// Config returns what opens the device with the pools of its loops.
func (d *Device) Config(pools []*ring.Pool) device.Config {
	return device.Config{Name: d.Name, Driver: d.Driver, Mode: d.Mode, Pools: pools, All: d.All, Ring: d.Ring}
}

// QueuesAuto, as Config.Loops, stands for as many queues as the devices receive on.
const QueuesAuto = 0

// MaxQueues is the number of queues of a device that a node serves. Each pair of loops has
// rings of its own, so the memory of the mesh grows with the square of the loops.
const MaxQueues = 64

// findDevices makes a misspelt name cost nothing: it reports a device whose interface
// does not exist, before any is touched. A TAP device is made by its driver.
func (n *Node) findDevices() error {
	if len(n.cfg.Devices) == 0 {
		return errors.New("node: no device")
	}
	if n.cfg.OpenDevice != nil {
		return nil // what it opens need not be an interface
	}
	for _, dev := range n.cfg.Devices {
		if dev.Driver == device.TAP {
			continue
		}
		if devargs.Is(dev.Name) {
			if err := devargs.Check(dev.Name); err != nil {
				return fmt.Errorf("device %s: %w", dev.Name, err)
			}
			continue // its driver makes it, or finds it on its bus
		}
		if err := FindInterface(dev.Name); err != nil {
			return err
		}
	}
	return nil
}

// FindInterface is the one check of an interface's name in all commands, so that its
// error reads alike. It returns an error that lists the interfaces of this machine
// unless one has the name.
func FindInterface(name string) error {
	if _, err := net.InterfaceByName(name); err == nil {
		return nil
	}
	all, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	names := make([]string, len(all))
	for i, in := range all {
		names[i] = in.Name
	}
	return fmt.Errorf("there is no interface %q here, only %s", name, strings.Join(names, ", "))
}

// setQueues finds out what QueuesAuto is.
func (n *Node) setQueues() error {
	if n.cfg.Loops != QueuesAuto {
		return nil
	}
	var names []string
	for _, dev := range n.cfg.Devices {
		if !devargs.Is(dev.Name) { // which has as many queues as it is opened with
			names = append(names, dev.Name)
		}
	}
	if len(names) == 0 {
		n.cfg.Loops = 1
		return nil
	}
	loops, err := countQueues(names, afxdp.RxQueues)
	if err != nil {
		return err
	}
	n.cfg.Loops = loops
	if list := n.cfg.CPUs.List; len(list) > 0 && len(list) != loops {
		return fmt.Errorf("queues: auto: cpus names %d CPUs for %d loops (name one for each)", len(list), loops)
	}
	return nil
}

// countQueues settles `queues: auto`. It returns how many queues the interfaces receive
// on, which count says. Loop i serves queue i of every device, and packets on a queue
// that no loop serves would go to the kernel: so all must have as many.
func countQueues(devices []string, count func(device string) (int, error)) (least int, err error) {
	var first, other string // with the least, and with another number
	for _, dev := range devices {
		k, err := count(dev)
		if err != nil {
			return 0, fmt.Errorf("queues: auto: %w", err)
		}
		switch {
		case least == 0:
			least, first = k, dev
		case k < least:
			least, first, other = k, dev, first
		case k > least:
			other = dev
		}
	}
	const remedy = "`ethtool -L %s combined %d`, or write a number for queues"
	if other != "" {
		return 0, fmt.Errorf("queues: auto: %s receives on %d queues and %s on more ("+remedy+")", first, least, other, other, least)
	}
	if least > MaxQueues {
		return 0, fmt.Errorf("queues: auto: %s receives on %d queues, at most %d are served ("+remedy+")", first, least, MaxQueues, first, MaxQueues)
	}
	return least, nil
}

// openDevices opens the devices after the memory, because a driver registers the arena
// with the kernel when it opens (XDP_UMEM_REG). It makes the memory of all loops and
// opens the interfaces, which steer nothing yet.
func (n *Node) openDevices() (err error) {
	n.fitRings(availableMemory())
	devices := make([]device.Config, len(n.cfg.Devices))
	for i, dev := range n.cfg.Devices {
		devices[i] = device.Config{Name: dev.Name, Ring: dev.Ring}
	}
	if n.arena, n.pools, err = device.NewArena(n.cfg.Loops, devices...); err != nil {
		return err
	}
	if n.cfg.BeforeDevices != nil {
		if err := n.cfg.BeforeDevices(); err != nil {
			return err
		}
	}
	for _, c := range n.cfg.Devices {
		dev, err := n.awaitDevice(c)
		if err != nil {
			return err
		}
		n.devices, n.takesAll = append(n.devices, dev), append(n.takesAll, c.All)
		n.earlier = append(n.earlier, make([]pmd.Stats, len(dev.Queues)))
		l, err := n.newLink(c.Name, dev)
		if err != nil {
			return err
		}
		n.links = append(n.links, l)
		n.logDevice(&c, dev)
	}
	n.recovery = make([]recovery, len(n.devices))
	n.compareMTUs()
	return nil
}

// busyLimit is the time that Open waits for a device that another process has: longer than a node that
// is stopping keeps it.
const busyLimit = shutdownLimit + time.Second

// awaitDevice opens one device. Where it is in use it may be that of the program's last run,
// which still lets its connections finish, or whose sockets the kernel has not released: so it
// tries for busyLimit.
func (n *Node) awaitDevice(c Device) (*device.Device, error) {
	dev, err := n.openDevice(c)
	if !errors.Is(err, pmd.ErrBusy) {
		return dev, err
	}
	n.log.Warn("device", "name", c.Name, "state", "busy", "error", err.Error(), "waiting", busyLimit.String())
	for end := time.Now().Add(busyLimit); errors.Is(err, pmd.ErrBusy) && time.Now().Before(end); {
		time.Sleep(busyInterval)
		dev, err = n.openDevice(c)
	}
	return dev, err
}

// busyInterval is between two attempts, each of which looks for the holder in all processes.
const busyInterval = 100 * time.Millisecond

// openDevice opens one device, which borrows the pools until it is closed.
func (n *Node) openDevice(c Device) (*device.Device, error) {
	if n.cfg.OpenDevice != nil {
		return n.cfg.OpenDevice(c, n.pools)
	}
	return device.Open(c.Config(n.pools))
}

// logDevice says which driver and mode a device has got: with automatic choices an
// operator must be able to see that a slower one is in use, and why.
func (n *Node) logDevice(c *Device, dev *device.Device) {
	info, takes := dev.Queues[0].Info(), "claimed packets"
	if c.All || dev.Driver.Named() && !devargs.Excepts(c.Name) {
		takes = "every packet"
	}
	n.log.Info("device", "name", c.Name, "driver", string(dev.Driver), "queues", len(dev.Queues), "mtu", info.MTU,
		"negotiated", info.Negotiated, "takes", takes)
	if dev.Why != "" {
		n.log.Warn("not AF_XDP", "device", c.Name, "using", string(dev.Driver), "why", dev.Why)
	}
}

// OnOpened calls f for each device, and again for each that is opened anew when its interface has come back: with what
// has been opened and the index of the interface, in the network namespace of the devices, before packets come from it.
// It is called once, before Start.
func (n *Node) OnOpened(f func(i int, dev *device.Device, index int)) error {
	n.opened = f
	return inNamespace(n.namespace, func() error {
		for i, dev := range n.devices {
			f(i, dev, n.links[i].index)
		}
		return nil
	})
}

// compareMTUs looks once, at the start: path MTU discovery answers for what is too big,
// but an operator who raises one MTU usually meant both. It warns of packets that will
// be dropped: what one device brings may be too big for another.
func (n *Node) compareMTUs() {
	first := n.devices[0].Queues[0].Info()
	for _, dev := range n.devices[1:] {
		if info := dev.Queues[0].Info(); info.MTU != first.MTU && info.MTU > 0 && first.MTU > 0 { // 0 is unknown
			n.log.Warn("MTUs differ: larger packets are dropped as too_big", "device", info.Device, "mtu", info.MTU,
				"other", first.Device, "other_mtu", first.MTU)
		}
	}
}

// Info returns the driver's description of a device, by its first queue. All queues have
// the same link address, MTU and modes.
func (n *Node) Info(dev int) pmd.Info {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.queueInfo(dev, 0)
}

// queueInfo returns what the driver of a queue says, with the counts of those that it had before.
// The caller holds n.mu.
func (n *Node) queueInfo(dev, queue int) pmd.Info {
	info := n.devices[dev].Queues[queue].Info()
	info.Stats.Add(n.earlier[dev][queue])
	return info
}

// TakesAll reports whether a device takes every packet.
func (n *Node) TakesAll(dev int) bool { return n.takesAll[dev] }

// SetOffload trades the price of segmentation against what services can do with large
// packets. It makes the devices pass large packets (GSO, GRO) whole, or segment them,
// and reports what they do now: they pass them whole only where every device can.
// With it the loops also join the packets of one burst that join selects
// (stack.Loop.SetGRO), where every device can send the result.
func (n *Node) SetOffload(large bool, join stack.GRO) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked.large, n.asked.join = large, join
	if !large {
		join = stack.GRONone
	}
	for _, l := range n.loops {
		l.SetGRO(join)
	}
	return n.setLarge(large)
}

// ReceiveLarge is SetOffload without the joining of segments: for a node whose only service is a host, which joins those
// of its connections itself.
func (n *Node) ReceiveLarge(large bool) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.setLarge(large)
}

// setLarge makes the devices pass large packets whole, where every one can. The caller holds n.mu.
func (n *Node) setLarge(large bool) (bool, error) {
	n.offload = large && device.CanOffload(n.devices...)
	return n.offload, device.SetOffload(n.offload, n.devices...)
}

// Offload returns what SetOffload was called with last.
func (n *Node) Offload() (large bool, join stack.GRO) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked.large, n.asked.join
}

// burst bounds how long one device keeps a loop from the others. It is how many
// descriptors a loop takes at once: a large packet of 64 KiB has 33.
func (n *Node) burst() int {
	switch {
	case n.cfg.Burst != 0:
		return n.cfg.Burst
	case device.CanOffload(n.devices...):
		return packet.BatchSize
	}
	return stack.DefaultBurst
}
