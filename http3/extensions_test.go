package http3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/websocket"
)

func TestTunnel(t *testing.T) {
	url := serve(t, &http3.Server{Machine: http3.MachineOptions{Datagrams: true}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "proxied.example:443" && r.Method == http.MethodConnect {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		tunnel, err := http3.AcceptTunnel(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		go func() {
			for {
				p, err := tunnel.ReceiveDatagram(r.Context())
				if err != nil {
					return
				}
				_ = tunnel.SendDatagram(append([]byte("re: "), p...))
			}
		}()
		_, _ = io.Copy(tunnel, tunnel)
	})})
	tr := transport(t, &http3.Transport{Machine: http3.MachineOptions{Datagrams: true}})
	ctx := within(t)
	req, _ := http.NewRequestWithContext(ctx, http.MethodConnect, url, nil)
	if _, resp, err := tr.DialTunnel(ctx, req); err == nil || resp == nil || resp.StatusCode != http.StatusForbidden {
		t.Fatalf("%v, %v", resp, err)
	}
	// The authority of a CONNECT is its target: the connection goes elsewhere.
	proxied := &http3.Transport{Machine: tr.Machine, Dial: func(ctx context.Context, _ string, tc *tlsConfig, qc *quic.Config) (*quic.Conn, error) {
		tc.ServerName = "test.example"
		return dialQUIC(ctx, t, strings.TrimPrefix(url, "https://"), tc, qc)
	}}
	transport(t, proxied)
	req, _ = http.NewRequestWithContext(ctx, http.MethodConnect, "https://proxied.example", nil)
	tunnel, _, err := proxied.DialTunnel(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = tunnel.Write(bytes.Repeat([]byte("x"), 100_000)) }()
	if n, err := io.ReadFull(tunnel, make([]byte, 100_000)); err != nil {
		t.Fatal(n, err)
	}
	// Datagrams may be lost, even on loopback.
	for i := 0; ; i++ {
		if err := tunnel.SendDatagram([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		p, err := tunnel.ReceiveDatagram(short)
		cancel()
		if err == nil && string(p) == "re: hello" {
			break
		}
		if i > 20 {
			t.Fatal(p, err)
		}
	}
	if err := tunnel.Close(); err != nil {
		t.Error(err)
	}
}

func TestWebTransport(t *testing.T) {
	closed := make(chan error, 1)
	url := serve(t, &http3.Server{Machine: http3.MachineOptions{WebTransport: 2}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := http3.AcceptSession(w, r, nil)
		if err != nil {
			return
		}
		go func() {
			for {
				st, err := s.AcceptStream(context.Background())
				if err != nil {
					return
				}
				go func() {
					_, _ = io.Copy(st, st)
					_ = st.Close()
				}()
			}
		}()
		go func() {
			for {
				p, err := s.ReceiveDatagram(context.Background())
				if err != nil {
					return
				}
				_ = s.SendDatagram(p)
			}
		}()
		go func() {
			st, err := s.AcceptUniStream(context.Background())
			if err != nil {
				return
			}
			b, _ := io.ReadAll(st)
			back, err := s.OpenUniStream(context.Background())
			if err == nil {
				_, _ = back.Write(bytes.ToUpper(b))
				_ = back.Close()
			}
			own, err := s.OpenStream(context.Background())
			if err == nil {
				_, _ = own.Write([]byte("from the server"))
				_ = own.Close()
			}
		}()
		<-s.Context().Done()
		closed <- context.Cause(s.Context())
	})})
	tr := transport(t, &http3.Transport{Machine: http3.MachineOptions{WebTransport: 1}})
	ctx := within(t)
	if _, resp, err := tr.DialSession(ctx, url, http.Header{"Origin": {"https://evil.example"}}); err == nil || resp.StatusCode != http.StatusForbidden {
		t.Fatal(err)
	}
	s, _, err := tr.DialSession(ctx, url, http.Header{"Origin": {url}})
	if err != nil {
		t.Fatal(err)
	}
	st, err := s.OpenStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = st.Write(bytes.Repeat([]byte("y"), 50_000))
		_ = st.Close()
	}()
	if b, err := io.ReadAll(st); err != nil || len(b) != 50_000 {
		t.Fatal(len(b), err)
	}
	uni, err := s.OpenUniStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = uni.Write([]byte("shout"))
	_ = uni.Close()
	back, err := s.AcceptUniStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(back); err != nil || string(b) != "SHOUT" {
		t.Fatalf("%q, %v", b, err)
	}
	own, err := s.AcceptStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(own); err != nil || string(b) != "from the server" {
		t.Fatalf("%q, %v", b, err)
	}
	for i := 0; ; i++ {
		if err := s.SendDatagram([]byte("datagram")); err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		p, err := s.ReceiveDatagram(short)
		cancel()
		if err == nil && string(p) == "datagram" {
			break
		}
		if i > 20 {
			t.Fatal(p, err)
		}
	}
	if err := s.CloseWithError(77, "bye"); err != nil {
		t.Fatal(err)
	}
	var se *http3.SessionError
	if err := <-closed; !errors.As(err, &se) || se.Code != 77 || se.Text != "bye" || !se.Remote {
		t.Error(err)
	}
	select {
	case <-s.Context().Done():
	case <-ctx.Done():
		t.Error("the session of the client does not end")
	}
}

