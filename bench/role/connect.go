package role

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/bench/harness"
)

// A connection of the connect and serve roles: one request, one answer, and the end.
const requestBytes = 64

// openServe accepts connections at -to, answers one request on each and closes it.
func openServe(o roleOptions) (roleWork, error) {
	l, err := net.Listen("tcp", o.stream.To)
	if err != nil {
		return roleWork{}, err
	}
	var served atomic.Uint64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if answer(c) == nil {
					served.Add(1)
				}
			}()
		}
	}()
	return roleWork{
		version: "Go net",
		counts:  func() (map[string]uint64, error) { return map[string]uint64{"connections": served.Load()}, nil },
		stop:    l.Close,
	}, nil
}

func answer(c net.Conn) error {
	var buf [requestBytes]byte
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.ReadFull(c, buf[:]); err != nil {
		return err
	}
	_, err := c.Write(buf[:])
	return err
}

// connectTimeout is the time that a client waits: a lost SYN is repeated after 1 s, and what takes longer
// is lost for a user.
const connectTimeout = 2 * time.Second

// connectWorkers bounds the connections that are open at once.
const connectWorkers = 256

// openConnect makes -rate new connections per second to -to, whether or not those before have ended.
// At most connectWorkers are open; what is due then is late.
func openConnect(o roleOptions) (roleWork, error) {
	if o.rate <= 0 {
		return roleWork{}, errors.New("no rate")
	}
	c := &connecter{to: o.stream.To, serverFirst: o.serverFirst, due: make(chan struct{}, 1<<16)}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range connectWorkers {
		all.Go(func() { c.work(ctx) })
	}
	all.Go(func() { c.pace(ctx, time.Second/time.Duration(o.rate)) })
	return roleWork{
		version: "Go net",
		counts:  func() (map[string]uint64, error) { return c.counts(), nil },
		stop: func() error {
			cancel()
			all.Wait()
			return nil
		},
	}, nil
}

type connecter struct {
	to           string
	serverFirst  bool
	due          chan struct{}
	good, failed atomic.Uint64
	micros       atomic.Uint64 // of the good ones, summed

	mu    sync.Mutex
	times []uint32 // of the good ones since the last counts, microseconds
}

// counts returns sums, and percentiles of what has ended since they were asked for last.
func (c *connecter) counts() map[string]uint64 {
	counts := map[string]uint64{"connections": c.good.Load(), "failed": c.failed.Load(), "micros": c.micros.Load()}
	c.mu.Lock()
	times := c.times
	c.times = nil
	c.mu.Unlock()
	if n := len(times); n > 0 {
		slices.Sort(times)
		counts[harness.P50], counts[harness.P99] = uint64(times[n/2]), uint64(times[n*99/100])
	}
	return counts
}

// pace makes a connection due every so often, on average.
func (c *connecter) pace(ctx context.Context, every time.Duration) {
	start, n := time.Now(), 0
	for ctx.Err() == nil {
		for time.Since(start) > time.Duration(n)*every {
			n++
			select {
			case c.due <- struct{}{}:
			default: // hopelessly late: it counts as failed
				c.failed.Add(1)
			}
		}
		time.Sleep(every/2 + time.Duration(rand.Int64N(int64(every))))
	}
}

func (c *connecter) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.due:
		}
		begin := time.Now()
		if err := c.connect(ctx); err != nil {
			if ctx.Err() == nil {
				c.failed.Add(1)
			}
			continue
		}
		took := time.Since(begin).Microseconds()
		c.good.Add(1)
		c.micros.Add(uint64(took))
		c.mu.Lock()
		c.times = append(c.times, uint32(took))
		c.mu.Unlock()
	}
}

func (c *connecter) connect(ctx context.Context) error {
	d := net.Dialer{Timeout: connectTimeout}
	conn, err := d.DialContext(ctx, "tcp", c.to)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(connectTimeout))
	var buf [requestBytes]byte
	if _, err := conn.Write(buf[:]); err != nil {
		return err
	}
	if _, err = io.ReadFull(conn, buf[:]); err != nil || !c.serverFirst {
		return err
	}
	if _, err = conn.Read(buf[:]); err != io.EOF {
		return fmt.Errorf("the server did not close: %v", err)
	}
	return nil
}
