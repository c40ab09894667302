package appid

// dnsMessage reports whether a payload has the header of a DNS message with plausible numbers (RFC 1035, 4.1.1), and a first
// question that is well formed.
func (v *view) dnsMessage(at int) bool {
	if len(v.p) < at+12 {
		return false
	}
	flags, questions, answers := v.u16(at+2), v.u16(at+4), v.u16(at+6)
	others := v.u16(at+8) + v.u16(at+10)
	opcode, rcode := flags>>11&15, flags&15
	if opcode > 6 || rcode > 11 || questions > 16 || answers > 512 || others > 512 || questions+answers+others == 0 {
		return false
	}
	if flags&0x8000 == 0 && rcode != 0 && flags&0x10 == 0 {
		return false
	}
	if questions == 0 {
		return flags&0x8000 != 0 && len(v.p) > at+12+10
	}
	return v.question(at + 12)
}

// question reports whether a question is at an offset: labels, a type and a class.
func (v *view) question(at int) bool {
	for {
		if at >= len(v.p) {
			return false
		}
		n := int(v.p[at])
		at++
		if n == 0 {
			break
		}
		if n > 63 {
			return n >= 0xc0 && at+5 <= len(v.p)
		}
		at += n
	}
	class := v.u16(at+2) & 0x7fff
	return at+4 <= len(v.p) && (class >= 1 && class <= 4 || class >= 254 && class <= 255)
}

func dns(v *view) verdict {
	if v.port(5353, 5355, 137) {
		return no
	}
	return is(v.port(53, 5300, 5354) && v.dnsMessage(0) || len(v.p) < 1500 && v.dnsMessage(0) && v.u16(4) == 1 &&
		v.u16(6)+v.u16(8) < 64 &&
		(v.u16(2)&0x7fff == 0x0100 || v.u16(2)&0xff70 == 0x8100 || v.u16(2)&0x8000 != 0 && v.other.size > 12 &&
			v.u16(0) == int(v.other.head[0])<<8|int(v.other.head[1])))
}

// dnsOverTCP has a length before each message (RFC 1035, 4.2.2).
func dnsOverTCP(v *view) verdict {
	n := v.u16(0)
	if len(v.p) == 2 && v.port(53) {
		return maybe
	}
	return is(n >= 12 && (v.port(53) || n+2 == len(v.p)) && v.dnsMessage(2) && (v.port(53) || v.u16(6) == 1))
}

func mdns(v *view) verdict  { return is(v.port(5353) && v.dnsMessage(0)) }
func llmnr(v *view) verdict { return is(v.port(5355) && v.dnsMessage(0)) }

// dnsCrypt's client magic is in every query of a session; responses begin with a magic of their own.
func dnsCrypt(v *view) verdict {
	if v.has("r6fnvWj8") {
		return yes
	}
	return maybe
}

// netbiosNames is the name service (RFC 1002, 4.2.1): encoded names of 32 letters.
func netbiosNames(v *view) verdict {
	opcode := v.u16(2) >> 11 & 15
	if !v.port(137) || len(v.p) < 12 || opcode > 9 {
		return no
	}
	return is(v.u8(12) == 32 && encodedName(v.p[13:min(len(v.p), 45)]))
}

func encodedName(p []byte) bool {
	for _, c := range p {
		if c < 'A' || c > 'P' {
			return false
		}
	}
	return len(p) == 32
}

// netbiosDatagrams is the datagram service (RFC 1002, 4.4.1).
func netbiosDatagrams(v *view) verdict {
	return is(v.port(138) && v.u8(0) >= 0x10 && v.u8(0) <= 0x16 && len(v.p) >= 10 && v.u8(1) <= 0x0f && v.u16(8) == 138)
}

// netbiosSession is a session request (RFC 1002, 4.3.2).
func netbiosSession(v *view) verdict {
	return perhaps(v.u8(0) == 0x81 && v.u8(1) <= 1 && v.u16(2) == len(v.p)-4 && v.u8(4) == 32 && len(v.p) > 36 &&
		encodedName(v.p[5:37]))
}
