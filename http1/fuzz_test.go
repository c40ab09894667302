package http1

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/cut"
)

// FuzzServer feeds input at different cuts: a machine reports the same, whatever the cuts. What it accepts, net/http
// accepts too, and reads the same of it.
func FuzzServer(f *testing.F) {
	for _, test := range accepted {
		f.Add([]byte(test.in), uint64(1))
	}
	for _, test := range refused {
		f.Add([]byte(test.in), uint64(2))
	}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		want := trace(server(), string(in), true, cut.Whole)
		if got := trace(server(), string(in), true, cut.Random(seed)); got != want {
			t.Fatalf("whole:\n%s\ncut at random:\n%s", want, got)
		}
		if got := trace(server(), string(in), true, cut.Bytewise); len(in) < 4096 && got != want {
			t.Fatalf("whole:\n%s\nbyte by byte:\n%s", want, got)
		}
		compareRequest(t, in)
	})
}

// compareRequest compares the first request of in with what net/http reads.
func compareRequest(t *testing.T, in []byte) {
	m := server()
	ev, n, err := m.Input(in, true)
	if err != nil || ev.Kind != Headers {
		return
	}
	msg := m.Message()
	r, theirs := http.ReadRequest(bufio.NewReader(bytes.NewReader(bytes.TrimPrefix(in, []byte("\r\n")))))
	if theirs != nil {
		if isStricter(msg, theirs) {
			return
		}
		t.Fatalf("net/http refuses what is accepted here: %v\n%q", theirs, in)
	}
	if r.Method != msg.Method || r.Host != msg.Authority || (msg.Body == Chunked) != (len(r.TransferEncoding) > 0) {
		t.Fatalf("net/http reads %s %s %v of\n%q\nand not %s", r.Method, r.Host, r.TransferEncoding, in, describe(msg))
	}
	if msg.Body == Length && r.ContentLength != msg.ContentLength {
		t.Fatalf("net/http reads a length of %d of\n%q", r.ContentLength, in)
	}
	ours, ourErr := readContent(m, in[n:])
	body, err := io.ReadAll(r.Body)
	if ourErr == nil && (err != nil || !bytes.Equal(body, ours)) {
		t.Fatalf("net/http reads %q, %v of\n%q\nand not %q", body, err, in, ours)
	}
}

// isStricter reports whether net/http refuses a request by rules of its own, about the URI.
func isStricter(m *Message, err error) bool {
	text := err.Error()
	return strings.Contains(text, "parse") || strings.Contains(text, "invalid URI") || strings.Contains(text, "malformed Host") ||
		strings.Contains(text, "invalid method") || m.Method == "PRI"
}

// readContent returns the content of the message in progress.
func readContent(m *Machine, in []byte) (content []byte, err error) {
	for {
		ev, n, err := m.Input(in, true)
		in = in[n:]
		switch {
		case err != nil:
			return nil, err
		case ev.Kind == Data:
			content = append(content, ev.Payload...)
		case ev.Kind == End:
			return content, nil
		case ev.Kind == NeedInput:
			return nil, io.ErrUnexpectedEOF
		}
	}
}

// FuzzClient does the same with responses.
func FuzzClient(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nxy"), uint64(1), uint8(0))
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\na: b\r\n\r\n"), uint64(1), uint8(1))
	f.Add([]byte("HTTP/1.1 200 OK\r\n\r\nrest"), uint64(1), uint8(0))
	f.Add([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nrest"), uint64(1), uint8(3))
	f.Fuzz(func(t *testing.T, in []byte, seed uint64, kind uint8) {
		method, protocol := []string{"GET", "HEAD", "CONNECT", "GET"}[kind%4], ""
		if kind%4 == 3 {
			protocol = "websocket"
		}
		client := asked(method, protocol)
		want := trace(client(), string(in), true, cut.Whole)
		if got := trace(client(), string(in), true, cut.Random(seed)); got != want {
			t.Fatalf("whole:\n%s\ncut at random:\n%s", want, got)
		}
		compareResponse(t, client(), in, method)
	})
}

// compareResponse compares the first response of in with what net/http reads.
func compareResponse(t *testing.T, m *Machine, in []byte, method string) {
	ev, n, err := m.Input(in, true)
	if err != nil || ev.Kind != Headers || m.Message().Status < 200 || m.Tunnel() {
		return
	}
	msg := m.Message()
	r, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(in)), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("net/http refuses what is accepted here: %v\n%q", err, in)
	}
	if r.StatusCode != msg.Status {
		t.Fatalf("net/http reads status %d of\n%q", r.StatusCode, in)
	}
	ours, ourErr := readContent(m, in[n:])
	body, err := io.ReadAll(r.Body)
	if ourErr == nil && (err != nil || !bytes.Equal(body, ours)) {
		t.Fatalf("net/http reads %q, %v of\n%q\nand not %q", body, err, in, ours)
	}
}
