package dhcp

import (
	"encoding/binary"
	"math/bits"

	"github.com/millrace/millrace/wire"
)

// Ports of UDP (RFC 2131 4.1).
const (
	ServerPort = 67
	ClientPort = 68
)

// Layout of a message (RFC 2131 2):
//
//	 0                   1                   2                   3
//	+---------------+---------------+---------------+---------------+
//	|     op (1)    |   htype (1)   |   hlen (1)    |   hops (1)    |
//	+---------------+---------------+---------------+---------------+
//	|                            xid (4)                            |
//	+-------------------------------+-------------------------------+
//	|           secs (2)            |           flags (2)           |
//	+-------------------------------+-------------------------------+
//	|          ciaddr, yiaddr, siaddr, giaddr (4 each)              |
//	+---------------------------------------------------------------+
//	|   chaddr (16), sname (64), file (128), cookie (4), options    |
//	+---------------------------------------------------------------+
const (
	opRequest = 1
	opReply   = 2
	atFlags   = 10
	atCIAddr  = 12
	atYIAddr  = 16
	atCHAddr  = 28
	atSName   = 44
	atFile    = 108
	atCookie  = 236
	headerLen = 240
	minLen    = 300 // what old relays expect (RFC 1542 2.1)
	maxLen    = 576
	cookie    = 0x63825363
	broadcast = 0x8000
)

// Message types (RFC 2132 9.6).
const (
	discover = 1 + iota
	offer
	request
	decline
	ack
	nak
	release
)

// Options (RFC 2132, RFC 3442).
const (
	optPad          = 0
	optMask         = 1
	optRouter       = 3
	optDNS          = 6
	optHostname     = 12
	optDomain       = 15
	optMTU          = 26
	optAddress      = 50
	optLease        = 51
	optOverload     = 52
	optType         = 53
	optServer       = 54
	optParameters   = 55
	optMaxSize      = 57
	optT1           = 58
	optT2           = 59
	optClientID     = 61
	optRoutes       = 121
	optEnd          = 255
	maxOptionBytes  = 1024 // of one option, all its parts together (RFC 3396)
	maxListed       = 16   // addresses or routes of one list
	maxDomainLength = 253
)

// reply is a message of a server, decoded.
type reply struct {
	typ    uint8
	xid    uint32
	mac    [6]byte
	addr   wire.Addr // yiaddr
	server wire.Addr
	lease  uint32 // seconds
	t1, t2 uint32 // 0 where there is none
	Lease
}

// parse decodes a message of a server. It returns false for other messages and for options of a wrong length. Nothing of a
// malformed message is used. The hardware type and the magic cookie are those of Ethernet and DHCP (RFC 2131 2, 3).
func parse(b []byte) (r reply, ok bool) {
	if len(b) < headerLen || b[0] != opReply || b[1] != 1 || b[2] != 6 || binary.BigEndian.Uint32(b[atCookie:]) != cookie {
		return r, false
	}
	r.xid = binary.BigEndian.Uint32(b[4:])
	r.mac = [6]byte(b[atCHAddr:])
	r.addr = wire.AddrFrom4([4]byte(b[atYIAddr:]))
	opts, ok := options(b)
	if !ok {
		return r, false
	}
	for code, v := range opts {
		if !r.option(code, v) {
			return r, false
		}
	}
	if routes, ok := opts[optRoutes]; ok { // the router option must be ignored beside it (RFC 3442)
		r.Routers = nil
		if r.Routes, ok = classless(routes); !ok {
			return r, false
		}
	}
	return r, r.typ != 0
}

// options collects the options of a message: of the options field, and of file and sname where the overload option says
// that they hold options (RFC 2131 4.1). The parts of an option that occurs several times are joined (RFC 3396), and its
// length checked only then.
func options(b []byte) (map[uint8][]byte, bool) {
	m := map[uint8][]byte{}
	if !collect(m, b[headerLen:]) {
		return nil, false
	}
	if o := m[optOverload]; len(o) == 1 {
		if o[0]&1 != 0 && !collect(m, b[atFile:atCookie]) {
			return nil, false
		}
		if o[0]&2 != 0 && !collect(m, b[atSName:atFile]) {
			return nil, false
		}
	}
	return m, true
}

