package appid

import "bytes"

// Services of networks: time, addresses, directories, management.

func ntp(v *view) verdict {
	mode, version := v.p[0]&7, v.p[0]>>3&7
	if !v.port(123) || version < 1 || version > 4 || mode == 0 {
		return no
	}
	switch mode {
	case 6: // control: the data is padded to words, and an authenticator may follow (RFC 9327, 2)
		n := 12 + (v.u16(10)+3)&^3
		return is(v.p[0]&0xc0 == 0 && v.u8(1)&0x1f <= 12 && (n == len(v.p) || n+20 == len(v.p) || n+24 == len(v.p)))
	case 7: // private: an implementation, a request and items of one size
		items := 8 + v.u16(4)&0xfff*(v.u16(6)&0xfff)
		return is(len(v.p) >= 8 && (v.u8(2) <= 3 && v.u16(6)&0xf000 == 0 && items <= len(v.p)) && len(v.p)%4 == 0)
	}
	// Behind the 48 bytes are extensions and a digest, in words (RFC 5905, 7.3). The precision is less than a second.
	return is(len(v.p) >= 48 && len(v.p)%4 == 0 && v.u8(1) <= 16 && v.u8(2) <= 17 && (v.u8(3) >= 0xe0 || v.u8(3) == 0))
}

func ptp(v *view) verdict {
	kind := v.p[0] & 0xf
	// The control field is that of version 1 (IEEE 1588, 13.3.2).
	return is(v.port(319, 320) && v.u8(1)&0xf == 2 && v.p[0]>>4 <= 3 && v.u8(32) <= 5 && v.u16(2) <= len(v.p) && v.u16(2) >= 34 && (kind <= 3 ||
		kind >= 8 && kind <= 13))
}

func dhcp(v *view) verdict {
	return is(v.port(67, 68, 4011) && len(v.p) >= 236 && v.p[0] >= 1 && v.p[0] <= 2 && v.u8(1) < 32 &&
		(len(v.p) < 240 || v.u32(236) == 0x63825363 || v.u32(236) == 0))
}

func dhcp6(v *view) verdict {
	at := 4
	if v.p[0] >= 12 { // between relays: a count of hops and two addresses (RFC 8415, 9)
		at = 34
	}
	if !v.port(546, 547) || v.p[0] < 1 || v.p[0] > 13 || len(v.p) < at+4 || at == 34 && v.u8(1) > 32 {
		return no
	}
	return is(v.items(at, 1, 255))
}

// ber returns the length of the content of a BER element at an offset, and that of its header.
func (v *view) ber(at int) (size, header int) {
	n := v.u8(at + 1)
	switch {
	case n < 0x80:
		return n, 2
	case n == 0x81:
		return v.u8(at + 2), 3
	case n == 0x82:
		return v.u16(at + 2), 4
	case n == 0x83:
		return v.u24(at + 2), 5
	case n == 0x84:
		return int(v.u32(at+2)&1<<30 - 1), 6
	}
	return -1, 2
}

// snmp is a message with a version, a community or the header of version 3 (RFC 3416, RFC 3412).
func snmp(v *view) verdict {
	size, h := v.ber(0)
	if v.p[0] != 0x30 || size < 8 || h+size != len(v.p) || v.u8(h) != 2 || v.u8(h+1) != 1 {
		return no
	}
	switch v.u8(h + 2) {
	case 0, 1:
		n, hh := v.ber(h + 3)
		pdu := v.u8(h + 3 + hh + n)
		return is(v.u8(h+3) == 4 && n >= 0 && pdu >= 0xa0 && pdu <= 0xa8)
	case 3:
		return is(v.u8(h+3) == 0x30)
	}
	return no
}

