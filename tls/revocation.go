package tls

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"sync/atomic"
	"time"
)

// RevocationOptions configure a Revocation.
type RevocationOptions struct {
	// Files are certificate revocation lists (RFC 5280 5), in PEM or DER, several to a PEM file.
	Files []string
	// Strict refuses certificates whose issuer has no current list. Without it they are accepted,
	// and a list that has expired still revokes what it names.
	Strict bool
}

// Revocation selects which certificates are revoked, by lists of their issuers. Delta and indirect
// lists are refused when they are loaded.
type Revocation struct {
	o       RevocationOptions
	mu      sync.Mutex // serializes Reload
	current atomic.Pointer[crlSet]
}

// crlSet is one state: lists by the name of their issuer, as it is in DER.
type crlSet struct {
	byIssuer map[string][]*crl
	files    map[string][]*crl
}

// crl is a revocation list.
type crl struct {
	list    *x509.RevocationList
	serials map[string]time.Time // big.Int.Bytes -> when
	partial bool                 // covers some of the issuer's certificates only
	genuine sync.Map             // certificate of an issuer (DER) -> whether its key signed the list
}

// ErrBadCRL reports that a file is no usable revocation list.
var ErrBadCRL = errors.New("tls: unusable revocation list")

// maxCRL bounds a file of lists, in bytes; those of large authorities have 10 million.
const maxCRL = 64 << 20

// Extensions of revocation lists (RFC 5280 5.2).
var (
	oidDeltaCRL     = asn1.ObjectIdentifier{2, 5, 29, 27}
	oidDistribution = asn1.ObjectIdentifier{2, 5, 29, 28}
)

// LoadRevocation reads the lists.
func LoadRevocation(o RevocationOptions) (*Revocation, error) {
	r := &Revocation{o: o}
	r.current.Store(&crlSet{})
	return r, r.Reload()
}

// Reload reads the files again. A file that cannot be used keeps its lists of before; the error
// joins a *FileError for each such file.
func (r *Revocation) Reload() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.current.Load()
	set := &crlSet{map[string][]*crl{}, map[string][]*crl{}}
	var errs []error
	for _, file := range r.o.Files {
		lists, err := readCRLs(file)
		if err != nil {
			errs = append(errs, &FileError{file, err})
			lists = old.files[file]
		}
		set.files[file] = lists
		for _, l := range lists {
			issuer := string(l.list.RawIssuer)
			set.byIssuer[issuer] = append(set.byIssuer[issuer], l)
		}
	}
	r.current.Store(set)
	return errors.Join(errs...)
}

// readCRLs reads the lists of a file.
func readCRLs(file string) ([]*crl, error) {
	b, err := readFile(file, maxCRL)
	if err != nil {
		return nil, err
	}
	if !bytes.Contains(b, []byte("-----BEGIN")) {
		l, err := parseCRL(b)
		return []*crl{l}, err
	}
	var lists []*crl
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			break
		}
		if block.Type != "X509 CRL" {
			continue
		}
		l, err := parseCRL(block.Bytes)
		if err != nil {
			return nil, err
		}
		lists = append(lists, l)
	}
	if lists == nil {
		return nil, fmt.Errorf("%w: no block \"X509 CRL\"", ErrBadCRL)
	}
	return lists, nil
}

// parseCRL parses a list. A critical extension that is not understood makes it unusable (RFC 5280 5.2).
func parseCRL(der []byte) (*crl, error) {
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadCRL, err)
	}
	l := &crl{list: list, serials: make(map[string]time.Time, len(list.RevokedCertificateEntries))}
	for _, e := range list.Extensions {
		switch {
		case e.Id.Equal(oidDeltaCRL):
			return nil, fmt.Errorf("%w: a delta list", ErrBadCRL)
		case e.Id.Equal(oidDistribution):
			var idp issuingDistributionPoint
			if rest, err := asn1.Unmarshal(e.Value, &idp); err != nil || len(rest) > 0 {
				return nil, fmt.Errorf("%w: issuing distribution point", ErrBadCRL)
			}
			if idp.Indirect {
				return nil, fmt.Errorf("%w: an indirect list", ErrBadCRL)
			}
			l.partial = true
		case e.Critical:
			return nil, fmt.Errorf("%w: critical extension %v", ErrBadCRL, e.Id)
		}
	}
	for _, e := range list.RevokedCertificateEntries {
		for _, x := range e.Extensions {
			if x.Critical {
				return nil, fmt.Errorf("%w: critical extension %v of an entry", ErrBadCRL, x.Id)
			}
		}
		l.serials[serialKey(e.SerialNumber)] = e.RevocationTime
	}
	list.RevokedCertificateEntries = nil // the map has them: a large list is not kept twice
	return l, nil
}

