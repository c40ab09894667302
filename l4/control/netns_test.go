package control_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

func TestRealProgramsAreServed(t *testing.T) {
	for _, driver := range []string{"afxdp", "afpacket"} {
		t.Run(driver, func(t *testing.T) {
			testnet.Program(t, "curl")
			s := newSite(t, "mr-gw", driver)
			for _, host := range []string{"198.18.1.1", "[2001:db8:1::1]"} {
				s.curl(host)
				s.udp(host)
				s.direct(host)
			}
			if driver == "afxdp" {
				s.manyCurls()
				s.manyConnections()
				s.bulk(soaked(1<<28, 1<<30))
			}
			sum := s.stop()
			if n := sum.Gateway.Services[0].Dropped["no_backend"]; n != 0 {
				t.Errorf("%d packets found no backend", n)
			}
		})
	}
}

// curl is served by both backends, which see the gateway.
func (s *site) curl(host string) {
	s.t.Helper()
	seen := map[string]int{}
	for range 20 {
		out := s.served("http://"+host+"/", 5*time.Second)
		name, from, _ := strings.Cut(out, " ")
		seen[name]++
		if !strings.HasPrefix(from, "198.18.2.1:") && !strings.HasPrefix(from, "[2001:db8:2::1]:") {
			s.t.Errorf("%s: the backend sees %s", host, from)
		}
	}
	if seen["b1"]+seen["b2"] != 20 || seen["b1"] == 0 || seen["b2"] == 0 {
		s.t.Errorf("%s: served by %v", host, seen)
	}
}

// udp asks from 20 sockets, five times each: one backend for each.
func (s *site) udp(host string) {
	s.t.Helper()
	s.udpAt(host, 53)
}

func (s *site) udpAt(host string, port int) {
	s.t.Helper()
	seen := map[string]int{}
	for range 20 {
		c := s.dial("udp", fmt.Sprintf("%s:%d", host, port))
		first := ""
		for range 5 {
			c.SetDeadline(time.Now().Add(time.Minute))
			fmt.Fprint(c, "hello")
			b := make([]byte, 100)
			n, err := c.Read(b)
			s.must(err)
			name, echo, _ := strings.Cut(string(b[:n]), " ")
			if echo != "hello" || first != "" && name != first {
				s.t.Fatalf("%s: got %q after %s", host, b[:n], first)
			}
			first = name
		}
		seen[first]++
	}
	if len(seen) != 2 {
		s.t.Errorf("%s: served by %v", host, seen)
	}
}

// direct is a service whose backends see their clients.
func (s *site) direct(host string) {
	s.t.Helper()
	out := s.served("http://"+host+":81/", 5*time.Second)
	if !strings.Contains(out, "b1 198.18.0.2:") && !strings.Contains(out, "b1 [2001:db8::2]:") {
		s.t.Errorf("%s: the backend sees %s", host, out)
	}
}

func (s *site) manyCurls() {
	s.t.Helper()
	// One curl makes at most 300 connections at once.
	const four = `for i in 1 2 3 4; do
		curl -sS -Z --parallel-max 250 --parallel-immediate -m 60 -o /dev/null -w '%{http_code}\n' 'http://198.18.1.1/[1-250]' &
	done; wait`
	out, err := s.client.Run("sh", "-c", four)
	if err != nil {
		s.t.Error(err)
	}
	if n := strings.Count(out, "200\n"); n != 1000 {
		s.t.Errorf("%d of 1000 curl transfers succeeded", n)
	}
}

// manyConnections has 1000 connections open at once, asks on all, and asks again.
func (s *site) manyConnections() {
	s.t.Helper()
	var conns []net.Conn
	s.must(s.client.Do(func() error {
		for i := range 1000 {
			c, err := net.DialTimeout("tcp", []string{"198.18.1.1:80", "[2001:db8:1::1]:80"}[i%2], 20*time.Second)
			if err != nil {
				return fmt.Errorf("connection %d: %w", i, err)
			}
			conns = append(conns, c)
		}
		return nil
	}))
	for range 2 {
		errs := make(chan error, len(conns))
		for _, c := range conns {
			go func() { _, err := ask(c); errs <- err }()
		}
		for range conns {
			s.must(<-errs)
		}
	}
	for _, c := range conns {
		c.Close()
	}
}

