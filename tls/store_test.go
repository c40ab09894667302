package tls

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// modern is what a client of today offers.
func modern(name string) *tls.ClientHelloInfo {
	return &tls.ClientHelloInfo{
		ServerName: name, SupportedVersions: []uint16{tls.VersionTLS13, tls.VersionTLS12},
		SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256, tls.PSSWithSHA256, tls.PKCS1WithSHA256},
		SupportedCurves:  []tls.CurveID{tls.X25519, tls.CurveP256},
		CipherSuites:     []uint16{tls.TLS_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256},
		SupportedPoints:  []uint8{0},
	}
}

// found returns the common name of the certificate for a hello.
func found(t *testing.T, s *Store, hello *tls.ClientHelloInfo) string {
	t.Helper()
	c, err := s.GetCertificate(hello)
	if err != nil {
		t.Fatal(err)
	}
	if c == nil {
		return ""
	}
	return c.Leaf.Subject.CommonName
}

func TestExactBeatsWildcardBeatsDefault(t *testing.T) {
	ca := newAuthority(t, "root", nil, nil)
	s := storeOf(t, ca.issue(t, nil, nil, "default.example"), ca.issue(t, nil, nil, "*.a.example", "A.example"),
		ca.issue(t, nil, nil, "www.a.example"), ca.issue(t, nil, nil, "*.b.a.example"))
	for name, want := range map[string]string{
		"www.a.example":           "www.a.example",
		"WWW.a.EXAMPLE":           "www.a.example",
		"www.a.example.":          "www.a.example",
		"other.a.example":         "*.a.example",
		"a.example":               "*.a.example",
		"x.b.a.example":           "*.b.a.example",
		"b.a.example":             "*.a.example",
		"x.y.a.example":           "default.example", // a wildcard is one label
		".a.example":              "default.example",
		"*.a.example":             "*.a.example",
		"":                        "default.example",
		"unknown":                 "default.example",
		"192.0.2.1":               "default.example",
		strings.Repeat("a.", 150): "default.example",
		strings.Repeat("x", 254-9) + ".a.example":    "*.a.example",
		strings.Repeat("x", 254-9+10) + ".a.example": "default.example",
	} {
		if got := found(t, s, modern(name)); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
	s.Remove("a") // the default
	if c, err := s.GetCertificate(modern("unknown")); c != nil || err != nil {
		t.Errorf("%v, %v; want none", c, err)
	}
	if c, err := new(Store).GetCertificate(modern("a")); c != nil || err != nil {
		t.Errorf("empty store: %v, %v", c, err)
	}
	if got := found(t, s, modern("www.a.example")); got != "www.a.example" {
		t.Error(got)
	}
}

func TestTheKeyIsOneThatTheClientSupports(t *testing.T) {
	ca := newAuthority(t, "root", nil, nil)
	named := func(cn string) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.Subject.CommonName = cn }
	}
	s := storeOf(t, ca.issue(t, rsaKey(), named("rsa"), "a.example"), ca.issue(t, nil, named("ecdsa"), "a.example"), ca.issue(t, edKey(), named("ed"), "a.example"))
	onlyRSA := modern("a.example")
	onlyRSA.SignatureSchemes = []tls.SignatureScheme{tls.PSSWithSHA384}
	onlyEd := modern("a.example")
	onlyEd.SignatureSchemes = []tls.SignatureScheme{tls.Ed25519}
	old := modern("a.example")
	old.SupportedVersions = []uint16{tls.VersionTLS12}
	oldRSA := modern("a.example")
	oldRSA.SupportedVersions, oldRSA.CipherSuites = old.SupportedVersions, []uint16{tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384}
	oldNoCurve := modern("a.example")
	oldNoCurve.SupportedVersions, oldNoCurve.SupportedCurves = old.SupportedVersions, []tls.CurveID{tls.X25519}
	none := modern("a.example")
	none.SignatureSchemes = nil
	for what, tc := range map[string]struct {
		hello *tls.ClientHelloInfo
		want  string
	}{
		"modern": {modern("a.example"), "ecdsa"}, "RSA": {onlyRSA, "rsa"}, "Ed25519": {onlyEd, "ed"}, "TLS 1.2": {old, "ecdsa"},
		"suites of RSA": {oldRSA, "rsa"}, "no P-256": {oldNoCurve, "rsa"}, "nothing": {none, "ecdsa"},
	} {
		if got := found(t, s, tc.hello); got != tc.want {
			t.Errorf("%s: %s, want %s", what, got, tc.want)
		}
	}
	// Where the exact name has no key for the client, a wildcard that has one is better than none.
	w := storeOf(t, ca.issue(t, nil, nil, "a.b.example"), ca.issue(t, rsaKey(), nil, "*.b.example"))
	onlyRSA.ServerName = "a.b.example"
	if got := found(t, w, onlyRSA); got != "*.b.example" {
		t.Error(got)
	}
}

