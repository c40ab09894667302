package http1

import (
	"bytes"
	"strings"

	"github.com/millrace/millrace/semantics"
)

// readRequest reads a header that is complete, at a server (RFC 9112 3).
func (m *Machine) readRequest() error {
	if err := m.skipEmptyLine(); err != nil {
		return err
	}
	msg := &m.message
	target, err := m.requestLine()
	if err != nil {
		return err
	}
	var f framing
	if err := m.readFields(&f); err != nil {
		return err
	}
	if err := m.target(target, &f); err != nil {
		return err
	}
	if err := m.requestBody(&f); err != nil {
		return err
	}
	msg.Expect100 = f.expect100 && msg.Minor > 0 && msg.Body != NoBody
	msg.Close = f.close || msg.Minor == 0 && !f.keepAlive // RFC 9112 9.3
	m.request = request{
		open: true, head: msg.Method == "HEAD", connect: msg.Method == "CONNECT", upgrade: msg.Protocol != "",
		old: msg.Minor == 0, keep: f.keepAlive,
	}
	m.closing = m.closing || msg.Close
	return nil
}

// skipEmptyLine passes over one empty line before the request, which old clients sent after content (RFC 9112 2.2).
func (m *Machine) skipEmptyLine() error {
	if m.lines[0] != 1 {
		return nil
	}
	if len(m.lines) < 2 || m.lines[1] == 3 {
		return errEmptyLine
	}
	m.begins += 2
	m.lines = append(m.lines[:0], m.lines[1:]...)
	for i := range m.lines {
		m.lines[i] -= 2
	}
	return nil
}

// requestLine reads method and version, and returns the target. One space stands between them and nothing else does: what
// RFC 9112 3 permits beyond that is for a recipient that repairs.
func (m *Machine) requestLine() (target string, err error) {
	line := m.line(0)
	sp := bytes.IndexByte(line, ' ')
	if sp < 0 {
		return "", errRequestLine
	}
	m.message.Method = text(line[:sp])
	if !semantics.IsToken(m.message.Method) {
		return "", errMethod
	}
	rest := line[sp+1:]
	if sp = bytes.IndexByte(rest, ' '); sp <= 0 {
		return "", errRequestLine
	}
	target = text(rest[:sp])
	if m.message.Minor, err = version(rest[sp+1:]); err != nil {
		return "", err
	}
	if !semantics.IsTarget(target) {
		return "", errTarget
	}
	return target, nil
}

