package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/internal/testkit/testport"
)

// upgradeSite is a gateway process with listeners at the loopback, which is upgraded.
type upgradeSite struct {
	t            *testing.T
	file, socket string
	addr         string
	log          buffer
	first        *exec.Cmd
}

const upgradeConfig = `
admin: {socket: SOCKET}
loops: 2
listeners: [{name: web, address: "LISTEN", protocol: HTTP, timeouts: {drain: 20s}}]
routes: [{name: r, rules: [{backend_refs: [{name: p}]}]}]
pools: [{name: p, backends: [{name: a, address: "BACKEND"}]}]
`

// newUpgradeSite starts a gateway, with more of the environment.
func newUpgradeSite(t *testing.T, src string, env ...string) *upgradeSite {
	t.Helper()
	dir := t.TempDir()
	s := &upgradeSite{t: t, file: filepath.Join(dir, "gw.yaml"), socket: filepath.Join(dir, "gw.sock"), addr: testport.Hold(t).String()}
	s.write(src)
	cmd := program("gateway", "-c", s.file)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.first = cmd
	t.Cleanup(func() {
		_, _, _ = run("gateway", "stop", "--socket", s.socket)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	s.log.until(t, "msg=gateway")
	sometime(t, "a gateway", func() bool { code, _, _ := run("gateway", "status", "--socket", s.socket); return code == exitOK })
	return s
}

func (s *upgradeSite) write(src string) {
	s.t.Helper()
	src = strings.NewReplacer("LISTEN", s.addr, "SOCKET", s.socket).Replace(src)
	if err := os.WriteFile(s.file, []byte(src), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// upgrade upgrades, which must work, and returns the result.
func (s *upgradeSite) upgrade(args ...string) (res admin.Upgraded) {
	s.t.Helper()
	_, out, problem := tell(s.socket, exitOK, append([]string{"upgrade", "--json"}, args...)...)
	if problem != "" {
		s.t.Fatal(problem)
	}
	decode(s.t, out, &res)
	return res
}

// word is a backend that answers with a word.
func word(t *testing.T, w string) string {
	t.Helper()
	b := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, w) }))
	t.Cleanup(b.Close)
	return strings.TrimPrefix(b.URL, "http://")
}

// load sends requests without a pause until it is ended, and counts what is answered and what is not.
type load struct {
	done     atomic.Bool
	all      sync.WaitGroup
	answered atomic.Int64
	mu       sync.Mutex
	failed   []error
}

// run runs a client in a loop.
func (l *load) run(once func() error) {
	l.all.Go(func() {
		for !l.done.Load() {
			if err := once(); err != nil {
				l.mu.Lock()
				l.failed = append(l.failed, err)
				l.mu.Unlock()
				time.Sleep(10 * time.Millisecond)
			} else {
				l.answered.Add(1)
			}
		}
	})
}

// end ends the load, and reports what failed.
func (l *load) end(t *testing.T, least int64) {
	t.Helper()
	l.done.Store(true)
	l.all.Wait()
	if n := l.answered.Load(); len(l.failed) > 0 || n < least {
		t.Errorf("%d requests were answered, want %d or more, and %d failed: %v", n, least, len(l.failed), errors.Join(l.failed[:min(len(l.failed), 5)]...))
	}
}

// fresh sends a request over a connection of its own.
func fresh(addr, want string) func() error {
	return func() error {
		c, err := net.DialTimeout("tcp", addr, 20*time.Second)
		if err != nil {
			return fmt.Errorf("a new connection: %w", err)
		}
		defer c.Close()
		_, err = exchange(c, bufio.NewReader(c), "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", want)
		return err
	}
}

// kept sends requests over a connection until the gateway announces its end; it does not repeat any.
func kept(addr, want string) func() error {
	var c net.Conn
	var r *bufio.Reader
	return func() (err error) {
		if c == nil {
			if c, err = net.DialTimeout("tcp", addr, 20*time.Second); err != nil {
				c = nil
				return fmt.Errorf("a new connection: %w", err)
			}
			r = bufio.NewReader(c)
		}
		last, err := exchange(c, r, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", want)
		if err != nil || last {
			c.Close()
			c = nil
		}
		return err
	}
}

// exchange sends a request and reads its response. last reports that it is the last one of the connection.
func exchange(c net.Conn, r *bufio.Reader, request, want string) (last bool, err error) {
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, request); err != nil {
		return false, fmt.Errorf("the request: %w", err)
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return false, fmt.Errorf("the response: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || string(body) != want) {
		err = fmt.Errorf("%d %q, want %q", resp.StatusCode, body, want)
	}
	return resp.Close, err
}

// TestUpgradeRefusesNoRequest upgrades under load: to fewer loops than before, and to more.
func TestUpgradeRefusesNoRequest(t *testing.T) {
	t.Parallel()
	src := strings.Replace(upgradeConfig, "BACKEND", word(t, "one"), 1)
	s := newUpgradeSite(t, src)
	var l load
	for range 2 {
		l.run(fresh(s.addr, "one"))
		l.run(kept(s.addr, "one"))
	}
	old := s.first.Process.Pid
	for _, loops := range []string{"1", "3"} {
		s.write(strings.Replace(src, "loops: 2", "loops: "+loops, 1))
		res := s.upgrade()
		if res.PID == old || res.PID == 0 || time.Duration(res.Drain) != 21*time.Second {
			t.Errorf("%+v", res)
		}
		sometime(t, "the end of the old process", func() bool { return syscall.Kill(old, 0) != nil || old == s.first.Process.Pid && exited(s.first) })
		old = res.PID
	}
	l.end(t, 100)
}

// exited reports whether a process that this one has started has ended.
func exited(cmd *exec.Cmd) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}
