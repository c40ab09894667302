package programs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// folders are the variables that name the built source of a suite, or the folder of programs. Its row keeps its cells where the variable is not set:
// nothing is fetched.
var folders = map[string]string{"LTP": "MILLRACE_LTP", "libuv": "MILLRACE_LIBUV", "NATS": "MILLRACE_NATS"}

// foreignPrograms are suites that were written for the socket calls of Linux, and for libraries over them.
func foreignPrograms() []program {
	return []program{
		suite{
			program: program{
				name: "LTP", version: []string{"sh", "-c", `sed 's/\(....\)\(..\)/\1.\2./' "$MILLRACE_LTP/VERSION"`},
				what: "the Linux Test Project's programs of the calls " + strings.Join(ltpCalls, ", ") + "; without " + strings.Join(ltpRaces, ", ") + ", which search for races inside the kernel",
			},
			parts: ltpCalls, part: func(t *testing.T, b *bed, part string) verdicts { return ltpPart(t, b, part, nil) }, again: ltpPart,
		}.row(),
		suite{
			program: program{
				name: "libuv", version: []string{"sh", "-c", `grep AC_INIT "$MILLRACE_LIBUV/configure.ac"`},
				what: "libuv's own tests of TCP, UDP, pipes, polling and names",
			},
			parts: []string{uvTests}, part: func(t *testing.T, b *bed, _ string) verdicts { return uvPart(t, b, nil) },
			again: func(t *testing.T, b *bed, _ string, names []string) verdicts { return uvPart(t, b, names) },
		}.row(),
		suite{
			program: program{name: "Go HTTP tests", version: []string{"go", "env", "GOVERSION"}, what: "`--seccomp`: Go's own tests of package net/http, `-short`; without TestOmitHTTP2Vet, which runs `go vet`"},
			parts:   []string{"net/http"}, part: func(t *testing.T, b *bed, _ string) verdicts { return goTests(t, b, "net/http", ".", goVets) },
			again: func(t *testing.T, b *bed, _ string, names []string) verdicts {
				return goTests(t, b, "net/http", "^("+strings.Join(names, "|")+")$", goVets)
			},
		}.row(),
	}
}

// goVets is a test that runs the compiler.
const goVets = "^TestOmitHTTP2Vet$"

// ltpCalls are the folders below testcases/kernel/syscalls whose programs run.
var ltpCalls = strings.Fields("accept accept4 bind close close_range connect dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_wait " +
	"getpeername getsockname getsockopt gethostbyname_r listen poll ppoll pselect read readv recv recvfrom recvmmsg recvmsg select send sendfile sendmmsg " +
	"sendmsg sendto setsockopt shutdown socket socketcall socketpair sockioctl splice tee vmsplice write writev")

// ltpRaces search for races inside the kernel's packet and raw sockets and its files, for minutes each.
var ltpRaces = []string{"bind06", "sendmsg03", "setsockopt06", "setsockopt07", "writev03"}

// ltpNotConfigured is the exit code of a program that cannot run on a machine (TCONF).
const ltpNotConfigured = 32

// ltpPart runs the lines of runtest/syscalls whose programs are in a folder, or those with the names.
func ltpPart(t *testing.T, b *bed, call string, names []string) verdicts {
	t.Helper()
	root := os.Getenv("MILLRACE_LTP")
	needsFile(t, filepath.Join(root, "runtest", "syscalls"), "MILLRACE_LTP names LTP's source, built")
	dir := filepath.Join(root, "testcases", "kernel", "syscalls", call)
	lines, err := os.ReadFile(filepath.Join(root, "runtest", "syscalls"))
	must(t, err)
	v := verdicts{}
	for line := range strings.Lines(string(lines)) {
		f := strings.Fields(line)
		if len(f) < 2 || strings.HasPrefix(f[0], "#") || slices.Contains(ltpRaces, f[0]) || names != nil && !slices.Contains(names, f[0]) {
			continue
		}
		program := filepath.Join(dir, f[1])
		if _, err := os.Stat(program); err != nil {
			continue
		}
		v[f[0]] = ltpTest(t, b, dir, f[0], append([]string{program}, f[2:]...))
	}
	return v
}

// ltpTest runs one program, as runltp does.
func ltpTest(t *testing.T, b *bed, dir, name string, args []string) string {
	cmd := b.host.command(args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LTPROOT="+os.Getenv("MILLRACE_LTP"), "TMPDIR="+b.dir, "LTP_COLORIZE_OUTPUT=n", "LTP_TIMEOUT_MUL=3", "PATH="+dir+":"+os.Getenv("PATH"))
	out, code := b.host.begin(t, cmd).finish(t, 3*time.Minute)
	switch code {
	case 0:
		return testPassed
	case ltpNotConfigured:
		return testSkipped
	}
	t.Logf("%s: code %d: %s", name, code, last(out, 1500))
	return testFailed
}

// uvTests selects libuv's tests that open sockets, pipes or pseudo-sockets, or look up names.
const uvTests = "^(callback_stack|close_fd|close_order|closed_fd_events|connect|delayed_accept|embed|emfile|fork_socketpair|getaddrinfo|getnameinfo|getsockname|handle_fileno|" +
	"ip|iouring|ipc|multiple_listen|not_|pipe_|poll_|readable_on_eof|shutdown_|socket_|spawn_tcp|stdio_over|tcp|udp|threadpool_cancel_get|watcher_cross)"

// uvPart runs libuv's tests that the pattern selects, or those with the names, one by one: they share ports.
func uvPart(t *testing.T, b *bed, names []string) verdicts {
	t.Helper()
	root := os.Getenv("MILLRACE_LIBUV")
	tests := filepath.Join(root, "build", "uv_run_tests_a")
	needsFile(t, tests, "MILLRACE_LIBUV names libuv's source, built in its folder build")
	list := exec.Command(tests, "--list")
	list.Env = append(os.Environ(), "UV_RUN_AS_ROOT=1")
	out, err := list.Output()
	must(t, err)
	v := verdicts{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) > 0 && regexp.MustCompile(uvTests).MatchString(f[0]) && (names == nil || slices.Contains(names, f[0])) {
			v[f[0]] = uvTest(t, b, root, tests, f[0])
		}
	}
	return v
}

// uvSkipped is the exit code of a test that skips itself (TEST_SKIP).
const uvSkipped = 7

func uvTest(t *testing.T, b *bed, root, tests, name string) string {
	cmd := b.host.command(tests, name)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "UV_RUN_AS_ROOT=1", "UV_TEST_TIMEOUT_MULTIPLIER=5", "TMPDIR="+b.dir)
	out, code := b.host.begin(t, cmd).finish(t, 3*time.Minute)
	switch code {
	case 0:
		return testPassed
	case uvSkipped:
		return testSkipped
	}
	t.Logf("%s: code %d: %s", name, code, last(out, 1500))
	return testFailed
}
