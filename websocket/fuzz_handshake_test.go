package websocket

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// hijackable is a response writer whose connection is a stream that keeps what is written.
type hijackable struct {
	header http.Header
	status int
	sent   bytes.Buffer
	behind string // was read after the request
}

func (h *hijackable) Header() http.Header         { return h.header }
func (h *hijackable) Write(p []byte) (int, error) { return len(p), nil }
func (h *hijackable) WriteHeader(status int)      { h.status = status }

func (h *hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	r := bufio.NewReader(strings.NewReader(h.behind))
	_, _ = r.Peek(len(h.behind))
	return recorded{h}, bufio.NewReadWriter(r, bufio.NewWriter(&h.sent)), nil
}

// recorded is the connection of a hijackable.
type recorded struct{ h *hijackable }

func (recorded) Read([]byte) (int, error)         { return 0, io.EOF }
func (c recorded) Write(p []byte) (int, error)    { return c.h.sent.Write(p) }
func (recorded) Close() error                     { return nil }
func (recorded) LocalAddr() net.Addr              { return addr{} }
func (recorded) RemoteAddr() net.Addr             { return addr{} }
func (recorded) SetDeadline(time.Time) error      { return nil }
func (recorded) SetReadDeadline(time.Time) error  { return nil }
func (recorded) SetWriteDeadline(time.Time) error { return nil }

const fuzzRequest = "GET /chat HTTP/1.1\r\nHost: a.example\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n" +
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nOrigin: https://a.example\r\n" +
	"Sec-WebSocket-Protocol: x, chat\r\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n"

// FuzzAccept gives requests to Accept. It accepts only those that have what RFC 6455 4.2.1 demands, answers all,
// and the client's checks approve of what it answers.
func FuzzAccept(f *testing.F) {
	f.Add([]byte(fuzzRequest))
	f.Add([]byte(strings.Replace(fuzzRequest, "HTTP/1.1", "HTTP/1.0", 1)))
	f.Add([]byte(strings.Replace(fuzzRequest, "https://a.example", "null", 1)))
	f.Add([]byte(fuzzRequest + "\x81\x80abcd"))
	f.Fuzz(func(t *testing.T, b []byte) {
		br := bufio.NewReader(bytes.NewReader(b))
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		behind, _ := io.ReadAll(br)
		w := &hijackable{header: http.Header{}, behind: string(behind)}
		c, err := Accept(w, r, &AcceptOptions{Subprotocols: []string{"chat"}, Conn: ConnOptions{Deflate: Deflate{Enabled: true}}})
		if err != nil {
			if w.status < 400 || w.sent.Len() > 0 {
				t.Fatalf("%v, but status %d and %q", err, w.status, w.sent.String())
			}
			return
		}
		key := r.Header.Get("Sec-WebSocket-Key")
		if r.Method != http.MethodGet || !r.ProtoAtLeast(1, 1) || len(r.Header["Sec-Websocket-Key"]) != 1 || r.Header.Get("Sec-WebSocket-Version") != "13" {
			t.Fatalf("accepted: %+v", r)
		}
		resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(w.sent.Bytes())), r)
		if err != nil {
			t.Fatalf("%v: %q", err, w.sent.String())
		}
		if err := checkUpgraded(resp, key); err != nil {
			t.Fatalf("%v: %q", err, w.sent.String())
		}
		if c.Subprotocol() != "" && c.Subprotocol() != "chat" || resp.Header.Get("Sec-WebSocket-Protocol") != c.Subprotocol() {
			t.Fatalf("subprotocol %q", c.Subprotocol())
		}
	})
}

// answering is a server's end that answers a request by a text in which @ is the key that the request demands.
type answering struct {
	scripted
	text    []byte
	request bytes.Buffer
}

func (a *answering) Write(p []byte) (int, error) {
	a.request.Write(p)
	if r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(a.request.Bytes()))); err == nil && a.in == nil {
		a.in = bytes.Replace(a.text, []byte("@"), []byte(AcceptKey(r.Header.Get("Sec-WebSocket-Key"))), 1)
	}
	return len(p), nil
}

func (a *answering) LocalAddr() net.Addr              { return addr{} }
func (a *answering) RemoteAddr() net.Addr             { return addr{} }
func (a *answering) SetDeadline(time.Time) error      { return nil }
func (a *answering) SetReadDeadline(time.Time) error  { return nil }
func (a *answering) SetWriteDeadline(time.Time) error { return nil }

const fuzzResponse = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: @\r\n" +
	"Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"

// FuzzDial answers a client with whatever, cut at random. Where it is cut changes nothing, and what the client
// accepts is a response that RFC 6455 4.1 accepts.
func FuzzDial(f *testing.F) {
	f.Add([]byte(fuzzResponse), uint64(1))
	f.Add([]byte(fuzzResponse+"\x81\x05hello"), uint64(2))
	f.Add([]byte(strings.Replace(fuzzResponse, "@", "@x", 1)), uint64(3))
	f.Add([]byte("HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno!"), uint64(4))
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		dial := func(cut func() int) (*Conn, error) {
			o := &DialOptions{Subprotocols: []string{"chat"}, Conn: ConnOptions{Deflate: Deflate{Enabled: true}}}
			o.DialContext = func(context.Context, string, string) (net.Conn, error) {
				return &answering{scripted: scripted{cut: cut}, text: text}, nil
			}
			return Dial(context.Background(), "ws://a.example/chat", o)
		}
		a, err := dial(whole)
		b, errCut := dial(randomly(seed))
		if (err == nil) != (errCut == nil) {
			t.Fatalf("%v, in pieces %v", err, errCut)
		}
		if err != nil {
			var refusal *HandshakeError
			if errors.As(err, &refusal) && len(refusal.Body) > 1024 {
				t.Fatalf("%d bytes of the body", len(refusal.Body))
			}
			return
		}
		if !bytes.Contains(text, []byte("@")) || !bytes.Contains(text, []byte(" 101")) {
			t.Fatalf("accepted: %q", text)
		}
		opA, p, errA := a.ReadMessage(nil)
		opB, q, errB := b.ReadMessage(nil)
		if (errA == nil) != (errB == nil) || errA == nil && (opA != opB || !bytes.Equal(p, q)) {
			t.Fatalf("%v %q %v, in pieces %v %q %v", opA, p, errA, opB, q, errB)
		}
	})
}

// FuzzUTF8 compares the checker, fed in pieces, with package utf8.
func FuzzUTF8(f *testing.F) {
	f.Add([]byte("gr\xc3\xbc\xc3\x9fe \xe2\x82\xac \xf0\x9f\x98\x80"), uint64(1))
	f.Add([]byte("\xed\xa0\x80"), uint64(2))
	f.Fuzz(func(t *testing.T, p []byte, seed uint64) {
		cut := randomly(seed)
		var u utf8Checker
		valid := true
		for rest := p; len(rest) > 0 && valid; {
			n := min(len(rest), max(1, cut()>>6))
			valid = u.write(rest[:n])
			rest = rest[n:]
		}
		if valid = valid && u.complete(); valid != utf8.Valid(p) {
			t.Fatalf("%q: %v", p, valid)
		}
	})
}
