package tls

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// KeyPair names the PEM files of a certificate and its key. One file may have both.
type KeyPair struct {
	CertFile string // the certificate, followed by its chain; also the certificate's ID
	KeyFile  string // empty: in CertFile
	Default  bool   // see Store.Set
	// Client is for a certificate that a client shows (ClientOptions). It may name its owner otherwise than by DNS names and addresses:
	// by a common name, a URI as SPIFFE's, or an e-mail address. Servers need names that clients ask for.
	Client bool
}

// FileError describes why a file could not be used.
type FileError struct {
	File string
	Err  error
}

// Error returns the file and the reason.
func (e *FileError) Error() string { return e.File + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *FileError) Unwrap() error { return e.Err }

// maxFile bounds a file of certificates or keys, in bytes.
const maxFile = 1 << 20

// readFile reads a file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("more than %d bytes", limit)
	}
	return b, err
}

// stamp reports whether a file has changed.
type stamp struct {
	size  int64
	mtime time.Time
	file  os.FileInfo // for os.SameFile: a file that was renamed over the old one may be as old
}

func stampOf(path string) stamp {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}
	}
	return stamp{info.Size(), info.ModTime(), info}
}

func (s stamp) same(t stamp) bool {
	return s.size == t.size && s.mtime.Equal(t.mtime) && s.file != nil && t.file != nil && os.SameFile(s.file, t.file)
}

// Load makes the store hold the certificates of pairs instead of those of the last Load; those of
// Set stay. All changes take effect at once. A pair that cannot be used keeps the certificate that
// it had before, if any. The error joins a *FileError for each such pair.
func (s *Store) Load(pairs ...KeyPair) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	named := map[string]bool{}
	for _, p := range pairs {
		named[p.CertFile] = true
	}
	for _, p := range s.pairs {
		if !named[p.CertFile] {
			s.remove(p.CertFile)
		}
	}
	s.pairs, s.stamps = pairs, map[string]stamp{}
	return s.reload(true)
}

// Reload reads the files of the last Load again that have changed since, or could not be used.
// Errors are as for Load.
func (s *Store) Reload() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reload(false)
}

// reload reads pairs and publishes; s.mu is held.
func (s *Store) reload(all bool) error {
	var errs []error
	changed := all
	for _, p := range s.pairs {
		if p.KeyFile == "" {
			p.KeyFile = p.CertFile
		}
		cert, key := stampOf(p.CertFile), stampOf(p.KeyFile)
		if !all && s.failed[p.CertFile] == nil && cert.same(s.stamps[p.CertFile]) && key.same(s.stamps[p.KeyFile]) {
			continue
		}
		s.stamps[p.CertFile], s.stamps[p.KeyFile] = cert, key
		e, err := p.load(s.entries[p.CertFile])
		if err != nil {
			err = &FileError{p.CertFile, err}
			errs = append(errs, err)
			if s.failed == nil {
				s.failed = map[string]error{}
			}
			s.failed[p.CertFile] = err
			continue
		}
		s.put(e)
		changed = true
	}
	if changed {
		s.publish()
	}
	return errors.Join(errs...)
}

// load reads a pair. One that has expired does not replace one that has not.
func (p KeyPair) load(old *entry) (*entry, error) {
	chain, err := readFile(p.CertFile, maxFile)
	if err != nil {
		return nil, err
	}
	key := chain
	if p.KeyFile != p.CertFile {
		if key, err = readFile(p.KeyFile, maxFile); err != nil {
			return nil, err
		}
	}
	cert, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusableCertificate, err)
	}
	e, err := newEntry(p.CertFile, cert, p.Default, p.Client)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	if old != nil && now.After(cert.Leaf.NotAfter) && !now.After(old.cert.Leaf.NotAfter) {
		return nil, fmt.Errorf("%w: the new certificate expired on %v", ErrExpired, cert.Leaf.NotAfter)
	}
	return e, nil
}

// Reloader reads files again: a Store, Roots, Revocation, TicketKeys or ECHKeys.
type Reloader interface {
	Reload() error
}

// Watch calls Reload every interval, until ctx ends, and report with each error. What has not
// changed is not read. The interval also bounds how long a new file may take to be used.
func Watch(ctx context.Context, interval time.Duration, report func(error), what ...Reloader) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, r := range what {
			if err := r.Reload(); err != nil && report != nil {
				report(err)
			}
		}
	}
}
