package appid

import "bytes"

// Control of networks and of what stands between servers.

// openFlow is messages of one version that fill a payload (OpenFlow 1.3.5, 7.1). At another port only a HELLO with the
// bitmap of versions (7.5.1) is enough.
func openFlow(v *view) verdict {
	hello := v.nth == 0 && v.u8(1) == 0 && v.u16(8) == 1 && v.u16(10) == 8 && v.u16(2) == 16 && len(v.p) == 16
	if v.p[0] < 1 || v.p[0] > 6 || !hello && !v.port(6633, 6653) {
		return no
	}
	at := 0
	for n := 0; at+8 <= len(v.p); n++ {
		size := v.u16(at + 2)
		if v.u8(at) != v.u8(0) && n > 1 || v.u8(at+1) > 35 || size < 8 || size == 8 && !bareOpenFlow(v.u8(at+1)) {
			return no
		}
		if v.u8(at+1) == 0 && size > 8 && (v.u16(at+8) != 1 || v.u16(at+10) < 8 || v.u16(at+10) > size-8) { // a HELLO has elements only
			return no
		}
		at += size
	}
	return is(at == len(v.p) || at > len(v.p) && len(v.p) >= 1000)
}

// bareOpenFlow reports whether a message of a type may be its header alone: a HELLO, an echo, a request for features, for the
// configuration or for a barrier, in any version.
func bareOpenFlow(kind int) bool {
	return kind <= 7 && kind != 1 && kind != 4 && kind != 6 || kind >= 18 && kind <= 21 || kind == 26
}

// pfcp is a message whose information elements fill it (TS 29.244, 7.2.2 and 8.1.1).
func pfcp(v *view) verdict {
	kind, at := v.u8(1), 8
	if v.p[0]&1 != 0 { // the header has the endpoint of a session
		at = 16
	}
	node, session := kind >= 1 && kind <= 15, kind >= 50 && kind <= 57
	return is(v.p[0]&0xf8 == 0x20 && (node && at == 8 || session && at == 16) && v.u16(2) == len(v.p)-4 &&
		(session || len(v.p) >= at+4) && v.items(at, 1, 1<<15-1))
}

// rmcp is a message of ASF or of IPMI (IPMI 2.0, 13.1.3; ASF 2.0, 3.2.2.2), or the acknowledgement of one.
func rmcp(v *view) verdict {
	class := v.u8(3) & 0x1f
	if !v.port(623, 664) || v.u8(0) != 6 || v.u8(1) != 0 || v.u8(3)&0x60 != 0 {
		return no
	}
	switch {
	case v.u8(3)&0x80 != 0:
		return is(len(v.p) == 4 && class == 6)
	case class == 6: // the enterprise number of ASF, a type and the length of the data
		return is(v.u32(4) == 4542 && len(v.p) == 12+v.u8(11))
	case class == 7 && v.u8(4) == 6: // RMCP+: a payload type, and its length
		return is(len(v.p) >= 16 && v.u8(5)&0x3f <= 0x22 && 16+v.le16(14) <= len(v.p))
	case class == 7: // an authentication type, which may have a code of 16 bytes
		at := 13
		if v.u8(4) != 0 {
			at += 16
		}
		return is(v.u8(4) <= 5 && v.u8(4) != 3 && v.u8(at) >= 7 && len(v.p)-at-1-v.u8(at)|1 == 1)
	}
	return no
}

// teredo is an IPv6 packet, behind an authentication and an origin where there are such (RFC 4380, 5.1.1). One of the
// addresses is of Teredo, or the packet is between a client and its server.
func teredo(v *view) verdict {
	at := 0
	if v.u16(0) == 1 {
		at = 13 + v.u8(2) + v.u8(3)
	}
	if v.hasAt(at, "\x00\x00") {
		at += 8
	}
	size := v.u16(at + 4)
	bubble := v.u8(at+6) == 59 && size == 0
	if v.u8(at)>>4 != 6 || len(v.p)-at-40 < size || !v.port(3544) && size != len(v.p)-at-40 {
		return no
	}
	return is(v.teredoAddress(at+8) || v.teredoAddress(at+24) || v.port(3544) && v.u16(at+8) == 0xfe80 &&
		(bubble || v.u8(at+6) == 58))
}

