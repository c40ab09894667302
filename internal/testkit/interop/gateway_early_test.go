package interop

import (
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/l7/proxy"
)

// aioquic takes early data of the gateway: what is safe, once there is a session to resume, and nothing else.
func TestEarlyDataToAioquicThroughGateway(t *testing.T) {
	python := aioquicPython(t)
	server, client := certificate(t, "h3")
	cert, key := writePEM(t, server)
	port := startAioquicScript(t, python, "testdata/aioquic_h3.py", cert, key)
	g := newTestGateway(t, "127.0.0.1:"+port, func(g *testGateway) {
		client.ClientSessionCache = tls.NewLRUClientSessionCache(8)
		g.pool.Protocol, g.pool.TLS, g.pool.EarlyData = proxy.HTTP3, client, true
		g.pool.MaxUses = 1 // each request has a connection of its own
	})
	c := &http.Client{Timeout: 30 * time.Second}
	ask := func(method string) (early string) {
		t.Helper()
		req, err := http.NewRequest(method, "http://"+g.plain.Address.String()+"/", nil)
		g.must(err)
		if method == "POST" {
			req.Body, req.ContentLength = io.NopCloser(strings.NewReader("hello")), 5
		}
		resp, err := c.Do(req)
		g.must(err)
		body, err := io.ReadAll(resp.Body)
		g.must(err)
		g.must(resp.Body.Close())
		if resp.StatusCode != 200 || resp.Header.Get("X-Method") != method || method == "POST" && string(body) != "hello" {
			t.Fatalf("%s: status %d, %q, %v", method, resp.StatusCode, body, resp.Header)
		}
		return resp.Header.Get("X-Early")
	}
	if ask("GET") != "0" {
		t.Error("early data without a session")
	}
	early := map[string]int{}
	for range 10 { // a connection whose only request is early ends before its ticket comes: the next one resumes nothing
		for _, method := range []string{"GET", "POST", "HEAD", "POST"} {
			if ask(method) == "1" {
				early[method]++
			}
		}
	}
	g.settled()
	s := g.stats()
	t.Logf("early by method: %v; %d sent early, %d sent again, %d connections", early, s.EarlySent, s.EarlyAgain, s.BackOpened)
	if early["GET"] == 0 || early["HEAD"] == 0 || early["POST"] != 0 || s.EarlySent == 0 {
		t.Errorf("early by method: %v, %+v", early, s)
	}
}
