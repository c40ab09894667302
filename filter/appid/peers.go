package appid

// File sharing, messengers, currencies and games.

func bitTorrent(v *view) verdict {
	return is(v.has("\x13BitTorrent protocol"))
}

// bitTorrentUDP is the distributed table (BEP 5), a tracker (BEP 15), or uTP (BEP 29).
func bitTorrentUDP(v *view) verdict {
	switch {
	case v.hasAny("d1:ad2:id20:", "d1:rd2:id20:", "d1:eli", "d2:ip", "d1:y1:"):
		return yes
	case v.u64(0) == 0x41727101980 && len(v.p) == 16:
		return yes
	case v.hasAny("BT-SEARCH * HTTP/1.1"):
		return yes
	}
	return uTP(v)
}

// uTP is a SYN, and the answer with its connection number.
func uTP(v *view) verdict {
	if len(v.p) < 20 || v.p[0]&0xf != 1 || v.p[0]>>4 > 4 || v.u8(1) > 2 {
		return no
	}
	if v.p[0]>>4 == 4 {
		return perhaps(v.u32(8) == 0 && len(v.p) <= 40 && v.u16(18) == 0 && v.u16(16) == 1 && v.u32(12) > 0)
	}
	if v.reply && v.other.size >= 20 && v.other.head[0] == 0x41 {
		return is(v.u16(2) == v.other.u16(2))
	}
	return perhaps(v.nth > 0 && v.mine.head[0]&0xf == 1 && v.mine.u16(2) == v.u16(2) && v.contains("BitTorrent protocol"))
}

func gnutella(v *view) verdict {
	return is(v.hasAny("GNUTELLA CONNECT/", "GNUTELLA/0.6", "GND\x01", "GND\x02") ||
		v.hasAny("GET /uri-res/N2R?urn:", "GIV ", "GET /gnutella/"))
}

func gnutellaUDP(v *view) verdict {
	if v.hasAny("GND", "GNUT", "SCP@") {
		return perhaps(len(v.p) >= 8)
	}
	// A descriptor: GUID, payload type, TTL, hops, length.
	kind := v.u8(16)
	return perhaps(v.dense(0, 16) && len(v.p) >= 23 && int(v.le32(19)) == len(v.p)-23 && (kind <= 2 || kind == 0x30 || kind == 0x31 ||
		kind == 0x40 || kind == 0x80 || kind == 0x81) && v.u8(17)+v.u8(18) <= 16)
}

func dropbox(v *view) verdict { return is(v.has(`{"`) && v.contains(`"host_int"`)) }

func spotify(v *view) verdict { return is(v.has("SpotUdp")) }

func spotifyTCP(v *view) verdict {
	return is(v.nth == 0 && !v.reply && v.u32(0) == 0x00040000 && v.u16(4) == len(v.p) && v.hasAt(6, "\x52"))
}

func syncthing(v *view) verdict { return is(v.u32(0) == 0x2ea7d90b) }

func whatsApp(v *view) verdict {
	if v.has("WA") {
		return is(v.u8(2) >= 1 && v.u8(2) <= 6 && v.u8(3) <= 8 && (len(v.p) > 16 || v.began.is("ED\x00\x01")))
	}
	if v.has("ED\x00\x01") {
		return perhaps(v.containsIn(24, "WA"))
	}
	return perhaps(v.began.is("ED\x00\x01") && v.containsIn(24, "WA"))
}

func zoom(v *view) verdict {
	switch {
	case v.u64(0) == 0x1f02010008000100 || v.u64(0) == 0x1f02010004000100: // between two clients
		return yes
	case v.u24(0) == 0x010002 && (v.port(8801) || len(v.p) > 36 && v.port(3478, 3479)):
		return yes
	case v.port(8801, 8802, 8803, 8804, 8805, 8806, 8807, 8808, 8809, 8810):
		return perhaps(v.u8(0) >= 3 && v.u8(0) <= 5 && v.u24(1) == 0 && len(v.p) > 20 && v.dense(len(v.p)/2, len(v.p)/2) || v.u8(0) == 5 &&
			len(v.p) > 40 && (v.u8(7) == 0 || v.u8(7) == 4) && v.u8(8) <= 0x20) // to or from a server, and a kind of media
	}
	return no
}

func discord(v *view) verdict {
	if v.u32(0) == 0x1337cafe && len(v.p) == 8 {
		return yes
	}
	// The client requests its own address with 74 bytes that name its source, and the answer has it.
	return perhaps(len(v.p) == 74 && v.u32(0) == 0x00020046 && v.u8(8) >= '0' && v.u8(8) <= '9' && v.other.size == 74)
}

