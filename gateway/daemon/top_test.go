package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/admin"
	l4control "github.com/millrace/millrace/l4/control"
)

// Requests are counted while top asks, and no longer.
func TestTopCountsRequests(t *testing.T) {
	src := strings.NewReplacer(`"A"`, `"`+named(t, "a")+`"`, `, {name: b, address: "B"}`, "").Replace(siteConfig)
	s := newSite(t, src)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			s.get("/x?a")
			s.get("/fixed")
			time.Sleep(time.Millisecond)
		}
	}()
	top, err := s.admin.Top(t.Context(), 500*time.Millisecond, 1)
	stop()
	<-ended
	if err != nil || top.Requests == 0 || top.Seconds < 0.5 || len(top.Paths) != 1 || len(top.Backends) != 1 || top.Backends[0].Name != "p/a" ||
		top.Routes[0].Name != "r" || top.Clients[0].Name != "127.0.0.1" || top.Services == nil {
		t.Errorf("%+v, %v", top, err)
	}
	for _, query := range []string{"interval=1ms", "rows=0", "x=1", "interval=2m", "rows=a"} {
		_, err := s.d.showTop(&http.Request{URL: &url.URL{RawQuery: query}})
		if e := new(admin.Error); !errors.As(err, &e) || e.Code != http.StatusBadRequest {
			t.Errorf("%s: %v", query, err)
		}
	}
}

// Rates of backends are of the time between two pictures; idle ones are left out, and one that is new counts from 0.
func TestBusiestBackendsOfServices(t *testing.T) {
	picture := func(n uint64, more ...l4control.BackendStatus) *l4control.Status {
		return &l4control.Status{Services: []l4control.ServiceStatus{{Name: "s", Backends: append([]l4control.BackendStatus{
			{Name: "a", ToPackets: 10 * n, FromPackets: 10 * n, ToBytes: 100 * n, Opened: n}, {Name: "b", ToPackets: 100 * n}, {Name: "idle"},
		}, more...)}}}
	}
	got := busiest(picture(5, l4control.BackendStatus{Name: "new", FromPackets: 8}), picture(3), 2*time.Second, 2)
	if len(got) != 2 || got[0] != (admin.ServiceTop{Service: "s", Backend: "b", Packets: 100}) || got[1] != (admin.ServiceTop{Service: "s", Backend: "a", Packets: 20, Bytes: 100, Opened: 1}) {
		t.Errorf("%+v", got)
	}
	if got := busiest(picture(1, l4control.BackendStatus{Name: "new", FromPackets: 8}), picture(3), 2*time.Second, 9); got[len(got)-1].Packets != 4 {
		t.Errorf("%+v", got)
	}
}

// Spans of requests reach a collector, also those that wait when a reload takes it away, and the metrics count them.
func TestSpansReachTheCollector(t *testing.T) {
	var mu sync.Mutex
	came := 0
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		mu.Lock()
		defer mu.Unlock()
		if came += strings.Count(string(body), `"spanId"`); q.URL.Path != "/v1/traces" || !strings.Contains(string(body), "edge") {
			t.Errorf("%s: %s", q.URL.Path, body)
		}
	}))
	defer collector.Close()
	src := strings.NewReplacer(`"A"`, `"`+named(t, "a")+`"`, `, {name: b, address: "B"}`, "").Replace(siteConfig)
	s := newSite(t, src+"tracing: {endpoint: '"+collector.URL+"', one_in: 1, service_name: edge}\n")
	for range 3 {
		s.get("/x") // two spans
	}
	s.get("/fixed") // one
	s.reload(src)
	s.get("/x")
	await(t, func() bool { mu.Lock(); defer mu.Unlock(); return came == 7 })
	await(t, func() bool { // the count comes after the answer
		series, err := s.d.node.Registry().Gather()
		text := fmt.Sprint(series)
		return err == nil && strings.Contains(text, `millrace_http_spans_total{result="sent"} 7`) && strings.Contains(text, `millrace_http_spans_total{result="dropped"} 0`)
	})
}
