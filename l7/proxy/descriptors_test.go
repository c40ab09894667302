package proxy

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/quicconn"
	"github.com/millrace/millrace/l7/transport"
	"github.com/millrace/millrace/quic"
)

// scarce is a loop that can open no connection for a number of attempts.
type scarce struct {
	transport.Loop
	failures int // that are left; below 0 for ever
	dials    int
	idle     func() int // connections that keep their descriptor, nil if none do
}

func (s *scarce) Dial(a netip.AddrPort, h transport.Handler) (transport.Conn, error) {
	s.dials++
	if s.failures != 0 {
		s.failures--
		return nil, unix.EMFILE
	}
	if s.idle != nil && s.idle() > 0 {
		return nil, unix.EMFILE
	}
	return s.Loop.Dial(a, h)
}

// Requests and connections that are passed on wait until there is a descriptor.
func TestRequestsWaitUntilThereIsADescriptor(t *testing.T) {
	for _, mode := range []StreamMode{NoStream, StreamTCP} {
		for _, p := range []PoolProtocol{HTTP1, HTTP2} {
			t.Run(fmt.Sprint("mode ", mode, ", protocol ", p), func(t *testing.T) {
				r := newRig(t, echoBackend(t, true), func(r *rig) {
					r.pool.Protocol, r.pool.Wait, r.tree.Listeners[0].Stream = p, patience, mode
				})
				s := &scarce{Loop: r.loop, failures: 30}
				r.do(func() { r.worker.Loop = s })
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() {
						resp, err := r.client(false).Get("http://" + r.addr)
						if err != nil {
							t.Error(err)
							return
						}
						if resp.Body.Close(); resp.StatusCode != 200 {
							t.Error(resp.StatusCode, resp.Header)
						}
					})
				}
				wg.Wait()
				r.settled()
				r.do(func() {
					if n := len(r.worker.queues); n != 0 || s.failures != 0 {
						t.Errorf("%d queues are left, %d failures", n, s.failures)
					}
				})
			})
		}
	}
}

// A gateway without descriptors answers so after the time that a request may wait, and does not blame the backend. Meanwhile it asks
// rarely, and of more requests than may wait the others are answered at once.
func TestALackOfDescriptorsIsNotTheBackends(t *testing.T) {
	const wait = 500 * time.Millisecond
	r := newRig(t, "192.0.2.1:1", func(r *rig) {
		p, err := pool.New(pool.Options{Name: "p"}, []pool.BackendOptions{
			{Name: "b", Address: netip.MustParseAddrPort("192.0.2.1:1"), Limits: pool.Limits{Pending: 4}},
		}, 1)
		must(t, err)
		r.pool.Pool, r.pool.Wait = p, wait
	})
	s := &scarce{Loop: r.loop, failures: -1}
	r.do(func() { r.worker.Loop = s })
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			resp, err := r.client(false).Get("http://" + r.addr)
			if err != nil {
				t.Error(err)
				return
			}
			_ = resp.Body.Close()
			if s := resp.Header.Get("proxy-status"); resp.StatusCode != 503 || !strings.Contains(s, "connection_limit_reached") {
				t.Errorf("%d %s", resp.StatusCode, s)
			}
		})
	}
	wg.Wait()
	b := r.pool.Status(r.loop.Now()).Backends[0]
	if b.Expired != 4 || b.Refused < 2 || b.Conns != 0 || b.Failures != [pool.Failures]uint64{pool.Canceled: b.Expired + b.Refused} {
		t.Errorf("%+v", b)
	}
	r.do(func() {
		if most := int(wait/queueCheck) + 8; s.dials > most {
			t.Errorf("%d attempts, want at most %d", s.dials, most)
		}
	})
}

// The idle connection to a backend is closed for a request that another one is to serve.
func TestIdleConnectionsLeaveTheirDescriptors(t *testing.T) {
	r := newRig(t, echoBackend(t, false), func(r *rig) {
		r.pool.Wait = patience
		p, err := pool.New(pool.Options{Name: "q"}, []pool.BackendOptions{{Name: "b", Address: netip.MustParseAddrPort(echoBackend(t, false))}}, 1)
		must(t, err)
		r.tree.Pools = append(r.tree.Pools, &Pool{Pool: p, Wait: patience})
	})
	s := &scarce{Loop: r.loop}
	s.idle = func() (n int) {
		for _, bs := range r.worker.backs {
			n += len(bs.idle)
		}
		return n
	}
	r.do(func() { r.worker.Loop = s })
	for i := range 4 {
		r.do(func() { r.rule.Backends[0].Pool = r.tree.Pools[i%2] })
		resp, err := r.client(false).Get("http://" + r.addr)
		must(t, err)
		if resp.Body.Close(); resp.StatusCode != http.StatusOK {
			t.Error(resp.StatusCode, resp.Header)
		}
		r.settled()
	}
}

// What holds for connections holds for the socket of connections with HTTP/3.
func TestRequestsWaitForTheSocketOfHTTP3(t *testing.T) {
	backend, roots := echoBackend3(t, nil)
	var failures atomic.Int32
	r := http3Rig(t, backend, func(r *rig) {
		r.over3(roots)
		r.pool.Wait = patience
		open := r.endpoints.Open
		r.endpoints.Open = func(at netip.AddrPort, c quic.TransportConfig) (*quic.Transport, error) {
			if at.Port() == 0 && failures.Add(1) <= 3 {
				return nil, &net.OpError{Op: "listen", Err: unix.ENFILE}
			}
			return quicconn.Opener(open)(at, c)
		}
	})
	resp, err := r.client(false).Get("http://" + r.addr)
	must(t, err)
	if resp.Body.Close(); resp.StatusCode != http.StatusOK || failures.Load() != 4 {
		t.Errorf("%d after %d attempts", resp.StatusCode, failures.Load())
	}
	r.settled()
}

// The bound on attempts grows with each that succeeds, until there is none.
func TestAttemptsAfterALackOfDescriptors(t *testing.T) {
	var d dials
	if d.succeeded(); d.most() < 1<<30 || d.short() {
		t.Errorf("%d without a failure", d)
	}
	if d.failed(); d.most() != 1 || !d.short() {
		t.Errorf("%d after a failure", d)
	}
	if d.succeeded(); d.most() != 2 || d.short() {
		t.Errorf("%d after one success", d)
	}
	for range dialsMost {
		d.succeeded()
	}
	if d.most() < 1<<30 {
		t.Errorf("%d after many", d)
	}
}
