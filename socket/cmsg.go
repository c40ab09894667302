package socket

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/udp"
	"github.com/millrace/millrace/wire"
)

// cmsgSet is the set of control messages that the program requested by setsockopt, see optionSocket.
type cmsgSet uint32

const (
	cmsgTOS cmsgSet = 1 << iota
	cmsgTrafficClass
	cmsgPktInfo4
	cmsgPktInfo6
	cmsgTTL
	cmsgHopLimit
	cmsgGRO
)

// appendControl appends the requested control messages of m to b, as recvmsg(2) on Linux does. It omits and
// reports those that do not fit.
func appendControl(b []byte, w cmsgSet, m *udp.Message) (out []byte, fits bool) {
	a := cmsgBuilder{b: b, fits: true}
	if m.Remote.Is4() {
		a.v4(w, m)
	} else {
		a.v6(w, m)
	}
	if w&cmsgGRO != 0 && m.SegmentSize > 0 {
		a.int32(unix.IPPROTO_UDP, unix.UDP_GRO, uint32(m.SegmentSize))
	}
	return a.b, a.fits
}

// cmsgBuilder appends control messages to a buffer.
type cmsgBuilder struct {
	b    []byte
	fits bool
}

func (a *cmsgBuilder) v4(w cmsgSet, m *udp.Message) {
	if w&cmsgPktInfo4 != 0 {
		// struct in_pktinfo: interface, local address, destination of the header.
		if p := a.add(unix.IPPROTO_IP, unix.IP_PKTINFO, 12); p != nil {
			local := m.Local.As4()
			binary.NativeEndian.PutUint32(p, m.Interface)
			copy(p[4:], local[:])
			copy(p[8:], local[:])
		}
	}
	if w&cmsgTOS != 0 {
		if p := a.add(unix.IPPROTO_IP, unix.IP_TOS, 1); p != nil {
			p[0] = m.TOS
		}
	}
	if w&cmsgTTL != 0 {
		a.int32(unix.IPPROTO_IP, unix.IP_TTL, uint32(m.TTL))
	}
}

func (a *cmsgBuilder) v6(w cmsgSet, m *udp.Message) {
	if w&cmsgPktInfo6 != 0 {
		// struct in6_pktinfo: address, interface.
		if p := a.add(unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, 20); p != nil {
			copy(p, m.Local[:])
			binary.NativeEndian.PutUint32(p[16:], m.Interface)
		}
	}
	if w&cmsgTrafficClass != 0 {
		a.int32(unix.IPPROTO_IPV6, unix.IPV6_TCLASS, uint32(m.TOS))
	}
	if w&cmsgHopLimit != 0 {
		a.int32(unix.IPPROTO_IPV6, unix.IPV6_HOPLIMIT, uint32(m.TTL))
	}
}

func (a *cmsgBuilder) int32(level, kind int32, v uint32) {
	if p := a.add(level, kind, 4); p != nil {
		binary.NativeEndian.PutUint32(p, v)
	}
}

// add appends a header and n zero bytes of data, which it returns; nil if they do not fit. The layout is that
// of cmsg(3) on a 64-bit machine. The length does not count the padding, the next header is behind it:
//
//	0         8       12      16          16+n      multiple of 8
//	| length  | level | type  | data ...  | padding |
func (a *cmsgBuilder) add(level, kind int32, n int) []byte {
	at, space := len(a.b), unix.CmsgSpace(n)
	if cap(a.b)-at < space {
		a.fits = false
		return nil
	}
	a.b = a.b[:at+space]
	clear(a.b[at:])
	h := (*unix.Cmsghdr)(unsafe.Pointer(&a.b[at]))
	h.Level, h.Type = level, kind
	h.SetLen(unix.CmsgLen(n))
	return a.b[at+unix.CmsgLen(0):][:n]
}

// parseControl reads the control messages of an outgoing datagram. Like sendmsg(2), it rejects unknown ones.
func parseControl(b []byte, m *udp.Message) error {
	for len(b) > 0 {
		if len(b) < unix.SizeofCmsghdr { // the parser would read behind it
			return unix.EINVAL
		}
		h, data, rest, err := unix.ParseOneSocketControlMessage(b)
		if err != nil {
			return unix.EINVAL
		}
		if !applyControl(&h, data, m) {
			return unix.EINVAL
		}
		b = rest
	}
	return nil
}

func applyControl(h *unix.Cmsghdr, data []byte, m *udp.Message) bool {
	switch [2]int32{h.Level, h.Type} {
	case [2]int32{unix.IPPROTO_UDP, unix.UDP_SEGMENT}:
		if len(data) < 2 {
			return false
		}
		m.SegmentSize = int(binary.NativeEndian.Uint16(data))
	case [2]int32{unix.IPPROTO_IP, unix.IP_TOS}, [2]int32{unix.IPPROTO_IPV6, unix.IPV6_TCLASS}:
		return octet(data, &m.TOS)
	case [2]int32{unix.IPPROTO_IP, unix.IP_TTL}, [2]int32{unix.IPPROTO_IPV6, unix.IPV6_HOPLIMIT}:
		return octet(data, &m.TTL)
	case [2]int32{unix.IPPROTO_IP, unix.IP_PKTINFO}:
		if len(data) < 12 {
			return false
		}
		m.Interface = binary.NativeEndian.Uint32(data)
		if a := netip.AddrFrom4([4]byte(data[4:8])); !a.IsUnspecified() {
			m.Local = wire.AddrFrom(a)
		}
	case [2]int32{unix.IPPROTO_IPV6, unix.IPV6_PKTINFO}:
		if len(data) < 20 {
			return false
		}
		m.Local = wire.Addr(data[:16])
		m.Interface = binary.NativeEndian.Uint32(data[16:])
	default:
		return false
	}
	return true
}

// octet reads a value that programs pass as one byte or as an int.
func octet(data []byte, v *uint8) bool {
	switch {
	case len(data) >= 4:
		n := binary.NativeEndian.Uint32(data)
		*v = uint8(n)
		return n <= 255
	case len(data) >= 1:
		*v = data[0]
		return true
	}
	return false
}
