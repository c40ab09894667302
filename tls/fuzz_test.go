package tls

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzServerName looks certificates up by whatever name a client sends. crypto/x509 is the oracle: the store returns
// a certificate of the name if it has one, and the default otherwise.
func FuzzServerName(f *testing.F) {
	ca := newAuthority(f, "root", nil, nil)
	s := &Store{}
	names := []string{"a.example", "*.a.example", "www.a.example", "*.b.a.example", "x--1.example"}
	for _, name := range names {
		if err := s.Set(name, ca.issue(f, nil, nil, name), false); err != nil {
			f.Fatal(err)
		}
	}
	if err := s.Set("default", ca.issue(f, nil, nil, "default.example"), true); err != nil {
		f.Fatal(err)
	}
	for _, name := range append(names, "", "A.EXAMPLE.", "b.a.example", "c.b.a.example", ".a.example", "*.a.example", "a.example\x00", "192.0.2.1") {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if strings.HasSuffix(name, "..") {
			return // both remove a dot at the end, which is two in all
		}
		cert, err := s.GetCertificate(modern(name))
		if err != nil || cert == nil {
			t.Fatalf("%q: %v, %v", name, cert, err)
		}
		got := cert.Leaf.DNSNames[0]
		var fits []string
		for _, e := range s.entries {
			// A pattern is not a name that a certificate could be valid for.
			if host := strings.TrimSuffix(name, "."); !strings.Contains(host, "*") && e.cert.Leaf.VerifyHostname(host) == nil {
				fits = append(fits, e.cert.Leaf.DNSNames[0])
			}
		}
		switch {
		case len(fits) == 0 && got != "default.example" && checkPublicName(strings.TrimSuffix(name, ".")) == nil: // is a host name
			t.Fatalf("%q: %s", name, got)
		case len(fits) > 0 && cert.Leaf.VerifyHostname(strings.TrimSuffix(name, ".")) != nil:
			t.Fatalf("%q: %s, and %q fit", name, got, fits)
		}
	})
}

// FuzzTicketSecrets reads files of secrets. One that is accepted has secrets of enough bytes, and keys that decrypt
// what they encrypt; the error for another has nothing of the file.
func FuzzTicketSecrets(f *testing.F) {
	const secret = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
	f.Add([]byte("# comment\n" + secret + "\n\n" + secret + "\n"))
	f.Add([]byte(secret[:20]))
	f.Add([]byte{})
	file := filepath.Join(f.TempDir(), "tickets")
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		k, err := LoadTicketKeys(0, file)
		if err != nil {
			for line := range strings.SplitSeq(string(b), "\n") {
				if line = strings.TrimSpace(line); len(line) > 12 && strings.Contains(strings.TrimPrefix(err.Error(), file), line) {
					t.Fatalf("the error has a line of the file: %v", err)
				}
			}
			return
		}
		for _, s := range *k.secrets.Load() {
			if len(s) < MinTicketSecret {
				t.Fatalf("a secret of %d bytes", len(s))
			}
		}
		if err := k.Reload(); err != nil {
			t.Fatal(err)
		}
	})
}
