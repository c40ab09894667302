package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
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
	closed := filepath.Join(dir, "closed") // may be executed by others, not read
	if err := errors.Join(os.WriteFile(closed, text, 0o711), os.Chmod(closed, 0o711)); err != nil {
		t.Fatal(err)
	}
	list := [][2]string{
		{self + " version", "by millrace exec --seccomp"},
		{"env -i true", "its environment"},
		{"env -u LD_PRELOAD true", "its environment"},
		{"env -u MILLRACE_SHIM true", "its environment"},
		{"env MILLRACE_SHIM=x true", "another MILLRACE_SHIM"},
		{"env LD_PRELOAD=$LD_PRELOAD.old true", "its environment"},
		{"env LD_PRELOAD=:${LD_PRELOAD%?} true", "its environment"},
		{closed + " version", "cannot be read"},
		{musl(t, dir, truth) + " version", "glibc"},
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

// musl makes a program whose loader is that of musl, by its name.
func musl(t *testing.T, dir string, of []byte) string {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(of))
	if err != nil {
		t.Fatal(err)
	}
	name, loader := filepath.Join(dir, "musl"), loaderOf(f)
	other := "/lib/ld-musl.so.1" + strings.Repeat("\x00", len(loader))
	text := bytes.Replace(of, []byte(loader), []byte(other[:len(loader)]), 1)
	if err := os.WriteFile(name, text, 0o755); loader == "" || err != nil {
		t.Fatalf("loader %q: %v", loader, err)
	}
	return name
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
			if !strings.Contains(says, "millrace: ") || !strings.Contains(says, " the stack: it") || !strings.Contains(says, tc[1]) || strings.Count(says, " the stack: it") != 1 {
				t.Errorf("%s%s: code %d: %s", by, name, code, says)
			}
			code, says = execAs(t, 65534, "--socket", socket, "--strict", "--", "sh", "-c", by+tc[0])
			if tc[1] == "setuid" || tc[1] == "capabilities" { // the filter takes their rights away, and with them the reason to leave
				if code != 0 || says != "" {
					t.Errorf("--strict, %s%s: code %d: %s", by, name, code, says)
				}
				continue
			}
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

// TestExecWatchesWhatLibcStarts: libc starts the shells of system and popen by calls within itself, and a program may change its environment before.
func TestExecWatchesWhatLibcStarts(t *testing.T) {
	testnet.Program(t, "python3")
	socket := shimServer(t, func(c *shim.Config) { c.Everyone = true })
	const libc = "import ctypes, os; c = ctypes.CDLL(None); e = (ctypes.c_char_p * 2)(b'A=B', None); a = (ctypes.c_char_p * 2)(b'true', None); "
	for _, tc := range [][3]string{
		{"system", "os.unsetenv('LD_PRELOAD'); os.system('echo started')", "its environment has neither"},
		{"popen", "os.unsetenv('LD_PRELOAD'); f = c.popen(b'echo started >&2', b'r')", "its environment has neither"},
		{"execveat", "c.execveat(-100, b'/bin/true', a, e, 0)", "its environment has neither"},
		{"execveat in a folder", "c.execveat(os.open('/bin', 0), b'true', a, e, 0)", "its environment has neither"},
		{"execveat of a descriptor", "c.execveat(os.open('/bin/true', 0), b'', a, e, 0x1000)", "its environment has neither"},
		{"two variables", "e = (ctypes.c_char_p * 4)(*[(k + '=' + os.environ[k]).encode() for k in ('LD_PRELOAD', 'MILLRACE_SHIM')], b'LD_PRELOAD=', None); c.execve(b'/bin/true', a, e)", "its environment has neither"},
	} {
		code, says := execAs(t, 0, "--socket", socket, "--", "python3", "-c", libc+tc[1])
		if code != 0 || strings.Count(says, " leaves the stack: "+tc[2]) != 1 {
			t.Errorf("%s: code %d: %s", tc[0], code, says)
		}
		code, says = execAs(t, 0, "--socket", socket, "--strict", "--", "python3", "-c", libc+tc[1])
		if code != 0 || !strings.Contains(says, "--strict refuses") || !strings.Contains(says, tc[2]) || strings.Contains(says, "started") {
			t.Errorf("--strict, %s: code %d: %s", tc[0], code, says)
		}
	}
	for _, stays := range []string{"os.system('true')", "c.system(None) or print('none')", "c.pclose(c.popen(b'true', b'r'))"} {
		if stays[0] == 'c' {
			stays = "c.popen.restype = ctypes.c_void_p; c.pclose.argtypes = [ctypes.c_void_p]; " + stays
		}
		if code, says := execAs(t, 0, "--socket", socket, "--strict", "--", "python3", "-c", libc+stays); code != 0 || says != "" {
			t.Errorf("%s: code %d: %s", stays, code, says)
		}
	}
}

// TestExecStaysStrict: a program that starts others without --strict in their environment is refused, or they could leave.
func TestExecStaysStrict(t *testing.T) {
	socket := shimServer(t, func(c *shim.Config) { c.Everyone = true })
	for _, by := range []string{"env -u MILLRACE_SHIM_STRICT", "env MILLRACE_SHIM_STRICT="} {
		if code, says := execAs(t, 0, "--socket", socket, "--strict", "--", "sh", "-c", by+" true"); code != exitCannotRun || !strings.Contains(says, "MILLRACE_SHIM_STRICT") {
			t.Errorf("--strict, %s: code %d: %s", by, code, says)
		}
		if code, says := execAs(t, 0, "--socket", socket, "--", "sh", "-c", by+" true"); code != 0 || says != "" {
			t.Errorf("%s: code %d: %s", by, code, says)
		}
	}
}

// TestStrictForbidsSocketsOfTheKernel, which the library does not see: of other families, by an instruction of the program's
// own, and by io_uring. Those of the stack work.
func TestStrictForbidsSocketsOfTheKernel(t *testing.T) {
	testnet.Program(t, "python3")
	library(t)
	socket := shimServer(t, func(c *shim.Config) { c.Everyone = true })
	if err := os.Chmod(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	// The code of syscall(2) in memory of the program's own: no library takes its place.
	const own = `
import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("4889f84889f74889d64889ca0f05c3"))  # rax, rdi, rsi, rdx = rdi, rsi, rdx, rcx; syscall; ret
call = ctypes.CFUNCTYPE(ctypes.c_long, *4 * [ctypes.c_long])(ctypes.addressof(ctypes.c_char.from_buffer(code)))
`
	programs := map[string]string{
		"AF_PACKET":      "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)",
		"AF_VSOCK":       "import socket; socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)",
		"an instruction": own + "r = call(41, 2, 1, 0)\nif r < 0: raise OSError(-r, 'refused')",
		"io_uring":       own + "r = call(425, 1, ctypes.addressof(ctypes.create_string_buffer(256)), 0)\nif r == -38: raise PermissionError",
	}
	if runtime.GOARCH != "amd64" {
		delete(programs, "an instruction")
		delete(programs, "io_uring")
	}
	for what, text := range programs {
		uids := []uint32{0, 65534}
		for _, uid := range uids {
			if code, says := execAs(t, uid, "--socket", socket, "--strict", "--", "python3", "-c", text); code != 1 || !strings.Contains(says, "PermissionError") {
				t.Errorf("%s by user %d: code %d: %s", what, uid, code, says)
			}
		}
		if what == "an instruction" { // without --strict it leaves
			if code, says := execAs(t, 0, "--socket", socket, "--", "python3", "-c", text); code != 0 {
				t.Errorf("%s without --strict: code %d: %s", what, code, says)
			}
		}
	}
	const stays = "import socket; s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); a, _ = s.accept(); c.send(b'x'); print(a.recv(9))"
	for _, uid := range []uint32{0, 65534} {
		if code, says := execAs(t, uid, "--socket", socket, "--strict", "--", "sh", "-c", "exec python3 -c \"$0\"", stays); code != 0 || says != "b'x'\n" {
			t.Errorf("on the stack, by user %d: code %d: %s", uid, code, says)
		}
	}
}

// TestExecOfAnUnreadableFile: what it is stays unknown, so --strict refuses it, and a line is written without.
func TestExecOfAnUnreadableFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it needs another user, so it needs root")
	}
	socket := shimServer(t, func(c *shim.Config) { c.Everyone = true })
	closed := filepath.Join(filepath.Dir(socket), "closed")
	truth, err := os.ReadFile("/bin/true")
	if err := errors.Join(err, os.WriteFile(closed, truth, 0o711), os.Chmod(closed, 0o711)); err != nil {
		t.Fatal(err)
	}
	if code, says := execAs(t, 65534, "--socket", socket, "--", closed); code != 0 || !strings.Contains(says, "may leave the stack: it cannot be read") {
		t.Errorf("code %d: %s", code, says)
	}
	if code, says := execAs(t, 65534, "--socket", socket, "--strict", "--", closed); code != exitArchitecture || !strings.Contains(says, "cannot be read") {
		t.Errorf("--strict: code %d: %s", code, says)
	}
	if code, says := execAs(t, 0, "--socket", socket, "--strict", "--", closed); code != 0 || says != "" {
		t.Errorf("root: code %d: %s", code, says)
	}
	if code, says := execAs(t, 65534, "--socket", socket, "--seccomp", "--", closed); code != exitNoSeccomp || !strings.Contains(says, "cannot be read") {
		t.Errorf("--seccomp: code %d: %s", code, says)
	}
}