// collect reads one field of options: code, length, value. Pad and end have no length (RFC 2132 3.1, 3.2).
func collect(m map[uint8][]byte, b []byte) bool {
	for len(b) > 0 {
		code := b[0]
		switch {
		case code == optPad:
			b = b[1:]
			continue
		case code == optEnd:
			return true
		case len(b) < 2 || len(b) < 2+int(b[1]) || len(m[code])+int(b[1]) > maxOptionBytes:
			return false
		}
		m[code] = append(m[code], b[2:2+int(b[1])]...)
		b = b[2+int(b[1]):]
	}
	return true
}

// option reads one option, and returns false where its length is wrong.
func (r *reply) option(code uint8, v []byte) bool {
	switch code {
	case optType:
		return len(v) == 1 && set(&r.typ, v[0])
	case optServer:
		return one(v, &r.server)
	case optMask:
		return len(v) == 4 && r.mask(binary.BigEndian.Uint32(v))
	case optRouter:
		return list(v, &r.Routers)
	case optDNS:
		return list(v, &r.DNS)
	case optLease:
		return number(v, &r.lease)
	case optT1:
		return number(v, &r.t1)
	case optT2:
		return number(v, &r.t2)
	case optMTU:
		return len(v) == 2 && set(&r.MTU, int(binary.BigEndian.Uint16(v)))
	case optDomain:
		return len(v) <= maxDomainLength && set(&r.Domain, string(v))
	}
	return true
}

func set[T any](p *T, v T) bool {
	*p = v
	return true
}

func number(v []byte, p *uint32) bool { return len(v) == 4 && set(p, binary.BigEndian.Uint32(v)) }

func one(v []byte, p *wire.Addr) bool { return len(v) == 4 && set(p, wire.AddrFrom4([4]byte(v))) }

// list reads addresses, the first few of them.
func list(v []byte, p *[]wire.Addr) bool {
	if len(v) == 0 || len(v)%4 != 0 {
		return false
	}
	for ; len(v) > 0 && len(*p) < maxListed; v = v[4:] {
		*p = append(*p, wire.AddrFrom4([4]byte(v)))
	}
	return true
}

// mask reads a subnet mask; one whose ones are not all on the left is no prefix (RFC 950 allowed it).
func (r *reply) mask(m uint32) bool {
	r.Bits = bits.OnesCount32(m)
	return ^uint32(0)<<(32-r.Bits) == m
}

// classless reads classless static routes (RFC 3442): the length of a prefix, its significant octets alone, and a router:
//
//	| 24 | 198 | 18 | 5 | router, 4 octets | 0 | router, 4 octets |   198.18.5.0/24 and the default route
func classless(v []byte) (routes []Route, ok bool) {
	for len(v) > 0 {
		n := (int(v[0]) + 7) / 8
		if v[0] > 32 || len(v) < 1+n+4 {
			return nil, false
		}
		var a [4]byte
		copy(a[:], v[1:1+n])
		if len(routes) < maxListed {
			routes = append(routes, Route{Prefix: wire.AddrFrom4(a), Bits: int(v[0]), Router: wire.AddrFrom4([4]byte(v[1+n:]))})
		}
		v = v[1+n+4:]
	}
	return routes, true
}

// writer encodes a message of the client.
type writer struct{ b []byte }

// message starts a message of type typ.
func message(typ uint8, xid uint32, secs uint16, mac [6]byte) writer {
	b := make([]byte, headerLen, maxLen)
	b[0], b[1], b[2] = opRequest, 1, 6
	binary.BigEndian.PutUint32(b[4:], xid)
	binary.BigEndian.PutUint16(b[8:], secs)
	copy(b[atCHAddr:], mac[:])
	binary.BigEndian.PutUint32(b[atCookie:], cookie)
	w := writer{b}
	w.option(optType, typ)
	return w
}

func (w *writer) option(code uint8, v ...byte) {
	w.b = append(append(w.b, code, byte(len(v))), v...)
}

func (w *writer) addr(code uint8, a wire.Addr) {
	v := a.As4()
	w.option(code, v[:]...)
}

// end closes the options and pads the message to the size of a BOOTP message, below which old relays drop it (RFC 1542 2.1).
func (w *writer) end() []byte {
	w.b = append(w.b, optEnd)
	for len(w.b) < minLen {
		w.b = append(w.b, optPad)
	}
	return w.b
}
