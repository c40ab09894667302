package appid

import "bytes"

// Tunnels and what carries other packets.

func wireGuard(v *view) verdict {
	switch v.le32(0) {
	case 1: // a key, encrypted
		return is(len(v.p) == 148 && v.dense(8, 32))
	case 2:
		return is(len(v.p) == 92 && v.dense(12, 32))
	case 3:
		return is(len(v.p) == 64)
	case 4:
		return perhaps(len(v.p) >= 32 && len(v.p)%16 == 0 && v.nth > 0 && v.mine.head[0] == 4 &&
			string(v.mine.head[4:8]) == string(v.p[4:8]) && v.p[8] != v.mine.head[8] && v.u32(12) == 0)
	}
	return no
}

// openVPN is a packet of the control channel (OpenVPN protocol, Wire Protocol; RFC draft openvpn-wire-protocol, 3): an opcode and
// a key, a session, and the session of the peer where it acknowledges one.
func openVPN(v *view) verdict { return openVPNAt(v, 0) }

// openVPNTCP has a length before each packet, of which several may come at once.
func openVPNTCP(v *view) verdict {
	if n := v.u16(0); n < 14 || n > len(v.p)-2 {
		return no
	}
	return openVPNAt(v, 2)
}

func openVPNAt(v *view, at int) verdict {
	op, size := v.u8(at)>>3, len(v.p)-at
	switch {
	case op == 9:
		return v.openVPNData(at)
	case v.u8(at)&7 != 0 || size < 14:
		return no
	case op < 1 || op > 11 || op == 3 || op == 6:
		return no
	}
	peer := int(v.other.head[at]) >> 3
	if v.other.size < at+14 || peer < 1 || peer > 10 || v.other.head[at]&7 != 0 {
		return maybe
	}
	// What acknowledges repeats the session of the peer.
	session := v.other.head[at+1 : at+9]
	for i := at + 9; i+8 <= min(len(v.p), at+100); i++ {
		if string(v.p[i:i+8]) == string(session) && v.u64(i) != 0 {
			return yes
		}
	}
	return perhaps(v.port(1194) && op == 8 && (peer == 7 || peer == 10)) // the answer is encrypted
}

// openVPNData is data with the number of the peer (P_DATA_V2): two in a row with the same one, and numbers of packets that
// rise.
func (v *view) openVPNData(at int) verdict {
	if v.nth == 0 || len(v.p) < at+24 || v.mine.size < at+24 {
		return maybe
	}
	m := v.mine.head[at : at+8]
	before := uint32(m[4])<<24 | uint32(m[5])<<16 | uint32(m[6])<<8 | uint32(m[7])
	return perhaps(v.port(1194) && m[0] == v.p[at] && string(m[1:4]) == string(v.p[at+1:at+4]) && v.u32(at+4)-before-1 < 64)
}

// ike is the first exchange of ISAKMP or IKEv2 (RFC 7296, 3.1), with a zero marker at port 4500.
func ike(v *view) verdict {
	at := 0
	if v.u32(0) == 0 && v.port(4500) {
		at = 4
	}
	version := v.u8(at + 17)
	known := len(v.p) >= at+28 && int(v.u32(at+24)) == len(v.p)-at && (version == 0x10 || version == 0x20) &&
		v.u64(at) != 0 &&
		(version == 0x20 && v.u8(at+18) >= 34 && v.u8(at+18) <= 43 || version == 0x10 && v.u8(at+18) <= 34 &&
			v.u8(at+18) > 0)
	if !known && at == 0 && v.port(4500) {
		return v.espInUDP()
	}
	return is(known)
}

// espInUDP is ESP at the port of NAT traversal (RFC 3948, 2.1): one SPI, and sequence numbers that rise (RFC 4303, 2.2).
func (v *view) espInUDP() verdict {
	m := &v.mine.head
	before := uint32(m[4])<<24 | uint32(m[5])<<16 | uint32(m[6])<<8 | uint32(m[7])
	rises := v.mine.size >= 28 && string(m[:4]) == string(v.p[:min(4, len(v.p))]) && v.u32(4)-before-1 < 64
	return perhaps(v.nth > 0 && v.u32(0) >= 256 && len(v.p) >= 28 && rises && v.dense(8, 16))
}