// TestSupervisedChildrenThatCannotBeRead have no sockets: the supervisor of another user than root may not read their memory.
func TestSupervisedChildrenThatCannotBeRead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it needs another user, so it needs root")
	}
	testnet.Program(t, "python3")
	socket := shimServer(t, func(c *shim.Config) { c.Everyone = true })
	dir := filepath.Dir(socket)
	self, closed := filepath.Join(dir, "millrace"), filepath.Join(dir, "closed")
	for _, c := range []struct {
		from, to string
		mode     os.FileMode
	}{{"/proc/self/exe", self, 0o755}, {"/usr/bin/python3", closed, 0o711}} {
		text, err := os.ReadFile(c.from)
		if err := errors.Join(err, os.WriteFile(c.to, text, c.mode), os.Chmod(c.to, c.mode)); err != nil {
			t.Fatal(err)
		}
	}
	const bind = "import socket; s = socket.socket(); s.bind((\"127.0.0.1\", 0)); print(s.getsockname()[0])"
	for by, want := range map[string]string{"python3": "127.0.0.1", closed: "PermissionError"} {
		cmd := program("exec", "--socket", socket, "--seccomp", "--", "sh", "-c", by+" -c '"+bind+"'; true")
		cmd.Path, cmd.Dir = self, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v: %s", by, err, out)
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
