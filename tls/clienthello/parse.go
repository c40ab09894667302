package clienthello

import "encoding/binary"

const (
	maxNameLen    = 255 // of a DNS name, in text
	maxExtensions = 256 // browsers send about 20
)

// reader takes the elements of a message off its front; an element that does not fit is reported once.
type reader []byte

// take removes n bytes.
func (r *reader) take(n int) (b []byte, ok bool) {
	if n > len(*r) {
		return nil, false
	}
	b, *r = (*r)[:n:n], (*r)[n:]
	return b, true
}

// take8 removes a vector whose length has 8 bits.
func (r *reader) take8() (b []byte, ok bool) {
	if len(*r) < 1 {
		return nil, false
	}
	n := 1 + int((*r)[0])
	if b, ok = r.take(n); ok {
		b = b[1:]
	}
	return b, ok
}

// take16 removes a vector whose length has 16 bits.
func (r *reader) take16() (b []byte, ok bool) {
	if len(*r) < 2 {
		return nil, false
	}
	n := 2 + int(binary.BigEndian.Uint16(*r))
	if b, ok = r.take(n); ok {
		b = b[2:]
	}
	return b, ok
}

// ParseMessage parses a ClientHello without records, its handshake header included, into h. It
// returns ErrIncomplete while b is cut. What follows the message is ignored.
//
//	type(1)=1 length(3) version(2) random(32) session_id<0..32> cipher_suites<2..> compression<1..> extensions<0..>
func ParseMessage(b []byte, h *Hello) error {
	switch n, err := messageLen(b); {
	case err != nil:
		return err
	case len(b) < 4+n:
		return ErrIncomplete
	default:
		return h.parse(b[4 : 4+n])
	}
}

// messageLen returns the length of a message after its header of 4 bytes.
func messageLen(b []byte) (int, error) {
	if len(b) > 0 && b[0] != typeClientHello {
		return 0, errMessageType
	}
	if len(b) < 4 {
		return 0, ErrIncomplete
	}
	return int(b[1])<<16 | int(b[2])<<8 | int(b[3]), nil
}

// parse parses the body of a ClientHello (RFC 8446 4.1.2).
func (h *Hello) parse(body []byte) error {
	h.reset()
	r := reader(body)
	fixed, ok := r.take(2 + 32)
	if !ok {
		return errShort
	}
	h.Version, h.Random = binary.BigEndian.Uint16(fixed), fixed[2:]
	if h.SessionID, ok = r.take8(); !ok || len(h.SessionID) > 32 {
		return errSessionID
	}
	suites, ok := r.take16()
	if !ok || len(suites)%2 != 0 || len(suites) == 0 {
		return errSuites
	}
	h.Suites = suites
	if h.Compression, ok = r.take8(); !ok || len(h.Compression) == 0 {
		return errCompression
	}
	if len(r) == 0 {
		return nil // TLS 1.2 and older need no extensions (RFC 5246 7.4.1.2)
	}
	if h.extensions, ok = r.take16(); !ok {
		return errShort
	}
	if len(r) != 0 {
		return errTrailing
	}
	return h.parseExtensions()
}

// reset forgets the hello before; the room for a name stays as it is.
func (h *Hello) reset() {
	h.Version, h.Random, h.SessionID, h.Suites, h.Compression = 0, nil, nil, nil, nil
	h.ServerName, h.ALPN, h.Versions, h.Groups, h.PointFormats, h.Signatures = nil, nil, nil, nil, nil, nil
	h.HasServerName, h.EarlyData, h.ECH, h.PreSharedKey = false, false, false, false
	h.extensions, h.extensionsCount = nil, 0
}

// parseExtensions checks the block of extensions and reads those that the package knows.
func (h *Hello) parseExtensions() error {
	var seen typeSet
	for r := reader(h.extensions); len(r) > 0; {
		head, ok := r.take(2)
		if !ok {
			return errExtension
		}
		data, ok := r.take16()
		if !ok {
			return errExtension
		}
		typ := binary.BigEndian.Uint16(head)
		if h.extensionsCount++; h.extensionsCount > maxExtensions {
			return errExtensions
		}
		if !seen.add(typ) {
			return errDuplicate // RFC 8446 4.2: no more than one of a type
		}
		if typ == extPreSharedKey && len(r) > 0 {
			return errPSKNotLast // RFC 8446 4.2.11
		}
		if err := h.parseExtension(typ, data); err != nil {
			return err
		}
	}
	return nil
}

