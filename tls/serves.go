package tls

import (
	"bytes"
	"slices"
)

// Serves reports whether a certificate that answers clients who ask for serverName is valid for host too: then they may
// send requests for host on the same connection (RFC 9110 7.4, RFC 9113 9.1.1). host is a name, or an address as in a URI.
func (s *Store) Serves(serverName, host string) bool {
	for _, e := range s.answers(serverName) {
		if e.cert.Leaf.VerifyHostname(host) == nil {
			return true
		}
	}
	return false
}

// HasName reports whether there is a certificate for a name, and not only the default one.
func (s *Store) HasName(name string) bool {
	ix := s.index.Load()
	if ix == nil {
		return false
	}
	var lower [maxNameLen]byte
	folded, ok := lowerName(name, &lower)
	return ok && len(ix.named(folded)) > 0
}

// answers returns the certificates of which GetCertificate chooses one for a name.
func (s *Store) answers(serverName string) []*entry {
	ix := s.index.Load()
	if ix == nil {
		return nil
	}
	var lower [maxNameLen]byte
	if name, ok := lowerName(serverName, &lower); ok {
		if list := ix.named(name); list != nil {
			return list
		}
	}
	return ix.defaults
}

// named returns the certificates for a name, those for the name itself before those for a wildcard; nil if there are none.
func (ix *index) named(name []byte) []*entry {
	list := ix.exact[string(name)]
	if dot := bytes.IndexByte(name, '.'); dot > 0 {
		if wild := ix.wildcard[string(name[dot+1:])]; wild != nil {
			list = append(slices.Clip(list), wild...)
		}
	}
	return list
}
