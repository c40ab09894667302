package shim

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack"
)

// Interfaces as programs see them: lo is the first, as on Linux, and the devices of the stack follow.
const (
	loopbackIndex = 1
	firstIndex    = 2 // of device 0
	loopbackMTU   = 65536
	interfaceSize = 64 // of struct shim_interface, bytes
	nameLen       = 15 // IFNAMSIZ without the zero
)

// netInterface is a struct shim_interface: an interface, or one of its addresses.
type netInterface struct {
	name   string
	index  uint32
	flags  uint32 // IFF_UP and the like
	mtu    uint32
	mac    [6]byte
	prefix netip.Prefix // invalid: the interface itself
}

func (n *netInterface) append(b []byte) []byte {
	b = append(b, make([]byte, interfaceSize)...)
	at := b[len(b)-interfaceSize:]
	copy(at[:nameLen], n.name)
	order.PutUint32(at[16:], n.index)
	order.PutUint32(at[20:], n.flags)
	order.PutUint32(at[24:], n.mtu)
	order.PutUint32(at[28:], uint32(max(n.prefix.Bits(), 0)))
	copy(at[32:], n.mac[:])
	encodeAddr(at[40:], netip.AddrPortFrom(n.prefix.Addr(), 0))
	return b
}

// interfaces answers INTERFACES: as many entries from the one of the request on as a reply has space for.
func (c *channel) interfaces(q *request, r *reply) {
	all := c.s.interfaces()
	for i := max(int(q.arg), 0); i < len(all) && len(r.value)+interfaceSize <= maxReplyValue; i++ {
		r.value = all[i].append(r.value)
	}
}

// interfaces returns the interfaces of the stack and, behind each, its addresses, those of IPv4 first, as Linux lists them.
func (s *Server) interfaces() []netInterface {
	lo := netInterface{name: "lo", index: loopbackIndex, flags: unix.IFF_UP | unix.IFF_LOOPBACK | unix.IFF_RUNNING, mtu: loopbackMTU}
	all := []netInterface{lo, lo, lo}
	all[1].prefix, all[2].prefix = netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128")
	var devices []socket.Interface
	s.cfg.Stack.EnterLoop(0, func(in socket.LoopStack) { devices = in.Interfaces() })
	for i, d := range devices {
		n := netInterface{
			name: d.Name[:min(len(d.Name), nameLen)], index: programIndex(d.Index), mtu: uint32(d.MTU), mac: d.MAC,
			flags: unix.IFF_UP | unix.IFF_BROADCAST | unix.IFF_RUNNING | unix.IFF_MULTICAST,
		}
		n.name = cmp.Or(n.name, "dev"+strconv.Itoa(i))
		all = append(all, n)
		slices.SortStableFunc(d.Prefixes, func(a, b netip.Prefix) int { return cmp.Compare(a.Addr().BitLen(), b.Addr().BitLen()) })
		for _, n.prefix = range d.Prefixes {
			all = append(all, n)
		}
	}
	return all
}

// programIndex returns the index that programs see of an interface of udp.Message: 0 is none.
func programIndex(of uint32) uint32 {
	switch of {
	case 0:
		return 0
	case uint32(stack.LoopbackDev) + 1:
		return loopbackIndex
	}
	return of - 1 + firstIndex
}

// stackIndex is the reverse. lo is no device that datagrams leave by: those to addresses of the stack find it without one.
func stackIndex(of uint32) uint32 {
	if of < firstIndex {
		return 0
	}
	return of - firstIndex + 1
}
