package inspect

import (
	"bytes"
	"encoding/binary"

	"github.com/millrace/millrace/filter/inspect/ascii"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/wire"
)

// protocol is the parsers of a flow's application protocol.
type protocol struct {
	http  *httpFlow
	http2 *http2Flow
	smtp  *smtpFlow
	ftp   *ftpFlow
	smb   *smbFlow
	mqtt  *mqttFlow
	nfs   *nfsFlow
	quic  *quicFlow
	tls   *tlsFlow
	dns   [2][]byte // DNS over TCP: what has come of a message
	ssh   [2]sshSide
	sip   [2]sipSide

	ftpData *ftpData
}

// sshSide is the banner of one side, up to the end of its line.
type sshSide struct {
	text []byte
	done bool
}

// enoughToTell is the number of bytes of a direction by which a protocol is recognised, or not.
const enoughToTell = 64

// recognise looks at the first bytes of both directions until they show the protocol, or that it is none of those that are known,
// and reports whether they do so now. The server's may do that after any number of the client's.
func (e *Engine) recognise(f *flow) bool {
	if f.appFinal {
		return false
	}
	c, cFrom := f.sides[0].stream.Window()
	s, sFrom := f.sides[1].stream.Window()
	if cFrom != 0 || sFrom != 0 {
		f.appFinal = true
		f.app = signature.AppUnknown
		return true
	}
	port := f.key.bPort
	if !f.clientFirst {
		port = f.key.aPort
	}
	f.app = detectApp(c, s, port)
	switch {
	case f.app != signature.AppAny:
		f.appFinal = true
		f.proto = &protocol{}
		e.catchUp(f, c, s)
		return true
	case len(c) >= enoughToTell && len(s) >= enoughToTell, len(s) >= 1024:
		f.appFinal, f.app = true, signature.AppUnknown
		return true
	}
	return false
}

// unrecognised evaluates the rules that ask for the protocol of a flow which has ended before it was known.
func (e *Engine) unrecognised(f *flow) {
	if f.appFinal || !e.rules.asksForApps || f.key.proto != wire.ProtoTCP {
		return
	}
	f.appFinal, f.app = true, signature.AppUnknown
	for i := range f.sides {
		e.late(f, directionOf(i))
	}
}

// catchUp gives the parsers what came before the protocol was known, but for the bytes that parse will give them:
// those that are new now. Only the other direction has such.
func (e *Engine) catchUp(f *flow, c, s []byte) {
	f.sides[0].unparsed, f.sides[1].unparsed = len(c), len(s)
}

// methods are requests' first words, in lower case.
var methods = [][]byte{
	[]byte("get "), []byte("post "), []byte("head "), []byte("put "), []byte("delete "), []byte("options "),
	[]byte("connect "), []byte("trace "), []byte("patch "), []byte("propfind "), []byte("proppatch "), []byte("mkcol "), []byte("copy "),
	[]byte("move "), []byte("lock "), []byte("unlock "), []byte("search "), []byte("report "), []byte("checkout "), []byte("bits_post "),
	[]byte("version-control "), []byte("describe "), []byte("subscribe "), []byte("unsubscribe "), []byte("notify "),
}

