package socket

import "net/netip"

// Interface is a device of the stack with its addresses.
type Interface struct {
	Index    uint32 // as Message.Interface has it
	Name     string // of the device; "" is none
	MTU      int    // largest IP packet, bytes
	MAC      [6]byte
	Prefixes []netip.Prefix // addresses that packets may be sent from, with the length of their prefix
}

// Interfaces returns the devices of the stack. Addresses that must not be used yet, or were found at another host, are left
// out (RFC 4862 5.4).
func (in LoopStack) Interfaces() []Interface {
	devices, addrs := in.h.DeviceInfo(), in.h.IP.Addrs()
	var list []Interface
	for i, d := range devices {
		list = append(list, Interface{Index: uint32(i) + 1, Name: d.Device, MTU: d.MTU, MAC: d.MAC})
	}
	for _, a := range addrs {
		if a.State != "tentative" && a.State != "duplicate" {
			list[a.Dev].Prefixes = append(list[a.Dev].Prefixes, a.Prefix)
		}
	}
	return list
}
