package appid

import (
	"bytes"
	"errors"

	"github.com/millrace/millrace/tls/clienthello"
)

// Details are what a flow says of itself before it is encrypted.
type Details struct {
	Name string // the server name of TLS and QUIC, the host of HTTP, the name that was asked of DNS
	ALPN string // the client's first
	JA4  string // of a ClientHello
}

// maxHello bounds a ClientHello, in bytes: those with keys against quantum computers have about 2000.
const maxHello = clienthello.DefaultLimit

// collector waits for the details of a flow that was recognised.
type collector struct {
	Details
	stream  []byte // of the client, for TLS
	initial initial
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
	return p == TLS || p == QUIC || p == HTTP || p == HTTPConnect || p == DNS || p == MDNS || p == LLMNR
}

// collect looks for the details in a payload, and reports whether more payloads may have them. It allocates.
func (f *Flow) collect(v *view) (more bool) {
	if f.collector == nil {
		f.collector = &collector{}
	}
	c := f.collector
	switch f.protocol {
	case TLS:
		return c.tls(v)
	case QUIC:
		return c.quic(v)
	case HTTP, HTTPConnect:
		return c.http(v)
	default:
		c.Name = v.firstQuestion()
		return false
	}
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

// http reads the field Host of a request, or the authority of CONNECT.
func (c *collector) http(v *view) bool {
	if v.has("HTTP/") {
		return false
	}
	if v.has("CONNECT ") {
		target, _, _ := bytes.Cut(v.p[8:], []byte(" "))
		c.Name = string(target)
		return false
	}
	for rest := v.p; ; {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			return v.nth == 0
		}
		if rest = rest[i+1:]; len(rest) >= 5 && bytes.EqualFold(rest[:5], []byte("host:")) {
			value, _, whole := bytes.Cut(rest[5:], []byte("\n"))
			if whole {
				c.Name = string(bytes.TrimSpace(value))
			}
			return false
		}
		if len(rest) > 0 && (rest[0] == '\r' || rest[0] == '\n') {
			return false
		}
	}
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
