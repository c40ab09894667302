package proxy

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/internal/testkit/memtransport"
)

// bomb is a text of 4 MiB, after a beginning, in a few kB.
func bomb(t *testing.T, begin string) string {
	t.Helper()
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if _, err := w.Write(append([]byte(begin), make([]byte, 4<<20)...)); err != nil {
		t.Fatal(err)
	}
	must(t, w.Close())
	return b.String()
}

// Decompression bombs in requests and responses that are inspected: what is decoded has a bound, which the policy counts, and is free again
// at the end. What is within the bound is read, and a message that matches nothing passes as it came.
func TestDecompressionBombsAreReadUpToTheBound(t *testing.T) {
	const bound = 64 << 10
	for _, c := range []struct{ begin, status string }{{"", "200"}, {"evilbody", "403"}} {
		r := newInspectRig(t, inspect.Prevent, 1<<16, evilBody+evilResponses)
		r.use(inspect.New(compiledRules(t, evilBody+evilResponses, nil), inspect.Config{Inline: true, Refuse: true, BodyBytes: bound}, r.alert))
		body := bomb(t, c.begin)
		client := r.connect(memHTTP1)
		client.Write([]byte(fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n", len(body)) + body[:len(body)-1]))
		r.run()
		// At the bound the text is evaluated and given back, before the message has ended.
		if _, used := r.engine.Flows(); used > bound/2 {
			t.Errorf("a body of %d bytes takes %d, with a bound of %d", len(body), used, bound)
		}
		client.Write([]byte(body[len(body)-1:]))
		r.run()
		if got := string(client.Take()); !strings.HasPrefix(got, "HTTP/1.1 "+c.status) || strings.HasSuffix(r.received(), body) != (c.status == "200") {
			t.Errorf("a request that begins with %q: %q, %d bytes at the backend", c.begin, got, len(r.received()))
		}
		client.Close()
		r.run()
		r.released(client)
	}
	for begin, status := range map[string]string{"fine": "200", "fine secret": "502"} {
		r := newInspectRig(t, inspect.Prevent, 1<<16, evilResponses)
		r.use(inspect.New(compiledRules(t, evilResponses, nil), inspect.Config{Inline: true, Refuse: true, BodyBytes: bound}, r.alert))
		body := bomb(t, begin)
		r.backend = func(p *memtransport.Peer) {
			p.Handler = func(p *memtransport.Peer) {
				if len(p.Take()) > 0 {
					p.Write([]byte(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(body), body)))
				}
			}
		}
		if got := r.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 "+status) || strings.HasSuffix(got, body) != (status == "200") {
			t.Errorf("a response that begins with %q: %.200q", begin, got)
		}
	}
}
