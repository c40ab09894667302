package afxdp

import (
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/rtnl"
	"github.com/millrace/millrace/pmd"
)

// iface holds the properties of an interface that the driver uses.
type iface struct {
	name   string
	index  int
	mtu    int
	mac    [6]byte
	queues int // for receiving

	virtual bool // a veth, a bridge and so on: no NIC is behind it, which would have completed checksums
}

// lookUp reads them by netlink, in the network namespace of the calling thread, and the number of queues by ethtool where
// the driver supports that.
func lookUp(name string) (iface, error) {
	l, err := rtnl.Dump(func() (netlink.Link, error) { return netlink.LinkByName(name) })
	if err != nil {
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			return iface{name: name}, fmt.Errorf("no such interface: %w", pmd.ErrGone)
		}
		return iface{name: name}, err
	}
	a := l.Attrs()
	i := iface{name: name, index: a.Index, mtu: a.MTU, queues: max(a.NumRxQueues, 1), virtual: l.Type() != "device"}
	copy(i.mac[:], a.HardwareAddr)
	if n, err := channels(name); err == nil && n > 0 {
		i.queues = n
	}
	return i, nil
}

// linkByIndex finds an interface whatever its name is by now: an index is not reused while the interface exists.
func linkByIndex(index int) (netlink.Link, error) { return netlink.LinkByIndex(index) }

// RxQueues returns the number of queues that the interface receives on: how many a Config must
// open so that every packet that a rule names is steered.
func RxQueues(name string) (int, error) {
	i, err := lookUp(name)
	if err != nil {
		return 0, &pmd.OpError{Op: "open", Device: name, Err: err}
	}
	return i.queues, nil
}

// ethtoolChannels is struct ethtool_channels of linux/ethtool.h.
type ethtoolChannels struct {
	cmd                                    uint32
	maxRx, maxTx, maxOther, maxCombined    uint32
	rxCount, txCount, otherCount, combined uint32
}

// channels returns the number of receive queues in use (ETHTOOL_GCHANNELS). Netlink only knows how many the device could
// have (IFLA_NUM_RX_QUEUES), and a queue without a socket keeps its packets in the kernel. Combined channels receive too.
func channels(name string) (int, error) {
	ch := ethtoolChannels{cmd: unix.ETHTOOL_GCHANNELS}
	if err := ethtool(name, unsafe.Pointer(&ch)); err != nil {
		return 0, err
	}
	return int(ch.rxCount + ch.combined), nil
}

// TxChecksumOff switches the transmit checksum offload of an interface off, and segmentation, which
// needs it, with it, as `ethtool -K name tx off` does. It is meant for the far end of a veth whose near
// end is open here: the kernel leaves checksums to the "hardware" of a veth, which has none. Packets
// arrive with only the pseudo-header in their TCP and UDP checksums and, in generic mode, unsegmented
// (docs/design/002-afxdp.md).
func TxChecksumOff(name string) error {
	v := ethtoolValue{cmd: unix.ETHTOOL_STXCSUM}
	if err := ethtool(name, unsafe.Pointer(&v)); err != nil {
		return &pmd.OpError{Op: "switch checksum offload off", Device: name, Err: err}
	}
	return nil
}

// ethtoolValue is struct ethtool_value of linux/ethtool.h.
type ethtoolValue struct{ cmd, data uint32 }

// ethtool makes the SIOCETHTOOL ioctl with a command of linux/ethtool.h: struct ifreq with a pointer to the command, whose
// first 32 bits name it. A short-lived socket is enough, since ioctls of an interface work on any.
func ethtool(name string, cmd unsafe.Pointer) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: cmd}
	copy(req.name[:unix.IFNAMSIZ-1], name)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); e != 0 {
		return e
	}
	return nil
}

// addressFilter opens the address filter of the NIC for frames that the kernel has not subscribed to: all of
// them, or the multicast groups in which neighbours are solicited. Without it the NIC would drop a
// solicitation for an address that the kernel does not have. It is the membership of a packet socket
// that receives nothing, so the kernel removes it when the process ends, however it ends.
type addressFilter struct {
	fd, ifindex int
}

// openAddressFilter opens the packet socket. Protocol 0 receives nothing.
func openAddressFilter(ifindex int) (*addressFilter, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket for the address filter: %w", err)
	}
	return &addressFilter{fd, ifindex}, nil
}

// promiscuous lets frames to every address in.
func (f *addressFilter) promiscuous() error {
	return f.change(unix.PACKET_ADD_MEMBERSHIP, unix.PacketMreq{Type: unix.PACKET_MR_PROMISC})
}

// neighbor joins the group of solicitations for an IPv6 address, or leaves it. The kernel counts
// memberships: addresses with the same last 24 bits share a group. IPv4 needs none, because ARP is
// broadcast. A nil filter has no interface.
func (f *addressFilter) neighbor(addr netip.Addr, on bool) error {
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

// change adds or drops a membership of the socket (packet(7), PACKET_ADD_MEMBERSHIP). The kernel counts memberships for
// each interface and undoes those of a socket when it is closed.
func (f *addressFilter) change(option int, m unix.PacketMreq) error {
	m.Ifindex = int32(f.ifindex)
	if err := unix.SetsockoptPacketMreq(f.fd, unix.SOL_PACKET, option, &m); err != nil {
		return fmt.Errorf("change the address filter: %w", err)
	}
	return nil
}

func (f *addressFilter) close() error { return unix.Close(f.fd) }