// gtp is of version 1 or 2 or of the charging protocol (TS 29.060, 29.274, 32.295), with a length that fits.
func gtp(v *view) verdict {
	size, version := v.u16(2), v.p[0]>>5
	switch {
	case v.port(2123) && version == 2:
		return is(v.u8(1) != 0 && (size == len(v.p)-4 || v.p[0]&0x10 != 0 && size < len(v.p)-4))
	case v.port(2123, 2152) && version == 1 && v.p[0]&0x10 != 0:
		return is(size == len(v.p)-8 && v.p[0]&0x08 == 0 && v.u8(1) != 0)
	case v.port(3386) && version <= 2:
		return is(v.p[0]&0x1e == 0x0e && v.u8(1) != 0 && (size == len(v.p)-6 || size == len(v.p)-20 || version == 1 && size <= len(v.p)))
	}
	return no
}

func vxlan(v *view) verdict {
	return is(v.port(4789, 8472) && v.p[0] == 8 && v.u24(1) == 0 && len(v.p) >= 8+14+20 && v.u8(7) == 0 &&
		(v.u16(20) == 0x0800 || v.u16(20) == 0x86dd || v.u16(20) == 0x0806 || v.u16(20) == 0x8100))
}

func geneve(v *view) verdict {
	return is(v.port(6081) && v.p[0]>>6 == 0 && (v.u16(2) == 0x6558 || v.u16(2) == 0x0800 || v.u16(2) == 0x86dd) &&
		v.u8(7) == 0 && len(v.p) >= 8+20)
}

// l2tp is a control message, or data of one session in a row (RFC 2661, 3.1).
func l2tp(v *view) verdict {
	bits := v.u16(0)
	switch {
	case !v.port(1701) || bits&0x000f != 2 || bits&0x34f0 != 0: // the version, and bits that are reserved
		return no
	case bits&0x8000 != 0:
		return is(bits&0xc80f == 0xc802 && v.u16(2) == len(v.p))
	}
	at := 2 // of the tunnel and the session
	if bits&0x4000 != 0 {
		at = 4
		if v.u16(2) != len(v.p) {
			return no
		}
	}
	return perhaps(v.nth > 0 && len(v.p) >= at+12 && string(v.mine.head[:2]) == string(v.p[:2]) && v.u32(at) != 0 &&
		string(v.mine.head[at:at+4]) == string(v.p[at:at+4]) && (v.hasAt(at+4, "\xff\x03") || at == 4))
}

func pptp(v *view) verdict {
	return is(v.u32(4) == 0x1a2b3c4d && v.u16(0) == len(v.p) && v.u16(2) == 1)
}

// lisp is a control message, or data with a header.
func lisp(v *view) verdict {
	switch {
	case v.port(4342):
		return is(len(v.p) >= 12 && v.lispControl())
	case v.port(4341):
		return is(v.innerIP(8))
	}
	return no
}

// lispControl reports whether a message has the fixed bits and the counts of its type (RFC 9301, 5).
func (v *view) lispControl() bool {
	switch v.p[0] >> 4 {
	case 1: // Map-Request: records that are asked for
		return v.u8(1)&0x1f == 0 && v.u8(3) >= 1 && v.u8(3) <= 64 && len(v.p) >= 24
	case 2: // Map-Reply
		return v.u24(0)&0x01ffff == 0 && v.u8(3) <= 64
	case 3: // Map-Register
		return v.u24(0)&0x00ff80 == 0 && v.u8(3) >= 1 && v.u8(3) <= 64 && len(v.p) >= 16
	case 4: // Map-Notify
		return v.u24(0)&0x00ffff == 0 && v.u8(3) >= 1 && v.u8(3) <= 64
	case 7: // Info
		return v.u32(0)&0x07ffffff == 0
	case 8: // Encapsulated Control Message: an IP datagram
		return v.u32(0)&0x03ffffff == 0 && v.innerIP(4)
	}
	return false
}

