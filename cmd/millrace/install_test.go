package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// TestWhatMakeInstallInstallsIsValid checks the configuration that the service begins with, and that the unit's user is made.
func TestWhatMakeInstallInstallsIsValid(t *testing.T) {
	cmd := exec.Command("make", "-n", "install", "DESTDIR=/stage")
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	source := regexp.MustCompile(`install -m644 (\S+) /stage/etc/millrace/gateway\.yaml`).FindSubmatch(out)
	if source == nil {
		t.Fatalf("no configuration is installed:\n%s", out)
	}
	if code, text, errs := run("gateway", "check", "-c", filepath.Join("../..", string(source[1]))); code != exitOK {
		t.Errorf("code %d %s%s", code, text, errs)
	}
	for _, program := range []string{"millrace", "millrace-cuda", "millrace-waf"} {
		if !regexp.MustCompile(`install -Dm755 \S+/` + program + ` /stage/\S+/bin/` + program + `\n`).Match(out) {
			t.Errorf("%s is not installed", program)
		}
	}
	users := regexp.MustCompile(`install -Dm644 (\S+) /stage/usr/lib/sysusers\.d/millrace\.conf`).FindSubmatch(out)
	if users == nil {
		t.Fatalf("no user is installed:\n%s", out)
	}
	text, err := os.ReadFile(filepath.Join("../..", string(users[1])))
	u := unit(t)
	if err != nil || !strings.Contains(string(text), "\nu "+u["User"]+" ") || u["Group"] != u["User"] || u["User"] == "" || u["DynamicUser"] != "" {
		t.Errorf("%v; user %q, group %q, dynamic %q, made are\n%s", err, u["User"], u["Group"], u["DynamicUser"], text)
	}
	for _, file := range []string{"examples/certs/site.pem", "examples/http-gateway.yaml", "examples/inspection.rules", "examples/modes/nat.yaml"} {
		if !strings.Contains(string(out), file) {
			t.Errorf("%s is not installed", file)
		}
	}
}

// TestExamplesAreValidWithTheFilesThatTheyName, as a reader tries them.
func TestExamplesAreValidWithTheFilesThatTheyName(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	modes, err2 := filepath.Glob("../../examples/modes/*.yaml")
	if err := errors.Join(err, err2); err != nil || len(files) < 3 || len(modes) < 6 {
		t.Fatalf("%d and %d files, %v", len(files), len(modes), err)
	}
	for _, file := range append(files, modes...) {
		args := []string{"gateway", "check", "-c", file}
		switch filepath.Base(file) {
		case "two-gateways.yaml": // its key is a secret: examples come without one
			args[3] = withKey(t, file)
		case "stack.yaml":
			args = []string{"stack", "up", "--check", "-c", file}
		}
		code, _, errs := run(args...)
		if filepath.Base(file) == "waf.yaml" && firewall == nil { // it is for another program, which the error names
			if code != exitConfig || !strings.Contains(errs, "millrace-waf") {
				t.Errorf("%v: code %d %s", args, code, errs)
			}
			continue
		}
		if code != exitOK {
			t.Errorf("%v: code %d %s", args, code, errs)
		}
	}
}

// withKey copies an example to a folder that has its key, as its comment says to make it, and returns the path.
func withKey(t *testing.T, file string) string {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile(file)
	err = errors.Join(err, os.WriteFile(filepath.Join(dir, "gateway.yaml"), text, 0o600), os.WriteFile(filepath.Join(dir, "sync.key"), []byte(strings.Repeat("5a", 32)+"\n"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "gateway.yaml")
}

// TestTheUserOfTheServiceReadsKeysByTheirGroup has keys that are root's, as most are, and a user of the group without any right.
func TestTheUserOfTheServiceReadsKeysByTheirGroup(t *testing.T) {
	testnet.For(t, "mr-cli-keys") // root, or a skip
	const nobody = 65534
	dir := openDir(t)
	write := func(name, text string, mode os.FileMode) {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode), os.Chown(path, 0, nobody)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"site.pem", "site.key"} {
		text, err := os.ReadFile("../../examples/certs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		write(name, string(text), 0o640)
	}
	write("hash.key", strings.Repeat("ab", 16)+"\n", 0o640)
	write("tickets", strings.Repeat("cd", 64)+"\n", 0o640)
	write("gw.yaml", `hash_key_file: hash.key
listeners: [{name: l, address: "127.0.0.1:443", protocol: HTTPS, tls: {ticket_key_file: tickets, certificates: [{cert: site.pem, key: site.key}]}}]
routes: [{name: r, rules: [{backend_refs: [{name: p}]}]}]
pools: [{name: p, balance: consistent_hash, backends: [{address: "127.0.0.1:1"}]}]
`, 0o640)
	for _, c := range []struct {
		group uint32
		code  int
		says  string
	}{{nobody, exitOK, "the configuration is valid"}, {nobody - 1, exitConfig, "permission denied"}} {
		cmd := program("gateway", "check", "-c", filepath.Join(dir, "gw.yaml"))
		cmd.Path = openCopy(t, dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: c.group}}
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != c.code || !strings.Contains(string(out), c.says) {
			t.Errorf("group %d: code %d, want %d with %q\n%s", c.group, cmd.ProcessState.ExitCode(), c.code, c.says, out)
		}
	}
}
