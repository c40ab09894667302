package proxy

import (
	"bytes"
	"context"
	ctls "crypto/tls"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/l7/route"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/tls/clienthello"
	"github.com/millrace/millrace/websocket"
)

func echoMessages(t *testing.T, w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/no" {
		http.Error(w, "no", http.StatusForbidden)
		return
	}
	c, err := websocket.Accept(w, req, nil)
	if err != nil {
		t.Error(err)
		return
	}
	for {
		op, p, err := c.ReadMessage(nil)
		if err != nil {
			return
		}
		_ = c.WriteMessage(op, p)
	}
}

// WebSockets pass between HTTP/3 and HTTP/1.1, both ways, and over HTTP/3 on both sides (RFC 9220).
func TestWebSocketsOverHTTP3(t *testing.T) {
	for _, back3 := range []bool{false, true} {
		var r *rig
		if back3 {
			cert, roots := testcert.SelfSigned("backend.test")
			at := quicSocket(t)
			s := &http3.Server{
				TLS: &ctls.Config{Certificates: []ctls.Certificate{cert}}, Machine: http3.MachineOptions{ExtendedConnect: true},
				Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { echoMessages(t, w, req) }),
			}
			go func() { _ = s.ServeTransport(at) }()
			t.Cleanup(func() { _ = s.Close() })
			r = http3Rig(t, at.LocalAddr().String(), func(r *rig) { r.over3(roots) })
		} else {
			r = http3Rig(t, socketBackend(t), nil)
		}
		for _, front3 := range []bool{false, true} {
			t.Run(fmt.Sprintf("front h3=%v, back h3=%v", front3, back3), func(t *testing.T) {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				url, o := "ws://"+r.addr, &websocket.DialOptions{DialContext: over.dial}
				if front3 {
					url, o.RoundTripper = "wss://"+r.secure, r.client3().Transport
				}
				if _, err := websocket.Dial(ctx, url+"/no", o); err == nil || !strings.Contains(err.Error(), "403") {
					t.Errorf("%v where the backend refuses", err)
				}
				c, err := websocket.Dial(ctx, url+"/", o)
				must(t, err)
				for i := range 60 {
					want := strings.Repeat("x", i*i*7)
					must(t, c.WriteMessage(websocket.Text, []byte(want)))
					if _, got, err := c.ReadMessage(nil); err != nil || string(got) != want {
						t.Fatalf("message %d: %d bytes, %v", i, len(got), err)
					}
				}
				must(t, c.Close(websocket.CloseNormal, ""))
			})
		}
		r.settled()
	}
}

// featureHandler has interim responses, trailers both ways, and answers without content.
func featureHandler(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		if req.URL.Path == "/early" {
			w.Header().Set("X-Early", req.Header.Get("Early-Data"))
			return
		}
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Trailer", "Grpc-Status")
		w.Header().Set("X-Te", req.Header.Get("Te"))
		if req.Method == http.MethodHead {
			w.Header().Set("Content-Length", "12345")
			return
		}
		_, _ = w.Write(body)
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		w.Header().Set("Grpc-Status", req.Trailer.Get("X-Sum"))
	}
}

// featureRig has a backend of a version behind the same front.
func featureRig(t *testing.T, version string) *rig {
	if version == "h3" {
		cert, roots := testcert.SelfSigned("backend.test")
		at := quicSocket(t)
		s := &http3.Server{TLS: &ctls.Config{Certificates: []ctls.Certificate{cert}}, Handler: featureHandler(t)}
		go func() { _ = s.ServeTransport(at) }()
		t.Cleanup(func() { _ = s.Close() })
		return http3Rig(t, at.LocalAddr().String(), func(r *rig) { r.over3(roots) })
	}
	s := unstarted(t, featureHandler(t))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(version == "h1")
	s.Config.Protocols.SetUnencryptedHTTP2(version == "h2")
	s.Start()
	return http3Rig(t, strings.TrimPrefix(s.URL, "http://"), func(r *rig) {
		if version == "h2" {
			r.pool.Protocol = HTTP2
		}
	})
}

