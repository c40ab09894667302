package main

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/gateway/config"
	l4control "github.com/millrace/millrace/l4/control"
	"github.com/millrace/millrace/l4/datapath"
)

// drainWait are the flags by which drain waits.
type drainWait struct {
	on      bool
	timeout time.Duration // 0 is none
}

// check reports flags that contradict each other.
func (w *drainWait) check() error {
	switch {
	case w.timeout < 0:
		return usage("--timeout %v is negative", w.timeout)
	case w.timeout > 0 && !w.on:
		return usage("--timeout is for --wait")
	}
	return nil
}

// The wait asks the gateway at this interval, and prints progress at most this often.
const (
	drainPoll     = 250 * time.Millisecond
	drainProgress = time.Second
)

// until waits until a backend that drains has no connections left, and prints how many there are to the error
// output when their number has changed. It fails when the timeout passes, and when the backend takes new connections again.
func (w *drainWait) until(ctx context.Context, c *console, g *admin.Client, t admin.Target) error {
	deadline := context.WithoutCancel(ctx)
	cancel := func() {}
	if w.timeout > 0 {
		deadline, cancel = context.WithTimeout(deadline, w.timeout)
	}
	defer cancel()
	poll := time.NewTicker(drainPoll)
	defer poll.Stop()
	var said time.Time
	var last uint64
	for {
		n, err := drainingConnections(ctx, g, t)
		if err != nil || n == 0 {
			return err
		}
		if now := time.Now(); n != last && now.Sub(said) >= drainProgress {
			fmt.Fprintf(c.err, "%s of %s: %s connections\n", t.Backend, t.Service, group(n))
			said, last = now, n
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.Done():
			return coded{fmt.Errorf("%s of %s still has %s connections after %v; it drains on", t.Backend, t.Service, group(n), w.timeout), errTimeout}
		case <-poll.C:
		}
	}
}

// drainingConnections returns the number of connections of a backend, over all its addresses; of a pool's that of its requests.
// Those that both ends have closed or one has reset are not waited for: the gateway remembers them for minutes, as TIME-WAIT does.
func drainingConnections(ctx context.Context, g *admin.Client, t admin.Target) (n uint64, err error) {
	n, closing, err := openConnections(ctx, g, t)
	if err != nil || n == 0 || closing < n {
		return n - closing, err
	}
	n = 0 // some may be closed by one end alone, and bring data still
	err = g.Connections(ctx, admin.Query{Service: t.Service, Backend: t.Backend}, func(one admin.Connection) bool {
		if one.State != datapath.StateTimeWait && one.State != datapath.StateReset {
			n++
		}
		return true
	})
	return n, err
}

// openConnections returns how many connections a backend that drains has, and how many of them a FIN or a RST has begun to close.
func openConnections(ctx context.Context, g *admin.Client, t admin.Target) (n, closing uint64, err error) {
	st, err := g.Status(ctx, l4control.Selection{Services: []string{t.Service}})
	if err != nil {
		return 0, 0, err
	}
	if st.Listeners != nil {
		for _, p := range st.Listeners.Pools {
			for i := range p.Backends {
				b := &p.Backends[i]
				if b.Name != t.Backend {
					continue
				}
				if b.State == string(config.StateActive) {
					return 0, 0, fmt.Errorf("%s of %s does not drain any more: it is %s", t.Backend, t.Service, b.State)
				}
				n += uint64(b.Requests)
			}
		}
	}
	for _, s := range st.Gateway.Services {
		for i := range s.Backends {
			b := &s.Backends[i]
			if b.Name != t.Backend {
				continue
			}
			if b.State == config.StateActive || b.State == config.StateFilling {
				return 0, 0, fmt.Errorf("%s of %s does not drain any more: it is %s", t.Backend, t.Service, b.State)
			}
			n, closing = n+b.Connections, closing+b.Closing
		}
	}
	return n, closing, nil
}
