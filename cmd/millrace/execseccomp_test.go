package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testnet"
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
