package proxy

import (
	ctls "crypto/tls"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/l7/route"
)

// Every connection that is passed through leaves a record, and counts for its route.
func TestPassRecords(t *testing.T) {
	hello := rawHello(t, &ctls.Config{ServerName: "a.test"})
	size := uint64(len(hello))
	for _, c := range []struct {
		name string
		play func(r *memRig, c *memtransport.Peer)
		want Record
	}{
		{"passed", func(r *memRig, c *memtransport.Peer) {
			c.Write(hello)
			r.pass(3 * time.Second)
			r.backs[0].Write([]byte("12345"))
			r.run()
			c.CloseWrite()
			r.backs[0].CloseWrite()
		}, Record{Began: 3 * time.Second, Rule: "a", Route: "of", Pool: "p", Backend: "b", Attempts: 1, BytesIn: size, BytesOut: 5}},
		{"reset", func(r *memRig, c *memtransport.Peer) {
			c.Write(hello)
			r.run()
			c.Abort()
		}, Record{Rule: "a", Route: "of", Pool: "p", Backend: "b", Attempts: 1, BytesIn: size, Error: "connection_terminated"}},
		{"refused", func(r *memRig, c *memtransport.Peer) {
			r.loop.Dialed = func(netip.AddrPort) (func(*memtransport.Peer), error) { return nil, unix.ECONNREFUSED }
			c.Write(hello)
		}, Record{Rule: "a", Route: "of", Pool: "p", Backend: "b", Attempts: 1, Error: "connection_refused"}},
		{
			"unknown", func(r *memRig, c *memtransport.Peer) { c.Write(rawHello(t, &ctls.Config{ServerName: "b.test"})) },
			Record{Host: "b.test", Error: "destination_not_found"},
		},
		{"idle", func(r *memRig, c *memtransport.Peer) {
			c.Write(hello)
			r.pass(memTimes.Tunnel + time.Second)
		}, Record{Began: memTimes.Tunnel + time.Second, Rule: "a", Route: "of", Pool: "p", Backend: "b", Attempts: 1, BytesIn: size, Error: "connection_read_timeout"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			of := NewRoute("of", 1)
			r := newMemRig(t, func(r *memRig, tree *Tree) {
				ln := r.stream(tree, StreamTLS)
				ln.Table, _ = route.New([]route.Rule{{Name: "a", Match: route.Match{Hosts: []string{"a.test"}}}})
				rule := *r.rule
				rule.Name, rule.Route, ln.Rules = "a", of, []*Rule{&rule}
			})
			r.backend = func(*memtransport.Peer) {}
			var got []Record
			r.worker.OnRecord(func(rec *Record) { got = append(got, *rec) })
			client := r.connect(memStream)
			c.play(r, client)
			r.run()
			if c.want.Host == "" {
				c.want.Host = "a.test"
			}
			c.want.ServerName = c.want.Host
			c.want.Client, c.want.Listener, c.want.Protocol = client.Conn.Remote(), "stream", "TLS"
			if len(got) == 1 && got[0].Began-c.want.Began < time.Second { // timers have ticks
				got[0].Began = c.want.Began
			}
			if diff := cmp.Diff([]Record{c.want}, got, cmpopts.EquateComparable(netip.AddrPort{}, netip.Addr{})); diff != "" {
				t.Error(diff)
			}
			counts := of.Counts()
			if want := uint64(min(c.want.Attempts, 1)); counts[RouteRequests] != want || counts[RouteBytesIn] != c.want.BytesIn || counts[RouteBytesOut] != c.want.BytesOut {
				t.Errorf("%v", counts)
			}
			r.nothingLeft(client)
		})
	}
}
