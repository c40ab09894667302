package appid

// Messages between programs, records of patients and libraries, and currencies.

// webSocket is a frame that fills a payload (RFC 6455, 5.2), of a connection whose upgrade was not seen. A client's frames are
// masked and a server's are not. One frame of text is enough; others must follow a frame.
func webSocket(v *view) verdict {
	opcode, masked := v.u8(0)&0xf, v.u8(1)&0x80 != 0
	if v.u8(0)&0x70 != 0 || opcode > 2 && opcode < 8 || opcode > 10 || opcode >= 8 && (v.u8(0)&0x80 == 0 || v.u8(1)&0x7f > 125) {
		return no
	}
	at, size := 2, v.u8(1)&0x7f
	switch size {
	case 126:
		at, size = 4, v.u16(2)
		if size < 126 {
			return no
		}
	case 127:
		return no // more than one packet holds
	}
	if masked {
		at += 4
	}
	if at+size != len(v.p) {
		return no
	}
	if opcode == 1 && size >= 4 && v.frameText(at, masked) {
		return perhaps(size >= 16 || v.follows(masked))
	}
	return perhaps(size > 0 && opcode != 1 && v.follows(masked))
}

// follows reports whether the direction's last payload was a frame too, masked as this one is, and the other direction's the
// opposite.
func (v *view) follows(masked bool) bool {
	frame := func(p *payload, masked bool) bool {
		return p.size > 2 && p.head[0]&0xf0 == 0x80 && p.head[1]&0x80 != 0 == masked && (p.head[1]&0x7f == 126 &&
			(p.u16(2)+4 == p.size || p.u16(2)+8 == p.size) || int(p.head[1]&0x7f)+2 == p.size || int(p.head[1]&0x7f)+6 == p.size)
	}
	return frame(v.mine, masked) && frame(v.other, !masked)
}

// frameText reports whether the content of a frame is printable, behind its mask.
func (v *view) frameText(at int, masked bool) bool {
	for i, c := range v.p[at:] {
		if masked {
			c ^= v.p[at-4+i&3]
		}
		if c < ' ' && c != '\t' && c != '\n' && c != '\r' || c >= 0x7f {
			return false
		}
	}
	return true
}

// thrift is a call or its answer, in the strict binary protocol or the compact one, with a frame before it or without (Thrift's
// RPC specification).
func thrift(v *view) verdict {
	at := 0
	if int(v.u32(0)) == len(v.p)-4 {
		at = 4
	}
	switch {
	case v.u24(at) == 0x800100 && v.u8(at+3) >= 1 && v.u8(at+3) <= 4:
		n := int(v.u32(at + 4))
		return is(n > 0 && n < 128 && v.textAt(at+8, n) && len(v.p) > at+12+n)
	case v.u8(at) == 0x82 && v.u8(at+1)&0x1f == 1 && v.u8(at+1)>>5 >= 1 && v.u8(at+1)>>5 <= 4:
		for at += 2; v.u8(at)&0x80 != 0 && at < 11; at++ { // the sequence number, of variable length
		}
		n := v.u8(at + 1)
		return is(n > 2 && n < 128 && v.textAt(at+2, n) && len(v.p) > at+2+n)
	}
	return no
}

// zeroMQ is the signature of a greeting (ZMTP 3.1, RFC 37 of ZeroMQ): 0xff, 8 bytes of padding, 0x7f, and a version.
func zeroMQ(v *view) verdict {
	return is(v.nth == 0 && v.u8(0) == 0xff && v.u32(1) == 0 && v.u24(5) == 0 && v.u8(8) <= 1 && v.u8(9) == 0x7f &&
		(len(v.p) == 10 || v.u8(10) <= 3))
}

// openWire is the WireFormatInfo that begins a connection (ActiveMQ, OpenWire).
func openWire(v *view) verdict {
	return is(v.nth == 0 && v.u8(4) == 1 && v.hasAt(5, "ActiveMQ") && int(v.u32(0)) == len(v.p)-4)
}

// giop is a message of CORBA (CORBA 3.3, 9.4.1): version 1.0 to 1.3, flags, a type.
func giop(v *view) verdict {
	return is(v.has("GIOP\x01") && v.u8(5) <= 3 && v.u8(6) < 16 && v.u8(7) <= 7 && len(v.p) >= 12)
}

// rmi begins with a magic, a version and one of three protocols (Java RMI Specification, 10.2).
func rmi(v *view) verdict {
	return is(v.has("JRMI") && v.u16(4) >= 1 && v.u16(4) <= 2 && v.u8(6) >= 0x4b && v.u8(6) <= 0x4d)
}

