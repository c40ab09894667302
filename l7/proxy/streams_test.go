package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	h2 "golang.org/x/net/http2"

	"github.com/millrace/millrace/l7/pool"
)

// A backend that permits few requests at a time on a connection gets no more: the others have further connections, or wait where
// there may be none. None fails, also those with content, which cannot be sent again.
func TestBackendsPermitFewStreams(t *testing.T) {
	backend := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		time.Sleep(time.Millisecond)
		io.Copy(w, req.Body)
	}))
	backend.Config.Protocols = new(http.Protocols)
	backend.Config.Protocols.SetUnencryptedHTTP2(true)
	backend.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 3}
	backend.Start()
	defer backend.Close()
	addr := strings.TrimPrefix(backend.URL, "http://")
	for _, limit := range []int{0, 1, 2} {
		t.Run(fmt.Sprintf("%d connections", limit), func(t *testing.T) {
			r := newRig(t, addr, func(r *rig) {
				var err error
				r.pool.Pool, err = pool.New(pool.Options{Name: "p"}, []pool.BackendOptions{{
					Name: "b", Address: netip.MustParseAddrPort(addr), Limits: pool.Limits{Connections: limit},
				}}, 1)
				must(t, err)
				r.pool.Protocol = HTTP2
			})
			client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
			defer client.CloseIdleConnections()
			var all sync.WaitGroup
			for range 40 {
				all.Go(func() {
					for range 10 {
						post(t, client, "http://"+r.addr, []byte(strings.Repeat("x", 1000)))
					}
				})
			}
			all.Wait()
			r.settled()
			r.do(func() {
				s := r.worker.Stats()
				if s.Retries > 0 || limit > 0 && s.BackOpened > uint64(limit) || limit == 0 && s.BackOpened < 13 {
					t.Errorf("%d retries, %d connections", s.Retries, s.BackOpened)
				}
			})
		})
	}
}

// A backend that permits no requests, and one that does not say what it permits, are failures.
func TestBackendsPermitNoStreams(t *testing.T) {
	t.Run("none", func(t *testing.T) {
		backend := frameBackend(t, func(f *frames) { f.next(h2.FrameGoAway, 0) }, h2.Setting{ID: h2.SettingMaxConcurrentStreams})
		r := newRig(t, backend, func(r *rig) { r.pool.Protocol = HTTP2 })
		resp, err := http.Get("http://" + r.addr)
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != 503 {
			t.Error(resp.Status)
		}
		r.settled()
	})
	t.Run("silence", func(t *testing.T) {
		backend := script(t, func(c net.Conn) { io.Copy(io.Discard, c) })
		r := newRig(t, backend, func(r *rig) { r.pool.Protocol, r.pool.Connect = HTTP2, 200*time.Millisecond })
		resp, err := http.Get("http://" + r.addr)
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != 504 {
			t.Error(resp.Status)
		}
		r.settled()
	})
}
