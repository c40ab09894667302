package testnet

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ethtoolValue is struct ethtool_value of linux/ethtool.h.
type ethtoolValue struct{ cmd, data uint32 }

// The commands of linux/ethtool.h that switch one offload each.
var offloads = []uint32{
	unix.ETHTOOL_SGSO, unix.ETHTOOL_STSO, unix.ETHTOOL_STXCSUM, unix.ETHTOOL_SGRO,
}

// NoOffload has the interface send packets as a real wire carries them: with their checksums filled
// in and no larger than the MTU. A veth otherwise hands over packets whose checksum was left to
// hardware that does not exist.
func (ns *Namespace) NoOffload(name string) error {
	return ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, cmd := range offloads {
			if err := ethtool(fd, name, &ethtoolValue{cmd: cmd}); err != nil {
				return fmt.Errorf("switch offload %#x of %s off: %w", cmd, name, err)
			}
		}
		return nil
	})
}

// ethtool makes one SIOCETHTOOL call.
func ethtool(fd int, name string, v *ethtoolValue) error {
	var req struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(req.name[:unix.IFNAMSIZ-1], name)
	req.data = unsafe.Pointer(v)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	if errno != 0 {
		return errno
	}
	return nil
}

// BigTCP has the interface build TCP packets of up to size bytes, beyond the 64 KiB that an IP header can express (Linux 6.3):
// IPv6 ones with a jumbo payload option, IPv4 ones with a total length of 0.
func (ns *Namespace) BigTCP(name string, size int) error {
	return ns.Do(func() error {
		h, err := netlink.NewHandle()
		if err != nil {
			return err
		}
		defer h.Close()
		l, err := h.LinkByName(name)
		if err != nil {
			return err
		}
		return errors.Join(h.LinkSetGSOMaxSize(l, size), h.LinkSetGSOIPv4MaxSize(l, size))
	})
}
