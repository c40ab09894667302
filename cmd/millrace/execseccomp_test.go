package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/shim/notify"
)

// buildProgram compiles the program of testdata without libc.
func buildProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", "build", "-o", path, "./testdata/program")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// bed is a host of Millrace in a namespace, with a kernel peer in another.
type bed struct {
	t            *testing.T
	client, host *testnet.Namespace
	socket, file string
}

func newBed(t *testing.T, prefix string) *bed {
	t.Helper()
	n := testnet.For(t, prefix)
	b := &bed{t: t, client: n.Namespace("client"), host: n.Namespace("host")}
	for _, err := range []error{
		n.Link(b.client, "eth0", b.host, "st0"), b.client.NoOffload("eth0"), b.client.Up("eth0", "198.18.0.1/24"), b.client.Up("lo"),
		b.host.Up("st0"), b.host.Up("lo"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	b.socket, b.file = filepath.Join(dir, "s.sock"), filepath.Join(dir, "stack.yaml")
	if err := os.WriteFile(b.file, []byte(strings.ReplaceAll(execConfig, "SOCKET", b.socket)), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _, _ = run("stack", "down", "--socket", b.socket) })
	return b
}

// start runs a program under exec --seccomp.
func (b *bed) start(args ...string) (*exec.Cmd, *buffer) {
	b.t.Helper()
	var out buffer
	cmd := program(append([]string{"exec", "--seccomp", "--socket", b.socket, "-c", b.file, "--"}, args...)...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, 5*time.Second
	if err := b.host.Start(cmd); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, &out
}

// run is start for programs that end. It returns the exit code and what the program has written.
func (b *bed) run(args ...string) (int, string) {
	b.t.Helper()
	cmd, out := b.start(args...)
	code := exitCode(b.t, cmd.Wait())
	return code, out.String()
}

// fetch gets a URL from the peer until it is answered.
func (b *bed) fetch(url string, out fmt.Stringer) string {
	b.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		got, err := b.client.Run("curl", "-sS", "--max-time", "10", url)
		if err == nil {
			return got
		}
		if time.Now().After(end) {
			b.t.Fatalf("%s: %v; the program: %s", url, err, out)
		}
	}
}

// TestExecSeccomp runs a Go program, which no library can be loaded into, as client and as server of a kernel peer.
func TestExecSeccomp(t *testing.T) {
	t.Parallel()
	testnet.Program(t, "curl")
	b := newBed(t, "mr-cli-secc")
	if err := b.client.Do(func() error { return testnet.ServeTCP(t, "198.18.0.1:80", answer) }); err != nil {
		t.Fatal(err)
	}
	path := buildProgram(t)
	if code, out := b.run(path, "get", "http://198.18.0.1/", "http://198.18.0.1/"); code != 0 || out != "from the kernelfrom the kernel" {
		t.Fatalf("client: code %d, %s", code, out)
	}
	if code, out := b.run(path, "get", "http://198.18.0.1:81/"); code != 9 || !strings.Contains(out, "connection refused") {
		t.Errorf("a port that is closed: code %d, %s", code, out)
	}
	server, out := b.start(path, "serve", "198.18.0.2:8080")
	for i := range 3 {
		url := fmt.Sprintf("http://198.18.0.2:8080/%d", i)
		got := b.fetch(url, out)
		if !strings.HasPrefix(got, "198.18.0.1:") || !strings.HasSuffix(got, fmt.Sprintf(" asks 198.18.0.2:8080 for /%d", i)) {
			t.Errorf("%s: %q", url, got)
		}
	}
	owner := fmt.Sprintf("program(pid=%d, uid=%d, seccomp)", server.Process.Pid, os.Geteuid())
	if code, shown, _ := run("net", "sockets", "--socket", b.socket); code != exitOK || !strings.Contains(shown, owner) {
		t.Errorf("net sockets lacks %s: code %d\n%s", owner, code, shown)
	}
	_ = server.Process.Signal(syscall.SIGTERM) // the process is the program
	if err := server.Wait(); err == nil || server.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("the server ended with %v: %s", err, out)
	}
	if code, out := b.run("curl", "-sS", "--max-time", "20", "http://198.18.0.1/"); code != 0 || out != "from the kernel" {
		t.Errorf("a program with libc: code %d, %s", code, out)
	}
	if code, out := b.run("sh", "-c", "exit 7"); code != 7 || out != "" {
		t.Errorf("the exit code of the program: %d, %s", code, out)
	}
	var log bytes.Buffer
	cmd := program("exec", "--socket", b.socket, "--", path, "get", "http://198.18.0.1/")
	cmd.Stderr = &log
	if code := exitCode(t, cmd.Run()); code != exitArchitecture || !strings.Contains(log.String(), "use --seccomp") {
		t.Errorf("without --seccomp: code %d, %s", code, &log)
	}
}

// supervisorOf waits for the supervisor of a program, and returns its process.
func supervisorOf(t *testing.T, program int) int {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, path := range found {
			line, _ := os.ReadFile(path)
			args := strings.Split(string(line), "\x00")
			if len(args) > 2 && args[1] == superviseCommand && args[2] == fmt.Sprint(program) {
				var pid int
				if _, err := fmt.Sscanf(path, "/proc/%d/", &pid); err == nil {
					return pid
				}
			}
		}
	}
	t.Fatal("the program has no supervisor")
	return 0
}

