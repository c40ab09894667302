package proxy

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/proxyproto"
)

// A listener has so many connections at all its addresses together; those of other listeners do not count.
func TestConnectionsOfAListenerAreLimited(t *testing.T) {
	second := netip.MustParseAddrPort("192.0.2.2:90")
	r := newMemRig(t, func(r *memRig, tree *Tree) {
		ln := r.stream(tree, StreamTCP)
		ln.Limits.Connections = 2
		other := *ln
		other.Address = second
		tree.Listeners = append(tree.Listeners, &other)
	})
	r.backend = func(*memtransport.Peer) {}
	var elsewhere []*memtransport.Peer
	for range 3 {
		elsewhere = append(elsewhere, r.connect(memHTTP1))
	}
	a, b := r.connect(memStream), r.connect(second)
	r.run()
	c := r.connect(memStream)
	r.run()
	if a.Ended || b.Ended || !c.Reset {
		t.Errorf("two connections: %v %v, a third one: %v", a.Ended, b.Ended, c.Reset)
	}
	a.Abort()
	r.run()
	d := r.connect(second)
	r.run()
	if d.Ended {
		t.Error("there is no room for another one once one has ended")
	}
	r.nothingLeft(append(elsewhere, a, b, c, d)...)
}

// Workers that share an Admission share the limit. What they refuse is counted by reason.
func TestWorkersShareALimitOfConnections(t *testing.T) {
	var shared Admission
	var rigs []*memRig
	for range 2 {
		rigs = append(rigs, newMemRig(t, func(r *memRig, tree *Tree) {
			tree.Listeners[0].Admission, tree.Listeners[0].Limits.Connections = &shared, 2
		}))
	}
	open := func(r *memRig) *memtransport.Peer {
		c := r.connect(memHTTP1)
		r.run()
		return c
	}
	a, b := open(rigs[0]), open(rigs[1])
	for i, r := range rigs {
		if c := open(r); !c.Reset || shared.Open() != 2 || shared.Refused(DeniedLimit) != uint64(i+1) {
			t.Errorf("reset %v, %d are open, %d refused", c.Reset, shared.Open(), shared.Refused(DeniedLimit))
		}
	}
	a.Abort()
	rigs[0].run()
	if c := open(rigs[1]); c.Reset || shared.Open() != 2 {
		t.Error("no worker has the room that another has made")
	} else {
		rigs[1].nothingLeft(b, c)
	}
	rigs[0].worker.draining = true // it stops accepting, but for what was under way
	if c := open(rigs[0]); !c.Reset || shared.Open() != 0 || shared.Refused(DeniedDraining) != 1 {
		t.Errorf("reset %v, %d are open, %d refused while draining", c.Reset, shared.Open(), shared.Refused(DeniedDraining))
	}
}

// A connection is tried at other backends than those that have refused it, and no more often than the rule says.
func TestPassAttempts(t *testing.T) {
	var all []pool.BackendOptions
	for i := range 5 {
		all = append(all, pool.BackendOptions{Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, 1, byte(i)}), 80)})
	}
	for attempts := range 5 {
		dialed := map[netip.AddrPort]int{}
		r := newMemRig(t, func(r *memRig, tree *Tree) {
			ln := r.stream(tree, StreamTCP)
			rule := *r.rule
			rule.Attempts, ln.Rules = attempts, []*Rule{&rule}
			r.to.Key = &rewrite.Key{} // of the client's address: each pick finds the same backend, but those that were tried
			if err := r.to.Update(0, pool.Options{Name: "p", Balance: pool.ConsistentHash}, all); err != nil {
				t.Fatal(err)
			}
		})
		r.loop.Dialed = func(a netip.AddrPort) (func(*memtransport.Peer), error) {
			dialed[a]++
			return nil, unix.ECONNREFUSED
		}
		c := r.connect(memStream)
		r.run()
		if want := max(attempts, 1); len(dialed) != want || !c.Reset {
			t.Errorf("%d attempts: %v, reset %v", attempts, dialed, c.Reset)
		}
		if s := r.worker.Stats().Stream; int(s.Retries) != max(attempts, 1)-1 || s.Failed != 1 {
			t.Errorf("%d attempts: %+v", attempts, s)
		}
		r.nothingLeft(c)
	}
}

