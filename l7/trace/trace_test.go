package trace

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/l7/accesslog"
	"github.com/millrace/millrace/semantics"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// The examples and rules of W3C Trace Context.
func TestParse(t *testing.T) {
	for s, ok := range map[string]bool{
		parent:                               true,
		parent[:53] + "00":                   true,
		parent[:53] + "ff":                   true,
		"01" + parent[2:]:                    true,
		"cc" + parent[2:] + "-what-follows":  true,
		"cc" + parent[2:] + ".what-follows":  false,
		"ff" + parent[2:]:                    false,
		parent + "-00":                       false,
		parent[:54]:                          false,
		strings.ToUpper(parent):              false,
		"0x" + parent[2:]:                    false,
		strings.Replace(parent, "-", "_", 1): false,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": false,
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01": false,
		"": false,
	} {
		c, got := Parse(s)
		if got != ok {
			t.Errorf("%q: %v, want %v", s, got, ok)
		}
		if out := string(c.Append(nil)); ok && out[3:] != s[3:length] {
			t.Errorf("%q became %q", s, out)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(parent)
	f.Fuzz(func(t *testing.T, s string) {
		if c, ok := Parse(s); ok {
			if again, ok := Parse(string(c.Append(nil))); !ok || again != c {
				t.Errorf("%q: %+v, %+v", s, c, again)
			}
		}
	})
}

func fields(values ...string) (list []semantics.Field) {
	for _, v := range values {
		list = append(list, semantics.Field{Name: "accept", Value: "*/*"}, semantics.Field{Name: Field, Value: v})
	}
	return list
}

// Clients in From decide; of others the trace is continued, and the decision is the gateway's.
func TestWhoDecides(t *testing.T) {
	trusted, other := netip.MustParseAddr("::ffff:192.0.2.1"), netip.MustParseAddr("198.18.0.1")
	from := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	never, always := &Tracer{OneIn: 1 << 60, From: from}, &Tracer{OneIn: 1, From: from}
	for _, c := range []struct {
		name    string
		t       *Tracer
		client  netip.Addr
		fields  []semantics.Field
		sampled bool
		under   bool // the parent's trace
	}{
		{"none, always", always, other, nil, true, false},
		{"none, never", never, trusted, nil, false, false},
		{"trusted, sampled", never, trusted, fields(parent), true, true},
		{"trusted, not sampled", always, trusted, fields(parent[:53] + "00"), false, false},
		{"other, sampled", never, other, fields(parent), false, false},
		{"other, not sampled", always, other, fields(parent[:53] + "00"), true, true},
		{"wrong", always, trusted, fields("x"), true, false},
		{"two", always, trusted, fields(parent, parent), true, false},
	} {
		r := c.t.Begin(c.client, c.fields)
		if (r != nil) != c.sampled {
			t.Errorf("%s: sampled %v", c.name, r != nil)
			continue
		}
		if r == nil {
			continue
		}
		out, ok := Parse(r.Value)
		if !ok || out.Trace != r.Server.Trace || out.Span != r.Backend || r.Backend == r.Server.Span || !out.Sampled() {
			t.Errorf("%s: %q of %+v", c.name, r.Value, r)
		}
		if under := r.ID() == "0af7651916cd43dd8448eb211c80319c"; under != c.under || under != (r.Parent != [8]byte{}) {
			t.Errorf("%s: trace %s, parent %x", c.name, r.ID(), r.Parent)
		}
	}
	n := 0
	for tenth := (&Tracer{OneIn: 10}); n < 1<<20; n++ {
		if n > 50 && tenth.Begin(other, nil) == nil {
			break
		}
	}
	sampled := 0
	for tenth, i := (&Tracer{OneIn: 10}), 0; i < 20000; i++ {
		if tenth.Begin(other, nil) != nil {
			sampled++
		}
	}
	if sampled < 1600 || sampled > 2400 { // 9 standard deviations
		t.Errorf("%d of 20000 are sampled", sampled)
	}
}

var record = accesslog.Record{
	Began: 6 * time.Millisecond, Waited: time.Millisecond, Answered: 2 * time.Millisecond, Attempts: 2, Client: netip.MustParseAddrPort("192.0.2.1:7"), Method: "GET", Host: "a.example",
	Path: "/x?secret=1", Route: "shop", Rule: "shop/0", Pool: "p", Backend: "b", Protocol: "HTTP/2", Status: 503, Error: "connection_refused", Listener: "web", BytesOut: 7,
	Fields: []semantics.Field{{Name: "user-agent", Value: "curl\xff/8"}},
}

func TestSpansOfARequest(t *testing.T) {
	var got []Span
	tr := &Tracer{OneIn: 1, Export: func(s Span) { got = append(got, s) }}
	now := time.Unix(1_790_000_000, 0)
	r := tr.Begin(netip.Addr{}, fields(parent))
	tr.End(r, &record, now)
	if len(got) != 2 {
		t.Fatalf("%d spans", len(got))
	}
	server, back := got[0], got[1]
	if server.Kind != KindServer || server.Name != "GET shop" || server.Context.Span != r.Server.Span || server.Parent != r.Parent || !server.Failed || !server.Ended.Equal(now) || server.Ended.Sub(server.Began) != record.Began {
		t.Errorf("%+v", server)
	}
	if back.Kind != KindClient || back.Parent != server.Context.Span || back.Context.Span != r.Backend || back.Trace != server.Trace || back.Began.Sub(server.Began) != record.Waited || back.Header.Sub(back.Began) != record.Answered {
		t.Errorf("%+v", back)
	}
	text, err := json.Marshal(request(&ExporterOptions{Service: "s"}, got))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"traceId":"0af7651916cd43dd8448eb211c80319c"`, `"parentSpanId":"b7ad6b7169203331"`, `"stringValue":"/x"`, `"intValue":"503"`, `"kind":2`, `"kind":3`, `"code":2`, "curl\ufffd/8"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
	if strings.Contains(string(text), "secret") {
		t.Error("the query is in the span")
	}
	got = nil
	tr.End(tr.Begin(netip.Addr{}, nil), &accesslog.Record{Method: "GET", Status: 404}, now)
	if len(got) != 1 || got[0].Failed || got[0].Parent != [8]byte{} || got[0].Name != "GET" {
		t.Errorf("a request without a backend: %+v", got)
	}
}

// newExporter returns an exporter that logs nothing.
func newExporter(url string) *Exporter {
	return NewExporter(ExporterOptions{URL: url, Service: "s", Log: slog.New(slog.DiscardHandler), Counts: new(Counts)})
}

func (e *Exporter) counts() (sent, dropped uint64) {
	return e.opt.Counts.Sent.Load(), e.opt.Counts.Dropped.Load()
}

// collector is a server that takes spans, or answers with a status.
type collector struct {
	*httptest.Server
	mu     sync.Mutex
	spans  []string
	status atomic.Int32
	asked  atomic.Int32
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		c.asked.Add(1)
		if s := c.status.Load(); s != 0 {
			w.WriteHeader(int(s))
			return
		}
		body, _ := io.ReadAll(q.Body)
		var m exportRequest
		if err := json.Unmarshal(body, &m); err != nil || q.Header.Get("Content-Type") != "application/json" || q.Method != http.MethodPost {
			t.Errorf("%v: %s", err, body)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range m.Resources[0].Scopes[0].Spans {
			c.spans = append(c.spans, s.Name)
		}
		_, _ = io.WriteString(w, `{"partialSuccess":{"rejectedSpans":"1"}}`)
	}))
	t.Cleanup(c.Close)
	return c
}

// All spans are sent in batches or counted, those that wait at the end included.
func TestSpansAreSentOrCounted(t *testing.T) {
	c := newCollector(t)
	e := newExporter(c.URL)
	const n = 1500
	for range n {
		e.Export(Span{Name: "x"})
	}
	e.Close()
	e.Export(Span{Name: "late"})
	sent, dropped := e.counts()
	if len(c.spans) != n || sent+dropped != n+1 || dropped != uint64(c.asked.Load())+1 || c.asked.Load() > 10 {
		t.Errorf("%d came in %d requests, %d sent, %d dropped", len(c.spans), c.asked.Load(), sent, dropped)
	}
}

// What a collector may take later is tried again, a few times; what it never takes is not.
func TestFailuresAreTriedAgain(t *testing.T) {
	retryAfter = time.Millisecond
	for status, asked := range map[int32]int32{503: attempts, 429: attempts, 400: 1, 404: 1} {
		c := newCollector(t)
		c.status.Store(status)
		e := newExporter(c.URL)
		if rejected, _, err := e.post([]byte("{}")); err == nil || rejected != 0 {
			t.Errorf("%d: %v", status, err)
		}
		c.asked.Store(0)
		e.send([]Span{{}, {}})
		if sent, dropped := e.counts(); c.asked.Load() != asked || sent != 0 || dropped != 2 {
			t.Errorf("%d: asked %d times, %d sent, %d dropped", status, c.asked.Load(), sent, dropped)
		}
		c.status.Store(0)
		e.send([]Span{{}, {}})
		if sent, _ := e.counts(); sent != 1 {
			t.Errorf("%d: %d sent afterwards", status, sent)
		}
		e.Close()
	}
}

// A collector that takes nothing costs spans, not time: Export does not wait, and Close not for long.
func TestASlowCollectorDelaysNothing(t *testing.T) {
	hold := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hold }))
	defer s.Close()
	defer close(hold)
	e := newExporter(s.URL)
	for range 3 * queued {
		e.Export(Span{})
	}
	if _, dropped := e.counts(); dropped < queued {
		t.Errorf("%d are dropped", dropped)
	}
	e.Close()
	if sent, _ := e.counts(); sent != 0 {
		t.Errorf("%d are sent", sent)
	}
}
