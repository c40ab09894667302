package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/internal/testkit/testnet"
)

// The short form of TestGatewayWithManyServices; MILLRACE_SOAK makes it the long one.
const (
	fewServices  = 1_000
	manyServices = 10_000
)

// scaleServices is how many services the test has.
func scaleServices() int {
	if os.Getenv("MILLRACE_SOAK") != "" {
		return manyServices
	}
	return fewServices
}

// scaleMetrics is where the gateway of the test serves its metrics, in its namespace.
const scaleMetrics = "127.0.0.1:9100"

// scaleConfig returns a configuration of n services with four backends each. Those of every tenth are checked, and one
// backend in four of these is down: nothing listens on its port. The first service has the given slow start.
func scaleConfig(n int, socket, driver, slowStart string) string {
	var s strings.Builder
	fmt.Fprintf(&s, "admin: {socket: %s}\nmetrics: {listen: %q}\n", socket, scaleMetrics)
	fmt.Fprintf(&s, "devices: [{name: a, driver: %s}, {name: b, driver: %[1]s}]\nsnat: 198.18.1.10\nservices:\n", driver)
	for i := range n {
		fmt.Fprintf(&s, "  - name: s%d\n    address: 198.19.%d.%d:80\n    slow_start: %s\n", i, i>>8, i&255, slowStart)
		if i%10 == 0 {
			s.WriteString("    health: {interval: 3s, fall: 1}\n")
		}
		s.WriteString("    backends:\n")
		for j := range 4 {
			port := 8080 + j>>1
			if j == 3 && i%10 == 0 {
				port = 8082
			}
			fmt.Fprintf(&s, "      - {name: b%d, address: 198.18.%d.%d:%d}\n", j, 128+i>>7, i<<1&255+j&1, port)
		}
	}
	return s.String()
}

// scaleSite is a gateway with many services between a client and a server that has all addresses of the backends.
type scaleSite struct {
	t                      *testing.T
	n                      int
	client, middle, server *testnet.Namespace
	file, socket           string
	gateway                *exec.Cmd
	out, log               buffer
	ended                  chan error
}

func newScaleSite(t *testing.T, n int) *scaleSite {
	dir := t.TempDir()
	s := &scaleSite{t: t, n: n, file: filepath.Join(dir, "gw.yaml"), socket: filepath.Join(dir, "gw.sock"), ended: make(chan error, 1)}
	s.client, s.middle, s.server = gatewaySite(t, "mr-cli-scale")
	s.must(s.client.Route("198.19.0.0/16", "198.18.0.254"))
	s.must(s.middle.Route("198.18.128.0/17", "198.18.1.2"))
	_, err := s.server.Run("ip", "route", "add", "local", "198.18.128.0/17", "dev", "lo")
	s.must(err)
	_, err = s.server.Run("ip", "route", "add", "198.18.1.10", "via", "198.18.1.254")
	s.must(err)
	s.must(s.middle.Up("lo"))
	s.must(s.server.Do(func() error {
		serve := func(c net.Conn) { _, _ = io.WriteString(c, "served") }
		return errors.Join(testnet.ServeTCP(t, ":8080", serve), testnet.ServeTCP(t, ":8081", serve))
	}))
	return s
}

func (s *scaleSite) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// write writes the configuration file.
func (s *scaleSite) write(slowStart string) {
	s.t.Helper()
	s.must(os.WriteFile(s.file, []byte(scaleConfig(s.n, s.socket, "afxdp", slowStart)), 0o600))
}

// start runs the gateway until it serves, and returns the CPU time that this took.
func (s *scaleSite) start() time.Duration {
	s.t.Helper()
	s.gateway = program("gateway", "-c", s.file)
	s.gateway.Stdout, s.gateway.Stderr = &s.out, &s.log
	s.must(s.middle.Start(s.gateway))
	s.t.Cleanup(func() { _ = s.gateway.Process.Kill() })
	go func() { s.ended <- s.gateway.Wait() }()
	sometime(s.t, "the gateway serves", func() bool { return strings.Contains(s.log.String(), "msg=gateway version=") })
	return s.cpu()
}

// cpu returns the CPU time that the gateway has had so far.
func (s *scaleSite) cpu() time.Duration {
	s.t.Helper()
	var ts unix.Timespec
	const whole = 2 // all threads, those that have ended too: see CPUCLOCK_SCHED in linux/posix-timers.h
	s.must(unix.ClockGettime(int32(^s.gateway.Process.Pid)<<3|whole, &ts))
	return time.Duration(ts.Nano())
}

