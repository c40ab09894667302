package afxdp

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// filter opens the address filter of the NIC for frames that the kernel has not asked for: all of
// them, or the multicast groups in which neighbours are solicited. It is the membership of a packet
// socket that receives nothing, so the kernel takes it back when the process ends, however it ends.
type filter struct {
	fd, ifindex int
}

func openFilter(ifindex int) (*filter, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket for the address filter: %w", err)
	}
	return &filter{fd, ifindex}, nil
}

// promiscuous lets frames to every address in.
func (f *filter) promiscuous() error {
	return f.change(unix.PACKET_ADD_MEMBERSHIP, unix.PacketMreq{Type: unix.PACKET_MR_PROMISC})
}

// neighbor lets solicitations for an IPv6 address in, or no longer. The kernel counts: addresses
// with the same last 24 bits share a group. IPv4 needs nothing, ARP is broadcast. A nil filter has
// no interface.
func (f *filter) neighbor(addr netip.Addr, on bool) error {
	if f == nil || !addr.Is6() {
		return nil
	}
	ip := addr.As16()
	m := unix.PacketMreq{Type: unix.PACKET_MR_MULTICAST, Alen: 6}
	// The solicited-node group ff02::1:ffXX:XXXX (RFC 4291 2.7.1) on Ethernet (RFC 2464 7).
	m.Address = [8]byte{0x33, 0x33, 0xff, ip[13], ip[14], ip[15]}
	if on {
		return f.change(unix.PACKET_ADD_MEMBERSHIP, m)
	}
	return f.change(unix.PACKET_DROP_MEMBERSHIP, m)
}

func (f *filter) change(option int, m unix.PacketMreq) error {
	m.Ifindex = int32(f.ifindex)
	if err := unix.SetsockoptPacketMreq(f.fd, unix.SOL_PACKET, option, &m); err != nil {
		return fmt.Errorf("change the address filter: %w", err)
	}
	return nil
}

func (f *filter) close() error { return unix.Close(f.fd) }
