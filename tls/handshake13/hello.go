package handshake13

import (
	"bytes"
	"encoding/binary"

	"github.com/millrace/millrace/tls/clienthello"
)

// Extension types (IANA, TLS ExtensionType Values).
const (
	extServerName          = 0
	extStatusRequest       = 5
	extALPN                = 16
	extSCT                 = 18
	extExtendedMasterKey   = 23
	extPreSharedKey        = 41
	extEarlyData           = 42
	extSupportedVersions   = 43
	extCookie              = 44
	extPSKModes            = 45
	extSignaturesOfCerts   = 50
	extKeyShare            = 51
	extQUICParameters      = 57
	extECH                 = 0xfe0d
	extRenegotiation       = 0xff01
	maxIdentities          = 5 // of sessions that are tried, as in crypto/tls
	pskWithDHE             = 1 // psk_dhe_ke (RFC 8446 4.2.9)
	versionTLS13           = 0x0304
	statusOCSP             = 1
	outerHello             = 0 // of encrypted_client_hello (RFC 9849 5)
	messageHeader          = 4
	maxNameOfHost          = 255
	hostName               = 0 // NameType (RFC 6066 3)
	serverNameBeforeString = 5 // length of the list, type, length of the name
)

// Hello is a ClientHello, as far as a server of TLS 1.3 needs it. Its slices alias the message.
type Hello struct {
	clienthello.Hello
	SentName   []byte // server_name as it was sent: crypto/tls does not change its case
	OCSP, SCT  bool   // the client takes OCSP responses, and signed certificate timestamps
	HasECH     bool
	modes      []byte // psk_key_exchange_modes
	shares     []byte // of key_share, checked
	identities []byte // of pre_shared_key, checked
	binders    []byte // the same
	bindersAt  int    // where the message has the length of the list of binders
}

// reader takes elements off the front of a content.
type reader []byte

// vector removes a vector whose length has width bytes.
func (r *reader) vector(width int) (v []byte, ok bool) {
	b := *r
	if len(b) < width {
		return nil, false
	}
	n := 0
	for _, c := range b[:width] {
		n = n<<8 | int(c)
	}
	if len(b) < width+n {
		return nil, false
	}
	*r = b[width+n:]
	return b[width : width+n : width+n], true
}

// skip removes n bytes.
func (r *reader) skip(n int) bool {
	if len(*r) < n {
		return false
	}
	*r = (*r)[n:]
	return true
}

// only returns the content of a vector that is all there is.
func only(data []byte, width int) ([]byte, bool) {
	r := reader(data)
	v, ok := r.vector(width)
	return v, ok && len(r) == 0
}

// parse reads a whole message. What crypto/tls would refuse, or treat in another way than this package, has a reason: it
// may refuse more, but never less.
func (h *Hello) parse(message []byte) Reason {
	*h = Hello{Hello: h.Hello}
	if err := clienthello.ParseMessage(message, &h.Hello); err != nil {
		return Malformed
	}
	if n := int(message[1])<<16 | int(message[2])<<8 | int(message[3]); len(message) != messageHeader+n {
		return Malformed
	}
	for typ, data := range h.Extensions {
		if r := h.extension(typ, data); r != Accepted {
			return r
		}
	}
	if h.identities != nil {
		// pre_shared_key is the last extension (RFC 8446 4.2.11), and its list of binders is its end.
		h.bindersAt = len(message) - len(h.binders) - 2
	}
	switch {
	case !h.Versions.Contains(versionTLS13):
		return OtherVersion
	case len(h.Compression) != 1 || h.Compression[0] != 0:
		return OtherHello
	}
	return Accepted
}