// parseExtension reads an extension. It returns *Error as error only when there is one.
func (h *Hello) parseExtension(typ uint16, data []byte) error {
	var ok bool
	switch typ {
	case extServerName:
		return h.parseServerName(data)
	case extALPN:
		if h.ALPN, ok = alpnList(data); !ok {
			return errALPN
		}
	case extSupportedVersions:
		if h.Versions, ok = list8(data); !ok {
			return errVersions
		}
	case extSupportedGroups:
		if h.Groups, ok = list16(data); !ok {
			return errGroups
		}
	case extSignatures:
		if h.Signatures, ok = list16(data); !ok {
			return errSignatures
		}
	case extPointFormats:
		r := reader(data)
		if h.PointFormats, ok = r.take8(); !ok || len(r) != 0 || len(h.PointFormats) == 0 {
			return errPoints
		}
	case extEarlyData:
		h.EarlyData = true
	case extPreSharedKey:
		h.PreSharedKey = true
	case extECH:
		h.ECH = true
	}
	return nil
}

// list16 is a non-empty list of 16-bit values whose length has 16 bits.
func list16(data []byte) (List16, bool) {
	r := reader(data)
	l, ok := r.take16()
	return l, ok && len(r) == 0 && len(l) > 0 && len(l)%2 == 0
}

// list8 is a non-empty list of 16-bit values whose length has 8 bits.
func list8(data []byte) (List16, bool) {
	r := reader(data)
	l, ok := r.take8()
	return l, ok && len(r) == 0 && len(l) > 0 && len(l)%2 == 0
}

// alpnList is a list of names; neither the list nor a name may be empty (RFC 7301 3.1).
func alpnList(data []byte) (ALPN, bool) {
	r := reader(data)
	l, ok := r.take16()
	if !ok || len(r) != 0 || len(l) == 0 {
		return nil, false
	}
	for names := reader(l); len(names) > 0; {
		if name, ok := names.take8(); !ok || len(name) == 0 {
			return nil, false
		}
	}
	return l, true
}

// parseServerName reads the host name; of each type there is one at most (RFC 6066 3).
func (h *Hello) parseServerName(data []byte) error {
	r := reader(data)
	names, ok := r.take16()
	if !ok || len(r) != 0 || len(names) == 0 {
		return errServerName
	}
	h.HasServerName = true
	for r = names; len(r) > 0; {
		typ, _ := r.take(1)
		name, ok := r.take16()
		if !ok {
			return errServerName
		}
		if typ[0] != 0 {
			continue // not a host name
		}
		if len(name) == 0 || len(h.ServerName) > 0 {
			return errServerName
		}
		if h.ServerName, ok = h.lowerName(name); !ok {
			return errHostName
		}
	}
	return nil
}

// SentServerName returns the host name of a ClientHello, without its handshake header, as it was sent: in any case, and whether
// or not it could be a name in DNS. It is for rules on what is sent; ParseMessage reports whether the message is valid. nil is none.
func SentServerName(body []byte) []byte {
	r := reader(body)
	_, fixed := r.take(2 + 32)
	_, session := r.take8()
	_, suites := r.take16()
	_, compression := r.take8()
	if _, ok := r.take(2); !fixed || !session || !suites || !compression || !ok {
		return nil
	}
	for {
		typ, _ := r.take(2)
		data, ok := r.take16()
		if !ok {
			return nil
		}
		names := reader(data)
		if binary.BigEndian.Uint16(typ) != extServerName || len(names) <= 5 || names[2] != 0 {
			continue
		}
		_, _ = names.take(2 + 1) // the length of the list, and the type of its first name: a host's (RFC 6066 3)
		if name, ok := names.take16(); ok {
			return name
		}
		return names[2:] // which says that it is longer than the extension
	}
}

// lowerName returns a host name in lower case. It refuses what could not be a name in DNS and might
// harm a log or a comparison: controls, spaces, bytes beyond ASCII, a dot at the end.
func (h *Hello) lowerName(name []byte) ([]byte, bool) {
	if len(name) > maxNameLen || name[len(name)-1] == '.' {
		return nil, false
	}
	capitals := false
	for _, c := range name {
		if c <= ' ' || c >= 0x7f {
			return nil, false
		}
		capitals = capitals || 'A' <= c && c <= 'Z'
	}
	if !capitals {
		return name, true
	}
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		h.lower[i] = c
	}
	return h.lower[:len(name)], true
}

// typeSet is a set of extension types: a bit for each low one, where nearly all are, and a list of
// the others.
type typeSet struct {
	low   uint64
	high  [maxExtensions]uint16
	count int
}

// add adds a type, and reports false if the set has it.
func (s *typeSet) add(typ uint16) bool {
	if typ < 64 {
		had := s.low&(1<<typ) != 0
		s.low |= 1 << typ
		return !had
	}
	for _, t := range s.high[:s.count] {
		if t == typ {
			return false
		}
	}
	s.high[s.count] = typ
	s.count++
	return true
}
