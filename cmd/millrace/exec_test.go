package main

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/shim"
)

// code returns the exit code of a program that ran.
func exitCode(t *testing.T, err error) int {
	t.Helper()
	var e *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.ExitCode()
	}
	t.Fatal(err)
	return -1
}

// library skips a test where the program was built without a C compiler.
func library(t *testing.T) {
	t.Helper()
	if _, err := shim.Library(); err != nil {
		t.Skipf("%v (`make preload` builds it)", err)
	}
}

// TestExecFailsClearly has an exit code for each reason.
func TestExecFailsClearly(t *testing.T) {
	library(t)
	none := filepath.Join(t.TempDir(), "none.sock")
	for _, tc := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--socket", none, "--", "true"}, exitNoNode, "start one by `millrace stack up`"},
		{[]string{"--socket", none, "--", "no-such-program"}, exitNotFound, "not found"},
		{[]string{"--socket", none, "--", "/etc/passwd"}, exitCannotRun, "permission denied"},
		{[]string{"--socket", none}, exitUsage, "name a program"},
		{[]string{"--socket", none, "--fallback", "--", "sh", "-c", "exit 7"}, 7, "uses the kernel's stack"},
		{[]string{"--socket", none, "-c", "/no/such/file", "--", "true"}, exitNoNode, "the host did not start"},
	} {
		var out, log strings.Builder
		cmd := program(append([]string{"exec"}, tc.args...)...)
		cmd.Stdout, cmd.Stderr = &out, &log
		if code := exitCode(t, cmd.Run()); code != tc.code || !strings.Contains(log.String(), tc.says) {
			t.Errorf("exec %v: code %d, want %d: %s", tc.args, code, tc.code, &log)
		}
	}
}

// TestLoadable says of which programs the library cannot be a part.
func TestLoadable(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	sh, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	static := []byte(string(sh))
	for i := range int(binary.LittleEndian.Uint16(static[56:])) { // e_phnum
		at := int(binary.LittleEndian.Uint64(static[32:])) + i*int(binary.LittleEndian.Uint16(static[54:]))
		if binary.LittleEndian.Uint32(static[at:]) == uint32(elf.PT_INTERP) {
			binary.LittleEndian.PutUint32(static[at:], uint32(elf.PT_NULL))
		}
	}
	whole := write("static", string(static), 0o755)
	foreign := []byte(string(sh))
	foreign[18] ^= 0x55 // e_machine
	for path, want := range map[string]int{
		"/bin/sh":                                 0,
		write("script", "#!/bin/sh -e\n", 0o755):  0,
		write("go", "#!"+whole+"\n", 0o755):       exitArchitecture,
		whole:                                     exitArchitecture,
		write("foreign", string(foreign), 0o755):  exitArchitecture,
		filepath.Join(dir, "none"):                exitCannotRun,
		write("text", "no program at all", 0o755): 0, // the kernel says so
	} {
		code := 0
		var not notStarted
		if err := loadable(path); errors.As(err, &not) {
			code = not.code
		} else if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
	setuid := write("setuid", string(sh), 0o755|os.ModeSetuid)
	if err := os.Chown(setuid, 65534, 65534); err != nil {
		t.Skipf("setuid programs of others: %v", err)
	}
	if err := os.Chmod(setuid, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	var not notStarted
	if err := loadable(setuid); !errors.As(err, &not) || not.code != exitPrivileged {
		t.Errorf("setuid: %v", err)
	}
}

const execConfig = "devices: [{name: st0, driver: afpacket, addresses: [198.18.0.2/24]}]\ncontrol: {socket: SOCKET}\n"

// TestExec runs unmodified programs on a host that exec starts: curl against the kernel, and nginx for it.
func TestExec(t *testing.T) {
	library(t)
	n := testnet.For(t, "mr-cli-exec")
	client, host := n.Namespace("client"), n.Namespace("host")
	for _, err := range []error{n.Link(client, "eth0", host, "st0"), client.NoOffload("eth0"), client.Up("eth0", "198.18.0.1/24"), host.Up("st0"), host.Up("lo")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	testnet.Program(t, "curl", "nginx")
	dir, err := os.MkdirTemp("", "mr-exec-") // whose folders nginx's workers may enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	socket, file := filepath.Join(dir, "s.sock"), filepath.Join(dir, "stack.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(execConfig, "SOCKET", socket)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := client.Do(func() error { return testnet.ServeTCP(t, "198.18.0.1:80", answer) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _, _ = run("stack", "down", "--socket", socket) })
	start := func(args ...string) (*exec.Cmd, *buffer) {
		var out buffer
		cmd := program(append([]string{"exec", "--socket", socket, "-c", file, "--"}, args...)...)
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, 5*time.Second
		if err := host.Start(cmd); err != nil {
			t.Fatal(err)
		}
		return cmd, &out
	}
	cmd, out := start("curl", "-sS", "--max-time", "20", "-w", " %{local_ip}", "http://198.18.0.1/")
	if code := exitCode(t, cmd.Wait()); code != 0 || !strings.Contains(out.String(), "from the kernel 198.18.0.2") {
		t.Fatalf("curl: code %d, %s", code, out)
	}
	cmd, out = start("curl", "-sS", "--max-time", "20", "http://198.18.0.1:81/")
	if code := exitCode(t, cmd.Wait()); code != 7 {
		t.Errorf("curl of a port that is closed: code %d, %s", code, out)
	}
	conf := filepath.Join(dir, "nginx.conf")
	text := strings.ReplaceAll("daemon off; worker_processes 2; pid DIR/pid; error_log stderr; events { worker_connections 64; }\n"+
		"http { access_log off; client_body_temp_path DIR/b; proxy_temp_path DIR/p; fastcgi_temp_path DIR/f; uwsgi_temp_path DIR/u; scgi_temp_path DIR/s;\n"+
		"server { listen 198.18.0.2:8080; location / { return 200 'from nginx'; } location /up { proxy_pass http://198.18.0.1:80; } } }\n", "DIR", dir)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd, out = start("nginx", "-c", conf)
	t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() })
	get := func(path string) string {
		got, _ := client.Run("curl", "-sS", "--max-time", "10", "http://198.18.0.2:8080"+path)
		return got
	}
	for end := time.Now().Add(30 * time.Second); get("/") != "from nginx"; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("nginx does not answer: %s", out)
		}
	}
	for range 20 {
		if got := get("/up"); got != "from the kernel" {
			t.Fatalf("through nginx: %q; %s", got, out)
		}
	}
	if code, shown, _ := run("net", "sockets", "--socket", socket); code != exitOK || !strings.Contains(shown, "nginx") {
		t.Errorf("net sockets does not show whose they are: code %d\n%s", code, shown)
	}
	if code, shown, _ := run("net", "stats", "--socket", socket); code != exitOK || !strings.Contains(shown, "\nprograms\n") || !strings.Contains(shown, "  uid 0: sockets ") {
		t.Errorf("net stats does not show what programs have: code %d\n%s", code, shown)
	}
	_ = cmd.Process.Signal(os.Interrupt) // the signal is the program's
	if code := exitCode(t, cmd.Wait()); code != 0 {
		t.Errorf("nginx ended with code %d: %s", code, out)
	}
}

// answer is an HTTP server of one answer.
func answer(c net.Conn) {
	b := make([]byte, 4096)
	for n := 0; !strings.Contains(string(b[:n]), "\r\n\r\n"); {
		k, err := c.Read(b[n:])
		if err != nil {
			return
		}
		n += k
	}
	_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 15\r\nConnection: close\r\n\r\nfrom the kernel"))
}
