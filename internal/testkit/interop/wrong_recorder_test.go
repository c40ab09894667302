package interop

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// recorder is a back end that keeps every byte it receives. It answers 200 to what it takes for a request, reads as leniently as
// it can, and keeps connections open.
type recorder struct {
	listener net.Listener

	mu          sync.Mutex
	connections []*bytes.Buffer
	open        []net.Conn
	requests    int
	answer      func(conn, request int, target string) (bytes string, end bool) // nil answers 200
	scripted    int                                                             // the connection that a script has answered
}

func newRecorder(t *testing.T, network, addr string) *recorder {
	t.Helper()
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{listener: l}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go r.serve(c)
		}
	}()
	return r
}

// take returns what was received since the call before, by connection, and how many requests that was.
func (r *recorder) take() (connections [][]byte, requests int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.connections {
		if b.Len() > 0 {
			connections = append(connections, slices.Clone(b.Bytes()))
			b.Reset()
		}
	}
	requests, r.requests = r.requests, 0
	return connections, requests
}

// count returns the requests since the last take.
func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests
}

// hangUp closes all connections.
func (r *recorder) hangUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.open {
		_ = c.Close()
	}
	r.open = nil
}

func (r *recorder) serve(c net.Conn) {
	defer c.Close()
	kept := new(bytes.Buffer)
	r.mu.Lock()
	r.open = append(r.open, c)
	number, request := len(r.connections), 0
	r.connections = append(r.connections, kept)
	r.mu.Unlock()
	var pending []byte
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		r.mu.Lock()
		kept.Write(buf[:n])
		r.mu.Unlock()
		pending = append(pending, buf[:n]...)
		for {
			size, head := lenientSize(pending)
			if size == 0 {
				break
			}
			response, end := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false
			if head {
				response = strings.TrimSuffix(response, "ok")
			}
			r.mu.Lock()
			if r.requests++; r.answer != nil {
				_, target, _ := strings.Cut(string(pending[:size]), " ")
				target, _, _ = strings.Cut(target, " ")
				response, end = r.answer(number, request, target)
			}
			r.mu.Unlock()
			request++
			pending = pending[size:]
			if _, err := io.WriteString(c, response); err != nil || end {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// lenientSize returns how long the request at the beginning is, 0 while it is not complete. It looks for the fields that delimit
// content anywhere, and at the end of chunks no closer than for the empty line.
func lenientSize(b []byte) (size int, head bool) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return 0, false
	}
	size = end + 4
	head = bytes.HasPrefix(b, []byte("HEAD "))
	for line := range strings.SplitSeq(string(b[:end]), "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); http.CanonicalHeaderKey(strings.TrimSpace(name)) {
		case "Content-Length":
			n, _ := strconv.Atoi(value)
			size = end + 4 + n
		case "Transfer-Encoding":
			last := bytes.Index(b[end+2:], []byte("\r\n0\r\n"))
			if last < 0 {
				return 0, head
			}
			tail := bytes.Index(b[end+2+last+3:], []byte("\r\n\r\n"))
			if tail < 0 {
				return 0, head
			}
			return end + 2 + last + 3 + tail + 4, head
		}
	}
	if len(b) < size {
		return 0, head
	}
	return size, head
}
