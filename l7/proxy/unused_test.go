package proxy

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"github.com/millrace/millrace/l7/pool"
)

// heldBackend answers each request once, when goOn permits it. arrived has one value for each.
func heldBackend(t *testing.T) (addr string, arrived, goOn chan bool) {
	arrived, goOn = make(chan bool, 8), make(chan bool, 8)
	return script(t, func(c net.Conn) {
		for br := bufio.NewReader(c); ; {
			if _, err := http.ReadRequest(br); err != nil {
				return
			}
			arrived <- true
			<-goOn
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	}), arrived, goOn
}

// A connection that was busy while its pool or its backend was taken away is not kept, and counts against no limit.
func TestUnusedConnectionsAreNotKept(t *testing.T) {
	for _, gone := range []bool{false, true} {
		t.Run(fmt.Sprintf("backend is gone=%v", gone), func(t *testing.T) {
			addr, arrived, goOn := heldBackend(t)
			other, _, otherGoOn := heldBackend(t)
			otherGoOn <- true
			limited := func(name, addr string) []pool.BackendOptions {
				return []pool.BackendOptions{{Name: name, Address: netip.MustParseAddrPort(addr), Limits: pool.Limits{Connections: 1}}}
			}
			r := newRig(t, addr, func(r *rig) {
				p, err := pool.New(pool.Options{Name: "p"}, limited("b", addr), 1)
				must(t, err)
				r.pool.Pool = p
			})
			done := make(chan error, 1)
			go func() {
				resp, err := http.Get("http://" + r.addr)
				if err == nil {
					err = resp.Body.Close()
				}
				done <- err
			}()
			<-arrived
			tree := r.tree
			if gone {
				r.do(func() { must(t, r.pool.Update(r.loop.Now(), pool.Options{Name: "p"}, limited("c", other))) })
			} else {
				fresh, rule := *r.pool, *r.rule
				rule.Backends = []Weighted{{Pool: &fresh, Weight: 1}}
				tree = &Tree{Pools: []*Pool{&fresh}}
				for _, l := range r.tree.Listeners {
					changed := *l
					changed.Rules = []*Rule{&rule}
					tree.Listeners = append(tree.Listeners, &changed)
				}
			}
			r.do(func() { must(t, r.worker.Apply(tree)) })
			goOn <- true
			must(t, <-done)
			r.settled()
			goOn <- true
			resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + r.addr)
			must(t, err)
			if resp.StatusCode != 200 {
				t.Errorf("%v after the reload", resp)
			}
			resp.Body.Close()
			r.settled()
			r.do(func() {
				for k := range r.worker.backs {
					if r.worker.unused(k.pool, k.backend) {
						t.Errorf("connections of %s are still known", k.backend.Name())
					}
				}
			})
		})
	}
}