// innerIP reports whether what begins at an offset is an IP datagram that ends with the payload.
func (v *view) innerIP(at int) bool {
	switch v.u8(at) >> 4 {
	case 4:
		return v.u8(at)&0xf >= 5 && v.u16(at+2) == len(v.p)-at
	case 6:
		return v.u16(at+4) == len(v.p)-at-40
	}
	return false
}

// lispTCP is the reliable transport of a map server: messages with a type, a length and the end 0x9facade9.
func lispTCP(v *view) verdict {
	n := v.u16(2)
	return perhaps(v.port(4342) && v.u16(0) >= 16 && v.u16(0) < 64 && n >= 12 && n <= len(v.p) && v.u32(n-4) == 0x9facade9)
}

func roce(v *view) verdict {
	// The transport header of InfiniBand (RoCEv2): a known opcode, version 0, a partition, reserved bits, a destination
	// queue. All is padded to words, and a checksum follows.
	op := v.u8(0)
	return is(v.port(4791) && len(v.p) >= 16 && len(v.p)%4 == 0 && v.u8(1)&0x0f == 0 && v.u8(4)&0x3f == 0 &&
		v.u8(8)&0x7f == 0 && v.u24(5) != 0 && (op <= 0x17 || op >= 0x20 && op <= 0x37 ||
		op >= 0x64 && op <= 0x65 || op == 0x81) && v.u16(2)&0x7fff > 0)
}

func capwap(v *view) verdict {
	return is(v.port(5246, 5247) && (v.p[0] == 0 && len(v.p) >= 16 && v.capwapHeader(v.u24(1)) ||
		v.p[0] == 1 && v.u8(4) >= 20 && v.u8(4) <= 23 && v.u8(5) == 0xfe))
}

// capwapHeader checks a header in the clear (RFC 5415, 4.3): its length in words, radio, binding and reserved bits. At the
// control port a message with its length follows (4.5.1).
func (v *view) capwapHeader(bits int) bool {
	words, binding := bits>>19, bits>>9&0x1f
	at := 4 * words
	if words < 2 || words > 16 || at > len(v.p) || bits&7 != 0 || binding > 3 {
		return false
	}
	if v.port(5246) && bits&0x80 == 0 { // not a fragment
		return v.u24(at+1) >= 1 && v.u24(at+1) <= 26 && v.u8(at) == 0 && v.u16(at+5) <= len(v.p)-at-4
	}
	return binding != 0 || bits&8 != 0
}

func tinc(v *view) verdict {
	line, whole := v.line()
	if v.nth > 0 || !whole || len(line) < 5 || !v.has("0 ") {
		return no
	}
	return perhaps(v.other.is("0 ") && (bytes.HasSuffix(line, []byte(" 17")) || bytes.HasSuffix(line, []byte(" 17.7"))))
}

// softEther is NAT traversal of SoftEther VPN: named values, or the answer with the client's address.
func softEther(v *view) verdict {
	switch {
	case v.reply && v.has("IP=") && v.contains(",PORT="):
		return yes
	case v.u32(0) < 64 && (v.hasAt(8, "opcode") || v.hasAt(8, "isret") || v.hasAt(8, "host_name")):
		return yes
	}
	return maybe
}

func natPMP(v *view) verdict {
	switch {
	case !v.port(5351):
		return no
	case v.u8(0) == 0: // RFC 6886, 3.2 and 3.3
		op, size := v.u8(1), len(v.p)
		return is(size == 2 && op == 0 || size == 12 && (op == 1 || op == 2) && v.u16(2) == 0 && v.u16(4) != 0 ||
			size == 12 && op == 128 && v.u16(2) <= 5 || size == 16 && (op == 129 || op == 130) && v.u16(2) <= 5)
	}
	// PCP (RFC 6887, 7.1 and 7.2): a request has the client's address, an answer a reserved byte and a result.
	return is(v.u8(0) == 2 && len(v.p) >= 24 && len(v.p)%4 == 0 && v.u8(1)&0x7f <= 3 && v.u8(2) == 0 &&
		(v.u8(1)&0x80 != 0 && v.u8(3) <= 13 || v.u8(3) == 0 && v.u64(8)|v.u64(16) != 0))
}
