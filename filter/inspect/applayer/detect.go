package applayer

import (
	"bytes"
	"encoding/binary"

	"github.com/millrace/millrace/filter/inspect/ascii"
	"github.com/millrace/millrace/filter/signature"
)

// EnoughToDetect is the number of bytes of a direction by which a protocol is recognised, or not.
const EnoughToDetect = 64

// methods are requests' first words, in lower case.
var methods = [][]byte{
	[]byte("get "), []byte("post "), []byte("head "), []byte("put "), []byte("delete "), []byte("options "),
	[]byte("connect "), []byte("trace "), []byte("patch "), []byte("propfind "), []byte("proppatch "), []byte("mkcol "), []byte("copy "),
	[]byte("move "), []byte("lock "), []byte("unlock "), []byte("search "), []byte("report "), []byte("checkout "), []byte("bits_post "),
	[]byte("version-control "), []byte("describe "), []byte("subscribe "), []byte("unsubscribe "), []byte("notify "),
}

// Detect returns the protocol of the first bytes of client and server, AppAny while they could be of several.
func Detect(c, s []byte, port uint16) signature.App {
	switch {
	case bytes.HasPrefix(c, []byte("PRI * HTTP/2.0\r\n")):
		return signature.AppHTTP2
	case isSIP(c) || isSIP(s):
		return signature.AppSIP
	case mayBeSIP(c):
		return signature.AppAny
	case isRequest(bytes.TrimLeft(c, ascii.WhiteSpace)): // a server skips empty lines before a request (RFC 9112 2.2), and some skip blanks
		return signature.AppHTTP
	case bytes.HasPrefix(s, []byte("HTTP/1.")) || bytes.HasPrefix(s, []byte("HTTP/0.9")):
		return signature.AppHTTP
	case IsTLS(c) || IsTLS(s):
		return signature.AppTLS
	case bytes.HasPrefix(c, []byte("SSH-")) || bytes.HasPrefix(s, []byte("SSH-")):
		return signature.AppSSH
	case port == 53 && (isDNSOverTCP(c) || isDNSOverTCP(s)):
		return signature.AppDNS
	case isSMB(c) || isSMB(s):
		return signature.AppSMB
	case isMQTT(c):
		return signature.AppMQTT
	case isNFSOverTCP(c):
		return signature.AppNFS
	case bytes.HasPrefix(s, []byte("+OK ")):
		return signature.AppPOP3
	case bytes.HasPrefix(s, []byte("* OK ")):
		return signature.AppIMAP
	}
	word, _, _ := bytes.Cut(c, []byte{' '})
	switch w := string(bytes.ToUpper(bytes.TrimRight(word, "\r\n"))); {
	case w == "EHLO" || w == "HELO":
		return signature.AppSMTP
	case (w == "USER" || w == "FEAT" || w == "AUTH") && (bytes.HasPrefix(s, []byte("220")) || len(s) == 0 && port == 21):
		return signature.AppFTP
	}
	return signature.AppAny
}

// isRequest reports whether b begins with a request of HTTP/1: a method that is known, or a whole line with any method, a
// target and the version (RFC 9112 3). Servers answer methods that they do not know, too.
func isRequest(b []byte) bool {
	for _, m := range methods {
		if at := len(m) - 1; len(b) >= len(m) && ascii.EqualFold(b[:at], m[:at]) && bytes.IndexByte([]byte(ascii.Blanks[:4]), b[at]) >= 0 {
			return true
		}
	}
	line, _, ok := bytes.Cut(b[:min(len(b), MaxHead)], []byte{'\n'})
	line = bytes.TrimSpace(line)
	at := bytes.LastIndex(line, []byte("HTTP/1."))
	if !ok || at < 0 || bytes.ContainsAny(line[at:], ascii.Blanks) {
		return false
	}
	words := bytes.TrimRight(line[:at], ascii.Blanks) // not cut one by one: each segment of an unknown flow comes here
	method := bytes.IndexAny(words, ascii.Blanks)
	return len(words) < at && method > 0 && isMethod(words[:method])
}

// isMethod reports whether a server may take b for a method. Some take more than tokens (RFC 9110 9.1), but none takes bytes
// that are not printable, which messages of other protocols have before a request that they carry (SOCKS).
func isMethod(b []byte) bool {
	for _, c := range b {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

// IsTLS reports whether b begins with records of which the first with text is that of a hello (RFC 8446 5.1). Servers take records
// without text and alerts before it, and any version in the record: it is not used (RFC 8446 5.1).
func IsTLS(b []byte) bool {
	for len(b) >= 5 && isRecord(b) {
		n := int(binary.BigEndian.Uint16(b[3:]))
		switch {
		case n == 0, b[0] == tlsAlert && n == 2, b[0] == tlsChangeCipher && n == 1:
			if len(b) < 5+n {
				return false
			}
			b = b[5+n:]
		default:
			return b[0] == tlsHandshake && len(b) >= 6 && (b[5] == tlsClientHello || b[5] == tlsServerHello) && (n < 2 || len(b) < 7 || b[6] <= 1)
		}
	}
	return false
}

// isRecord reports whether a record may begin with b. Its version is 3.x; some servers take any with a first byte below 16.
func isRecord(b []byte) bool {
	return b[0] >= tlsChangeCipher && b[0] <= tlsAppData && b[1] < 16 && int(binary.BigEndian.Uint16(b[3:])) <= maxRecord
}

// isSMB reports whether b begins with a message of SMB behind the length of the direct transport, perhaps behind the frames that open
// a session of NetBIOS (RFC 1002 4.3.2).
func isSMB(b []byte) bool {
	for len(b) >= 4 && (b[0] == netbiosRequest || b[0] == netbiosGranted) {
		end := 4 + int(binary.BigEndian.Uint16(b[2:]))
		if end > len(b) || b[1] > 1 {
			return false
		}
		b = b[end:]
	}
	return len(b) >= 8 && b[0] == netbiosMessage && b[4] >= 0xfd && string(b[5:8]) == "SMB"
}

// DetectDatagram returns the protocol of a datagram of UDP; AppAny where it is none that is known. dns is whether a port is that of
// DNS, whose messages have nothing else to tell them by.
func DetectDatagram(b []byte, dns bool) signature.App {
	switch {
	case dns && isDNS(b):
		return signature.AppDNS
	case isQUIC(b):
		return signature.AppQUIC
	case isSIP(b):
		return signature.AppSIP
	case isNFSCall(b):
		return signature.AppNFS
	}
	return signature.AppAny
}