func oicq(v *view) verdict {
	return is(v.p[0] == 2 && len(v.p) > 12 && v.p[len(v.p)-1] == 3 && v.port(8000, 8001) || v.p[0] == 2 &&
		v.port(8000) && len(v.p) > 20 && v.u16(3) > 0 && v.u16(3) < 0x300)
}

func threema(v *view) verdict {
	return perhaps(v.port(5222, 443) && v.nth == 1 && !v.reply && v.mine.size == 48 && v.other.size == 80 && v.replies == 1)
}

func monero(v *view) verdict {
	return is(v.u64(0) == 0x0121010101010101 && len(v.p) >= 33 && v.u8(16) <= 1 && (v.le32(17) >= 1001 &&
		v.le32(17) <= 1010 || v.le32(17) >= 2001 && v.le32(17) <= 2010))
}

func bitcoin(v *view) verdict {
	return is((v.u32(0) == 0xf9beb4d9 || v.u32(0) == 0x0b110907 || v.u32(0) == 0xfabfb5da) && v.u8(4) >= 'a' &&
		v.u8(4) <= 'z' && len(v.p) >= 24)
}

func avast(v *view) verdict { return is(v.has("NOSA") && len(v.p) >= 12) }

func lineCall(v *view) verdict {
	// A type and a size, the same session number in each packet.
	size := v.u16(2)
	return perhaps(v.p[0] >= 0xd0 && v.p[0] <= 0xdf && size >= 0x40 && size <= len(v.p)*2 && v.u8(4) <= 0x7f &&
		v.nth > 0 && v.mine.head[0]>>4 == 0xd && v.mine.head[0] == v.p[0] && v.replies > 0 && v.other.head[0]>>4 == 0xd)
}

func imo(v *view) verdict {
	return perhaps(v.nth > 0 && len(v.p) == 1 && v.mine.size == 1 && v.other.size == 1 && v.p[0] == v.mine.head[0] &&
		v.p[0]^v.other.head[0] == 0x07^0x76 && (v.p[0] == 0x07 || v.p[0] == 0x76) || len(v.p) == 11 &&
		v.reply && v.u16(0) == 9 && v.u24(8) == 0 && v.u32(4)&0xff000000 == 0x9a000000)
}

func tplink(v *view) verdict {
	return is(v.port(9999) && v.hasAny("\xd0\xf2\x81\xf8\x8b\xff\x9a\xf7", "\xd0\xad\xd0\xad",
		"\xd0\xf2\x81\xec\x8d\xff\x9a\xf7"))
}

func ubiquiti(v *view) verdict {
	return is(v.port(10001) && (v.u32(0) == 0x01000000 && len(v.p) == 4 || (v.p[0] == 1 || v.p[0] == 2) &&
		v.u16(2) == len(v.p)-4))
}

func merakiCloud(v *view) verdict { return is(v.u32(0) == 0xfef72891) }

func sonos(v *view) verdict {
	return is(v.p[0] == 0 && v.u16(1) == 0x1359 && v.u8(3) >= 0x80 && len(v.p) >= 9)
}

func nintendo(v *view) verdict { return is(v.u32(0) == 0x32ab9864 && v.u8(4) <= 4) }

func steamDatagram(v *view) verdict { return is(v.hasAt(2, "sdping")) }

func steam(v *view) verdict {
	if v.u32(0) != 1<<32-1 {
		return no
	}
	return is(v.u32(4) == 0x214c5fa0 || v.hasAt(4, "TSource Engine Query"))
}

func minecraft(v *view) verdict {
	// Handshake: length, packet 0, protocol version, address, port, next state.
	n, at := v.u8(0), 1
	switch {
	case v.reply || n == 0 && v.nth == 0 || v.nth > 1:
		return no
	case len(v.p) == 1 && v.nth == 0: // the length alone
		return maybe
	case v.nth == 1 && v.mine.size == 1:
		n, at = int(v.mine.head[0]), 0
	}
	last := at + n - 1
	return is(n > 6 && n < 0x80 && v.u8(at) == 0 && last < len(v.p) && v.p[last] >= 1 && v.p[last] <= 3 &&
		v.u16(last-2) == int(v.destination) && v.u8(at+1) >= 0x2f)
}

func genshin(v *view) verdict {
	return is(v.u32(0) == 0xff && v.u64(4) == 0 && v.u32(12) == 0x499602d2 && len(v.p) == 20)
}

