package appid

import "bytes"

// methods of HTTP (RFC 9110, 9.1) and of WebDAV, with the space that follows.
var methods = []string{
	"GET ", "POST ", "HEAD ", "PUT ", "DELETE ", "OPTIONS ", "PATCH ", "TRACE ", "PROPFIND ", "PROPPATCH ", "MKCOL ",
	"COPY ", "MOVE ",
	"LOCK ", "UNLOCK ", "REPORT ", "SEARCH ", "RPC_CONNECT ", "RPC_IN_DATA ", "RPC_OUT_DATA ",
}

// http recognises HTTP/1 by its first line, in requests and in responses (RFC 9112, 3 and 4).
func http(v *view) verdict {
	if v.has("HTTP/1.") {
		return is(len(v.p) > 8 && v.p[8] == ' ')
	}
	if !v.hasAny(methods...) {
		return maybe
	}
	line, whole := v.line()
	if i := bytes.LastIndex(line, []byte(" HTTP/1.")); i > 0 {
		return yes
	}
	if bytes.Contains(line, []byte(" RTSP/")) || bytes.Contains(line, []byte(" SIP/")) {
		return no
	}
	return perhaps(!whole && v.printable(64) && len(line) > 16)
}

func httpConnect(v *view) verdict {
	if v.has("CONNECT ") {
		line, _ := v.line()
		return is(bytes.Contains(line, []byte(" HTTP/1.")))
	}
	return maybe
}

// http2 is the preface of a client (RFC 9113, 3.4), or SETTINGS on stream 0 as a server's first frame.
func http2(v *view) verdict {
	if v.has("PRI * HTTP/2.0\r\n") {
		return yes
	}
	size, setting := v.u24(0), v.u16(9)
	return is(v.nth == 0 && v.reply && v.u8(3) == 4 && v.u8(4) == 0 && v.u32(5) == 0 && size > 0 && size%6 == 0 &&
		size <= 60 && len(v.p) >= 9+size && setting >= 1 && setting <= 9)
}

// tls recognises the first record of a handshake (RFC 8446, 5.1 and 4), and data in the middle of a connection.
func tls(v *view) verdict {
	if len(v.p) < 5 { // too little of a record
		return perhapsOnly(v.p[0] == 22 && (len(v.p) == 1 || v.p[1] == 3))
	}
	if v.u8(1) != 3 || v.u8(2) > 4 {
		return no
	}
	size := v.u16(3)
	switch v.p[0] {
	case 22:
		if size < 4 || size > 1<<14+256 {
			return no
		}
		if len(v.p) < 9 {
			return maybe
		}
		switch v.p[5] {
		case 1, 2: // ClientHello, ServerHello
			if v.u24(6) > 1<<16 {
				return no
			}
			return is(v.u8(9) == 3 || len(v.p) < 11)
		case 4, 11, 12, 13, 14, 16, 20: // of a connection whose beginning was not seen
			return perhaps(v.u24(6) <= 1<<16 && (v.u24(6)+4 <= size || v.nth > 0))
		}
		return perhaps(v.nth > 0 || v.replies > 0) // encrypted
	case 20:
		return is(size == 1 && v.u8(5) == 1)
	case 21:
		return is(size == 2 && v.u8(5) >= 1 && v.u8(5) <= 2 || size >= 18 && size <= 64 && len(v.p) == size+5)
	case 23:
		if size < 17 || size > 1<<14+256 {
			return no
		}
		if len(v.p) >= size+5 { // a whole record, with nothing or a record behind it
			return is(len(v.p) == size+5 || len(v.p) >= size+8 && v.u8(size+5) == 23 && v.u8(size+6) == 3)
		}
		// A record in several segments: the direction's last payload began with one, or the other direction's first.
		return perhaps(v.nth > 0 && v.mine.head[0] == 23 && v.mine.head[1] == 3 || v.answers.is("\x17\x03"))
	}
	return no
}

// sslv2 is a ClientHello in the form of SSL 2 (RFC 5246, E.2).
func sslv2(v *view) verdict {
	n := v.u16(0) & 0x7fff
	return is(v.u8(0)&0x80 != 0 && n == len(v.p)-2 && v.u8(2) == 1 && (v.u16(3) >= 0x300 && v.u16(3) <= 0x304 ||
		v.u16(3) == 2) &&
		v.u16(5)%3 == 0 && 9+v.u16(5)+v.u16(7)+v.u16(9) == n)
}

// rtsp is a request or response of RTSP (RFC 7826).
func rtsp(v *view) verdict {
	if v.has("RTSP/1.") || v.has("RTSP/2.") {
		return yes
	}
	line, _ := v.line()
	return perhaps(bytes.Contains(line, []byte(" RTSP/1.")) || bytes.Contains(line, []byte(" rtsp://")))
}

