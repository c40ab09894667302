package main

import (
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/stackpair"
	"github.com/millrace/millrace/shim"
)

// lossServer is a server that goes on after every error, as servers do, with a child that shares its listener. Both write a line when they
// are ready.
const lossServer = `
import os, socket, time
l = socket.create_server(("127.0.0.1", 7011))
os.fork()
os.write(1, b"ready\n")
while True:
    try: l.accept()
    except OSError: time.sleep(0.01)
`

// lossBed is a node for the programs of a test, and a peer on the network.
type lossBed struct {
	*stackpair.Pair
	*shim.Server
	dir string
}

func newLossBed(t *testing.T) *lossBed {
	t.Helper()
	p, err := stackpair.New(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	dir, err := os.MkdirTemp("", "millrace-loss-") // workers change their user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &lossBed{Pair: p, dir: dir}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b.node(t)
	return b
}

// node starts a node at the same path as the one before.
func (b *lossBed) node(t *testing.T) {
	t.Helper()
	node, err := shim.New(shim.Config{Stack: b.A, Path: filepath.Join(b.dir, "s.shim.sock"), Name: "stack"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	b.Server = node
}

// start runs a program by exec, in a process group of its own.
func (b *lossBed) start(t *testing.T, out *buffer, options []string, words ...string) *exec.Cmd {
	t.Helper()
	args := append([]string{"exec", "--socket", filepath.Join(b.dir, "s.sock")}, options...)
	cmd := program(append(append(args, "--"), words...)...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	return cmd
}

// startsServer starts lossServer on a node of its own, and returns that.
func startsServer(t *testing.T, out *buffer, options ...string) (*shim.Server, *exec.Cmd) {
	t.Helper()
	b := newLossBed(t)
	cmd := b.start(t, out, options, "python3", "-c", lossServer)
	for end := time.Now().Add(30 * time.Second); strings.Count(out.String(), "ready") < 2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not listen: %s", out)
		}
	}
	return b.Server, cmd
}

// TestExecEndsWithItsNode: with --on-node-loss=end a server whose node has gone ends by SIGTERM, and so do its workers.
func TestExecEndsWithItsNode(t *testing.T) {
	library(t)
	for _, options := range [][]string{{"--on-node-loss", "end"}, {"--on-node-loss=end", "--seccomp"}} {
		t.Run(strings.Join(options, ""), func(t *testing.T) {
			var out buffer
			node, cmd := startsServer(t, &out, options...)
			_ = node.Close()
			guard := time.AfterFunc(60*time.Second, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
			err := cmd.Wait() // the worker has the pipe of the output, too
			var e *exec.ExitError
			if !errors.As(err, &e) || e.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM || !strings.Contains(out.String(), "--on-node-loss=end") {
				t.Errorf("it ended by %v: %s", err, &out)
			}
			if !guard.Stop() {
				t.Errorf("some of it goes on: %s", &out)
			}
		})
	}
}

// TestExecKeepsItsProgram: without the option the program goes on, as it decides itself.
func TestExecKeepsItsProgram(t *testing.T) {
	library(t)
	var out buffer
	node, cmd := startsServer(t, &out)
	_ = node.Close()
	for end := time.Now().Add(30 * time.Second); !strings.Contains(out.String(), "the node has ended"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not notice: %s", &out)
		}
	}
	if err := cmd.Process.Signal(syscall.Signal(0)); errors.Is(err, os.ErrProcessDone) {
		t.Errorf("it has ended: %s", &out)
	}
}

// get returns what a server answers, for a client on the network.
func (b *lossBed) get(port, path string) (string, error) {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: b.B.DialContext}}
	r, err := client.Get("http://198.18.0.1:" + port + path)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return string(body), err
}

// gives waits until a server's answers have been all of want.
func (b *lossBed) gives(t *testing.T, out *buffer, port, path string, want ...string) {
	t.Helper()
	seen := map[string]bool{}
	var err error
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		var got string
		if got, err = b.get(port, path); err == nil {
			seen[got] = true
		}
		if !slices.ContainsFunc(want, func(w string) bool { return !seen[w] }) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("answers %v, want %v: %v\n%s", seen, want, err, out)
		}
	}
}

// asyncServer serves by asyncio.
const asyncServer = `
import asyncio
async def serve(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.0 200 OK\r\n\r\nasyncio")
    await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(serve, "198.18.0.1", 7012)
    async with server: await server.serve_forever()
asyncio.run(main())
`

