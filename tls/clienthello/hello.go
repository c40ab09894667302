package clienthello

import "encoding/binary"

// Extension types (IANA, TLS ExtensionType Values).
const (
	extServerName        = 0
	extSupportedGroups   = 10
	extPointFormats      = 11
	extSignatures        = 13
	extALPN              = 16
	extPreSharedKey      = 41
	extEarlyData         = 42
	extSupportedVersions = 43
	extECH               = 0xfe0d
)

// List16 is a list of 16-bit values as it is on the wire, in network byte order.
type List16 []byte

// Len returns the number of values.
func (l List16) Len() int { return len(l) / 2 }

// At returns value i, which must be less than Len.
func (l List16) At(i int) uint16 { return binary.BigEndian.Uint16(l[2*i:]) }

// Contains reports whether v is in the list.
func (l List16) Contains(v uint16) bool {
	for i := range l.Len() {
		if l.At(i) == v {
			return true
		}
	}
	return false
}

// appendTo appends the values to dst, those of GREASE left out (RFC 8701).
func (l List16) appendTo(dst []uint16) []uint16 {
	for i := range l.Len() {
		if v := l.At(i); !isGREASE(v) {
			dst = append(dst, v)
		}
	}
	return dst
}

// Hello is a ClientHello. Its slices alias the bytes that were parsed, and are valid until these
// change or the Peeker is used again.
type Hello struct {
	Version     uint16 // legacy_version: 0x0303 for TLS 1.2 and 1.3
	Random      []byte // 32 bytes
	SessionID   []byte
	Suites      List16
	Compression []byte

	// Of extensions, empty where the hello does not have them.
	ServerName      []byte // in lower case
	ALPN            ALPN
	Versions        List16 // supported_versions, in the order of the client's preference
	Groups          List16
	PointFormats    []byte
	Signatures      List16 // signature_algorithms
	HasServerName   bool   // the extension is there, if only with names of unknown types
	EarlyData       bool   // 0-RTT data follows
	ECH             bool   // encrypted_client_hello: the server name is that of the outer hello
	PreSharedKey    bool   // the client offers to resume a session
	extensions      []byte // the block of extensions, without its length
	extensionsCount int

	lower [maxNameLen]byte // room for a server name that had capitals
}

// MaxVersion returns the highest version that the client offers, GREASE aside.
func (h *Hello) MaxVersion() uint16 {
	best := uint16(0)
	for i := range h.Versions.Len() {
		if v := h.Versions.At(i); v > best && !isGREASE(v) {
			best = v
		}
	}
	if best == 0 {
		return h.Version // no supported_versions (RFC 8446 4.2.1)
	}
	return best
}

// Extension returns the content of an extension and whether the hello has it.
func (h *Hello) Extension(typ uint16) ([]byte, bool) {
	for e := h.extensions; len(e) >= 4; { // parse has checked the lengths
		n := int(binary.BigEndian.Uint16(e[2:]))
		if binary.BigEndian.Uint16(e) == typ {
			return e[4 : 4+n], true
		}
		e = e[4+n:]
	}
	return nil, false
}

// appendExtensions appends the types of the extensions in their order, those of GREASE left out.
func (h *Hello) appendExtensions(dst []uint16) []uint16 {
	for e := h.extensions; len(e) >= 4; {
		if typ := binary.BigEndian.Uint16(e); !isGREASE(typ) {
			dst = append(dst, typ)
		}
		e = e[4+int(binary.BigEndian.Uint16(e[2:])):]
	}
	return dst
}

// ALPN is a list of protocol names as it is on the wire: each has its length before it (RFC 7301 3.1).
type ALPN []byte

// Next returns the first name and the list without it; the name of an empty list is nil.
func (a ALPN) Next() (name []byte, rest ALPN) {
	if len(a) == 0 {
		return nil, nil
	}
	n := 1 + int(a[0])
	return a[1:n], a[n:]
}

// Contains reports whether the client offers a protocol.
func (a ALPN) Contains(proto string) bool {
	for len(a) > 0 {
		var name []byte
		if name, a = a.Next(); string(name) == proto {
			return true
		}
	}
	return false
}

// isGREASE reports whether a value is reserved for GREASE: 0x0a0a, 0x1a1a, ... 0xfafa (RFC 8701 2).
func isGREASE(v uint16) bool { return v&0x0f0f == 0x0a0a && v>>8 == v&0xff }

// Extensions iterates over the types and contents of all extensions, in their order.
func (h *Hello) Extensions(yield func(typ uint16, data []byte) bool) {
	for e := h.extensions; len(e) >= 4; { // parse has checked the lengths
		n := 4 + int(binary.BigEndian.Uint16(e[2:]))
		if !yield(binary.BigEndian.Uint16(e), e[4:n]) {
			return
		}
		e = e[n:]
	}
}
