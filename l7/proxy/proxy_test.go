package proxy

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
)

// Clients of net/http get what backends of net/http answer: by HTTP/1.1 and HTTP/2 on both sides, plain and with TLS.
func TestRelaysRequests(t *testing.T) {
	for _, backH2 := range []bool{false, true} {
		backend := echoBackend(t, backH2)
		r := newRig(t, backend, func(r *rig) {
			if backH2 {
				r.pool.Protocol = HTTP2
			}
		})
		plain := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
		for _, c := range []struct {
			name   string
			client *http.Client
			url    string
		}{
			{"h1", plain, "http://" + r.addr}, {"h1 tls", r.client(false), "https://" + r.secure}, {"h2 tls", r.client(true), "https://" + r.secure},
		} {
			name := c.name + " to h1"
			if backH2 {
				name = c.name + " to h2"
			}
			t.Run(name, func(t *testing.T) {
				var wg sync.WaitGroup
				for g := range 8 {
					wg.Go(func() {
						rnd := rand.New(rand.NewPCG(uint64(g), 1))
						for range 20 {
							body := make([]byte, rnd.IntN(1<<rnd.IntN(21)))
							for i := range body {
								body[i] = byte(rnd.Uint32())
							}
							post(t, c.client, c.url+"/a?b=c", body)
						}
					})
				}
				wg.Wait()
			})
		}
		r.settled()
		t.Logf("%+v", r.worker.Stats())
	}
}