// teredoAddress reports whether an address has the prefix 2001::/32 (RFC 4380, 2.6), and those of a server and a client.
func (v *view) teredoAddress(at int) bool {
	return v.u32(at) == 0x20010000 && v.u32(at+4) != 0 && v.u32(at+12) != 0
}

// wccp is a message of version 2 (draft-mclaggan-wccp-v2rev1, 5): a type, and a length of components.
func wccp(v *view) verdict {
	return is(v.port(2048) && v.u32(0) >= 10 && v.u32(0) <= 13 && v.u16(4)&^1 == 0x0200 && v.u16(6) == len(v.p)-8 &&
		len(v.p) > 16 && v.items(8, 0, 32))
}

// glbp is a Hello: version 1, a group, the owner's address, and elements of a type and a length that fill it (Wireshark's
// packet-glbp.c: no document of the protocol is public).
func glbp(v *view) verdict {
	if !v.port(3222) || v.p[0] != 1 || v.u16(2) > 1023 || v.u16(4) != 0 {
		return no
	}
	at := 12
	for at+2 <= len(v.p) && v.u8(at) >= 1 && v.u8(at) <= 4 && v.u8(at+1) >= 2 {
		at += v.u8(at + 1)
	}
	return is(at == len(v.p) && at > 12)
}

// proxyHeader is the header of the PROXY protocol before another one (proxy-protocol.txt, 2.1 and 2.2).
func proxyHeader(v *view) verdict {
	return is(v.nth == 0 && (v.hasAny("PROXY TCP4 ", "PROXY TCP6 ", "PROXY UNKNOWN\r\n") ||
		v.has("\r\n\r\n\x00\r\nQUIT\n") && v.u8(12)>>4 == 2 && v.u8(12)&0xf <= 1))
}

// icap is a request or a response (RFC 3507, 4.3.2 and 4.3.3).
func icap(v *view) verdict {
	if v.has("ICAP/1.0 ") {
		return is(v.digits(9) == 3)
	}
	line, _ := v.line()
	return is(v.hasAny("REQMOD icap://", "RESPMOD icap://", "OPTIONS icap://") && bytes.HasSuffix(line, []byte(" ICAP/1.0")))
}

// ajp is a packet between a web server and its container (AJPv13, Packet Structure): the magic of its sender, a length and a
// type.
func ajp(v *view) verdict {
	size, kind := v.u16(2), v.u8(4)
	switch {
	case size == 0 || size > 1<<16-4:
		return no
	case v.u16(0) == 0x1234: // from the web server: Forward Request with a method and "HTTP/", Shutdown, Ping, CPing
		request := kind == 2 && v.u8(5) >= 1 && v.u8(5) <= 27 && v.hasAt(8, "HTTP/")
		return is(request || size == 1 && len(v.p) == 5 && (kind == 7 || kind == 8 || kind == 10))
	case v.has("AB"): // Send Body Chunk, Send Headers, End Response, Get Body Chunk, CPong
		known := kind == 3 || kind == 4 && v.u16(5) >= 100 && v.u16(5) < 600 || kind == 5 && size == 2 ||
			kind == 6 && size == 3 || kind == 9 && size == 1
		return is(known && (v.u16(4+size) == 0x4142 || size == len(v.p)-4 || size > len(v.p)-4 && kind == 3) &&
			(v.port(8009) || v.other.is("\x12\x34")))
	}
	return no
}

// fastCGI begins with FCGI_BEGIN_REQUEST: a role, flags and five reserved bytes (FastCGI 1.0, 3.3 and 5.1).
func fastCGI(v *view) verdict {
	return is(v.nth == 0 && v.u8(0) == 1 && v.u8(1) == 1 && v.u16(2) != 0 && v.u16(4) == 8 && v.u8(7) == 0 &&
		v.u16(8) >= 1 && v.u16(8) <= 3 && v.u8(10) <= 1 && len(v.p) >= 16 && v.u32(11) == 0 && v.u8(15) == 0)
}