// version reads the minor version.
func version(b []byte) (minor int, err error) {
	if len(b) != 8 || string(b[:5]) != "HTTP/" || b[6] != '.' || !isDigit(b[5]) || !isDigit(b[7]) {
		return 0, errRequestLine
	}
	if b[5] != '1' || b[7] > '1' {
		return 0, errVersion
	}
	return int(b[7] - '0'), nil
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// target splits the request target by its form (RFC 9112 3.2), and settles the authority.
func (m *Machine) target(target string, f *framing) error {
	msg := &m.message
	msg.Scheme = m.options.Scheme
	if !f.hasHost && msg.Minor > 0 {
		return errHostMissing
	}
	switch {
	case msg.Method == "CONNECT": // authority-form
		msg.Scheme = ""
		if !semantics.HasPort(target) || f.hasHost && !sameHost(target, f.host) {
			return errTarget
		}
		msg.Authority = target
	case target[0] == '/': // origin-form
		msg.Path, msg.Authority = target, f.host
	case target == "*" && msg.Method == "OPTIONS": // asterisk-form
		msg.Path, msg.Authority = target, f.host
	default:
		if err := m.absoluteForm(target); err != nil {
			return err
		}
		if f.hasHost && !strings.EqualFold(msg.Authority, f.host) {
			return errHostDiffers
		}
	}
	if msg.Authority == "" && !f.hasHost {
		return nil // HTTP/1.0
	}
	if !semantics.IsAuthority(msg.Authority) {
		return errAuthority
	}
	return nil
}

// sameHost reports whether Host names the target of CONNECT. Clients leave out the port in Host where it is the scheme's.
func sameHost(target, host string) bool {
	return strings.EqualFold(target, host) || strings.EqualFold(target[:strings.LastIndexByte(target, ':')], host)
}

// absoluteForm reads a target that is a URI (RFC 9112 3.2.2).
func (m *Machine) absoluteForm(target string) error {
	msg := &m.message
	scheme, rest, ok := strings.Cut(target, "://")
	switch {
	case !ok:
		return errTarget
	case strings.EqualFold(scheme, "http"):
		msg.Scheme = "http"
	case strings.EqualFold(scheme, "https"):
		msg.Scheme = "https"
	default:
		return errTarget
	}
	end := strings.IndexAny(rest, "/?")
	switch {
	case end < 0 && msg.Method == "OPTIONS": // RFC 9112 3.2.4
		msg.Authority, msg.Path = rest, "*"
	case end < 0:
		msg.Authority, msg.Path = rest, "/"
	case rest[end] == '?': // the path is empty, which is "/" (RFC 9110 4.2.3)
		m.buf = append(append(m.buf, '/'), rest[end:]...)
		msg.Authority, msg.Path = rest[:end], text(m.buf[len(m.buf)-len(rest[end:])-1:])
	default:
		msg.Authority, msg.Path = rest[:end], rest[end:]
	}
	return nil
}

// requestBody says how the content is delimited (RFC 9112 6.3), and whether another protocol is offered.
func (m *Machine) requestBody(f *framing) error {
	msg := &m.message
	switch {
	case f.hasCoding && msg.Minor == 0:
		return errCodingOld // RFC 9112 6.1
	case f.hasCoding && f.hasLength:
		return errLengthChunked // the same: a proxy may refuse, and repairing is what smugglers count on
	case f.hasCoding && !f.chunked:
		return errCoding
	case f.expectUnknown:
		return errExpectation
	case f.hasCoding:
		msg.Body = Chunked
	case msg.ContentLength > 0:
		msg.Body = Length
	}
	if msg.Method == "CONNECT" && (f.hasCoding || f.hasLength) {
		return errConnectBody // RFC 9110 9.3.6: it has no meaning
	}
	if msg.Minor == 0 && msg.Body != NoBody && (msg.Method == "GET" || msg.Method == "HEAD" || msg.Method == "DELETE") {
		return errContentOld // RFC 9110 9.3.1: it has no meaning, and old recipients take it for another request
	}
	// RFC 9110 7.8. Only one protocol may be offered at a time here, and never HTTP/2: a back end that takes that
	// gets what follows unseen.
	if f.upgrade && f.protocol != "" && msg.Minor > 0 && !isH2C(f.protocol) {
		msg.Protocol = f.protocol
		if msg.Body != NoBody && (!m.options.UpgradeContent || strings.EqualFold(f.protocol, "websocket")) {
			return errUpgradeBody
		}
	}
	m.beginContent(msg.Body)
	return nil
}

// isH2C reports whether an Upgrade offers HTTP/2 (RFC 7540 3.2), which RFC 9113 3.1 has taken out.
func isH2C(protocols string) bool {
	for p := range strings.SplitSeq(protocols, ",") {
		if p = strings.TrimSpace(p); strings.EqualFold(p, "h2c") || strings.EqualFold(p, "h2") {
			return true
		}
	}
	return false
}

// beginContent enters what follows a header.
func (m *Machine) beginContent(b Body) {
	switch b {
	case NoBody:
		m.state = ending
	case Length:
		m.state, m.left = inContent, uint64(m.message.ContentLength)
	case Chunked:
		m.state, m.left, m.digits, m.extensions = atSize, 0, 0, 0
	case UntilClose:
		m.state = untilClose
	}
}
