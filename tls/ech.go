package tls

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/secretfile"
)

// ECHKeys are the keys of Encrypted ClientHello (RFC 9849) in a folder, one file each in the format
// of RFC 9934. The newest is the one to publish; hellos to the others are still decrypted, since DNS
// answers live on in caches. Instances that share the folder share the keys.
type ECHKeys struct {
	dir     string
	mu      sync.Mutex
	current atomic.Pointer[echSet]
}

// echSet is one state: the keys, the newest first, and the same as crypto/tls takes them.
type echSet struct {
	keys    []echKey
	offered []tls.EncryptedClientHelloKey
}

// echKey is a key and its configuration.
type echKey struct {
	config  []byte // ECHConfig
	key     *ecdh.PrivateKey
	created time.Time
}

// Values of ECH (RFC 9849 4, RFC 9180 7).
const (
	echVersion    = 0xfe0d
	kemX25519     = 0x0020 // DHKEM(X25519, HKDF-SHA256)
	kdfSHA256     = 0x0001
	aeadAES128    = 0x0001
	aeadChaCha    = 0x0003
	echNamePadded = 64 // maximum_name_length: shorter server names are padded to it
	echExtension  = ".ech.pem"
)

// Errors of ECH keys.
var (
	ErrECHKey   = errors.New("tls: unusable key of Encrypted ClientHello")
	ErrNoECHKey = errors.New("tls: no key of Encrypted ClientHello: Rotate makes one")
)

// LoadECHKeys reads the keys of a folder, which is made if it does not exist. It may have none yet.
func LoadECHKeys(dir string) (*ECHKeys, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	k := &ECHKeys{dir: dir}
	k.current.Store(&echSet{})
	return k, k.Reload()
}

// Reload reads the folder again. If a file cannot be used, all stays as it was.
func (k *ECHKeys) Reload() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reload()
}

func (k *ECHKeys) reload() error {
	files, err := k.files()
	if err != nil {
		return err
	}
	set := &echSet{offered: make([]tls.EncryptedClientHelloKey, 0, len(files))} // not nil: crypto/tls demands it
	for _, file := range slices.Backward(files) {
		key, err := readECHKey(file)
		if err != nil {
			return &FileError{file, err}
		}
		set.offered = append(set.offered, tls.EncryptedClientHelloKey{
			Config: key.config, PrivateKey: key.key.Bytes(),
			SendAsRetry: len(set.keys) == 0, // clients with an unknown key learn the newest
		})
		set.keys = append(set.keys, key)
	}
	k.current.Store(set)
	return nil
}

// files returns the files of keys, the oldest first: their names begin with the time.
func (k *ECHKeys) files() (files []string, err error) {
	list, err := os.ReadDir(k.dir)
	for _, f := range list {
		if strings.HasSuffix(f.Name(), echExtension) {
			files = append(files, filepath.Join(k.dir, f.Name()))
		}
	}
	return files, err
}

// Rotate makes a new key, which is the one to publish from now on, and removes the oldest ones so
// that keep are left, at least two. publicName is the name in the outer hello: the server must have
// a certificate for it, by which clients with an old key learn the new one. Publish ConfigList, and
// rotate again no sooner than the lifetime of the DNS record.
func (k *ECHKeys) Rotate(publicName string, keep int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := checkPublicName(publicName); err != nil {
		return err
	}
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	text, err := marshalECHKey(key, echConfig(k.freeID(), key.PublicKey().Bytes(), publicName))
	if err != nil {
		return err
	}
	now := time.Now()
	name := fmt.Sprintf("%s-%09d%s", now.UTC().Format("20060102T150405"), now.Nanosecond(), echExtension)
	if err := secretfile.Write(filepath.Join(k.dir, name), text); err != nil {
		return err
	}
	files, err := k.files()
	if err != nil {
		return err
	}
	for _, old := range files[:max(0, len(files)-max(keep, 2))] {
		if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return k.reload()
}

// checkPublicName accepts what is a host name in LDH form (RFC 9849 4).
func checkPublicName(name string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"
	bad := len(name) >= maxNameLen
	for label := range strings.SplitSeq(name, ".") {
		bad = bad || label == "" || len(label) > 63 || strings.Trim(label, letters) != "" || label[0] == '-' || label[len(label)-1] == '-'
	}
	if bad {
		return fmt.Errorf("%w: %q is no host name", ErrECHKey, name)
	}
	return nil
}

// freeID returns a config_id at random that no key has (RFC 9849 10.4: at random), so that a hello
// needs one attempt to decrypt. It takes any after 256 keys.
func (k *ECHKeys) freeID() byte {
	var id [1]byte
	for range 1000 {
		_, _ = rand.Read(id[:]) // never fails
		if !slices.ContainsFunc(k.current.Load().keys, func(e echKey) bool { return e.config[4] == id[0] }) {
			break
		}
	}
	return id[0]
}

// echConfig returns an ECHConfig (RFC 9849 4):
//
//	version(2) length(2) | config_id(1) kem(2) public_key<2> cipher_suites<2> | max_name(1) public_name<1> extensions<2>
func echConfig(id byte, public []byte, name string) []byte {
	b := binary.BigEndian.AppendUint16(nil, echVersion)
	b = append(b, 0, 0, id)
	b = binary.BigEndian.AppendUint16(b, kemX25519)
	b = appendVector16(b, public)
	b = appendVector16(b, []byte{0, kdfSHA256, 0, aeadAES128, 0, kdfSHA256, 0, aeadChaCha})
	b = append(b, echNamePadded, byte(len(name)))
	b = append(b, name...)
	b = append(b, 0, 0)
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)-4))
	return b
}

