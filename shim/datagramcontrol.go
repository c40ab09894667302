package shim

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Header is what stands before each datagram of a UDP socket that is not connected, which a supervisor adds and takes off in the place of
// the library. Remote is the peer, and Local the address of this host: of what is sent the source, if it is valid.
type Header struct {
	Remote, Local netip.AddrPort

	d datagram
}

// HeaderSize is the size of a Header, in bytes.
const HeaderSize = datagramSize

// DecodeHeader reads the header of a received datagram.
func DecodeHeader(b []byte) (h Header, err error) {
	if h.d, err = decodeDatagram(b); err == nil {
		h.d.at = int64(order.Uint64(b[datagramTimeAt:]))
		h.d.lost = order.Uint32(b[datagramLostAt:])
	}
	h.Remote, h.Local = h.d.remote, h.d.local
	return h, err
}

// Encode writes the header of a datagram to be sent.
func (h *Header) Encode(b []byte) {
	d := h.d
	d.remote, d.local = h.Remote, h.Local
	d.encode(b)
}

// SetControl takes from control messages of sendmsg(2) what the stack has: source, interface, class, hops and segments. EINVAL is that
// they are none.
func (h *Header) SetControl(oob []byte) error {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return unix.EINVAL
	}
	for _, m := range messages {
		switch n := (optionName{int(m.Header.Level), int(m.Header.Type)}); {
		case n == name4(unix.IP_PKTINFO) && len(m.Data) >= unix.SizeofInet4Pktinfo:
			h.d.iface = order.Uint32(m.Data)
			h.Local = netip.AddrPortFrom(netip.AddrFrom4([4]byte(m.Data[4:8])), 0)
		case n == name6(unix.IPV6_PKTINFO) && len(m.Data) >= unix.SizeofInet6Pktinfo:
			h.Local = netip.AddrPortFrom(netip.AddrFrom16([16]byte(m.Data[:16])), 0)
			h.d.iface = order.Uint32(m.Data[16:])
		case n == nameU(unix.UDP_SEGMENT) && len(m.Data) >= 2:
			h.d.flags = datagramFlags(order.Uint16(m.Data))
		case n == name4(unix.IP_TOS) && len(m.Data) == 1:
			h.d.tos = m.Data[0]
		case len(m.Data) < 4:
		case n == name4(unix.IP_TOS), n == name6(unix.IPV6_TCLASS):
			h.d.tos = uint8(order.Uint32(m.Data))
		case n == name4(unix.IP_TTL), n == name6(unix.IPV6_HOPLIMIT):
			h.d.hopLimit = uint8(order.Uint32(m.Data))
		}
	}
	return nil
}

// Control appends the control messages that the program has asked for, in Linux's order, as far as there is space for them. False is that
// some were left out (MSG_CTRUNC). address encodes a struct sockaddr, as of QueuedError.Control.
func (h *Header) Control(b []byte, space int, address func(a netip.AddrPort, v6 bool) []byte) ([]byte, bool) {
	d, v4, whole := &h.d, h.Local.Addr().Is4(), true
	add := func(n optionName, data []byte) {
		var fits bool
		b, fits = appendControl(b, space, n, data)
		whole = whole && fits
	}
	ns := order.AppendUint64(order.AppendUint64(nil, uint64(d.at/1e9)), uint64(d.at%1e9))
	switch {
	case d.flags&wantTimeNS != 0:
		add(nameS(unix.SO_TIMESTAMPNS), ns)
	case d.flags&wantTime != 0:
		add(nameS(unix.SO_TIMESTAMP), order.AppendUint64(order.AppendUint64(nil, uint64(d.at/1e9)), uint64(d.at%1e9/1e3)))
	}
	if d.flags&wantStamping != 0 {
		add(nameS(unix.SO_TIMESTAMPING), append(ns, make([]byte, 2*len(ns))...))
	}
	if d.flags&wantOverflow != 0 && d.lost != 0 {
		add(nameS(unix.SO_RXQ_OVFL), order.AppendUint32(nil, d.lost))
	}
	if ip := h.Local.Addr().As16(); d.flags&wantMapped != 0 || d.flags&wantPktInfo != 0 && !v4 {
		add(name6(unix.IPV6_PKTINFO), order.AppendUint32(ip[:], d.iface))
	}
	if d.flags&wantPktInfo != 0 && v4 {
		ip := h.Local.Addr().As4()
		add(name4(unix.IP_PKTINFO), append(append(order.AppendUint32(nil, d.iface), ip[:]...), ip[:]...))
	}
	of := func(four, six int) optionName {
		if v4 {
			return name4(four)
		}
		return name6(six)
	}
	if d.flags&wantHopLimit != 0 {
		add(of(unix.IP_TTL, unix.IPV6_HOPLIMIT), appendInt(nil, int(d.hopLimit)))
	}
	switch {
	case d.flags&wantTOS != 0 && v4:
		add(name4(unix.IP_TOS), []byte{d.tos})
	case d.flags&wantTOS != 0:
		add(name6(unix.IPV6_TCLASS), appendInt(nil, int(d.tos)))
	}
	if d.flags&wantOriginal != 0 {
		add(of(unix.IP_ORIGDSTADDR, unix.IPV6_ORIGDSTADDR), address(h.Local, !v4))
	}
	return b, whole
}

// appendControl appends a control message, if there is space for it.
func appendControl(b []byte, space int, n optionName, data []byte) ([]byte, bool) {
	if len(b)+unix.CmsgSpace(len(data)) > space {
		return b, false
	}
	head := unix.Cmsghdr{Level: int32(n.level), Type: int32(n.name)}
	head.SetLen(unix.CmsgLen(len(data)))
	b = append(b, unsafe.Slice((*byte)(unsafe.Pointer(&head)), unix.SizeofCmsghdr)...)
	return append(append(b, data...), make([]byte, unix.CmsgSpace(len(data))-unix.CmsgLen(len(data)))...), true
}

// Control returns the control messages of an entry: its time, and struct sock_extended_err with the address of who has reported it behind,
// which address encodes for a socket of IPv4 or IPv6. False is that there is no space for them.
func (e *QueuedError) Control(space int, v6 bool, address func(a netip.AddrPort, v6 bool) []byte) ([]byte, bool) {
	n := name4(unix.IP_RECVERR)
	if v6 {
		n = name6(unix.IPV6_RECVERR)
	}
	from := address(netip.AddrPortFrom(e.From, 0), v6)
	if !e.From.IsValid() {
		clear(from)
	}
	var b []byte
	whole := true
	if e.Time != 0 {
		stamp := order.AppendUint64(order.AppendUint64(nil, uint64(e.Time/1e9)), uint64(e.Time%1e9))
		b, whole = appendControl(b, space, nameS(unix.SO_TIMESTAMPING), append(stamp, make([]byte, 2*len(stamp))...))
	}
	b, fits := appendControl(b, space, n, append(e.Extended[:], from...))
	return b, whole && fits
}
