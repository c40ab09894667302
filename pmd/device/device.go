// Package device opens an interface with a driver by its name, or with the fastest that this machine
// permits, and gives all drivers one form. The commands that move packets share it.
package device

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/devargs"
	"github.com/millrace/millrace/internal/rtnl"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/afpacket"
	"github.com/millrace/millrace/pmd/afxdp"
	"github.com/millrace/millrace/pmd/dpdk"
	"github.com/millrace/millrace/pmd/tap"
	"github.com/millrace/millrace/ring"
)

// Driver is the name of a driver, as configurations and flags spell it.
type Driver string

// The drivers. Auto is AF_XDP, or AF_PACKET where the kernel does not have or permit AF_XDP, and on
// virtual interfaces where XDP is generic; the Device reports which it is and why.
const (
	Auto     Driver = "auto"
	AFXDP    Driver = "afxdp"
	AFPacket Driver = "afpacket"
	TAP      Driver = "tap"
)

// The drivers of devices whose names begin with their name and a colon ("dpdk:", "vhost:", "virtio:"); Config.Driver is Auto for them.
const (
	DPDK   Driver = "dpdk"
	Vhost  Driver = "vhost"  // the end of a virtual network device that a virtual machine connects to
	Virtio Driver = "virtio" // its driver's end
)

// Named reports whether names select the driver: its devices are no interfaces of the kernel, or taken from it.
func (d Driver) Named() bool { return d == DPDK || d == Vhost || d == Virtio }

// Drivers lists the names that Config.Driver takes.
var Drivers = []Driver{Auto, AFXDP, AFPacket, TAP}

// Modes are the XDP modes that Config.Mode takes.
var Modes = map[string]afxdp.Mode{
	"": afxdp.ModeAuto, "auto": afxdp.ModeAuto, "native": afxdp.ModeNative, "generic": afxdp.ModeGeneric,
}

// Config describes what to open. Name and Pools are required.
type Config struct {
	Name   string       // an interface, a device of DPDK ("dpdk:net_af_xdp0,iface=eth1"), or a vhost-user socket ("vhost:/run/vm1.sock")
	Driver Driver       // "" is Auto
	Mode   string       // AF_XDP: "auto" (or ""), "native" or "generic"
	Pools  []*ring.Pool // one for each queue, cut from one arena
	All    bool         // take every packet away from the kernel: a bump in the wire
	Rules  []pmd.Rule   // without All: the packets to take away from the kernel

	// Ring is the number of packets of a queue that may wait for their loop: a power of two from MinRing to MaxRing; 0 is
	// DefaultRing. Each takes a frame of the pool (NewArena), and with AF_PACKET 8 KiB of the kernel's memory.
	// What waits in a TAP device is the kernel's, with a limit of its own (txqueuelen), and what waits for a vhost-user back end the guest's.
	Ring int

	// OnLoop runs f in the loop of pool i, which alone may use the pool, and waits for it; false: the loops have ended. nil: no
	// loop runs yet.
	OnLoop func(i int, f func()) bool
}

// Device is an open interface.
type Device struct {
	Queues []pmd.Driver // one for each pool, in their order
	Driver Driver       // the driver in use, never Auto
	Why    string       // with Auto: why it is not AF_XDP; "" if it is

	loses      string // of AF_XDP: what it loses that AF_PACKET would bring, and why
	steer      func(...pmd.Rule) error
	inSoftware func() error               // nil where the driver has no rules of the device
	offload    func(on bool) error        // nil where the driver cannot
	before     func(*pmd.Prefilter) error // the same
	close      func() error
}

// New returns a device of drivers that the caller has opened: queue i is for loop i. closeDrivers closes
// them. The device steers nothing, so its drivers must bring only what is for the caller.
func New(driver Driver, queues []pmd.Driver, closeDrivers func() error) *Device {
	return &Device{Queues: queues, Driver: driver, close: closeDrivers, steer: func(...pmd.Rule) error { return nil }}
}

