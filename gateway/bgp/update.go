package bgp

import (
	"encoding/binary"
	"net/netip"
)

// appendPrefix appends a prefix as messages have it: its length in bits, and the octets that these need.
func appendPrefix(b []byte, p netip.Prefix) []byte {
	b = append(b, byte(p.Bits()))
	return append(b, p.Masked().Addr().AsSlice()[:(p.Bits()+7)/8]...)
}

// mostPrefixes returns how many of the prefixes fit in room octets, and their encoding.
func mostPrefixes(list []netip.Prefix, room int) (n int, encoded []byte) {
	for n < len(list) {
		next := appendPrefix(encoded, list[n])
		if len(next) > room {
			break
		}
		n, encoded = n+1, next
	}
	return n, encoded
}

// reachHead counts the octets of MP_REACH_NLRI before its prefixes, without its own header of four: family, next hop, a reserved octet.
const reachHead = 3 + 1 + 16 + 1

// appendAnnouncements appends UPDATE messages that announce prefixes of a family, as few as hold them.
func appendAnnouncements(b []byte, f Family, nextHop netip.Addr, attrs []byte, list []netip.Prefix) []byte {
	for len(list) > 0 {
		start := len(b)
		b = append(beginMessage(b, typeUpdate), 0, 0)
		if f == IPv4 {
			n, nlri := mostPrefixes(list, maxMessage-headerLen-4-len(attrs))
			b = append(binary.BigEndian.AppendUint16(b, uint16(len(attrs))), attrs...)
			b, list = endMessage(append(b, nlri...), start), list[n:]
			continue
		}
		// MP_REACH_NLRI comes first (RFC 7606 5.1).
		n, nlri := mostPrefixes(list, maxMessage-headerLen-4-4-reachHead-len(attrs))
		reach := append([]byte{0, byte(f), safiUnicast, 16}, nextHop.AsSlice()...)
		reach = append(append(reach, 0), nlri...)
		b = binary.BigEndian.AppendUint16(b, uint16(4+len(reach)+len(attrs)))
		b = append(b, flagOptional|flagExtended, attrReach, byte(len(reach)>>8), byte(len(reach)))
		b = append(append(b, reach...), attrs...)
		b, list = endMessage(b, start), list[n:]
	}
	return b
}

// appendWithdrawals appends UPDATE messages that withdraw prefixes of a family, as few as hold them.
func appendWithdrawals(b []byte, f Family, list []netip.Prefix) []byte {
	for len(list) > 0 {
		n, routes := mostPrefixes(list, maxMessage-headerLen-4-4-3)
		b, list = appendWithdrawal(b, f, routes), list[n:]
	}
	return b
}

// appendEndOfRIB appends the marker behind the first announcements of a family (RFC 4724 2): an UPDATE that withdraws nothing.
func appendEndOfRIB(b []byte, f Family) []byte { return appendWithdrawal(b, f, nil) }

func appendWithdrawal(b []byte, f Family, routes []byte) []byte {
	start := len(b)
	b = beginMessage(b, typeUpdate)
	if f == IPv4 {
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(routes))), routes...)
		return endMessage(append(b, 0, 0), start)
	}
	n := 3 + len(routes)
	b = binary.BigEndian.AppendUint16(append(b, 0, 0), uint16(4+n))
	b = append(b, flagOptional|flagExtended, attrUnreach, byte(n>>8), byte(n), 0, byte(f), safiUnicast)
	return endMessage(append(b, routes...), start)
}

// change is the content of an UPDATE that the speaker reads: which prefixes a peer announces or withdraws.
type change struct {
	announced, withdrawn []netip.Prefix
	malformed            bool // an attribute is; the routes count as withdrawn then (RFC 7606 2)
}

