package main

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/shim"
)

// leavers makes programs that the library cannot be loaded into, in the folder of a control socket, and returns commands that start
// each, with a part of what is to be said of it.
func leavers(t *testing.T, dir string) [][2]string {
	t.Helper()
	self := filepath.Join(dir, "static") // a Go program without libc, in a folder that all may enter
	text, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(self, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	truth, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	list := [][2]string{
		{self + " version", "by millrace exec --seccomp"},
		{"env -i true", "its environment"},
		{"env -u LD_PRELOAD true", "its environment"},
		{"env -u MILLRACE_SHIM true", "its environment"},
	}
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#! "+self+" version\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	list = append(list, [2]string{script, "by millrace exec --seccomp"})
	setuid := filepath.Join(dir, "setuid")
	if err := errors.Join(os.WriteFile(setuid, truth, 0o755), os.Chown(setuid, 65533, 65533), os.Chmod(setuid, 0o755|os.ModeSetuid)); err != nil {
		t.Fatal(err)
	}
	capable := filepath.Join(dir, "capable")
	if err := errors.Join(os.WriteFile(capable, truth, 0o755), unix.Setxattr(capable, "security.capability", netRaw(), 0)); err != nil {
		t.Fatal(err)
	}
	return append(list, [2]string{setuid, "setuid"}, [2]string{capable, "capabilities"})
}

// netRaw is a vfs_cap_data with CAP_NET_RAW, as setcap(8) makes it.
func netRaw() []byte {
	b := make([]byte, 20)
	binary.LittleEndian.PutUint32(b, 0x02000000|1) // VFS_CAP_REVISION_2, effective
	binary.LittleEndian.PutUint32(b[4:], 1<<unix.CAP_NET_RAW)
	return b
}

// TestExecReportsWhatLeaves: a program that is started and would use the kernel's stack is reported, and refused with --strict.
func TestExecReportsWhatLeaves(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it makes programs of other users, so it needs root")
	}
	library(t)
	socket := shimServer(t, func(c *shim.Config) { c.Everyone = true })
	if err := os.Chmod(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range leavers(t, filepath.Dir(socket)) {
		for _, by := range []string{"", "exec "} {
			name := strings.Fields(tc[0])[0]
			code, says := execAs(t, 65534, "--socket", socket, "--", "sh", "-c", by+tc[0])
			if !strings.Contains(says, "millrace: ") || !strings.Contains(says, " leaves the stack: it") || !strings.Contains(says, tc[1]) || strings.Count(says, "leaves the stack") != 1 {
				t.Errorf("%s%s: code %d: %s", by, name, code, says)
			}
			code, says = execAs(t, 65534, "--socket", socket, "--strict", "--", "sh", "-c", by+tc[0])
			if code != exitCannotRun || !strings.Contains(says, "--strict refuses") || !strings.Contains(says, tc[1]) {
				t.Errorf("--strict, %s%s: code %d: %s", by, name, code, says)
			}
		}
	}
	for _, stays := range []string{"true", "env true", "exec env sh -c true", "cat /proc/version >/dev/null"} {
		if code, says := execAs(t, 65534, "--socket", socket, "--strict", "--", "sh", "-c", stays); code != 0 || says != "" {
			t.Errorf("%s: code %d: %s", stays, code, says)
		}
	}
}

// TestExecRefusesCapabilities: the loader ignores the library for such a file, but for root, who has all capabilities already.
func TestExecRefusesCapabilities(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it gives a program capabilities, so it needs root")
	}
	library(t)
	socket := shimServer(t, func(c *shim.Config) { c.Everyone = true })
	if err := os.Chmod(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	list := leavers(t, filepath.Dir(socket))
	capable := list[len(list)-1][0]
	if code, says := execAs(t, 65534, "--socket", socket, "--", capable); code != exitPrivileged || !strings.Contains(says, "has capabilities") {
		t.Errorf("code %d: %s", code, says)
	}
	if code, says := execAs(t, 0, "--socket", socket, "--", capable); code != 0 {
		t.Errorf("root: code %d: %s", code, says)
	}
	if code, says := execAs(t, 0, "--socket", socket, "--strict", "--", "sh", "-c", "exec "+capable); code != 0 || says != "" {
		t.Errorf("a shell of root: code %d: %s", code, says)
	}
}

// TestExecIsolates: with --isolate a program that leaves the stack has no interface, and one that does not has the stack.
func TestExecIsolates(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	library(t)
	socket := shimServer(t, func(c *shim.Config) { c.Everyone = true })
	code, says := execAs(t, 0, "--socket", socket, "--isolate", "--", "sh", "-c", "env -i cat /proc/net/dev")
	if lines := strings.Split(strings.TrimSpace(says), "\n"); code != 0 || len(lines) != 4 || !strings.Contains(lines[3], "lo:") {
		t.Errorf("code %d, want the heads, lo alone, and a line of the library: %s", code, says)
	}
	if code, says := execAs(t, 65534, "--socket", socket, "--isolate", "--", "true"); code != exitCannotRun || !strings.Contains(says, "CAP_SYS_ADMIN") {
		t.Errorf("without rights: code %d: %s", code, says)
	}
	const listen = "import socket; s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); a, _ = s.accept(); c.send(b'x'); print(a.recv(9))"
	if code, says := execAs(t, 0, "--socket", socket, "--isolate", "--", "python3", "-c", listen); code != 0 || says != "b'x'\n" {
		t.Errorf("on the stack: code %d: %s", code, says)
	}
}
