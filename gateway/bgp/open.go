package bgp

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// Family is an address family of routes; the subsequent family is unicast.
type Family uint8

// The families, by their numbers in the protocol (AFI).
const (
	IPv4 Family = 1
	IPv6 Family = 2
)

// String returns the name of the family as the configuration has it.
func (f Family) String() string {
	if f == IPv4 {
		return "ipv4"
	}
	return "ipv6"
}

// familyOf returns the family of an address.
func familyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// families is a set of families.
type families uint8

func (s families) has(f Family) bool      { return s&(1<<f) != 0 }
func (s families) with(f Family) families { return s | 1<<f }
func (s families) each(yield func(Family) bool) {
	for _, f := range []Family{IPv4, IPv6} {
		if s.has(f) && !yield(f) {
			return
		}
	}
}

// Codes of capabilities, and the parameter of OPEN that holds them (RFC 5492).
const (
	paramCapabilities = 2
	paramExtended     = 255 // RFC 9072 2
	capMultiprotocol  = 1   // RFC 4760 8
	capRefresh        = 2   // RFC 2918 2
	capRestart        = 64  // RFC 4724 3
	capFourOctetAS    = 65  // RFC 6793 3

	safiUnicast = 1
	asTrans     = 23456 // stands for an AS number of four octets where two have room (RFC 6793 9)
	bgpVersion  = 4
)

// open is an OPEN message.
type open struct {
	AS       uint32 // the one of four octets, where the peer has it
	HoldTime uint16 // seconds; 0 is none
	ID       netip.Addr
	Families families // of multiprotocol capabilities
	FourAS   bool
	Refresh  bool
	Restart  bool // it has the capability of graceful restart

	RestartTime uint16   // seconds, 12 bits
	Restarting  bool     // it has restarted
	Preserved   families // whose routes it keeps, or has kept, over a restart
}

// append appends the message.
func (o *open) append(b []byte) []byte {
	start, as := len(b), uint16(asTrans)
	if o.AS <= 0xffff {
		as = uint16(o.AS)
	}
	b = append(beginMessage(b, typeOpen), bgpVersion)
	b = binary.BigEndian.AppendUint16(b, as)
	b = binary.BigEndian.AppendUint16(b, o.HoldTime)
	b = append(b, o.ID.AsSlice()...)
	b = append(b, 0, paramCapabilities, 0)
	at := len(b)
	o.Families.each(func(f Family) bool {
		b = append(b, capMultiprotocol, 4, 0, byte(f), 0, safiUnicast)
		return true
	})
	if o.Refresh {
		b = append(b, capRefresh, 0)
	}
	if o.FourAS {
		b = binary.BigEndian.AppendUint32(append(b, capFourOctetAS, 4), o.AS)
	}
	if o.Restart {
		b = o.appendRestart(b)
	}
	b[at-1], b[at-3] = byte(len(b)-at), byte(len(b)-at+2)
	return endMessage(b, start)
}

// appendRestart appends the capability of graceful restart (RFC 4724 3): the bit R and 12 bits of seconds, then for each family its
// numbers and the bit F.
func (o *open) appendRestart(b []byte) []byte {
	b = append(b, capRestart, 0)
	at, flags := len(b), o.RestartTime&0xfff
	if o.Restarting {
		flags |= 0x8000
	}
	b = binary.BigEndian.AppendUint16(b, flags)
	o.Preserved.each(func(f Family) bool {
		b = append(b, 0, byte(f), safiUnicast, 0x80)
		return true
	})
	b[at-1] = byte(len(b) - at)
	return b
}

