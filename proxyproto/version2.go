package proxyproto

import (
	"bytes"
	"encoding/binary"
	"net/netip"
)

// A header of version 2 (section 2.2):
//
//	 0               1               2               3
//	+---------------+---------------+---------------+---------------+
//	|  0D 0A 0D 0A 00 0D 0A 51 55 49 54 0A                          |  12 bytes: the signature
//	+-------+-------+-------+-------+-------------------------------+
//	|   2   |command|family |transp.|            length             |  of what follows
//	+-------+-------+-------+-------+-------------------------------+
//	|  source address, destination address, source port, destination port
//	|  TLVs
const (
	signature2  = "\r\n\r\n\x00\r\nQUIT\n"
	fixed2      = 16
	atCommand   = 12
	atFamily    = 13
	atLength    = 14
	commandProx = 0x21 // the version is in the same byte
	commandOwn  = 0x20

	unixName = 108 // the size of sun_path
)

// addressSize is the size of the address block.
func (f Family) addressSize() int {
	switch f {
	case IPv4:
		return 2*4 + 2*2
	case IPv6:
		return 2*16 + 2*2
	case Unix:
		return 2 * unixName
	}
	return 0
}

// parse2 reads a header of version 2. What is wrong with its first 16 bytes is an error as soon as they are there.
func parse2(b []byte, limit int) (h Header, n int, err error) {
	if !begins(b, signature2) {
		return h, 0, ErrSignature
	}
	if len(b) > atCommand && b[atCommand] != commandOwn && b[atCommand] != commandProx {
		return h, 0, ErrMalformed
	}
	if len(b) < fixed2 {
		return h, 0, nil
	}
	h.Version, h.Local = 2, b[atCommand] == commandOwn
	n = fixed2 + int(binary.BigEndian.Uint16(b[atLength:]))
	if !h.Local {
		h.Family, h.Transport = Family(b[atFamily]>>4), Transport(b[atFamily]&0xF)
		if h.Family > Unix || h.Transport > Datagram || n < fixed2+h.Family.addressSize() {
			return Header{}, 0, ErrMalformed
		}
	}
	if n > limit {
		return Header{}, 0, ErrTooLong
	}
	if len(b) < n {
		return Header{}, 0, nil
	}
	if h.Local {
		return h, n, nil // the rest is to be discarded, whatever it has (section 2.2)
	}
	if err = h.parseBlock(b[:n]); err != nil {
		return Header{}, 0, err
	}
	return h, n, nil
}

// parseBlock reads the addresses and the TLVs of a complete header. Of an unknown transport the addresses are ignored
// (section 2.2).
func (h *Header) parseBlock(whole []byte) error {
	at := fixed2 + h.Family.addressSize()
	if h.Transport == Unknown {
		h.Family = Unspecified
	}
	h.setAddresses(whole[fixed2:at])
	h.TLVs = TLVs(whole[at:])
	sumAt, ok := h.TLVs.check()
	if !ok {
		return ErrMalformed
	}
	if h.Checksum = sumAt != 0; h.Checksum && !rightSum(whole, at+sumAt) {
		return ErrChecksum
	}
	return nil
}

// setAddresses reads the address block.
func (h *Header) setAddresses(b []byte) {
	switch h.Family {
	case IPv4:
		h.Source = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b)), binary.BigEndian.Uint16(b[8:]))
		h.Destination = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:])), binary.BigEndian.Uint16(b[10:]))
	case IPv6:
		h.Source = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b)), binary.BigEndian.Uint16(b[32:]))
		h.Destination = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[16:])), binary.BigEndian.Uint16(b[34:]))
	case Unix:
		h.UnixSource, h.UnixDestination = trimName(b[:unixName]), trimName(b[unixName:])
	}
}

// trimName returns the name in a sun_path: a path ends before its first NUL. An abstract name begins with NUL and has
// no mark of its end, so it ends before the zeros that fill the field.
func trimName(b []byte) []byte {
	if b[0] == 0 {
		return bytes.TrimRight(b, "\x00")
	}
	path, _, _ := cutAt(b, 0)
	return path
}

// Append appends the header to dst. The error is ErrAddress where Source and Destination do not fit Family, ErrTooLong
// where the TLVs do not fit the length field; then dst is as before. Version 1 has neither TLVs nor a checksum, and calls
// what is not TCP over IP UNKNOWN.
func (h *Header) Append(dst []byte) ([]byte, error) {
	if !h.Local && !h.fits() {
		return dst, ErrAddress
	}
	if h.Version == 1 {
		return h.append1(dst)
	}
	return h.append2(dst)
}

// fits reports whether the addresses are those of the family.
func (h *Header) fits() bool {
	source, destination := h.Source.Addr(), h.Destination.Addr()
	switch h.Family {
	case IPv4:
		return source.Is4() && destination.Is4()
	case IPv6:
		return source.Is6() && destination.Is6()
	case Unix:
		return len(h.UnixSource) <= unixName && len(h.UnixDestination) <= unixName
	}
	return h.Family == Unspecified
}

func (h *Header) append2(dst []byte) ([]byte, error) {
	at := len(dst)
	dst = append(dst, signature2...)
	if h.Local {
		return append(dst, commandOwn, 0, 0, 0), nil // no addresses (section 2.2)
	}
	dst = append(dst, commandProx, byte(h.Family)<<4|byte(h.Transport), 0, 0)
	dst = h.appendAddresses(dst)
	for typ, value := range h.TLVs.All() {
		if typ != TypeCRC32C { // it was another header's
			dst = appendTLV(dst, typ, value)
		}
	}
	if h.Checksum {
		dst = appendTLV(dst, TypeCRC32C, zeroSum)
	}
	length := len(dst) - at - fixed2
	if length > 0xFFFF {
		return dst[:at], ErrTooLong
	}
	binary.BigEndian.PutUint16(dst[at+atLength:], uint16(length))
	if h.Checksum {
		binary.BigEndian.PutUint32(dst[len(dst)-sumSize:], checksum(dst[at:]))
	}
	return dst, nil
}

func (h *Header) appendAddresses(dst []byte) []byte {
	switch h.Family {
	case IPv4:
		source, destination := h.Source.Addr().As4(), h.Destination.Addr().As4()
		dst = append(append(dst, source[:]...), destination[:]...)
	case IPv6:
		source, destination := h.Source.Addr().As16(), h.Destination.Addr().As16()
		dst = append(append(dst, source[:]...), destination[:]...)
	case Unix:
		return appendName(appendName(dst, h.UnixSource), h.UnixDestination)
	default:
		return dst
	}
	dst = binary.BigEndian.AppendUint16(dst, h.Source.Port())
	return binary.BigEndian.AppendUint16(dst, h.Destination.Port())
}

// appendName appends a name in a field of the size of sun_path.
func appendName(dst, name []byte) []byte {
	var field [unixName]byte
	copy(field[:], name)
	return append(dst, field[:]...)
}
