package applayer

import (
	"bytes"
	"strconv"

	"github.com/millrace/millrace/filter/inspect/ascii"
	"github.com/millrace/millrace/filter/signature"
)

// sipFlow is both directions of SIP over TCP.
type sipFlow struct {
	stateless
	sides [2]sipSide
}

// sipSide is one direction of SIP over TCP: heads, and bodies of the length that they say. A message over TCP must have a
// Content-Length (RFC 3261 18.3); without one the next message follows the head. In a datagram all behind the head is the body.
type sipSide struct {
	head []byte // incomplete
	skip int    // bytes of a body
	done bool   // no SIP any more
}

// isSIP reports whether b begins with a whole line that a message of SIP begins with (RFC 3261 7.1, 7.2).
func isSIP(b []byte) bool {
	b = bytes.TrimLeft(b, "\r\n")
	line, _, ok := bytes.Cut(b[:min(len(b), MaxHead)], []byte{'\n'})
	line = bytes.TrimRight(line, "\r")
	if !ok {
		return false
	}
	if bytes.HasPrefix(line, []byte("SIP/2.0 ")) {
		return true
	}
	method, _, _ := bytes.Cut(line, []byte{' '})
	return bytes.HasSuffix(line, []byte(" SIP/2.0")) && len(method) > 0 && isMethod(method)
}

// mayBeSIP reports whether the first line, which is not whole, has a target that only SIP has: its methods are those of HTTP, too.
func mayBeSIP(b []byte) bool {
	b = bytes.TrimLeft(b, "\r\n")
	if bytes.IndexByte(b, '\n') >= 0 || len(b) >= MaxHead {
		return false
	}
	_, target, ok := bytes.Cut(b, []byte{' '})
	if !ok {
		return false
	}
	return ascii.IsPrefixOf(ascii.Lower(target), []byte("sip:")) || ascii.IsPrefixOf(ascii.Lower(target), []byte("sips:"))
}

// Parse reads messages out of a stream.
func (f *sipFlow) Parse(c *Context, b []byte) {
	s := &f.sides[c.side()]
	for len(b) > 0 && !s.done {
		if n := min(s.skip, len(b)); n > 0 {
			s.skip, b = s.skip-n, b[n:]
			continue
		}
		if len(s.head) == 0 {
			if b = bytes.TrimLeft(b, "\r\n"); len(b) == 0 { // keep-alives (RFC 5626 3.5.1)
				return
			}
		}
		before := len(s.head)
		s.head = append(s.head, b...)
		end := ascii.HeadEnd(s.head, max(0, before-3))
		if end < 0 {
			if len(s.head) > MaxHead {
				*s = sipSide{done: true}
				c.Host.GiveUp()
			}
			return
		}
		head := s.head[:end]
		b = b[end-before:]
		s.head = nil
		s.skip = sipMessage(c, head)
	}
}

// sipNames are the compact forms of names (RFC 3261 7.3.3): without them a client could send a field past the rules on it.
var sipNames = map[string]string{"f": "from", "t": "to", "v": "via", "c": "content-type", "l": "content-length"}

// sipFields are the fields with a buffer.
var sipFields = map[string]signature.Buffer{
	"from": signature.SIPFrom, "to": signature.SIPTo, "via": signature.SIPVia, "user-agent": signature.SIPUserAgent,
	"content-type": signature.SIPContentType, "content-length": signature.SIPContentLength,
}

// sipMessage evaluates a message, and returns the length of its body. A field may come several times, as Via does for each proxy on
// the path (RFC 3261 7.3.1): each is an instance of its buffer. Lines that continue a field are not joined.
func sipMessage(c *Context, head []byte) (length int) {
	if end := ascii.HeadEnd(head, 0); end > 0 {
		head = head[:end]
	}
	t := c.Message
	t.Reset()
	t.Text = head
	line, rest, _ := bytes.Cut(head, []byte{'\n'})
	line = bytes.TrimRight(line, "\r")
	if bytes.HasPrefix(line, []byte("SIP/")) {
		version, status, _ := bytes.Cut(line, []byte{' '})
		code, reason, _ := bytes.Cut(status, []byte{' '})
		t.Put(signature.SIPResponseLine, line)
		t.Put(signature.SIPProtocol, version)
		t.Put(signature.SIPStatCode, code)
		t.Put(signature.SIPStatMsg, reason)
	} else {
		method, target, _ := bytes.Cut(line, []byte{' '})
		uri, version, _ := bytes.Cut(target, []byte{' '})
		t.Put(signature.SIPRequestLine, line)
		t.Put(signature.SIPMethod, method)
		t.Put(signature.SIPURI, uri)
		t.Put(signature.SIPProtocol, version)
	}
	for line := range bytes.Lines(rest) {
		name, value, ok := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte{':'})
		word := string(ascii.Lower(bytes.TrimSpace(name)))
		if full, compact := sipNames[word]; compact {
			word = full
		}
		b, known := sipFields[word]
		if !ok || !known {
			continue
		}
		value = bytes.TrimSpace(value)
		t.Put(b, value)
		if n, err := strconv.ParseUint(string(value), 10, 31); b == signature.SIPContentLength && err == nil {
			length = int(n)
		}
	}
	c.inspect()
	return length
}

// sipDatagram evaluates a message in a datagram, which has nothing else but keep-alives before it (RFC 5626 3.5.1).
func sipDatagram(c *Context, b []byte) {
	if head := bytes.TrimLeft(b, "\r\n"); len(head) > 0 {
		sipMessage(c, head)
	}
}

// Size implements Parser.
func (f *sipFlow) Size() int { return cap(f.sides[0].head) + cap(f.sides[1].head) }