// extension checks an extension as strictly as crypto/tls does.
func (h *Hello) extension(typ uint16, data []byte) Reason {
	ok := true
	switch typ {
	case extServerName:
		ok = h.serverName(data)
	case extStatusRequest:
		r := reader(data)
		ok = r.skip(1)
		_, ok1 := r.vector(2)
		_, ok2 := r.vector(2)
		ok = ok && ok1 && ok2 && len(r) == 0
		h.OCSP = ok && data[0] == statusOCSP
	case extSCT, extExtendedMasterKey:
		ok = len(data) == 0
		h.SCT = h.SCT || typ == extSCT
	case extSignaturesOfCerts:
		v, whole := only(data, 2)
		ok = whole && len(v) > 0 && len(v)%2 == 0
	case extRenegotiation:
		if v, whole := only(data, 1); whole && len(v) > 0 {
			return OtherHello
		} else if !whole {
			return Malformed
		}
	case extPSKModes:
		h.modes, ok = only(data, 1)
	case extKeyShare:
		ok = h.keyShares(data)
	case extPreSharedKey:
		ok = h.preSharedKey(data)
	case extECH:
		return h.encrypted(data)
	case extEarlyData:
		return EarlyData
	case extCookie, extQUICParameters:
		return OtherHello
	}
	if !ok {
		return Malformed
	}
	return Accepted
}

// serverName takes a list of one host name, which is what clients send.
func (h *Hello) serverName(data []byte) bool {
	if len(data) <= serverNameBeforeString || data[2] != hostName {
		return false
	}
	list, ok := only(data, 2)
	if !ok {
		return false
	}
	h.SentName, ok = only(list[1:], 2)
	return ok && len(h.SentName) > 0 && len(h.SentName) <= maxNameOfHost
}

// keyShares checks a list of groups and keys (RFC 8446 4.2.8).
func (h *Hello) keyShares(data []byte) bool {
	list, ok := only(data, 2)
	if !ok {
		return false
	}
	for r := reader(list); len(r) > 0; {
		if !r.skip(2) {
			return false
		}
		if key, ok := r.vector(2); !ok || len(key) == 0 {
			return false
		}
	}
	h.shares = list
	return true
}

// share returns the first key of a group, nil if there is none.
func (h *Hello) share(group uint16) []byte {
	for r := reader(h.shares); len(r) > 0; {
		is := binary.BigEndian.Uint16(r) == group
		r.skip(2)
		if key, _ := r.vector(2); is {
			return key
		}
	}
	return nil
}

// preSharedKey checks a list of sessions, and one of as many binders (RFC 8446 4.2.11).
func (h *Hello) preSharedKey(data []byte) bool {
	r := reader(data)
	var ok1, ok2 bool
	h.identities, ok1 = r.vector(2)
	h.binders, ok2 = r.vector(2)
	if !ok1 || !ok2 || len(r) > 0 || len(h.identities) == 0 || len(h.binders) == 0 {
		return false
	}
	n := 0
	for r := reader(h.identities); len(r) > 0; n++ {
		if ticket, ok := r.vector(2); !ok || len(ticket) == 0 || !r.skip(4) { // obfuscated_ticket_age
			return false
		}
	}
	for r := reader(h.binders); len(r) > 0; n-- {
		if binder, ok := r.vector(1); !ok || len(binder) == 0 {
			return false
		}
	}
	return n == 0
}

// Tickets iterates over the tickets that are tried: those of a client that agrees to a key exchange beside them.
func (h *Hello) Tickets(yield func(i int, ticket []byte) bool) {
	if !bytes.Contains(h.modes, []byte{pskWithDHE}) {
		return
	}
	r := reader(h.identities)
	for i := 0; len(r) > 0 && i < maxIdentities; i++ {
		ticket, _ := r.vector(2)
		r.skip(4)
		if !yield(i, ticket) {
			return
		}
	}
}

// binder returns binder i, which there is.
func (h *Hello) binder(i int) []byte {
	r := reader(h.binders)
	for range i {
		r.vector(1)
	}
	v, _ := r.vector(1)
	return v
}

// encrypted checks encrypted_client_hello of an outer hello (RFC 9849 5): type, cipher suite, config ID, encapsulated key,
// payload. An inner one changes the handshake.
func (h *Hello) encrypted(data []byte) Reason {
	h.HasECH = true
	if len(data) == 0 || data[0] != outerHello {
		return EncryptedHello
	}
	r := reader(data)
	ok := r.skip(1 + 4 + 1)
	_, ok1 := r.vector(2)
	_, ok2 := r.vector(2)
	if !ok || !ok1 || !ok2 {
		return Malformed
	}
	return Accepted
}
