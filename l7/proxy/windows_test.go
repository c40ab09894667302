package proxy

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/l7/h2side"

	h2 "golang.org/x/net/http2"
)

// A window that SETTINGS opens has streams go on that waited for it (RFC 9113 6.9.2), on both sides.
func TestSettingsOpenWindows(t *testing.T) {
	closed, open := h2.Setting{ID: h2.SettingInitialWindowSize}, h2.Setting{ID: h2.SettingInitialWindowSize, Val: 3}
	t.Run("of a client", func(t *testing.T) {
		r := newRig(t, script(t, answerOnce("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")), nil)
		f := r.dialFrames(closed)
		f.request(1, "GET", true)
		f.until(h2.FrameHeaders, 1)
		must(t, f.WritePing(false, [8]byte{}))
		f.until(h2.FramePing, 0) // the content waits by now
		must(t, f.WriteSettings(open))
		if d := f.until(h2.FrameData, 1).(*h2.DataFrame).Data(); string(d) != "hel" {
			t.Errorf("%q", d)
		}
	})
	t.Run("of a client, for a response of the gateway", func(t *testing.T) {
		r := newRig(t, free(t).String(), nil)
		f := r.dialFrames(closed)
		f.request(1, "GET", true)
		if status := f.status(f.until(h2.FrameHeaders, 1).(*h2.HeadersFrame)); status != "502" {
			t.Error(status)
		}
		must(t, f.WritePing(false, [8]byte{}))
		f.until(h2.FramePing, 0)
		must(t, f.WriteSettings(open))
		if d := f.until(h2.FrameData, 1).(*h2.DataFrame).Data(); string(d) != "502" {
			t.Errorf("%q", d)
		}
		must(t, f.WriteWindowUpdate(1, 100))
		for {
			if d := f.until(h2.FrameData, 1).(*h2.DataFrame); d.StreamEnded() {
				break
			}
		}
		r.settled()
	})
	t.Run("of a backend", func(t *testing.T) {
		got := make(chan string, 1)
		backend := frameBackend(t, func(f *frames) {
			defer close(got)
			h := f.next(h2.FrameHeaders, anyStream) // by its end the settings have arrived
			f.WriteHeaders(h2.HeadersFrameParam{StreamID: h.Header().StreamID, EndHeaders: true, EndStream: true, BlockFragment: block(":status", "204")})
			h = f.next(h2.FrameHeaders, anyStream)
			f.WritePing(false, [8]byte{})
			f.next(h2.FramePing, 0) // the content waits by now
			f.WriteSettings(open)
			if d, ok := f.next(h2.FrameData, h.Header().StreamID).(*h2.DataFrame); ok {
				got <- string(d.Data())
			}
		}, closed)
		r := newRig(t, backend, func(r *rig) { r.pool.Protocol = HTTP2 })
		go r.talk("GET / HTTP/1.1\r\nHost: a\r\n\r\nPOST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
		if d := <-got; d != "hel" {
			t.Errorf("%q", d)
		}
	})
}

// answerOnce reads the header of a request and answers.
func answerOnce(response string) func(c net.Conn) {
	return func(c net.Conn) {
		read(c)
		io.WriteString(c, response)
		read(c) // until the end
	}
}

// Clients that do not read their responses hold up no other client of the connection to the backend that they share.
func TestSlowClientsHoldUpNoOthers(t *testing.T) {
	var served atomic.Int64
	backend := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/" {
			w.Write(make([]byte, 600_000))
			return
		}
		for served.Add(1); ; {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	}))
	backend.Config.Protocols = new(http.Protocols)
	backend.Config.Protocols.SetUnencryptedHTTP2(true)
	backend.Start()
	t.Cleanup(backend.Close)
	r := newRig(t, strings.TrimPrefix(backend.URL, "http://"), func(r *rig) {
		r.pool.Protocol = HTTP2
		r.tree.Listeners[0].Timeouts.Write = 0
	})
	const slow = 16
	for range slow {
		c, err := net.Dial("tcp", r.addr)
		must(t, err)
		t.Cleanup(func() { c.Close() })
		_, err = io.WriteString(c, "GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
		must(t, err)
	}
	for last := uint64(1); ; time.Sleep(300 * time.Millisecond) { // until all windows are used up
		var now uint64
		r.do(func() {
			for _, bs := range r.worker.backs {
				for _, b := range bs.shared {
					b.conn.(*h2side.Back).EachStream(func(st *h2side.Stream) { now += st.User.(*exchange).down.bytes })
				}
			}
		})
		if now == last && served.Load() == slow {
			break
		}
		last = now
	}
	resp, err := (&http.Client{Timeout: 20 * time.Second}).Get("http://" + r.addr)
	must(t, err)
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); n != 600_000 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	r.do(func() {
		if n := r.worker.Stats().BackOpened; n != 1 {
			t.Errorf("%d connections to the backend", n)
		}
	})
}