// TestTheChoiceIsThatOfCryptoTLS compares with SupportsCertificate over hellos at random.
func TestTheChoiceIsThatOfCryptoTLS(t *testing.T) {
	ca := newAuthority(t, "root", nil, nil)
	p384, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	p521, _ := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	r := mrand.New(mrand.NewPCG(1, 2))
	agree := map[bool]int{}
	for _, key := range []crypto.Signer{newKey(t), p384, p521, rsaKey(), edKey()} {
		cert := ca.issue(t, key, nil, "a.example")
		e, err := newEntry("x", cert, false, false)
		if err != nil {
			t.Fatal(err)
		}
		for range 3000 {
			h := &tls.ClientHelloInfo{ServerName: "a.example", SupportedPoints: []uint8{0}}
			h.SupportedVersions = pick(r, []uint16{tls.VersionTLS13, tls.VersionTLS12})
			h.SignatureSchemes = pick(r, append(schemesECDSA[:3:3], append(schemesRSA[:6:6], tls.Ed25519)...))
			h.SupportedCurves = append(pick(r, []tls.CurveID{tls.CurveP256, tls.CurveP384, tls.CurveP521}), tls.X25519)
			h.CipherSuites = append(pick(r, safeSuites), tls.TLS_AES_128_GCM_SHA256)
			if len(h.SupportedVersions) == 0 || len(h.SignatureSchemes) == 0 {
				continue // without signature_algorithms crypto/tls does not look at the key here, and refuses later
			}
			want := h.SupportsCertificate(&cert) == nil
			if got := e.ability.suits(h); got != want {
				t.Fatalf("%s: %v, crypto/tls says %v (%v): %+v", e.ability.name, got, want, h.SupportsCertificate(&cert), h)
			}
			agree[want]++
		}
	}
	if agree[true] < 1000 || agree[false] < 1000 {
		t.Errorf("%v: too few of one kind", agree)
	}
}

// pick returns a random subset.
func pick[T any](r *mrand.Rand, all []T) (some []T) {
	for _, x := range all {
		if r.IntN(3) == 0 {
			some = append(some, x)
		}
	}
	return some
}