// ldap is a message with a number and an operation (RFC 4511, 4.1.1).
func ldap(v *view) verdict {
	size, h := v.ber(0)
	if v.p[0] != 0x30 || size < 5 || v.u8(h) != 2 || v.u8(h+1) < 1 || v.u8(h+1) > 4 {
		return no
	}
	at := h + 2 + v.u8(h+1)
	op := v.u8(at)
	n, hh := v.ber(at)
	if n < 0 || at+hh+n > h+size {
		return no
	}
	switch op {
	case 0x60: // bind: version 2 or 3, a name
		return is(v.u8(at+hh) == 2 && v.u8(at+hh+1) == 1 && v.u8(at+hh+2) <= 3 && v.u8(at+hh+3) == 4)
	case 0x61, 0x65: // results
		return is(v.u8(at+hh) == 10 && v.u8(at+hh+1) == 1)
	case 0x63: // search: base, scope
		return is(v.u8(at+hh) == 4)
	case 0x64:
		return is(v.u8(at+hh) == 4)
	case 0x77, 0x78:
		return is(v.u8(at+hh) == 0x80 || v.u8(at+hh) == 10)
	case 0x42:
		return is(n == 0 && v.port(389))
	}
	return no
}

// kerberos is one of the messages by their tag, version 5 inside (RFC 4120, 5).
func kerberos(v *view) verdict { return kerberosAt(v, 0) }

func kerberosTCP(v *view) verdict {
	if n := int(v.u32(0)); n < 8 || n > 1<<17 {
		return no
	}
	return kerberosAt(v, 4)
}

func kerberosAt(v *view, at int) verdict {
	tag := v.u8(at)
	size, h := v.ber(at)
	if tag != 0x6a && tag != 0x6b && tag != 0x6c && tag != 0x6d && tag != 0x6e && tag != 0x7e || size < 8 {
		return no
	}
	inner, hh := v.ber(at + h)
	at += h + hh
	return is(v.u8(at-hh) == 0x30 && inner >= 8 && v.u8(at)|1 == 0xa1 && v.u8(at+1) == 3 && v.u8(at+2) == 2 &&
		v.u8(at+3) == 1 && v.u8(at+4) == 5)
}

func radius(v *view) verdict {
	code := v.u8(0)
	known := code >= 1 && code <= 5 || code == 11 || code == 12 || code == 13 || code >= 40 && code <= 45
	if !v.port(1812, 1813, 1645, 1646, 3799) || !known || len(v.p) < 20 || v.u16(2) != len(v.p) {
		return no
	}
	at := 20
	for at+2 <= len(v.p) && v.u8(at+1) >= 2 {
		at += v.u8(at + 1)
	}
	return is(at == len(v.p))
}

func diameter(v *view) verdict {
	size := v.u24(1)
	return is(v.p[0] == 1 && size >= 20 && size%4 == 0 && size <= 1<<16 && v.u8(4)&0x0f == 0 && v.u24(5) >= 257 &&
		v.u24(5) < 1<<24-1 && v.u32(8) < 1<<25 && (size == len(v.p) || v.port(3868)) && len(v.p) >= 20)
}

func tacacs(v *view) verdict {
	return is(v.p[0]>>4 == 0xc && v.p[0]&0xf <= 1 && v.u8(1) >= 1 && v.u8(1) <= 3 && len(v.p) >= 12 &&
		int(v.u32(8)) == len(v.p)-12 && v.port(49))
}

// syslog begins with a priority in angle brackets (RFC 5424, 6.2.1; RFC 3164, 4.1.1).
func syslog(v *view) verdict {
	n := v.digits(1)
	if v.p[0] != '<' || n < 1 || n > 3 || v.u8(1+n) != '>' || len(v.p) < 8 {
		return no
	}
	c := v.u8(2 + n)
	return is((v.port(514, 601, 1514) || c == '1' && v.u8(3+n) == ' ' || month(v, 2+n)) && (c >= ' ' || c == '\n') &&
		c != '<')
}

func month(v *view, at int) bool {
	for _, m := range []string{
		"Jan ", "Feb ", "Mar ", "Apr ", "May ", "Jun ", "Jul ", "Aug ", "Sep ", "Oct ",
		"Nov ", "Dec ",
	} {
		if v.hasAt(at, m) {
			return true
		}
	}
	return false
}

// exports is when the first flow was exported, in seconds of 1970: no export has an earlier time.
const exports = 800_000_000

