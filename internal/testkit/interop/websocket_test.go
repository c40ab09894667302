package interop

//lint:file-ignore SA1019 x/net's HTTP/2 and gobwas/ws are peers here

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	coder "github.com/coder/websocket"
	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"golang.org/x/net/http2"

	"github.com/millrace/millrace/internal/testkit/wscases"
	"github.com/millrace/millrace/websocket"
)

const wsPatience = 20 * time.Second

// wsSizes are around the borders of length encodings and buffers.
var wsSizes = []int{0, 1, 125, 126, 127, 4090, 4096, 65535, 65536, 300_000}

// wsText returns text with some redundancy, some of it not ASCII.
func wsText(n int) []byte {
	return bytes.ToValidUTF8(bytes.Repeat([]byte("Grüße an alle, "), n/17+1)[:n], []byte("x"))
}

// wsEcho returns messages until the connection ends, and the error that ended it.
func wsEcho(c *websocket.Conn) error {
	defer c.CloseNow()
	var buf []byte
	for {
		op, p, err := c.ReadMessage(buf)
		if err != nil {
			return err
		}
		if err := c.WriteMessage(op, p); err != nil {
			return err
		}
		buf = p
	}
}

// wsServer is our server, which echoes; ended has how each connection ended.
func wsServer(t testing.TB, deflate websocket.Deflate) (s *httptest.Server, ended chan error) {
	ended = make(chan error, 100)
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"echo"}, Conn: websocket.ConnOptions{Deflate: deflate}})
		if err != nil {
			ended <- err
			return
		}
		ended <- wsEcho(c)
	}))
	t.Cleanup(s.Close)
	return s, ended
}

// wantClosed checks that a connection ended by a Close frame.
func wantClosed(t *testing.T, ended chan error, code websocket.CloseCode, reason string) {
	t.Helper()
	select {
	case err := <-ended:
		var closed *websocket.CloseError
		if !errors.As(err, &closed) || closed.Code != code || closed.Reason != reason {
			t.Errorf("ended by %v, want %v %q", err, code, reason)
		}
	case <-time.After(wsPatience):
		t.Error("the connection does not end")
	}
}

// wsDrive sends messages by our client to a server that echoes, and closes.
func wsDrive(t *testing.T, ctx context.Context, url string, o *websocket.DialOptions, ping bool) {
	t.Helper()
	c, err := websocket.Dial(ctx, url, o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	for _, size := range wsSizes {
		text := wsText(size)
		sent := make(chan error, 1)
		go func() { sent <- c.WriteMessage(websocket.Text, text) }()
		op, p, err := c.ReadMessage(nil)
		if err != nil || op != websocket.Text || !bytes.Equal(p, text) {
			t.Fatalf("%d bytes: %v of %d bytes, %v", size, op, len(p), err)
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
	}
	if ping {
		answered := make(chan error, 1)
		go func() {
			answered <- c.Ping(ctx)
			_ = c.WriteMessage(websocket.Text, []byte("after the ping"))
		}()
		if _, p, err := c.ReadMessage(nil); err != nil || string(p) != "after the ping" {
			t.Errorf("%q, %v", p, err)
		}
		if err := <-answered; err != nil {
			t.Error("ping:", err)
		}
	}
	if err := c.Close(websocket.CloseNormal, "bye"); err != nil {
		t.Error("close:", err)
	}
}

// wsDeflates are the modes of compression, by name.
var wsDeflates = map[string]websocket.Deflate{
	"plain":       {},
	"takeover":    {Enabled: true},
	"no takeover": {Enabled: true, ServerNoTakeover: true, ClientNoTakeover: true},
}

var coderModes = map[string]coder.CompressionMode{
	"plain": coder.CompressionDisabled, "takeover": coder.CompressionContextTakeover, "no takeover": coder.CompressionNoContextTakeover,
}

func TestWebSocketWithCoder(t *testing.T) {
	for name, deflate := range wsDeflates {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), wsPatience)
			defer cancel()
			ours, ended := wsServer(t, deflate)
			c, _, err := coder.Dial(ctx, ours.URL, &coder.DialOptions{CompressionMode: coderModes[name], Subprotocols: []string{"echo"}})
			if err != nil {
				t.Fatal(err)
			}
			c.SetReadLimit(-1)
			if c.Subprotocol() != "echo" {
				t.Errorf("subprotocol %q", c.Subprotocol())
			}
			for _, size := range wsSizes {
				text := wsText(size)
				go c.Write(ctx, coder.MessageText, text)
				kind, p, err := c.Read(ctx)
				if err != nil || kind != coder.MessageText || !bytes.Equal(p, text) {
					t.Fatalf("%d bytes: %v of %d bytes, %v", size, kind, len(p), err)
				}
			}
			if err := c.Close(coder.StatusNormalClosure, "bye"); err != nil {
				t.Error(err)
			}
			wantClosed(t, ended, websocket.CloseNormal, "bye")

			theirs := coderServer(t, coderModes[name])
			wsDrive(t, ctx, theirs.URL, &websocket.DialOptions{Conn: websocket.ConnOptions{Deflate: deflate}}, true)
		})
	}
}

