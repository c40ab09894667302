package main

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/websocket"
)

// wsServe runs a server for the client of the command.
func wsServe(t *testing.T, f func(c *websocket.Conn, r *http.Request)) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{
			Subprotocols: []string{"chat"}, Conn: websocket.ConnOptions{Deflate: websocket.Deflate{Enabled: true}},
		})
		if err == nil {
			f(c, r)
			_ = c.CloseNow()
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func wsEcho(c *websocket.Conn, _ *http.Request) {
	for {
		op, p, err := c.ReadMessage(nil)
		if err != nil || c.WriteMessage(op, p) != nil {
			return
		}
	}
}

func TestWSSendsLinesAndPrintsMessages(t *testing.T) {
	s := wsServe(t, wsEcho)
	url := "ws" + strings.TrimPrefix(s.URL, "http")
	code, out, errs := runWith("one\ntwo\n\xff\n", "ws", url)
	if code != exitOK || out != "one\ntwo\n\uFFFD\n" || errs != "" {
		t.Errorf("code %d, %q, %q", code, out, errs)
	}
	code, out, errs = runWith("one\n", "ws", "--json", "-v", "--subprotocol", "chat", "-H", "X-Test: 1", url)
	if code != exitOK || out != `{"schema":1,"type":"text","text":"one"}`+"\n" {
		t.Errorf("code %d, %q", code, out)
	}
	for _, want := range []string{"> GET / HTTP/1.1\n", "> X-Test: 1\n", "< HTTP/1.1 101 Switching Protocols\n", `* connected by the TCP of kernel: subprotocol "chat", compression true`, "* closing with 1000"} {
		if !strings.Contains(errs, want) {
			t.Errorf("%q is not in\n%s", want, errs)
		}
	}
	if _, _, errs = runWith("", "ws", "-v", "--no-compression", url); !strings.Contains(errs, "compression false") || strings.Contains(errs, "Extensions") {
		t.Error(errs)
	}
}

func TestWSShowsBinaryAndTheServersClose(t *testing.T) {
	s := wsServe(t, func(c *websocket.Conn, r *http.Request) {
		_ = c.WriteMessage(websocket.Binary, []byte("\x00\x01\xff"))
		if r.URL.Path == "/error" {
			_ = c.Close(websocket.CloseInternalError, "out of order")
		} else {
			_ = c.Close(websocket.CloseGoingAway, "")
		}
	})
	waiting, end := io.Pipe() // an input without an end
	defer end.Close()
	var out, errs bytes.Buffer
	code := execute(context.Background(), []string{"ws", s.URL}, &console{in: waiting, out: &out, err: &errs})
	if code != exitOK || out.String() != "binary message of 3 bytes: 0001ff\n" {
		t.Errorf("code %d, %q, %q", code, out.String(), errs.String())
	}
	out.Reset()
	code = execute(context.Background(), []string{"ws", "--json", s.URL + "/error"}, &console{in: waiting, out: &out, err: &errs})
	if code != exitFailure || out.String() != `{"schema":1,"type":"binary","base64":"AAH/"}`+"\n" || !strings.Contains(errs.String(), `1011 (internal error): "out of order"`) {
		t.Errorf("code %d, %q, %q", code, out.String(), errs.String())
	}
}

func TestWSClosesOnInterrupt(t *testing.T) {
	ended := make(chan error, 1)
	ctx, interrupt := context.WithCancel(context.Background())
	s := wsServe(t, func(c *websocket.Conn, _ *http.Request) {
		_, _, first := c.ReadMessage(nil)
		interrupt()
		_, _, err := c.ReadMessage(nil)
		ended <- cmp.Or(first, err)
	})
	input, w := io.Pipe()
	defer w.Close()
	go io.WriteString(w, "ready\n")
	var out, errs bytes.Buffer
	if code := execute(ctx, []string{"ws", s.URL}, &console{in: input, out: &out, err: &errs}); code != exitOK {
		t.Errorf("code %d, %q", code, errs.String())
	}
	select {
	case err := <-ended:
		if want := "websocket: closed by the peer: 1001 (going away)"; err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	case <-time.After(20 * time.Second):
		t.Error("the server does not see the end")
	}
}

func TestWSPings(t *testing.T) {
	errs := &watchedOutput{want: "* pong after ", seen: make(chan bool)}
	s := wsServe(t, func(c *websocket.Conn, _ *http.Request) {
		go func() {
			select {
			case <-errs.seen:
			case <-time.After(20 * time.Second):
			}
			_ = c.Close(websocket.CloseNormal, "")
		}()
		_, _, _ = c.ReadMessage(nil) // answers pings
	})
	var out bytes.Buffer
	code := execute(context.Background(), []string{"ws", "-v", "--ping", "10ms", s.URL}, &console{in: strings.NewReader(""), out: &out, err: errs})
	if code != exitOK || !strings.Contains(errs.String(), errs.want) {
		t.Errorf("code %d, %q", code, errs)
	}
}

// watchedOutput is a buffer that says when a text has been written.
type watchedOutput struct {
	bytes.Buffer
	want string
	seen chan bool
	once sync.Once
}

func (o *watchedOutput) Write(p []byte) (int, error) {
	if strings.Contains(string(p), o.want) {
		o.once.Do(func() { close(o.seen) })
	}
	return o.Buffer.Write(p)
}

func TestWSExplainsWhatFails(t *testing.T) {
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/401":
			http.Error(w, "who are you?\nmore", http.StatusUnauthorized)
		case "/302":
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		case "/200":
			io.WriteString(w, "a page")
		default:
			http.NotFound(w, r)
		}
	}))
	defer refusing.Close()
	secure := httptest.NewUnstartedServer(refusing.Config.Handler)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that fail on purpose
	secure.StartTLS()
	defer secure.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	_ = l.Close()
	for _, tc := range []struct {
		args string
		code int
		want string
	}{
		{"", exitUsage, "0 URLs; name one"},
		{"ws://a ws://b", exitUsage, "2 URLs; name one"},
		{"a.example", exitUsage, "say ws://HOST"},
		{"ftp://a.example", exitUsage, "say ws://HOST"},
		{"--header x ws://a.example", exitUsage, `say "Name: value"`},
		{"ws://" + closed, exitFailure, "no server listens there"},
		{refusing.URL + "/401", exitFailure, `the server says: "who are you?"`},
		{refusing.URL + "/401", exitFailure, "--header 'Authorization: ...'"},
		{refusing.URL + "/302", exitFailure, "redirections are not followed: use /elsewhere"},
		{refusing.URL + "/200", exitFailure, "this path serves no WebSocket"},
		{refusing.URL + "/404", exitFailure, "check the path"},
		{secure.URL, exitFailure, "--insecure accepts any certificate"},
		{"--insecure " + secure.URL, exitFailure, "check the path"},
		{"wss" + strings.TrimPrefix(refusing.URL, "http"), exitFailure, "say ws:// instead of wss://"},
	} {
		code, out, errs := run(append([]string{"ws"}, strings.Fields(tc.args)...)...)
		if code != tc.code || out != "" || !strings.Contains(errs, tc.want) {
			t.Errorf("%s: code %d, %q, %q, want %q", tc.args, code, out, errs, tc.want)
		}
	}
}

