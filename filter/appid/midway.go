package appid

import "bytes"

// Protocols whose later messages show them too, where the beginning of a flow was not seen.

// tds is a message of SQL Server in one packet (MS-TDS, 2.2.3.1): a type, a status, its length, a window of 0. What it begins
// with is that of its type.
func tds(v *view) verdict {
	kind := v.u8(0)
	if v.u8(1)&^0x1f != 0 || v.u16(2) != len(v.p) || len(v.p) <= 8 || v.u8(7) != 0 {
		return no
	}
	switch kind {
	case 0x12, 0x10: // pre-login, login
		return is(v.nth == 0 && v.u8(1) <= 1 && v.u16(4) == 0 && (kind != 0x12 || v.u8(8) == 0))
	case 0x01, 0x03, 0x0e: // a batch, a call, a transaction: ALL_HEADERS (2.2.5.3) before it
		size, header := v.le32(8), v.le32(12)
		return is(!v.reply && size >= 22 && int(size) <= len(v.p)-8 && header == size-4 && v.le16(16) >= 1 && v.le16(16) <= 3)
	case 0x04:
		return is(v.nth == 0 && v.reply && v.other.size > 0 && v.other.head[0] == 0x12 && v.u16(4) == 0 ||
			v.port(1433) && v.tdsToken(v.u8(8)) && len(v.p) > 9)
	}
	return no
}

// tdsToken reports whether a token begins a stream of an answer (MS-TDS, 2.2.4.2).
func (v *view) tdsToken(token int) bool {
	switch token {
	case 0x79, 0x81, 0xa9, 0xaa, 0xab, 0xad, 0xd1, 0xd2, 0xd3, 0xe3, 0xfd, 0xfe, 0xff:
		return true
	}
	return false
}

// amqp is the header of a protocol (AMQP 1.0, 2.2; AMQP 0-9-1, 4.2.2) or a frame.
func amqp(v *view) verdict {
	if v.has("AMQP") {
		return is(len(v.p) == 8 || v.u8(4) <= 3)
	}
	if v.p[0] == 0 {
		return v.amqp1()
	}
	return v.amqp0()
}

// amqp1 is a frame of AMQP 1.0 (2.3.1 and 2.7): its size, an offset of 2 words, a type, a channel, and a performative.
func (v *view) amqp1() verdict {
	size, p := int(v.u32(0)), v.u8(10)
	performative := v.u16(8) == 0x0053 && (v.u8(5) == 0 && p >= 0x10 && p <= 0x18 || v.u8(5) == 1 && p >= 0x40 && p <= 0x44)
	if size == 8 && len(v.p) == 8 { // an empty frame keeps a connection alive
		return perhaps(v.u8(4) == 2 && v.u32(4) == 0x02000000 && v.port(5672))
	}
	return is(size >= 12 && v.u8(4) == 2 && performative && (size == len(v.p) || size > len(v.p) && len(v.p) >= 1000 || size+12 <= len(v.p) && v.u8(size+4) == 2))
}

// amqp0 is a frame of AMQP 0-9-1 (2.3.5): a type, a channel, a size, and 0xCE at its end. A method names a class.
func (v *view) amqp0() verdict {
	end := 7 + int(v.u32(3)&(1<<20-1))
	if v.u32(3) >= 1<<20 || v.u8(end) != 0xce {
		return no
	}
	class, method := v.u16(7), v.u16(9)
	known := class >= 10 && class <= 90 && class%10 == 0 || class == 85
	switch v.p[0] {
	case 1:
		return is(end >= 11 && known && method >= 10 && method <= 120 && (end+1 == len(v.p) || v.u8(end+1) >= 1 && v.u8(end+1) <= 8))
	case 2:
		return is(end >= 21 && class == 60 && method == 0 && (end+1 == len(v.p) || v.u8(end+1) == 3))
	case 3:
		return perhaps(v.port(5672) && end+1 == len(v.p))
	}
	return is(end == 7 && v.u16(1) == 0 && len(v.p) == 8)
}

// mqtt is a CONNECT with the name of the protocol, or a packet of another type with its fixed header (MQTT 5.0, 2.1).
func mqtt(v *view) verdict {
	size, at := 0, 1
	for shift := 0; at <= 4; shift += 7 {
		size |= v.u8(at) & 0x7f << shift
		if at++; v.u8(at-1) < 0x80 {
			break
		}
	}
	if v.u8(0) == 0x10 {
		return is(v.hasAt(at, "\x00\x04MQTT") || v.hasAt(at, "\x00\x06MQIsdp"))
	}
	if at+size > len(v.p) || at+size < len(v.p) && !mqttType(v.u8(at+size)) {
		return no
	}
	return perhaps(v.mqttPacket(at, size))
}

// mqttType reports whether a byte has a type with the flags that are fixed for it (MQTT 5.0, 2.1.3).
func mqttType(b int) bool {
	switch b >> 4 {
	case 3:
		return b&6 != 6
	case 6, 8, 10:
		return b&0xf == 2
	}
	return b>>4 != 0 && b&0xf == 0
}

