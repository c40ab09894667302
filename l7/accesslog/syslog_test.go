package accesslog

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// toServer returns a log in use that sends to a server.
func toServer(t *testing.T, network, address string) *Log {
	t.Helper()
	l, err := Text("${path}")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Buffer: 1 << 20, Layout: l, Log: slog.New(slog.DiscardHandler), Syslog: Syslog{network, address, "local3", "edge"}}
	target, err := Open(&o)
	if err != nil {
		t.Fatal(err)
	}
	return Use(o, target, nil)
}

var message = regexp.MustCompile(`^<(\d+)>1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z \S+ edge \d+ access - (.*)$`)

// wantMessage checks a message of RFC 5424.
func wantMessage(t *testing.T, got string, severity int, text string) {
	t.Helper()
	m := message.FindStringSubmatch(got)
	if m == nil || m[1] != strconv.Itoa(19*8+severity) || m[2] != text {
		t.Errorf("the message is %q, want severity %d and %q", got, severity, text)
	}
}

// receive returns a socket that takes datagrams.
func receive(t *testing.T, network, address string) net.PacketConn {
	t.Helper()
	c, err := net.ListenPacket(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func next(t *testing.T, c net.PacketConn) string {
	t.Helper()
	b := make([]byte, 4096)
	if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	n, _, err := c.ReadFrom(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

func TestMessagesAsDatagrams(t *testing.T) {
	for _, network := range []string{"udp", "unix"} {
		t.Run(network, func(t *testing.T) {
			bind, at := "udp", "127.0.0.1:0"
			if network == "unix" {
				bind, at = "unixgram", filepath.Join(t.TempDir(), "log")
			}
			c := receive(t, bind, at)
			l := toServer(t, network, c.LocalAddr().String())
			var lines Lines
			lines.Write(l, 0, &Record{Path: "/a", Status: 200})
			lines.Write(l, 0, &Record{Path: "/b", Status: 503})
			lines.Write(l, 0, &Record{Path: strings.Repeat("x", 1<<18), Status: 200}) // no datagram is as long
			lines.Write(l, 0, &Record{Path: "/c", Status: 404})
			wantMessage(t, next(t, c), severityInfo, "/a")
			wantMessage(t, next(t, c), severityError, "/b")
			wantMessage(t, next(t, c), severityInfo, "/c")
			if l.Close(); l.Dropped() != 1 {
				t.Errorf("%d dropped", l.Dropped())
			}
		})
	}
}

// Datagrams to a port that is closed are counted as far as the host refuses them.
func TestRefusedDatagramsAreCounted(t *testing.T) {
	c := receive(t, "udp", "127.0.0.1:0")
	at := c.LocalAddr().String()
	c.Close()
	to := newConn(Syslog{Network: "udp", Address: at})
	for i := 0; to.lost.Load() == 0; i++ {
		if n, err := to.Write([]byte("a\nb\n")); n != 4 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		if time.Sleep(time.Millisecond); i > 10000 {
			t.Fatal("no refusal is counted")
		}
	}
}

// A server of a unix socket that is away for a while gets what was written meanwhile.
func TestMessagesWaitForTheServer(t *testing.T) {
	at := filepath.Join(t.TempDir(), "log")
	l := toServer(t, "unix", at)
	var lines Lines
	lines.Write(l, 0, &Record{Path: "/a", Status: 200})
	for !failing(l) {
		time.Sleep(time.Millisecond)
	}
	c := receive(t, "unixgram", at)
	wantMessage(t, next(t, c), severityInfo, "/a")
	if l.Close(); l.Dropped() != 0 {
		t.Errorf("%d dropped", l.Dropped())
	}
}

func failing(l *Log) bool { return l.out.queue.Waiting() > 0 && l.out.queue.Failing() }

// frames reads messages with their length in front.
func frames(c io.Reader, to chan<- string) {
	defer close(to)
	r := bufio.NewReader(c)
	for {
		length, err := r.ReadString(' ')
		if err != nil {
			return
		}
		n, err := strconv.Atoi(strings.TrimSuffix(length, " "))
		if err != nil {
			to <- fmt.Sprintf("length %q", length)
			return
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(r, b); err != nil {
			return
		}
		to <- string(b)
	}
}

// The server gets whole messages in their order and none twice, although it closes connections in the middle.
func TestMessagesOverTCPComeOnce(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	l := toServer(t, "tcp", server.Addr().String())
	var lines Lines
	const all = 3000
	go func() {
		for i := range all {
			lines.Write(l, 0, &Record{Path: fmt.Sprintf("/%d", i), Status: 200})
			if i%10 == 0 {
				time.Sleep(100 * time.Microsecond)
			}
		}
		l.Close()
		server.Close()
	}()
	last, connections := -1, 0
	for range 1000 { // connections at most
		c, err := server.Accept()
		if err != nil {
			break
		}
		got := make(chan string)
		go frames(c, got)
		n := 0
		connections++
		for m := range got {
			text := message.FindStringSubmatch(m)
			if text == nil {
				t.Fatalf("message %q", m)
			}
			i, err := strconv.Atoi(text[2][1:])
			if err != nil || i <= last {
				t.Fatalf("message %q after number %d", m, last)
			}
			last = i
			if n++; n == 500 {
				// Nothing more is read: what is under way is lost, and the sender learns of it.
				_ = c.(*net.TCPConn).SetLinger(0)
				c.Close()
			}
		}
		c.Close()
	}
	if connections < 2 || last != all-1 {
		t.Errorf("%d connections, the last message is %d of %d; %d are counted", connections, last, all, l.Dropped())
	}
}

// Bytes that the peer has not acknowledged are lost with the connection, and those that it has are not counted.
func TestUnacknowledgedFramesAreCounted(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	to := newConn(Syslog{Network: "tcp", Address: server.Addr().String()})
	if _, err := to.Write([]byte("first\n")); err != nil {
		t.Fatal(err)
	}
	peer, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 7)
	if _, err := io.ReadFull(peer, b); err != nil || string(b) != "5 first" {
		t.Fatalf("%q, %v", b, err)
	}
	// A window that is full: what is written stays with the sender.
	for !to.alive(to.net) || len(to.frames) > 0 {
		time.Sleep(time.Millisecond)
	}
	raw, err := to.net.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("x", 1<<16) + "\n"
	written := make(chan error, 1)
	go func() { _, err := to.Write([]byte(strings.Repeat(large, 200))); written <- err }()
	queued := func() (n int) {
		_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
		return n
	}
	for queued() < 1<<18 {
		time.Sleep(time.Millisecond)
	}
	_ = peer.(*net.TCPConn).SetLinger(0)
	peer.Close()
	if err := <-written; err == nil {
		t.Fatal("the write succeeded")
	}
	if n := to.lost.Load(); n < 3 || n > 200 {
		t.Errorf("%d are counted", n)
	}
}

// Close ends a write that a server does not take.
func TestCloseEndsAWrite(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	to := newConn(Syslog{Network: "tcp", Address: server.Addr().String()})
	written := make(chan error, 1)
	go func() {
		_, err := to.Write([]byte(strings.Repeat(strings.Repeat("x", 1<<16)+"\n", 400)))
		written <- err
	}()
	peer, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	if <-written == nil {
		t.Error("the write succeeded")
	}
	if _, err := to.Write([]byte("a\n")); err == nil {
		t.Error("a closed log takes lines")
	}
}
