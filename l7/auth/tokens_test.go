package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"
)

// signer makes tokens as an issuer does.
type signer struct {
	kid, alg string
	key      crypto.Signer
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// token signs a header and a payload.
func (s *signer) token(t testing.TB, header, payload string) string {
	t.Helper()
	signed := b64([]byte(header)) + "." + b64([]byte(payload))
	sum := sha256.Sum256([]byte(signed))
	var sig []byte
	var err error
	switch k := s.key.(type) {
	case *rsa.PrivateKey:
		sig, err = rsa.SignPKCS1v15(rand.Reader, k, crypto.SHA256, sum[:])
	case *ecdsa.PrivateKey:
		var r, ss *big.Int
		r, ss, err = ecdsa.Sign(rand.Reader, k, sum[:])
		sig = append(r.FillBytes(make([]byte, 32)), ss.FillBytes(make([]byte, 32))...)
	case ed25519.PrivateKey:
		sig = ed25519.Sign(k, []byte(signed))
	}
	if err != nil {
		t.Fatal(err)
	}
	return signed + "." + b64(sig)
}

func (s *signer) header() string { return fmt.Sprintf(`{"alg":%q,"kid":%q,"typ":"JWT"}`, s.alg, s.kid) }

// jwk is the public key as it is written.
func (s *signer) jwk(t testing.TB) map[string]any {
	t.Helper()
	m := map[string]any{"kid": s.kid, "alg": s.alg, "use": "sig"}
	switch k := s.key.Public().(type) {
	case *rsa.PublicKey:
		m["kty"], m["n"], m["e"] = "RSA", b64(k.N.Bytes()), b64(big.NewInt(int64(k.E)).Bytes())
	case *ecdsa.PublicKey:
		p, err := k.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		m["kty"], m["crv"], m["x"], m["y"] = "EC", "P-256", b64(p[1:33]), b64(p[33:])
	case ed25519.PublicKey:
		m["kty"], m["crv"], m["x"] = "OKP", "Ed25519", b64(k)
	}
	return m
}

func signers(t testing.TB) []*signer {
	t.Helper()
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	e, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, d, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return []*signer{{"r", "RS256", r}, {"e", "ES256", e}, {"d", "EdDSA", d}}
}

func jwks(t testing.TB, list ...map[string]any) []byte {
	t.Helper()
	text, err := json.Marshal(map[string]any{"keys": list})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// now is the time of the tests.
var now = time.Unix(1_800_000_000, 0)

const valid = `{"iss":"https://issuer.example","aud":["other","api"],"sub":"ann","exp":1800000060,"nbf":1799999940,"roles":["a","b"],"level":7,"ok":true,"deep":{}}`

func verifier(t testing.TB, all []*signer) *Tokens {
	t.Helper()
	var list []map[string]any
	for _, s := range all {
		list = append(list, s.jwk(t))
	}
	keys, err := ParseJWKS(jwks(t, list...))
	if err != nil {
		t.Fatal(err)
	}
	tokens := NewTokens(TokenOptions{Issuer: "https://issuer.example", Audiences: []string{"api", "web"}, Leeway: 10 * time.Second})
	tokens.SetKeys(keys)
	return tokens
}

func TestTokensOfEachAlgorithm(t *testing.T) {
	all := signers(t)
	tokens := verifier(t, all)
	var cache TokenCache
	for _, s := range all {
		token := s.token(t, s.header(), valid)
		for range 2 { // the second time from the cache
			c, err := tokens.Check(&cache, now, token)
			if err != nil || c.Subject != "ann" {
				t.Fatalf("%s: %+v, %v", s.alg, c, err)
			}
			for name, want := range map[string]string{"roles": "a,b", "level": "7", "ok": "true", "deep": "", "none": "", "sub": "ann"} {
				if got := c.Text(name); got != want {
					t.Errorf("%s: %s is %q, want %q", s.alg, name, got, want)
				}
			}
		}
		for i := range len(token) { // no other text passes
			if c := token[i]; c != '.' {
				other := byte('A')
				if c == 'A' {
					other = 'B'
				}
				if _, err := tokens.Check(&TokenCache{}, now, token[:i]+string(other)+token[i+1:]); err == nil {
					t.Fatalf("%s: a token with another byte %d is accepted", s.alg, i)
				}
			}
			if i%37 == 0 {
				if _, err := tokens.Check(&TokenCache{}, now, token[:i]); err == nil {
					t.Fatalf("%s: %d bytes of a token are accepted", s.alg, i)
				}
			}
		}
	}
}

// TestConfusedTokensAreRefused has the attacks of RFC 8725 2.
func TestConfusedTokensAreRefused(t *testing.T) {
	all := signers(t)
	r, e, d := all[0], all[1], all[2]
	tokens := verifier(t, all)
	payload := b64([]byte(valid))
	der, err := x509.MarshalPKIXPublicKey(r.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	hs := func(header string, secret []byte) string {
		signed := b64([]byte(header)) + "." + payload
		m := hmac.New(sha256.New, secret)
		m.Write([]byte(signed))
		return signed + "." + b64(m.Sum(nil))
	}
	stranger := signers(t)[1]
	for _, c := range []struct {
		what, token string
		want        error
	}{
		{"none", b64([]byte(`{"alg":"none","kid":"r"}`)) + "." + payload + ".", ErrAlgorithm},
		{"none without a kid", b64([]byte(`{"alg":"none"}`)) + "." + payload + ".", ErrAlgorithm},
		{"None", b64([]byte(`{"alg":"None"}`)) + "." + payload + ".", ErrAlgorithm},
		{"no alg", b64([]byte(`{"kid":"r"}`)) + "." + payload + ".", ErrAlgorithm},
		{"alg twice by case", b64([]byte(`{"alg":"none","ALG":"RS256","kid":"r"}`)) + "." + payload + ".", ErrAlgorithm},
		{"HS256 with the public key", hs(`{"alg":"HS256","kid":"r"}`, der), ErrAlgorithm},
		{"HS256 in the name of RS256", hs(`{"alg":"RS256","kid":"r"}`, der), ErrSignature},
		{"a key of another algorithm", e.token(t, `{"alg":"ES256","kid":"r"}`, valid), ErrAlgorithm},
		{"the algorithm of another key", e.token(t, `{"alg":"RS256","kid":"r"}`, valid), ErrSignature},
		{"PS256", r.token(t, `{"alg":"PS256","kid":"r"}`, valid), ErrAlgorithm},
		{"another issuer's key", stranger.token(t, stranger.header(), valid), ErrSignature},
		{"a key in the header", stranger.token(t, `{"alg":"ES256","kid":"e","jwk":{"kty":"EC"},"jku":"https://evil.example","x5u":"https://evil.example"}`, valid), ErrSignature},
		{"an unknown kid", e.token(t, `{"alg":"ES256","kid":"x"}`, valid), ErrNoKey},
		{"a critical extension", d.token(t, `{"alg":"EdDSA","kid":"d","crit":["b64"],"b64":false}`, valid), ErrForm},
		{"a zero signature", b64([]byte(e.header())) + "." + payload + "." + b64(make([]byte, 64)), ErrSignature},
		{"no signature", b64([]byte(e.header())) + "." + payload + ".", ErrSignature},
		{"an ASN.1 signature", b64([]byte(e.header())) + "." + payload + "." + b64(asn1Signature(t, e, b64([]byte(e.header()))+"."+payload)), ErrSignature},
		{"four parts", d.token(t, d.header(), valid) + ".", ErrForm},
		{"padding", d.token(t, d.header(), valid) + "=", ErrForm},
		{"not JSON", d.token(t, d.header(), "x"), ErrForm},
		{"a list", d.token(t, d.header(), "[]"), ErrForm},
		{"null", d.token(t, d.header(), "null"), ErrForm},
		{"nothing", "", ErrForm},
		{"dots", "..", ErrForm},
	} {
		if _, err := tokens.Check(&TokenCache{}, now, c.token); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
	if _, err := tokens.Check(&TokenCache{}, now, d.token(t, `{"alg":"EdDSA"}`, valid)); err != nil {
		t.Errorf("without a kid: %v", err)
	}
	select {
	case <-tokens.Wanted():
	default:
		t.Error("an unknown kid asked for no keys")
	}
}

func asn1Signature(t *testing.T, s *signer, signed string) []byte {
	t.Helper()
	sum := sha256.Sum256([]byte(signed))
	sig, err := s.key.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	return sig
}

func TestClaimsAreChecked(t *testing.T) {
	all := signers(t)
	d := all[2]
	tokens := verifier(t, all)
	for _, c := range []struct {
		old, new string
		want     error
	}{
		{"", "", nil},
		{`"https://issuer.example"`, `"https://other.example"`, ErrIssuer},
		{`"iss":"https://issuer.example",`, "", ErrIssuer},
		{`"iss":`, `"ISS":`, ErrIssuer},
		{`["other","api"]`, `"web"`, nil},
		{`["other","api"]`, `["other"]`, ErrAudience},
		{`["other","api"]`, `""`, ErrAudience},
		{`["other","api"]`, `{"api":1}`, ErrAudience},
		{`"aud":["other","api"],`, "", ErrAudience},
		{"1800000060", "1799999991", nil}, // within the leeway
		{"1800000060", "1799999990", ErrExpired},
		{"1800000060", "1799999990.5", nil},
		{"1800000060", "-1", ErrExpired},
		{"1800000060", "1e300", ErrExpired},
		{"1800000060", `"1800000060"`, ErrExpired},
		{"1800000060", "null", ErrExpired},
		{`"exp":1800000060,`, "", ErrExpired},
		{"1799999940", "1800000010", nil},
		{"1799999940", "1800000011", ErrTooEarly},
		{"1799999940", `"x"`, ErrTooEarly},
		{`,"nbf":1799999940`, "", nil},
	} {
		payload := strings.Replace(valid, c.old, c.new, 1)
		if _, err := tokens.Check(&TokenCache{}, now, d.token(t, d.header(), payload)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", payload, err, c.want)
		}
	}
	var cache TokenCache
	token := d.token(t, d.header(), valid)
	for _, c := range []struct {
		at   int64
		want error
	}{{0, nil}, {69, nil}, {70, ErrExpired}, {0, nil}, {-71, ErrTooEarly}} {
		if _, err := tokens.Check(&cache, now.Add(time.Duration(c.at)*time.Second), token); !errors.Is(err, c.want) {
			t.Errorf("%d s later: %v, want %v", c.at, err, c.want)
		}
	}
	tokens.SetKeys([]Key{{ID: "d", Algorithm: EdDSA, Public: signers(t)[2].key.Public()}})
	if _, err := tokens.Check(&cache, now, token); !errors.Is(err, ErrSignature) {
		t.Errorf("a token of a key that is gone: %v", err)
	}
	if _, err := NewTokens(TokenOptions{}).Check(&cache, now, token); !errors.Is(err, ErrNoKeys) {
		t.Errorf("without keys: %v", err)
	}
}

func TestMistakesInASetOfKeys(t *testing.T) {
	all := signers(t)
	change := func(i int, key string, value any) map[string]any {
		m := all[i].jwk(t)
		m[key] = value
		return m
	}
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key  map[string]any
		want string
	}{
		{(&signer{"s", "RS256", small}).jwk(t), "1024 bits: at least 2048"},
		{change(0, "e", b64([]byte{1})), "the exponent is 1"},
		{change(0, "e", b64([]byte{4})), "the exponent is 4"},
		{change(0, "n", ""), "n is wrong"},
		{change(0, "n", "***"), "n is wrong"},
		{change(0, "d", "AQAB"), "private key"},
		{change(1, "x", b64(make([]byte, 32))), "no point of P-256"},
		{change(1, "y", b64(make([]byte, 31))), "y is wrong"},
		{change(1, "crv", "P-384"), "no key for"},
		{change(2, "x", b64(make([]byte, 31))), "x is wrong"},
		{change(2, "use", "enc"), "no key for"},
		{change(0, "key_ops", []string{"encrypt"}), "no key for"},
		{change(0, "alg", "PS256"), "no key for"},
		{map[string]any{"kty": "oct", "k": "AA"}, "no key for"},
	} {
		if _, err := ParseJWKS(jwks(t, c.key)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.key, err, c.want)
		}
	}
	for _, text := range []string{"", "[]", "{", `{"keys":7}`, `{}`, strings.Repeat(" ", maxJWKS+1)} {
		if _, err := ParseJWKS([]byte(text)); err == nil {
			t.Errorf("%.20q is accepted", text)
		}
	}
	if keys, err := ParseJWKS(jwks(t, map[string]any{"kty": "oct"}, change(0, "alg", "RS256"), change(1, "kid", ""))); err != nil || len(keys) != 2 {
		t.Errorf("%d keys, %v", len(keys), err)
	}
}

func TestACacheOfTokensIsBounded(t *testing.T) {
	var c TokenCache
	for i := range 5 * cached {
		id := sha256.Sum256([]byte(fmt.Sprint(i)))
		c.put(id, &Claims{})
		if c.get(id) == nil || len(c.now)+len(c.before) > 2*cached {
			t.Fatalf("%d: %d and %d", i, len(c.now), len(c.before))
		}
	}
}

// FuzzTokens looks for texts that bring a verifier down. No text passes but those that were signed.
func FuzzTokens(f *testing.F) {
	all := signers(f)
	tokens := verifier(f, all)
	signed := map[string]bool{}
	for _, s := range all {
		token := s.token(f, s.header(), valid)
		signed[token] = true
		f.Add(token)
	}
	f.Fuzz(func(t *testing.T, token string) {
		if _, err := tokens.Check(&TokenCache{}, now, token); (err == nil) != signed[token] {
			t.Errorf("%q: %v", token, err)
		}
	})
}

// BenchmarkToken is what a token costs a loop: the first time, and when it is remembered.
func BenchmarkToken(b *testing.B) {
	all := signers(b)
	tokens := verifier(b, all)
	for _, s := range all {
		token := s.token(b, s.header(), valid)
		b.Run(s.alg, func(b *testing.B) {
			for b.Loop() {
				if _, err := tokens.Check(&TokenCache{}, now, token); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("remembered", func(b *testing.B) {
		var cache TokenCache
		token := all[0].token(b, all[0].header(), valid)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := tokens.Check(&cache, now, token); err != nil {
				b.Fatal(err)
			}
		}
	})
}