// mqttPacket reports whether the packet with size bytes from at on has what its type begins with. A short one says little, so
// that its usual port is asked for.
func (v *view) mqttPacket(at, size int) bool {
	switch v.u8(0) >> 4 {
	case 2: // CONNACK (3.2)
		return v.reply && v.u8(at) <= 1 && v.port(1883) && (size == 2 && v.u8(at+1) <= 5 || size >= 3 && v.u8(at+2) == size-3)
	case 3: // PUBLISH (3.3): a topic without wildcards
		n := v.u16(at)
		topic := n >= 1 && n+2 <= size && v.textAt(at+2, n) && !bytes.ContainsAny(v.p[at+2:at+2+n], "#+")
		return topic && (v.port(1883) || n >= 4 && bytes.IndexByte(v.p[at+2:at+2+n], '/') > 0)
	case 8: // SUBSCRIBE (3.8), with properties in version 5
		for _, from := range []int{at + 2, at + 3 + v.u8(at+2)} {
			n := v.u16(from)
			if v.u16(at) != 0 && n >= 1 && v.textAt(from+2, n) && from+3+n <= at+size && v.u8(from+2+n)&0xc0 == 0 {
				return v.port(1883) || n >= 4
			}
		}
		return false
	case 4, 5, 6, 7, 9, 11: // acknowledgements have the number of what they acknowledge
		return v.port(1883) && size >= 2 && size <= 4 && v.u16(at) != 0 && v.nth > 0
	case 12, 13: // PINGREQ, PINGRESP
		return v.port(1883) && size == 0 && len(v.p) == 2
	}
	return false
}

// mgcp is a command, or the answer to one: a code, the command's number, and words behind it (RFC 3435, 3.2.1 and 3.3).
func mgcp(v *view) verdict {
	line, whole := v.line()
	if n := v.digits(4); v.digits(0) == 3 && v.u8(3) == ' ' && n >= 1 && n <= 9 {
		c := v.u8(4 + n)
		return perhaps(v.port(2427, 2727) && v.u8(0) <= '5' && (c == ' ' || c == '\r' || c == '\n') && (whole || len(line) == 4+n))
	}
	return perhaps(whole && v.command("AUEP", "AUCX", "CRCX", "DLCX", "EPCF", "MDCX", "MESG", "NTFY", "RQNT", "RSIP") &&
		bytes.Contains(line, []byte(" MGCP ")))
}

// tftp is a request, or a transfer at the ports that its ends have chosen (RFC 1350, 4 and 5; RFC 2347): there a block and its
// acknowledgement, options that were accepted, or an error with a text.
func tftp(v *view) verdict {
	switch v.u16(0) {
	case 1, 2:
		return is(len(v.p) > 8 && v.p[len(v.p)-1] == 0 && (v.containsFold("OCTET\x00") ||
			v.containsFold("NETASCII\x00")) && v.u8(2) >= ' ')
	case 3: // a block: its acknowledgement decides
		return perhapsOnly(len(v.p) >= 4)
	case 4:
		return perhaps(len(v.p) == 4 && v.other.size > 4 && v.other.u16(0) == 3 && v.other.u16(2) == v.u16(2) && v.u16(2) > 0)
	case 5:
		return is(v.u16(2) <= 8 && len(v.p) >= 9 && v.textAt(4, len(v.p)-5) && v.p[len(v.p)-1] == 0)
	case 6:
		return is(v.p[len(v.p)-1] == 0 && (v.hasAt(2, "blksize\x00") || v.hasAt(2, "tsize\x00") || v.hasAt(2, "timeout\x00") ||
			v.hasAt(2, "windowsize\x00")))
	}
	return no
}

const rakNetMagic = "\x00\xff\xff\x00\xfe\xfe\xfe\xfe\xfd\xfd\xfd\xfd\x12\x34\x56\x78"

// raknet is a message without a connection, with its magic, or a datagram of one that answers the other side's (RakNet manual,
// System overview; the source's ReliabilityLayer).
func raknet(v *view) verdict {
	if v.hasAt(1, rakNetMagic) || v.hasAt(9, rakNetMagic) || v.containsIn(64, rakNetMagic) {
		return yes
	}
	acknowledges := func(b byte) bool { return b == 0xc0 || b == 0xa0 }
	switch {
	case v.p[0] == 0xc0 || v.p[0] == 0xa0: // ranges of numbers
		return perhaps(v.rakNetRanges() && v.other.size > 8 && v.other.head[0]&0xf0 == 0x80)
	case v.p[0]&0xf0 == 0x80:
		return perhaps(v.rakNetFrames() && v.replies > 0 && acknowledges(v.other.head[0]) && v.other.size <= 20)
	}
	return no
}

// rakNetRanges reports whether a count and as many numbers of packets, or ranges of them, fill the payload.
func (v *view) rakNetRanges() bool {
	at, n := 3, v.u16(1)
	for ; n > 0 && at < len(v.p); n-- {
		if v.u8(at) > 1 {
			return false
		}
		at += 7 - 3*v.u8(at) // a range has two numbers
	}
	return n == 0 && at == len(v.p) && at > 3
}

// rakNetFrames reports whether messages fill the payload behind the number of the packet: a reliability, a length in bits, and
// the numbers that the reliability asks for.
func (v *view) rakNetFrames() bool {
	at, n := 4, 0
	for ; at+3 <= len(v.p); n++ {
		reliability, bits := v.u8(at)>>5, v.u16(at+1)
		if v.u8(at)&0x0f != 0 || bits == 0 || bits&7 != 0 {
			return false
		}
		at += 3 + bits/8 + []int{0, 4, 3, 7, 7, 0, 3, 7}[reliability]
		if reliability == 1 {
			at += 3 // an index of what is sequenced, and an order with its channel
		}
		if v.u8(at-bits/8) == 0 && n > 64 {
			return false
		}
	}
	return n > 0 && at == len(v.p)
}
