package collective

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

// cutting is TCP whose connections a test can end: those that were dialed to an address of a rail.
type cutting struct {
	kernelTCP
	mu    sync.Mutex
	conns map[string][]net.Conn // by the host that was dialed
}

func (c *cutting) Dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := c.kernelTCP.Dial(ctx, address)
	if host, _, e := net.SplitHostPort(address); err == nil && e == nil {
		c.mu.Lock()
		c.conns[host] = append(c.conns[host], conn)
		c.mu.Unlock()
	}
	return conn, err
}

// cut ends all connections of a rail.
func (c *cutting) cut(host string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns[host] {
		_ = conn.Close()
	}
}

// TestARailIsKilled ends one of three rails of all ranks in the middle of operations, which end with the right sums.
func TestARailIsKilled(t *testing.T) {
	tr := &cutting{conns: map[string][]net.Conn{}}
	const n = 4
	errs := group(t, n, func(cfg *Config) {
		cfg.Rails, cfg.Transport, cfg.Key = []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}, tr, []byte("key")
	}, func(c *Comm) error {
		v := make([]int64, 200_000)
		for round := range 12 {
			if c.Rank() == 1 && round == 4 {
				time.AfterFunc(time.Millisecond, func() { tr.cut("127.0.0.2") })
			}
			for i := range v {
				v[i] = int64(c.Rank() + i)
			}
			if err := c.AllReduce(Slice(v), Slice(v), Sum); err != nil {
				return err
			}
			for i := range v {
				if v[i] != int64(n*(n-1)/2+n*i) {
					return fmt.Errorf("round %d: element %d is %d", round, i, v[i])
				}
			}
		}
		if peer := (c.Rank() + 1) % n; c.Rails(peer) != 2 || c.Rails(c.Rank()) != 0 {
			return fmt.Errorf("%d rails to rank %d are left", c.Rails(peer), peer)
		}
		return c.Barrier() // the others' links are open until all have looked
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}
