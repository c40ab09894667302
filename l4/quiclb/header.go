package quiclb

// longHeader is the bit of a packet's first octet that distinguishes the two forms of headers
// (RFC 8999 5).
const longHeader = 0x80

// Destination returns the destination connection ID of the first QUIC packet in a datagram, and
// whether its header is long. A long header has the length of the ID (RFC 8999 5.1); of one in a
// short header (5.2), which does not, the first octets are returned, at most short of them. ok is
// false when the datagram is too short to be QUIC. dcid is part of the datagram.
func Destination(datagram []byte, short int) (dcid []byte, long, ok bool) {
	if len(datagram) == 0 {
		return nil, false, false
	}
	if datagram[0]&longHeader == 0 {
		rest := datagram[1:]
		return rest[:min(short, len(rest))], false, true
	}
	const at = 6 // behind the first octet, the version and the length
	if len(datagram) < at || len(datagram)-at < int(datagram[at-1]) {
		return nil, true, false
	}
	return datagram[at : at+int(datagram[at-1])], true, true
}
