package programs

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// noRings is why programs without libc have no cell for rings.
const noRings = "rings are the library's, which cannot be loaded into it"

// seccompPrograms have no libc that a library could be loaded into: millrace exec --seccomp serves them.
func seccompPrograms() []program {
	return []program{
		{"Go program", []string{"go", "env", "GOVERSION"}, "`--seccomp`: net/http as client (HTTP/1.1, HTTPS with HTTP/2) and as server with sendfile, GET and PUT, IPv4 and IPv6: hashes; 100 connections at a time; a refused connection", runGo},
		{"busybox", []string{"busybox"}, "`--seccomp`, a static program: wget, httpd, nc as client and as server, IPv4 and IPv6: hashes; a refused connection", runBusybox},
		suite{
			program: program{name: "Go net tests", version: []string{"go", "env", "GOVERSION"}, what: "`--seccomp`: Go's own tests of package net whose names have TCP, UDP, Dial, Listen, Conn, Packet, Accept, Close, Timeout, Read, Write or File. On the stack 1 is left out: `write` of a UDP socket that is not connected does not fail"},
			parts:   []string{"net"}, part: func(t *testing.T, b *bed, _ string) verdicts {
				return goTests(t, b, "net", goNetPattern, b.unserved(goNetUnconnected))
			},
			again: func(t *testing.T, b *bed, _ string, names []string) verdicts {
				return goTests(t, b, "net", "^("+strings.Join(names, "|")+")$", b.unserved(goNetUnconnected))
			},
		}.row(),
	}
}

// filtered returns a bed whose programs in the namespace host have a supervisor in place of the library. The test is skipped with rings.
func (b *bed) filtered(t *testing.T) *bed {
	t.Helper()
	if b.tier == onRings {
		b.skip(t, noRings)
	}
	c, host := *b, *b.host
	if b.tier != onKernel {
		host.prefix = []string{b.millrace, "exec", "--seccomp", "--socket", b.socket, "--"}
	}
	c.host = &host
	return &c
}

func runGo(t *testing.T, on *bed) string {
	b := on.filtered(t)
	program := filepath.Join(b.dir, "goprogram")
	build := exec.Command("go", "build", "-o", program, "./testdata/goprogram")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	file, sum := content(t, b.dir, 30_000_000)
	name, got := filepath.Base(file), filepath.Join(b.dir, "got")
	plain, secure := b.webServer(t, b.dir)
	for _, front := range []string{
		"http://" + net.JoinHostPort(peerAddr, plain), "http://" + net.JoinHostPort(peerAddr6, plain),
		"https://" + net.JoinHostPort(peerAddr, secure), "https://" + net.JoinHostPort(peerAddr6, secure),
	} {
		want := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[strings.HasPrefix(front, "https")]
		if proto := b.host.run(t, program, "get", front+"/"+name, got); proto != want {
			t.Errorf("%s: %s, want %s", front, proto, want)
		}
		equal(t, "GET "+front, got, sum)
		if answer := b.host.run(t, program, "put", front+"/x", file); answer != sum {
			t.Errorf("PUT %s: the server got %s, want %s", front, answer, sum)
		}
	}
	server := b.host.start(t, program, "serve", b.dir, hostAddr+":8300", "["+hostAddr6+"]:8300")
	b.opens(t, server, 8300)
	for _, front := range []string{"http://" + hostAddr + ":8300", "http://[" + hostAddr6 + "]:8300"} {
		b.peer.run(t, "curl", "-sS", "--fail", "--max-time", "50", "-o", got, front+"/"+name)
		equal(t, "GET "+front, got, sum)
		if answer := b.peer.run(t, "curl", "-sS", "--fail", "--max-time", "50", "-T", file, front+"/x"); answer != sum {
			t.Errorf("PUT %s: the server got %s, want %s", front, answer, sum)
		}
		b.host.run(t, program, "get", front+"/"+name, got)
		equal(t, "GET from the same stack", got, sum)
	}
	for _, from := range []*place{b.peer, b.host} {
		if out := from.run(t, program, "echo", hostAddr+":8300", "100", "400000"); out != "equal\n" {
			t.Errorf("100 connections: %s", out)
		}
	}
	server.stop(t)
	if out, code := b.host.try(t, patience, program, "get", "http://"+peerAddr+":9/", got); code != 9 || !strings.Contains(out, "connection refused") {
		t.Errorf("a refused connection: code %d, %s", code, out)
	}
	return "14 transfers of 30 MB, 200 of 400 kB both ways"
}