// What gRPC needs over HTTP/3 is passed on: trailers of requests and responses, TE, and interim responses too.
func TestHTTP3Features(t *testing.T) {
	for _, name := range []string{"h1", "h2", "h3"} {
		t.Run(name, func(t *testing.T) {
			r := featureRig(t, name)
			c := r.client3()
			var interim []string
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				interim = append(interim, fmt.Sprint(code, h.Get("Link")))
				return nil
			}})
			req, err := http.NewRequestWithContext(ctx, "POST", "https://"+r.secure+"/", io.MultiReader(strings.NewReader("some "), strings.NewReader("content")))
			must(t, err)
			req.Trailer = http.Header{"X-Sum": {"17"}}
			req.Header.Set("Te", "trailers")
			resp, err := c.Do(req)
			must(t, err)
			body, err := io.ReadAll(resp.Body)
			must(t, err)
			if string(body) != "some content" || resp.Trailer.Get("Grpc-Status") != "17" {
				t.Errorf("%q, trailers %v", body, resp.Trailer)
			}
			if name == "h2" && resp.Header.Get("X-Te") != "trailers" {
				t.Errorf("TE: %q", resp.Header.Get("X-Te"))
			}
			if len(interim) != 1 || interim[0] != "103</style.css>; rel=preload" {
				t.Errorf("interim responses %q", interim)
			}
			if resp, err = c.Head("https://" + r.secure + "/"); err != nil || resp.ContentLength != 12345 {
				t.Errorf("HEAD: %v, %v", resp, err)
			}
			r.settled()
		})
	}
}

// 10 000 requests over four connections, each with its own content, come back as they were.
func TestHTTP3TenThousand(t *testing.T) {
	backend := served(t, func(w http.ResponseWriter, req *http.Request) {
		n, _ := strconv.Atoi(req.URL.Query().Get("n"))
		_, _ = w.Write(contentOf(n))
	})
	r := http3Rig(t, strings.TrimPrefix(backend.URL, "http://"), nil)
	var all sync.WaitGroup
	var done atomic.Int64
	for i := range 4 {
		c := r.client3()
		for j := range 25 {
			all.Go(func() {
				for k := range 100 {
					n := i*2500 + j*100 + k
					resp, err := c.Get(fmt.Sprintf("https://%s/?n=%d", r.secure, n))
					if err != nil {
						t.Error(err)
						return
					}
					b, err := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					if err != nil || !bytes.Equal(b, contentOf(n)) {
						t.Errorf("%d: %d bytes, %v", n, len(b), err)
						return
					}
					done.Add(1)
				}
			})
		}
	}
	all.Wait()
	if n := done.Load(); n != 10000 || r.worker.Stats().Connections != 4 {
		t.Errorf("%d requests, %+v", n, r.worker.Stats())
	}
	r.settled()
}

// contentOf is what the backend answers to n.
func contentOf(n int) []byte {
	sum := crc32.ChecksumIEEE([]byte(strconv.Itoa(n)))
	return bytes.Repeat([]byte(fmt.Sprintf("%08x", sum)), 1+int(sum%100))
}

// The fingerprint JA4 and ALPN of clients of HTTP/3 are those of the ClientHello in their Initial packets, as package clienthello
// reads one that crypto/tls writes with the same configuration. A client without them goes by another rule.
func TestHTTP3RulesOnTheHello(t *testing.T) {
	chosen := &ctls.Config{ServerName: "gateway.test", NextProtos: []string{"h3", "x"}, MinVersion: ctls.VersionTLS13, CurvePreferences: []ctls.CurveID{ctls.X25519}}
	engine := ctls.QUICClient(&ctls.QUICConfig{TLSConfig: chosen})
	engine.SetTransportParameters([]byte{})
	must(t, engine.Start(t.Context()))
	ev := engine.NextEvent()
	for ; ev.Kind != ctls.QUICWriteData; ev = engine.NextEvent() {
	}
	var hello clienthello.Hello
	err := clienthello.ParseMessage(ev.Data, &hello)
	must(t, err)
	ja4 := string(hello.AppendJA4(nil, 'q'))
	r := http3Rig(t, "127.0.0.1:1", func(r *rig) {
		ln := r.tree.Listeners[1]
		ln.Table, err = route.New([]route.Rule{
			{Name: "ja4", Match: route.Match{JA4: []string{ja4}, ALPN: []string{"x"}}}, {Name: "alpn", Match: route.Match{ALPN: []string{"x"}}}, {Name: "rest"},
		})
		must(t, err)
		ln.Rules = nil
		for status := range 3 {
			ln.Rules = append(ln.Rules, &Rule{Response: &Response{Status: 290 + status}})
		}
	})
	other := chosen.Clone()
	other.CurvePreferences, other.MinVersion, other.NextProtos = nil, ctls.VersionTLS13, []string{"x", "h3"}
	for want, tc := range []*ctls.Config{chosen, other, {ServerName: "gateway.test", NextProtos: []string{"h3"}}} {
		tc.RootCAs = r.roots
		tr := &http3.Transport{Dial: func(ctx context.Context, _ string, _ *ctls.Config, c *quic.Config) (*quic.Conn, error) {
			addr, err := net.ResolveUDPAddr("udp", r.secure)
			if err != nil {
				return nil, err
			}
			return quicSocket(t).Dial(ctx, addr, tc, c)
		}}
		resp, err := (&http.Client{Transport: tr, Timeout: patience}).Get("https://" + r.secure)
		must(t, err)
		if resp.Body.Close(); resp.StatusCode != 290+want {
			t.Errorf("%s: %s", ja4, resp.Status)
		}
		_ = tr.Close()
	}
	if !strings.HasPrefix(ja4, "q13d03") || ja4[8:10] != "h3" {
		t.Errorf("%s", ja4)
	}
}

