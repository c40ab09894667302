package proxy

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/l7/pool"
)

// Requests wait where a backend has as many connections as it may, and are refused where as many wait as may.
func TestRequestsWaitForConnections(t *testing.T) {
	var now, most atomic.Int64
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(50 * time.Millisecond)
		now.Add(-1)
	}))
	defer backend.Close()
	r := newRig(t, strings.TrimPrefix(backend.URL, "http://"), func(r *rig) {
		p, err := pool.New(pool.Options{Name: "p"}, []pool.BackendOptions{{
			Name: "b", Address: netip.MustParseAddrPort(strings.TrimPrefix(backend.URL, "http://")), Limits: pool.Limits{Connections: 2, Pending: 6},
		}}, 1)
		must(t, err)
		r.pool.Pool = p
	})
	var all sync.WaitGroup
	var served, refused atomic.Int64
	for range 12 {
		all.Go(func() {
			resp, err := http.Get("http://" + r.addr)
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
			switch resp.StatusCode {
			case 200:
				served.Add(1)
			case 503:
				refused.Add(1)
			default:
				t.Error(resp.StatusCode)
			}
		})
	}
	all.Wait()
	if most.Load() > 2 || served.Load() < 8 || refused.Load() == 0 {
		t.Errorf("%d at a time; %d served, %d refused", most.Load(), served.Load(), refused.Load())
	}
	r.settled()
	r.do(func() {
		if len(r.worker.queues) != 0 {
			t.Error("queues are left")
		}
	})
}
