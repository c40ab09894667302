package bgp

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Community is a community of a route (RFC 1997), as "AS:VALUE" or a well-known name.
type Community uint32

// Well-known communities: RFC 1997, RFC 7999 and RFC 8326.
const (
	GracefulShutdown  Community = 0xffff0000
	Blackhole         Community = 0xffff029a
	NoExport          Community = 0xffffff01
	NoAdvertise       Community = 0xffffff02
	NoExportSubconfed Community = 0xffffff03
)

var wellKnown = map[string]Community{
	"blackhole": Blackhole, "no-export": NoExport, "no-advertise": NoAdvertise, "no-export-subconfed": NoExportSubconfed,
}

// String returns the community as ParseCommunity reads it, or "graceful-shutdown".
func (c Community) String() string {
	for name, v := range wellKnown {
		if v == c {
			return name
		}
	}
	if c == GracefulShutdown {
		return "graceful-shutdown"
	}
	return fmt.Sprintf("%d:%d", c>>16, c&0xffff)
}

// LargeCommunity is a large community (RFC 8092): the AS that defines it, and two numbers.
type LargeCommunity [3]uint32

// String returns the community as ParseCommunity reads it.
func (c LargeCommunity) String() string { return fmt.Sprintf("%d:%d:%d", c[0], c[1], c[2]) }

// Communities are those of a route.
type Communities struct {
	Standard []Community
	Large    []LargeCommunity
}

// Parse adds a community: "65000:1", "65000:1:2", or a well-known one by its name. The speaker itself adds graceful-shutdown.
func (c *Communities) Parse(s string) error {
	if v, ok := wellKnown[s]; ok {
		c.Standard = append(c.Standard, v)
		return nil
	}
	parts := strings.Split(s, ":")
	bits := map[int]int{2: 16, 3: 32}[len(parts)]
	if bits == 0 {
		return fmt.Errorf("%q is no community", s)
	}
	var list []uint32
	for _, p := range parts {
		v, err := strconv.ParseUint(p, 10, bits)
		if err != nil || p[0] == '+' {
			return fmt.Errorf("%q in the community %q is no number of %d bits", p, s, bits)
		}
		list = append(list, uint32(v))
	}
	if len(list) == 3 {
		c.Large = append(c.Large, LargeCommunity(list))
		return nil
	}
	v := Community(list[0]<<16 | list[1])
	if v == GracefulShutdown {
		return fmt.Errorf("%q is graceful-shutdown, which the speaker sets itself", s)
	}
	c.Standard = append(c.Standard, v)
	return nil
}

// Route is an announced prefix with its attributes.
type Route struct {
	Prefix      netip.Prefix
	MED         uint32 // with HasMED
	HasMED      bool
	LocalPref   uint32 // to peers of the same AS
	Prepend     int    // how often the own AS stands in the path beside once, to peers of another AS
	Communities Communities

	// Shutdown marks a route that will be withdrawn soon, so that routers prefer another one (RFC 8326).
	Shutdown bool
}

// Flags of attributes (RFC 4271 4.3).
const (
	flagOptional   = 0x80
	flagTransitive = 0x40
	flagExtended   = 0x10
)

// Types of attributes.
const (
	attrOrigin      = 1
	attrASPath      = 2
	attrNextHop     = 3
	attrMED         = 4
	attrLocalPref   = 5
	attrCommunities = 8
	attrReach       = 14 // RFC 4760 3
	attrUnreach     = 15 // RFC 4760 4
	attrAS4Path     = 17 // RFC 6793 3
	attrLarge       = 32 // RFC 8092 3

	segmentSequence = 2 // AS_SEQUENCE
)

// appendAttr appends an attribute.
func appendAttr(b []byte, flags, kind byte, value []byte) []byte {
	if len(value) > 255 {
		b = append(b, flags|flagExtended, kind, byte(len(value)>>8), byte(len(value)))
	} else {
		b = append(b, flags, kind, byte(len(value)))
	}
	return append(b, value...)
}

// attributes renders the attributes of a route for a session, in the order of their types (RFC 4271 5, appendix F.4), without
// MP_REACH_NLRI. Of IPv4 routes the next hop is among them.
func (r *Route) attributes(local uint32, peer *negotiated, nextHop netip.Addr) []byte {
	b := appendAttr(nil, flagTransitive, attrOrigin, []byte{0}) // IGP
	path := r.path(local, peer)
	b = appendAttr(b, flagTransitive, attrASPath, appendPath(nil, path, peer.fourAS))
	if nextHop.Is4() {
		b = appendAttr(b, flagTransitive, attrNextHop, nextHop.AsSlice())
	}
	if r.HasMED {
		b = appendAttr(b, flagOptional, attrMED, binary.BigEndian.AppendUint32(nil, r.MED))
	}
	standard := slices.Clone(r.Communities.Standard)
	pref := r.LocalPref
	if r.Shutdown { // RFC 8326 4.3: the community, and the lowest preference inside the AS
		standard, pref = append(standard, GracefulShutdown), 0
	}
	if peer.internal {
		b = appendAttr(b, flagTransitive, attrLocalPref, binary.BigEndian.AppendUint32(nil, pref))
	}
	if len(standard) > 0 {
		var v []byte
		for _, c := range standard {
			v = binary.BigEndian.AppendUint32(v, uint32(c))
		}
		b = appendAttr(b, flagOptional|flagTransitive, attrCommunities, v)
	}
	if !peer.fourAS && slices.ContainsFunc(path, func(as uint32) bool { return as > 0xffff }) {
		b = appendAttr(b, flagOptional|flagTransitive, attrAS4Path, appendPath(nil, path, true))
	}
	if len(r.Communities.Large) > 0 {
		var v []byte
		for _, c := range r.Communities.Large {
			for _, part := range c {
				v = binary.BigEndian.AppendUint32(v, part)
			}
		}
		b = appendAttr(b, flagOptional|flagTransitive, attrLarge, v)
	}
	return b
}

// path returns the AS path: empty inside the AS (RFC 4271 5.1.2).
func (r *Route) path(local uint32, peer *negotiated) []uint32 {
	if peer.internal {
		return nil
	}
	return slices.Repeat([]uint32{local}, 1+r.Prepend)
}

// appendPath appends a path as one sequence. Numbers of four octets are asTrans where two have room (RFC 6793 4.2.2).
func appendPath(b []byte, path []uint32, four bool) []byte {
	if len(path) == 0 {
		return b
	}
	b = append(b, segmentSequence, byte(len(path)))
	for _, as := range path {
		switch {
		case four:
			b = binary.BigEndian.AppendUint32(b, as)
		case as > 0xffff:
			b = binary.BigEndian.AppendUint16(b, asTrans)
		default:
			b = binary.BigEndian.AppendUint16(b, uint16(as))
		}
	}
	return b
}
