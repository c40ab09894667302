package proxy

import (
	ctls "crypto/tls"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/tls"
)

// demandRig is a listener whose certificates the test obtains.
type demandRig struct {
	*memRig
	store  *tls.Store
	client *ctls.Config
	pair   ctls.Certificate
	asked  []string
	wakes  []func()
	left   int
}

func newDemandRig(t *testing.T) *demandRig {
	r := &demandRig{store: &tls.Store{}}
	pair, roots := testcert.SelfSigned("a.example")
	r.pair, r.client = pair, &ctls.Config{RootCAs: roots, ServerName: "a.example"}
	r.memRig = newMemRig(t, func(m *memRig, tree *Tree) {
		ln := tree.Listeners[0]
		ln.TLS = &ctls.Config{GetCertificate: r.store.GetCertificate, MinVersion: ctls.VersionTLS12}
		ln.Timeouts.Handshake = 5 * time.Second
		ln.Demand = &Demand{Wait: 20 * time.Second, Want: func(name string, wake func()) (func(), bool) {
			r.asked = append(r.asked, name)
			if name != "a.example" || r.store.HasName(name) {
				return nil, false
			}
			r.wakes = append(r.wakes, wake)
			return func() { r.left++ }, true
		}}
	})
	return r
}

// demandClient is a client in the middle of a handshake.
type demandClient struct {
	r    *demandRig
	p    *memtransport.Peer
	e    *tls.Engine
	done bool
	err  error
}

func (r *demandRig) client1(change func(c *ctls.Config)) *demandClient {
	config := r.client.Clone()
	if change != nil {
		change(config)
	}
	c := &demandClient{r: r, p: r.connect(memHTTP1), e: tls.NewClientEngine(config, tls.EngineOptions{})}
	r.t.Cleanup(c.e.Close)
	c.step()
	return c
}

// step exchanges what there is.
func (c *demandClient) step() {
	for range 4 {
		c.p.Write(c.e.Pending())
		c.e.Advance(len(c.e.Pending()))
		c.r.run()
		for in := c.p.Take(); c.err == nil; {
			ev, n, err := c.e.Next(in)
			if c.err = err; err != nil {
				return
			}
			if in = in[n:]; ev.Kind == tls.NeedInput {
				break
			}
			c.done = c.done || ev.Kind == tls.HandshakeComplete
		}
	}
}

// A handshake waits until there is a certificate, in parts or as a whole, and goes on with it.
func TestHandshakesWaitForACertificate(t *testing.T) {
	r := newDemandRig(t)
	one, two := r.client1(nil), r.client1(nil)
	three := &demandClient{r: r, p: r.connect(memHTTP1), e: tls.NewClientEngine(r.client, tls.EngineOptions{})}
	t.Cleanup(three.e.Close)
	_, _, _ = three.e.Next(nil)
	hello := slices.Clone(three.e.Pending())
	three.e.Advance(len(hello))
	for _, b := range hello {
		three.p.Write([]byte{b})
		r.run()
	}
	r.pass(10 * time.Second) // longer than a handshake may take
	for _, c := range []*demandClient{one, two, three} {
		if c.step(); c.done || c.err != nil {
			t.Errorf("it does not wait: %v", c.err)
		}
	}
	if err := r.store.Set("a", r.pair, false); err != nil {
		t.Fatal(err)
	}
	for _, wake := range r.wakes {
		wake()
	}
	for i, c := range []*demandClient{one, two, three} {
		if c.step(); !c.done {
			t.Errorf("client %d: %v", i, c.err)
		}
	}
	if four := r.client1(nil); !four.done || len(r.wakes) != 3 || r.left != 0 {
		t.Errorf("one that comes later: %v; %d have waited, %d have left", four.err, len(r.wakes), r.left)
	}
	for c := range r.worker.fronts {
		c.Abort()
	}
	r.nothingLeft()
}

// The wait is bounded, and what comes of it is the alert of a name without a certificate. A wake after that does nothing.
func TestTheWaitForACertificateIsBounded(t *testing.T) {
	r := newDemandRig(t)
	c := r.client1(nil)
	r.pass(19 * time.Second)
	if c.step(); c.err != nil {
		t.Fatalf("too early: %v", c.err)
	}
	r.pass(2 * time.Second)
	if c.step(); c.err == nil || !strings.Contains(c.err.Error(), "unrecognized name") || r.left != 1 {
		t.Errorf("%v, %d have left", c.err, r.left)
	}
	r.wakes[0]()
	r.nothingLeft(c.p)
}

// Others do not wait: those that are not permitted, and the authority's own.
func TestHandshakesThatDoNotWait(t *testing.T) {
	r := newDemandRig(t)
	if c := r.client1(func(c *ctls.Config) { c.ServerName = "b.example" }); c.err == nil {
		t.Error("a name that is not permitted waits")
	}
	asked := len(r.asked)
	if c := r.client1(func(c *ctls.Config) { c.NextProtos = []string{acmeTLS} }); c.err == nil || len(r.asked) != asked {
		t.Errorf("the authority waits for itself: %v, %q", c.err, r.asked)
	}
	r.nothingLeft()
}

// A client that leaves while it waits is woken in vain.
func TestClientsThatLeaveWhileTheyWait(t *testing.T) {
	r := newDemandRig(t)
	c := r.client1(nil)
	c.p.Abort()
	r.run()
	r.wakes[0]()
	r.run()
	if r.left > 1 {
		t.Errorf("it has left %d times", r.left)
	}
	r.nothingLeft()
}
