package afxdp

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/pmd"
)

// iface is what the driver needs to know of an interface.
type iface struct {
	name   string
	index  int
	mtu    int
	mac    [6]byte
	queues int // for receiving
}

func lookUp(name string) (iface, error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			return iface{name: name}, fmt.Errorf("no such interface: %w", pmd.ErrGone)
		}
		return iface{name: name}, err
	}
	a := l.Attrs()
	i := iface{name: name, index: a.Index, mtu: a.MTU, queues: max(a.NumRxQueues, 1)}
	copy(i.mac[:], a.HardwareAddr)
	if n, err := channels(name); err == nil && n > 0 {
		i.queues = n
	}
	return i, nil
}

func linkByIndex(index int) (netlink.Link, error) { return netlink.LinkByIndex(index) }

// RxQueues returns the number of queues that the interface receives on: how many a Config must
// open so that no packet of ours ends in the kernel.
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

// channels asks the driver for the number of its receive queues. Netlink only knows how many the
// device could have.
func channels(name string) (int, error) {
	ch := ethtoolChannels{cmd: unix.ETHTOOL_GCHANNELS}
	if err := ethtool(name, unsafe.Pointer(&ch)); err != nil {
		return 0, err
	}
	return int(ch.rxCount + ch.combined), nil
}

// TxChecksumOff switches the transmit checksum offload of an interface off, and segmentation, which
// needs it, with it. It is meant for the far end of a veth whose near end is open here: a kernel
// that thinks that "hardware" will do it sends packets with only the pseudo-header in their TCP and
// UDP checksums, and in generic mode whole super-packets, and a veth does neither
// (docs/design/002-afxdp.md). The same as `ethtool -K name tx off`.
func TxChecksumOff(name string) error {
	v := ethtoolValue{cmd: unix.ETHTOOL_STXCSUM}
	if err := ethtool(name, unsafe.Pointer(&v)); err != nil {
		return &pmd.OpError{Op: "switch checksum offload off", Device: name, Err: err}
	}
	return nil
}

// ethtoolValue is struct ethtool_value of linux/ethtool.h.
type ethtoolValue struct{ cmd, data uint32 }

// ethtool makes the ioctl with a command of linux/ethtool.h.
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
