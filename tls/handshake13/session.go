package handshake13

import (
	"crypto/tls"
	"encoding/binary"
	"sync"
	"time"
)

// A session is what crypto/tls resumes from: a tls.SessionState, which only crypto/tls makes. Its encoding, which Bytes and
// ParseSessionState have in common, is (as its source documents it)
//
//	version(2) type(1)=1 cipher_suite(2) created_at(8) secret<1..> extra<0..2^24-1> ext_master_secret(1)=0 early_data(1)=0
//	certificate_list<0..2^24-1> verified_chains<0..2^24-1>
//
// for a server of TLS 1.3. SessionsSupported reports whether that is so in this release of Go.

// sessionFixed is the size of such an encoding without its secret.
const sessionFixed = 2 + 1 + 2 + 8 + 1 + 3 + 1 + 1 + 3 + 3

// NewSession returns a session as crypto/tls keeps it: of a client without certificates, and without extra.
func NewSession(suite uint16, created time.Time, secret []byte) (*tls.SessionState, error) {
	return tls.ParseSessionState(encodeSession(suite, created, secret))
}

func encodeSession(suite uint16, created time.Time, secret []byte) []byte {
	b := make([]byte, 0, sessionFixed+len(secret))
	b = append(append16(b, tls.VersionTLS13), 1)
	b = append16(b, suite)
	b = binary.BigEndian.AppendUint64(b, uint64(created.Unix()))
	b = append(append(b, byte(len(secret))), secret...)
	return append(b, make([]byte, sessionFixed-2-1-2-8-1)...)
}

// Session is what is resumed.
type Session struct {
	Suite   uint16
	Created time.Time
	Secret  []byte
}

// ParseSession returns what a session has that NewSession may have made, with anything in its Extra, and false for others: of
// TLS 1.2, of clients, with certificates.
func ParseSession(state *tls.SessionState) (Session, bool) {
	all, err := state.Bytes()
	if err != nil {
		return Session{}, false
	}
	r := reader(all)
	ok := r.skip(2 + 1 + 2 + 8)
	secret, ok1 := r.vector(1)
	_, ok2 := r.vector(3)
	if !ok || !ok1 || !ok2 || len(secret) == 0 || binary.BigEndian.Uint16(all) != tls.VersionTLS13 || all[2] != 1 {
		return Session{}, false
	}
	for _, b := range r {
		if b != 0 {
			return Session{}, false
		}
	}
	return Session{
		Suite:   binary.BigEndian.Uint16(all[3:]),
		Created: time.Unix(int64(binary.BigEndian.Uint64(all[5:])), 0),
		Secret:  secret,
	}, len(r) == 1+1+3+3
}

// SessionsSupported reports whether crypto/tls encodes sessions as this package expects.
var SessionsSupported = sync.OnceValue(func() bool {
	created := time.Unix(1_700_000_000, 0)
	secret := make([]byte, 32)
	secret[0] = 1
	state, err := NewSession(tls.TLS_AES_128_GCM_SHA256, created, secret)
	if err != nil {
		return false
	}
	all, err := state.Bytes()
	s, ok := ParseSession(state)
	return err == nil && ok && string(all) == string(encodeSession(tls.TLS_AES_128_GCM_SHA256, created, secret)) &&
		s.Suite == tls.TLS_AES_128_GCM_SHA256 && s.Created.Equal(created) && string(s.Secret) == string(secret)
})
