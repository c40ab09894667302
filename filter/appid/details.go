package appid

import (
	"bytes"
	"errors"

	"github.com/millrace/millrace/filter/initial"
	"github.com/millrace/millrace/tls/clienthello"
)

// Details hold the fields of a flow that are sent before encryption begins.
type Details struct {
	Name string // the server name of TLS and QUIC, the host of HTTP, the name that was asked of DNS
	ALPN string // the client's first
	JA4  string // of a ClientHello
}

// maxHello bounds a ClientHello, in bytes.
const maxHello = initial.MaxHello

// collector waits for the details of a flow that was recognised.
type collector struct {
	Details
	stream  []byte // of the client, while a ClientHello or the fields of a request are not complete
	initial initial.Collector
}

// Details returns what is known of the flow so far.
func (f *Flow) Details() Details {
	if f.collector == nil {
		return Details{}
	}
	return f.collector.Details
}

// named reports whether flows of a protocol have details.
func named(p Protocol) bool {
	return p == TLS || p == QUIC || p == HTTP || p == HTTPConnect || p == DNS || p == MDNS || p == LLMNR || upgrades(p)
}

// upgrades reports whether a flow of a protocol may go on with TLS: STARTTLS and its like.
func upgrades(p Protocol) bool {
	switch p {
	case SMTP, IMAP, POP3, FTP, NNTP, IRC, XMPP, LDAP, PostgreSQL, MySQL, TDS, RDP:
		return true
	}
	return false
}

// pending reports whether the details of a flow have come in part.
func (c *collector) pending() bool {
	return c != nil && (len(c.stream) > 0 || c.initial.Pending())
}

// collect looks for the details in a payload, and reports whether more payloads may have them. It allocates.
func (f *Flow) collect(v *view) (more bool) {
	if upgrades(f.protocol) && !f.collector.pending() && !v.startsHello() {
		return true
	}
	if f.collector == nil {
		f.collector = &collector{}
	}
	c := f.collector
	switch f.protocol {
	case DNS, MDNS, LLMNR:
		c.Name = v.firstQuestion()
		return false
	case QUIC:
		return c.quic(v)
	case HTTP, HTTPConnect:
		return c.http(v)
	}
	return c.tls(v)
}

// quic reads the Initial packets of a datagram, and reports whether the ClientHello may follow.
func (c *collector) quic(v *view) bool {
	if v.reply {
		return c.initial.More()
	}
	if !c.initial.Datagram(v.p) {
		return false
	}
	message, more := c.initial.Hello()
	hello := &clienthello.Hello{}
	if message != nil && clienthello.ParseMessage(message, hello) == nil {
		c.hello(hello, 'q')
	}
	if !more {
		c.initial.Done()
	}
	return more
}

// startsHello reports whether a record with a ClientHello of the client begins.
func (v *view) startsHello() bool {
	return !v.reply && v.u8(0) == 22 && v.u8(1) == 3 && (v.u8(5) == 1 || len(v.p) < 6)
}

// tls reads the ClientHello, which may span segments.
func (c *collector) tls(v *view) bool {
	if v.reply || len(c.stream) == 0 && (v.p[0] != 22 || v.u8(5) != 1 && len(v.p) > 5) {
		return len(c.stream) > 0
	}
	data := v.p
	if len(c.stream) > 0 {
		c.stream = append(c.stream, data...)
		data = c.stream
	}
	var peeker clienthello.Peeker
	hello, err := peeker.Parse(data)
	switch {
	case errors.Is(err, clienthello.ErrIncomplete) && len(data) < maxHello:
		if len(c.stream) == 0 {
			c.stream = append(c.stream, data...)
		}
		return true
	case err == nil:
		c.hello(hello, 't')
	}
	c.stream = nil
	return false
}

func (c *collector) hello(h *clienthello.Hello, transport byte) {
	c.Name, c.JA4 = string(h.ServerName), string(h.AppendJA4(nil, transport))
	if len(h.ALPN) > 1 && int(h.ALPN[0]) < len(h.ALPN) {
		c.ALPN = string(h.ALPN[1 : 1+int(h.ALPN[0])])
	}
}

// maxFields bounds the fields of a request that are kept until Host has come, in bytes.
const maxFields = 8 << 10

// http reads the field Host of the first request, or the authority of CONNECT.
func (c *collector) http(v *view) bool {
	if v.reply {
		return len(c.stream) > 0
	}
	data := v.p
	if len(c.stream) > 0 {
		c.stream = append(c.stream, data...)
		data = c.stream
	}
	host, whole := requestHost(data)
	c.Name = string(host)
	if whole || len(data) > maxFields {
		c.stream = nil
		return false
	}
	if len(c.stream) == 0 {
		c.stream = append(c.stream, data...)
	}
	return true
}

// requestHost returns what a request says of its host. whole is that more bytes change nothing.
func requestHost(p []byte) (host []byte, whole bool) {
	line, rest, found := bytes.Cut(p, []byte("\n"))
	if target, ok := bytes.CutPrefix(line, []byte("CONNECT ")); ok {
		host, _, found = bytes.Cut(target, []byte(" "))
		return host, found
	}
	for found {
		line, rest, found = bytes.Cut(rest, []byte("\n"))
		if line = bytes.TrimSuffix(line, []byte("\r")); found && len(line) == 0 {
			return nil, true
		}
		if found && len(line) >= 5 && bytes.EqualFold(line[:5], []byte("host:")) {
			return bytes.TrimSpace(line[5:]), true
		}
	}
	return nil, false
}

// firstQuestion returns the name of the first question of a DNS message, with dots.
func (v *view) firstQuestion() string {
	if v.u16(4) == 0 {
		return ""
	}
	var name []byte
	for at := 12; at < len(v.p); {
		n := int(v.p[at])
		at++
		if n == 0 {
			return string(name)
		}
		if n > 63 || at+n > len(v.p) || len(name)+n > 254 {
			return ""
		}
		if len(name) > 0 {
			name = append(name, '.')
		}
		name = append(name, v.p[at:at+n]...)
		at += n
	}
	return ""
}