// A stream that is reset as soon as it is open still belongs to its session (draft 4.4), and the name of the protocol is that of
// the drafts since 15.
func TestWebTransportStreamResetAtOnce(t *testing.T) {
	codes := make(chan error, 10)
	url := serve(t, &http3.Server{Machine: http3.MachineOptions{WebTransport: 2}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := r.Header[":protocol"]; len(p) != 1 || p[0] != "webtransport-h3" {
			t.Errorf(":protocol %q", p)
		}
		s, err := http3.AcceptSession(w, r, nil)
		if err != nil {
			return
		}
		for {
			st, err := s.AcceptUniStream(context.Background())
			if err != nil {
				return
			}
			_, err = io.ReadAll(st)
			codes <- err
		}
	})})
	tr := transport(t, &http3.Transport{Machine: http3.MachineOptions{WebTransport: 1}})
	ctx := within(t)
	s, _, err := tr.DialSession(ctx, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for code := range uint32(cap(codes)) {
		st, err := s.OpenUniStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		st.CancelWrite(code)
		var se *http3.SessionError
		select {
		case err := <-codes:
			if !errors.As(err, &se) || se.Code != code || !se.Remote {
				t.Errorf("reset with %d: %v", code, err)
			}
		case <-ctx.Done():
			t.Fatal("the stream does not arrive")
		}
	}
}

// Clients of all drafts are accepted.
func TestWebTransportNames(t *testing.T) {
	for _, name := range []string{"webtransport", "webtransport-h3"} {
		got := make(chan string, 1)
		url := serve(t, &http3.Server{Machine: http3.MachineOptions{WebTransport: 2}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := http3.AcceptSession(w, r, nil)
			got <- fmt.Sprint(r.Header[":protocol"], err)
			<-r.Context().Done()
		})})
		tr := transport(t, &http3.Transport{Machine: http3.MachineOptions{WebTransport: 1}})
		req, _ := http.NewRequestWithContext(within(t), http.MethodConnect, url, nil)
		req.Header[":protocol"] = []string{name}
		tunnel, _, err := tr.DialTunnel(req.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		_ = tunnel.Close()
		if s := <-got; s != "["+name+"] <nil>" {
			t.Error(s)
		}
	}
}

// WebSocket over HTTP/3 (RFC 9220), by the same functions as over HTTP/1.1.
func TestWebSocket(t *testing.T) {
	url := serve(t, &http3.Server{Machine: http3.MachineOptions{ExtendedConnect: true}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"echo"}})
		if err != nil {
			t.Error(err)
			return
		}
		defer c.CloseNow()
		for {
			op, p, err := c.ReadMessage(nil)
			if err != nil {
				return
			}
			if err := c.WriteMessage(op, p); err != nil {
				t.Error(err)
				return
			}
		}
	})})
	c, err := websocket.Dial(within(t), "wss"+strings.TrimPrefix(url, "https"), &websocket.DialOptions{
		Subprotocols: []string{"echo"}, RoundTripper: transport(t, &http3.Transport{}),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	if c.Subprotocol() != "echo" {
		t.Errorf("subprotocol %q", c.Subprotocol())
	}
	for _, n := range []int{0, 1, 5000, 200_000} {
		sent := bytes.Repeat([]byte("w"), n)
		if err := c.WriteMessage(websocket.Binary, sent); err != nil {
			t.Fatal(err)
		}
		if _, got, err := c.ReadMessage(nil); err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("%d bytes: %d, %v", n, len(got), err)
		}
	}
	if err := c.Close(websocket.CloseNormal, "done"); err != nil {
		t.Error(err)
	}
}