// One client goes to one backend where the pool hashes its address.
func TestPassHashesClients(t *testing.T) {
	var all []pool.BackendOptions
	for i := range 5 {
		all = append(all, pool.BackendOptions{Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, 1, byte(i)}), 80)})
	}
	r := newMemRig(t, func(r *memRig, tree *Tree) {
		ln := r.stream(tree, StreamTCP)
		ln.ProxyProtocol = []netip.Prefix{netip.MustParsePrefix("::/0"), netip.MustParsePrefix("0.0.0.0/0")}
		r.to.Key = &rewrite.Key{}
		if err := r.to.Update(0, pool.Options{Name: "p", Balance: pool.ConsistentHash}, all); err != nil {
			t.Fatal(err)
		}
	})
	to := map[byte]map[netip.AddrPort]bool{}
	used := map[netip.AddrPort]bool{}
	var last netip.AddrPort
	r.loop.Dialed = func(a netip.AddrPort) (func(*memtransport.Peer), error) {
		last = a
		return func(*memtransport.Peer) {}, nil
	}
	var clients []*memtransport.Peer
	for i := range 60 {
		client := byte(i % 20)
		h := proxyproto.TCP(2, netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, client}), uint16(1000+i)), memStream)
		head, err := h.Append(nil)
		must(t, err)
		c := r.connect(memStream)
		c.Write(head)
		r.run()
		if to[client] == nil {
			to[client] = map[netip.AddrPort]bool{}
		}
		to[client][last], used[last] = true, true
		clients = append(clients, c)
	}
	for client, list := range to {
		if len(list) != 1 {
			t.Errorf("client %d goes to %v", client, list)
		}
	}
	if len(used) < 3 {
		t.Errorf("20 clients go to %v", used)
	}
	r.nothingLeft(clients...)
}

// A backend that has as many connections as it may is passed over, which is no attempt.
func TestPassGoesAroundFullBackends(t *testing.T) {
	full, other := netip.MustParseAddrPort("198.18.1.1:80"), netip.MustParseAddrPort("198.18.1.2:80")
	dialed := map[netip.AddrPort]int{}
	r := newMemRig(t, func(r *memRig, tree *Tree) {
		r.stream(tree, StreamTCP)
		all := []pool.BackendOptions{{Address: full, Limits: pool.Limits{Connections: 1}}, {Address: other}}
		if err := r.to.Update(0, pool.Options{Name: "p"}, all); err != nil {
			t.Fatal(err)
		}
	})
	r.loop.Dialed = func(a netip.AddrPort) (func(*memtransport.Peer), error) {
		dialed[a]++
		return func(*memtransport.Peer) {}, nil
	}
	var clients []*memtransport.Peer
	for range 5 {
		c := r.connect(memStream)
		if r.run(); c.Ended {
			t.Error("a client is refused")
		}
		clients = append(clients, c)
	}
	if dialed[full] != 1 || dialed[other] != 4 {
		t.Errorf("%v", dialed)
	}
	r.nothingLeft(clients...)
}

// All versions of HTTP have the same limits of a request's header: 431 for more lines than the limit, where the parts of a cookie
// are one line, and 414 for a longer target.
func TestVersionsHaveTheSameLimitsOfHeaders(t *testing.T) {
	r := http3Rig(t, echoBackend(t, false), func(r *rig) {
		ln := r.tree.Listeners[1]
		ln.HTTP1, ln.HTTP2 = &http1.Options{MaxFields: 30, MaxTarget: 1000}, &http2.Options{MaxFields: 30}
		ln.HTTP3.Machine.MaxFields, ln.Limits.Target = 30, 1000
	})
	for version, c := range map[string]*http.Client{"HTTP/1.1": r.client(false), "HTTP/2": r.client(true), "HTTP/3": r.client3()} {
		for _, ask := range []struct {
			lines, crumbs, target, want int
		}{{20, 1, 900, 200}, {20, 200, 900, 200}, {31, 0, 1, 431}, {400, 0, 1, 431}, {1, 0, 1001, 414}, {1, 0, 8000, 414}} {
			req, err := http.NewRequest("GET", "https://"+r.secure+"/"+strings.Repeat("p", ask.target-1), nil)
			must(t, err)
			for i := range ask.lines {
				req.Header.Set(fmt.Sprint("x-", i), "v")
			}
			req.Header.Set("Cookie", "a=b"+strings.Repeat("; a=b", ask.crumbs))
			resp, err := c.Do(req)
			must(t, err)
			_, _ = io.Copy(io.Discard, resp.Body)
			if resp.Body.Close(); resp.StatusCode != ask.want {
				t.Errorf("%s, %+v: %s", version, ask, resp.Status)
			}
		}
	}
	r.do(func() {
		if n := r.worker.Stats().RefusedBy[http1.Size]; n != 12 {
			t.Errorf("%d requests are counted as too large", n)
		}
	})
}
