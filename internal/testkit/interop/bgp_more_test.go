package interop

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/bgp"
)

// TestBGPPasswordAndTTLSecurityWithFRR has both on both sides, over IPv4 and IPv6.
func TestBGPPasswordAndTTLSecurityWithFRR(t *testing.T) {
	s := layOutBGP(t, "imd5")
	r := startFRR(t, s.router, `
router bgp 65000
 bgp router-id 198.18.0.2
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor 198.18.0.1 remote-as 64512
 neighbor 198.18.0.1 password four
 neighbor 198.18.0.1 ttl-security hops 1
 neighbor 2001:db8::1 remote-as 64512
 neighbor 2001:db8::1 password six
 neighbor 2001:db8::1 ttl-security hops 1
 address-family ipv6 unicast
  neighbor 2001:db8::1 activate
 exit-address-family
`)
	four, six := routerPeer(), routerPeer()
	four.Password, four.TTLSecurity, four.Families = "four", true, []bgp.Family{bgp.IPv4}
	six.Address, six.Password, six.TTLSecurity, six.Families = addrOf("2001:db8::2"), "six", true, []bgp.Family{bgp.IPv6}
	s.start(speakerConfig(four, six))
	s.Announce([]bgp.Route{{Prefix: vip4}, {Prefix: vip6}})
	eventually(t, "the route", func() string { return r.show("show ip bgp 198.18.1.1/32") }, "from 198.18.0.1")
	eventually(t, "the IPv6 route", func() string { return r.show("show bgp ipv6 unicast 2001:db8:1::1/128") }, "from 2001:db8::1")
}

// TestBGPGracefulRestartWithFRR breaks a session without a word. FRR keeps the routes as stale ones, and behind the end of the routes
// of the next session it removes those that have not come again (RFC 4724 4.2). Without graceful restart it removes all at once.
func TestBGPGracefulRestartWithFRR(t *testing.T) {
	s := layOutBGP(t, "irestart")
	r := startFRR(t, s.router, frrConfig)
	c := speakerConfig(routerPeer())
	c.GracefulRestart = time.Minute
	s.start(c)
	second := []bgp.Route{{Prefix: vip6}}
	s.Announce(append(second, bgp.Route{Prefix: vip4}))
	four := func() string { return r.show("show ip bgp 198.18.1.1/32") }
	six := func() string { return r.show("show bgp ipv6 unicast 2001:db8:1::1/128") }
	eventually(t, "the route", four, "from 198.18.0.1", "!stale")
	eventually(t, "the IPv6 route", six, "from 198.18.0.1", "!stale")
	s.Suspend() // no process has the socket
	eventually(t, "the stale route", four, "from 198.18.0.1", "stale")
	s.stop()
	s.start(c)
	s.Announce(second)
	eventually(t, "the IPv6 route", six, "from 198.18.0.1", "!stale")
	eventually(t, "the route that has not come again", four, "!from 198.18.0.1")
	if st := s.Status().Peers[0]; !st.GracefulRestart {
		t.Errorf("status %+v", st)
	}
	s.stop()
	s.start(speakerConfig(routerPeer()))
	s.Announce(second)
	eventually(t, "a session without graceful restart", func() string { return r.show("show bgp neighbors 198.18.0.1") }, "BGP state = Established")
	eventually(t, "the IPv6 route", six, "from 198.18.0.1", "!stale")
	s.Suspend()
	eventually(t, "the route", six, "!from 198.18.0.1")
}

// TestBGPRefusedByFRR has an AS that the router does not expect, and no neighbour at all.
func TestBGPRefusedByFRR(t *testing.T) {
	s := layOutBGP(t, "irefused")
	r := startFRR(t, s.router, strings.ReplaceAll(frrConfig, "remote-as 64512", "remote-as 64999"))
	s.start(speakerConfig(routerPeer()))
	cause := func() string { return s.Status().Peers[0].LastError }
	eventually(t, "the refusal", cause, "bad peer AS", "compare bgp.as with its `neighbor remote-as`")
	r.configure("router bgp 65000", "neighbor 198.18.0.1 remote-as 64512")
	eventually(t, "the session", func() string { return s.Status().Peers[0].State.String() }, "Established")
	r.configure("router bgp 65000", "neighbor 198.18.0.1 shutdown message night")
	eventually(t, "the reason", cause, "administrative shutdown", "night")
}