// dicom is an A-ASSOCIATE request or acceptance (DICOM PS3.8, 9.3.2 and 9.3.3): version 1, and two titles of 16 characters.
func dicom(v *view) verdict {
	return is(v.nth == 0 && (v.u8(0) == 1 || v.u8(0) == 2) && v.u8(1) == 0 && len(v.p) >= 74 &&
		int(v.u32(2)) >= len(v.p)-6 && v.u32(2) < 1<<20 && v.u16(6)&1 == 1 && v.u16(8) == 0 && v.textAt(10, 32))
}

// hl7 is a message in the frame of the minimal lower layer protocol (HL7 Transport Specification: MLLP, release 1).
func hl7(v *view) verdict { return is(v.has("\x0bMSH|") || v.has("\x0bBHS|") || v.has("\x0bFHS|")) }

// z3950 is an initialisation, or its answer (ISO 23950, 4.1): tag 20 or 21, a version and options as bit strings.
func z3950(v *view) verdict {
	size, h := v.ber(0)
	at := h
	if v.u8(at) == 0x82 { // a reference number
		at += 2 + v.u8(at+1)
	}
	return is(v.nth == 0 && (v.u8(0) == 0xb4 || v.u8(0) == 0xb5) && size+h == len(v.p) && v.u8(at) == 0x83 &&
		v.u8(at+1) >= 2 && v.u8(at+1) <= 4 && v.u8(at+2+v.u8(at+1)) == 0x84)
}

// icecast is a source or a server of streams (SHOUTcast and Icecast 2's protocol).
func icecast(v *view) verdict {
	if v.has("ICY ") {
		return is(v.hasAny("ICY 200 ", "ICY 4", "ICY 5"))
	}
	return is(v.has("SOURCE ") && (v.containsFold("\nICE-") || v.containsIn(200, " ICE/1.0")))
}

// ethereum is the first message of RLPx: its size and an ephemeral public key of secp256k1 (EIP-8; RLPx, Initial Handshake),
// or one of 307 bytes without a size.
func ethereum(v *view) verdict {
	sized := v.u16(0) == len(v.p)-2 && len(v.p) >= 200 && len(v.p) <= 1000 && v.u8(2) == 4 && v.dense(3, 64)
	old := len(v.p) == 307 && !v.reply && v.u8(0) == 4 && v.port(30303) && v.dense(1, 64)
	return is(v.nth == 0 && (sized || old))
}

// ethereumNodes is a packet of discovery (Node Discovery Protocol v4, Wire Protocol): a hash, a signature with the bit of its
// recovery, a type, and a list in RLP.
func ethereumNodes(v *view) verdict {
	if len(v.p) < 100 || v.u8(96) > 1 || v.u8(97) < 1 || v.u8(97) > 6 || !v.dense(0, 96) {
		return no
	}
	size, at := v.u8(98)-0xc0, 99
	switch v.u8(98) {
	case 0xf8:
		size, at = v.u8(99), 100
	case 0xf9:
		size, at = v.u16(99), 101
	}
	return is(size > 0 && (at+size == len(v.p) || at+size < len(v.p) && v.port(30303)))
}

// eDonkey is a message of a peer or a server (The eMule Protocol Specification, 4): a protocol, a size and an opcode. A login
// or a hello has a hash of 16 bytes; any two messages in a row are enough.
func eDonkey(v *view) verdict {
	if int(v.le32(1)) != len(v.p)-5 || len(v.p) < 6 {
		return no
	}
	hello := v.nth == 0 && v.u8(0) == 0xe3 && v.u8(5) == 1 && len(v.p) > 30 && (v.u8(6) == 16 && v.dense(7, 16) || v.dense(6, 16))
	return perhaps(hello || v.mine.size > 5 && (v.mine.head[0] == 0xe3 || v.mine.head[0] == 0xc5) &&
		int(v.mine.head[1])|int(v.mine.head[2])<<8 == v.mine.size-5)
}

// teamSpeak is the initialisation of a client or a server of version 3.
func teamSpeak(v *view) verdict { return is(v.has("TS3INIT1") && len(v.p) >= 12) }

// quake is a query or an answer without a connection (Quake III Arena's protocol, out-of-band messages).
func quake(v *view) verdict {
	return is(v.u32(0) == 1<<32-1 && (v.hasAt(4, "getinfo") || v.hasAt(4, "getstatus") || v.hasAt(4, "getchallenge") ||
		v.hasAt(4, "infoResponse\n") || v.hasAt(4, "statusResponse\n") || v.hasAt(4, "challengeResponse") ||
		v.hasAt(4, "getservers")))
}
