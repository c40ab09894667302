package wire

// Types of options in hop-by-hop and destination options headers (IANA registry).
const (
	Option6Pad1        uint8 = 0    // RFC 8200 4.2
	Option6PadN        uint8 = 1    // RFC 8200 4.2
	Option6RouterAlert uint8 = 0x05 // RFC 2711
	Option6Jumbo       uint8 = 0xc2 // RFC 2675
)

// Option6Iter walks the options of an IPv6 hop-by-hop or destination options header.
//
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+- - - - - - - - -
//	|  Option Type  |  Opt Data Len |  Option Data         Opt Data Len counts the data alone
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+- - - - - - - - -
//
// Padding (Pad1, PadN) is skipped. The walk ends at the end of the header, or at an option that goes on
// beyond it; Malformed is then true. RFC 8200 4.2.
type Option6Iter struct {
	rest []byte
	opt  []byte
	bad  bool
}

// Next goes to the next option and reports whether there is one.
func (it *Option6Iter) Next() bool {
	for len(it.rest) > 0 {
		if it.rest[0] == Option6Pad1 {
			it.rest = it.rest[1:]
			continue
		}
		if len(it.rest) < 2 || 2+int(it.rest[1]) > len(it.rest) {
			it.rest, it.bad = nil, true
			return false
		}
		n := 2 + int(it.rest[1])
		it.opt, it.rest = it.rest[:n], it.rest[n:]
		if it.opt[0] != Option6PadN {
			return true
		}
	}
	return false
}

// Type returns the type of the current option. Its top two bits select what a node that does not know it
// does: 0 skips it, others drop the packet (RFC 8200 4.2).
func (it *Option6Iter) Type() uint8 { return it.opt[0] }

// Data borrows the data of the current option.
func (it *Option6Iter) Data() []byte { return it.opt[2:] }

// Malformed reports whether the walk ended at an option that contradicts the bytes.
func (it *Option6Iter) Malformed() bool { return it.bad }

// Routing6 is a view of an IPv6 routing header.
//
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|  Next Header  |  Hdr Ext Len  |  Routing Type | Segments Left |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                       type-specific data                      |
//
// RFC 8200 4.4.
type Routing6 []byte

// Valid reports whether the header is there.
func (b Routing6) Valid() bool { return len(b) >= 8 && (int(b[1])+1)*8 <= len(b) }

// Type returns the routing type: 2 mobility (RFC 6275), 4 segment routing (RFC 8754); 0 is forbidden
// (RFC 5095).
func (b Routing6) Type() uint8 { return b[2] }

// SegmentsLeft returns the nodes still to be visited. Unless it is 0, the destination address is not the
// final one that transport checksums cover (RFC 8200 8.1).
func (b Routing6) SegmentsLeft() uint8 { return b[3] }

// Data borrows the bytes that depend on the type.
func (b Routing6) Data() []byte { return b[4 : (int(b[1])+1)*8] }
