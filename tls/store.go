package tls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/gpukern/sign"
)

// A Store holds certificates and finds the one for a ClientHello. The zero value is empty and ready.
// All methods may be called concurrently; GetCertificate takes no lock and allocates nothing.
type Store struct {
	index atomic.Pointer[index]

	mu      sync.Mutex // serializes changes
	entries map[string]*entry
	pairs   []KeyPair        // of the last Load
	stamps  map[string]stamp // of their files
	failed  map[string]error // why a certificate could not be loaded again, by ID
	batches int              // under way: publish waits for their end
}

// entry is a certificate. Only its staple changes.
type entry struct {
	id         string
	isDefault  bool
	cert       *tls.Certificate // without staple
	ability    ability
	mustStaple bool
	signer     *sign.Signer // the store's own, of cert's key; nil if batches do not sign with it, or the caller made one
	staple     atomic.Pointer[staple]
}

// retire overwrites the form of the key that batches sign with. Handshakes that have the certificate end as they would have.
func (e *entry) retire() {
	if e != nil && e.signer != nil {
		e.signer.Retire()
	}
}

// staple is the certificate with an OCSP response, which may be sent until it expires.
type staple struct {
	cert              *tls.Certificate
	thisUpdate, until time.Time
	untilUnix         int64
}

// index is read by look-ups. It is replaced as a whole.
type index struct {
	exact    map[string][]*entry
	wildcard map[string][]*entry // "*.a.example" is stored as "a.example"
	defaults []*entry
}

// maxNameLen is that of a DNS name in text. Longer names are in no index.
const maxNameLen = 255

// GetCertificate returns the certificate for a ClientHello, for use in a crypto/tls.Config. An exact
// name beats a wildcard, and either beats the default certificate, which also answers clients that
// send no name. Of several certificates for a name it chooses one whose key the client supports:
// ECDSA before Ed25519 before RSA. Without any it returns nil, and crypto/tls sends the alert
// unrecognized_name. The certificate is shared: it must not be changed.
func (s *Store) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	ix := s.index.Load()
	if ix == nil {
		return nil, nil
	}
	now := time.Now().Unix()
	var lower [maxNameLen]byte
	name, ok := lowerName(hello.ServerName, &lower)
	var first []*entry
	if ok {
		first = ix.exact[string(name)]
		if e := choose(first, hello, now); e != nil {
			return e.current(now), nil
		}
		if dot := slices.Index(name, '.'); dot > 0 { // a wildcard stands for one label (RFC 9525 6.3)
			wild := ix.wildcard[string(name[dot+1:])]
			if e := choose(wild, hello, now); e != nil {
				return e.current(now), nil
			}
			if first == nil {
				first = wild
			}
		}
	}
	if first == nil {
		first = ix.defaults
		if e := choose(first, hello, now); e != nil {
			return e.current(now), nil
		}
	}
	if len(first) == 0 {
		return nil, nil
	}
	return first[0].current(now), nil // crypto/tls will say what the client does not support
}

// lowerName copies a name in lower case to room. Names that are empty or too long are none.
func lowerName(name string, room *[maxNameLen]byte) ([]byte, bool) {
	name = strings.TrimSuffix(name, ".")
	if len(name) == 0 || len(name) > maxNameLen {
		return nil, false
	}
	for i := range len(name) {
		c := name[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		room[i] = c
	}
	return room[:len(name)], true
}

// choose returns the first certificate that the client supports, and that is neither expired nor in
// want of a staple that it must have if another one is.
func choose(list []*entry, hello *tls.ClientHelloInfo, now int64) *entry {
	var second *entry
	for _, e := range list {
		if !e.ability.suits(hello) {
			continue
		}
		if e.usable(now) {
			return e
		}
		if second == nil {
			second = e
		}
	}
	return second
}

// usable reports whether clients will accept the certificate as far as the store can say.
func (e *entry) usable(now int64) bool {
	leaf := e.cert.Leaf
	if now > leaf.NotAfter.Unix() || now < leaf.NotBefore.Unix() {
		return false
	}
	if e.mustStaple {
		st := e.staple.Load()
		return st != nil && now < st.untilUnix
	}
	return true
}

// current returns the certificate with its staple, unless that has expired.
func (e *entry) current(now int64) *tls.Certificate {
	if st := e.staple.Load(); st != nil && now < st.untilUnix {
		return st.cert
	}
	return e.cert
}

// ErrUnusableCertificate reports why a certificate cannot be served: no key, a key that clients refuse, no
// names.
var ErrUnusableCertificate = errors.New("tls: unusable certificate")

// newEntry checks a certificate: of a server, unless ofClient.
func newEntry(id string, cert tls.Certificate, isDefault, ofClient bool) (*entry, error) {
	if len(cert.Certificate) == 0 || cert.PrivateKey == nil {
		return nil, fmt.Errorf("%w: no certificate or no key", ErrUnusableCertificate)
	}
	if cert.Leaf == nil {
		leaf, err := x509.ParseCertificate(cert.Certificate[0])
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnusableCertificate, err)
		}
		cert.Leaf = leaf
	}
	var own *sign.Signer
	if sign.Of(cert.PrivateKey) == nil {
		cert.PrivateKey = sign.Wrap(cert.PrivateKey)
		own = sign.Of(cert.PrivateKey)
	}
	cert.OCSPStaple = nil // it would be sent for ever: the Stapler's business
	a, err := abilityOf(&cert)
	if err != nil {
		return nil, err
	}
	if len(cert.Leaf.DNSNames) == 0 && len(cert.Leaf.IPAddresses) == 0 && !isDefault && !ofClient {
		return nil, fmt.Errorf("%w: it has no names and is not the default", ErrUnusableCertificate)
	}
	return &entry{id: id, isDefault: isDefault, cert: &cert, ability: a, mustStaple: hasMustStaple(cert.Leaf), signer: own}, nil
}