func genshinTCP(v *view) verdict {
	return perhaps(v.nth == 0 && v.reply && v.u32(0) == 0x01000000 && v.u8(4) == len(v.p) && v.u24(6) == 0 &&
		v.answers.size == int(v.answers.head[4]) && v.answers.u16(0) == 0x100 &&
		string(v.answers.head[10:18]) == string(v.p[10:18]))
}

func wildRift(v *view) verdict {
	return perhaps(v.u32(0) == 0x0102c841 && len(v.p) == 22 || (v.u32(0) == 0x04000000 && v.u8(4) == 0x21 ||
		v.reply && v.u32(0) == 0x10000000 && v.u8(4) == 0x23))
}

func codMobile(v *view) verdict {
	return perhaps(len(v.p) == 12 && v.hasAt(8, "ping") && v.reply && v.other.size == 12)
}

func amongUs(v *view) verdict {
	return is(v.port(22023, 22024, 22025, 22026) && v.p[0] == 8 && v.u8(1) == 0 && v.u8(2) == 1 && len(v.p) >= 10)
}

func activision(v *view) verdict {
	return perhaps(len(v.p) == 29 && v.u16(0) == 0x0c02 && v.reply && v.other.size == 29 && v.other.u16(0) == 0x0d02)
}

func cryNetwork(v *view) verdict {
	return is(len(v.p) == 70 && v.p[0] == 0x3c && v.u64(8) == 0 && v.u32(16) == 1 && v.u16(1) == 0 || len(v.p) == 70 && v.p[0] == 0x3c && v.u16(1) == 0 && v.u64(5) == 0)
}

func gaijin(v *view) verdict { return is(v.contains(",env=production,circuit=")) }

func tencentGames(v *view) verdict {
	return is(v.u32(0) == 0x3366000b && v.u16(4) == 0x000b || v.nth == 0 && int(v.u32(0)) == len(v.p)-4 &&
		v.u16(4) == 0x7801)
}

func netEase(v *view) verdict {
	return perhaps(v.reply && len(v.p) == 30 && v.other.size == 30 && string(v.p[:6]) == string(v.other.head[:6]) ||
		len(v.p) == 12 && v.reply && v.other.size == 12 && v.u8(4) == int(v.other.head[4]) &&
			v.u8(5) == int(v.other.head[5]) && v.u24(5) == 0x2a3d03)
}

func photon(v *view) verdict {
	if len(v.p) == 13 && v.u64(0) == 0x7d7d7d7d7d7d7d7d { // a ping
		return yes
	}
	// An Enet-like header: peer, checksum or flags, commands, time, challenge; then commands of known types.
	kind := v.u8(12)
	return perhaps(len(v.p) >= 24 && v.port(5055, 5056, 5058, 4530, 4531, 4532) && v.u8(3) >= 1 && v.u8(3) < 32 &&
		(kind <= 16 && kind > 0) && v.u32(16) >= 12 && int(v.u32(16)) <= len(v.p)-12)
}

func elderScrolls(v *view) verdict {
	return is(v.nth == 0 && int(v.u32(0)) == len(v.p)-4 && v.u32(4) == 0x00010001 && v.u32(8) == uint32(len(v.p)-12))
}

func pathOfExile(v *view) verdict {
	return perhaps(v.nth == 0 && !v.reply && v.u16(0) == 3 && v.port(6112, 20481) && len(v.p) > 12 && v.u8(9) < 40 &&
		v.u8(9) > 0)
}

func starcraft(v *view) verdict { return is(v.u64(0) == 0x4a00000a66020aed && len(v.p) == 10) }

func kcp(v *view) verdict {
	command, size := v.u8(4), int(v.le32(20))
	return is(len(v.p) >= 24 && command >= 81 && command <= 84 && v.u8(5) < 64 && v.le32(0) != 0 &&
		24+size <= len(v.p) && (24+size == len(v.p) || v.le32(24+size) == v.le32(0)) && (command == 81 || size == 0))
}

func yojimbo(v *view) verdict { return is(v.has("\x00NETCODE 1.0")) }

func halfLife(v *view) verdict {
	return perhaps(v.u32(0) == 1<<32-1 && len(v.p) == 20 && v.hasAt(len(v.p)-5, "0000") && v.reply && v.other.size == 20)
}

func hpVirtual(v *view) verdict {
	// A message with its length, another number in the answer.
	return perhaps(v.nth == 0 && v.reply && v.port(5223) && v.le16(1)|v.u8(1) != 0 && v.u16(1) == len(v.p) &&
		v.other.size > 3 && int(v.other.head[1])<<8|int(v.other.head[2]) == v.other.size)
}
