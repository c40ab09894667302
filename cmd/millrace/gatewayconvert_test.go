package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/app/convert"
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
		{less, exitLeft, "listeners:", "LEFT OUT: proxy_cache x: the gateway has no cache"},
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