// netFlow is an export of version 5, 9 or 10 (RFC 3954, RFC 7011).
func netFlow(v *view) verdict {
	switch v.u16(0) {
	case 5:
		return is(len(v.p) >= 24 && v.u16(2) >= 1 && v.u16(2) <= 30 && len(v.p) == 24+48*v.u16(2))
	case 9:
		return is(len(v.p) >= 24 && v.u32(8) > exports && v.u16(2) >= 1 && v.u16(2) < 100 && (v.u16(20) <= 1 || v.u16(20) >= 256) &&
			v.u16(22) >= 4 && v.u16(22) <= len(v.p)-20)
	case 10:
		return is(v.u16(2) == len(v.p) && len(v.p) >= 20 && v.u32(4) > exports && (v.u16(16) == 2 || v.u16(16) == 3 || v.u16(16) >= 256) &&
			v.u16(18) >= 4)
	}
	return no
}

func sFlow(v *view) verdict {
	return is(v.u32(0) == 5 && (v.u32(4) == 1 && len(v.p) >= 28 && v.u32(24) < 256 || v.u32(4) == 2 &&
		len(v.p) >= 40) && v.port(6343))
}

func ssdp(v *view) verdict {
	return is(v.hasAny("M-SEARCH * HTTP/1.1", "NOTIFY * HTTP/1.1") || v.has("HTTP/1.1 200 OK\r\n") &&
		(v.port(1900) || v.containsFold("\nST:")))
}

func wsDiscovery(v *view) verdict {
	return is(v.has("<?xml") && (v.contains("schemas.xmlsoap.org/ws/2005/04/discovery") ||
		v.contains("docs.oasis-open.org/ws-dd")) || v.has("<?xml") && v.port(3702) || v.has("<soap:Envelope") &&
		v.port(3702))
}

func slp(v *view) verdict {
	if !v.port(427) {
		return no
	}
	switch v.p[0] {
	case 1: // RFC 2165, 4
		return is(v.u16(2) == len(v.p) && v.u8(1) >= 1 && v.u8(1) <= 14)
	case 2: // RFC 2608, 8
		return is(v.u24(2) == len(v.p) && v.u8(1) >= 1 && v.u8(1) <= 11)
	}
	return no
}

func bfd(v *view) verdict {
	if v.port(3785) { // echo: the sender's own format
		return is(len(v.p) >= 12 && len(v.p) <= 60)
	}
	return is(v.port(3784, 4784) && v.p[0]>>5 == 1 && v.u8(3) == len(v.p) && len(v.p) >= 24)
}

func hsrp(v *view) verdict {
	if !v.port(1985, 2029) || len(v.p) < 16 {
		return no
	}
	if v.p[0] == 1 { // version 2: a group's state, of 40 bytes
		return is(v.u8(1) == 40 && len(v.p) >= 42 && v.u8(2) == 2)
	}
	state := v.u8(2)
	return is(v.p[0] == 0 && (v.u8(1) <= 2 && state <= 16 && state&(state-1) == 0 && v.u8(3) > 0 && v.u8(4) > v.u8(3) &&
		v.u8(7) == 0 && v.u8(16) != 0 && (len(v.p) == 20 || len(v.p) > 20 && v.u8(20) == 4) || v.u8(1) == 3 && v.u16(2) == 1 && v.u16(4) == len(v.p)-6)) // RFC 2281, 5; an advertisement
}

func bgp(v *view) verdict {
	return is(len(v.p) >= 19 && v.u64(0) == 1<<64-1 && v.u64(8) == 1<<64-1 && v.u16(16) >= 19 && v.u16(16) <= 4096 &&
		v.u8(18) >= 1 && v.u8(18) <= 5)
}

func rip(v *view) verdict {
	return is(v.port(520) && v.p[0] >= 1 && v.p[0] <= 2 && v.u8(1) >= 1 && v.u8(1) <= 2 && v.u16(2) == 0 &&
		(len(v.p)-4)%20 == 0)
}

func ldp(v *view) verdict {
	return is(v.port(646) && v.u16(0) == 1 && v.u16(2) == len(v.p)-4 && v.u16(8) == 0)
}