// peak returns the most memory that the gateway has had so far, in MiB.
func (s *scaleSite) peak() int {
	s.t.Helper()
	mib, ok := peakOf(s.gateway.Process.Pid)
	if !ok {
		s.t.Fatal("the gateway has ended")
	}
	return mib
}

// peakOf returns the most memory that a process has had so far, in MiB; false if it has ended.
func peakOf(pid int) (mib int, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, found := strings.Cut(string(text), "VmHWM:")
	if err != nil || !found {
		return 0, false
	}
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	return kib >> 10, err == nil
}

// scrape gets a path of the metrics; it returns the size of the answer and the CPU time that the gateway took.
func (s *scaleSite) scrape(path string) (size int64, took time.Duration) {
	s.t.Helper()
	dial := func(ctx context.Context, network, addr string) (c net.Conn, err error) {
		return c, s.middle.Do(func() error {
			c, err = (&net.Dialer{}).DialContext(ctx, network, addr)
			return err
		})
	}
	c := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}, Timeout: time.Minute}
	begin := s.cpu()
	resp, err := c.Get("http://" + scaleMetrics + path)
	s.must(err)
	defer resp.Body.Close()
	size, err = io.Copy(io.Discard, resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		s.t.Fatal(resp.Status, err)
	}
	return size, s.cpu() - begin
}

// command runs millrace gateway ARGS as a process of its own; it returns what it printed, its CPU time and its peak memory in MiB.
// That is read while the process runs: its rusage begins with the peak of the test, from which it was forked.
func (s *scaleSite) command(args ...string) (out string, took time.Duration, peak int) {
	s.t.Helper()
	cmd := program(append([]string{"gateway"}, args...)...)
	var b strings.Builder
	cmd.Stdout, cmd.Stderr = &b, os.Stderr
	s.must(cmd.Start())
	peaks := make(chan int, 1)
	go func() {
		most := 0
		for {
			mib, ok := peakOf(cmd.Process.Pid)
			if !ok {
				peaks <- most
				return
			}
			most = max(most, mib)
			time.Sleep(time.Millisecond)
		}
	}()
	if err := cmd.Wait(); err != nil {
		s.t.Fatal(args, err)
	}
	return b.String(), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), <-peaks
}

// lines returns how many records the log has.
func (s *scaleSite) lines() int { return strings.Count(s.log.String(), "\n") }

// report logs a figure, and fails the test if it is beyond its limit. The race detector multiplies memory and time: with it
// figures are only logged.
func (s *scaleSite) report(what string, got, limit any, beyond bool) {
	s.t.Helper()
	s.t.Logf("%-52s %12v (limit %v)", what, got, limit)
	if beyond && !raceEnabled {
		s.t.Errorf("%s: %v, more than %v", what, got, limit)
	}
}

func (s *scaleSite) count(what string, got, limit int) {
	s.t.Helper()
	s.report(what, got, limit, got > limit)
}

// took reports a CPU time, which other processes leave as it is.
func (s *scaleSite) took(what string, got time.Duration) {
	s.t.Helper()
	const limit = 4 * time.Second
	s.report(what, got.Round(time.Millisecond), limit, got > limit)
}

// TestGatewayWithManyServices has a gateway serve 1000 services with four backends each, or 10 000 with MILLRACE_SOAK, and
// bounds what they cost: memory, scrapes, status, records of the log.
func TestGatewayWithManyServices(t *testing.T) {
	t.Parallel()
	s := newScaleSite(t, scaleServices())
	s.write("0s")
	_, took, peak := s.command("check", "-c", s.file)
	s.took("check", took)
	s.count("check, peak MiB", peak, 64+s.n/40)

	s.took("start", s.start())
	s.count("start, peak MiB", s.peak(), 128+s.n/25)
	begin, down := time.Now(), s.n/10
	sometime(t, "the checks have found all backends that are down", func() bool {
		out, _, _ := s.command("status", "--summary", "--socket", s.socket)
		return strings.Contains(out, fmt.Sprintf(" %d/%d ", 4*s.n-down, 4*s.n))
	})
	time.Sleep(1500 * time.Millisecond) // the log sums up
	s.count("start, records of the log", s.lines(), min(down, 51*int(time.Since(begin)/time.Second+2))+20)
	s.serves()
	s.scrapes()
	s.states()
	s.reloads()
	s.unreads()
	s.exits()
}

// serves asks services at both ends and in the middle of the configuration.
func (s *scaleSite) serves() {
	s.t.Helper()
	for _, i := range []int{0, 1, s.n / 2, s.n - 1} {
		sometime(s.t, fmt.Sprintf("service %d answers", i), func() bool {
			var answer []byte
			err := s.client.Do(func() error {
				c, err := net.DialTimeout("tcp", fmt.Sprintf("198.19.%d.%d:80", i>>8, i&255), time.Second)
				if err != nil {
					return err
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(time.Second))
				answer, err = io.ReadAll(c)
				return err
			})
			return err == nil && string(answer) == "served"
		})
	}
}