// issuingDistributionPoint is RFC 5280 5.2.5.
type issuingDistributionPoint struct {
	Point      asn1.RawValue  `asn1:"optional,tag:0"`
	OnlyUser   bool           `asn1:"optional,tag:1"`
	OnlyCA     bool           `asn1:"optional,tag:2"`
	Reasons    asn1.BitString `asn1:"optional,tag:3"`
	Indirect   bool           `asn1:"optional,tag:4"`
	Attributes bool           `asn1:"optional,tag:5"`
}

func serialKey(n *big.Int) string { return string(n.Bytes()) }

// Check checks chains that crypto/tls has verified, as ConnectionState.VerifiedChains has them. It
// is nil if the certificates of one chain are not revoked; an error is a *VerifyError.
func (r *Revocation) Check(chains [][]*x509.Certificate) (err error) {
	set, now := r.current.Load(), time.Now()
	for _, chain := range chains {
		if err = set.checkChain(chain, now, r.o.Strict); err == nil {
			return nil
		}
	}
	return err
}

// checkChain checks all certificates of a chain but the root, which is trusted by itself.
func (s *crlSet) checkChain(chain []*x509.Certificate, now time.Time, strict bool) error {
	for i := range len(chain) - 1 {
		if err := s.checkOne(chain[i], chain[i+1], now, strict); err != nil {
			return err
		}
	}
	return nil
}

// checkOne looks for a certificate in the lists that its issuer has signed.
func (s *crlSet) checkOne(cert, issuer *x509.Certificate, now time.Time, strict bool) error {
	covered := false
	for _, l := range s.byIssuer[string(cert.RawIssuer)] {
		if !l.signedBy(issuer) {
			continue
		}
		if when, ok := l.serials[serialKey(cert.SerialNumber)]; ok {
			return &VerifyError{Reason: ErrRevoked, Certificate: cert, Err: fmt.Errorf("by its issuer on %v", when)}
		}
		covered = covered || !l.partial && !now.Before(l.list.ThisUpdate) && now.Before(l.list.NextUpdate)
	}
	if strict && !covered {
		return &VerifyError{Reason: ErrRevocationUnknown, Certificate: cert}
	}
	return nil
}

// signedBy reports whether a list is the issuer's. The answer is kept: a signature costs more than
// all the rest.
func (l *crl) signedBy(issuer *x509.Certificate) bool {
	if known, ok := l.genuine.Load(string(issuer.Raw)); ok {
		return known.(bool)
	}
	ok := l.list.CheckSignatureFrom(issuer) == nil
	l.genuine.Store(string(issuer.Raw), ok)
	return ok
}

// RevocationStatus describes a list.
type RevocationStatus struct {
	File       string
	Issuer     string
	ThisUpdate time.Time
	NextUpdate time.Time
	Entries    int
	Partial    bool // covers some certificates of the issuer only: with Strict it clears none
}

// Status returns the lists in the order of the files.
func (r *Revocation) Status() (all []RevocationStatus) {
	set := r.current.Load()
	for _, file := range r.o.Files {
		for _, l := range set.files[file] {
			all = append(all, RevocationStatus{
				File: file, Issuer: l.list.Issuer.String(), ThisUpdate: l.list.ThisUpdate, NextUpdate: l.list.NextUpdate,
				Entries: len(l.serials), Partial: l.partial,
			})
		}
	}
	return all
}

// verify is crypto/tls's VerifyConnection. It runs for resumed sessions too, which keep no
// certificate alive that was revoked since.
func (r *Revocation) verify(cs tls.ConnectionState) error {
	if len(cs.VerifiedChains) == 0 {
		return nil // the peer sent no certificate, and need not
	}
	return r.Check(cs.VerifiedChains)
}
