package notify

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/shim"
)

// Dumps of links and addresses by rtnetlink(7) show the interfaces of the stack, for calls with an address, as Go's net.Interfaces makes
// them. As in the library (shim/preload/netlink.c) there is no state: in the place of a dump the Supervisor sends requests that do nothing,
// one for each part of the answer. The kernel acknowledges each with its header, which says what it stands for.
const (
	sockaddrNetlink = 12
	dumpEach        = 12         // entries of a part, which has less than 2 KiB then
	dumpShift       = 4          // of the number of a part in nlmsg_flags, above NLM_F_REQUEST and NLM_F_ACK
	dumpParts       = 1024       // at most
	dumpLast        = 0x8000     // bit of nlmsg_flags: the part ends the dump
	dumpNote        = 0x4d520000 // nlmsg_pid: the type of the request in bits 8 to 15, and its family below
	dumpNoteMask    = 0xffff0000
	ackSize         = unix.SizeofNlMsghdr + 4 + unix.SizeofNlMsghdr
)

// header is a struct nlmsghdr.
type header struct {
	size      uint32
	kind, how uint16
	seq, pid  uint32
}

func readHeader(b []byte) header {
	o := binary.NativeEndian
	return header{o.Uint32(b), o.Uint16(b[4:]), o.Uint16(b[6:]), o.Uint32(b[8:]), o.Uint32(b[12:])}
}

func (h *header) append(b []byte) []byte {
	o := binary.NativeEndian
	return o.AppendUint32(o.AppendUint32(o.AppendUint16(o.AppendUint16(o.AppendUint32(b, h.size), h.kind), h.how), h.seq), h.pid)
}

// routeSocket returns a descriptor for the file of the first argument if it is one of rtnetlink, -1 otherwise.
func (c *call) routeSocket() int {
	if c.s.KernelInterfaces {
		return -1
	}
	fd, err := c.file(int32(c.args[0]))
	if err != nil {
		return -1
	}
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	proto, e := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil || e != nil || domain != unix.AF_NETLINK || proto != unix.NETLINK_ROUTE {
		unix.Close(fd)
		return -1
	}
	return fd
}

// isListed reports whether an entry belongs to the answer to a request.
func isListed(n *shim.Interface, kind uint16, fam uint8) bool {
	if kind == unix.RTM_GETLINK {
		return !n.Prefix.IsValid()
	}
	own := uint8(unix.AF_INET6)
	if n.Prefix.Addr().Is4() {
		own = unix.AF_INET
	}
	return n.Prefix.IsValid() && (fam == unix.AF_UNSPEC || fam == own)
}

// listed returns the entries of an answer, those of IPv4 before those of IPv6 as Linux lists them.
func (c *call) listed(kind uint16, fam uint8) (list []shim.Interface, err error) {
	all, err := c.s.client.Interfaces(int(c.tid))
	for _, v6 := range []bool{false, true} {
		for i := range all {
			if isListed(&all[i], kind, fam) && all[i].Prefix.Addr().Is6() == v6 {
				list = append(list, all[i])
			}
		}
	}
	return list, err
}

// sendNetlink is sendto(2) with the address of a netlink socket.
func (c *call) sendNetlink() outcome {
	var b [unix.SizeofNlMsghdr + 1]byte
	n := c.args[2]
	if n < uint64(len(b)) || c.read(c.args[1], b[:]) != nil {
		return kernels
	}
	h, fam := readHeader(b[:]), b[unix.SizeofNlMsghdr]
	if h.how&unix.NLM_F_DUMP != unix.NLM_F_DUMP || uint64(h.size+3)&^3 < n || h.kind != unix.RTM_GETLINK && h.kind != unix.RTM_GETADDR {
		return kernels // another request, or several
	}
	fd := c.routeSocket()
	if fd < 0 {
		return kernels
	}
	defer unix.Close(fd)
	list, err := c.listed(h.kind, fam)
	if err != nil {
		return c.refused(err)
	}
	last := min(max(len(list)-1, 0)/dumpEach, dumpParts-1)
	for part := range last + 1 {
		how := uint16(unix.NLM_F_REQUEST | unix.NLM_F_ACK | part<<dumpShift)
		if part == last {
			how |= dumpLast
		}
		q := header{unix.SizeofNlMsghdr, unix.NLMSG_NOOP, how, h.seq, dumpNote | uint32(h.kind)<<8 | uint32(fam)}
		if err := unix.Sendto(fd, q.append(nil), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return failed(err)
		}
	}
	return outcome{val: int64(n)}
}