// collectd is parts of a type and a length that fill a datagram (collectd's Binary protocol), a host or a time first.
func collectd(v *view) verdict {
	at, parts := 0, 0
	for ; at+4 <= len(v.p); parts++ {
		kind, size := v.u16(at), v.u16(at+2)
		text := kind >= 2 && kind <= 5 || kind == 0 || kind == 0x100
		number := kind == 1 || kind == 7 || kind == 8 || kind == 9 || kind == 0x101
		switch {
		case text && size > 5 && v.hasAt(at+size-1, "\x00") && v.textAt(at+4, size-5):
		case number && size == 12:
		case kind == 6 && size == 6+9*v.u16(at+4):
		case (kind == 0x200 || kind == 0x210) && at == 0 && size > 20 && v.port(25826):
		default:
			return no
		}
		at += size
	}
	return is(at == len(v.p) && (parts > 1 || v.port(25826)))
}

// rsh is the port for errors, then two names and a command, each with a zero behind (rshd(8)).
func rsh(v *view) verdict {
	if !v.port(514) || v.reply {
		return no
	}
	n := v.digits(0)
	alone := n <= 5 && v.hasAt(n, "\x00")
	switch {
	case v.nth == 0 && alone && len(v.p) == n+1:
		return maybe
	case v.nth == 0 && alone:
		return is(v.threeStrings(n + 1))
	}
	return is(v.nth == 1 && v.began.size <= 6 && v.threeStrings(0))
}

// threeStrings reports whether all from an offset on is three texts with a zero behind each.
func (v *view) threeStrings(at int) bool {
	return v.p[len(v.p)-1] == 0 && bytes.Count(v.p[at:], []byte{0}) == 3 && v.printableFrom(at) && len(v.p)-at > 6
}

// munin is the greeting of a node, or the header of its answer for a plugin (Munin's network protocol).
func munin(v *view) verdict { return is(v.reply && v.has("# munin node at ")) }

// checkmk is the first section that an agent sends (Checkmk's monitoring agents).
func checkmk(v *view) verdict { return is(v.has("<<<check_mk>>>") || v.has("<<<check_mk:")) }

// roughtime is a packet with its magic and length (draft-ietf-ntp-roughtime, 5).
func roughtime(v *view) verdict { return is(v.has("ROUGHTIM") && int(v.le32(8)) == len(v.p)-12) }

// sap announces a session (RFC 2974, 3): version 1, the length of the authentication, a source, and SDP.
func sap(v *view) verdict {
	at := 8 + 4*v.u8(1)
	if v.p[0]&0x10 != 0 {
		at += 12 // a source of IPv6
	}
	return is(v.p[0]>>5 == 1 && v.u16(2) != 0 && (v.hasAt(at, "v=0\r\n") || v.hasAt(at, "v=0\n") ||
		v.hasAt(at, "application/sdp\x00")))
}

// bfcp is a message whose attributes fill it (RFC 8855, 5.1 and 5.2).
func bfcp(v *view) verdict {
	if v.p[0]&0xf8 != 0x20 || v.u8(1) < 1 || v.u8(1) > 18 || v.u16(2) != len(v.p)/4-3 || len(v.p)%4 != 0 || v.u32(4) == 0 {
		return no
	}
	at := 12
	for at+2 <= len(v.p) && v.u8(at)>>1 >= 1 && v.u8(at)>>1 <= 18 && v.u8(at+1) >= 2 {
		at += (v.u8(at+1) + 3) &^ 3
	}
	return is(at == len(v.p) && at > 12)
}

// rx is a packet of the remote calls of AFS (Rx protocol, 2): a type, flags, a security index and a service.
func rx(v *view) verdict {
	kind := v.u8(20)
	return is(v.port(7000, 7001, 7002, 7003, 7004, 7005, 7006, 7007, 7008, 7009) && len(v.p) >= 28 && v.u32(0) >= 1<<28 &&
		v.u32(4) != 0 && v.u32(8) < 1<<16 && v.u32(12) < 1<<16 && v.u32(16) < 1<<20 && kind >= 1 && kind <= 13 &&
		v.u8(21) < 0x40 && v.u8(23) <= 3 && (v.u8(23) != 0 || v.u16(24) == 0) && v.u16(26) != 0 && v.u16(26) < 0x1000)
}
