package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// boGoEngineOnly are tests that crypto/tls fails, and that an Engine passes because its record layer is stricter.
var boGoEngineOnly = []string{
	"KeyUpdate-Requested",                     // one reply to several requests (RFC 8446 4.6.3)
	"SendPostHandshakeChangeCipherSpec-TLS13", // not ignored after the handshake (RFC 8446 5)
	"SendUserCanceledAlerts-TooMany-TLS13",    // five warnings in a row
	"SendWarningAlerts-TooMany",
	"SendEmptyRecords-Pass", // 32 empty records, and no more
	"SendEmptyRecords",
}

// TestBoGo runs BoringSSL's TLS test suite against crypto/tls, against a tls.Engine, and against an Engine over Millrace's
// own TCP. What crypto/tls passes the Engine must pass. MILLRACE_BOGO names a checkout of BoringSSL (`make bogo`
// fetches the commit that crypto/tls of Go 1.26 is tested with).
func TestBoGo(t *testing.T) {
	dir := os.Getenv("MILLRACE_BOGO")
	if dir == "" {
		t.Skip("MILLRACE_BOGO names no checkout of BoringSSL; make bogo fetches it")
	}
	b := newBoGo(t, dir)
	standard := b.run(t, "-millrace=crypto/tls")
	if n := count(standard, "PASS"); n < 1000 {
		t.Fatalf("crypto/tls passes only %d tests", n)
	}
	for name, flags := range map[string]string{
		"engine": "-millrace=engine", "cut input": "-millrace=engine;-millrace-cut=40", "own TCP": "-millrace=stack",
	} {
		t.Run(name, func(t *testing.T) { compare(t, b.run(t, flags), standard) })
	}
	t.Run("stricter than crypto/tls", func(t *testing.T) {
		results := b.run(t, "-millrace=engine", "-include-disabled", "-test="+strings.Join(boGoEngineOnly, ";"))
		for _, name := range boGoEngineOnly {
			if results[name].Actual != "PASS" {
				t.Errorf("%s: %s %s", name, results[name].Actual, results[name].Error)
			}
		}
	})
}

// compare expects the same results, and none that failed.
func compare(t *testing.T, got, want map[string]boGoResult) {
	t.Helper()
	t.Logf("%d pass, %d fail, %d are not for crypto/tls", count(got, "PASS"), count(got, "FAIL"), count(got, "SKIP"))
	for name, w := range want {
		if g := got[name]; g.Actual != w.Actual || g.Actual == "FAIL" {
			t.Errorf("%s: %s, crypto/tls: %s\n%s", name, g.Actual, w.Actual, g.Error)
		}
	}
}

// boGo is the suite, built.
type boGo struct {
	folder, runner, shim, config string
}

type boGoResult struct {
	Actual string
	Error  string
}

func count(results map[string]boGoResult, actual string) (n int) {
	for _, r := range results {
		if r.Actual == actual {
			n++
		}
	}
	return n
}

// newBoGo builds the runner and the shim. Which tests are not for crypto/tls, and which it fails, is listed
// beside its source.
func newBoGo(t *testing.T, dir string) *boGo {
	t.Helper()
	bin := t.TempDir()
	b := &boGo{folder: filepath.Join(dir, "ssl/test/runner"), runner: filepath.Join(bin, "runner"), shim: filepath.Join(bin, "shim")}
	build := func(in string, args ...string) string {
		cmd := exec.Command("go", args...)
		cmd.Dir = in
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	b.config = filepath.Join(build(".", "env", "GOROOT"), "src/crypto/tls/bogo_config.json")
	build(b.folder, "test", "-c", "-o", b.runner, ".")
	// The shim sets a variable of crypto/tls that is for tests: the linker has to permit that.
	build(".", "build", "-tags=bogo", "-ldflags=-checklinkname=0", "-o", b.shim, "./bogoshim")
	return b
}

// run returns the results of the tests. The runner's exit status is of no use: it fails where a test does.
func (b *boGo) run(t *testing.T, shimFlags string, more ...string) map[string]boGoResult {
	t.Helper()
	file := filepath.Join(t.TempDir(), "results.json")
	cmd := exec.Command(b.runner, append([]string{
		"-shim-config=" + b.config, "-shim-path=" + b.shim, "-shim-extra-flags=" + shimFlags,
		"-allow-unimplemented", "-loose-errors", "-json-output=" + file,
	}, more...)...)
	cmd.Dir = b.folder
	out, runErr := cmd.CombinedOutput()
	var results struct{ Tests map[string]boGoResult }
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &results)
	}
	if err != nil {
		t.Fatalf("the runner: %v, %v\n%s", runErr, err, fmt.Sprintf("%.2000s", out))
	}
	return results.Tests
}
