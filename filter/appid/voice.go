package appid

import "bytes"

// Telephony and media.

// sip is a request or response (RFC 3261, 7.1 and 7.2).
func sip(v *view) verdict {
	if v.has("SIP/2.0 ") {
		return yes
	}
	line, whole := v.line()
	return perhaps(whole && bytes.HasSuffix(line, []byte(" SIP/2.0")))
}

// stun is a message with the magic cookie (RFC 8489, 5), or an old one whose attributes add up to its length.
func stun(v *view) verdict {
	if v.p[0]&0xc0 != 0 || len(v.p) < 20 {
		return no
	}
	size := v.u16(2)
	if v.u32(4) == 0x2112a442 {
		return is(size == len(v.p)-20 || size%4 == 0 && size > 0 && size < len(v.p)-20)
	}
	kind := v.u16(0) &^ 0x0110
	if size != len(v.p)-20 || size == 0 || size%4 != 0 || kind != 1 && kind != 3 && kind != 4 && kind != 6 {
		return no
	}
	at := 20 // at the usual port any attribute that must be understood may come, else only those that have a document
	for at+4 <= len(v.p) {
		kind := v.u16(at)
		if kind == 0 || kind > 0x30 && kind < 0x8000 && !v.port(3478, 3479) || kind > 0x80ff && kind < 0xc000 {
			return no
		}
		at += 4 + (v.u16(at+2)+3)&^3
	}
	return is(at == len(v.p))
}

// stunTCP has no framing of its own with STUN alone (RFC 8489, 6.2.2), or a length (RFC 4571).
func stunTCP(v *view) verdict {
	return is(v.u32(4) == 0x2112a442 && v.p[0]&0xc0 == 0 && v.u16(2)+20 <= len(v.p) && v.u16(2)%4 == 0 ||
		v.u32(6) == 0x2112a442 && v.u16(0) == len(v.p)-2)
}

// dtls is a record of a handshake, or data of one (RFC 6347, 4.1).
func dtls(v *view) verdict {
	version := v.u16(1)
	if len(v.p) < 13 || version != 0xfeff && version != 0xfefd && version != 0x0100 {
		return no
	}
	size := v.u16(11)
	switch v.p[0] {
	case 22:
		return is(size <= len(v.p)-13 && (v.u8(13) <= 20 || v.u16(3) > 0))
	case 20, 21, 23:
		return is(size <= len(v.p)-13 && size > 0)
	case 25: // encrypted, with a connection ID of up to 20 bytes before the length (RFC 9146, 4), whose own length is unknown
		for id := 1; id <= 20 && v.u16(3) > 0; id++ {
			if v.u16(11+id) == len(v.p)-13-id && len(v.p)-13-id >= 17 {
				return perhaps(v.nth > 0 && v.mine.head[0] == 25)
			}
		}
	}
	return no
}

// rtp is known by two packets of one source with numbers in order (RFC 3550, 5.1).
func rtp(v *view) verdict {
	kind := v.u8(1) & 0x7f
	if v.p[0]>>6 != 2 || len(v.p) < 12 || kind >= 64 && kind < 96 || kind > 34 && kind < 64 || v.u32(8) == 0 ||
		v.p[0]&0xf > 4 {
		return no
	}
	m := v.mine
	if m.size == 0 {
		return maybe
	}
	step := uint16(v.u16(2) - m.u16(2))
	same := m.head[0]>>6 == 2 && m.head[8] == v.p[8] && m.head[9] == v.p[9] && m.u16(10) == v.u16(10)
	if !same || step > 16 && step < 0xfff0 {
		return perhaps(false)
	}
	return perhaps(step != 0 && m.head[1]&0x7f == v.p[1]&0x7f)
}

// rtcp is a report with a source, whose parts add up (RFC 3550, 6.1).
func rtcp(v *view) verdict {
	if v.p[0]>>6 != 2 || v.u8(1) < 200 || v.u8(1) > 207 || len(v.p) < 8 {
		return no
	}
	at := 0
	for at+4 <= len(v.p) && v.p[at]>>6 == 2 && v.u8(at+1) >= 200 && v.u8(at+1) <= 213 {
		at += 4 + 4*v.u16(at+2)
	}
	// Behind the first packet may be what is encrypted (RFC 3711 3.4).
	return perhaps(at == len(v.p) || at > 0 && 4+4*v.u16(2) <= len(v.p) && v.nth > 0 && v.mine.head[0]>>6 == 2 && v.mine.head[1] >= 200 && v.mine.head[1] <= 207)
}

// h225 is a call signalling message of Q.931 in a TPKT.
func h225(v *view) verdict {
	if len(v.p) == 4 && v.u8(0) == 3 && v.u16(2) > 12 && v.u16(2) < 2048 {
		return maybe
	}
	if v.nth > 0 && v.mine.size == 4 && v.mine.head[0] == 3 && v.p[0] == 8 {
		return is(v.mine.u16(2) == len(v.p)+4 || v.u8(1) == 2)
	}
	if v.u8(0) == 3 && v.u8(1) == 0 && v.u16(2) == len(v.p) && v.u8(4) == 8 && v.u8(5) <= 2 {
		return yes
	}
	return perhaps(false)
}

// ras registers with a gatekeeper of H.323.
func ras(v *view) verdict {
	return is(v.port(1718, 1719) && len(v.p) > 10 && (v.contains("\x06\x00\x08\x91\x4a\x00") ||
		v.contains("\x00\x08\x91\x4a")))
}

func megaco(v *view) verdict {
	return is(v.hasAny("!/1 ", "!/2 ", "!/3 ", "MEGACO/") && (v.contains("T=") || v.contains("Transaction") ||
		v.contains(" P =") || v.contains("Reply") || v.contains("P=")))
}

func skinny(v *view) verdict {
	return perhaps(v.port(2000, 2443) && len(v.p) >= 12 && v.le32(0) >= 4 && int(v.le32(0)) <= len(v.p)-8 &&
		(v.le32(4) == 0 || v.le32(4) < 32) && v.le32(8) < 0x200)
}

func iax2(v *view) verdict {
	return is(v.port(4569) && len(v.p) >= 12 && v.u8(0)&0x80 != 0 && v.u8(8) <= 1 && v.u8(10) == 6 && v.u8(11) <= 40)
}

// mpegTS is a stream of packets of 188 bytes, each with its mark.
func mpegTS(v *view) verdict {
	if len(v.p)%188 != 0 || len(v.p) == 188 && v.nth == 0 {
		return perhapsOnly(len(v.p) == 188)
	}
	if len(v.p) == 188 && (v.mine.size%188 != 0 || v.mine.head[0] != 0x47) { // one mark says little
		return no
	}
	for at := 0; at < len(v.p); at += 188 {
		if v.p[at] != 0x47 {
			return no
		}
	}
	return yes
}

func mumble(v *view) verdict {
	return perhaps(len(v.p) == 12 && v.u32(0) == 0 && !v.reply && v.nth == 0 && v.u64(4) != 0 && v.port(64738) ||
		len(v.p) == 24 && v.reply && v.other.size == 12 && v.u64(4) != 0 && string(v.other.head[4:12]) == string(v.p[4:12]))
}

func flute(v *view) verdict {
	return perhaps(v.u8(0) == 0x10 && v.u8(1)&0xf0 == 0x10 && v.u8(2)*4 <= len(v.p) && (v.contains("<?xml") &&
		v.contains("FDT-Instance") || v.containsIn(96, "<?xml")))
}