// Set adds a certificate of a server, or replaces the one with this ID. IDs of files are their paths. A default
// certificate answers clients that ask for no name, or for an unknown one.
func (s *Store) Set(id string, cert tls.Certificate, isDefault bool) error {
	e, err := newEntry(id, cert, isDefault, false)
	if err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(e)
	s.publish()
	return nil
}

// Remove removes a certificate. Connections that have begun keep it.
func (s *Store) Remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(id)
	s.publish()
}

// remove removes an entry; s.mu is held.
func (s *Store) remove(id string) {
	s.entries[id].retire()
	delete(s.entries, id)
	delete(s.failed, id)
}

// Close overwrites the private keys in the forms that batches sign with. Handshakes under way end. The store still answers:
// keys of crypto/rsa and crypto/ecdsa, which those packages cannot overwrite, sign what is begun afterwards.
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		e.retire()
	}
}

// Batch makes what Set, Remove and Load do in change take effect at once, at its end. Each change
// alone costs time in proportion to the number of certificates, tens of milliseconds with 10 000.
func (s *Store) Batch(change func()) {
	s.mu.Lock()
	s.batches++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.batches--
		s.publish()
	}()
	change()
}

// put stores an entry; s.mu is held. The staple of the same certificate stays.
func (s *Store) put(e *entry) {
	if s.entries == nil {
		s.entries = map[string]*entry{}
	}
	old := s.entries[e.id]
	old.retire()
	if old != nil && old.cert.Leaf.Equal(e.cert.Leaf) {
		if st := old.staple.Load(); st != nil {
			e.attach(st.cert.OCSPStaple, st.thisUpdate, st.until)
		}
	}
	s.entries[e.id] = e
	delete(s.failed, e.id)
}

// attach makes a response the staple.
func (e *entry) attach(response []byte, thisUpdate, until time.Time) {
	c := *e.cert
	c.OCSPStaple = response
	e.staple.Store(&staple{&c, thisUpdate, until, until.Unix()})
}

// publish builds the index anew, unless a batch will; s.mu is held.
func (s *Store) publish() {
	if s.batches > 0 {
		return
	}
	ix := &index{exact: map[string][]*entry{}, wildcard: map[string][]*entry{}}
	for _, id := range slices.Sorted(maps.Keys(s.entries)) {
		e := s.entries[id]
		for _, name := range namesOf(e.cert.Leaf) {
			if parent, ok := strings.CutPrefix(name, "*."); ok {
				ix.wildcard[parent] = append(ix.wildcard[parent], e)
			} else {
				ix.exact[name] = append(ix.exact[name], e)
			}
		}
		if e.isDefault {
			ix.defaults = append(ix.defaults, e)
		}
	}
	for _, lists := range []map[string][]*entry{ix.exact, ix.wildcard, {"": ix.defaults}} {
		for _, l := range lists {
			slices.SortStableFunc(l, better)
		}
	}
	s.index.Store(ix)
}

// better orders certificates of a name: by the kind of key, then the one that is valid longer.
func better(a, b *entry) int {
	if a.ability.rank != b.ability.rank {
		return int(a.ability.rank) - int(b.ability.rank)
	}
	return b.cert.Leaf.NotAfter.Compare(a.cert.Leaf.NotAfter)
}

// namesOf returns the names that clients ask for, in lower case.
func namesOf(leaf *x509.Certificate) (names []string) {
	for _, n := range leaf.DNSNames {
		names = append(names, strings.ToLower(strings.TrimSuffix(n, ".")))
	}
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// CertificateStatus describes a certificate of a Store.
type CertificateStatus struct {
	ID         string
	Names      []string // DNS names and addresses, in lower case
	Issuer     string
	Serial     string // hexadecimal
	KeyType    string // ECDSA P-256, RSA 2048, Ed25519
	NotBefore  time.Time
	NotAfter   time.Time
	Default    bool
	MustStaple bool
	// StapleFrom and StapleUntil are thisUpdate and nextUpdate of the OCSP response that is sent, zero
	// without one.
	StapleFrom  time.Time
	StapleUntil time.Time
	Err         error // why the files of this certificate could not be loaded again
}

// Status returns all certificates, those first that expire first.
func (s *Store) Status() []CertificateStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []CertificateStatus
	for id, e := range s.entries {
		leaf := e.cert.Leaf
		st := CertificateStatus{
			ID: id, Names: namesOf(leaf), Issuer: leaf.Issuer.String(), Serial: fmt.Sprintf("%x", leaf.SerialNumber),
			KeyType: e.ability.name, NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter,
			Default: e.isDefault, MustStaple: e.mustStaple, Err: s.failed[id],
		}
		if response := e.staple.Load(); response != nil && time.Now().Before(response.until) {
			st.StapleFrom, st.StapleUntil = response.thisUpdate, response.until
		}
		all = append(all, st)
	}
	slices.SortFunc(all, func(a, b CertificateStatus) int {
		if c := a.NotAfter.Compare(b.NotAfter); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all
}