func TestTenThousandCertificatesAreFoundWithoutAllocation(t *testing.T) {
	ca := newAuthority(t, "root", nil, nil)
	one := ca.issue(t, nil, nil, "one.example")
	s := &Store{entries: map[string]*entry{}}
	for i := range 10_000 { // signing as many takes long: names are changed in copies
		leaf := *one.Leaf
		leaf.DNSNames = []string{fmt.Sprintf("host%d.example", i), fmt.Sprintf("*.wild%d.example", i)}
		c := one
		c.Leaf = &leaf
		e, err := newEntry(leaf.DNSNames[0], c, i == 0, false)
		if err != nil {
			t.Fatal(err)
		}
		s.put(e)
	}
	s.publish()
	for name, want := range map[string]string{"host9999.example": "host9999.example", "x.Wild5000.example": "host5000.example", "none": "host0.example"} {
		hello := modern(name)
		var got *tls.Certificate
		if n := testing.AllocsPerRun(100, func() { got, _ = s.GetCertificate(hello) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		if got.Leaf.DNSNames[0] != want {
			t.Errorf("%s: %v", name, got.Leaf.DNSNames)
		}
	}
}

func TestExpiredCertificatesAreTheLastChoice(t *testing.T) {
	ca := newAuthority(t, "root", nil, nil)
	expired := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
	early := func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }
	old, future, good := ca.issue(t, nil, expired, "a.example"), ca.issue(t, nil, early, "a.example"), ca.issue(t, rsaKey(), nil, "a.example")
	s := storeOf(t, old, future, good)
	if c, _ := s.GetCertificate(modern("a.example")); c.Leaf.SerialNumber.Cmp(good.Leaf.SerialNumber) != 0 {
		t.Error("one that is not valid was chosen")
	}
	if c, _ := storeOf(t, old).GetCertificate(modern("a.example")); c == nil {
		t.Error("an expired one is better than none")
	}
	st := s.Status()
	if len(st) != 3 || st[0].ID != "a" || !st[0].NotAfter.Before(time.Now()) || st[2].KeyType != "RSA 2048" && st[1].KeyType != "RSA 2048" {
		t.Errorf("%+v", st)
	}
}

func TestWhatCannotBeServedIsRefused(t *testing.T) {
	ca := newAuthority(t, "root", nil, nil)
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Skip("crypto/rsa makes no small keys:", err)
	}
	p224, _ := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	noKey := ca.issue(t, nil, nil, "a.example")
	noKey.PrivateKey = nil
	for what, c := range map[string]tls.Certificate{
		"small RSA": ca.issue(t, small, nil, "a.example"), "P-224": ca.issue(t, p224, nil, "a.example"), "no key": noKey,
		"nothing": {}, "garbage": {Certificate: [][]byte{{1}}, PrivateKey: small}, "no names": ca.issue(t, nil, nil),
	} {
		if err := new(Store).Set("x", c, false); !errors.Is(err, ErrUnusableCertificate) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestFilesAreLoadedAgainAndBadOnesLeaveTheOldCertificate(t *testing.T) {
	ca := newAuthority(t, "root", nil, nil)
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one.pem"), filepath.Join(dir, "two.pem")
	named := func(cn string) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.Subject.CommonName = cn }
	}
	writeFile(t, one, pemOf(t, ca.issue(t, nil, named("first"), "one.example")))
	writeFile(t, two, pemOf(t, ca.issue(t, nil, named("second"), "two.example")))
	var s Store
	if err := s.Load(KeyPair{CertFile: one}, KeyPair{CertFile: two, Default: true}); err != nil {
		t.Fatal(err)
	}
	if got := found(t, &s, modern("one.example")) + found(t, &s, modern("none")); got != "firstsecond" {
		t.Error(got)
	}
	before := s.index.Load()
	if err := s.Reload(); err != nil || s.index.Load() != before {
		t.Errorf("nothing changed, and yet: %v", err)
	}
	// A new certificate in a file that was renamed over the old one.
	writeFile(t, one+".new", pemOf(t, ca.issue(t, nil, named("renewed"), "one.example")))
	if err := os.Rename(one+".new", one); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(); err != nil || found(t, &s, modern("one.example")) != "renewed" {
		t.Errorf("%v, %s", err, found(t, &s, modern("one.example")))
	}
	expired := ca.issue(t, nil, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }, "one.example")
	mixed := ca.issue(t, nil, nil, "one.example")
	mixed.PrivateKey = newKey(t)
	for what, b := range map[string][]byte{
		"empty": {}, "garbage": []byte("no PEM"), "expired": pemOf(t, expired), "another's key": pemOf(t, mixed),
		"cut": pemOf(t, ca.issue(t, nil, nil, "one.example"))[:200], "too large": make([]byte, maxFile+1),
	} {
		writeFile(t, one, b)
		err := s.Reload()
		var file *FileError
		if !errors.As(err, &file) || file.File != one {
			t.Errorf("%s: %v", what, err)
		}
		if what == "expired" && !errors.Is(err, ErrExpired) {
			t.Error(err)
		}
		if got := found(t, &s, modern("one.example")); got != "renewed" {
			t.Errorf("%s: serves %q", what, got)
		}
		if st := s.Status(); st[0].Err == nil && st[1].Err == nil {
			t.Errorf("%s: the status shows no error", what)
		}
		if err := s.Reload(); err == nil {
			t.Errorf("%s: forgotten", what)
		}
	}
	_ = os.Remove(one)
	if err := s.Reload(); !errors.Is(err, os.ErrNotExist) || found(t, &s, modern("one.example")) != "renewed" {
		t.Error(err)
	}
	writeFile(t, one, pemOf(t, ca.issue(t, nil, named("good again"), "one.example")))
	if err := s.Reload(); err != nil || found(t, &s, modern("one.example")) != "good again" || s.Status()[0].Err != nil {
		t.Error(err)
	}
	if err := s.Set("other", ca.issue(t, nil, nil, "other.example"), false); err != nil {
		t.Fatal(err)
	}
	if err := s.Load(KeyPair{CertFile: two}); err != nil || found(t, &s, modern("one.example")) != "" || found(t, &s, modern("other.example")) == "" {
		t.Errorf("%v: what is no longer listed is still served, or what was set is gone", err)
	}
}

