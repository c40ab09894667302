package tls

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// crl returns a list of the authority; change may alter the template.
func (a *authority) crl(t testing.TB, change func(*x509.RevocationList), revoked ...*x509.Certificate) []byte {
	t.Helper()
	list := &x509.RevocationList{Number: big.NewInt(serials.Add(1)), ThisUpdate: time.Now().Add(-time.Minute), NextUpdate: time.Now().Add(time.Hour)}
	for _, c := range revoked {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: time.Now().Add(-time.Second)})
	}
	if change != nil {
		change(list)
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, a.cert, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// crlInto writes a list as PEM.
func crlInto(t testing.TB, path string, a *authority, change func(*x509.RevocationList), revoked ...*x509.Certificate) {
	t.Helper()
	writeFile(t, path, pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: a.crl(t, change, revoked...)}))
}

// crlFile writes a list to a new file.
func crlFile(t testing.TB, a *authority, change func(*x509.RevocationList), revoked ...*x509.Certificate) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "list.crl")
	crlInto(t, path, a, change, revoked...)
	return path
}

func TestRevocationByLists(t *testing.T) {
	root := newAuthority(t, "root", nil, nil)
	middle := newAuthority(t, "middle", root, nil)
	namesake := newAuthority(t, "middle", nil, nil) // the same name, another key
	bad, good := middle.issue(t, nil, nil, "bad").Leaf, middle.issue(t, nil, nil, "good").Leaf
	chain := func(leaf *x509.Certificate) [][]*x509.Certificate {
		return [][]*x509.Certificate{{leaf, middle.cert, root.cert}}
	}
	expired := func(l *x509.RevocationList) {
		l.ThisUpdate, l.NextUpdate = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	}
	future := func(l *x509.RevocationList) {
		l.ThisUpdate, l.NextUpdate = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
	}
	rootList := crlFile(t, root, nil)
	partial := func(l *x509.RevocationList) {
		l.ExtraExtensions = []pkix.Extension{{Id: oidDistribution, Critical: true, Value: []byte{0x30, 3, 0x81, 1, 0xff}}} // onlyContainsUserCerts
	}
	for what, tc := range map[string]struct {
		list                    string
		leaf                    *x509.Certificate
		wantLenient, wantStrict error
	}{
		"revoked":              {crlFile(t, middle, nil, bad), bad, ErrRevoked, ErrRevoked},
		"not revoked":          {crlFile(t, middle, nil, bad), good, nil, nil},
		"expired list":         {crlFile(t, middle, expired, bad), good, nil, ErrRevocationUnknown},
		"revoked in expired":   {crlFile(t, middle, expired, bad), bad, ErrRevoked, ErrRevoked},
		"list of the future":   {crlFile(t, middle, future), good, nil, ErrRevocationUnknown},
		"of another key":       {crlFile(t, namesake, nil, bad), bad, nil, ErrRevocationUnknown},
		"partial":              {crlFile(t, middle, partial, bad), good, nil, ErrRevocationUnknown},
		"partial, and revoked": {crlFile(t, middle, partial, bad), bad, ErrRevoked, ErrRevoked},
		"the intermediate":     {crlFile(t, root, nil, middle.cert), good, ErrRevoked, ErrRevocationUnknown},
	} {
		for strict, want := range map[bool]error{false: tc.wantLenient, true: tc.wantStrict} {
			r, err := LoadRevocation(RevocationOptions{Files: []string{rootList, tc.list}, Strict: strict})
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			for range 2 { // the second time from what is kept
				if err := r.Check(chain(tc.leaf)); !errors.Is(err, want) || (want == nil) != (err == nil) {
					t.Errorf("%s, strict %v: %v, want %v", what, strict, err, want)
				}
			}
		}
	}
	// One good chain is enough.
	r, err := LoadRevocation(RevocationOptions{Files: []string{crlFile(t, middle, nil, bad)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check([][]*x509.Certificate{chain(bad)[0], chain(good)[0]}); err != nil {
		t.Error(err)
	}
}

func TestListsAreLoadedAgainAndBadOnesLeaveTheOld(t *testing.T) {
	root := newAuthority(t, "root", nil, nil)
	leaf := root.issue(t, nil, nil, "x").Leaf
	chain := [][]*x509.Certificate{{leaf, root.cert}}
	der := filepath.Join(t.TempDir(), "list.der")
	writeFile(t, der, root.crl(t, nil, leaf))
	r, err := LoadRevocation(RevocationOptions{Files: []string{der}})
	if err != nil {
		t.Fatal(err)
	}
	indirect := func(l *x509.RevocationList) {
		l.ExtraExtensions = []pkix.Extension{{Id: oidDistribution, Critical: true, Value: []byte{0x30, 3, 0x84, 1, 0xff}}}
	}
	delta := func(l *x509.RevocationList) {
		l.ExtraExtensions = []pkix.Extension{{Id: oidDeltaCRL, Critical: true, Value: []byte{2, 1, 1}}}
	}
	unknown := func(l *x509.RevocationList) {
		l.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3}, Critical: true, Value: []byte{5, 0}}}
	}
	entry := func(l *x509.RevocationList) {
		l.RevokedCertificateEntries = []x509.RevocationListEntry{{
			SerialNumber: big.NewInt(1), RevocationTime: time.Now(),
			ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 29}, Critical: true, Value: []byte{0x30, 0}}}, // certificateIssuer
		}}
	}
	for what, b := range map[string][]byte{
		"empty": {}, "garbage": []byte("garbage"), "other PEM": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.cert.Raw}),
		"PEM of garbage": pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: []byte{1}}),
		"indirect":       root.crl(t, indirect), "delta": root.crl(t, delta), "critical": root.crl(t, unknown), "critical entry": root.crl(t, entry),
	} {
		writeFile(t, der, b)
		var file *FileError
		if err := r.Reload(); !errors.As(err, &file) || !errors.Is(err, ErrBadCRL) {
			t.Errorf("%s: %v", what, err)
		}
		if err := r.Check(chain); !errors.Is(err, ErrRevoked) {
			t.Errorf("%s: the old list is gone: %v", what, err)
		}
	}
	_ = os.Remove(der)
	if err := r.Reload(); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	writeFile(t, der, append(pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: root.crl(t, nil)}), pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: root.crl(t, nil, root.cert)})...))
	if err := r.Reload(); err != nil || r.Check(chain) != nil {
		t.Error(err)
	}
	if st := r.Status(); len(st) != 2 || st[0].Issuer != "CN=root" || st[1].Entries != 1 || st[0].NextUpdate.Before(time.Now()) {
		t.Errorf("%+v", st)
	}
}

func FuzzParseCRL(f *testing.F) {
	root := newAuthority(f, "root", nil, nil)
	f.Add(root.crl(f, nil, root.cert))
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, err := parseCRL(b); err == nil {
			l.signedBy(root.cert)
		} else if !errors.Is(err, ErrBadCRL) {
			t.Fatal(err)
		}
	})
}
