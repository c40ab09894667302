package pool

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/random"
)

// Session persistence. A token, the value of a cookie, is the hash of a backend's name and address with a key: it says nothing
// of the backend, no client can compute that of another one, and it holds over restarts and on all gateways with the key.
// A forged token could choose a backend, no more, so 64 bits suffice.

// TokenLen is the length of a token, of the characters A-Z a-z 0-9 - and _, which need no quotes in a cookie.
const TokenLen = 11

// tokenKey returns the key of the pool's tokens.
func (p *Pool) tokenKey(o *Options) random.Key {
	secret := o.Secret
	if secret == nil {
		secret = binary.BigEndian.AppendUint64(nil, p.seed)
	}
	h := sha256.New()
	h.Write([]byte("millrace pool token\x00"))
	h.Write([]byte(o.Name + "\x00"))
	h.Write(secret)
	return random.KeyFrom(h.Sum(nil))
}

// tokenOf returns the token of a backend as a number.
func (s *snapshot) tokenOf(b *Backend) uint64 {
	return s.key.Sum([]byte(b.name + "\x00" + b.Where()))
}

// Token returns the token of a backend.
func (p *Pool) Token(b *Backend) string {
	var text [TokenLen]byte
	return string(b.AppendToken(text[:0]))
}

// AppendToken appends the token of the backend.
func (b *Backend) AppendToken(dst []byte) []byte {
	var raw [8]byte
	binary.BigEndian.PutUint64(raw[:], b.token.Load())
	return base64.RawURLEncoding.AppendEncode(dst, raw[:])
}

// FromToken returns the backend that a token names. A draining backend keeps its sessions. The token of a backend that is
// full or does not serve is reported by the refusal; then Pick finds another one, which needs a new token.
func (p *Pool) FromToken(now clock.Time, token string) (*Backend, Refusal) {
	n, ok := parseToken(token)
	if !ok {
		return nil, NoBackend
	}
	return p.fromToken(now, n)
}

func (p *Pool) fromToken(now clock.Time, n uint64) (*Backend, Refusal) {
	s := p.snap.Load()
	b := s.tokens[n]
	if b == nil || b.flags.Load()&(flagInactive|flagGone) != 0 {
		return nil, NoBackend
	}
	if !p.panics.Load() && (b.flags.Load()&flagUnhealthy != 0 || int64(now) < b.ejected.Load()) {
		return nil, Unhealthy
	}
	if limit := s.Limits.Requests; limit > 0 && p.budget.active() >= int64(limit) {
		return nil, PoolFull
	}
	if b.full() {
		return nil, Full
	}
	return b, NotRefused
}

// parseToken returns the number that a token encodes.
func parseToken(token string) (n uint64, ok bool) {
	if len(token) != TokenLen {
		return 0, false
	}
	var text [TokenLen]byte
	var raw [8]byte
	copy(text[:], token)
	if _, err := tokenEncoding.Decode(raw[:], text[:]); err != nil {
		return 0, false
	}
	return binary.BigEndian.Uint64(raw[:]), true
}

var tokenEncoding = base64.RawURLEncoding.Strict()
