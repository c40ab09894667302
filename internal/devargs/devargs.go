// Package devargs parses names of devices that are no interfaces of the kernel: those of DPDK, as its "device arguments" have
// them, and the sockets of vhost-user. It opens nothing, so that configurations can be checked where a device is missing.
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

	// Exception is the TAP interface of the exception path, by which the kernel gets what is not claimed ("exception=mr0"); ""
	// where there is none.
	Exception string
}

var (
	pciAddress    = regexp.MustCompile(`^(?:[0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$`)
	interfaceName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,14}$`)
	virtualName   = regexp.MustCompile(`^(net_[a-z0-9_]*[a-z_])\d+$`)
)

// mostName is the longest name of a device that DPDK takes (RTE_DEV_NAME_MAX_LEN and RTE_ETH_NAME_MAX_LEN, with the end of
// the string).
const mostName = 63

// Is reports whether name is that of a device which selects its driver: of DPDK, or of a vhost-user socket.
func Is(name string) bool { return IsDPDK(name) || IsSocket(name) }

// IsDPDK reports whether name is that of a DPDK device.
func IsDPDK(name string) bool { return strings.HasPrefix(name, Prefix) }

// Check returns what is wrong with a name that Is is true of.
func Check(name string) (err error) {
	if IsSocket(name) {
		_, err = ParseSocket(name)
	} else {
		_, err = Parse(name)
	}
	return err
}

// Parse parses a name, with or without Prefix.
func Parse(text string) (Args, error) {
	text, bind, asked := cut(strings.TrimPrefix(text, Prefix), "bind=")
	text, exception, excepts := cut(text, "exception=")
	name, _, _ := strings.Cut(text, ",")
	a := Args{Name: name, Text: text, Bind: bind, Exception: exception}
	switch {
	case strings.ContainsAny(text+exception, " \t\n\x00"):
		return a, fmt.Errorf("%q has white space", text)
	case asked && bind == "":
		return a, fmt.Errorf("bind= lacks the driver, as vfio-pci")
	case excepts && !interfaceName.MatchString(exception):
		return a, fmt.Errorf("exception=%s is no name of an interface: 1 to 15 letters, digits, dots, - and _", exception)
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

// cut takes an argument that is ours, and not DPDK's, out of the others.
func cut(text, key string) (rest, value string, asked bool) {
	var others []string
	for arg := range strings.SplitSeq(text, ",") {
		if v, ok := strings.CutPrefix(arg, key); ok {
			value, asked = v, true
			continue
		}
		others = append(others, arg)
	}
	return strings.Join(others, ","), value, asked
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

// Kernel returns the interface by which the kernel reaches the network of a device: that of the exception path, that which a
// DPDK device is on, or the name itself.
func Kernel(name string) string {
	if !Is(name) {
		return name
	}
	if a, err := Parse(name); err == nil && a.Exception != "" {
		return a.Exception
	}
	return Interface(name)
}

// Excepts reports whether the kernel gets what is not claimed of a device, by an exception path.
func Excepts(name string) bool {
	a, err := Parse(name)
	return Is(name) && err == nil && a.Exception != ""
}

// Below returns the interface that must be there before a device can be opened: that which a DPDK device is on, or the name
// itself; "" where there is none.
func Below(name string) string {
	if !Is(name) {
		return name
	}
	return Interface(name)
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