// soap is an envelope without HTTP before it.
func soap(v *view) verdict {
	return perhaps(v.has("<?xml ") && (v.contains(":Envelope") || v.contains("<ZMessage") ||
		v.contains("schemas.xmlsoap.org")))
}

func xmpp(v *view) verdict {
	return perhaps(v.has("<stream:") || v.hasAny("<?xml", "<iq ", "<message ", "<presence") &&
		(v.contains("<stream:stream") || v.contains("jabber:")) ||
		v.nth == 1 && string(v.mine.head[:5]) == "<?xml" && v.has("<stream:stream"))
}

// jsonRPC begins with an object that names its version.
func jsonRPC(v *view) verdict {
	if v.contains(`"mining.`) || v.contains(`"eth_`) || v.contains(`"eth1.0"`) {
		return no
	}
	return perhaps(v.contains(`"jsonrpc":`) && (v.contains(`"method":`) || v.contains(`"result":`) ||
		v.contains(`"error":`)))
}

// stratum recognises the protocol between miners of currencies and their pools: JSON-RPC of a few methods.
func stratum(v *view) verdict {
	return perhaps(v.contains(`"mining.`) || v.contains(`"eth_submit`) ||
		v.contains(`"eth_getWork`) || v.contains(`"eth1.0"`) ||
		v.contains(`"method":"login"`) && v.contains(`"agent":`) || v.contains(`"method":"submit"`) &&
		v.contains(`"nonce":`))
}

func rtmp(v *view) verdict {
	if v.nth > 0 || len(v.p) < 9 {
		return no
	}
	// C0 and C1: version and time, then zeros or a version of the player; S0 and S1 the same (rtmp_specification, 5.2).
	if v.nth == 0 && v.answers.size >= 1000 && v.answers.head[0] == v.p[0] && len(v.p) >= 1000 {
		return yes
	}
	return perhaps(v.u32(5) == 0 && len(v.p) >= 1300 && v.replies == 0 && v.port(1935))
}

func socks(v *view) verdict {
	switch v.u8(0) {
	case 5: // RFC 1928, 3
		if !v.reply && v.nth == 0 {
			n := v.u8(1)
			return perhaps(n > 0 && n < 8 && len(v.p) == 2+n && v.port(1080, 1081, 9050, 9150))
		}
		if v.reply && len(v.p) == 2 && v.other.size >= 3 && v.other.head[0] == 5 && v.other.size == 2+int(v.other.head[1]) {
			return yes
		}
	case 4:
		return is(!v.reply && v.nth == 0 && v.u8(1) >= 1 && v.u8(1) <= 2 && len(v.p) >= 9 && v.p[len(v.p)-1] == 0 &&
			v.printableFrom(8))
	}
	return no
}

// quic recognises long headers of versions 1 and 2 and of drafts (RFC 9000, 17.2), and Google's old versions.
func quic(v *view) verdict {
	if len(v.p) < 7 {
		return no
	}
	if v.p[0]&0x80 == 0 {
		return googleQUIC(v)
	}
	version := v.u32(1)
	switch {
	case version == 0: // Version Negotiation: the versions that a server has
		dcid := v.u8(5)
		scid := v.u8(6 + dcid) // the client's first Destination Connection ID, of 8 bytes or more (RFC 9000, 7.2)
		at := 7 + dcid + scid
		return perhaps(scid >= 8 && scid <= 20 && dcid <= 20 && len(v.p) > at && (len(v.p)-at)%4 == 0 &&
			(knownQUIC(v.u32(at)) || knownQUIC(v.u32(at+4))))
	case version>>8 == 0x513034 || version>>8 == 0x513035 || version>>8 == 0x543035: // Q046, Q050, T050
		return yes
	case !knownQUIC(version):
		return no
	}
	dcid := v.u8(5)
	scid := v.u8(6 + dcid)
	return is(v.p[0]&0x40 != 0 && dcid <= 20 && scid <= 20 && len(v.p) >= 7+dcid+scid)
}

func knownQUIC(version uint32) bool {
	return version == 1 || version == 0x6b3343cf || version>>8 == 0xff0000 && version&0xff >= 18 && version&0xff < 64 ||
		version&0x0f0f0f0f == 0x0a0a0a0a ||
		version>>8 == 0xfaceb0 || version>>8 == 0x513034 || version>>8 == 0x513035 || version>>8 == 0x543035 ||
		version>>16 == 0x5130 || version>>16 == 0x5430
}

// googleQUIC is the public header of versions before 46: flags, connection, version, and a CHLO or REJ.
func googleQUIC(v *view) verdict {
	flags := v.p[0]
	if flags&0x09 == 0x09 && v.hasAt(9, "Q0") && v.u8(11) >= '2' && v.u8(11) <= '4' {
		return yes
	}
	return perhaps(flags&0xc0 == 0 && v.port(443, 80) && len(v.p) > 40 && (v.containsIn(64, "CHLO") ||
		v.containsIn(64, "REJ\x00") || v.containsIn(64, "SHLO")))
}