func TestSeparateKeyFiles(t *testing.T) {
	ca := newAuthority(t, "root", nil, nil)
	dir := t.TempDir()
	c := ca.issue(t, nil, nil, "a.example")
	chain := writeFile(t, filepath.Join(dir, "c"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}))
	key := writeFile(t, filepath.Join(dir, "k"), pemOf(t, c))
	var s Store
	if err := s.Load(KeyPair{CertFile: chain, KeyFile: key}); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(key)
	if err := s.Reload(); err == nil {
		t.Error("the key is gone, and nobody says so")
	}
}

// TestSwapsDisturbNoHandshake replaces a certificate while clients connect.
func TestSwapsDisturbNoHandshake(t *testing.T) {
	ca := newAuthority(t, "root", nil, nil)
	a, b := ca.issue(t, nil, nil, "a.example"), ca.issue(t, rsaKey(), nil, "a.example")
	s := storeOf(t, a)
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			c := a
			if i%2 == 0 {
				c = b
			}
			_ = s.Set("a", c, true)
		}
	})
	server, client := serverConfig(t, ServerOptions{Store: s}), &tls.Config{RootCAs: ca.roots(), ServerName: "a.example"}
	for range 50 {
		mustShake(t, server, client)
	}
	close(stop)
	swapping.Wait()
}

func BenchmarkGetCertificate(b *testing.B) {
	ca := newAuthority(b, "root", nil, nil)
	one := ca.issue(b, nil, nil, "one.example")
	s := &Store{}
	for i := range 10_000 {
		leaf := *one.Leaf
		leaf.DNSNames = []string{fmt.Sprintf("*.host%d.example", i)}
		c := one
		c.Leaf = &leaf
		e, _ := newEntry(leaf.DNSNames[0], c, i == 0, false)
		s.put(e)
	}
	s.publish()
	hello := modern("www.host5000.example")
	b.ReportAllocs()
	for b.Loop() {
		_, _ = s.GetCertificate(hello)
	}
}

// TestBatchesTakeEffectAtOnce also publishes the index of 10 000 certificates once, not each time.
func TestBatchesTakeEffectAtOnce(t *testing.T) {
	ca := newAuthority(t, "root", nil, nil)
	s := storeOf(t, ca.issue(t, nil, nil, "old.example"))
	before := s.index.Load()
	s.Batch(func() {
		s.Remove("a")
		if err := s.Set("b", ca.issue(t, nil, nil, "new.example"), false); err != nil {
			t.Error(err)
		}
		if s.index.Load() != before {
			t.Error("a change took effect before the end")
		}
	})
	if found(t, s, modern("new.example")) == "" || found(t, s, modern("old.example")) != "" {
		t.Error("the changes did not take effect")
	}
}

func BenchmarkPublish(b *testing.B) {
	ca := newAuthority(b, "root", nil, nil)
	one := ca.issue(b, nil, nil, "one.example")
	s := &Store{}
	for i := range 10_000 {
		leaf := *one.Leaf
		leaf.DNSNames = []string{fmt.Sprintf("host%d.example", i)}
		c := one
		c.Leaf = &leaf
		e, _ := newEntry(leaf.DNSNames[0], c, i == 0, false)
		s.put(e)
	}
	for b.Loop() {
		s.publish()
	}
}

func TestAStapleThatCameWithACertificateIsNotSent(t *testing.T) {
	ca := newAuthority(t, "root", nil, nil)
	c := ca.issue(t, nil, nil, "a.example")
	c.OCSPStaple = []byte("of some time")
	if got, _ := storeOf(t, c).GetCertificate(modern("a.example")); got.OCSPStaple != nil {
		t.Error("sent for ever")
	}
}
