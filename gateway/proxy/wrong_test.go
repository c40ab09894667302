package proxy

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/wrongcases"
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