// A server that does not permit extended CONNECT is not asked.
func TestNoExtendedConnect(t *testing.T) {
	url := serve(t, &http3.Server{Handler: http.NotFoundHandler()})
	_, err := websocket.Dial(within(t), "wss"+strings.TrimPrefix(url, "https"), &websocket.DialOptions{RoundTripper: transport(t, &http3.Transport{})})
	if !errors.Is(err, http3.ErrNoExtendedConnect) {
		t.Error(err)
	}
}

func TestPush(t *testing.T) {
	results := make(chan error, 2)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/style.css" {
			w.Header().Set("X-Was", r.Header.Get("X-For"))
			_, _ = io.WriteString(w, "body{}")
			return
		}
		results <- w.(http.Pusher).Push("/style.css", &http.PushOptions{Header: http.Header{"X-For": {"page"}}})
		_, _ = io.WriteString(w, "page")
	})
	url := serve(t, &http3.Server{Handler: handler})
	// Off by default.
	if _, body := get(t, client(t), url); body != "page" {
		t.Error(body)
	}
	if err := <-results; !errors.Is(err, http3.ErrPush) {
		t.Errorf("%v, want ErrPush", err)
	}
	pushes := make(chan *http3.Push, 1)
	tr := transport(t, &http3.Transport{Machine: http3.MachineOptions{MaxPushes: 1}, Push: func(p *http3.Push) { pushes <- p }})
	c := &http.Client{Transport: tr, Timeout: patience}
	// The permission comes on another stream than the request.
	for i := 0; ; i++ {
		if _, body := get(t, c, url); body != "page" {
			t.Error(body)
		}
		err := <-results
		if err == nil {
			break
		}
		if i > 100 {
			t.Fatal(err)
		}
	}
	p := <-pushes
	resp, err := p.Response(within(t))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil || string(b) != "body{}" || p.Request.URL.Path != "/style.css" || resp.Header.Get("X-Was") != "page" {
		t.Errorf("%q, %v, %v", b, err, resp.Header)
	}
	_ = resp.Body.Close()
	// One was permitted.
	get(t, c, url)
	if err := <-results; !errors.Is(err, http3.ErrPush) {
		t.Errorf("a second: %v", err)
	}
}

// A request that a server refuses is sent again, on another connection after GOAWAY.
func TestRetry(t *testing.T) {
	block := make(chan struct{})
	url := serve(t, &http3.Server{MaxHandlers: 1, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/block" {
			w.(http.Flusher).Flush()
			<-block
		}
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s", r.Method, b)
	})})
	c := client(t)
	resp, err := c.Get(url + "/block")
	if err != nil {
		t.Fatal(err)
	}
	var se *http3.StreamError
	if _, err := c.Get(url); !errors.As(err, &se) || se.Code != http3.RequestRejected {
		t.Errorf("while the one handler runs: %v", err)
	}
	time.AfterFunc(20*time.Millisecond, func() { close(block) })
	for i := 0; ; i++ {
		resp, err := c.Post(url, "text/plain", strings.NewReader("again"))
		if err == nil {
			b, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if string(b) != "POST again" {
				t.Errorf("%q", b)
			}
			break
		}
		if i > 300 {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	_ = resp.Body.Close()
}

// Reading stops early, on either side, without harm to the connection.
func TestEarlyClose(t *testing.T) {
	url := serve(t, &http3.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/endless":
			for {
				if _, err := w.Write(make([]byte, 10_000)); err != nil {
					return
				}
			}
		case "/unread":
			_, _ = io.WriteString(w, "answer")
		}
	})})
	c := client(t)
	resp, err := c.Get(url + "/endless")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 100_000)); err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if _, err := resp.Body.Read(make([]byte, 1)); err == nil {
		t.Error("read after close")
	}
	resp, err = c.Post(url+"/unread", "text/plain", io.LimitReader(zeros{}, 10<<20))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "answer" {
		t.Errorf("%q, %v", b, err)
	}
	_ = resp.Body.Close()
	get(t, c, url)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
