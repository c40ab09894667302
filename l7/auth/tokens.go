package auth

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// TokenOptions define which tokens are accepted.
type TokenOptions struct {
	Issuer    string        // that "iss" must be
	Audiences []string      // of which "aud" must have one
	Leeway    time.Duration // by which clocks may differ
}

// Tokens verifies JSON Web Tokens. Its keys may change at any time. Each worker has a TokenCache of its own.
type Tokens struct {
	opt    TokenOptions
	keys   atomic.Pointer[keySet]
	wanted chan struct{} // a token names a key that is not there
}

// keySet is a set of keys; another one invalidates what was verified by it.
type keySet struct{ keys []Key }

// NewTokens returns a verifier without keys.
func NewTokens(opt TokenOptions) *Tokens {
	return &Tokens{opt: opt, wanted: make(chan struct{}, 1)}
}

// SetKeys replaces the keys. Tokens that were verified by others are verified again.
func (t *Tokens) SetKeys(keys []Key) { t.keys.Store(&keySet{keys}) }

// Ready reports whether there are keys.
func (t *Tokens) Ready() bool { return t.keys.Load() != nil }

// Wanted receives a value where a token names a key that is not there: the issuer may have a new one.
func (t *Tokens) Wanted() <-chan struct{} { return t.wanted }

// Errors of Check.
var (
	ErrNoKeys    = errors.New("no keys have been read yet")
	ErrForm      = errors.New("not a token")
	ErrAlgorithm = errors.New("the algorithm is not that of the key")
	ErrNoKey     = errors.New("no key has its ID")
	ErrSignature = errors.New("the signature is wrong")
	ErrExpired   = errors.New("it has expired, or has no exp")
	ErrTooEarly  = errors.New("it is not valid yet")
	ErrIssuer    = errors.New("it has another issuer")
	ErrAudience  = errors.New("it is for another audience")
)

// Claims are those of a token that was verified.
type Claims struct {
	Subject string
	values  map[string]json.RawMessage
	from    time.Time // nbf, with leeway
	until   time.Time // exp, with leeway
	by      *keySet
}

// Text returns a claim as the value of a field: text, a number or a truth value as they are, and a list of texts with commas. Others,
// and those that are not there, are "".
func (c *Claims) Text(name string) string {
	raw := c.values[name]
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		return strings.Join(list, ",")
	}
	if len(raw) > 0 && raw[0] != '{' && raw[0] != '[' && string(raw) != "null" {
		return string(raw)
	}
	return ""
}

// TokenCache remembers tokens that were verified. It is one worker's.
type TokenCache struct {
	now, before map[[sha256.Size]byte]*Claims
}

// cached is the number of tokens in each of the two halves of a TokenCache.
const cached = 4096

func (c *TokenCache) get(id [sha256.Size]byte) *Claims {
	if v := c.now[id]; v != nil {
		return v
	}
	v := c.before[id]
	if v != nil {
		c.put(id, v)
	}
	return v
}

// put keeps a token. The older half makes room as a whole, so that no list of uses is needed.
func (c *TokenCache) put(id [sha256.Size]byte, v *Claims) {
	if len(c.now) >= cached || c.now == nil {
		c.now, c.before = map[[sha256.Size]byte]*Claims{}, c.now
	}
	c.now[id] = v
}

// Check verifies a token at a time. It keeps nothing of the text.
func (t *Tokens) Check(cache *TokenCache, now time.Time, token string) (*Claims, error) {
	keys := t.keys.Load()
	if keys == nil {
		return nil, ErrNoKeys
	}
	id := sha256.Sum256([]byte(token))
	c := cache.get(id)
	if c == nil || c.by != keys {
		var err error
		if c, err = t.verify(keys, token); err != nil {
			return nil, err
		}
		cache.put(id, c)
	}
	switch {
	case !now.Before(c.until):
		return nil, ErrExpired
	case now.Before(c.from):
		return nil, ErrTooEarly
	}
	return c, nil
}

var encoding = base64.RawURLEncoding.Strict()

