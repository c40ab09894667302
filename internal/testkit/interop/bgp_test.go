package interop

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/bgp"
	"github.com/millrace/millrace/internal/testkit/testnet"
)

// speaker is a gateway's speaker in a namespace, beside a router:
//
//	speaker eth0 198.18.0.1, 2001:db8::1 ---- eth0 198.18.0.2, 2001:db8::2 router
type speaker struct {
	*bgp.Speaker
	t      *testing.T
	router *testnet.Namespace
	own    *testnet.Namespace
	log    *testnet.Log
	stop   func()
}

func layOutBGP(t *testing.T, prefix string) *speaker {
	t.Helper()
	n := testnet.For(t, prefix)
	s := &speaker{t: t, own: n.Namespace("speaker"), router: n.Namespace("router"), log: &testnet.Log{}}
	for _, err := range []error{
		n.Link(s.own, "eth0", s.router, "eth0"), s.own.Up("eth0", "198.18.0.1/24", "2001:db8::1/64"), s.router.Up("eth0", "198.18.0.2/24", "2001:db8::2/64"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// start starts the speaker.
func (s *speaker) start(c bgp.Config, adopted ...bgp.Adopted) {
	s.Speaker = bgp.New(c, bgp.Options{
		Log: slog.New(slog.NewTextHandler(s.log, nil)), Adopted: adopted,
		Dial: func(ctx context.Context, p *bgp.Peer) (conn net.Conn, err error) {
			err = s.own.Do(func() error { conn, err = bgp.Dial(ctx, p); return err })
			return conn, err
		},
	})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	s.stop = func() { stop(); <-done }
	s.t.Cleanup(func() {
		s.stop()
		if s.t.Failed() {
			s.t.Logf("speaker:\n%s", s.log)
		}
	})
}

// routerPeer is the peer of the tests.
func routerPeer() bgp.Peer {
	return bgp.Peer{
		Address: netip.MustParseAddr("198.18.0.2"), Port: 179, AS: 65000, HoldTime: 9 * time.Second, ConnectRetry: time.Second, Hops: 1,
		Families: []bgp.Family{bgp.IPv4, bgp.IPv6}, NextHop6: netip.MustParseAddr("2001:db8::1"), MaxPrefixes: 1000,
	}
}

func speakerConfig(peers ...bgp.Peer) bgp.Config {
	return bgp.Config{AS: 64512, RouterID: netip.MustParseAddr("198.18.0.1"), Drain: 2 * time.Second, Peers: peers}
}

var (
	vip4 = netip.MustParsePrefix("198.18.1.1/32")
	vip6 = netip.MustParsePrefix("2001:db8:1::1/128")
)

const frrConfig = `
log syslog debugging
router bgp 65000
 bgp router-id 198.18.0.2
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor 198.18.0.1 remote-as 64512
 neighbor 198.18.0.1 timers connect 1
 address-family ipv4 unicast
  neighbor 198.18.0.1 activate
 exit-address-family
 address-family ipv6 unicast
  neighbor 198.18.0.1 activate
 exit-address-family
`

// addrOf returns an address, the zero Addr for "".
func addrOf(s string) netip.Addr {
	a, _ := netip.ParseAddr(s)
	return a
}

// TestBGPWithFRR announces and withdraws addresses of both families.
func TestBGPWithFRR(t *testing.T) {
	s := layOutBGP(t, "ibgp")
	r := startFRR(t, s.router, frrConfig)
	s.start(speakerConfig(routerPeer()))
	s.Announce([]bgp.Route{{Prefix: vip4, MED: 50, HasMED: true}, {Prefix: vip6}})
	eventually(t, "the route", func() string { return r.show("show ip bgp 198.18.1.1/32") }, "64512", "198.18.0.1", "metric 50")
	eventually(t, "the IPv6 route", func() string { return r.show("show bgp ipv6 unicast 2001:db8:1::1/128") }, "64512", "2001:db8::1")
	eventually(t, "the kernel's route", func() string { out, _ := s.router.Run("ip", "route"); return out }, "198.18.1.1 ")
	s.Announce([]bgp.Route{{Prefix: vip6}})
	eventually(t, "the route is gone", func() string { return r.show("show ip bgp 198.18.1.1/32") }, "!64512")
}
