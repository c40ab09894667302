package websocket

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// serve runs a server that accepts with o and hands each connection to f in the handler.
func serve(t testing.TB, o *AcceptOptions, f func(*Conn)) *httptest.Server {
	s := httptest.NewServer(handler(t, o, f))
	t.Cleanup(s.Close)
	return s
}

func handler(t testing.TB, o *AcceptOptions, f func(*Conn)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := Accept(w, r, o)
		if err == nil {
			f(c)
			_ = c.CloseNow()
		}
	})
}

func wsURL(s *httptest.Server) string { return "ws" + strings.TrimPrefix(s.URL, "http") }

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func TestDialAndAccept(t *testing.T) {
	plain := serve(t, &AcceptOptions{Subprotocols: []string{"chat", "echo"}, Conn: ConnOptions{Deflate: Deflate{Enabled: true}}}, func(c *Conn) { _ = echoAll(c) })
	secure := httptest.NewTLSServer(plain.Config.Handler)
	t.Cleanup(secure.Close)
	for _, url := range []string{wsURL(plain), plain.URL, "wss" + strings.TrimPrefix(secure.URL, "https")} {
		c, err := Dial(within(t), url+"/path?query", &DialOptions{
			Subprotocols: []string{"unknown", "echo", "chat"},
			Conn:         ConnOptions{Deflate: Deflate{Enabled: true, ServerWindowBits: 10}},
			TLS:          secure.Client().Transport.(*http.Transport).TLSClientConfig,
		})
		if err != nil {
			t.Fatal(err)
		}
		if c.Subprotocol() != "echo" || c.Deflate().ServerWindowBits != 10 || c.Role() != Client {
			t.Errorf("%s: subprotocol %q, %+v", url, c.Subprotocol(), c.Deflate())
		}
		if err := c.WriteMessage(Text, []byte("hello")); err != nil {
			t.Error(err)
		}
		if _, p, err := c.ReadMessage(nil); string(p) != "hello" || err != nil {
			t.Errorf("%s: %q, %v", url, p, err)
		}
		if err := c.Close(CloseNormal, ""); err != nil {
			t.Error(err)
		}
	}
}

