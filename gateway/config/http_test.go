package config

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/l7/route"
	"github.com/millrace/millrace/semantics"
)

// l7Example is the example of the sections at L7.
const l7Example = "../../examples/http-gateway.yaml"

func TestTheExampleAtL7HasEveryKeyAndTheDefaultsItStates(t *testing.T) {
	src, err := os.ReadFile(l7Example)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse(l7Example, src) // its certificates are not there
	if err != nil {
		t.Fatal(err)
	}
	l := c.Listeners[1]
	if want := newListener(); l.Timeouts != want.Timeouts || l.AltSvc != want.AltSvc {
		t.Errorf("the example states other defaults than the code: %+v", l)
	}
	if p, want := c.Pools[0], newPool(); p.Timeouts != want.Timeouts || p.RetryBudget != want.RetryBudget || p.Idle != want.Idle {
		t.Errorf("the example states other defaults than the code: %+v", p)
	}
	rare := map[string]bool{ // in the tests below, and on the page
		"network": true, "upgrades": true, "routes[].rules[].body_bytes": true, "query_params": true, "sni": true, "ja4": true, "alpn": true, "misdirected": true, "forward": true, "forward_chain": true, "tls_routes[].clients": true, "hostname": true, "port": true,
		"stream": true, "buffer": true, "client_auth": true, "ca_file": true, "crl_file": true, "optional": true, "ticket_key_file": true,
		"certificate": true, "insecure": true, "state": true, "max_connections": true, "timeout": true, "interval": true, "rise": true, "fall": true,
		"success_rate": true, "min_backends": true, "min_requests": true, "factor_percent": true,
		"waf": true, "excess": true, "early_data": true, "device": true, "udp": true, "command": true, "via": true, "to": true, "external_account": true, "syslog": true, "ocsp_file": true, "key_id": true, "key_file": true,
	}
	for _, k := range Schema().Keys() {
		name := k.Path[strings.LastIndexByte(k.Path, '.')+1:]
		if laterSection.MatchString(k.Path) && !describedElsewhere(k.Path) && !rare[name] && !strings.Contains(string(src), name+":") {
			t.Errorf("the example lacks %s", k.Path)
		}
	}
}

