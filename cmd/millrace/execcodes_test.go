package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/internal/testkit/stackpair"
	"github.com/millrace/millrace/shim"
)

// shimServer serves programs on a stack in memory, in a folder that other users may enter.
func shimServer(t *testing.T, change func(*shim.Config)) string {
	t.Helper()
	library(t)
	p, err := stackpair.New(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	dir, err := os.MkdirTemp("", "mr-codes-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cfg := shim.Config{Stack: p.A, Path: filepath.Join(dir, "s.shim.sock"), Name: "stack"}
	if change != nil {
		change(&cfg)
	}
	s, err := shim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return filepath.Join(dir, "s.sock")
}

// execAs runs exec as a user, and returns its exit code and what it says.
func execAs(t *testing.T, uid uint32, args ...string) (int, string) {
	t.Helper()
	var out strings.Builder
	cmd := program(append([]string{"exec"}, args...)...)
	cmd.Path = "/proc/self/exe" // the folder of the test's binary is closed to other users
	cmd.Stdout, cmd.Stderr, cmd.Dir = &out, &out, "/"
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	return exitCode(t, cmd.Run()), out.String()
}

// TestExecNeedsPermission: a user who may not use the host gets code 121 and the keys of the configuration.
func TestExecNeedsPermission(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it needs another user, so it needs root")
	}
	closed, open := shimServer(t, nil), shimServer(t, func(c *shim.Config) { c.Groups = []uint32{65534} })
	code, says := execAs(t, 65534, "--socket", closed, "--", "true")
	folder := strings.TrimSuffix(closed, ".sock") // the control socket's and the programs' socket have it in common
	if code != exitNotPermitted || !strings.Contains(says, "shim.groups and shim.everyone") || strings.Count(says, folder) != 1 || strings.Count(strings.TrimSpace(says), "\n") != 0 {
		t.Errorf("code %d: %s", code, says)
	}
	if code, says := execAs(t, 65534, "--socket", open, "--", "sh", "-c", "exit 9"); code != 9 || says != "" {
		t.Errorf("a member of the group: code %d: %s", code, says)
	}
	if code, says := execAs(t, 65534, "--socket", closed, "--fallback", "--", "true"); code != exitNotPermitted || strings.Contains(says, "kernel") {
		t.Errorf("--fallback is for where no host is: code %d: %s", code, says)
	}
}

// TestExecWithoutLibrary: a build without a C compiler says so, with code 122.
func TestExecWithoutLibrary(t *testing.T) {
	socket := shimServer(t, nil)
	unpack = func() (string, error) { return "", shim.ErrNoLibrary }
	defer func() { unpack = shim.Unpack }()
	code, _, says := run("exec", "--socket", socket, "--", "true")
	if code != exitNoLibrary || !strings.Contains(says, "install gcc or clang") || strings.Count(strings.TrimSpace(says), "\n") != 0 {
		t.Errorf("code %d: %s", code, says)
	}
}

// TestExecOfExec: a program that exec has started may start another one so, on the same host or another, and exec itself,
// which is statically linked, may be that program.
func TestExecOfExec(t *testing.T) {
	first, second := shimServer(t, nil), shimServer(t, nil)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	show := []string{"sh", "-c", "echo $MILLRACE_SHIM; echo $LD_PRELOAD"}
	for _, tc := range []struct {
		inner string
		args  []string
	}{
		{first, append([]string{self, "exec", "--socket", first, "--"}, show...)},
		{second, append([]string{self, "exec", "--socket", second, "--"}, show...)},
		{second, []string{"sh", "-c", `exec "$0" "$@"`, self, "exec", "--socket", second, "--", "sh", "-c", show[2]}},
	} {
		code, says := execAs(t, 0, append([]string{"--socket", first, "--"}, tc.args...)...)
		lines := strings.Split(strings.TrimSpace(says), "\n")
		if code != 0 || len(lines) != 2 || lines[0] != strings.TrimSuffix(tc.inner, ".sock")+".shim.sock" || strings.Count(lines[1], "libmillrace") != 1 {
			t.Errorf("%v: code %d: %s", tc.args, code, says)
		}
	}
}

// TestExecOfItself: only exec itself goes on without the library. Other commands would use the kernel's stack in silence.
func TestExecOfItself(t *testing.T) {
	socket := shimServer(t, nil)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	code, says := execAs(t, 0, "--socket", socket, "--", self, "version")
	if code != exitArchitecture || !strings.Contains(says, "use --seccomp") {
		t.Errorf("code %d: %s", code, says)
	}
}

// TestExecNamesOtherHosts: where a path is wrong, the error has those of the hosts beside it that answer.
func TestExecNamesOtherHosts(t *testing.T) {
	socket := shimServer(t, nil)
	dead := filepath.Join(filepath.Dir(socket), "dead.shim.sock")
	if err := os.WriteFile(dead, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	code, says := execAs(t, 0, "--socket", filepath.Join(filepath.Dir(socket), "stak.sock"), "--", "true")
	if code != exitNoNode || !strings.Contains(says, "("+socket) || strings.Contains(says, "dead") || strings.Count(strings.TrimSpace(says), "\n") != 0 {
		t.Errorf("code %d: %s", code, says)
	}
}

// TestExecRefusesSetuid has code 123 for a program that the loader would not give the library to.
func TestExecRefusesSetuid(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it needs another user's program, so it needs root")
	}
	socket := shimServer(t, nil)
	sh, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(filepath.Dir(socket), "setuid")
	if err := os.WriteFile(path, sh, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	if code, says := execAs(t, 0, "--socket", socket, "--", path, "-c", "exit 1"); code != exitPrivileged || !strings.Contains(says, "setuid") {
		t.Errorf("code %d: %s", code, says)
	}
}

// TestHostLog: what a host that exec has started says is in a file beside its control socket, and exec shows it where the
// host does not start.
func TestHostLog(t *testing.T) {
	library(t)
	dir := t.TempDir()
	socket, file, log := filepath.Join(dir, "s.sock"), filepath.Join(dir, "stack.yaml"), filepath.Join(dir, "s.log")
	if err := os.WriteFile(log, []byte("of before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("devices: [{name: mr-no-such-dev, addresses: [198.18.0.2/24]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, says := execAs(t, 0, "--socket", socket, "-c", file, "--", "true")
	if code != exitNoNode || !strings.Contains(says, "mr-no-such-dev") || strings.Contains(says, "of before") {
		t.Errorf("code %d: %s", code, says)
	}
	text, err := os.ReadFile(log)
	if err != nil || !strings.Contains(string(text), "of before") || !strings.Contains(string(text), "mr-no-such-dev") {
		t.Errorf("the log is %q, %v", text, err)
	}
}