// Absent returns what stands for a device whose interface is gone, until it is opened again: it takes nothing, steers
// nothing, and passes large packets whole or not as its set of loops does.
func Absent(of *Device) *Device {
	queues := make([]pmd.Driver, len(of.Queues))
	for i, q := range of.Queues {
		queues[i] = pmd.NewAbsent(q)
	}
	d := New(of.Driver, queues, func() error { return nil })
	if of.offload != nil {
		d.offload = func(bool) error { return nil }
	}
	return d
}

// Open opens the interface. It borrows the pools until Close.
func Open(cfg Config) (*Device, error) {
	if _, ok := Modes[cfg.Mode]; !ok {
		return nil, fmt.Errorf("open %s: XDP mode %q: want auto, native or generic", cfg.Name, cfg.Mode)
	}
	if err := cfg.checkRing(); err != nil {
		return nil, err
	}
	if devargs.Is(cfg.Name) {
		return openNamed(cfg)
	}
	switch cfg.Driver {
	case AFXDP:
		return openAFXDP(cfg)
	case AFPacket:
		return openAFPacket(cfg)
	case TAP:
		return openTAP(cfg)
	case Auto, "":
		return openBest(cfg)
	}
	return nil, fmt.Errorf("open %s: no driver is called %q: want one of %v", cfg.Name, cfg.Driver, Drivers)
}

// openBest falls back to AF_PACKET only where AF_XDP can never work here, or loses packets that AF_PACKET brings. A busy or missing
// device is an error that AF_PACKET would hide and not solve.
func openBest(cfg Config) (*Device, error) {
	d, err := openAFXDP(cfg)
	if err == nil && d.loses != "" && cfg.Mode != "generic" {
		err = fmt.Errorf("%w: %s", pmd.ErrNotSupported, d.loses)
		if closing := d.Close(); closing != nil {
			return nil, errors.Join(err, closing)
		}
	}
	if err == nil || !errors.Is(err, pmd.ErrPermission) && !errors.Is(err, pmd.ErrNotSupported) {
		return d, err
	}
	d, second := openAFPacket(cfg)
	if second != nil {
		return nil, errors.Join(err, second)
	}
	d.Why = err.Error()
	return d, nil
}

// openAFXDP opens all receive queues of the interface: packets on a queue without a socket stay with the
// kernel, so a service would fail for some of its connections.
func openAFXDP(cfg Config) (*Device, error) {
	n, err := afxdp.RxQueues(cfg.Name)
	if err != nil {
		return nil, err
	}
	if n > len(cfg.Pools) {
		return nil, &pmd.OpError{
			Op: "open", Device: cfg.Name,
			Err:    fmt.Errorf("the interface receives on %d queues, %d are to be opened: packets on the others would stay with the kernel", n, len(cfg.Pools)),
			Remedy: fmt.Sprintf("open %d queues, or set `ethtool -L %s combined %d`", n, cfg.Name, len(cfg.Pools)),
		}
	}
	if _, err := afpacket.RemoveStale(cfg.Name); err != nil && !errors.Is(err, pmd.ErrPermission) && !errors.Is(err, unix.EPERM) {
		return nil, &pmd.OpError{
			Op: "open", Device: cfg.Name, Err: fmt.Errorf("the filter of a killed process cannot be removed: %w", err),
			Remedy: fmt.Sprintf("tc filter del dev %s ingress prio 49149", cfg.Name),
		}
	}
	dev, err := afxdp.Open(afxdp.Config{
		Interface: cfg.Name, Pools: cfg.Pools, Mode: Modes[cfg.Mode], All: cfg.All, Rules: cfg.Rules, Offload: true,
		FillLater: cfg.OnLoop != nil,
		Rings:     afxdp.Rings{Fill: cfg.ring(), Completion: txRing, Rx: cfg.ring(), Tx: txRing},
		RxFrames:  cfg.ring(),
	})
	if err != nil {
		return nil, err
	}
	return &Device{Queues: drivers(dev.Queues), Driver: AFXDP, loses: dev.LosesLarge(), steer: dev.Steering().Replace, before: dev.SetPrefilter, close: dev.Close}, nil
}

