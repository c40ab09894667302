package appid

import "math/bits"

// Control of machines and buildings, vehicles and energy.

// modbus is a request or a response over TCP: protocol 0, a length, a function.
func modbus(v *view) verdict {
	function := v.u8(7) & 0x7f
	return is(v.port(502) && v.u16(2) == 0 && v.u16(4) == len(v.p)-6 && len(v.p) >= 8 && function > 0 && function <= 43)
}

// dnp3 is a link frame with the checksum of its header (IEEE 1815, 9.2).
func dnp3(v *view) verdict {
	return is(v.u16(0) == 0x0564 && v.u8(2) >= 5 && len(v.p) >= 10 && int(crcDNP(v.p[:8])) == v.le16(8))
}

func crcDNP(p []byte) uint16 {
	var crc uint16
	for _, b := range p {
		crc ^= uint16(b)
		for range 8 {
			if crc&1 != 0 {
				crc = crc>>1 ^ 0xa6bc
			} else {
				crc >>= 1
			}
		}
	}
	return ^crc
}

// s7 recognises ISO transport (COTP) on a TPKT at port 102; S7 and its successor say so in their first byte.
func s7(v *view) verdict {
	if !v.tpkt() {
		return no
	}
	at := 5 + v.u8(4)
	return perhaps(v.u8(5) == 0xf0 && v.u8(at) == 0x32 && v.port(102))
}

func s7Plus(v *view) verdict {
	if !v.tpkt() {
		return no
	}
	at := 5 + v.u8(4)
	return perhaps(v.u8(5) == 0xf0 && v.u8(at) == 0x72 || v.u8(5)&0xf0 == 0xe0 && v.contains("SIMATIC-ROOT-"))
}

func iec104(v *view) verdict {
	return is(v.port(2404) && v.u8(0) == 0x68 && v.u8(1) >= 4 && v.u8(1) <= 253 && v.u8(1) <= len(v.p)-2 && v.iec104Control())
}

// iec104Control reports whether the control field has one of the three formats (IEC 60870-5-104, 5): I with a type and a cause,
// S with the number of what was received, U with one function.
func (v *view) iec104Control() bool {
	control, size := v.u8(2), v.u8(1)
	switch {
	case v.u8(4)&1 != 0:
		return false
	case control&1 == 0: // a type of 1 to 127, and a cause of 1 to 47 behind the bits for test and negative
		return size >= 10 && v.u8(6) >= 1 && v.u8(6) <= 127 && v.u8(8)&0x3f >= 1 && v.u8(8)&0x3f <= 47
	case control == 1:
		return size == 4 && v.u8(3) == 0
	}
	return size == 4 && control&3 == 3 && bits.OnesCount8(uint8(control)) == 3 && v.u8(3) == 0 && v.u16(4) == 0
}

// etherNetIP is a command of the encapsulation, with its length.
func etherNetIP(v *view) verdict {
	switch v.le16(0) {
	case 0x04, 0x63, 0x64, 0x65, 0x66, 0x6f, 0x70, 0x72, 0x73:
		return is(len(v.p) >= 24 && v.le32(8) < 0x200 && v.le32(20) == 0 && (v.le16(2) == len(v.p)-24 ||
			v.port(44818, 2222)))
	}
	return no
}

func bacnet(v *view) verdict {
	return is(v.p[0] == 0x81 && v.u8(1) <= 12 && v.u16(2) == len(v.p) && len(v.p) >= 4)
}

func hartIP(v *view) verdict {
	return is(v.u8(0) == 1 && v.u8(1) <= 3 && v.u8(2) <= 4 && v.u16(6) == len(v.p) && len(v.p) >= 8 && v.port(5094, 20004))
}

func knx(v *view) verdict {
	return is(v.u16(0) == 0x0610 && v.u16(4) >= 6 && v.u16(4) <= len(v.p) && v.u8(2) >= 2 && v.u8(2) <= 9)
}

func finsTCP(v *view) verdict { return is(v.has("FINS") && int(v.u32(4)) <= 4096) }

func finsUDP(v *view) verdict {
	return is(v.port(9600) && len(v.p) >= 12 && v.p[0]&0x3e == 0 && v.p[0]&0x80 != 0 && v.u8(1) == 0 && v.u8(2) <= 7)
}

// synchrophasor is a frame of IEEE C37.118.2 with its size.
func synchrophasor(v *view) verdict {
	return is(v.p[0] == 0xaa && v.u8(1)&0x80 == 0 && v.u8(1)>>4 <= 5 && v.u8(1)&0xf >= 1 && v.u8(1)&0xf <= 3 &&
		v.u16(2) == len(v.p) && len(v.p) >= 16)
}

// c1222 is a message of ACSE with the object identifiers of meters.
func c1222(v *view) verdict {
	size, h := v.ber(0)
	return is(v.p[0] == 0x60 && size+h == len(v.p) && (v.u8(h) >= 0xa1 && v.u8(h) <= 0xa8) && (v.port(1153) ||
		v.contains("\x2b\x06\x01\x04\x01\x82\x85\x63")))
}

func egd(v *view) verdict {
	return is(v.port(18246, 7937) && v.u16(0) == 0x0d01 && len(v.p) >= 32)
}

func etherSIO(v *view) verdict { return is(v.has("ESIO") && len(v.p) >= 20) }

func cnpIP(v *view) verdict {
	return is(v.u16(0) == len(v.p) && v.u8(2) == 1 && v.u8(3) >= 1 && v.u8(3) <= 0x7f && len(v.p) >= 20 &&
		v.u8(5) <= 1 && v.port(1628, 1629))
}

func can(v *view) verdict { return is(v.has("ISO11898")) }

func hislip(v *view) verdict {
	return is(v.has("HS") && v.u8(2) <= 26 && len(v.p) >= 16 && (v.u64(8) < 1<<32))
}

func someIP(v *view) verdict {
	kind := v.u8(14)
	return is(len(v.p) >= 16 && int(v.u32(4)) == len(v.p)-8 && v.u8(12) == 1 && (kind <= 2 || kind == 0x80 ||
		kind == 0x81 || kind >= 0x20 && kind <= 0x22) && v.u8(15) <= 0x5e && v.u32(0) != 0)
}

func rtps(v *view) verdict {
	return is((v.has("RTPS") || v.has("RTPX")) && v.u8(4) <= 3 && len(v.p) >= 16)
}

func raft(v *view) verdict {
	// Little-endian words of 64 bits: the version, the sender's number, and the length of its address.
	return is(v.nth == 0 && v.le32(0) == 1 && v.u32(4) == 0 && v.le32(8) < 1<<16 && v.u32(12) == 0 &&
		int(v.le32(16)) <= len(v.p)-24 && v.u32(20) == 0 && v.containsFrom(24, ":") && v.digits(24) > 0)
}
