package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/transport"
)

// failingLoop is a loop whose connections to backends fail at the first writes.
type failingLoop struct {
	transport.Loop
	fails *atomic.Int32
}

type failingConn struct {
	transport.Conn
	fails *atomic.Int32
}

func (l failingLoop) Dial(a netip.AddrPort, h transport.Handler) (transport.Conn, error) {
	c, err := l.Loop.Dial(a, h)
	if err != nil {
		return nil, err
	}
	return failingConn{c, l.fails}, nil
}

func (c failingConn) Write(p []byte) (int, error) {
	if c.fails.Add(-1) >= 0 {
		return 0, unix.ECONNRESET
	}
	return c.Conn.Write(p)
}

// retryWithContent has the first write to a backend fail, when content is held.
func retryWithContent(t *testing.T, method string, chunked bool) {
	var fails atomic.Int32
	fails.Store(1)
	wrapLoop = func(l transport.Loop) transport.Loop { return failingLoop{l, &fails} }
	defer func() { wrapLoop = nil }()
	r := newRig(t, echoBackend(t, false), func(r *rig) { r.rule.Attempts = 2 })
	body := strings.Repeat("x", 20000)
	request := fmt.Sprintf("%s / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", method, len(body), body)
	if chunked {
		request = fmt.Sprintf("%s / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", method, len(body), body)
	}
	c, err := net.Dial("tcp", r.addr)
	must(t, err)
	defer c.Close()
	_, err = io.WriteString(c, request) // in one piece: all is held before there is a connection to the backend
	must(t, err)
	c.SetReadDeadline(time.Now().Add(time.Minute))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	must(t, err)
	got, _ := io.ReadAll(resp.Body)
	t.Logf("%d, %d bytes echoed, %v", resp.StatusCode, len(got), resp.Header)
	if method == "PUT" && (resp.StatusCode != 200 || len(got) != 20000) {
		t.Error("the content was lost on retry")
	}
}

func TestFailingWritesOfHeldContentCrashNothing(t *testing.T) { retryWithContent(t, "POST", false) }
func TestRetriesHaveTheirContent(t *testing.T)                { retryWithContent(t, "PUT", false) }
func TestRetriesHaveTheirChunkedContent(t *testing.T)         { retryWithContent(t, "PUT", true) }

// A queue: what follows a response on the wire goes to the next client.
func TestQueuedRequestsGetNoForeignResponse(t *testing.T) {
	backend := script(t, func(c net.Conn) {
		br := bufio.NewReader(c)
		for i := 0; ; i++ {
			if _, err := http.ReadRequest(br); err != nil {
				return
			}
			time.Sleep(200 * time.Millisecond)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst"+"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
		}
	})
	r := newRig(t, backend, func(r *rig) {
		p, err := pool.New(pool.Options{Name: "p"}, []pool.BackendOptions{{Name: "b", Address: netip.MustParseAddrPort(backend), Limits: pool.Limits{Connections: 1}}}, 1)
		must(t, err)
		r.pool.Pool = p
	})
	got := make(chan string, 2)
	for range 2 {
		go func() {
			resp, err := http.Get("http://" + r.addr)
			if err != nil {
				got <- err.Error()
				return
			}
			b, _ := io.ReadAll(resp.Body)
			got <- fmt.Sprint(resp.StatusCode, string(b))
		}()
		time.Sleep(50 * time.Millisecond)
	}
	for range 2 {
		s := <-got
		t.Log(s)
		if strings.Contains(s, "poison") {
			t.Error("a response that nobody asked for went to another client")
		}
	}
}

// Bytes of a request that was answered early go to the backend of the next one.
func TestContentStaysOutOfTheNextRequest(t *testing.T) {
	type rec struct {
		total int
		tail  string
	}
	out := make(chan rec, 4)
	var n atomic.Int32
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	rc, _ := ln.(*net.TCPListener).SyscallConn()
	rc.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 32<<10) })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				if n.Add(1)%2 == 1 { // does not read the content
					c.Read(make([]byte, 64))
					time.Sleep(500 * time.Millisecond)
					io.WriteString(c, "HTTP/1.1 401 No\r\nContent-Length: 2\r\n\r\nno")
					time.Sleep(500 * time.Millisecond)
					return
				}
				req, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				b, _ := io.ReadAll(req.Body)
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				out <- rec{len(b), fmt.Sprintf("A=%d B=%d", bytes.Count(b, []byte("A")), bytes.Count(b, []byte("B")))}
			}()
		}
	}()
	var in atomic.Uint64
	r := newRig(t, ln.Addr().String(), nil)
	r.do(func() { r.worker.OnRecord(func(e *Record) { in.Store(e.BytesIn) }) })
	try := func(size int) {
		c, err := net.Dial("tcp", r.addr)
		must(t, err)
		defer c.Close()
		c.SetDeadline(time.Now().Add(5 * time.Second))
		go func() {
			fmt.Fprintf(c, "PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", size)
			c.Write(bytes.Repeat([]byte("A"), size))
			fmt.Fprintf(c, "PUT /b HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", 400000)
			c.Write(bytes.Repeat([]byte("B"), 400000))
		}()
		br := bufio.NewReader(c)
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Log(err)
			return
		}
		io.ReadAll(resp.Body)
		t.Log("first:", resp.StatusCode, resp.Header, "taken", in.Load())
		if resp.Close {
			return
		}
		select {
		case got := <-out:
			t.Log(got)
			if strings.Contains(got.tail, "A=0") == false {
				t.Error("content of the first request is in the second one")
			}
		case <-time.After(3 * time.Second):
			t.Log("no second request")
		}
	}
	try(64 << 20)
	n.Store(0)
	try(int(in.Load()) + 100<<10)
}

// A backend that accepts a WebSocket wrongly.
func TestWebSocketsWithAWrongAcceptAreNone(t *testing.T) {
	var n atomic.Int32
	r := newRig(t, script(t, func(c net.Conn) {
		b := make([]byte, 4096)
		k, _ := c.Read(b)
		t.Logf("attempt %d: %q", n.Add(1), b[:k])
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nX-Evil: 1\r\nX-More: 2\r\nX-Set: 3\r\n"+
			"Sec-WebSocket-Accept: AAAA\r\n\r\n")
		io.Copy(io.Discard, c)
	}), func(r *rig) { r.rule.Attempts = 2 })
	c, err := net.Dial("tcp", r.addr)
	must(t, err)
	c.SetDeadline(time.Now().Add(3 * time.Second))
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nX-Mine: 9\r\n\r\n")
	b := make([]byte, 4096)
	k, err := c.Read(b)
	t.Logf("%q %v", b[:k], err)
	c.Close()
	r.settled()
}