// openAFPacket hides the packets that rules name from the kernel, which would answer them too. With All it
// hides nothing, and the kernel sees a copy of what is addressed to it: the ingress filter survives a
// process that is killed, and with all packets dropped the machine could not be reached any more.
func openAFPacket(cfg Config) (*Device, error) {
	dev, err := afpacket.Open(afpacket.Config{
		Interface: cfg.Name, Pools: cfg.Pools, All: cfg.All, Rules: cfg.Rules, Exclusive: !cfg.All, Promiscuous: cfg.All,
		Offload: true, Ring: cfg.ring() * afpacketSlot,
	})
	if err != nil {
		return nil, err
	}
	return &Device{
		Queues: drivers(dev.Queues), Driver: AFPacket,
		steer: dev.SetRules, offload: dev.SetOffload, before: dev.SetPrefilter, close: dev.Close,
	}, nil
}

// openTAP opens a TAP device. Only this process reads its packets, so there is nothing to steer.
func openTAP(cfg Config) (*Device, error) {
	dev, err := tap.Open(tap.Config{Interface: cfg.Name, Pools: cfg.Pools})
	if err != nil {
		return nil, err
	}
	return &Device{
		Queues: drivers(dev.Queues), Driver: TAP, close: dev.Close,
		steer: func(...pmd.Rule) error { return nil },
	}, nil
}

// openNamed opens a device whose name selects the driver.
func openNamed(cfg Config) (*Device, error) {
	driver, open := DPDK, openDPDK
	if devargs.IsSocket(cfg.Name) {
		driver, open = Vhost, openVhost
		if devargs.IsVirtio(cfg.Name) {
			driver, open = Virtio, openVirtio
		}
	}
	if cfg.Driver != "" && cfg.Driver != Auto && cfg.Driver != driver || Modes[cfg.Mode] != afxdp.ModeAuto {
		return nil, &pmd.OpError{
			Op: "open", Device: cfg.Name, Err: fmt.Errorf("driver %q, mode %q: %w", cfg.Driver, cfg.Mode, dpdk.ErrArguments),
			Remedy: "leave both out: the name selects the driver",
		}
	}
	return open(cfg)
}

// openDPDK opens a device of DPDK, whose packets all come to this process. Unless it has an exception path, rules only
// distribute them to queues; with All it receives frames for other link addresses too.
func openDPDK(cfg Config) (*Device, error) {
	if iface := exceptionOf(cfg.Name); iface != "" {
		return openExcepted(cfg, iface)
	}
	dev, err := openDPDKDevice(cfg)
	if err != nil {
		return nil, err
	}
	d := &Device{Queues: drivers(dev.Queues), Driver: DPDK, close: dev.Close, steer: dev.Steer, inSoftware: dev.InSoftware}
	if err := d.steer(cfg.Rules...); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	if dev.CanOffload() {
		d.offload = dev.SetOffload
	}
	return d, nil
}

func openDPDKDevice(cfg Config) (*dpdk.Device, error) {
	return dpdk.Open(dpdk.Config{Name: cfg.Name, Pools: cfg.Pools, Ring: cfg.ring(), Promiscuous: cfg.All, Multicast: true, OnLoop: cfg.OnLoop})
}

// drivers turns a list of a driver's queues into one of the interface that they all have.
func drivers[Q pmd.Driver](queues []Q) []pmd.Driver {
	list := make([]pmd.Driver, len(queues))
	for i, q := range queues {
		list[i] = q
	}
	return list
}

// Steer makes rules the only ones, while packets flow.
func (d *Device) Steer(rules ...pmd.Rule) error { return d.steer(rules...) }

// InSoftware returns why a device that has rules of its own for what is claimed (DPDK's rte_flow) leaves some to software; nil where it
// does not, or where the driver steers otherwise.
func (d *Device) InSoftware() error {
	if d.inSoftware == nil {
		return nil
	}
	return d.inSoftware()
}