// verify verifies the signature of a token, and all claims but the times.
func (t *Tokens) verify(keys *keySet, token string) (*Claims, error) {
	signed, last, ok := cutLast(token)
	head, payload, ok2 := strings.Cut(signed, ".")
	if !ok || !ok2 || strings.Contains(payload, ".") {
		return nil, ErrForm
	}
	header, err := object(head)
	if err != nil {
		return nil, err
	}
	if _, critical := header["crit"]; critical { // no extension is understood here (RFC 7515 4.1.11)
		return nil, ErrForm
	}
	signature, err := encoding.DecodeString(last)
	if err != nil {
		return nil, ErrForm
	}
	if err := t.verifySignature(keys, header, signed, signature); err != nil {
		return nil, err
	}
	values, err := object(payload)
	if err != nil {
		return nil, err
	}
	return t.claims(keys, values)
}

// verifySignature finds the key of a token. The key has the algorithm: that of the token must be the same, and never decides how a key
// is used (RFC 8725 3.1).
func (t *Tokens) verifySignature(keys *keySet, header map[string]json.RawMessage, signed string, signature []byte) error {
	alg, kid := text(header["alg"]), text(header["kid"])
	found, fits := false, false
	for i := range keys.keys {
		k := &keys.keys[i]
		if kid != "" && k.ID != "" && k.ID != kid {
			continue
		}
		if found = true; string(k.Algorithm) != alg {
			continue
		}
		if fits = true; k.verifies(signed, signature) {
			return nil
		}
	}
	switch {
	case fits:
		return ErrSignature
	case found:
		return ErrAlgorithm
	}
	select {
	case t.wanted <- struct{}{}:
	default: // it has been asked for
	}
	return ErrNoKey
}

// verifies reports whether a signature is one of the key (RFC 7518 3.3, 3.4, RFC 8037 3.1).
func (k *Key) verifies(signed string, signature []byte) bool {
	switch public := k.Public.(type) {
	case *rsa.PublicKey:
		sum := sha256.Sum256([]byte(signed))
		return rsa.VerifyPKCS1v15(public, crypto.SHA256, sum[:], signature) == nil
	case *ecdsa.PublicKey:
		if len(signature) != 64 {
			return false
		}
		sum := sha256.Sum256([]byte(signed))
		return ecdsa.Verify(public, sum[:], new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:]))
	case ed25519.PublicKey:
		return ed25519.Verify(public, []byte(signed), signature)
	}
	return false
}

// claims checks the claims of a payload that is the issuer's.
func (t *Tokens) claims(keys *keySet, values map[string]json.RawMessage) (*Claims, error) {
	c := &Claims{Subject: text(values["sub"]), values: values, by: keys}
	if text(values["iss"]) != t.opt.Issuer {
		return nil, ErrIssuer
	}
	var audiences []string
	if err := json.Unmarshal(values["aud"], &audiences); err != nil {
		audiences = []string{text(values["aud"])}
	}
	if !slices.ContainsFunc(audiences, func(a string) bool { return a != "" && slices.Contains(t.opt.Audiences, a) }) {
		return nil, ErrAudience
	}
	until, ok := date(values["exp"])
	if !ok {
		return nil, ErrExpired
	}
	c.until = until.Add(t.opt.Leeway)
	if raw, there := values["nbf"]; there {
		from, ok := date(raw)
		if !ok {
			return nil, ErrTooEarly
		}
		c.from = from.Add(-t.opt.Leeway)
	}
	return c, nil
}

// object decodes a part of a token. Names of members are compared by case, which decoding into a struct does not.
func object(part string) (m map[string]json.RawMessage, err error) {
	b, err := encoding.DecodeString(part)
	if err != nil || json.Unmarshal(b, &m) != nil || m == nil {
		return nil, ErrForm
	}
	return m, nil
}

// text returns a text of JSON; "" for anything else.
func text(raw json.RawMessage) (s string) {
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// date returns a time in seconds since 1970, which may have a fraction (RFC 7519 2).
func date(raw json.RawMessage) (time.Time, bool) {
	var f float64
	if bytes.Equal(raw, []byte("null")) || json.Unmarshal(raw, &f) != nil || f < 0 || f > 1<<40 {
		return time.Time{}, false
	}
	whole, part := math.Modf(f)
	return time.Unix(int64(whole), int64(part*1e9)), true
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, '.')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}
