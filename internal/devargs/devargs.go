// Package devargs parses names of DPDK's devices, as DPDK's "device arguments" have them: a device, and what its driver is
// given. It opens nothing, so that configurations can be checked where DPDK is missing.
package devargs

import (
	"fmt"
	"regexp"
	"strings"
)

// Prefix begins the name of a DPDK device where interfaces of the kernel may be named too: "dpdk:net_null0".
const Prefix = "dpdk:"

// Args is a parsed name.
type Args struct {
	Name    string // of the device: "net_af_xdp0", "0000:3b:00.0"
	Text    string // with its arguments, as DPDK takes it: "net_af_xdp0,iface=eth1"
	Virtual bool   // a device that its driver makes; others are on a bus
	Kind    string // of a virtual one, its driver: "net_af_xdp"
	Bind    string // of a PCI device, the kernel's driver that it is bound to while it is open ("bind=vfio-pci"); "" leaves it
}

var (
	pciAddress  = regexp.MustCompile(`^(?:[0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$`)
	virtualName = regexp.MustCompile(`^(net_[a-z0-9_]*[a-z_])\d+$`)
)

// mostName is the longest name of a device that DPDK takes (RTE_DEV_NAME_MAX_LEN and RTE_ETH_NAME_MAX_LEN, with the end of
// the string).
const mostName = 63

// Is reports whether name is that of a DPDK device.
func Is(name string) bool { return strings.HasPrefix(name, Prefix) }

// Parse parses a name, with or without Prefix.
func Parse(text string) (Args, error) {
	text, bind, asked := cutBind(strings.TrimPrefix(text, Prefix))
	name, _, _ := strings.Cut(text, ",")
	a := Args{Name: name, Text: text, Bind: bind}
	switch {
	case strings.ContainsAny(text, " \t\n\x00"):
		return a, fmt.Errorf("%q has white space", text)
	case asked && bind == "":
		return a, fmt.Errorf("bind= lacks the driver, as vfio-pci")
	case pciAddress.MatchString(name):
		if strings.Count(name, ":") == 1 { // as lspci shows it; DPDK names the domain
			a.Name, a.Text = "0000:"+name, "0000:"+text
		}
		return a, nil
	case asked:
		return a, fmt.Errorf("%q is no PCI device, so it cannot be bound to a driver", name)
	case len(name) > mostName:
		return a, fmt.Errorf("the name %q has more than %d bytes", name, mostName)
	}
	m := virtualName.FindStringSubmatch(name)
	if m == nil {
		return a, fmt.Errorf("%q is neither a PCI address (0000:3b:00.0) nor a virtual device with its number (net_null0)", name)
	}
	a.Virtual, a.Kind = true, m[1]
	return a, nil
}

// cutBind takes the argument that is ours, and not DPDK's, out of the others.
func cutBind(text string) (rest, driver string, asked bool) {
	var others []string
	for arg := range strings.SplitSeq(text, ",") {
		if value, ok := strings.CutPrefix(arg, "bind="); ok {
			driver, asked = value, true
			continue
		}
		others = append(others, arg)
	}
	return strings.Join(others, ","), driver, asked
}

// Interface returns the interface of the kernel that a device of this name is on; "" where there is none or DPDK has
// taken it from the kernel.
func Interface(name string) string {
	a, err := Parse(name)
	if err != nil {
		return ""
	}
	for arg := range strings.SplitSeq(a.Text, ",") {
		if value, ok := strings.CutPrefix(arg, "iface="); ok {
			return value
		}
	}
	return ""
}

// Kernel returns the interface of the kernel that a device is known by there: that of a DPDK device, or the name itself.
func Kernel(name string) string {
	if Is(name) {
		return Interface(name)
	}
	return name
}

// FrameSize returns the size in bytes of the frames that a device needs for packets of an MTU of 1500.
//
// DPDK's AF_XDP driver has 576 bytes of headers in front of a packet, which leaves 1472 of 2048, and its AF_PACKET driver
// wants room for 2016 bytes behind DPDK's headroom.
func FrameSize(name string) int {
	if a, err := Parse(name); err == nil && (a.Kind == "net_af_xdp" || a.Kind == "net_af_packet") {
		return 4096
	}
	return 2048
}
