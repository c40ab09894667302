package proxy

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/semantics"
)

// A response with trailers that frame or route is passed on without them.
func TestForbiddenTrailersOfResponsesAreDropped(t *testing.T) {
	forbidden := []string{"content-length", "host", "trailer", "te", "content-type", "set-cookie"}
	r := newMemRig(t, nil)
	r.backend = func(p *memtransport.Peer) {
		p.Handler = func(p *memtransport.Peer) {
			if len(p.Take()) == 0 {
				p.Close()
				return
			}
			p.Write([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n" + strings.Join(forbidden, ": 1\r\n") + ": 1\r\nTransfer-Encoding: x\r\nX-Sum: 7\r\n\r\n"))
		}
	}
	if got := r.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); !strings.HasSuffix(got, "\r\n0\r\nx-sum: 7\r\n\r\n") {
		t.Errorf("from HTTP/1.1: %q", got)
	}
	r.nothingLeft()

	r = newMemRig(t, func(r *memRig, _ *Tree) { r.to.Protocol = HTTP2 })
	r.backend = func(p *memtransport.Peer) {
		serveHTTP2(p, http2.Options{}, func(m *http2.Machine, ev http2.Event) {
			if ev.Kind != http2.End {
				return
			}
			out, err := m.AppendResponse(nil, ev.Stream, &semantics.Message{Status: 200, ContentLength: -1}, false)
			must(t, err)
			fields := []semantics.Field{{Name: "x-sum", Value: "7"}}
			for _, name := range forbidden {
				if name != "te" {
					fields = append(fields, semantics.Field{Name: name, Value: "1"})
				}
			}
			out, err = m.AppendTrailers(out, ev.Stream, fields)
			must(t, err)
			p.Write(out)
			m.Release(ev.Stream)
		})
	}
	got := r.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if !strings.Contains(got, "x-sum: 7\r\n\r\n") || slices.ContainsFunc(forbidden, func(name string) bool { return strings.Contains(got, "\r\n"+name+": 1") }) {
		t.Errorf("from HTTP/2: %q", got)
	}
	r.nothingLeft()
}
