package dpdk

import (
	"errors"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/pmd"
)

// kernelLink is the interface of the kernel behind a device, by its index: of AF_XDP, AF_PACKET, TAP and NICs that the
// kernel drives as well (mlx5). The drivers of the first three report nothing of its state.
type kernelLink struct {
	fd    int // a socket, which stays in the interface's network namespace; -1 where there is no interface
	index uint32

	// members is a socket by whose memberships the interface passes more frames than its own; -1: none.
	members int

	// Linux counts what it drops because a TAP device is not read in time for the interface; DPDK's driver does not know.
	stats  *netlink.Handle // nil: not asked
	before uint64          // dropped before
}

// open prepares for the interface of an index; 0 is none.
func (l *kernelLink) open(index int) {
	if index == 0 {
		return
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		l.fd, l.index = fd, uint32(index)
	}
}

// receiveAlso makes the interface pass frames for other link addresses, and all multicast frames, until it is closed, or the process ends
// (packet(7)). DPDK's drivers for interfaces of the kernel do not ask for the second, and leave the first behind. Neighbour discovery
// for claimed addresses comes to groups that the kernel has not joined.
func (l *kernelLink) receiveAlso(others, multicast bool) error {
	if !others && !multicast {
		return nil
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // protocol 0 receives nothing
	if err != nil {
		return err
	}
	l.members = fd
	for kind, on := range map[uint16]bool{unix.PACKET_MR_PROMISC: others, unix.PACKET_MR_ALLMULTI: multicast} {
		if !on {
			continue
		}
		m := unix.PacketMreq{Ifindex: int32(l.index), Type: kind}
		if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m); err != nil {
			return err // closed with the device
		}
	}
	return nil
}

// countDrops counts what the interface drops from now on.
func (l *kernelLink) countDrops() {
	if l.fd < 0 {
		return
	}
	if h, err := netlink.NewHandle(unix.NETLINK_ROUTE); err == nil {
		l.stats, l.before = h, 0
		l.before = l.drops()
	}
}

// drops returns what the interface has dropped since countDrops.
func (l *kernelLink) drops() uint64 {
	if l.stats == nil {
		return 0
	}
	in, err := l.stats.LinkByIndex(int(l.index))
	if err != nil || in.Attrs().Statistics == nil || in.Attrs().Statistics.TxDropped < l.before {
		return 0
	}
	return in.Attrs().Statistics.TxDropped - l.before
}

func (l *kernelLink) close() {
	if l.stats != nil {
		l.stats.Close()
		l.stats = nil
	}
	for _, fd := range []*int{&l.fd, &l.members} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
}

// request returns a request for the interface under its present name (netdevice(7)).
func (l *kernelLink) request() (*unix.Ifreq, error) {
	var zero unix.Ifreq
	zero.SetUint32(l.index)
	if err := unix.IoctlIfreq(l.fd, unix.SIOCGIFNAME, &zero); err != nil {
		return nil, err
	}
	return unix.NewIfreq(zero.Name())
}

// mtu returns the interface's MTU; 0 where it is not known.
func (l *kernelLink) mtu() int {
	if l.fd < 0 {
		return 0
	}
	r, err := l.request()
	if err != nil || unix.IoctlIfreq(l.fd, unix.SIOCGIFMTU, r) != nil {
		return 0
	}
	return int(r.Uint32())
}

// state returns ErrDown or ErrGone unless the interface is up.
func (l *kernelLink) state() error {
	r, err := l.request()
	if err == nil {
		err = unix.IoctlIfreq(l.fd, unix.SIOCGIFFLAGS, r)
	}
	switch {
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return pmd.ErrGone
	case err == nil && r.Uint16()&unix.IFF_UP == 0:
		return pmd.ErrDown
	}
	return nil
}

func (l *kernelLink) gone() bool { return l.fd >= 0 && l.state() == pmd.ErrGone }

// linkState returns ErrDown or ErrGone unless packets can come and go.
func (d *Device) linkState() error {
	if d.link.fd >= 0 {
		return d.link.state()
	}
	if d.shim.call("mrd_link", uintptr(d.port)) == 0 {
		return pmd.ErrDown
	}
	return nil
}
