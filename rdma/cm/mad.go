package cm

import "encoding/binary"

// Constants of the datagrams that carry messages.
const (
	QPN    = 1          // of the general service interface, which takes messages (3.5.9.2)
	QKey   = 0x80010000 // of all datagrams to it (10.2.5)
	MADLen = 256        // bytes of every management datagram (13.4.2)

	headerLen = 24
)

// A management datagram begins with a common header (13.4.2):
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------+---------------+---------------+---------------+
//	| BaseVersion 1 |  MgmtClass 7  |ClassVersion 2 |R|   Method 3  |
//	+---------------+---------------+---------------+---------------+
//	|           Status              |         ClassSpecific         |
//	+-------------------------------+-------------------------------+
//	|                         TransactionID                         |
//	|                                                               |
//	+-------------------------------+-------------------------------+
//	|          AttributeID          |           Reserved            |
//	+-------------------------------+-------------------------------+
//	|                       AttributeModifier                       |
//	+---------------------------------------------------------------+
const (
	baseVersion  = 1
	mgmtClass    = 7 // communication management
	classVersion = 2
	methodSend   = 3 // the only method of messages (16.7)
)

// Kind is the kind of a message: its attribute ID (16.7.3).
type Kind uint16

// The kinds.
const (
	REQ     Kind = 0x10 // connection request
	MRA     Kind = 0x11 // message receipt acknowledgement
	REJ     Kind = 0x12 // rejection
	REP     Kind = 0x13 // reply
	RTU     Kind = 0x14 // ready to use
	DREQ    Kind = 0x15 // disconnection request
	DREP    Kind = 0x16 // and its reply
	SIDRREQ Kind = 0x17 // service ID resolution request, of datagrams
	SIDRREP Kind = 0x18
)

// String returns the specification's name.
func (k Kind) String() string {
	if k < REQ || k > SIDRREP {
		return "unknown"
	}
	return [...]string{"REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP"}[k-REQ]
}

// PrivateLen returns the bytes of private data that a message of the kind has, used or not (tables 106 to 120).
func (k Kind) PrivateLen() int {
	if k < REQ || k > SIDRREP {
		return 0
	}
	return MADLen - headerLen - privateAt[k-REQ]
}

// privateAt holds the place of the private data behind the header.
var privateAt = [...]int{
	REQ - REQ: 140, MRA - REQ: 10, REJ - REQ: 84, REP - REQ: 36, RTU - REQ: 8, DREQ - REQ: 12, DREP - REQ: 8, SIDRREQ - REQ: 16, SIDRREP - REQ: 96,
}

// parseHeader checks the header of a datagram.
func parseHeader(b []byte) (k Kind, tid uint64, why Reason) {
	be := binary.BigEndian
	switch {
	case len(b) < MADLen:
		return 0, 0, Truncated
	case b[0] != baseVersion || b[1] != mgmtClass:
		return 0, 0, OtherClass
	case b[2] != classVersion:
		return 0, 0, OtherVersion
	case b[3] != methodSend:
		return 0, 0, OtherMethod
	}
	k = Kind(be.Uint16(b[16:]))
	if k < REQ || k > SIDRREP {
		return k, 0, OtherAttribute
	}
	return k, be.Uint64(b[8:]), Taken
}

// appendHeader appends a header.
func appendHeader(b []byte, k Kind, tid uint64) []byte {
	be := binary.BigEndian
	b = append(b, baseVersion, mgmtClass, classVersion, methodSend, 0, 0, 0, 0)
	b = be.AppendUint64(b, tid)
	b = be.AppendUint16(b, uint16(k))
	return append(b, 0, 0, 0, 0, 0, 0)
}
