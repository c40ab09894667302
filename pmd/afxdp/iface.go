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
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	ch := ethtoolChannels{cmd: unix.ETHTOOL_GCHANNELS}
	req := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&ch)}
	copy(req.name[:unix.IFNAMSIZ-1], name)
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	if e != 0 {
		return 0, e
	}
	return int(ch.rxCount + ch.combined), nil
}
