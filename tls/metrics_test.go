package tls

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/metrics"
)

// gathered returns the values of a scrape by name and labels.
func gathered(t *testing.T, sel metrics.Selection, sources ...metrics.Source) map[string]float64 {
	t.Helper()
	r := metrics.NewRegistry(metrics.Build{})
	for _, s := range sources {
		r.Add(s)
	}
	all, err := r.GatherFor(sel)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, s := range all {
		key := s.Name
		for _, l := range s.Labels {
			key += " " + l.Value
		}
		values[key] = s.Value
	}
	return values
}

func TestMetricsHaveTheExpiryOfCertificates(t *testing.T) {
	ca := newAuthority(t, "root", nil, nil)
	dir := t.TempDir()
	file := writeFile(t, filepath.Join(dir, "a.pem"), pemOf(t, ca.issue(t, nil, nil, "a.example")))
	s := &Store{}
	if err := s.Load(KeyPair{CertFile: file}); err != nil {
		t.Fatal(err)
	}
	stapled := ca.issue(t, nil, nil, "b.example")
	if err := s.Set("b", stapled, false); err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	s.entries["b"].attach([]byte("response"), time.Now(), until)
	_ = os.WriteFile(file, []byte("no certificate"), 0o600)
	if err := s.Reload(); err == nil {
		t.Fatal("a bad file is loaded")
	}
	list := crlFile(t, ca, nil)
	revocation, err := LoadRevocation(RevocationOptions{Files: []string{list}})
	if err != nil {
		t.Fatal(err)
	}
	got := gathered(t, metrics.Selection{}, s.WriteMetrics, revocation.WriteMetrics)
	for key, want := range map[string]float64{
		"millrace_tls_certificates":                                        2,
		"millrace_tls_failed_certificates":                                 1,
		"millrace_tls_certificate_expiry_timestamp_seconds b":              float64(stapled.Leaf.NotAfter.Unix()),
		"millrace_tls_certificate_staple_expiry_timestamp_seconds b":       float64(until.Unix()),
		"millrace_tls_certificate_staple_expiry_timestamp_seconds " + file: 0,
		"millrace_tls_certificate_load_failed " + file:                     1,
		"millrace_tls_certificate_load_failed b":                           0,
		"millrace_tls_revocation_list_expiry_timestamp_seconds " + list + " CN=root": float64(
			revocation.Status()[0].NextUpdate.Unix()),
	} {
		if v, ok := got[key]; !ok || v != want {
			t.Errorf("%s is %v (%v), want %v", key, v, ok, want)
		}
	}
}

// TestMetricsOfManyCertificates: a scrape lists the certificates that expire first, and others on request.
func TestMetricsOfManyCertificates(t *testing.T) {
	ca := newAuthority(t, "root", nil, nil)
	s := &Store{}
	key := newKey(t)
	s.Batch(func() {
		for i := range 120 {
			cert := ca.issue(t, key, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(time.Duration(200-i) * time.Hour) }, "a.example")
			if err := s.Set(fmt.Sprintf("c%03d", i), cert, false); err != nil {
				t.Fatal(err)
			}
		}
	})
	const name = "millrace_tls_certificate_expiry_timestamp_seconds "
	for _, c := range []struct {
		sel   metrics.Selection
		n     int
		first bool // that which expires last
	}{
		{metrics.Selection{}, 100, false},
		{metrics.Selection{All: true}, 120, true},
		{metrics.Selection{Names: []string{"c000"}}, 1, true},
	} {
		got := gathered(t, c.sel, s.WriteMetrics)
		_, first := got[name+"c000"]
		n := 0
		for i := range 120 {
			if _, ok := got[name+fmt.Sprintf("c%03d", i)]; ok {
				n++
			}
		}
		if n != c.n || first != c.first || got["millrace_tls_certificates"] != 120 {
			t.Errorf("%+v: %d, %v", c.sel, n, first)
		}
	}
}