func runBusybox(t *testing.T, on *bed) string {
	b := on.filtered(t)
	const size = 30_000_000
	file, sum := content(t, b.dir, size)
	name, got := filepath.Base(file), filepath.Join(b.dir, "got")
	plain, _ := b.webServer(t, b.dir)
	transfers := 0
	for _, addr := range []string{peerAddr, peerAddr6} {
		b.host.run(t, "busybox", "wget", "-q", "-O", got, "http://"+net.JoinHostPort(addr, plain)+"/"+name)
		equal(t, "wget from "+addr, got, sum)
		transfers++
	}
	for _, addr := range []string{hostAddr, hostAddr6} {
		at := net.JoinHostPort(addr, "8400")
		server := b.host.start(t, "busybox", "httpd", "-f", "-p", at, "-h", b.dir) // it forks for each connection
		b.answers(t, server, b.peer, at)
		for _, from := range []*place{b.peer, b.host} {
			from.run(t, "busybox", "wget", "-q", "-O", got, "http://"+at+"/"+name)
			equal(t, "httpd at "+addr, got, sum)
			transfers++
		}
		server.stop(t)
	}
	for _, side := range []struct{ server, client *place }{{b.host, b.peer}, {b.peer, b.host}} {
		netcat(t, side.server, side.client, file, sum, got)
		transfers++
	}
	if out, code := b.host.try(t, patience, "busybox", "wget", "-q", "-O", "-", "http://"+peerAddr+":9/"); code != 1 || !strings.Contains(out, "refused") {
		t.Errorf("a refused connection: code %d, %s", code, out)
	}
	return fmt.Sprintf("%d transfers of %d MB", transfers, size/1_000_000)
}

// netcat sends a file from nc to nc -l, which has no address to await: the client tries until it is there.
func netcat(t *testing.T, server, client *place, file, sum, got string) {
	t.Helper()
	to, err := os.Create(got)
	must(t, err)
	defer to.Close()
	listen := server.command("busybox", "nc", "-l", "-p", "8401")
	listen.Stdout = to
	stdin, open, err := os.Pipe() // at its end nc would shut down its direction, and the client end
	must(t, err)
	defer stdin.Close()
	defer open.Close()
	listen.Stdin = stdin
	l := server.begin(t, listen)
	await(t, "nc -l", func() bool {
		from, err := os.Open(file)
		must(t, err)
		defer from.Close()
		send := client.command("busybox", "nc", server.addr, "8401")
		send.Stdin = from
		_, code := client.begin(t, send).finish(t, patience)
		return code == 0
	})
	if err := l.wait(patience); err != nil {
		t.Errorf("nc -l: %v: %s", err, &l.log)
	}
	equal(t, "nc", got, sum)
}

// goNetPattern selects the tests of package net that are about sockets.
const goNetPattern = "TCP|UDP|Dial|Listen|Conn|Packet|Accept|Close|Timeout|Read|Write|File"

// goNetUnconnected is a test that wants write(2) of a UDP socket that is not connected to fail: no call without an address is filtered.
const goNetUnconnected = "^TestWriteToUDP$"

// goTestLine is a verdict of a test itself, not of its parts.
var goTestLine = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\S+)`)

// unserved returns a pattern of tests that the stack does not serve: none on the kernel's.
func (b *bed) unserved(pattern string) string {
	if b.tier == onKernel {
		return "^$"
	}
	return pattern
}

// goTests runs tests of a package of the standard library without those that skip matches. They need their folder, and no
// names of a network's resolver.
func goTests(t *testing.T, on *bed, pkg, pattern, skip string) verdicts {
	t.Helper()
	b := on.filtered(t)
	root, err := exec.Command("go", "env", "GOROOT").Output()
	must(t, err)
	dir := filepath.Join(strings.TrimSpace(string(root)), "src", pkg)
	binary := filepath.Join(b.dir, strings.ReplaceAll(pkg, "/", "-")+".test")
	build := exec.Command("go", "test", "-c", "-o", binary, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go test -c %s: %v: %s", pkg, err, out)
	}
	v := verdicts{}
	cmd := b.host.command(binary, "-test.v", "-test.short", "-test.timeout=5m", "-test.run", pattern, "-test.skip", skip)
	cmd.Dir = dir
	out, code := b.host.begin(t, cmd).finish(t, 6*time.Minute)
	for _, m := range goTestLine.FindAllStringSubmatch(out, -1) {
		v[m[2]] = map[string]string{"PASS": testPassed, "FAIL": testFailed, "SKIP": testSkipped}[m[1]]
	}
	if code != 0 && len(v.failures()) == 0 {
		t.Errorf("%s: code %d: %s", pkg, code, last(out, 3000))
	}
	return v
}
