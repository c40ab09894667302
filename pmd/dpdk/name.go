package dpdk

import (
	"fmt"
	"regexp"
	"strings"
)

// Prefix begins the names of DPDK's devices where devices of other drivers may be named too: "dpdk:net_null0".
const Prefix = "dpdk:"

// address is a device as DPDK's "device arguments" name it: "net_af_xdp0,iface=eth1" or "0000:3b:00.0".
type address struct {
	name    string // "net_af_xdp0"
	args    string // all of it
	virtual bool   // not a device of a bus
	kind    string // of a virtual device, its name without the number: "net_af_xdp"
}

var (
	pciAddress  = regexp.MustCompile(`^(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
	virtualName = regexp.MustCompile(`^(net_[a-z0-9_]*[a-z_])\d+$`)
)

// parseName parses a device's name and arguments.
func parseName(text string) (address, error) {
	text = strings.TrimPrefix(text, Prefix)
	name, _, _ := strings.Cut(text, ",")
	a := address{name: name, args: text}
	switch {
	case strings.ContainsAny(text, " \n\x00"):
		return a, fmt.Errorf("%w: %q has white space", ErrArguments, text)
	case pciAddress.MatchString(strings.ToLower(name)):
		if strings.Count(name, ":") == 1 { // as lspci shows it; DPDK names the domain
			a.name, a.args = "0000:"+name, "0000:"+text
		}
		return a, nil
	case len(name) > 63:
		return a, fmt.Errorf("%w: the name %q has more than 63 bytes", ErrArguments, name)
	}
	m := virtualName.FindStringSubmatch(name)
	if m == nil {
		return a, fmt.Errorf("%w: %q is neither a PCI address (0000:3b:00.0) nor a virtual device with its number (net_null0)", ErrArguments, name)
	}
	a.virtual, a.kind = true, m[1]
	return a, nil
}

// CheckName returns an error unless text can be the name of a device. Whether there is such a device shows when it is
// opened.
func CheckName(text string) error {
	_, err := parseName(text)
	return err
}

// FrameSize returns the size in bytes of the frames that a device needs for packets of an MTU of 1500.
func FrameSize(name string) int {
	if a, err := parseName(name); err == nil && (a.kind == "net_af_xdp" || a.kind == "net_af_packet") {
		return 4096
	}
	return 2048
}

// Frames with DPDK's AF_XDP driver. In front of a packet lie the mempool's header and the mbuf (192 bytes), DPDK's headroom
// (128) and that of XDP (256): 1472 bytes are left of 2048. XDP takes frames of a page at most. The AF_PACKET driver wants
// room for 2016 bytes behind DPDK's headroom, whatever the MTU.
const (
	xdpFrame  = 4096
	xdpBefore = 576
)
