package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/internal/testkit/testport"
)

// writePair writes a certificate and its key.
func writePair(dir string) (cert, key string, err error) {
	pair, _ := testcert.SelfSigned("site.example")
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		return "", "", err
	}
	cert, key = filepath.Join(dir, "site.pem"), filepath.Join(dir, "site.key")
	return cert, key, errors.Join(
		os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
}

func TestFlagsThatStandForAFile(t *testing.T) {
	dir := t.TempDir()
	cert, key, err := writePair(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args string
		want []string // in the file
	}{
		{"serve " + dir, []string{`address: ["127.0.0.1:8080"]`, "protocol: HTTP}", fmt.Sprintf("static: {root: %q, precompressed: [br, zstd, gzip]}", dir)}},
		{"serve --listing --hidden --from :81 " + dir, []string{`"0.0.0.0:81"`, "listing: true", "hidden: true"}},
		{"serve --spa --from localhost:81 " + dir, []string{`"127.0.0.1:81"`, `try_files: ["${path}", /index.html]`}},
		{"serve --from [::1]:81 --cert " + cert + " --key " + key + " " + dir, []string{`"[::1]:81"`, "HTTPS", "cert: \"" + cert, "key: \"" + key}},
		{"serve --acme a.example,b.example --acme-agree --acme-dir " + dir + " " + dir, []string{`names: ["a.example", "b.example"]`, "agree_to_terms: true", "challenges: tls-alpn-01"}},
		{"gateway proxy --to localhost:9000", []string{`{address: "localhost:9000"}`, "protocol: HTTP,"}},
		{"gateway proxy --to 9000", []string{`{address: "127.0.0.1:9000"}`}},
		{"gateway proxy --to unix:/run/x", []string{`{address: "unix:/run/x"}`}},
		{"gateway proxy --to https://app.example", []string{`{address: "app.example:443"}`, "protocol: HTTPS,", `server_name: "app.example"`}},
		{"gateway proxy --to h2://app.example:8443/", []string{`{address: "app.example:8443"}`, "protocol: H2,"}},
		{"gateway proxy --to https://192.0.2.1 --insecure", []string{`{address: "192.0.2.1:443"}`, "insecure: true"}},
		{"gateway proxy --to http://[2001:db8::1]", []string{`{address: "[2001:db8::1]:80"}`}},
	} {
		code, out, errs := run(append(strings.Fields(tc.args), "--print")...)
		if code != exitOK {
			t.Errorf("%s: code %d: %s", tc.args, code, errs)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: %q is not in\n%s", tc.args, want, out)
			}
		}
		if _, err := config.Parse("f", []byte(out)); err != nil {
			t.Errorf("%s: the file is wrong: %v", tc.args, err)
		}
	}
}

func TestWrongFlagsOfQuickGateways(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct {
		args string
		code int
		want string
	}{
		{"serve", exitUsage, "arg"},
		{"serve " + filepath.Join(dir, "none"), exitFailure, "no such file"},
		{"serve /etc/passwd", exitFailure, "is no folder"},
		{"serve --listing --spa .", exitUsage, "either answers"},
		{"serve --from 8080 .", exitUsage, "ADDRESS:PORT"},
		{"serve --from :http .", exitUsage, "is no port"},
		{"serve --from :0 .", exitUsage, "is no port"},
		{"serve --from host.example:80 .", exitUsage, "is no IP address"},
		{"serve --key k .", exitUsage, "name it with --cert"},
		{"serve --cert none.pem .", exitConfig, "none.pem"},
		{"serve --acme a.example .", exitUsage, "--acme-agree"},
		{"serve --acme localhost --acme-agree --acme-dir x .", exitConfig, "ACME"},
		{"serve --acme-agree .", exitUsage, "are for --acme"},
		{"serve --acme a.example --acme-agree --cert x .", exitUsage, "either has"},
		{"gateway proxy", exitUsage, "--to"},
		{"gateway proxy --to ftp://a.example", exitUsage, "http, https, h2c or h2"},
		{"gateway proxy --to http://a.example/x", exitUsage, "URLRewrite"},
		{"gateway proxy --to https://192.0.2.1", exitUsage, "--insecure"},
		{"gateway proxy --insecure --to a.example:80", exitUsage, "is for a server with TLS"},
		{"gateway proxy --to a.example", exitConfig, "the port is missing"},
		{"gateway proxy --to a.example:80 x", exitUsage, ""},
	} {
		if code, out, errs := run(append(strings.Fields(tc.args), "--print")...); code != tc.code || !strings.Contains(errs, tc.want) {
			t.Errorf("%s: code %d, want %d: %s%s", tc.args, code, tc.code, out, errs)
		}
	}
}

// TestServeAndProxyWithoutAFile has a proxy in front of a file server, both by flags alone.
func TestServeAndProxyWithoutAFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("by flags"), 0o600); err != nil {
		t.Fatal(err)
	}
	files, proxy := testport.Hold(t).String(), testport.Hold(t).String()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 2)
	for _, args := range [][]string{{"serve", "--from", files, dir}, {"gateway", "proxy", "--from", proxy, "--to", files}} {
		var errs buffer
		go func() { ended <- execute(ctx, args, &console{in: strings.NewReader(""), out: io.Discard, err: &errs}) }()
	}
	for _, addr := range []string{files, proxy} {
		for {
			resp, err := http.Get("http://" + addr + "/a.txt")
			if err == nil {
				b, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if string(b) == "by flags" && resp.StatusCode == 200 {
					break
				}
				if resp.StatusCode < 500 {
					t.Fatalf("%s: %s, %q, %v", addr, resp.Status, b, err)
				}
			}
			select {
			case code := <-ended:
				t.Fatalf("%s: ended with %d", addr, code)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	for range 2 {
		if code := <-ended; code != exitOK {
			t.Errorf("code %d", code)
		}
	}
}
