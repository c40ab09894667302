package proxy

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/l7/h2side"
	h2 "golang.org/x/net/http2"
)

// Thousands of connections that open and close, in every way that a client has, leave nothing: no descriptor, no timer, no exchange.
func TestConnectionsLeaveNothing(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(planned))
	defer backend.Close()
	r := newRig(t, strings.TrimPrefix(backend.URL, "http://"), nil)
	descriptors := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(all)
	}
	before := descriptors()
	const connections, at = 10_000, 100
	var all sync.WaitGroup
	for g := range at {
		all.Go(func() {
			for i := range connections / at {
				addr := r.addr
				if i%10 == 9 {
					addr = r.secure
				}
				c, err := net.Dial("tcp", addr)
				if err != nil {
					t.Error(err)
					return
				}
				c.SetDeadline(time.Now().Add(time.Minute))
				switch (g + i) % 10 {
				case 0: // nothing
				case 1:
					io.WriteString(c, "GET / HT")
				case 2:
					io.WriteString(c, "GET /?down=100&status=200&abort=-1 HTTP/1.1\r\nHost: a\r\n\r\n")
				case 3:
					io.WriteString(c, "GET /?down=100&status=200&abort=-1 HTTP/1.1\r\nHost: a\r\n\r\n")
					c.Read(make([]byte, 100))
				case 4:
					io.WriteString(c, "POST /?down=100&status=200&abort=-1 HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc")
				case 5:
					io.WriteString(c, h2.ClientPreface)
				case 6:
					io.WriteString(c, h2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
					c.Read(make([]byte, 9))
				case 7:
					io.WriteString(c, strings.Repeat("\x00", 100))
				case 8:
					io.WriteString(c, "GET /?down=100&status=200&abort=-1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
					io.Copy(io.Discard, c)
				}
				if i%3 == 0 {
					c.(*net.TCPConn).SetLinger(0)
				}
				c.Close()
			}
		})
	}
	all.Wait()
	r.settled()
	timers := -1
	for range 500 {
		r.do(func() {
			timers = len(r.worker.Timers) - len(r.worker.FreeTimers)
			for _, bs := range r.worker.backs {
				for len(bs.idle) > 0 {
					bs.idle[0].drop()
				}
			}
		})
		if s := r.worker.Stats(); s.Open == 0 && timers == 0 && descriptors() <= before+2 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("%d descriptors, there were %d; %d timers; %+v", descriptors(), before, timers, r.worker.Stats())
}

// Keep-alives of a connection that lives long do not end it: frames without effect are counted against the time.
func TestKeepAlivesOfLongConnections(t *testing.T) {
	r := newRig(t, free(t).String(), func(r *rig) { r.tree.Listeners[0].HTTP2 = &http2.Options{MaxIdleFrames: 20} })
	f := r.dialFrames()
	for range 50 {
		must(t, f.WritePing(false, [8]byte{1}))
		f.until(h2.FramePing, 0)
		time.Sleep(2 * h2side.AllowTime)
	}
	for range 100_000 { // what comes at once ends it
		if f.WritePing(false, [8]byte{2}) != nil {
			return
		}
	}
	if f.next(h2.FrameGoAway, 0) == nil {
		t.Error("a flood does not end the connection")
	}
}