// sendRequest sends a request to a server and returns the response.
func sendRequest(t *testing.T, s *httptest.Server, request string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(conn, strings.ReplaceAll(request, "\n", "\r\n")+"\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

const goodRequest = `GET /chat HTTP/1.1
Host: server.example.com
Upgrade: websocket
Connection: Upgrade
Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==
Sec-WebSocket-Version: 13
`

func TestRequestsOfRFC6455Section4_2(t *testing.T) {
	s := serve(t, &AcceptOptions{OriginPatterns: []string{"*.friend.example"}}, func(*Conn) {})
	for _, c := range []struct {
		name, old, new string
		status         int
		header, value  string // of the response
	}{
		{"good", "", "", 101, "Sec-Websocket-Accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="},
		{"tokens in lists, other case", "Connection: Upgrade", "Connection: keep-alive, UPGRADE", 101, "Upgrade", "websocket"},
		{"POST", "GET", "POST", 405, "Allow", "GET"},
		{"HTTP/1.0", "HTTP/1.1", "HTTP/1.0", 505, "", ""},
		{"no Upgrade", "Upgrade: websocket\n", "", 426, "Upgrade", "websocket"},
		{"other Upgrade", "Upgrade: websocket\n", "Upgrade: h2c\n", 426, "Upgrade", "websocket"},
		{"no Connection", "Connection: Upgrade\n", "", 426, "", ""},
		{"other version", "Version: 13", "Version: 8", 426, "Sec-Websocket-Version", "13"},
		{"no version", "Sec-WebSocket-Version: 13\n", "", 426, "Sec-Websocket-Version", "13"},
		{"no key", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n", "", 400, "", ""},
		{"two keys", "Sec-WebSocket-Key", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\nSec-WebSocket-Key", 400, "", ""},
		{"short key", "dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25j", 400, "", ""},
		{"key not base64", "dGhlIHNhbXBsZSBub25jZQ==", "!!!lIHNhbXBsZSBub25jZQ==", 400, "", ""},
		{"malformed extensions", "Upgrade: websocket", "Upgrade: websocket\nSec-WebSocket-Extensions: a;;", 400, "", ""},
		{"own origin", "Upgrade: websocket", "Upgrade: websocket\nOrigin: https://SERVER.example.com", 101, "", ""},
		{"foreign origin", "Upgrade: websocket", "Upgrade: websocket\nOrigin: https://evil.example", 403, "", ""},
		{"origin in the port", "Upgrade: websocket", "Upgrade: websocket\nOrigin: http://server.example.com:8080", 403, "", ""},
		{"null origin", "Upgrade: websocket", "Upgrade: websocket\nOrigin: null", 403, "", ""},
		{"malformed origin", "Upgrade: websocket", "Upgrade: websocket\nOrigin: :", 403, "", ""},
		{"origin of a pattern", "Upgrade: websocket", "Upgrade: websocket\nOrigin: https://a.Friend.example", 101, "", ""},
		{"suffix of a pattern", "Upgrade: websocket", "Upgrade: websocket\nOrigin: https://a.friend.example.evil.example", 403, "", ""},
	} {
		resp := sendRequest(t, s, strings.Replace(goodRequest, c.old, c.new, 1))
		if resp.StatusCode != c.status || c.header != "" && resp.Header.Get(c.header) != c.value {
			t.Errorf("%s: %s, %s: %q", c.name, resp.Status, c.header, resp.Header.Get(c.header))
		}
	}
	wrong := serve(t, &AcceptOptions{OriginPatterns: []string{"["}}, func(*Conn) {})
	resp := sendRequest(t, wrong, strings.Replace(goodRequest, "Upgrade: websocket", "Upgrade: websocket\nOrigin: https://a.example", 1))
	if resp.StatusCode != 500 {
		t.Errorf("wrong pattern: %s", resp.Status)
	}
	any := serve(t, &AcceptOptions{AnyOrigin: true}, func(*Conn) {})
	resp = sendRequest(t, any, strings.Replace(goodRequest, "Upgrade: websocket", "Upgrade: websocket\nOrigin: https://a.example", 1))
	if resp.StatusCode != 101 {
		t.Errorf("any origin: %s", resp.Status)
	}
}

// A client may send frames together with its request.
func TestFramesBehindTheRequestAreRead(t *testing.T) {
	got := make(chan string, 1)
	s := serve(t, nil, func(c *Conn) {
		_, p, err := c.ReadMessage(nil)
		got <- fmt.Sprintf("%s %v", p, err)
	})
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, strings.ReplaceAll(goodRequest, "\n", "\r\n")+"\r\n"+string(frame(0x81, "early", 1)))
	select {
	case g := <-got:
		if g != "early <nil>" {
			t.Error(g)
		}
	case <-time.After(patience):
		t.Error("the message does not arrive")
	}
}

func TestResponsesOfRFC6455Section4_1(t *testing.T) {
	const good = "HTTP/1.1 101 Switching Protocols\nUpgrade: websocket\nConnection: Upgrade\nSec-WebSocket-Accept: KEY\n\n"
	for _, c := range []struct{ name, old, new, want string }{
		{"good", "", "", ""},
		{"a frame behind it", "\n\n", "\n\n\x81\x02hi", ""},
		{"not found", "101 Switching Protocols", "404 Not Found", "404"},
		{"redirection", "101 Switching Protocols", "302 Found", "302"},
		{"200", "101 Switching Protocols", "200 OK", "200"},
		{"no Upgrade", "Upgrade: websocket\n", "", "no Connection: Upgrade"},
		{"no Connection", "Connection: Upgrade\n", "", "no Connection: Upgrade"},
		{"wrong accept", "KEY", "AAAA", "Accept"},
		{"no accept", "Sec-WebSocket-Accept: KEY\n", "", "Accept"},
		{"extension not offered", "\n\n", "\nSec-WebSocket-Extensions: permessage-deflate\n\n", "extension"},
		{"malformed extensions", "\n\n", "\nSec-WebSocket-Extensions: ;\n\n", "malformed"},
		{"subprotocol not offered", "\n\n", "\nSec-WebSocket-Protocol: chat\n\n", "subprotocol"},
		{"endless header", "\n\n", "\nX: " + strings.Repeat("x", 100_000) + "\n\n", "reading the response"},
		{"not HTTP", "HTTP/1.1", "SSH-2.0", "reading the response"},
	} {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			r, err := http.ReadRequest(bufio.NewReader(server))
			if err != nil {
				return
			}
			resp := strings.Replace(strings.ReplaceAll(strings.Replace(good, c.old, c.new, 1), "\n", "\r\n"), "KEY", AcceptKey(r.Header.Get("Sec-WebSocket-Key")), 1)
			_, _ = io.WriteString(server, resp)
			_, _ = io.Copy(io.Discard, server)
		}()
		conn, err := Dial(within(t), "ws://server.example", &DialOptions{
			DialContext: func(context.Context, string, string) (net.Conn, error) { return client, nil },
		})
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v", c.name, err)
		case c.name == "a frame behind it":
			if _, p, err := conn.ReadMessage(nil); string(p) != "hi" || err != nil {
				t.Errorf("%s: %q, %v", c.name, p, err)
			}
		}
		if conn != nil {
			_ = conn.CloseNow()
		}
		_ = client.Close()
	}
}

func TestRequestHasWhatTheOptionsSay(t *testing.T) {
	var got *http.Request
	traced := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		http.Error(w, "go away", http.StatusTeapot)
	}))
	defer s.Close()
	_, err := Dial(within(t), strings.Replace(wsURL(s), "://", "://user:secret@", 1)+"/a?b", &DialOptions{
		Header:       http.Header{"X-Test": {"1"}, "Host": {"other.example"}},
		Subprotocols: []string{"a", "b"},
		Conn:         ConnOptions{Deflate: Deflate{Enabled: true}},
		Trace: func(r *http.Request, resp *http.Response) {
			if r.Header.Get("Sec-WebSocket-Key") == "" || resp.StatusCode != http.StatusTeapot {
				t.Errorf("trace of %v, %v", r.Header, resp.Status)
			}
			traced++
		},
	})
	if traced != 1 {
		t.Errorf("%d calls of Trace", traced)
	}
	var refusal *HandshakeError
	if !errors.As(err, &refusal) || refusal.Status != http.StatusTeapot || strings.TrimSpace(string(refusal.Body)) != "go away" {
		t.Fatalf("%v", err)
	}
	user, password, _ := got.BasicAuth()
	if got.Host != "other.example" || got.Header.Get("X-Test") != "1" || user != "user" || password != "secret" ||
		got.Header.Get("Sec-WebSocket-Protocol") != "a, b" || got.Header.Get("Sec-WebSocket-Extensions") != "permessage-deflate; client_max_window_bits" {
		t.Errorf("%s %+v", got.Host, got.Header)
	}
}

func TestDialRefusesWrongArguments(t *testing.T) {
	for url, want := range map[string]string{
		"ftp://a": "scheme", "ws://": "no host", "ws://:80": "no host", "ws://a#b": "fragment", "ws://a#": "fragment", ":": "missing protocol scheme", "a": "scheme",
	} {
		if _, err := Dial(within(t), url, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, o := range []*DialOptions{
		{Subprotocols: []string{"a b"}},
		{Conn: ConnOptions{Deflate: Deflate{Enabled: true, ServerWindowBits: 7}}},
		{Conn: ConnOptions{Deflate: Deflate{Enabled: true, Level: 10}}},
	} {
		if _, err := Dial(within(t), "ws://server.example", o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	client, server := net.Pipe() // the server is silent
	defer server.Close()
	go io.Copy(io.Discard, server)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := Dial(ctx, "ws://server.example", &DialOptions{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return client, nil },
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if _, err := client.Write([]byte("x")); err == nil {
		t.Error("the connection is open")
	}
}
