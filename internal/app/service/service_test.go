package service

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// start runs a service over the kernel's loopback, on one port for both protocols, and closes it when the test
// ends.
func start(t *testing.T, kind Kind, cfg Config) (s *Server, addr string) {
	t.Helper()
	s, err := New(kind, cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = l.Addr().String()
	serving := 1
	results := make(chan error, 2)
	go func() { results <- s.Serve(l) }()
	if kind.Datagrams() {
		pc, err := net.ListenPacket("udp", addr)
		if err != nil {
			t.Fatal(err)
		}
		serving++
		go func() { results <- s.ServePacket(pc) }()
	}
	t.Cleanup(func() {
		s.Close()
		for range serving {
			select {
			case err := <-results:
				if !errors.Is(err, ErrClosed) {
					t.Errorf("%s ended with %v", kind, err)
				}
			case <-time.After(5 * time.Second):
				t.Fatalf("%s does not end", kind)
			}
		}
		if n := s.Stats().Active; n != 0 {
			t.Errorf("%s: %d connections are left", kind, n)
		}
	})
	return s, addr
}

func dial(t *testing.T, network, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	return c
}

func TestEchoSendsAllOfItBack(t *testing.T) {
	s, addr := start(t, Echo, Config{})
	c := dial(t, "tcp", addr)
	want := bytes.Repeat(block, 40)
	go func() {
		_, _ = c.Write(want)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v; want %d", len(got), err, len(want))
	}
	if st := s.Stats(); st.BytesIn != uint64(len(want)) || st.BytesOut != st.BytesIn || st.Accepted != 1 {
		t.Errorf("%+v", st)
	}
}

func TestDatagramsAreAnswered(t *testing.T) {
	for _, tc := range []struct {
		kind        Kind
		send        string
		least, most int // bytes of the answer; -1 is none
	}{
		{Echo, "hello", 5, 5},
		{Echo, "", 0, 0},
		{Discard, "hello", -1, -1},
		{Chargen, "x", 1, 3},
		{Chargen, "", 0, 0},
		{Chargen, strings.Repeat("x", 1000), 1, 512},
		{Daytime, "", 20, 60},
	} {
		s, addr := start(t, tc.kind, Config{})
		c := dial(t, "udp", addr)
		if _, err := c.Write([]byte(tc.send)); err != nil {
			t.Fatal(err)
		}
		wait := 2 * time.Second
		if tc.least < 0 {
			wait = 50 * time.Millisecond
		}
		_ = c.SetReadDeadline(time.Now().Add(wait))
		buf := make([]byte, 2000)
		n, err := c.Read(buf)
		if (err == nil) != (tc.least >= 0) || err == nil && (n < tc.least || n > tc.most) {
			t.Errorf("%s, %q: %d bytes, %v", tc.kind, tc.send, n, err)
		}
		if tc.kind == Echo && string(buf[:n]) != tc.send {
			t.Errorf("echo of %q is %q", tc.send, buf[:n])
		}
		for end := time.Now().Add(time.Second); err == nil && s.Stats().BytesOut != uint64(n) && time.Now().Before(end); {
			time.Sleep(time.Millisecond) // it is counted after it is sent
		}
		if st := s.Stats(); st.Datagrams != 1 || st.BytesIn != uint64(len(tc.send)) || err == nil && st.BytesOut != uint64(n) {
			t.Errorf("%s: %+v", tc.kind, st)
		}
	}
}

func TestChargenAmplifiesBoundedly(t *testing.T) {
	longest := map[int]int{}
	for range 5000 {
		for _, n := range []int{0, 1, 10, 1000} {
			longest[n] = max(longest[n], len(chargenDatagram(nil, make([]byte, n))))
		}
	}
	for n, want := range map[int]int{0: 0, 1: 3, 10: 30, 1000: 512} {
		if got := longest[n]; got > want || got < want/2 {
			t.Errorf("%d bytes are answered with up to %d, want %d", n, got, want)
		}
	}
}

// silent is a packet conn that keeps what is sent.
type silent struct {
	net.PacketConn
	sent []net.Addr
}

func (s *silent) WriteTo(b []byte, to net.Addr) (int, error) {
	s.sent = append(s.sent, to)
	return len(b), nil
}

func TestServicesDoNotAnswerServices(t *testing.T) {
	s, err := New(Echo, Config{})
	if err != nil {
		t.Fatal(err)
	}
	pc := &silent{}
	take := s.reply(pc)
	for _, port := range []int{7, 19, 1023, 1024, 40000} {
		take([]byte("x"), &net.UDPAddr{IP: net.IPv4(198, 18, 0, 1), Port: port})
	}
	if len(pc.sent) != 2 || s.Stats().Unanswered != 3 {
		t.Errorf("answered %v, left %d", pc.sent, s.Stats().Unanswered)
	}
}

func TestChargenIsThePatternOfTheRFC(t *testing.T) {
	_, addr := start(t, Chargen, Config{})
	c := dial(t, "tcp", addr)
	_, _ = c.Write([]byte("ignored"))
	buf := make([]byte, 3*len(chargenPattern))
	if _, err := io.ReadFull(c, buf); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(buf), "\r\n")
	for i, line := range lines[:200] {
		for j := range line {
			if want := byte(' ' + (i+j)%95); len(line) != 72 || line[j] != want {
				t.Fatalf("line %d is %q: column %d is not %q", i, line, j, want)
			}
		}
	}
}