// A client that does not read stops the backend, and the gateway holds little of an endless response.
func TestHTTP3SlowReader(t *testing.T) {
	var sent atomic.Int64
	backend := served(t, func(w http.ResponseWriter, req *http.Request) {
		b := make([]byte, 32<<10)
		for {
			n, err := w.Write(b)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	r := http3Rig(t, strings.TrimPrefix(backend.URL, "http://"), nil)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	q := r.dial3(ctx, quicSocket(t), &quic.Config{StreamWindow: 64 << 10, MaxStreamWindow: 64 << 10})
	s, err := q.OpenStream(ctx)
	must(t, err)
	_, err = s.Write(getRequest())
	must(t, err)
	_ = s.Close()
	stops := func() int64 { // waits until nothing moves
		for last := int64(-1); ; time.Sleep(200 * time.Millisecond) {
			n := sent.Load()
			if n == last && n > 0 || ctx.Err() != nil {
				return n
			}
			last = n
		}
	}
	first := stops()
	if first > 16<<20 { // most of it lies in buffers of the kernel's sockets
		t.Errorf("%d bytes were sent to a client that does not read", first)
	}
	n, err := io.CopyN(io.Discard, s, 32<<20)
	if err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	s.CancelRead(uint64(http3.RequestCancelled))
	r.settled() // the cancelled request ends that to the backend
	var m runtime.MemStats
	runtime.GC()
	if runtime.ReadMemStats(&m); m.HeapInuse > 128<<20 {
		t.Errorf("%d bytes of heap", m.HeapInuse)
	}
}

// getRequest is a HEADERS frame of GET / with static entries: GET, https, / and a literal authority.
func getRequest() []byte { return []byte("\x01\x0f\x00\x00\xd1\xd7\xc1\x50\x08a.test:1") }

// A backend that does not read stops the client.
func TestHTTP3SlowBackend(t *testing.T) {
	goOn := make(chan struct{})
	backend := served(t, func(w http.ResponseWriter, req *http.Request) {
		<-goOn
		n, _ := io.Copy(io.Discard, req.Body)
		_, _ = fmt.Fprint(w, n)
	})
	r := http3Rig(t, strings.TrimPrefix(backend.URL, "http://"), nil)
	r.each(func(l *Listener) { l.Timeouts.Body = 0 })
	var taken atomic.Int64
	body := &counted{left: 64 << 20, taken: &taken}
	type result struct {
		text string
		err  error
	}
	got := make(chan result, 1)
	go func() {
		resp, err := r.client3().Post("https://"+r.secure+"/", "", body)
		if err != nil {
			got <- result{err: err}
			return
		}
		b, err := io.ReadAll(resp.Body)
		got <- result{string(b), err}
	}()
	for last := int64(-1); ; time.Sleep(300 * time.Millisecond) {
		n := taken.Load()
		if n == last && n > 0 {
			break
		}
		last = n
	}
	if n := taken.Load(); n > 24<<20 {
		t.Errorf("%d bytes were taken from the client", n)
	}
	close(goOn)
	if res := <-got; res.err != nil || res.text != fmt.Sprint(64<<20) {
		t.Error(res)
	}
}

// counted is zeros, and how many were read.
type counted struct {
	left  int64
	taken *atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), c.left)
	clear(p[:n])
	c.left -= n
	c.taken.Add(n)
	return int(n), nil
}