// parseUpdate parses the body of an UPDATE. The speaker uses no route, so of the attributes it checks the lengths, and reads those
// that hold prefixes. An error ends the session: it is one where the prefixes cannot be found (RFC 7606 3).
func parseUpdate(body []byte, c *change) *Notification {
	c.announced, c.withdrawn, c.malformed = c.announced[:0], c.withdrawn[:0], false
	list := &Notification{Code: codeUpdate, Subcode: updateAttributes}
	n := int(binary.BigEndian.Uint16(body))
	if len(body) < 2+n+2 {
		return list
	}
	withdrawn, body := body[2:2+n], body[2+n:]
	n = int(binary.BigEndian.Uint16(body))
	if len(body) < 2+n {
		return list
	}
	attrs, nlri := body[2:2+n], body[2+n:]
	var ok bool
	if c.withdrawn, ok = prefixes(c.withdrawn, withdrawn, IPv4); !ok {
		return &Notification{Code: codeUpdate, Subcode: updateField}
	}
	if c.announced, ok = prefixes(c.announced, nlri, IPv4); !ok {
		return &Notification{Code: codeUpdate, Subcode: updateField}
	}
	if err := c.attributes(attrs); err != nil {
		return err
	}
	if c.malformed {
		c.withdrawn, c.announced = append(c.withdrawn, c.announced...), c.announced[:0]
	}
	return nil
}

// attributes walks over attributes. Where one does not end inside of them, those behind it are not known (RFC 7606 4).
func (c *change) attributes(b []byte) *Notification {
	var seen [2]bool
	for len(b) > 0 {
		kind, value, rest, ok := attribute(b)
		if !ok {
			c.malformed = true
			return nil
		}
		b = rest
		if kind != attrReach && kind != attrUnreach {
			continue
		}
		if seen[kind-attrReach] { // RFC 7606 3 (g)
			return &Notification{Code: codeUpdate, Subcode: updateAttributes}
		}
		seen[kind-attrReach] = true
		if !c.multiprotocol(kind, value) {
			return &Notification{Code: codeUpdate, Subcode: 9}
		}
	}
	return nil
}

// attribute splits off the attribute at the start of b.
func attribute(b []byte) (kind byte, value, rest []byte, ok bool) {
	if len(b) < 3 {
		return 0, nil, nil, false
	}
	n, head := int(b[2]), 3
	if b[0]&flagExtended != 0 {
		if len(b) < 4 {
			return 0, nil, nil, false
		}
		n, head = int(binary.BigEndian.Uint16(b[2:])), 4
	}
	if len(b) < head+n {
		return 0, nil, nil, false
	}
	return b[1], b[head : head+n], b[head+n:], true
}

// multiprotocol reads MP_REACH_NLRI or MP_UNREACH_NLRI (RFC 4760). Families that the speaker does not know are passed over.
func (c *change) multiprotocol(kind byte, b []byte) (ok bool) {
	if len(b) < 3 {
		return false
	}
	f, is := known(binary.BigEndian.Uint16(b), b[2])
	b = b[3:]
	if kind == attrReach {
		if len(b) < 1 || len(b) < 1+int(b[0])+1 {
			return false
		}
		b = b[1+int(b[0])+1:]
	}
	switch {
	case !is:
		return true
	case kind == attrReach:
		c.announced, ok = prefixes(c.announced, b, f)
	default:
		c.withdrawn, ok = prefixes(c.withdrawn, b, f)
	}
	return ok
}

// prefixes appends the prefixes of a family that b holds to list.
func prefixes(list []netip.Prefix, b []byte, f Family) (_ []netip.Prefix, ok bool) {
	most := 32
	if f == IPv6 {
		most = 128
	}
	for len(b) > 0 {
		bits := int(b[0])
		n := (bits + 7) / 8
		if bits > most || len(b) < 1+n {
			return list, false
		}
		var a [16]byte
		copy(a[:], b[1:1+n])
		addr := netip.AddrFrom16(a)
		if f == IPv4 {
			addr = netip.AddrFrom4([4]byte(a[:4]))
		}
		list, b = append(list, netip.PrefixFrom(addr, bits).Masked()), b[1+n:]
	}
	return list, true
}
