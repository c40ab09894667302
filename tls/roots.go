package tls

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Roots are trusted authorities, from PEM files.
type Roots struct {
	files   []string
	mu      sync.Mutex // serializes Reload
	current atomic.Pointer[rootSet]
}

// rootSet is one state of Roots. Its address tells it from others.
type rootSet struct{ pool *x509.CertPool }

// ErrNoRoots reports that a file has no certificates of authorities.
var ErrNoRoots = errors.New("tls: no certificate of an authority")

// LoadRoots reads files of certificates in PEM.
func LoadRoots(files ...string) (*Roots, error) {
	r := &Roots{files: files}
	return r, r.Reload()
}

// Reload reads the files again. If one cannot be used, all stays as it was.
func (r *Roots) Reload() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	pool := x509.NewCertPool()
	for _, file := range r.files {
		if err := addRoots(pool, file); err != nil {
			return &FileError{file, err}
		}
	}
	if old := r.current.Load(); old == nil || !old.pool.Equal(pool) {
		r.current.Store(&rootSet{pool})
	}
	return nil
}

// addRoots adds the certificates of a file. One that cannot be parsed is an error: a pool that is
// silently smaller refuses clients.
func addRoots(pool *x509.CertPool, file string) error {
	rest, err := readFile(file, 16*maxFile)
	if err != nil {
		return err
	}
	n := 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return fmt.Errorf("certificate %d: %w", n+1, err)
		}
		pool.AddCert(cert)
		n++
	}
	if n == 0 {
		return ErrNoRoots
	}
	return nil
}

// Pool returns the authorities as they are now. It must not be changed.
func (r *Roots) Pool() *x509.CertPool { return r.current.Load().pool }
