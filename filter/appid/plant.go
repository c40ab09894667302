package appid

// Machines, vehicles and devices in the house.

// ads is a packet of AMS over TCP (Beckhoff, AMS/TCP Packet): its length, two addresses, a command of ADS, its flags and the
// length of the data.
func ads(v *view) verdict {
	return is(v.u16(0) == 0 && len(v.p) >= 38 && int(v.le32(2)) == len(v.p)-6 && v.le16(22) >= 1 && v.le16(22) <= 9 &&
		v.le16(24)&^1 == 4 && int(v.le32(26)) == len(v.p)-38)
}

// mms is ISO 9506 over ISO transport: session and presentation with the object identifier of its syntax, or data behind them
// (RFC 1006; ISO 8327, 8.3; ISO 9506-2, 24).
func mms(v *view) verdict {
	if !v.tpkt() || !v.port(102) {
		return no
	}
	const syntax = "\x28\xca\x22\x02\x01" // 1.0.9506.2.1
	return perhaps(v.u8(5) == 0xf0 && (v.hasAt(7, "\x01\x00\x01\x00\x61") || (v.u8(7) == 0x0d || v.u8(7) == 0x0e) &&
		v.contains(syntax)))
}

// umas is function 90 of Modbus, with which Schneider's controllers are programmed (Modbus Application Protocol 1.1b3, 4.1).
func umas(v *view) verdict {
	return is(v.port(502) && v.u16(2) == 0 && v.u16(4) == len(v.p)-6 && len(v.p) >= 10 && v.u8(7) == 0x5a)
}

// slmp is a request or an answer in the frame 3E or 4E (Mitsubishi, SLMP Reference, 4 and 5): a route, and a length.
func slmp(v *view) verdict {
	at := 2
	switch v.u16(0) {
	case 0x5000, 0xd000:
	case 0x5400, 0xd400:
		if at = 6; v.u16(4) != 0 {
			return no
		}
	default:
		return no
	}
	return is(v.le16(at+2) == 0x3ff && v.u8(at+4) == 0 && v.le16(at+5) == len(v.p)-at-7 && v.le16(at+5) >= 2)
}

// doIP is a message of diagnostics (ISO 13400-2, 7.1.2): a version and its inverse, a type, the length of what follows.
func doIP(v *view) verdict {
	kind := v.u16(2)
	return is(v.u8(0)^v.u8(1) == 0xff && (v.u8(0) <= 4 && v.u8(0) >= 1 || v.u8(0) == 0xff) && int(v.u32(4)) == len(v.p)-8 &&
		len(v.p) >= 8 && (kind <= 8 || kind >= 0x4001 && kind <= 0x4004 || kind >= 0x8001 && kind <= 0x8003))
}

// trdp is a telegram of trains (IEC 61375-2-3, annex A): version 1, a type of two letters, the size of the data.
func trdp(v *view) verdict {
	process := v.u8(6) == 'P' && (v.u8(7) == 'd' || v.u8(7) == 'p' || v.u8(7) == 'r' || v.u8(7) == 'e')
	message := v.u8(6) == 'M' && (v.u8(7) == 'n' || v.u8(7) == 'r' || v.u8(7) == 'p' || v.u8(7) == 'q' || v.u8(7) == 'c' ||
		v.u8(7) == 'e')
	return is(v.u8(4) == 1 && (process || message) && len(v.p) >= 40 && int(v.u32(20)) <= len(v.p)-40)
}

// etherSBus is a telegram of Saia: its length, version 1, protocol 0, a number and one of three kinds, and a checksum behind.
func etherSBus(v *view) verdict {
	return is(int(v.u32(0)) == len(v.p) && len(v.p) >= 11 && len(v.p) < 1500 && v.u8(4) == 1 && v.u8(5) == 0 && v.u8(8) <= 2 &&
		v.port(5050))
}

// mavlink is a frame of version 1 or 2 with its length (MAVLink, Packet Serialization), from a system that sent the frame
// before it, or at a usual port.
func mavlink(v *view) verdict {
	extra, ids := 8, 3
	if v.p[0] == 0xfd { // flags, and a signature of 13 bytes by one of them
		extra, ids = 12+13*(v.u8(2)&1), 5
		if v.u8(2) > 1 {
			return no
		}
	}
	size := v.u8(1) + extra
	if size > len(v.p) || size < len(v.p) && v.u8(size) != v.u8(0) || v.u8(1) == 0 {
		return no
	}
	again := v.nth > 0 && v.mine.head[0] == v.p[0] && int(v.mine.head[ids]) == v.u8(ids) && int(v.mine.head[ids+1]) == v.u8(ids+1)
	return perhaps(again && uint8(v.u8(ids-1)-int(v.mine.head[ids-1])) < 32 || size == len(v.p) && v.port(14550, 14540) && v.u8(ids) > 0)
}

// loRaWAN is a message between a gateway and its server (Semtech, GWMP 2): a version, a token, an identifier, and the gateway's
// number with JSON behind it, or an acknowledgement of one.
func loRaWAN(v *view) verdict {
	switch kind := v.u8(3); {
	case v.u8(0) < 1 || v.u8(0) > 2:
		return no
	case kind == 0 || kind == 5:
		return is(v.hasAt(12, `{"`) && (v.port(1700) || v.contains(`"rxpk"`) || v.contains(`"stat"`)))
	case kind == 3:
		return is(v.hasAt(4, `{"txpk"`))
	case kind == 1 || kind == 4:
		return perhaps(len(v.p) == 4 && v.other.size >= 12 && v.other.head[0] == v.p[0] && v.other.u16(1) == v.u16(1) && v.port(1700))
	case kind == 2:
		return perhapsOnly(len(v.p) == 12)
	}
	return no
}

// tuya is a message of a device of Tuya: a mark, a number, a command, the length of what follows, and a mark behind it.
func tuya(v *view) verdict {
	return is(v.u32(0) == 0x55aa && len(v.p) >= 24 && int(v.u32(12)) == len(v.p)-16 && v.u32(len(v.p)-4) == 0xaa55)
}

// bjnp is a message of a printer of Canon (SANE's BJNP protocol): a magic of the side, a device, a command, and the length of
// what follows.
func bjnp(v *view) verdict {
	return is(v.hasAny("BJNP", "BJNB", "MFNP") && v.u8(4)&0x7f >= 1 && v.u8(4)&0x7f <= 3 && int(v.u32(12)) == len(v.p)-16)
}

// rdpUDP is a SYN of RDP's transport over UDP, or the answer (MS-RDPEUDP, 3.1.5.1.1 and 3.1.5.1.3): both are filled up to
// 1132 to 1232 bytes, and name the sizes of datagrams in both directions.
func rdpUDP(v *view) verdict {
	flags := v.u16(6)
	syn := flags&1 != 0 && flags&4 == 0 && v.u32(0) == 1<<32-1
	answer := flags&5 == 5 && v.port(3389)
	return is((syn || answer) && len(v.p) >= 1132 && len(v.p) <= 1232 && v.u16(12) >= 1132 && v.u16(12) <= 1232 &&
		v.u16(14) >= 1132 && v.u16(14) <= 1232 && v.u16(4) > 0)
}
