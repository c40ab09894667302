package proxy

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/millrace/millrace/l7/route"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/quic"
)

// A client that opens no window for a response of the gateway itself is not waited for longer than Timeouts.Write.
func TestAClientThatTakesNoAnswerIsCut(t *testing.T) {
	empty, err := route.New(nil)
	must(t, err)
	for _, c := range []struct {
		name string
		set  func(r *rig)
	}{
		{"fixed response", func(r *rig) { r.rule.Response = &Response{Status: 200, Body: []byte("hello")} }},
		{"no backend", func(r *rig) { r.rule.Backends = nil }},
		{"no rule", func(r *rig) { r.each(func(l *Listener) { l.Table = empty }) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, echoBackend(t, false), func(r *rig) {
				r.each(func(l *Listener) { l.Timeouts = side.Timeouts{Write: 300 * time.Millisecond} })
				c.set(r)
			})
			conn, err := net.Dial("tcp", r.addr)
			must(t, err)
			defer conn.Close()
			must(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
			_, err = io.WriteString(conn, http2.ClientPreface)
			must(t, err)
			f := http2.NewFramer(conn, conn)
			must(t, f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
			_, err = io.WriteString(conn, get2On(1))
			must(t, err)
			for {
				fr, err := f.ReadFrame()
				if err != nil {
					t.Fatalf("the stream is not reset: %v", err)
				}
				if fr.Header().Type == http2.FrameRSTStream {
					break
				}
			}
			r.settled()
		})
	}
}

// The same of HTTP/3.
func TestAClientOfHTTP3ThatTakesNoAnswerIsCut(t *testing.T) {
	r := http3Rig(t, echoBackend(t, false), func(r *rig) {
		r.rule.Response = &Response{Status: 200, Body: bytes.Repeat([]byte("x"), 4<<20)}
		r.tree.Listeners[1].Timeouts = side.Timeouts{Write: 300 * time.Millisecond}
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	q := r.dial3(ctx, quicSocket(t), &quic.Config{KeepAlive: 50 * time.Millisecond})
	s, err := q.OpenStream(ctx)
	must(t, err)
	_, err = s.Write(getRequest())
	must(t, err)
	must(t, s.Close())
	r.eventually("a request", func() bool { return r.worker.Stats().Requests > 0 })
	r.settled()
}

// A slow backend is waited for: the time for the response begins when the request has been sent, and that for the content
// neither runs before the header of the response nor counts what was before it.
func TestTimesOfAPoolBeginInTime(t *testing.T) {
	const d = time.Second
	for _, c := range []struct {
		name           string
		response, body time.Duration
		upload         time.Duration
		backend        http.HandlerFunc
		status         int
	}{
		{"an upload takes longer than the response may", d, 0, 2 * d, func(_ http.ResponseWriter, req *http.Request) { _, _ = io.Copy(io.Discard, req.Body) }, 200},
		{"an upload, and then no response", d, 0, 2 * d, func(_ http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			<-req.Context().Done()
		}, 504},
		{"no response", d, 0, 0, func(_ http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body) // or it does not see that the gateway leaves
			<-req.Context().Done()
		}, 504},
		{"a response takes longer than its content may stop", 0, d, 0, func(http.ResponseWriter, *http.Request) { time.Sleep(2 * d) }, 200},
		{"a late header, and content after it", 0, d, 0, func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(d * 3 / 4)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(d * 2 / 4)
			_, _ = io.WriteString(w, "x")
		}, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			backend := httptest.NewServer(c.backend)
			t.Cleanup(backend.Close)
			r := newRig(t, strings.TrimPrefix(backend.URL, "http://"), func(r *rig) { r.pool.Response, r.pool.Body = c.response, c.body })
			for _, h2 := range []bool{false, true} {
				in, out := io.Pipe()
				go func() {
					for range 20 {
						if c.upload > 0 {
							_, _ = out.Write(make([]byte, 1000))
							time.Sleep(c.upload / 20)
						}
					}
					_ = out.Close()
				}()
				resp, err := r.client(h2).Post("https://"+r.secure, "text/plain", in)
				must(t, err)
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != c.status || err != nil {
					t.Errorf("h2 %v: status %d, %v", h2, resp.StatusCode, err)
				}
			}
			r.settled()
		})
	}
}

// A backend that takes nothing of an upload is given up by the time for content.
func TestAnUploadThatStopsEnds(t *testing.T) {
	r := newRig(t, script(t, func(conn net.Conn) { time.Sleep(20 * time.Second) }), func(r *rig) {
		r.pool.Response, r.pool.Body = time.Minute, 500*time.Millisecond
		r.each(func(l *Listener) { l.Timeouts.Body = 0 })
	})
	resp, err := r.client(true).Post("https://"+r.secure, "text/plain", bytes.NewReader(make([]byte, 64<<20)))
	must(t, err)
	defer resp.Body.Close()
	if resp.StatusCode != 504 {
		t.Errorf("status %d", resp.StatusCode)
	}
}