func TestDaytimeSaysTheTimeAndEnds(t *testing.T) {
	_, addr := start(t, Daytime, Config{})
	before := time.Now().Truncate(time.Second)
	got, err := io.ReadAll(dial(t, "tcp", addr))
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse(time.RFC1123+"\r\n", string(got))
	if err != nil || at.Before(before) || at.After(time.Now()) {
		t.Errorf("%q: %v", got, err)
	}
}

func TestDiscardReadsToTheEnd(t *testing.T) {
	s, addr := start(t, Discard, Config{})
	c := dial(t, "tcp", addr)
	if _, err := c.Write(block); err != nil {
		t.Fatal(err)
	}
	_ = c.(*net.TCPConn).CloseWrite()
	if b, err := io.ReadAll(c); err != nil || len(b) != 0 {
		t.Errorf("%q, %v", b, err)
	}
	if n := s.Stats().BytesIn; n != uint64(len(block)) {
		t.Errorf("%d bytes", n)
	}
}

func TestConnectionsAboveTheLimitAreClosedAtOnce(t *testing.T) {
	for _, kind := range []Kind{Echo, HTTP} {
		s, addr := start(t, kind, Config{Limits: Limits{Connections: 2}})
		one, two := dial(t, "tcp", addr), dial(t, "tcp", addr)
		for s.Stats().Active != 2 {
			time.Sleep(time.Millisecond)
		}
		if _, err := dial(t, "tcp", addr).Read(make([]byte, 1)); err == nil {
			t.Errorf("%s: the third connection was served", kind)
		}
		if st := s.Stats(); st.Refused != 1 || st.Accepted != 2 {
			t.Errorf("%s: %+v", kind, st)
		}
		one.Close()
		for s.Stats().Active != 1 {
			time.Sleep(time.Millisecond)
		}
		c := dial(t, "tcp", addr)
		request := "GET / HTTP/1.0\r\n\r\n"
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 4)); n == 0 {
			t.Errorf("%s: a connection after one that ended is not served: %v", kind, err)
		}
		two.Close()
	}
}

func TestIdleConnectionsAreClosedAndBusyOnesAreNot(t *testing.T) {
	const idle = 200 * time.Millisecond
	_, addr := start(t, Echo, Config{Limits: Limits{Idle: idle}})
	busy, quiet := dial(t, "tcp", addr), dial(t, "tcp", addr)
	done := make(chan error, 1)
	go func() {
		_, err := quiet.Read(make([]byte, 1))
		done <- err
	}()
	buf := make([]byte, 1)
	for end := time.Now().Add(3 * idle); time.Now().Before(end); time.Sleep(idle / 10) {
		if _, err := busy.Write(buf); err != nil {
			t.Fatal(err)
		}
		if _, err := busy.Read(buf); err != nil {
			t.Fatalf("a busy connection was closed: %v", err)
		}
	}
	select {
	case err := <-done:
		if err == nil {
			t.Error("an idle connection was answered")
		}
	default:
		t.Error("an idle connection stays")
	}
}

func TestShutdownWaitsForConnectionsAndThenDoesNot(t *testing.T) {
	for _, kind := range []Kind{Echo, HTTP} {
		s, addr := start(t, kind, Config{})
		c := dial(t, "tcp", addr)
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n") // HTTP: the request goes on
		for s.Stats().Active != 1 {
			time.Sleep(time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: a connection was open, and Shutdown gave %v", kind, err)
		}
		cancel()
		if _, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
			t.Errorf("%s still listens", kind)
		}
		if err := s.Shutdown(context.Background()); err != nil {
			t.Errorf("%s: nothing is left, and Shutdown gave %v", kind, err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Serve(l); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: Serve after Shutdown gave %v", kind, err)
		}
	}
}

func TestShutdownLetsAConnectionFinish(t *testing.T) {
	s, addr := start(t, Echo, Config{})
	c := dial(t, "tcp", addr)
	buf := make([]byte, 5)
	_, _ = io.WriteString(c, "hello")
	if _, err := io.ReadFull(c, buf); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(context.Background()) }()
	for {
		l, err := net.Listen("tcp", addr) // free once the service has closed its own
		if err == nil {
			l.Close()
			break
		}
		time.Sleep(time.Millisecond)
	}
	_, _ = io.WriteString(c, "again")
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "again" {
		t.Errorf("%q, %v", buf, err)
	}
	c.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestUnknownServicesAreRefused(t *testing.T) {
	if _, err := New("ehco", Config{}); err == nil || !strings.Contains(err.Error(), "echo") {
		t.Errorf("%v", err)
	}
	s, err := New(HTTP, Config{})
	if err != nil {
		t.Fatal(err)
	}
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ServePacket(pc); err == nil {
		t.Error("http took datagrams")
	}
}
