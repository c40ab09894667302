package proxyproto

import (
	"bytes"
	"net/netip"
	"strconv"
	"unsafe"
)

const (
	signature1 = "PROXY "
	unknown1   = "UNKNOWN"

	// max1 is the longest line of version 1, with its CRLF (section 2.1).
	max1 = 107
)

// parse1 reads a line of version 1:
//
//	PROXY TCP4|TCP6 SP source SP destination SP source port SP destination port CRLF
//	PROXY UNKNOWN [anything] CRLF
func parse1(b []byte) (h Header, n int, err error) {
	if !begins(b, signature1) {
		return h, 0, ErrSignature
	}
	line := b[:min(len(b), max1)]
	end := bytes.IndexAny(line, "\r\n")
	switch {
	case end < 0 || end == len(line)-1 && line[end] == '\r':
		if len(b) >= max1 {
			return h, 0, ErrTooLong
		}
		return h, 0, nil
	case line[end] != '\r' || line[end+1] != '\n':
		return h, 0, ErrMalformed // neither CR nor LF ends the line alone
	}
	h.Version = 1
	if !h.parseLine(line[len(signature1):end]) {
		return Header{}, 0, ErrMalformed
	}
	return h, end + 2, nil
}

// parseLine reads what is between the signature and the CRLF.
func (h *Header) parseLine(line []byte) bool {
	protocol, rest, more := cutAt(line, ' ')
	switch string(protocol) {
	case unknown1:
		return true // what follows is ignored
	case "TCP4":
		h.Family = IPv4
	case "TCP6":
		h.Family = IPv6
	default:
		return false
	}
	h.Transport = Stream
	source, rest, more1 := cutAt(rest, ' ')
	destination, rest, more2 := cutAt(rest, ' ')
	sourcePort, destinationPort, more3 := cutAt(rest, ' ')
	if !more || !more1 || !more2 || !more3 {
		return false
	}
	var ok1, ok2 bool
	h.Source, ok1 = h.Family.parseEndpoint(source, sourcePort)
	h.Destination, ok2 = h.Family.parseEndpoint(destination, destinationPort)
	return ok1 && ok2
}

// parseEndpoint reads an address in its text form and a port. netip has the same rules as section 2.1, but for zones.
func (f Family) parseEndpoint(address, port []byte) (netip.AddrPort, bool) {
	a, err := netip.ParseAddr(text(address))
	if err != nil || a.Is4() != (f == IPv4) || a.Zone() != "" {
		return netip.AddrPort{}, false
	}
	p, ok := parsePort(port)
	return netip.AddrPortFrom(a, p), ok
}

// text is b as a string that must not outlive the call that it is an argument of. Errors that hold it are dropped.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// parsePort reads a port in decimal digits, without zeros in front.
func parsePort(b []byte) (port uint16, ok bool) {
	if len(b) == 0 || len(b) > 5 || b[0] == '0' && len(b) > 1 {
		return 0, false
	}
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return uint16(n), n <= 0xFFFF
}

// append1 appends a line of version 1. What it has no words for is UNKNOWN (section 2.1).
func (h *Header) append1(dst []byte) ([]byte, error) {
	dst = append(dst, signature1...)
	if h.Local || h.Transport != Stream || h.Family != IPv4 && h.Family != IPv6 {
		return append(dst, unknown1+"\r\n"...), nil
	}
	if h.Family == IPv4 {
		dst = append(dst, "TCP4 "...)
	} else {
		dst = append(dst, "TCP6 "...)
	}
	dst = append(h.Source.Addr().WithZone("").AppendTo(dst), ' ')
	dst = append(h.Destination.Addr().WithZone("").AppendTo(dst), ' ')
	dst = append(strconv.AppendUint(dst, uint64(h.Source.Port()), 10), ' ')
	dst = strconv.AppendUint(dst, uint64(h.Destination.Port()), 10)
	return append(dst, "\r\n"...), nil
}
