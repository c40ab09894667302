package doctor

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// XDP features of a device, as the kernel's netdev family reports them (enum netdev_xdp_act).
const (
	xdpBasic    = 1 << 0 // runs XDP programs in the driver
	xdpRedirect = 1 << 1
	xdpZeroCopy = 1 << 3 // AF_XDP without a copy
	xdpRxSG     = 1 << 5 // packets of several frames
)

// Modes of an attached XDP program (XDP_ATTACHED_*).
var attachModes = map[uint32]string{1: "native", 2: "generic", 3: "hardware", 4: "several modes"}

// Link holds the properties of an interface by the kernel.
type Link struct {
	Name     string
	Up       bool
	Loopback bool
	MTU      int
	Driver   string // of the device, as ethtool names it; "" where there is none
	Queues   int    // receive queues in use; 0 is unknown
	Features uint64 // XDP features
	Known    bool   // Features is valid (Linux 6.3 and later)
	Program  uint32 // number of the XDP program attached; 0 is none
	Mode     uint32 // how it is attached (XDP_ATTACHED_*)
	Missing  bool   // there is no interface of this name
}

// Interface is a Link as the report shows it.
type Interface struct {
	Name       string `json:"name"`
	Driver     string `json:"driver"`
	Up         bool   `json:"up"`
	MTU        int    `json:"mtu"`
	Queues     int    `json:"queues"`
	XDP        string `json:"xdp"` // "native", "generic" or "unknown": the best mode of the device
	ZeroCopy   bool   `json:"zero_copy"`
	MultiBuf   bool   `json:"multi_buffer"`
	Program    uint32 `json:"program"`     // number of the XDP program attached now; 0 is none
	ProgramBy  string `json:"program_by"`  // the process that holds it, "" if none is visible
	AttachMode string `json:"attach_mode"` // "native", "generic", "" for none

	blind bool // files of other users' processes are not readable
}

// frameRoom is the payload of a 2 KiB frame: the kernel keeps 256 bytes in front of a packet
// (XDP_PACKET_HEADROOM).
const frameRoom = 2048 - 256

// linkHeader is Ethernet with two VLAN tags, which the MTU does not count.
const linkHeader = 14 + 8

// interfaces reports on the interfaces named, or on those that are up.
func (x *examination) interfaces(names []string) {
	links, err := x.Links(names)
	if err != nil {
		x.add(Check{Area: "interface", Name: "list", Status: Fail, Found: err.Error()})
		return
	}
	for _, l := range links {
		switch {
		case l.Missing:
			x.add(Check{Area: "interface", Name: l.Name, Status: Fail, Found: "there is no interface of this name", Remedy: "ip -brief link"})
		case len(names) == 0 && (l.Loopback || !l.Up):
		default:
			x.link(&l)
		}
	}
}

// link reports on one interface.
func (x *examination) link(l *Link) {
	i := Interface{
		Name: l.Name, Driver: l.Driver, Up: l.Up, MTU: l.MTU, Queues: l.Queues, XDP: l.mode(),
		ZeroCopy: l.Features&xdpZeroCopy != 0, MultiBuf: l.Features&xdpRxSG != 0,
		Program: l.Program, AttachMode: attachModes[l.Mode],
	}
	if l.Program != 0 {
		i.ProgramBy = x.Holder(x.FS, l.Program)
		i.blind = x.capabilities()>>unix.CAP_SYS_PTRACE&1 == 0
	}
	x.rep.Interfaces = append(x.rep.Interfaces, i)
	x.add(i.check())
}

// mode names the best XDP mode of the device.
func (l *Link) mode() string {
	switch {
	case !l.Known:
		return "unknown"
	case l.Features&xdpBasic != 0 && l.Features&xdpRedirect != 0:
		return "native"
	}
	return "generic"
}

// check evaluates an interface. The remedy is that of the first problem.
func (i *Interface) check() Check {
	c := Check{Area: "interface", Name: i.Name, Status: OK, Found: i.describe()}
	warn := func(found, remedy string) {
		c.Found += "; " + found
		if c.Status == OK {
			c.Status, c.Remedy = Warn, remedy
		}
	}
	if !i.Up {
		warn("it is down", "sudo ip link set dev "+i.Name+" up")
	}
	if i.Program != 0 {
		warn(i.attached())
	}
	if room := frameRoom - linkHeader; i.MTU > room && !i.MultiBuf && i.XDP != "unknown" {
		warn(fmt.Sprintf("MTU over %d does not fit a frame and the device cannot use several", room),
			"sudo ip link set dev "+i.Name+" mtu 1500")
	}
	if i.XDP == "generic" {
		warn("the driver has no native XDP: slower", "")
	}
	return c
}

// attached describes the program that is attached, and how to remove it.
func (i *Interface) attached() (found, remedy string) {
	found = fmt.Sprintf("XDP program %d is attached (%s)", i.Program, i.AttachMode)
	if i.ProgramBy != "" {
		return found + " and held by " + i.ProgramBy, "stop " + i.ProgramBy
	}
	found += " and held by no visible process"
	if i.blind {
		return found, "sudo millrace doctor --iface " + i.Name
	}
	return found, "sudo ip link set dev " + i.Name + " xdp off"
}

// describe lists what the device can do.
func (i *Interface) describe() string {
	driver := i.Driver
	if driver == "" {
		driver = "no driver"
	}
	parts := []string{driver, "XDP " + i.XDP}
	if i.ZeroCopy {
		parts = append(parts, "zero-copy")
	}
	if i.MultiBuf {
		parts = append(parts, "multi-buffer")
	}
	if i.Queues > 0 {
		parts = append(parts, plural(i.Queues, "queue"))
	}
	return strings.Join(append(parts, fmt.Sprintf("MTU %d", i.MTU)), ", ")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
