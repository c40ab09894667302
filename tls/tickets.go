package tls

import (
	"bufio"
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/secretfile"
)

// TicketKeys are the keys of session tickets (RFC 5077, RFC 8446 4.6.1). They change every period
// and are derived from secrets, so that instances with the same secrets and about the same time
// accept each other's tickets without talking. Who learns a key can decrypt sessions of TLS 1.2
// that were resumed with it: the secrets are as secret as private keys.
type TicketKeys struct {
	period  time.Duration
	file    string
	secrets atomic.Pointer[[][]byte]
	current atomic.Pointer[ticketEpoch]
	mu      sync.Mutex // serializes the change of epochs
	now     func() time.Time
}

// ticketEpoch has the keys of a time. crypto/tls encrypts and decrypts tickets with a Config; this
// one serves for all.
type ticketEpoch struct {
	number  int64
	secrets *[][]byte
	config  *tls.Config
}

const (
	// TicketPeriod is the default time after which keys change. Tickets are accepted for two periods
	// at least, and three at most.
	TicketPeriod = 12 * time.Hour
	// MinTicketSecret is the least length of a secret, in bytes.
	MinTicketSecret = 32
	ticketsKept     = 2 // epochs before the current one whose tickets are accepted
)

// ErrTicketSecret reports that a secret is missing or too short.
var ErrTicketSecret = errors.New("tls: unusable secret of session tickets")

// NewTicketKeys returns keys derived from secrets of at least MinTicketSecret bytes each. The first
// one encrypts; tickets of the others are accepted too. The period is TicketPeriod if it is 0, and
// must be the same for all instances.
func NewTicketKeys(period time.Duration, secrets ...[]byte) (*TicketKeys, error) {
	k := &TicketKeys{period: period, now: time.Now}
	if k.period <= 0 {
		k.period = TicketPeriod
	}
	return k, k.SetSecrets(secrets...)
}

// LoadTicketKeys reads secrets from a file: one to a line, in base64; lines that begin with # are
// comments. To replace a secret, first append the new one on all instances, then put it first, and
// after three periods remove the old one. `openssl rand -base64 32` makes one. A file that others
// than its owner and group can read is refused.
func LoadTicketKeys(period time.Duration, file string) (*TicketKeys, error) {
	secrets, err := readSecrets(file)
	if err != nil {
		return nil, &FileError{file, err}
	}
	k, err := NewTicketKeys(period, secrets...)
	if err != nil {
		return nil, &FileError{file, err}
	}
	k.file = file
	return k, nil
}

// Reload reads the file again. If it cannot be used, the secrets stay.
func (k *TicketKeys) Reload() error {
	if k.file == "" {
		return nil
	}
	secrets, err := readSecrets(k.file)
	if err == nil {
		err = k.SetSecrets(secrets...)
	}
	if err != nil {
		return &FileError{k.file, err}
	}
	return nil
}

// readSecrets reads a file of secrets.
func readSecrets(file string) (secrets [][]byte, err error) {
	b, err := secretfile.Read(file)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		secret, err := base64.StdEncoding.DecodeString(string(line))
		if err != nil {
			return nil, fmt.Errorf("%w: line %d is not base64", ErrTicketSecret, n) // the error has bytes of the secret
		}
		secrets = append(secrets, secret)
	}
	return secrets, lines.Err()
}

// SetSecrets replaces the secrets, as NewTicketKeys takes them.
func (k *TicketKeys) SetSecrets(secrets ...[]byte) error {
	if len(secrets) == 0 {
		return fmt.Errorf("%w: there is none", ErrTicketSecret)
	}
	kept := make([][]byte, len(secrets))
	for i, s := range secrets {
		if len(s) < MinTicketSecret {
			return fmt.Errorf("%w: number %d has %d bytes, %d are the least", ErrTicketSecret, i+1, len(s), MinTicketSecret)
		}
		kept[i] = bytes.Clone(s)
	}
	k.secrets.Store(&kept)
	return nil
}

// Attach makes a config encrypt and decrypt session tickets by these keys, and also every config
// that its GetConfigForClient returns, which is copied for each connection unless it is attached
// itself. A config that has a WrapSession of its own is left as it is. Attach before the config is
// used.
func (k *TicketKeys) Attach(config *tls.Config) {
	if config.WrapSession == nil && config.UnwrapSession == nil {
		config.WrapSession, config.UnwrapSession = k.wrap, k.unwrap
	}
	choose := config.GetConfigForClient
	if choose == nil {
		return
	}
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c, err := choose(hello)
		if err != nil || c == nil || c.WrapSession != nil || c.UnwrapSession != nil {
			return c, err
		}
		c = c.Clone()
		c.WrapSession, c.UnwrapSession = k.wrap, k.unwrap
		return c, nil
	}
}

// wrap encrypts a session.
func (k *TicketKeys) wrap(cs tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
	return k.epoch().EncryptTicket(cs, session)
}

// unwrap decrypts a ticket. One whose key is not known is no error: a full handshake follows.
func (k *TicketKeys) unwrap(ticket []byte, cs tls.ConnectionState) (*tls.SessionState, error) {
	return k.epoch().DecryptTicket(ticket, cs)
}

// epoch returns the config with the keys of now.
func (k *TicketKeys) epoch() *tls.Config {
	number, secrets := k.number(), k.secrets.Load()
	e := k.current.Load()
	if e != nil && e.number == number && e.secrets == secrets {
		return e.config
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if e = k.current.Load(); e == nil || e.number != number || e.secrets != secrets {
		e = &ticketEpoch{number, secrets, &tls.Config{}}
		e.config.SetSessionTicketKeys(epochKeys(*secrets, number))
		k.current.Store(e)
	}
	return e.config
}

// number returns the number of the epoch, which is the same on all instances.
func (k *TicketKeys) number() int64 { return k.now().UnixNano() / int64(k.period) }

// epochKeys returns the keys of an epoch: that of the first secret, which encrypts, and those that
// decrypt only: of epochs before, of the next one, which an instance whose clock is ahead may use
// already, and of the other secrets.
func epochKeys(secrets [][]byte, number int64) (keys [][32]byte) {
	for _, s := range secrets {
		for _, n := range [...]int64{number, number + 1, number - 1, number - ticketsKept} {
			keys = append(keys, ticketKey(s, n))
		}
	}
	return keys
}

// ticketKey derives the key of an epoch (HKDF, RFC 5869).
func ticketKey(secret []byte, number int64) (key [32]byte) {
	info := binary.BigEndian.AppendUint64([]byte("millrace session ticket "), uint64(number))
	b, err := hkdf.Key(sha256.New, secret, nil, string(info), len(key))
	if err != nil {
		panic(err) // only for lengths that HKDF does not have
	}
	copy(key[:], b)
	return key
}