// TestExecRebindsAsyncio: a server of Python's asyncio goes on with the next host, also where the program runs on by rings.
func TestExecRebindsAsyncio(t *testing.T) {
	library(t)
	for _, options := range [][]string{{"--on-node-loss=rebind"}, {"--on-node-loss", "rebind", "--rings"}, {"--on-node-loss=rebind", "--seccomp"}} {
		t.Run(strings.Join(options, ""), func(t *testing.T) {
			var out buffer
			b := newLossBed(t)
			b.start(t, &out, options, "python3", "-c", asyncServer)
			for range 3 {
				b.gives(t, &out, "7012", "/", "asyncio")
				_ = b.Server.Close()
				if got, err := b.get("7012", "/"); err == nil {
					t.Fatalf("without a host it answers %q", got)
				}
				b.node(t)
			}
			b.gives(t, &out, "7012", "/", "asyncio")
		})
	}
}

// sharedServer answers with the number of its calls of accept(2) in vain. Its parent has the listener, too, and never accepts.
const sharedServer = `
import os, select, socket
l = socket.create_server(("198.18.0.1", 7014))
l.setblocking(False)
if os.fork():
    os.wait()
e = select.epoll()
e.register(l, select.EPOLLIN)
missed = 0
while True:
    e.poll()
    try: c, _ = l.accept()
    except BlockingIOError:
        missed += 1
        continue
    c.settimeout(60)
    while not c.recv(4096).endswith(b"\r\n\r\n"): pass
    c.sendall(b"HTTP/1.0 200 OK\r\n\r\n%d" % missed)
    c.close()
`

// TestExecRebindsWithoutSpinning: an epoll instance forgets the listener of before, which another process still has: it would report its end
// for ever.
func TestExecRebindsWithoutSpinning(t *testing.T) {
	library(t)
	for _, options := range [][]string{{"--on-node-loss=rebind"}, {"--on-node-loss=rebind", "--seccomp"}} {
		t.Run(strings.Join(options, ""), func(t *testing.T) {
			var out buffer
			b := newLossBed(t)
			b.start(t, &out, options, "python3", "-c", sharedServer)
			b.gives(t, &out, "7014", "/", "0")
			_ = b.Server.Close()
			b.node(t)
			for visits, end := 0, time.Now().Add(60*time.Second); visits < 200; {
				got, err := b.get("7014", "/")
				if n, e := strconv.Atoi(got); err == nil && (e != nil || n > 1000) {
					t.Fatalf("%s calls in vain", got)
				}
				if err == nil {
					visits++
				} else if time.Now().After(end) {
					t.Fatalf("%v; %s", err, &out)
				}
			}
		})
	}
}

// nginxLoss is a server with two workers, which run as another user, at a low port.
const nginxLoss = `
daemon off; worker_processes 2; pid DIR/nginx.pid; error_log DIR/nginx.log;
events { worker_connections 64; }
http {
	access_log off; client_body_temp_path DIR/b; proxy_temp_path DIR/p; fastcgi_temp_path DIR/f; uwsgi_temp_path DIR/u; scgi_temp_path DIR/s;
	server { listen 198.18.0.1:80; location / { return 200 'GENERATION $pid'; } }
}`

// TestExecRebindsNginx: both workers of nginx go on with the next host, and so do those of a reload after it.
func TestExecRebindsNginx(t *testing.T) {
	library(t)
	if _, err := exec.LookPath("nginx"); err != nil {
		t.Skip("nginx is not installed")
	}
	if os.Geteuid() != 0 {
		t.Skip("its workers change their user, so it needs root")
	}
	for _, options := range [][]string{{"--on-node-loss=rebind"}, {"--on-node-loss=rebind", "--seccomp"}} {
		t.Run(strings.Join(options, ""), func(t *testing.T) { rebindsNginx(t, options) })
	}
}

func rebindsNginx(t *testing.T, options []string) {
	var out buffer
	b := newLossBed(t)
	file := filepath.Join(b.dir, "nginx.conf")
	config := func(generation string) {
		t.Helper()
		text := strings.NewReplacer("DIR", b.dir, "GENERATION", generation).Replace(nginxLoss)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	config("first")
	master := b.start(t, &out, options, "nginx", "-c", file, "-p", b.dir)
	b.workersGive(t, &out, "first", 1)
	_ = b.Server.Close()
	b.node(t)
	b.workersGive(t, &out, "first", 2)
	config("second")
	if err := master.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	b.workersGive(t, &out, "second", 2)
	_ = b.Server.Close()
	b.node(t)
	b.workersGive(t, &out, "second", 2)
}

// workersGive waits until so many workers of nginx have answered.
func (b *lossBed) workersGive(t *testing.T, out *buffer, generation string, workers int) {
	t.Helper()
	seen := map[string]bool{}
	var err error
	for end := time.Now().Add(60 * time.Second); len(seen) < workers; time.Sleep(5 * time.Millisecond) {
		var got string
		if got, err = b.get("80", "/"); err == nil && strings.HasPrefix(got, generation) {
			seen[got] = true
		}
		if time.Now().After(end) {
			log, _ := os.ReadFile(filepath.Join(b.dir, "nginx.log"))
			t.Fatalf("answers %v, want those of %d workers: %v\n%s\n%s", seen, workers, err, out, log)
		}
	}
}
