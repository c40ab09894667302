package applayer

import (
	"encoding/binary"

	"github.com/millrace/millrace/filter/signature"
)

// dnsFlow is DNS over TCP (RFC 7766).
type dnsFlow struct {
	stateless
	held [2][]byte // what has come of a message
}

// dnsHeader is the length of a message's header (RFC 1035 4.1.1):
//
//	| ID 16 | QR 1, opcode 4, flags 7, RCODE 4 | questions 16 | answers 16 | authorities 16 | additional records 16 |
const dnsHeader = 12

// maxDNSNames bounds the questions of a message that are inspected, and the pointers of a name.
const maxDNSNames = 64

// isDNS reports whether b is plausible as a message: some records and an opcode that exists. The port has shown already that it may be
// one: the header has no mark of its own.
func isDNS(b []byte) bool {
	if len(b) < dnsHeader {
		return false
	}
	opcode := b[2] >> 3 & 15
	questions, answers := binary.BigEndian.Uint16(b[4:]), binary.BigEndian.Uint16(b[6:])
	if opcode > 6 || questions > 16 || questions == 0 && answers == 0 {
		return false
	}
	if questions > 0 {
		_, end, ok := dnsName(b, dnsHeader)
		return ok && end+4 <= len(b)
	}
	return true
}

func isDNSOverTCP(b []byte) bool { return len(b) > 2+dnsHeader && isDNS(b[2:]) }

// dnsMessage inspects the questions of a request.
func dnsMessage(c *Context, b []byte) {
	if len(b) < dnsHeader {
		return
	}
	response := b[2]&0x80 != 0
	c.Message.Reset()
	c.Message.Text = b
	at := dnsHeader
	for range min(int(binary.BigEndian.Uint16(b[4:])), maxDNSNames) {
		name, end, ok := dnsName(b, at)
		if !ok || end+4 > len(b) {
			break
		}
		if !response {
			c.Message.Put(signature.DNSQuery, name)
		}
		at = end + 4
	}
	c.inspect()
}

// dnsName reads a name at an offset: its labels with dots between them, and where it ends. A compressed name goes
// on at an earlier place (RFC 1035 4.1.4). The two highest bits of a length tell a label (00) from a pointer (11). Pointers are
// counted, since those of a hostile message may lead in a circle.
func dnsName(b []byte, at int) (name []byte, end int, ok bool) {
	name = []byte{}
	for jumps := 0; at < len(b); {
		n := int(b[at])
		switch {
		case n == 0:
			if end == 0 {
				end = at + 1
			}
			return name, end, true
		case n >= 0xc0:
			if at+2 > len(b) || jumps == maxDNSNames {
				return nil, 0, false
			}
			if end == 0 {
				end = at + 2
			}
			at = n&0x3f<<8 | int(b[at+1])
			jumps++
		case n >= 0x40 || at+1+n > len(b) || len(name) > 1025:
			return nil, 0, false
		default:
			if len(name) > 0 {
				name = append(name, '.')
			}
			name = append(name, b[at+1:at+1+n]...)
			at += 1 + n
		}
	}
	return nil, 0, false
}

// Parse cuts messages out of a stream: each has its length before it (RFC 1035 4.2.2).
func (f *dnsFlow) Parse(c *Context, text []byte) {
	held := &f.held[c.side()]
	*held = append(*held, text...)
	b := *held
	for len(b) >= 2 {
		n := int(binary.BigEndian.Uint16(b))
		if len(b) < 2+n {
			break
		}
		dnsMessage(c, b[2:2+n])
		b = b[2+n:]
	}
	*held = append((*held)[:0], b...)
}

// Size implements Parser.
func (f *dnsFlow) Size() int { return cap(f.held[0]) + cap(f.held[1]) }