// coderServer is coder's server, which echoes.
func coderServer(t testing.TB, mode coder.CompressionMode) *httptest.Server {
	s := httptest.NewServer(coderEcho(mode))
	t.Cleanup(s.Close)
	return s
}

func coderEcho(mode coder.CompressionMode) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := coder.Accept(w, r, &coder.AcceptOptions{CompressionMode: mode, CompressionThreshold: 1})
		if err != nil {
			return
		}
		defer c.CloseNow()
		c.SetReadLimit(-1)
		for {
			kind, p, err := c.Read(r.Context())
			if err != nil || c.Write(r.Context(), kind, p) != nil {
				return
			}
		}
	}
}

func TestWebSocketWithGobwas(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), wsPatience)
	defer cancel()
	ours, ended := wsServer(t, websocket.Deflate{Enabled: true})
	c, _, _, err := ws.Dial(ctx, "ws"+strings.TrimPrefix(ours.URL, "http"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(wsPatience))
	driveGobwas(t, c)
	wantClosed(t, ended, websocket.CloseGoingAway, "bye")

	theirs := httptest.NewServer(http.HandlerFunc(gobwasEcho))
	defer theirs.Close()
	wsDrive(t, ctx, theirs.URL, nil, true)
}

// driveGobwas is a client of gobwas after the handshake: it sends texts that come back, and closes.
func driveGobwas(t *testing.T, c net.Conn) {
	t.Helper()
	for _, size := range wsSizes {
		text := wsText(size)
		go wsutil.WriteClientText(c, text)
		p, err := wsutil.ReadServerText(c)
		if err != nil || !bytes.Equal(p, text) {
			t.Fatalf("%d bytes: %d bytes, %v", size, len(p), err)
		}
	}
	if err := ws.WriteFrame(c, ws.MaskFrameInPlace(ws.NewCloseFrame(ws.NewCloseFrameBody(ws.StatusGoingAway, "bye")))); err != nil {
		t.Fatal(err)
	}
	if f, err := ws.ReadFrame(c); err != nil || f.Header.OpCode != ws.OpClose {
		t.Errorf("%+v, %v", f, err)
	}
}

// gobwasEcho is a server of gobwas.
func gobwasEcho(w http.ResponseWriter, r *http.Request) {
	c, _, _, err := ws.UpgradeHTTP(r, w)
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(wsPatience))
	for {
		p, op, err := wsutil.ReadClientData(c) // answers control frames
		if err != nil || wsutil.WriteServerMessage(c, op, p) != nil {
			return
		}
	}
}