// TestSeccompEnds kills the supervisor, the program and the host: nothing hangs.
func TestSeccompEnds(t *testing.T) {
	t.Parallel()
	testnet.Program(t, "curl")
	b := newBed(t, "mr-cli-sece")
	path := buildProgram(t)
	server, out := b.start(path, "serve", "198.18.0.2:8080")
	b.fetch("http://198.18.0.2:8080/", out)
	supervisor := supervisorOf(t, server.Process.Pid)
	if err := syscall.Kill(supervisor, syscall.SIGTERM); err != nil { // as a service manager sends it to all processes
		t.Fatal(err)
	}
	b.fetch("http://198.18.0.2:8080/", out)
	_ = server.Process.Kill()
	_ = server.Wait()
	gone(t, supervisor)

	server, out = b.start(path, "serve", "198.18.0.2:8080") // the port is free
	b.fetch("http://198.18.0.2:8080/", out)
	if err := syscall.Kill(supervisorOf(t, server.Process.Pid), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_, _ = b.client.Run("curl", "-sS", "--max-time", "10", "http://198.18.0.2:8080/") // it is not accepted any more
	if code := exitCode(t, server.Wait()); code != 9 || !strings.Contains(out.String(), "function not implemented") {
		t.Errorf("without its supervisor: code %d, %s", code, out)
	}
}

// gone waits for the end of a process that is not a child.
func gone(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); syscall.Kill(pid, 0) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("process %d goes on", pid)
		}
	}
}

// TestExecSeccompStatic runs static programs that are no Go programs.
func TestExecSeccompStatic(t *testing.T) {
	testnet.Program(t, "curl", "busybox")
	b := newBed(t, "mr-cli-secs")
	if err := b.client.Do(func() error { return testnet.ServeTCP(t, "198.18.0.1:80", answer) }); err != nil {
		t.Fatal(err)
	}
	if code, out := b.run("busybox", "wget", "-q", "-O", "-", "http://198.18.0.1/"); code != 0 || out != "from the kernel" {
		t.Errorf("wget: code %d, %s", code, out)
	}
	dir := t.TempDir()
	content := strings.Repeat("static\n", 50_000)
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	_, out := b.start("busybox", "httpd", "-f", "-p", "198.18.0.2:8081", "-h", dir) // it forks for each connection
	for range 3 {
		if got := b.fetch("http://198.18.0.2:8081/file", out); got != strings.TrimSpace(content) && got != content {
			t.Errorf("httpd: %d bytes of %d", len(got), len(content))
		}
	}
}

// TestSeccompFailsClearly has an exit code for each reason.
func TestSeccompFailsClearly(t *testing.T) {
	b := newBed(t, "mr-cli-secf")
	self, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{self, "exec", "--seccomp", "--socket", b.socket, "--", "true"}, exitSupervised, "supervisor of system calls already"},
		{[]string{self, "exec", "--socket", b.socket, "--", "true"}, exitSupervised, "supervisor of system calls already"},
	} {
		if code, out := b.run(tc.args...); code != tc.code || strings.Count(out, "\n") != 1 || !strings.Contains(out, tc.says) || strings.Contains(out, "notify:") {
			t.Errorf("%v: code %d, want %d: %s", tc.args, code, tc.code, out)
		}
	}
	for err, code := range map[error]int{
		notify.ErrOldKernel: exitOldKernel, notify.ErrSupervised: exitSupervised, notify.ErrNotPermitted: exitNoSeccomp, syscall.ENOSYS: exitNoSeccomp,
	} {
		var not notStarted
		if !errors.As(supervisorError(fmt.Errorf("socket: %w", err)), &not) || not.code != code {
			t.Errorf("%v: code %d, want %d", err, not.code, code)
		}
	}
	if code, _, said := run("exec", "--seccomp", "--rings", "--", "true"); code != exitUsage || !strings.Contains(said, "--rings") {
		t.Errorf("--rings: code %d, %s", code, said)
	}
	env := seccompEnvironment([]string{"A=1", "LD_PRELOAD=/run/millrace/libmillrace-12.so:/other.so", "MILLRACE_SHIM=/x", "MILLRACE_SHIM_TOKEN=1", "MILLRACE_TIER=x"})
	if got := strings.Join(env, " "); got != "A=1 LD_PRELOAD=/other.so MILLRACE_TIER=seccomp" {
		t.Errorf("environment: %s", got)
	}
}

// TestSupervisable says of which programs a supervisor would change the meaning.
func TestSupervisable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "setuid")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := supervisable(path); err != nil {
		t.Error(err)
	}
	if err := os.Chown(path, 65534, 65534); err != nil {
		t.Skipf("setuid programs of others: %v", err)
	}
	if err := os.Chmod(path, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	err := supervisable(path)
	if !notify.Privileged() {
		var not notStarted
		if !errors.As(err, &not) || not.code != exitPrivileged {
			t.Errorf("setuid without privileges: %v", err)
		}
	} else if err != nil {
		t.Errorf("setuid as root: %v", err)
	}
}