// TestWSOverAStack uses two stacks in this process.
func TestWSOverAStack(t *testing.T) {
	server, client, err := socket.Pair(netip.MustParsePrefix("198.18.0.1/24"), netip.MustParsePrefix("198.18.0.2/24"))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	l, err := server.Listen("tcp", "198.18.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	s := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := websocket.Accept(w, r, nil); err == nil {
			wsEcho(c, r)
			_ = c.CloseNow()
		}
	})}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	var out, errs bytes.Buffer
	w := &wsClient{c: &console{in: strings.NewReader("one\ntwo\n"), out: &out, err: &errs}}
	w.stack.open = opens(client, "eth7", "198.18.0.2/24")
	cmd := w.command()
	cmd.SetArgs([]string{"--stack", "eth7", "--addr", "198.18.0.2/24", "-v", "ws://198.18.0.1/"})
	if err := cmd.ExecuteContext(context.Background()); err != nil || out.String() != "one\ntwo\n" || !strings.Contains(errs.String(), "by the TCP of eth7") {
		t.Errorf("%v, %q, %q", err, out.String(), errs.String())
	}
	if _, err := client.Dial("tcp", "198.18.0.1:80"); err == nil {
		t.Error("the stack is still open")
	}
	for args, want := range map[string]string{"--addr 198.18.0.2/24": "name its interface", "--stack eth7": "needs an address"} {
		if code, _, errs := run(append([]string{"ws", "ws://198.18.0.1/"}, strings.Fields(args)...)...); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: code %d, %s", args, code, errs)
		}
	}
}
