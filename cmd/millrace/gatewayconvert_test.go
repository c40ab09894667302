package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/app/convert"
	"github.com/millrace/millrace/internal/testkit/testcert"
)

const convertible = "server { listen 127.0.0.1:8080; location / { proxy_pass http://127.0.0.1:9000; proxy_set_header Host $http_host; } }\n"

// The exit code says whether something is left out; the file is printed, or written where there is none.
func TestGatewayConvert(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	whole, changed := put("nginx.conf", convertible), put("b.conf", strings.Replace(convertible, "$http_host;", "$host;", 1))
	less, wrong := put("c.conf", strings.Replace(convertible, "proxy_pass", "proxy_cache x; proxy_pass", 1)), put("d.conf", "server { listen 80 }\nhttp {\n")
	out := filepath.Join(dir, "gateway.yaml")
	for _, c := range []struct {
		args string
		code int
		out  string // of standard output
		err  string
	}{
		{whole, exitOK, "listeners:", "0 left out"},
		{whole + " --strict", exitOK, "listeners:", ""},
		{changed, exitOK, "listeners:", "changed: proxy_set_header Host $host"},
		{changed + " --strict", exitLeft, "", "changed: proxy_set_header Host $host"},
		{less, exitLeft, "listeners:", "LEFT OUT: proxy_cache x: the cache is not known"},
		{less + " --all", exitLeft, "listeners:", "translated: proxy_pass http://127.0.0.1:9000"},
		{less + " --strict -o " + out, exitLeft, "", "LEFT OUT"},
		{whole + " -o " + out, exitOK, "", "0 left out"},
		{whole + " -o " + out, exitFailure, "", "file exists"},
		{wrong, exitConfig, "", "d.conf:1:20: } stands within listen"},
		{filepath.Join(dir, "none.conf"), exitConfig, "", "no such file"},
		{whole + " --from apache", exitUsage, "", `no language "apache"`},
		{"", exitUsage, "", "FILE is missing"},
	} {
		code, stdout, stderr := run(append([]string{"gateway", "convert"}, strings.Fields(c.args)...)...)
		if code != c.code || c.out == "" && stdout != "" || !strings.Contains(stdout, c.out) || !strings.Contains(stderr, c.err) {
			t.Errorf("%s: code %d, want %d\n%s\n%s", c.args, code, c.code, stdout, stderr)
		}
	}
	if code, _, stderr := run("gateway", "check", "-c", out); code != exitOK {
		t.Errorf("check: code %d: %s", code, stderr)
	}
	code, stdout, _ := run("gateway", "convert", less, "--json")
	var r convert.Report
	if decode(t, stdout, &r); code != exitLeft || r.Left != 1 || r.Config == "" || r.Language != convert.Nginx || len(r.Lines) != 6 {
		t.Errorf("code %d, %+v", code, r)
	}
	code, stdout, _ = runWith(convertible, "gateway", "convert", "-", "--from", "nginx")
	if code != exitOK || !strings.Contains(stdout, "backend_refs") {
		t.Errorf("code %d, %s", code, stdout)
	}
}

// Outputs pass the gateway's check, with the certificates, folders and files that they name.
func TestConvertedFilesPassTheCheck(t *testing.T) {
	sources, err := filepath.Glob("../../internal/app/convert/testdata/*")
	if err != nil || len(sources) < 8 {
		t.Fatalf("%v %v", sources, err)
	}
	for _, source := range sources {
		if info, err := os.Stat(source); err != nil || info.IsDir() || strings.HasSuffix(source, ".yaml") || strings.HasSuffix(source, ".txt") {
			continue
		}
		r, err := convert.File(source, "")
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		dir := t.TempDir()
		here, err := filepath.Abs(filepath.Dir(source))
		if err != nil {
			t.Fatal(err)
		}
		text := r.Config
		for _, prefix := range []string{here, "/srv", "/etc", "/var"} {
			text = strings.ReplaceAll(text, ": "+prefix+"/", ": "+dir+prefix+"/")
		}
		makeNamedFiles(t, text)
		file := filepath.Join(dir, "gateway.yaml")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if code, _, stderr := run("gateway", "check", "-c", file); code != exitOK {
			t.Errorf("%s: code %d\n%s\n%s", source, code, stderr, text)
		}
	}
}

// makeNamedFiles makes what a configuration names.
func makeNamedFiles(t *testing.T, text string) {
	t.Helper()
	c, err := config.Parse("converted", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	put := func(path string, content []byte) {
		if path == "" || path == "-" {
			return
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	pair, _ := testcert.SelfSigned("example.org", net.IPv4(127, 0, 0, 1))
	cert, key := pemOf(t, pair)
	for _, l := range c.Listeners {
		if l.TLS == nil {
			continue
		}
		for _, of := range l.TLS.Certificates {
			put(of.Cert, append(cert, key...))
			put(of.Key, key)
		}
	}
	for _, r := range c.Routes {
		for _, p := range r.ErrorPages {
			put(p.File, []byte("page"))
		}
		if r.Auth != nil && r.Auth.Basic != nil {
			put(r.Auth.Basic.File, []byte("user:$2y$05$abcdefghijklmnopqrstuuVlF1mcKHvQGCyFFY3RLQ2D4Et4sIIlK\n"))
		}
		for _, u := range r.Rules {
			if u.Static != nil {
				if err := os.MkdirAll(u.Static.Root, 0o755); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// pemOf returns a certificate and its key.
func pemOf(t *testing.T, pair tls.Certificate) (cert, key []byte) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}
