package proxy

import (
	"bytes"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/l7/trace"
)

// A sampled request names its span to the backend in place of the client's, once, and has spans and a line with its trace when it
// ends. One that is not sampled passes the field as it came.
func TestSampledRequestsHaveSpans(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, sampled := range []bool{true, false} {
		var spans []trace.Span
		r := newMemRig(t, func(_ *memRig, tree *Tree) {
			tree.Tracer = &trace.Tracer{OneIn: map[bool]int{true: 1, false: 1 << 60}[sampled], Export: func(s trace.Span) { spans = append(spans, s) }}
		})
		r.backend = func(*memtransport.Peer) {}
		traces := ""
		r.worker.OnRecord(func(rec *Record) { traces += rec.TraceID })
		c := r.connect(memHTTP1)
		c.Write([]byte("GET /x HTTP/1.1\r\nhost: a.test\r\ntraceparent: " + parent + "\r\ntracestate: a=b\r\n\r\n"))
		r.pass(time.Second)
		got := r.backs[0].Take()
		r.backs[0].Write([]byte("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"))
		r.run()
		if n := bytes.Count(bytes.ToLower(got), []byte("traceparent")); n != 1 || !bytes.Contains(got, []byte("a=b")) {
			t.Errorf("sampled %v: the backend gets %q", sampled, got)
		}
		if !sampled {
			if !bytes.Contains(got, []byte(parent)) || len(spans) != 0 || traces != "" {
				t.Errorf("the backend gets %q, %d spans, trace %q", got, len(spans), traces)
			}
			continue
		}
		if len(spans) != 2 || traces != "0af7651916cd43dd8448eb211c80319c" {
			t.Fatalf("%d spans, trace %q", len(spans), traces)
		}
		if out := spans[1].Context; !bytes.Contains(got, out.Append(nil)) || bytes.Contains(got, []byte("b7ad6b7169203331")) {
			t.Errorf("the backend gets %q, want %s", got, out.Append(nil))
		}
		if d := spans[0].Ended.Sub(spans[0].Began); d < time.Second || spans[1].Header.IsZero() {
			t.Errorf("%v, header %v", d, spans[1].Header)
		}
	}
}

// A request that was begun under a tracer that a reload has taken away ends without spans.
func TestARequestOutlivesItsTracer(t *testing.T) {
	var spans int
	r := newMemRig(t, func(_ *memRig, tree *Tree) {
		tree.Tracer = &trace.Tracer{OneIn: 1, Export: func(trace.Span) { spans++ }}
	})
	r.backend = func(*memtransport.Peer) {}
	c := r.connect(memHTTP1)
	c.Write([]byte("GET /x HTTP/1.1\r\nhost: a.test\r\n\r\n"))
	r.run()
	next := *r.worker.tree
	next.Tracer = nil
	if err := r.worker.Apply(&next); err != nil {
		t.Fatal(err)
	}
	r.backs[0].Write([]byte("HTTP/1.1 204 No Content\r\n\r\n"))
	r.run()
	if got := c.Take(); !bytes.HasPrefix(got, []byte("HTTP/1.1 204")) || spans != 0 {
		t.Errorf("%q, %d spans", got, spans)
	}
}