// detectApp returns the protocol of the first bytes of client and server, AppAny while they could be of several.
func detectApp(c, s []byte, port uint16) signature.App {
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
	case isTLS(c) || isTLS(s):
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
	line, _, ok := bytes.Cut(b[:min(len(b), maxHead)], []byte{'\n'})
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

// isTLS reports whether b begins with records of which the first with text is that of a hello (RFC 8446 5.1). Servers take records
// without text and alerts before it, and any version in the record: it is not used (RFC 8446 5.1).
func isTLS(b []byte) bool {
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

// parse gives the bytes of a direction that are new to the parsers of the flow's protocol.
func (e *Engine) parse(p *packet, fresh []byte) {
	f := p.flow
	if f.proto == nil {
		return
	}
	for _, d := range [2]signature.Direction{signature.ToServer, signature.ToClient} {
		s := &f.sides[sideOf(d)]
		text := fresh
		switch {
		case s.unparsed > 0: // the first bytes of a flow, which came before its protocol was known
			w, _ := s.stream.Window()
			text = w[len(w)-s.unparsed:]
			s.unparsed = 0
		case d != p.dir:
			continue
		}
		if s.broken {
			continue
		}
		q := p
		if d != p.dir {
			q = packetOf(f, d)
		}
		e.parseSide(q, text)
	}
}

func (e *Engine) parseSide(p *packet, text []byte) {
	f := p.flow
	f.proto.begin(f.app)
	switch f.app {
	case signature.AppHTTP:
		e.http(p, text)
	case signature.AppHTTP2:
		e.http2(p, text)
	case signature.AppSMTP:
		e.smtp(p, text)
	case signature.AppTLS:
		e.tls(p, text)
	case signature.AppDNS:
		e.dnsStream(p, text)
	case signature.AppSSH:
		e.ssh(p, text)
	case signature.AppFTP:
		e.ftp(p, text)
	case signature.AppFTPData:
		e.ftpBytes(p, text)
	case signature.AppSMB:
		e.smb(p, text)
	case signature.AppMQTT:
		e.mqtt(p, text)
	case signature.AppSIP:
		e.sip(p, text)
	case signature.AppNFS:
		e.nfs(p, text)
	}
}

// begin makes the parser of a protocol where there is none yet.
func (q *protocol) begin(app signature.App) {
	switch {
	case app == signature.AppHTTP && q.http == nil:
		q.http = &httpFlow{}
	case app == signature.AppHTTP2 && q.http2 == nil: // from its first byte on: the whole preface comes
		q.http2 = newHTTP2Flow()
	case app == signature.AppSMTP && q.smtp == nil:
		q.smtp = &smtpFlow{}
	case app == signature.AppTLS && q.tls == nil:
		q.tls = &tlsFlow{}
	case app == signature.AppFTP && q.ftp == nil:
		q.ftp = &ftpFlow{}
	case app == signature.AppSMB && q.smb == nil:
		q.smb = &smbFlow{}
	case app == signature.AppMQTT && q.mqtt == nil:
		q.mqtt = &mqttFlow{}
	case app == signature.AppNFS && q.nfs == nil:
		q.nfs = &nfsFlow{}
	case app == signature.AppQUIC && q.quic == nil:
		q.quic = &quicFlow{}
	}
}

// finish inspects what the parsers of a flow hold, and evaluates the rules that wait.
func (e *Engine) finish(f *flow) {
	e.waited(f)
	e.unrecognised(f)
	q := f.proto
	if q == nil {
		return
	}
	if q.http != nil {
		e.httpEnd(f)
	}
	if q.http2 != nil {
		e.http2Finish(f)
	}
	if q.smtp != nil {
		e.mailEnds(packetOf(f, signature.ToServer), &q.smtp.mail)
	}
	if q.smb != nil {
		e.smbFinish(f)
	}
	if q.quic != nil {
		e.quicFinish(f)
	}
	if q.ftpData != nil {
		for i := range q.ftpData.files {
			e.fileEnds(packetOf(f, directionOf(i)), &q.ftpData.files[i])
		}
	}
}

// maxBanner bounds the inspected part of a banner of SSH: longer ones are against RFC 4253 4.2.
const maxBanner = 256

// ssh reads the banner: SSH-protoversion-softwareversion SP comments CR LF (RFC 4253 4.2).
func (e *Engine) ssh(p *packet, text []byte) {
	s := &p.flow.proto.ssh[sideOf(p.dir)]
	if s.done {
		return
	}
	s.text = append(s.text, text...)
	s.text = s.text[:min(len(s.text), maxBanner)]
	line, _, ok := bytes.Cut(s.text, []byte{'\n'})
	if !ok && len(s.text) < maxBanner {
		return
	}
	s.done = true
	line = bytes.TrimRight(line, "\r")
	rest, ok := bytes.CutPrefix(line, []byte("SSH-"))
	version, software, ok2 := bytes.Cut(rest, []byte{'-'})
	if !ok || !ok2 {
		return
	}
	software, _, _ = bytes.Cut(software, []byte{' '})
	e.tx.reset(signature.AppSSH)
	e.tx.put(signature.SSHProto, version)
	e.tx.put(signature.SSHSoftware, software)
	e.tx.text = line
	e.transact(p)
	s.text = nil
}