// certificateFiles writes a certificate with its key, each alone and both in one file.
func certificateFiles(t *testing.T, dir, name string) {
	t.Helper()
	cert, _ := testcert.SelfSigned("site.example")
	der, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]})
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	for file, text := range map[string][]byte{".pem": chain, ".key": key, ".both": slices.Concat(chain, key)} {
		if err := os.WriteFile(filepath.Join(dir, name+file), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFilesOfCertificatesAreReadBesideTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	certificateFiles(t, dir, "a")
	certificateFiles(t, dir, "b")
	if err := os.WriteFile(filepath.Join(dir, "tickets"), []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func(tls string) error {
		file := filepath.Join(dir, "gateway.yaml")
		src := "listeners:\n- name: l\n  address: 127.0.0.1:443\n  protocol: HTTPS\n  tls:\n    " + strings.ReplaceAll(tls, "\n", "\n    ") + "\n"
		if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(file)
		return err
	}
	for _, good := range []string{
		"certificates: [{cert: a.pem, key: a.key}, {cert: b.both}]", "certificates: [{cert: " + filepath.Join(dir, "a.both") + "}]",
		"certificates: [{cert: a.both}]\nclient_auth: {ca_file: [a.pem, b.pem]}",
	} {
		if err := read(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	err := read(`certificates:
- {cert: none.pem}
- {cert: a.pem}
- {cert: b.pem, key: a.key}
client_auth: {ca_file: a.key, crl_file: a.pem}
ticket_key_file: tickets`)
	wrong := new(Error)
	if !errors.As(err, &wrong) || len(wrong.Problems) != 6 {
		t.Fatalf("%v", err)
	}
	for i, want := range []struct {
		line int
		part string
	}{
		{7, "no such file"},
		{8, "found a certificate rather than a key"},
		{9, "private key does not match"},
		{10, "the file of authorities cannot be used"},
		{10, "the revocation list cannot be used"},
		{11, "the file of ticket keys cannot be used"},
	} {
		p := wrong.Problems[i]
		if p.Line != want.line || !strings.Contains(p.Message, want.part) {
			t.Errorf("%d: %v", i, p)
		}
	}
}

// manyRoutes writes a configuration with n routes, and returns its name.
func manyRoutes(t testing.TB, n int) string {
	t.Helper()
	var s strings.Builder
	s.WriteString("listeners:\n- {name: web, address: \"127.0.0.1:80\", protocol: HTTP}\nroutes:\n")
	for i := range n {
		fmt.Fprintf(&s, `- name: r%d
  hostnames: [h%d.example.org]
  rules:
  - matches: [{path: {value: /service/%d}, method: GET, headers: [{name: x-version, value: "%d"}]}]
    filters: [{type: RequestHeaderModifier, set: [{name: x-route, value: r%d}]}]
    backend_refs: [{name: p%d, weight: 9}, {name: p%d}]
    timeouts: {request: 10s}
`, i, i%1000, i, i%7, i, i%100, (i+1)%100)
	}
	s.WriteString("pools:\n")
	for i := range 100 {
		fmt.Fprintf(&s, "- {name: p%d, backends: [{address: \"127.0.0.1:%d\"}]}\n", i, 20000+i)
	}
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(file, []byte(s.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// loadRoutes loads a configuration and makes the table of its listener.
func loadRoutes(t testing.TB, file string) int {
	t.Helper()
	c, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	rules, refs := c.RulesOf("web")
	table, err := route.New(rules)
	if err != nil {
		t.Fatal(err)
	}
	n := table.Find(&route.Request{
		Host: "h17.example.org", Path: "/service/1017/x", Method: "GET", Fields: []semantics.Field{{Name: "x-version", Value: "2"}},
	})
	if n < 0 || refs[n].Route.Name != "r1017" {
		t.Fatalf("rule %d", n)
	}
	return len(rules)
}

// A start and a reload with 10 000 routes take well below a second of one core; the bound leaves room for slow machines, and
// fails where the time grows with the square.
func TestTenThousandRoutesLoadInTime(t *testing.T) {
	file := manyRoutes(t, 10_000)
	var before, after syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &before); err != nil {
		t.Fatal(err)
	}
	if n := loadRoutes(t, file); n != 10_000 {
		t.Errorf("%d rules", n)
	}
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &after); err != nil {
		t.Fatal(err)
	}
	used := time.Duration(after.Utime.Nano() - before.Utime.Nano())
	t.Logf("%v of CPU time", used)
	if used > 10*time.Second {
		t.Errorf("10 000 routes take %v of CPU time", used)
	}
}

func BenchmarkLoadTenThousandRoutes(b *testing.B) {
	file := manyRoutes(b, 10_000)
	for b.Loop() {
		loadRoutes(b, file)
	}
}

// Whatever the file is, Parse returns a configuration or errors with places; a configuration makes the tables of its
// listeners.
func FuzzParseAtL7(f *testing.F) {
	for _, name := range []string{l7Example, "testdata/http.yaml", "testdata/http_services.yaml", "testdata/http_unused.yaml"} {
		src, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		c, err := Parse("f", src)
		if err != nil {
			wrong := new(Error)
			if !errors.As(err, &wrong) || len(wrong.Problems) == 0 || err.Error() == "" {
				t.Fatalf("%v", err)
			}
			return
		}
		for i := range c.Listeners {
			l := &c.Listeners[i]
			rules, refs := c.RulesOf(l.Name)
			if !l.Protocol.IsHTTP() {
				rules, _ = c.StreamRules(l)
			} else if len(rules) != len(refs) {
				t.Errorf("%d rules, %d refs", len(rules), len(refs))
			}
			if _, err := route.New(rules); err != nil {
				t.Errorf("a checked file has a rule that is wrong: %v", err)
			}
		}
		if changes := Diff(c, c); len(changes) > 0 {
			t.Errorf("it differs from itself: %v", changes)
		}
	})
}
