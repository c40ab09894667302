package proxy

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/wrongcases"
	"github.com/millrace/millrace/l7/side"
)

// What passes the gateway of the corpus is the requests that may pass, in a form that nobody has to repair, however the input is
// cut. Nothing is left of it.
func TestWrongInput(t *testing.T) {
	for _, c := range wrongcases.All() {
		playWrong(t, &c, memHTTP1, nil)
		if len(c.Bytes) < 4096 {
			playWrong(t, &c, memHTTP1, func(int) int { return 1 })
		}
	}
	for _, c := range wrongcases.Downgrades() {
		playWrong(t, &c.Case, memHTTP2, nil)
		if len(c.Bytes) < 4096 {
			playWrong(t, &c.Case, memHTTP2, func(int) int { return 1 })
		}
	}
}

func playWrong(t *testing.T, c *wrongcases.Case, addr netip.AddrPort, cut func(int) int) {
	t.Helper()
	r := newMemRig(t, nil)
	backend := &recorder{}
	r.backend, r.loop.Cut = backend.serve, cut
	client := r.connect(addr)
	client.Write([]byte(c.Bytes))
	r.run()
	answer := string(client.Take())
	if err := c.Check(backend.connections...); err != nil {
		t.Errorf("%s (%s): %v\nsent %.300q\nreceived %.300q\nanswered %.200q", c.Name, c.Origin, err, c.Bytes, backend.connections, answer)
	}
	if addr == memHTTP1 && c.Passed == 0 && !c.Unfinished && (!strings.HasPrefix(answer, "HTTP/1.1 4") && !strings.HasPrefix(answer, "HTTP/1.1 5") || !client.Ended) {
		if !strings.Contains(answer, "proxy-status: millrace; error=") {
			t.Errorf("%s (%s): answered %.300q, ended: %v\nsent %.300q", c.Name, c.Origin, answer, client.Ended, c.Bytes)
		}
	}
	r.nothingLeft(client)
}

// Refusals are counted by their reason.
func TestRefusalsAreCounted(t *testing.T) {
	for bytes, want := range map[string]string{
		"GET /\r\n\r\n": "syntax", "GET / HTTP/1.1\r\nX: a\nHost: a\r\n\r\n": "syntax", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n": "framing",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx": "framing", "GET / HTTP/1.1\r\n\r\n": "host", "GET x HTTP/1.1\r\nHost: a\r\n\r\n": "target",
		"GET / HTTP/1.9\r\nHost: a\r\n\r\n": "version", "GET /" + strings.Repeat("a", 10000) + " HTTP/1.1\r\n": "size",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nHost: b\r\n\r\n": "trailer", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: x\r\n\r\n": "expectation",
		"GET /.. HTTP/1.1\r\nHost: a\r\n\r\n": "path",
	} {
		r := newMemRig(t, nil)
		r.ask(bytes)
		wantRefusal(t, r, bytes, want)
	}
	for bytes, want := range map[string]string{
		wrongcases.Section(1, endStream, get2[1:]): "message", wrongcases.Section(2, endStream, get2): "protocol",
		strings.Repeat(wrongcases.Frame(frameSettings, 0, 0, ""), 20000): "flood", wrongcases.Section(1, endStream, append(get2[:4:4], wrongcases.Field{"x", strings.Repeat("y", 70000)})): "size",
	} {
		r := newMemRig(t, nil)
		c := r.connect(memHTTP2)
		c.Write([]byte(wrongcases.Preface + bytes))
		r.run()
		wantRefusal(t, r, bytes, want)
		r.nothingLeft(c)
	}
}

func wantRefusal(t *testing.T, r *memRig, bytes, want string) {
	t.Helper()
	s := r.worker.Stats()
	for i, n := range s.RefusedBy {
		if name := side.Refusal(i).String(); (n > 0) != (name == want) {
			t.Errorf("%.100q: %d refused for %s, want %s", bytes, n, name, want)
		}
	}
	if s.Refused != 1 {
		t.Errorf("%.100q: %d refused", bytes, s.Refused)
	}
}