// bulk downloads n bytes and compares their hash.
func (s *site) bulk(n int64) {
	s.t.Helper()
	want, got := sha256.New(), sha256.New()
	done := make(chan struct{})
	go func() { io.CopyN(want, sequence(), n); close(done) }()
	c := s.dial("tcp", "198.18.1.1:80")
	fmt.Fprintf(c, "GET /stream?n=%d HTTP/1.0\r\n\r\n", n)
	start := time.Now()
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, 1<<20), nil)
	s.must(err)
	m, err := io.Copy(got, resp.Body)
	s.must(err)
	<-done
	if m != n || !bytes.Equal(want.Sum(nil), got.Sum(nil)) {
		s.t.Errorf("%d of %d bytes, hash %x, want %x", m, n, got.Sum(nil), want.Sum(nil))
	}
	s.t.Logf("%d bytes in %v", n, time.Since(start).Round(time.Millisecond))
}

func TestABackendThatDiesTakesOnlyItsOwn(t *testing.T) {
	s := newSite(t, "mr-gwdie", "afxdp")
	conns := s.hold(100)
	s.servers[0].Close()
	for end := time.Now().Add(time.Minute); s.avoided(10) != nil; {
		if time.Now().After(end) {
			t.Fatalf("new connections still fail: %v", s.avoided(1))
		}
	}
	for c, was := range conns {
		name, err := ask(c)
		if was == "b2" && (err != nil || name != "b2") {
			t.Fatalf("a connection of the living backend: %q, %v", name, err)
		}
		if was == "b1" && err == nil {
			t.Fatalf("a connection of the dead backend was served by %s", name)
		}
	}
	s.stop()
}

// avoided returns nil when n new connections in a row are served by b2.
func (s *site) avoided(n int) error {
	for range n {
		var c net.Conn
		err := s.client.Do(func() (err error) {
			c, err = net.DialTimeout("tcp", "198.18.1.1:80", time.Second)
			return err
		})
		if err != nil {
			return err
		}
		name, err := ask(c)
		c.Close()
		if err != nil || name != "b2" {
			return fmt.Errorf("served by %q: %w", name, err)
		}
	}
	return nil
}

// hold opens n connections and returns who serves each.
func (s *site) hold(n int) map[net.Conn]string {
	s.t.Helper()
	conns, seen := map[net.Conn]string{}, map[string]int{}
	for range n {
		c := s.dial("tcp", "198.18.1.1:80")
		name, err := ask(c)
		s.must(err)
		conns[c] = name
		seen[name]++
	}
	if seen["b1"] == 0 || seen["b2"] == 0 {
		s.t.Fatalf("served by %v", seen)
	}
	return conns
}

func TestAReloadLosesNoConnection(t *testing.T) {
	s := newSite(t, "mr-gwhup", "afxdp")
	conns := s.hold(100)
	for i := range 5 {
		s.configure("afxdp", []string{", weight: 0", ""}[i%2])
		s.must(s.cmd.Process.Signal(syscall.SIGHUP))
		for end := time.Now().Add(20 * time.Second); strings.Count(s.log.String(), "msg=reload error=<nil>") <= i; {
			if time.Now().After(end) {
				t.Fatalf("reload %d was not taken", i)
			}
			time.Sleep(5 * time.Millisecond)
		}
		for c, was := range conns {
			if name, err := ask(c); err != nil || name != was {
				t.Fatalf("reload %d: served by %q after %s: %v", i, name, was, err)
			}
		}
	}
	for range 100 { // the last reload has given b1 weight 0
		if name, err := ask(s.dial("tcp", "198.18.1.1:80")); err != nil || name != "b2" {
			t.Fatalf("a new connection is served by %q: %v", name, err)
		}
	}
	s.stop()
}

func TestAKilledGatewayLeavesTheInterfacesToTheKernel(t *testing.T) {
	s := newSite(t, "mr-gwkill", "afxdp")
	s.must(s.cmd.Process.Kill())
	s.cmd.Wait()
	s.must(s.gate.Do(func() error {
		l, err := net.Listen("tcp", ":9999")
		if err == nil {
			s.t.Cleanup(func() { l.Close() })
		}
		return err
	}))
	s.dial("tcp", "198.18.0.1:9999").Close()
	s.dial("tcp", "[2001:db8::1]:9999").Close()
	for range 100 { // the kernel takes the program off when the last reference is gone, soon after
		out, err := s.gate.Run("ip", "link", "show", "front")
		s.must(err)
		if !strings.Contains(out, "xdp") {
			s.start("http://198.18.1.1/")
			s.stop()
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Error("the XDP program stayed")
}