// SetPrefilter has p see packets of the interface before the driver's own filter; nil: none any more. Where that fails,
// or the driver has no filter (pmd.ErrNotSupported), nothing changes.
func (d *Device) SetPrefilter(p *pmd.Prefilter) error {
	if d.before == nil {
		return fmt.Errorf("%w: the driver %s has no filter in the kernel", pmd.ErrNotSupported, d.Driver)
	}
	return d.before(p)
}

// CanOffload reports whether every one of the devices takes packets with packet.FlagOffload. Only then
// may SetOffload have any of them bring such packets.
func CanOffload(devices ...*Device) bool {
	for _, d := range devices {
		if d.offload == nil {
			return false
		}
	}
	return true
}

// SetOffload makes the devices, those of one set of loops, pass large packets whole, or cut them, which is
// the default. Unless CanOffload is true of them they go on cutting: a packet might leave through one that
// cannot.
func SetOffload(on bool, devices ...*Device) error {
	if !CanOffload(devices...) {
		return nil
	}
	var errs []error
	for _, d := range devices {
		errs = append(errs, d.offload(on))
	}
	return errors.Join(errs...)
}

// Close closes every queue, which returns the frames to their pools.
func (d *Device) Close() error { return d.close() }

// Bounds and default of Config.Ring. The default takes 1 ms of packets at 2 Mpps.
const (
	MinRing     = 512
	DefaultRing = 2048
	MaxRing     = 32768
)

// StackRing is the default of devices whose packets end at this host: hundreds of senders that start at once fill
// DefaultRing while the loop waits for a core, and each then waits for its timeout. With few connections the host leaves most
// of it unused (pmd.RxDepth).
const StackRing = 32768

// txRing is the number of packets of a queue that may wait for the device. It does not follow Config.Ring: a loop that
// waits for a core sends nothing meanwhile, and what waits here only delays what comes behind it.
const txRing = 2048

// afpacketSlot is the kernel's memory for each packet of Config.Ring, bytes: DefaultRing is then the default of
// package afpacket with Offload.
const afpacketSlot = 4 * afpacket.DefaultRing / DefaultRing

// ring returns Ring, or the default.
func (c *Config) ring() int { return cmp.Or(c.Ring, DefaultRing) }

// checkRing rejects a Ring that the kernel would reject with EINVAL, or that takes memory without need.
func (c *Config) checkRing() error {
	if n := c.ring(); n < MinRing || n > MaxRing || n&(n-1) != 0 {
		return fmt.Errorf("open %s: a ring of %d packets: want a power of two from %d to %d", c.Name, n, MinRing, MaxRing)
	}
	return nil
}

// standardMTU is the largest MTU whose packets fit a frame of 2 KiB behind the headroom that XDP
// and pushed headers need.
const standardMTU = 1500

// NewArena makes memory for loops that each have one queue of every device: frames for full receive and transmit
// rings on all of them, as many as one transmit ring for packets between the two, and as many again where loops
// hand packets over. It reads Name and Ring of the devices, and returns one pool for each loop. Interfaces that do
// not exist yet (TAP) have the standard MTU.
func NewArena(loops int, devices ...Config) (*ring.Arena, []*ring.Pool, error) {
	size, each, shared := 2048, txRing, false
	if loops > 1 {
		each += txRing
	}
	for _, c := range devices {
		if err := c.checkRing(); err != nil {
			return nil, nil, err
		}
		each += c.ring() + txRing
		shared = shared || devargs.IsVirtio(c.Name)
		if devargs.IsDPDK(c.Name) {
			size = max(size, devargs.FrameSize(c.Name))
		}
		link, err := rtnl.Dump(func() (netlink.Link, error) { return netlink.LinkByName(devargs.Below(c.Name)) })
		if err == nil && link.Attrs().MTU > standardMTU {
			size = 4096
		}
	}
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: loops * each, FrameSize: size, Shared: shared})
	if err != nil {
		return nil, nil, err
	}
	pools := make([]*ring.Pool, loops)
	for i := range pools {
		if pools[i], err = arena.Cut(each); err != nil {
			return nil, nil, errors.Join(err, arena.Close())
		}
	}
	return arena, pools, nil
}