func whois(v *view) verdict {
	line, whole := v.line()
	// A domain, an address, a number of an autonomous system, or options: any line would be a guess by the port.
	asked := bytes.ContainsAny(line, ".:-") || v.hasFold("AS")
	return perhaps(v.port(43) && !v.reply && v.nth == 0 && v.replies == 0 && whole && len(line) == len(v.p)-2 && asked &&
		v.printable(len(v.p)))
}

func coap(v *view) verdict {
	if v.p[0]>>6 != 1 || v.p[0]&0xf > 8 || len(v.p) < 4 || !v.port(5683) {
		return no
	}
	code := v.u8(1)
	if code == 0 { // an empty message has no more than its header (RFC 7252, 4.1)
		return is(len(v.p) == 4)
	}
	class, detail := code>>5, code&0x1f
	known := class == 0 && detail <= 7 || class == 2 && (detail >= 1 && detail <= 5 || detail == 31) ||
		class == 4 && detail != 7 && detail <= 15 || class == 5 && detail <= 8
	return is(known && v.coapOptions(4+v.u8(0)&0xf))
}

// coapOptions reports whether options of CoAP fill a message up to its payload (RFC 7252, 3.1).
func (v *view) coapOptions(at int) bool {
	for number := 0; at < len(v.p); {
		b := v.u8(at)
		if b == 0xff {
			return at+1 < len(v.p) // behind the marker is a payload
		}
		at++
		delta, size := b>>4, b&0xf
		for _, n := range []*int{&delta, &size} {
			switch *n {
			case 13:
				*n = 13 + v.u8(at)
				at++
			case 14:
				*n = 269 + v.u16(at)
				at += 2
			case 15:
				return false
			}
		}
		number += delta
		at += size
		if number > 2100 {
			return false
		}
	}
	return at == len(v.p)
}

func dlep(v *view) verdict {
	return is(v.has("DLEP") || v.port(854) && v.u16(0) >= 1 && v.u16(0) <= 16 && v.u16(2) == len(v.p)-4 &&
		v.items(4, 0, 64)) // data items (RFC 8175, 11.3)
}

// dceRPC is a packet over TCP (C706, 12.6): version 5.0, a known type, a little-endian format, and its length.
func dceRPC(v *view) verdict {
	size := v.le16(8)
	if v.u8(4) == 0 {
		size = v.u16(8)
	}
	return is(v.u8(0) == 5 && v.u8(1) <= 1 && v.u8(2) <= 19 && len(v.p) >= 16 && v.u8(4)&^0x10 == 0 && v.u8(5) <= 3 &&
		v.u16(6) == 0 && size >= 16 && size <= 1<<14 && (size == len(v.p) || size > len(v.p) && len(v.p) >= 500 ||
		v.u16(size) == 0x0500))
}

// dceRPCUDP is a packet of the connectionless protocol: version 4, type, representation, and the length behind.
func dceRPCUDP(v *view) verdict {
	size := v.u16(74)
	if v.u8(4)&0x10 != 0 {
		size = v.le16(74)
	}
	return is(v.u8(0) == 4 && v.u8(1) <= 10 && len(v.p) >= 80 && v.u8(4)&0xee == 0 && v.u8(5) <= 3 && size == len(v.p)-80)
}

func ripeAtlas(v *view) verdict { return is(v.has("MGLNDD_")) }

func fix(v *view) verdict { return is(v.has("8=FIX") || v.has("8=O\x019=")) }

func cpha(v *view) verdict { return is(v.port(8116) && v.u16(0) == 0x1a90) }

func smpp(v *view) verdict {
	command := v.u32(4) &^ 0x80000000
	known := command >= 1 && command <= 9 || command == 0x15 || command == 0xb || command == 0x21 ||
		command == 0x102 || command == 0x103
	if command == 0x15 || command == 6 { // enquire_link and unbind have no body
		known = len(v.p) == 16 && v.port(2775)
	}
	return perhaps(known && (v.u32(4)&0x80000000 != 0 || v.u32(8) == 0) && int(v.u32(0)) == len(v.p) && len(v.p) >= 16 && len(v.p) < 4096 && v.u32(12) < 1<<16 &&
		v.u32(12) > 0 &&
		(command != 2 && command != 1 && command != 9 || v.u32(4)&0x80000000 != 0 || v.p[16] >= ' '))
}