// appendVector16 appends a vector with its length in 16 bits.
func appendVector16(dst, v []byte) []byte {
	return append(binary.BigEndian.AppendUint16(dst, uint16(len(v))), v...)
}

// marshalECHKey returns a file: the key, and the list with its one configuration (RFC 9934 3).
func marshalECHKey(key *ecdh.PrivateKey, config []byte) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	return append(text, pem.EncodeToMemory(&pem.Block{Type: "ECHCONFIG", Bytes: appendVector16(nil, config)})...), nil
}

// readECHKey reads a file. The configuration must be the key's: clients could not be served.
func readECHKey(file string) (echKey, error) {
	info, err := os.Stat(file)
	if err != nil {
		return echKey{}, err
	}
	b, err := secretfile.Read(file)
	if err != nil {
		return echKey{}, err
	}
	k, err := parseECHKey(b)
	k.created = info.ModTime()
	return k, err
}

// parseECHKey parses the content of a file.
func parseECHKey(b []byte) (k echKey, err error) {
	var list []byte
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "PRIVATE KEY":
			key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return k, fmt.Errorf("%w: %w", ErrECHKey, err)
			}
			var ok bool
			if k.key, ok = key.(*ecdh.PrivateKey); !ok || k.key.Curve() != ecdh.X25519() {
				return k, fmt.Errorf("%w: only keys of X25519 are supported, not %T", ErrECHKey, key)
			}
		case "ECHCONFIG":
			list = block.Bytes
		}
	}
	if k.key == nil || list == nil {
		return k, fmt.Errorf("%w: it needs a block PRIVATE KEY and a block ECHCONFIG", ErrECHKey)
	}
	k.config, err = configOf(list, k.key.PublicKey().Bytes())
	return k, err
}

// configOf returns the configuration of a key from an ECHConfigList.
func configOf(list, public []byte) ([]byte, error) {
	if len(list) < 2 || int(binary.BigEndian.Uint16(list)) != len(list)-2 {
		return nil, fmt.Errorf("%w: length of the list", ErrECHKey)
	}
	for rest := list[2:]; len(rest) >= 4; {
		n := 4 + int(binary.BigEndian.Uint16(rest[2:]))
		if n > len(rest) {
			break
		}
		config := rest[:n]
		rest = rest[n:]
		if binary.BigEndian.Uint16(config) != echVersion || n < 4+1+2+2+len(public) {
			continue // of another version: to be ignored (RFC 9849 4)
		}
		if binary.BigEndian.Uint16(config[5:]) == kemX25519 && bytes.Equal(config[9:9+len(public)], public) {
			return config, nil
		}
	}
	return nil, fmt.Errorf("%w: the list has no configuration of this key", ErrECHKey)
}

// ConfigList returns the ECHConfigList to publish: the newest key's.
func (k *ECHKeys) ConfigList() ([]byte, error) {
	keys := k.current.Load().keys
	if len(keys) == 0 {
		return nil, ErrNoECHKey
	}
	return appendVector16(nil, keys[0].config), nil
}

// Record returns the HTTPS record for a name and ALPN protocols, in the form of zone files (RFC 9460
// 9, RFC 9848 3): `www.example. 300 IN HTTPS 1 . alpn=h2 ech=...`. Its lifetime is ttl.
func (k *ECHKeys) Record(name string, ttl time.Duration, protocols ...string) (string, error) {
	list, err := k.ConfigList()
	if err != nil {
		return "", err
	}
	s := fmt.Sprintf("%s. %d IN HTTPS 1 .", strings.TrimSuffix(name, "."), int(ttl.Seconds()))
	if len(protocols) > 0 {
		s += " alpn=" + strings.Join(protocols, ",")
	}
	return s + " ech=" + base64.StdEncoding.EncodeToString(list), nil
}

// ECHKeyStatus describes a key.
type ECHKeyStatus struct {
	ConfigID  byte
	Created   time.Time
	Published bool // the one in ConfigList
}

// Status returns the keys, the newest first.
func (k *ECHKeys) Status() (all []ECHKeyStatus) {
	for i, key := range k.current.Load().keys {
		all = append(all, ECHKeyStatus{key.config[4], key.created, i == 0})
	}
	return all
}

// keysFor is GetEncryptedClientHelloKeys.
func (k *ECHKeys) keysFor(*tls.ClientHelloInfo) ([]tls.EncryptedClientHelloKey, error) {
	return k.current.Load().offered, nil
}