// receiveNetlink is recvfrom(2) of a socket that is none of the stack's.
func (c *call) receiveNetlink() outcome {
	fd := c.routeSocket()
	if fd < 0 {
		return kernels
	}
	defer unix.Close(fd)
	flags := int(int32(c.args[3]))
	var b [ackSize]byte
	n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_DONTWAIT|unix.MSG_PEEK|unix.MSG_TRUNC)
	if err != nil || n != ackSize {
		return kernels
	}
	h, of := readHeader(b[:]), readHeader(b[unix.SizeofNlMsghdr+4:])
	if h.kind != unix.NLMSG_ERROR || of.kind != unix.NLMSG_NOOP || of.pid&dumpNoteMask != dumpNote {
		return kernels
	}
	list, err := c.listed(uint16(of.pid>>8&0xff), uint8(of.pid))
	if err != nil {
		return c.refused(err)
	}
	first := min(int(of.how)>>dumpShift%dumpParts*dumpEach, len(list))
	var answer []byte
	for _, e := range list[first:min(first+dumpEach, len(list))] {
		answer = appendEntry(answer, &h, &e)
	}
	if of.how&dumpLast != 0 {
		answer = appendMessage(answer, &h, unix.NLMSG_DONE, make([]byte, 4))
	}
	space := int(min(c.args[2], 1<<30))
	if err := c.write(c.args[1], answer[:min(len(answer), space)]); err != nil {
		return failed(err)
	}
	if c.args[5] != 0 {
		room, err := c.readLength(c.args[5])
		if err == nil {
			kernel := append(binary.NativeEndian.AppendUint16(nil, unix.AF_NETLINK), make([]byte, sockaddrNetlink-2)...)
			err = c.writeAddress(4, room, kernel)
		}
		if err != nil {
			return failed(err)
		}
	}
	if flags&unix.MSG_PEEK == 0 {
		_, _, _ = unix.Recvfrom(fd, b[:], unix.MSG_DONTWAIT) // it is there, unless another thread has taken it
	}
	if flags&unix.MSG_TRUNC == 0 {
		return outcome{val: int64(min(len(answer), space))}
	}
	return outcome{val: int64(len(answer))}
}

// appendMessage appends a message of an answer.
func appendMessage(b []byte, of *header, kind uint16, body []byte) []byte {
	h := header{uint32(unix.SizeofNlMsghdr + len(body)), kind, unix.NLM_F_MULTI, of.seq, of.pid}
	b = append(h.append(b), body...)
	return append(b, make([]byte, -len(b)&3)...)
}

// attribute appends a struct rtattr.
func attribute(b []byte, kind int, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, uint16(kind)), value...)
	return append(b, make([]byte, -len(b)&3)...)
}

func attribute32(b []byte, kind int, v uint32) []byte {
	return attribute(b, kind, binary.NativeEndian.AppendUint32(nil, v))
}

// appendEntry appends a link or an address, with the attributes that libc and Go read.
func appendEntry(b []byte, of *header, n *shim.Interface) []byte {
	o := binary.NativeEndian
	name := append([]byte(n.Name), 0)
	loopback := n.Flags&unix.IFF_LOOPBACK != 0
	if !n.Prefix.IsValid() {
		kind, broadcast := uint16(unix.ARPHRD_ETHER), []byte{255, 255, 255, 255, 255, 255}
		if loopback {
			kind, broadcast = unix.ARPHRD_LOOPBACK, make([]byte, 6)
		}
		body := o.AppendUint16([]byte{unix.AF_UNSPEC, 0}, kind) // struct ifinfomsg
		body = o.AppendUint32(o.AppendUint32(o.AppendUint32(body, n.Index), n.Flags), 0)
		body = attribute32(attribute(body, unix.IFLA_IFNAME, name), unix.IFLA_MTU, n.MTU)
		return appendMessage(b, of, unix.RTM_NEWLINK, attribute(attribute(body, unix.IFLA_ADDRESS, n.MAC[:]), unix.IFLA_BROADCAST, broadcast))
	}
	ip := n.Prefix.Addr()
	fam, scope := uint8(unix.AF_INET6), uint8(unix.RT_SCOPE_UNIVERSE)
	if ip.Is4() {
		fam = unix.AF_INET
	}
	switch {
	case loopback:
		scope = unix.RT_SCOPE_HOST
	case ip.IsLinkLocalUnicast() && !ip.Is4():
		scope = unix.RT_SCOPE_LINK
	}
	body := o.AppendUint32([]byte{fam, uint8(n.Prefix.Bits()), unix.IFA_F_PERMANENT, scope}, n.Index) // struct ifaddrmsg
	body = attribute(body, unix.IFA_ADDRESS, ip.AsSlice())
	if ip.Is4() {
		body = attribute(attribute(body, unix.IFA_LOCAL, ip.AsSlice()), unix.IFA_LABEL, name)
	}
	return appendMessage(b, of, unix.RTM_NEWADDR, attribute32(body, unix.IFA_FLAGS, unix.IFA_F_PERMANENT))
}