// parseOpen parses the body of a message, which the reader has found to have 10 octets at least.
func parseOpen(body []byte) (*open, *Notification) {
	if body[0] != bgpVersion {
		return nil, &Notification{Code: codeOpen, Subcode: openVersion, Data: []byte{0, bgpVersion}}
	}
	o := &open{AS: uint32(binary.BigEndian.Uint16(body[1:])), HoldTime: binary.BigEndian.Uint16(body[3:]), ID: netip.AddrFrom4([4]byte(body[5:9]))}
	params, long, ok := parameters(body[9:])
	if !ok {
		return nil, &Notification{Code: codeOpen}
	}
	for len(params) > 0 {
		var value []byte
		kind := params[0]
		if value, params, ok = tlv(params, long); !ok {
			return nil, &Notification{Code: codeOpen}
		}
		if kind != paramCapabilities {
			return nil, &Notification{Code: codeOpen, Subcode: openParameter}
		}
		if !o.capabilities(value) {
			return nil, &Notification{Code: codeOpen}
		}
	}
	if o.Families == 0 {
		o.Families = families(0).with(IPv4) // RFC 4760 8: without the capability a speaker has IPv4 unicast alone
	}
	return o, nil
}

// parameters returns the optional parameters of an OPEN, and whether their lengths have two octets (RFC 9072 2).
func parameters(b []byte) (params []byte, long, ok bool) {
	if len(b) >= 4 && b[0] == paramExtended && b[1] == paramExtended {
		return b[4:], true, len(b)-4 == int(binary.BigEndian.Uint16(b[2:]))
	}
	return b[1:], false, len(b)-1 == int(b[0])
}

// tlv returns the value of the parameter or capability at the start of b, and what follows.
func tlv(b []byte, long bool) (value, rest []byte, ok bool) {
	head := 2
	if long {
		head = 3
	}
	if len(b) < head {
		return nil, nil, false
	}
	n := int(b[1])
	if long {
		n = int(binary.BigEndian.Uint16(b[1:]))
	}
	if b = b[head:]; len(b) < n {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}

// capabilities enters the capabilities of a parameter. Unknown ones are ignored (RFC 5492 4); it returns false where one does not
// have the length of its kind.
func (o *open) capabilities(b []byte) bool {
	for len(b) > 0 {
		kind := b[0]
		value, rest, ok := tlv(b, false)
		if b = rest; !ok {
			return false
		}
		switch kind {
		case capMultiprotocol:
			if len(value) != 4 {
				return false
			}
			if f, ok := known(binary.BigEndian.Uint16(value), value[3]); ok {
				o.Families = o.Families.with(f)
			}
		case capRefresh:
			o.Refresh = true
		case capFourOctetAS:
			if len(value) != 4 {
				return false
			}
			o.FourAS, o.AS = true, binary.BigEndian.Uint32(value)
		case capRestart:
			if !o.restart(value) {
				return false
			}
		}
	}
	return true
}

// restart enters the capability of graceful restart.
func (o *open) restart(b []byte) bool {
	if len(b) < 2 || len(b)%4 != 2 {
		return false
	}
	flags := binary.BigEndian.Uint16(b)
	o.Restart, o.Restarting, o.RestartTime = true, flags&0x8000 != 0, flags&0xfff
	for b = b[2:]; len(b) > 0; b = b[4:] {
		if f, ok := known(binary.BigEndian.Uint16(b), b[2]); ok {
			o.Preserved = o.Preserved.with(f)
		}
	}
	return true
}

// known returns the family with these numbers, false for one that the speaker does not know.
func known(afi uint16, safi uint8) (Family, bool) {
	return Family(afi), (afi == uint16(IPv4) || afi == uint16(IPv6)) && safi == safiUnicast
}

// check compares the OPEN of a peer with what is configured (RFC 4271 6.2).
func (o *open) check(local *Config, p *Peer) *Notification {
	switch {
	case o.AS != p.AS:
		return &Notification{Code: codeOpen, Subcode: openPeerAS}
	case o.ID.IsUnspecified(), o.ID == local.RouterID: // RFC 6286 2.2
		return &Notification{Code: codeOpen, Subcode: openIdentifier}
	case o.HoldTime == 1 || o.HoldTime == 2:
		return &Notification{Code: codeOpen, Subcode: openHoldTime}
	}
	return nil
}

// holdTime returns the shorter of two hold times, 0 for none (RFC 4271 4.2).
func holdTime(ours time.Duration, theirs uint16) time.Duration {
	return min(ours, time.Duration(theirs)*time.Second)
}
