package socket

import (
	"net/netip"
	"syscall"

	"github.com/millrace/millrace/udp"
	"github.com/millrace/millrace/wire"
)

// Join joins a multicast group on an interface (index of the device + 1; 0 follows the routes). If source is
// valid, only its datagrams are received (RFC 3678).
func (c *UDPConn) Join(iface int, group, source netip.Addr) error {
	return c.membership(iface, group, func(include bool, sources []wire.Addr) (bool, []wire.Addr, error) {
		switch s := wire.AddrFrom(source.WithZone("")); {
		case !source.IsValid() && include && len(sources) == 0:
			return false, nil, nil
		case source.IsValid() && include:
			return true, append(sources, s), nil
		}
		return include, sources, udp.ErrInUse
	})
}

// Leave undoes a Join.
func (c *UDPConn) Leave(iface int, group, source netip.Addr) error {
	return c.membership(iface, group, func(include bool, sources []wire.Addr) (bool, []wire.Addr, error) {
		if !source.IsValid() {
			return true, nil, nil
		}
		for i, x := range sources {
			if include && x == wire.AddrFrom(source) {
				return true, append(sources[:i], sources[i+1:]...), nil
			}
		}
		return include, sources, udp.ErrNotMember
	})
}

// Block stops reception from source in a group that was joined for all sources.
func (c *UDPConn) Block(iface int, group, source netip.Addr) error {
	return c.membership(iface, group, func(include bool, sources []wire.Addr) (bool, []wire.Addr, error) {
		if include {
			return include, sources, udp.ErrNotMember
		}
		return false, append(sources, wire.AddrFrom(source)), nil
	})
}

func (c *UDPConn) membership(iface int, group netip.Addr, change func(bool, []wire.Addr) (bool, []wire.Addr, error)) error {
	if !group.IsValid() || iface < 0 || iface > 255 {
		return c.wrapError("setsockopt", nil, syscall.EINVAL)
	}
	g := wire.AddrFrom(group)
	return c.each("setsockopt", func(e *udpShard) error {
		include, sources, err := change(e.u.Filter(uint32(iface), g))
		if err == nil {
			err = e.u.Listen(e.h.Now(), uint32(iface), g, include, sources)
		}
		return err
	})
}
