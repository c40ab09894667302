package proxy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/wscases"
	"github.com/millrace/millrace/websocket"
)

// The cases of package wscases against a server behind the gateway: every frame, right or wrong, and every end passes as it is. With
// HTTP/2 between two gateways both sides of one are extended CONNECT (RFC 8441).
func TestWebSocketCases(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{
			Conn: websocket.ConnOptions{Deflate: websocket.Deflate{Enabled: true, Threshold: 1}},
		})
		if err != nil {
			return
		}
		defer c.CloseNow()
		for {
			op, p, err := c.ReadMessage(nil)
			if err != nil || c.WriteMessage(op, p) != nil {
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	h1 := newRig(t, strings.TrimPrefix(server.URL, "http://"), nil)
	h2 := newRig(t, h1.addr, func(r *rig) { r.pool.Protocol = HTTP2 })
	for name, r := range map[string]*rig{"HTTP/1.1": h1, "HTTP/2": h2} {
		t.Run(name, func(t *testing.T) {
			cases := make(chan wscases.Case)
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					for c := range cases {
						if err := wscases.RunServer(r.addr, c, 60*time.Second); err != nil {
							t.Errorf("%s %s: %v", c.Section, c.Name, err)
						}
					}
				})
			}
			n := 0
			for _, c := range wscases.Cases() {
				cases <- c
				n++
			}
			close(cases)
			all.Wait()
			t.Logf("%d cases", n)
		})
	}
	h2.settled()
	h1.settled()
}