// nodeScript runs a script with Debian's package node-ws and returns what it prints.
func nodeScript(t *testing.T, script string, args ...string) *exec.Cmd {
	t.Helper()
	missing := t.Skipf
	if os.Getenv("MILLRACE_MUST_NETNS") != "" {
		missing = t.Fatalf
	}
	if _, err := exec.LookPath("node"); err != nil {
		missing("no node: %v (make deps)", err)
	}
	if _, err := os.Stat("/usr/share/nodejs/ws/package.json"); err != nil {
		missing("no node-ws: %v (make deps)", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*wsPatience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "node", append([]string{"-e", "const WebSocket = require('/usr/share/nodejs/ws');\n" + script}, args...)...)
	return cmd
}

// The options of ws for permessage-deflate, by name.
var nodeDeflates = map[string]string{
	"plain":       "false",
	"takeover":    "{threshold: 0}",
	"no takeover": "{threshold: 0, serverNoContextTakeover: true, clientNoContextTakeover: true}",
	"windows":     "{threshold: 0, serverMaxWindowBits: 10, clientMaxWindowBits: 9}",
}

func TestWebSocketWithNode(t *testing.T) {
	const server = `
const wss = new WebSocket.Server({port: 0, host: '127.0.0.1', perMessageDeflate: DEFLATE}, () => console.log(wss.address().port));
wss.on('connection', ws => {
	ws.on('message', (data, binary) => ws.send(data, {binary}));
	ws.on('close', (code, reason) => { console.log('close', code, reason.toString()); process.exit(0); });
});
`
	for name, option := range nodeDeflates {
		t.Run(name, func(t *testing.T) {
			ours, ended := wsServer(t, websocket.Deflate{Enabled: name != "plain"})
			out, err := nodeScript(t, strings.ReplaceAll(nodeClient, "DEFLATE", option), "ws"+strings.TrimPrefix(ours.URL, "http")).CombinedOutput()
			if err != nil || !strings.Contains(string(out), "| node\nclose 1001") || (name != "plain") != strings.Contains(string(out), "permessage-deflate") {
				t.Errorf("client: %v\n%s", err, out)
			}
			wantClosed(t, ended, websocket.CloseGoingAway, "bye")

			cmd := nodeScript(t, strings.ReplaceAll(server, "DEFLATE", option))
			pipe, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			port := make([]byte, 16)
			n, err := pipe.Read(port)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), wsPatience)
			defer cancel()
			wsDrive(t, ctx, "ws://127.0.0.1:"+strings.TrimSpace(string(port[:n])), &websocket.DialOptions{
				Conn: websocket.ConnOptions{Deflate: websocket.Deflate{Enabled: name != "plain"}},
			}, true)
			rest := make([]byte, 64)
			n, _ = pipe.Read(rest)
			if got := strings.TrimSpace(string(rest[:n])); got != "close 1000 bye" {
				t.Errorf("server: %q", got)
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The suite is fair only if another implementation passes it, but for what that leaves out by design.
func TestWebSocketSuiteAgainstCoder(t *testing.T) {
	server := coderServer(t, coder.CompressionContextTakeover)
	ran, failed, other := 0, 0, 0
	for _, c := range wscases.Cases() {
		if c.Section == "6455 8.1" || strings.HasPrefix(c.Name, "length: ") || strings.Contains(c.Name, "KiB") {
			continue // it does not check text, nor that lengths have their shortest form; and it is slow
		}
		ran++
		switch err := wscases.RunServer(server.Listener.Addr().String(), c, 2*time.Second); {
		case errors.Is(err, wscases.ErrNotAgreed):
			other++
		case err != nil:
			failed++
			t.Logf("RFC %s: %s: %v", c.Section, c.Name, err)
		}
		if failed > 30 {
			t.Fatal("too many cases fail")
		}
	}
	t.Logf("coder/websocket: %d cases, %d with parameters that it does not have, %d fail", ran, other, failed)
}

// FuzzWebSocketHeader compares the machine with gobwas's parser and checks of single headers.
func FuzzWebSocketHeader(f *testing.F) {
	f.Add([]byte("\x81\x85\x37\xfa\x21\x3d"), false)
	f.Add([]byte("\x89\x00"), true)
	f.Add([]byte("\x82\x7e\x01\x00"), true)
	f.Add([]byte("\x82\xff\x00\x00\x00\x00\x00\x01\x00\x00aaaa"), false)
	f.Fuzz(func(t *testing.T, in []byte, client bool) {
		role, state := websocket.Server, ws.StateServerSide
		if client {
			role, state = websocket.Client, ws.StateClientSide
		}
		r := bytes.NewReader(in)
		h, err := ws.ReadHeader(r)
		m := websocket.NewMachine(role, websocket.MachineOptions{Limits: websocket.Limits{Message: -1}})
		header := bytes.Clone(in[:len(in)-r.Len()])
		ev, _, ours := m.Next(header)
		switch {
		case err != nil && !errors.Is(err, ws.ErrHeaderLengthMSB):
			return // cut
		case err != nil:
			if ours == nil {
				t.Fatalf("% x: accepted, gobwas: %v", header, err)
			}
			return
		}
		theirs := ws.CheckHeader(h, state)
		if minimal := ws.HeaderSize(h) == len(header); !minimal {
			if ours == nil {
				t.Fatalf("% x: accepted, but the length is not in its shortest form", header)
			}
			return
		}
		if ours != nil && theirs == nil && (h.OpCode == ws.OpClose && h.Length == 1 || h.Length >= 1<<62-1) {
			return // seen before the payload; without a limit frames are below 2^62 bytes
		}
		if (ours != nil) != (theirs != nil) {
			t.Fatalf("% x (%v, %+v): %v, gobwas: %v", header, role, h, ours, theirs)
		}
		if ours == nil && !h.OpCode.IsControl() && h.Length > 0 && (ev.Kind != websocket.NeedInput || m.Needed() != uint64(h.Length)) {
			t.Fatalf("% x: %+v, %d bytes needed, gobwas: %d", header, ev, m.Needed(), h.Length)
		}
	})
}

// http2xconnect is the setting of GODEBUG that net/http and x/net need for extended CONNECT (RFC 8441).
const http2xconnect = "http2xconnect=1"

// TestWebSocketOverHTTP2 runs itself with the setting that net/http reads when the program starts. The
// server is net/http's, the client x/net's.
func TestWebSocketOverHTTP2(t *testing.T) {
	if os.Getenv("GODEBUG") != http2xconnect {
		cmd := exec.Command(os.Args[0], "-test.run=^TestWebSocketOverHTTP2$", "-test.v")
		cmd.Env = append(os.Environ(), "GODEBUG="+http2xconnect)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestWebSocketOverHTTP2 ") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), wsPatience)
	defer cancel()
	ended := make(chan error, 10)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Conn: websocket.ConnOptions{Deflate: websocket.Deflate{Enabled: true}}})
		if err == nil {
			ended <- wsEcho(c)
		}
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	transport := &http2.Transport{TLSClientConfig: s.Client().Transport.(*http.Transport).TLSClientConfig}
	defer transport.CloseIdleConnections()
	o := &websocket.DialOptions{RoundTripper: transport}
	wsDrive(t, ctx, s.URL+"/chat", o, true)
	wantClosed(t, ended, websocket.CloseNormal, "bye")
	o.Conn.Deflate.Enabled = true
	wsDrive(t, ctx, s.URL, o, true)
	wantClosed(t, ended, websocket.CloseNormal, "bye")

	// Several connections share one of TCP, and one that is stuck does not hold the others up.
	stuck, err := websocket.Dial(ctx, s.URL, o)
	if err != nil {
		t.Fatal(err)
	}
	wsDrive(t, ctx, s.URL, o, false)
	wantClosed(t, ended, websocket.CloseNormal, "bye")
	_ = stuck.CloseNow()
	if err := <-ended; err == nil {
		t.Error("the server does not see the end")
	}

	// A plain GET is refused, and so is a handshake of another origin or version.
	resp, err := (&http.Client{Transport: transport}).Get(s.URL)
	if err != nil || resp.StatusCode != http.StatusMethodNotAllowed || resp.ProtoMajor != 2 {
		t.Errorf("%v, %v", resp, err)
	}
	_ = resp.Body.Close()
	o.Header = http.Header{"Origin": {"https://evil.example"}}
	var refusal *websocket.HandshakeError
	if _, err := websocket.Dial(ctx, s.URL, o); !errors.As(err, &refusal) || refusal.Status != http.StatusForbidden {
		t.Error(err)
	}
}

// benchmarkEcho measures an echo of 64 bytes over an in-memory pipe.
func benchmarkEcho(b *testing.B, client, server func(net.Conn) (echo func() error)) {
	x, y := net.Pipe()
	defer x.Close()
	defer y.Close()
	send, reply := client(x), server(y)
	go func() {
		for reply() == nil {
		}
	}()
	b.ReportAllocs()
	for b.Loop() {
		if err := send(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWebSocketEcho(b *testing.B) {
	payload := bytes.Repeat([]byte{'x'}, 64)
	b.Run("millrace", func(b *testing.B) {
		side := func(role websocket.Role) func(net.Conn) func() error {
			return func(conn net.Conn) func() error {
				c := websocket.NewConn(conn, role, websocket.ConnOptions{})
				buf := make([]byte, 0, 128)
				return func() error {
					if role == websocket.Client {
						if err := c.WriteMessage(websocket.Binary, payload); err != nil {
							return err
						}
						_, _, err := c.ReadMessage(buf)
						return err
					}
					op, p, err := c.ReadMessage(buf)
					if err != nil {
						return err
					}
					return c.WriteMessage(op, p)
				}
			}
		}
		benchmarkEcho(b, side(websocket.Client), side(websocket.Server))
	})
	b.Run("gobwas", func(b *testing.B) {
		benchmarkEcho(b, func(conn net.Conn) func() error {
			return func() error {
				if err := wsutil.WriteClientBinary(conn, payload); err != nil {
					return err
				}
				_, err := wsutil.ReadServerBinary(conn)
				return err
			}
		}, func(conn net.Conn) func() error {
			return func() error {
				p, op, err := wsutil.ReadClientData(conn)
				if err != nil {
					return err
				}
				return wsutil.WriteServerMessage(conn, op, p)
			}
		})
	})
	b.Run("coder", func(b *testing.B) {
		// Its connections come only from handshakes: both go over the pipe.
		ctx := context.Background()
		x, y := net.Pipe()
		accepted := make(chan *coder.Conn, 1)
		go http.Serve(&oneConn{conn: y}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c, err := coder.Accept(w, r, nil)
			if err != nil {
				b.Error(err)
			}
			accepted <- c
		}))
		client, _, err := coder.Dial(ctx, "ws://pipe", &coder.DialOptions{HTTPClient: &http.Client{Transport: &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) { return x, nil },
		}}})
		if err != nil {
			b.Fatal(err)
		}
		server := <-accepted
		defer client.CloseNow()
		defer server.CloseNow()
		go func() {
			for {
				kind, p, err := server.Read(ctx)
				if err != nil || server.Write(ctx, kind, p) != nil {
					return
				}
			}
		}()
		b.ReportAllocs()
		for b.Loop() {
			if err := client.Write(ctx, coder.MessageBinary, payload); err != nil {
				b.Fatal(err)
			}
			if _, _, err := client.Read(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// oneConn is a listener with one connection.
type oneConn struct{ conn net.Conn }

func (l *oneConn) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }
