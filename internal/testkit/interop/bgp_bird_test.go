package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/gateway/bgp"
	"github.com/millrace/millrace/internal/testkit/testnet"
)

// bird is BIRD 2 in a namespace.
type bird struct{ socket string }

func startBird(t testing.TB, ns *testnet.Namespace, config string) *bird {
	t.Helper()
	needRouter(t, "bird")
	dir := shortDir(t)
	file, b := filepath.Join(dir, "bird.conf"), &bird{filepath.Join(dir, "ctl")}
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	startProgram(t, ns, filepath.Join(dir, "log"), "bird", "-f", "-c", file, "-s", b.socket)
	return b
}

// show returns what birdc prints for a command.
func (b *bird) show(command string) string {
	out, err := exec.Command("birdc", "-s", b.socket, command).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return string(out)
}

// TestBGPTwoGatewaysBehindBird is the site of TestTwoGatewaysAnnounceOneAddress with bird, as docs/bgp.md configures it.
func TestBGPTwoGatewaysBehindBird(t *testing.T) {
	s := newECMPSite(t, "ibird", "")
	b := startBird(t, s.routerNS, routerOfThePage(t, "bird"))
	one, two := s.gates[0], s.gates[1]
	one.start(t, "")
	two.start(t, "")
	eventually(t, "both next hops", s.nextHops, "198.18.11.2", "198.18.12.2")
	s.wantGates(t, "gate1", "gate2")
	route := func() string { return b.show("show route all 198.18.1.1/32") }
	eventually(t, "attributes", route, "BGP.med: 50", "(64512,11)", "(64512, 1, 1)", "BGP.as_path: 64512")
	one.fail()
	eventually(t, "one next hop", s.nextHops, "!198.18.11.2", "198.18.12.2")
	s.wantGates(t, "gate2")
	one.serve()
	eventually(t, "both next hops", s.nextHops, "198.18.11.2", "198.18.12.2")
	two.run(t, "drain", "web", "b", "--force")
	eventually(t, "the community", route, "(65535,0)", "BGP.local_pref: 0")
	eventually(t, "one next hop", s.nextHops, "198.18.11.2", "!198.18.12.2")
}

// birdFlood announces 100 000 prefixes to the gateway.
func birdFlood() string {
	var s strings.Builder
	s.WriteString("router id 198.18.0.2;\nprotocol device {}\nprotocol static flood { ipv4;\n")
	for i := range 100_000 {
		fmt.Fprintf(&s, "route 10.%d.%d.%d/32 blackhole;\n", i>>16, i>>8&255, i&255)
	}
	s.WriteString("}\nprotocol bgp millrace { local as 65000; neighbor 198.18.0.1 as 64512; ipv4 { import all; export all; }; ipv6 { import all; export all; }; }\n")
	return s.String()
}

// TestBGPFloodFromBird has a router without a filter: with max_prefixes below what it sends the session ends by the reason that its
// operator finds, and with more it goes on.
func TestBGPFloodFromBird(t *testing.T) {
	s := layOutBGP(t, "iflood")
	b := startBird(t, s.router, birdFlood())
	p := routerPeer()
	p.MaxPrefixes = 10_000
	s.start(speakerConfig(p))
	s.Announce([]bgp.Route{{Prefix: vip4}})
	eventually(t, "the refusal", func() string { return s.Status().Peers[0].LastError }, "maximum number of prefixes reached", "raise max_prefixes")
	if st := s.Status().Peers[0]; st.Refused == 0 {
		t.Errorf("status %+v", st)
	}
	eventually(t, "bird's reason", func() string { return b.show("show protocols millrace") }, "Maximum number of prefixes reached")
	p.MaxPrefixes = 200_000
	s.Configure(speakerConfig(p))
	eventually(t, "all prefixes", func() string { return fmt.Sprint(s.Status().Peers[0].Received) }, "100000")
	eventually(t, "the route", func() string { return b.show("show route 198.18.1.1/32") }, "198.18.0.1")
}

// TestBGPWithBird has a session of IPv6 inside one AS, with a password.
func TestBGPWithBird(t *testing.T) {
	s := layOutBGP(t, "ibird6")
	b := startBird(t, s.router, `router id 198.18.0.2;
protocol device {}
protocol bgp millrace { local 2001:db8::2 as 64512; neighbor 2001:db8::1 as 64512; password "a secret"; ipv4 { import all; export none; }; ipv6 { import all; export none; }; }
`)
	p := routerPeer()
	p.Address, p.AS, p.Hops, p.Password = addrOf("2001:db8::2"), 64512, 0, "a secret"
	p.NextHop4, p.NextHop6 = addrOf("198.18.0.1"), addrOf("")
	s.start(speakerConfig(p))
	s.Announce([]bgp.Route{{Prefix: vip4, LocalPref: 170}, {Prefix: vip6, LocalPref: 170}})
	eventually(t, "the route", func() string { return b.show("show route all 198.18.1.1/32") }, "BGP.local_pref: 170", "BGP.next_hop: 198.18.0.1", "BGP.as_path: \n")
	eventually(t, "the IPv6 route", func() string { return b.show("show route all 2001:db8:1::1/128") }, "BGP.local_pref: 170", "BGP.next_hop: 2001:db8::1")
	p.Password = "another"
	s.Configure(speakerConfig(p))
	eventually(t, "silence", func() string { return s.Status().Peers[0].LastError }, "compare password_file with the router's")
}