func (s *scaleSite) scrapes() {
	s.t.Helper()
	size, best := s.scrape("/metrics")
	for range 5 {
		begin, from := time.Now(), s.cpu()
		time.Sleep(300 * time.Millisecond) // an earlier answer is not shared any more
		otherwise := float64(s.cpu()-from) / float64(time.Since(begin))
		begin = time.Now()
		_, took := s.scrape("/metrics")
		best = min(best, took-time.Duration(otherwise*float64(time.Since(begin)))) // checks and loops go on meanwhile
	}
	s.count("scrape, KiB", int(size>>10), 2048)
	const limit = 300 * time.Millisecond
	s.report("scrape, the cheapest of 6", best.Round(time.Millisecond), limit, best > limit)
	s.count("scrapes, peak MiB", s.peak(), 160+s.n/20)
	before := s.peak()
	size, took := s.scrape("/metrics?all=1")
	s.took("scrape of everything", took)
	s.count("scrape of everything, KiB", int(size>>10), 6*s.n)
	if size < int64(2000*s.n) {
		s.t.Errorf("a scrape of everything has %d bytes", size)
	}
	s.count("scrape of everything, MiB more", s.peak()-before, 16+s.n/200)
}

func (s *scaleSite) states() {
	s.t.Helper()
	for _, args := range [][]string{{"status"}, {"status", "s7"}, {"status", "--limit", "10"}, {"status", "--summary"}, {"status", "--json"}} {
		out, took, peak := s.command(append(args, "--socket", s.socket)...)
		name, size := strings.Join(args, " "), 64
		if len(args) == 1 {
			size = 5
			s.count(name+", lines", strings.Count(out, "\n"), 50)
		}
		switch args[len(args)-1] {
		case "--summary":
			size = s.n / 8
		case "--json":
			size = 32 + s.n*4/5 // 2 MB of 2500 services
			s.must(json.Unmarshal([]byte(out), new(admin.Status)))
		}
		s.took(name, took)
		s.count(name+", KiB", len(out)>>10, size)
		s.count(name+", its peak MiB", peak, 64+s.n/40)
	}
	s.count("status, the gateway's peak MiB", s.peak(), 160+s.n/20)
}

func (s *scaleSite) reloads() {
	s.t.Helper()
	before := s.lines()
	for _, slow := range []string{"1s", "1s", "2s"} { // all services change, none, all
		s.write(slow)
		begin := s.cpu()
		out, _, _ := s.command("reload", "--socket", s.socket)
		s.took("reload", s.cpu()-begin)
		s.count("reload, KiB that it prints", len(out)>>10, 4)
	}
	s.count("reloads, peak MiB", s.peak(), 160+s.n/20)
	s.count("reloads, records of the log", s.lines()-before, 20)
	s.serves()
}

// unreads has 400 clients ask for metrics and read nothing.
func (s *scaleSite) unreads() {
	s.t.Helper()
	for _, c := range []struct {
		path  string
		limit int
	}{{"/metrics", 32}, {"/metrics?all=1", 64 + s.n/200}} {
		before := s.peak()
		conns := s.unread(400, c.path)
		time.Sleep(time.Duration(s.n) * 2 * time.Millisecond) // the long form renders everything for seconds
		s.count("400 unread scrapes of "+c.path+", MiB more", s.peak()-before, c.limit)
		for _, c := range conns {
			c.Close()
		}
	}
}

// unread opens n connections that ask for a path and read nothing.
func (s *scaleSite) unread(n int, path string) (conns []net.Conn) {
	s.t.Helper()
	s.must(s.middle.Do(func() error {
		for range n {
			c, err := net.DialTimeout("tcp", scaleMetrics, 10*time.Second)
			if err != nil {
				return err
			}
			s.t.Cleanup(func() { c.Close() })
			if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
				return err
			}
			conns = append(conns, c)
		}
		return nil
	}))
	return conns
}

func (s *scaleSite) exits() {
	s.t.Helper()
	before, begin := s.lines(), s.cpu()
	s.must(s.gateway.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-s.ended:
		s.must(err)
	case <-time.After(2 * time.Minute):
		s.t.Fatal("SIGTERM does not end the gateway")
	}
	s.took("exit", s.gateway.ProcessState.UserTime()+s.gateway.ProcessState.SystemTime()-begin)
	s.count("exit, records of the log", s.lines()-before, 10)
	s.count("exit, lines of counters", strings.Count(s.out.String(), "\n"), 60)
}
