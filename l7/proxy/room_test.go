package proxy

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"testing"

	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/transport"
)

// Where a backend may have no more connections, a worker gives up an idle one for a request of another.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	for _, to := range []PoolProtocol{HTTP1, HTTP2} {
		t.Run(fmt.Sprint("protocol ", to), func(t *testing.T) {
			addr := echoBackend(t, true)
			r := newRig(t, addr, func(r *rig) {
				p, err := pool.New(pool.Options{Name: "p"}, []pool.BackendOptions{
					{Name: "b", Address: netip.MustParseAddrPort(addr), Limits: pool.Limits{Connections: 1}},
				}, 2)
				must(t, err)
				r.pool.Pool, r.pool.Protocol = p, to
			})
			loop, err := transport.NewEpollLoop()
			must(t, err)
			other := NewWorker(loop, 1)
			other.Share(&r.endpoints)
			ln := *r.tree.Listeners[0]
			ln.Address = free(t)
			must(t, other.Apply(&Tree{Listeners: []*Listener{&ln}, Pools: r.tree.Pools}))
			done := make(chan error, 1)
			go func() { done <- loop.Run(context.Background()) }()
			defer func() {
				loop.Close()
				must(t, <-done)
			}()
			for _, at := range []string{r.addr, ln.Address.String(), r.addr} {
				resp, err := http.Get("http://" + at)
				must(t, err)
				if resp.Body.Close(); resp.StatusCode != 200 {
					t.Errorf("%v", resp)
				}
			}
		})
	}
}
