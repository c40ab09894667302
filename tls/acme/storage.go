package acme

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/millrace/millrace/internal/secretfile"
)

// The folder:
//
//	lock
//	AUTHORITY/account.pem              the account's key; AUTHORITY is a hash of the directory's URL
//	AUTHORITY/certificates/NAME.pem    key and chain in one file, which is replaced as a whole
//	AUTHORITY/certificates/NAME.json   when to try again, and what failed

// dirLock is a lock on a folder.
type dirLock struct{ f *os.File }

// lockDir makes the folder and locks it, unless it gets the lock of another process. The kernel releases the lock of a process that dies.
func lockDir(dir string, inherited *os.File) (*dirLock, error) {
	if inherited != nil {
		return &dirLock{inherited}, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s", ErrLocked, dir)
		}
		return nil, err
	}
	return &dirLock{f}, nil
}

// Close releases the lock.
func (l *dirLock) Close() error { return l.f.Close() }

// home returns the folder of the authority.
func (m *Manager) home() string {
	sum := sha256.Sum256([]byte(m.o.Directory))
	return filepath.Join(m.o.Dir, hex.EncodeToString(sum[:8]))
}

// base returns the path of a certificate's files without extension. Lists of names that share their
// first one have a hash of all.
func (m *Manager) base(c *managed) string {
	name := strings.ReplaceAll(c.names[0], ":", "_") // of IPv6 addresses
	if len(c.names) > 1 {
		sum := sha256.Sum256([]byte(strings.Join(c.names, " ")))
		name += "-" + hex.EncodeToString(sum[:4])
	}
	return filepath.Join(m.home(), "certificates", name)
}

func (m *Manager) pairPath(c *managed) string { return m.base(c) + ".pem" }

// hasPair reports whether the folder has a certificate.
func (m *Manager) hasPair(c *managed) bool {
	_, err := os.Lstat(m.pairPath(c))
	return err == nil
}

// restore loads what is stored about a certificate. A pair that cannot be read is an error: keys are
// not to be lost unnoticed.
func (m *Manager) restore(c *managed) error {
	if err := os.MkdirAll(filepath.Dir(m.base(c)), 0o700); err != nil {
		return err
	}
	c.state.Names = c.names
	if b, err := os.ReadFile(m.base(c) + ".json"); err == nil {
		var s state
		if json.Unmarshal(b, &s) == nil && slices.Equal(s.Names, c.names) {
			c.state = s // otherwise: written by hand, or cut; it is only a schedule
		}
	}
	b, err := secretfile.Read(m.pairPath(c))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", m.pairPath(c), err)
	}
	pair, err := tls.X509KeyPair(b, b)
	if err != nil {
		return fmt.Errorf("%s: %w: remove it to order a new certificate", m.pairPath(c), err)
	}
	return m.install(c, pair)
}

// saveState stores the schedule.
func (m *Manager) saveState(c *managed) error {
	c.mu.Lock()
	b, err := json.MarshalIndent(&c.state, "", "  ")
	c.mu.Unlock()
	if err != nil {
		return err
	}
	return secretfile.Write(m.base(c)+".json", b)
}

func newKey() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// marshalKey returns a key in PEM.
func marshalKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// pairOf returns the file of a certificate and the certificate, whose key must be the one given.
func pairOf(chain []byte, key crypto.Signer) (file []byte, pair tls.Certificate, err error) {
	text, err := marshalKey(key)
	if err != nil {
		return nil, pair, err
	}
	if pair, err = tls.X509KeyPair(chain, text); err != nil {
		return nil, pair, fmt.Errorf("%w: %w", ErrBadIssue, err)
	}
	return append(text, chain...), pair, nil
}

// accountKey returns the account's key, and makes it the first time.
func (m *Manager) accountKey() (crypto.Signer, error) {
	path := filepath.Join(m.home(), "account.pem")
	b, err := secretfile.Read(path)
	if err == nil {
		return parseKey(path, b)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	text, err := marshalKey(key)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(m.home(), 0o700); err != nil {
		return nil, err
	}
	return key, secretfile.Write(path, text)
}

func parseKey(path string, b []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, fmt.Errorf("%s: no key in PEM", path)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s: a key of type %T does not sign", path, key)
	}
	return signer, nil
}
