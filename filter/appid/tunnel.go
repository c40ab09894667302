package appid

import "bytes"

// Tunnels and what carries other packets.

func wireGuard(v *view) verdict {
	switch v.le32(0) {
	case 1:
		return is(len(v.p) == 148)
	case 2:
		return is(len(v.p) == 92)
	case 3:
		return is(len(v.p) == 64)
	case 4:
		return perhaps(len(v.p) >= 32 && len(v.p)%16 == 0 && v.nth > 0 && v.mine.head[0] == 4 &&
			string(v.mine.head[4:8]) == string(v.p[4:8]) && v.p[8] != v.mine.head[8] && v.u32(12) == 0)
	}
	return no
}

// openVPN is a reset of a client or a server: opcode and key 0, session, and the packet number after the HMAC if there is one.
func openVPN(v *view) verdict { return openVPNAt(v, 0) }

func openVPNTCP(v *view) verdict {
	if v.u16(0) != len(v.p)-2 {
		return no
	}
	return openVPNAt(v, 2)
}

func openVPNAt(v *view, at int) verdict {
	op, size := v.u8(at)>>3, len(v.p)-at
	if v.u8(at)&7 != 0 || size < 14 {
		return no
	}
	switch {
	case !v.reply && v.nth == 0 && (op == 1 || op == 7 || op == 10):
		return maybe
	case v.reply && (op == 2 || op == 8) && v.other.size >= 14:
		// The answer repeats the session of the client.
		session := v.other.head[at+1 : at+9]
		for i := at + 9; i+8 <= min(len(v.p), at+90); i++ {
			if string(v.p[i:i+8]) == string(session) {
				return yes
			}
		}
		return perhaps(v.port(1194) && (v.other.head[at]>>3 == 7 || v.other.head[at]>>3 == 10)) // the answer is encrypted
	case !v.reply && (op == 4 || op == 5 || op == 7):
		return maybe
	}
	return no
}

// ike is the first exchange of ISAKMP or IKEv2 (RFC 7296, 3.1), with a zero marker at port 4500.
func ike(v *view) verdict {
	at := 0
	if v.u32(0) == 0 && v.port(4500) {
		at = 4
	}
	version := v.u8(at + 17)
	return is(len(v.p) >= at+28 && int(v.u32(at+24)) == len(v.p)-at && (version == 0x10 || version == 0x20) &&
		v.u64(at) != 0 &&
		(version == 0x20 && v.u8(at+18) >= 34 && v.u8(at+18) <= 43 || version == 0x10 && v.u8(at+18) <= 34 &&
			v.u8(at+18) > 0))
}

// gtp is of version 1 or 2 or of the charging protocol (TS 29.060, 29.274, 32.295), with a length that fits.
func gtp(v *view) verdict {
	size, version := v.u16(2), v.p[0]>>5
	switch {
	case v.port(2123) && version == 2:
		return is(size == len(v.p)-4 || v.p[0]&0x10 != 0 && size < len(v.p)-4)
	case v.port(2123, 2152) && version == 1 && v.p[0]&0x10 != 0:
		return is(size == len(v.p)-8)
	case v.port(3386) && version <= 2:
		return is(size == len(v.p)-6 || size == len(v.p)-20 || version == 1 && v.u16(2) <= len(v.p))
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

func l2tp(v *view) verdict {
	return is(v.port(1701) && v.u16(0)&0xc80f == 0xc802 && v.u16(2) == len(v.p))
}

func pptp(v *view) verdict {
	return is(v.u32(4) == 0x1a2b3c4d && v.u16(0) == len(v.p) && v.u16(2) == 1)
}

// lisp is a control message, or data with a header.
func lisp(v *view) verdict {
	switch {
	case v.port(4342):
		kind := v.p[0] >> 4
		return is(kind >= 1 && kind <= 8 && len(v.p) >= 12)
	case v.port(4341):
		return is(len(v.p) >= 28 && (v.u8(8)>>4 == 4 || v.u8(8)>>4 == 6))
	}
	return no
}

// lispTCP is the reliable transport of a map server: messages with a type, a length and the end 0x9facade9.
func lispTCP(v *view) verdict {
	n := v.u16(2)
	return perhaps(v.port(4342) && v.u16(0) >= 16 && v.u16(0) < 64 && n >= 12 && n <= len(v.p) && v.u32(n-4) == 0x9facade9)
}

func roce(v *view) verdict {
	// The transport header of InfiniBand (RoCEv2): a known opcode, version 0, partition with members.
	op := v.u8(0)
	return is(v.port(4791) && len(v.p) >= 16 && v.u8(1)&0x0f == 0 && (op <= 0x17 || op >= 0x20 && op <= 0x37 ||
		op >= 0x64 && op <= 0x65 || op == 0x81) && v.u16(2)&0x7fff > 0)
}

func capwap(v *view) verdict {
	return is(v.port(5246, 5247) && (v.p[0] == 0 && len(v.p) >= 16 && v.u8(1)>>3 >= 2 && v.u8(1)>>3 <= 16 ||
		v.p[0] == 1 && v.u8(4) >= 20 && v.u8(4) <= 23 && v.u8(5) == 0xfe))
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
		return is(len(v.p) == 2 && v.u8(1) == 0 || len(v.p) == 12 || len(v.p) == 16)
	}
	return is(v.u8(0) == 2 && len(v.p) >= 24 && len(v.p)%4 == 0) // PCP, RFC 6887, 7
}
