package main

import (
	"bufio"
	"crypto/tls"
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
	"github.com/millrace/millrace/http3"
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
	return newUpgradeSiteAt(t, filepath.Join(t.TempDir(), "gw.sock"), src, env...)
}

// newUpgradeSiteAt has the control socket elsewhere.
func newUpgradeSiteAt(t *testing.T, socket, src string, env ...string) *upgradeSite {
	t.Helper()
	s := &upgradeSite{t: t, file: filepath.Join(t.TempDir(), "gw.yaml"), socket: socket, addr: testport.Hold(t).String()}
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

// load sends requests without a pause, or after halve by a schedule, until it is ended, and counts what is answered and what is not.
type load struct {
	done     atomic.Bool
	all      sync.WaitGroup
	answered atomic.Int64
	mu       sync.Mutex
	failed   []error
	closes   []func() // of clients, at the end
	clients  []*client
	offered  float64 // per second, after halve
}

// run runs a client in a loop.
func (l *load) run(once func() error) {
	c := new(client)
	l.clients = append(l.clients, c)
	l.all.Go(func() {
		for !l.done.Load() {
			if c.wait(&l.done); l.done.Load() {
				return
			}
			err := once()
			c.ended()
			if err != nil {
				l.mu.Lock()
				l.failed = append(l.failed, err)
				l.mu.Unlock()
				time.Sleep(10 * time.Millisecond)
			} else {
				c.answered.Add(1)
				l.answered.Add(1)
			}
		}
	})
}

// failures returns what has failed.
func (l *load) failures() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// end ends the load, and reports what failed.
func (l *load) end(t *testing.T, least int64) {
	t.Helper()
	l.done.Store(true)
	l.all.Wait()
	for _, f := range l.closes {
		f()
	}
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

// runKept runs a client that sends requests over a connection until the gateway announces its end; it does not repeat any. At the end it
// closes the connection: the process that has it waits for one more request.
func (l *load) runKept(addr, want string) {
	var c net.Conn
	var r *bufio.Reader
	closeConn := func() {
		if c != nil {
			c.Close()
		}
		c = nil
	}
	l.closes = append(l.closes, closeConn)
	l.run(func() (err error) {
		if c == nil {
			if c, err = net.DialTimeout("tcp", addr, 20*time.Second); err != nil {
				c = nil
				return fmt.Errorf("a new connection: %w", err)
			}
			r = bufio.NewReader(c)
		}
		last, err := exchange(c, r, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", want)
		if err != nil || last {
			closeConn()
		}
		return err
	})
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
		l.runKept(s.addr, "one")
	}
	old := s.first.Process.Pid
	for _, loops := range []string{"1", "3"} {
		s.write(strings.Replace(src, "loops: 2", "loops: "+loops, 1))
		res := s.upgrade()
		if res.PID == old || res.PID == 0 || time.Duration(res.Drain) != 21*time.Second {
			t.Errorf("%+v", res)
		}
		sometime(t, "the end of the old process", func() bool { return exited(old) })
		old = res.PID
	}
	l.end(t, 100)
}

// TestAnIdleConnectionOutlivesAnUpgrade sends a request over a connection long after the upgrade: it is answered, and the last. A client
// whose request meets the end of the connection would have to send it again.
func TestAnIdleConnectionOutlivesAnUpgrade(t *testing.T) {
	t.Parallel()
	s := newUpgradeSite(t, strings.Replace(upgradeConfig, "BACKEND", word(t, "one"), 1))
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := bufio.NewReader(c)
	for i := range 2 {
		last, err := exchange(c, r, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "one")
		if err != nil || last != (i == 1) {
			t.Fatalf("request %d: %v, the last: %v", i, err, last)
		}
		if i == 0 {
			s.upgrade()
			time.Sleep(time.Second) // longer than connections without a request are kept when a gateway stops
		}
	}
	sometime(t, "the end of the old process", func() bool { return exited(s.first.Process.Pid) })
}

// TestTheNextProcessMayDieLater kills the new process while the old one still has a WebSocket: another one, as a service manager starts it,
// has the addresses of TCP and UDP at once. The old process refuses commands that come to it late.
func TestTheNextProcessMayDieLater(t *testing.T) {
	t.Parallel()
	pair, roots := pairFile(t, "gateway.test")
	safe := testport.Hold(t).String()
	s := newUpgradeSite(t, strings.NewReplacer("BACKEND", echoing(t, "one"), "SAFE", safe, "METRICS", testport.Hold(t).String(), "PAIR", pair).Replace(everyKindConfig))
	_, echo := socketOver(t, "WebSocket", "ws://"+s.addr, nil)
	h3 := &http3.Transport{TLS: &tls.Config{RootCAs: roots}}
	defer h3.Close()
	if _, echo := socketOver(t, "WebSocket over HTTP/3", "wss://"+safe, h3); echo() != nil {
		t.Fatal("no echo")
	}
	res := s.upgrade("--drain", "1h")
	if err := s.first.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.log.until(t, "another process has replaced this one")
	if err := syscall.Kill(res.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	sometime(t, "the end of the new process", func() bool { return exited(res.PID) })
	another := program("gateway", "-c", s.file)
	another.Stdout, another.Stderr = &s.log, &s.log
	if err := another.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = another.Process.Kill(); _ = another.Wait() })
	sometime(t, "a gateway", func() bool { code, _, _ := run("gateway", "status", "--socket", s.socket); return code == exitOK })
	fresh3 := &http3.Transport{TLS: h3.TLS}
	defer fresh3.Close()
	for _, try := range []func() error{fresh(s.addr, "one"), over(fresh3, "https://"+safe+"/", "one"), echo} {
		if err := try(); err != nil {
			t.Error(err)
		}
	}
}

// exited reports whether a process has ended, also one that its parent has not waited for.
func exited(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// script writes a program.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestWhatCannotReplaceTheGatewayLeavesItAsItIs upgrades under load to programs that crash, are none, or end at once, and to files with
// errors: the gateway goes on and says why, no request fails, and then it is upgraded.
func TestWhatCannotReplaceTheGatewayLeavesItAsItIs(t *testing.T) {
	t.Parallel()
	src := strings.Replace(upgradeConfig, "BACKEND", word(t, "one"), 1)
	s := newUpgradeSite(t, src)
	wrong, cut := filepath.Join(t.TempDir(), "wrong.yaml"), filepath.Join(t.TempDir(), "cut")
	if err := errors.Join(os.WriteFile(wrong, []byte(strings.Replace(src, "loops", "lops", 1)), 0o644), os.WriteFile(cut, nil, 0o755)); err != nil {
		t.Fatal(err)
	}
	var l load
	l.run(fresh(s.addr, "one"))
	l.runKept(s.addr, "one")
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{exitFailure, "this gateway goes on: the new process has ended (exit status 9)", []string{"--binary", script(t, "#!/bin/sh\nexit 9\n")}},
		{exitFailure, "does not start", []string{"--binary", "/nonexistent"}},
		{exitFailure, "does not start", []string{"--binary", cut}}, // as a full disk leaves it
		{exitConfig, "did you mean", []string{"--config", wrong}},
		{exitConfig, "wrong.yaml:3:1", []string{"--config", wrong, "--if-needed"}},
		{exitFailure, "no such file", []string{"--config", "/nonexistent.yaml"}},
		{exitFailure, "there is nothing to return to", []string{"--rollback"}},
		{exitUsage, "--rollback returns to", []string{"--rollback", "--config", wrong}},
		{exitUsage, "is negative", []string{"--drain", "-1s"}},
	} {
		_, out, problem := tell(s.socket, c.code, append([]string{"upgrade"}, c.args...)...)
		if problem != "" || !strings.Contains(out, c.want) {
			t.Errorf("%v: %s, want %q in %q", c.args, problem, c.want, out)
		}
		if exited(s.first.Process.Pid) {
			t.Fatal("the gateway has ended")
		}
	}
	s.upgrade()
	l.end(t, 100)
}

// TestAProcessThatDiesAsItServesIsReplacedByTheOldOne kills the new process within its first second: the old one accepts again. It also
// refuses a second upgrade meanwhile. A connection of QUIC goes on over all of that.
func TestAProcessThatDiesAsItServesIsReplacedByTheOldOne(t *testing.T) {
	t.Parallel()
	pair, roots := pairFile(t, "gateway.test")
	safe := testport.Hold(t).String()
	s := newUpgradeSite(t, strings.NewReplacer("BACKEND", echoing(t, "one"), "SAFE", safe, "METRICS", testport.Hold(t).String(), "PAIR", pair).Replace(everyKindConfig))
	h3 := &http3.Transport{TLS: &tls.Config{RootCAs: roots}}
	defer h3.Close()
	_, echo := socketOver(t, "WebSocket over HTTP/3", "wss://"+safe, h3)
	dies := script(t, fmt.Sprintf("#!/bin/sh\n(sleep 0.6; kill -9 $$) >/dev/null 2>&1 &\nexec %s \"$@\"\n", os.Args[0]))
	var refused atomic.Bool // an upgrade during another one, whichever came first
	upgrade := func() (out string) {
		for range 20 {
			_, _, out = run("gateway", "upgrade", "--socket", s.socket, "--binary", dies)
			if !strings.Contains(out, "EOF") && !strings.Contains(out, "reset by peer") { // the process that dies has taken the command
				break
			}
		}
		if strings.Contains(out, "another upgrade is under way") {
			refused.Store(true)
		}
		return out
	}
	var second sync.WaitGroup
	second.Go(func() {
		for range 200 {
			if upgrade(); refused.Load() {
				return
			}
		}
	})
	for range 3 {
		out := upgrade()
		if exited(s.first.Process.Pid) || !strings.Contains(out, "this gateway goes on") && !strings.Contains(out, "another upgrade") {
			t.Fatalf("the upgrade: %s", out)
		}
		for _, try := range []func() error{fresh(s.addr, "one"), echo, over(&http3.Transport{TLS: h3.TLS}, "https://"+safe+"/", "one")} {
			if err := try(); err != nil {
				t.Error(err)
			}
		}
	}
	if second.Wait(); !refused.Load() {
		t.Error("no upgrade was refused during another one")
	}
	s.log.until(t, "signal: killed")
	if _, _, problem := tell(s.socket, exitOK, "reload"); problem != "" {
		t.Error(problem)
	}
}

// TestStopEndsAnUpgradeThatIsUnderWay stops the gateway while the new process starts: that ends too.
func TestStopEndsAnUpgradeThatIsUnderWay(t *testing.T) {
	t.Parallel()
	s := newUpgradeSite(t, strings.Replace(upgradeConfig, "BACKEND", word(t, "one"), 1))
	pid := filepath.Join(t.TempDir(), "pid")
	done := make(chan string, 1)
	go func() {
		_, _, err := run("gateway", "upgrade", "--socket", s.socket, "--binary", script(t, "#!/bin/sh\necho $$ >"+pid+"\nexec sleep 60\n"))
		done <- err
	}()
	var of int
	sometime(t, "the new process", func() bool {
		text, _ := os.ReadFile(pid)
		_, err := fmt.Sscan(string(text), &of)
		return err == nil
	})
	if _, _, problem := tell(s.socket, exitOK, "stop"); problem != "" {
		t.Error(problem)
	}
	if out := <-done; !strings.Contains(out, "the gateway stops") && !strings.Contains(out, "EOF") {
		t.Errorf("the upgrade: %s", out)
	}
	if !exited(of) {
		t.Error("the new process is left")
	}
}

// notifications returns what a process and those that replace it report to the service manager.
func notifications(t *testing.T) (env string, next func() string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return "NOTIFY_SOCKET=" + path, func() string {
		t.Helper()
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		b := make([]byte, 256)
		n, err := c.Read(b)
		if err != nil {
			t.Error(err)
		}
		return string(b[:n])
	}
}

// TestTheServiceManagerFollowsTheProcess upgrades, fails to, reloads in place of an upgrade, and stops: the messages are those that
// sd_notify(3) has for a service with another main process. The one that stops is that of the new process, for whose end it waits.
func TestTheServiceManagerFollowsTheProcess(t *testing.T) {
	t.Parallel()
	env, next := notifications(t)
	src := strings.Replace(upgradeConfig, "BACKEND", word(t, "one"), 1)
	s := newUpgradeSite(t, src, env)
	want := func(states ...string) {
		t.Helper()
		for _, state := range states {
			got := next()
			if rest, reloading := strings.CutPrefix(got, "RELOADING=1\nMONOTONIC_USEC="); reloading && strings.Trim(rest, "0123456789") == "" {
				got = "RELOADING=1"
			}
			if got != state {
				t.Errorf("%q was reported, want %q", got, state)
			}
		}
	}
	want("READY=1")
	if res := s.upgrade("--if-needed"); !res.Reloaded || res.PID != 0 {
		t.Errorf("nothing has changed: %+v", res)
	}
	_, _, _ = tell(s.socket, exitFailure, "upgrade", "--binary", "/nonexistent")
	want("RELOADING=1", "READY=1")
	s.write(strings.Replace(src, "loops: 2", "loops: 1", 1))
	res := s.upgrade("--if-needed")
	if res.Reloaded {
		t.Errorf("a reload cannot change loops: %+v", res)
	}
	want("RELOADING=1", fmt.Sprintf("MAINPID=%d\nREADY=1", res.PID))
	if _, _, problem := tell(s.socket, exitOK, "stop"); problem != "" {
		t.Error(problem)
	}
	if !exited(res.PID) {
		t.Error("stop has returned before the end of the process")
	}
	want("STOPPING=1")
	if err := s.first.Wait(); err != nil {
		t.Error(err)
	}
}

// TestRollbackReturnsToTheProgramOfBefore overwrites the program after the upgrade, as a package does, and returns to it, and back.
func TestRollbackReturnsToTheProgramOfBefore(t *testing.T) {
	t.Parallel()
	src := strings.Replace(upgradeConfig, "BACKEND", word(t, "one"), 1)
	s := newUpgradeSite(t, src)
	dir := openDir(t)
	next := filepath.Join(filepath.Dir(openCopy(t, dir)), "millrace")
	other := filepath.Join(t.TempDir(), "other.yaml")
	if err := os.WriteFile(other, []byte(strings.NewReplacer("LISTEN", s.addr, "SOCKET", s.socket, "loops: 2", "loops: 1").Replace(src)), 0o644); err != nil {
		t.Fatal(err)
	}
	runs := func(pid int, program, file string) {
		t.Helper()
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		args, err2 := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if errors.Join(err, err2) != nil || exe != program || !strings.Contains(string(args), file) {
			t.Errorf("%d runs %q %q, want %q with %q, %v %v", pid, exe, args, program, file, err, err2)
		}
		if err := fresh(s.addr, "one")(); err != nil {
			t.Error(err)
		}
	}
	runs(s.upgrade("--binary", next, "--config", other).PID, next, other)
	if err := os.Remove(next); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(next, []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	runs(s.upgrade("--rollback").PID, os.Args[0], s.file)
	runs(s.upgrade("--rollback").PID, next+" (deleted)", other)
}
