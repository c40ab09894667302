package control_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/wire"
)

// forgedSources are sources of datagrams to the service echo, from the client's link. Linux, as a router with DNAT that has
// the service and SNAT addresses itself, is the judge of those of IPv4. It drops no IPv6 packet with an address of its own
// as the source, which circulates as well, and without rp_filter none from a directed broadcast (RFC 1812 5.3.7 has
// routers discard it).
var (
	honestSources = []string{"198.18.0.2", "198.18.0.254", "198.18.77.9", "2001:db8::2", "2001:db8:77::9"}
	forgedSources = []string{
		"198.18.1.1", "198.18.2.1", "198.18.0.1", "198.18.3.1", "198.18.0.255", "198.18.3.255", "198.18.4.255",
		"127.0.0.1", "127.9.9.9", "0.0.0.0", "224.0.0.1", "239.1.2.3", "255.255.255.255",
		"2001:db8:1::1", "2001:db8:2::1", "2001:db8::1", "2001:db8:3::1", "::1", "::", "ff02::1", "::ffff:198.18.0.2",
	}
)

// heard is what the backends' UDP servers have received.
type heard struct {
	mu   sync.Mutex
	list []string
}

func (h *heard) has(text string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.list, text)
}

func (h *heard) listen(s *site, i int) {
	s.must(s.backends[i].Do(func() error {
		p, err := net.ListenPacket("udp", ":5353")
		if err != nil {
			return err
		}
		s.t.Cleanup(func() { p.Close() })
		go func() {
			b := make([]byte, 2000)
			for {
				n, _, err := p.ReadFrom(b)
				if err != nil {
					return
				}
				h.mu.Lock()
				h.list = append(h.list, string(b[:n]))
				h.mu.Unlock()
			}
		}()
		return nil
	}))
}

// datagramFrom is a frame to the service echo, with a text.
func datagramFrom(s *site, src, text string) []byte {
	from, port := netip.MustParseAddr(src), uint16(53)
	mac, err := net.ParseMAC(s.frontMAC())
	s.must(err)
	client, err := net.ParseMAC(s.clientMAC())
	s.must(err)
	udp := wire.UDPLen + len(text)
	var p []byte
	if from.Is4() {
		p = wire.AppendEthernet(p, wire.MAC(mac), wire.MAC(client), wire.EtherTypeIPv4)
		p = wire.AppendIPv4(p, &wire.IPv4Header{Src: from.As4(), Dst: [4]byte{198, 18, 1, 1}, Proto: wire.ProtoUDP, TTL: 64, PayloadLen: udp})
	} else {
		p = wire.AppendEthernet(p, wire.MAC(mac), wire.MAC(client), wire.EtherTypeIPv6)
		p = wire.AppendIPv6(p, &wire.IPv6Header{Src: from.As16(), Dst: netip.MustParseAddr("2001:db8:1::1").As16(), NextHeader: wire.ProtoUDP, HopLimit: 64, PayloadLen: udp})
	}
	at := len(p)
	p = append(p, make([]byte, wire.UDPLen)...)
	p = append(p, text...)
	u := wire.UDP(p[at:])
	u.SetSrcPort(port)
	u.SetDstPort(53)
	u.SetLen(uint16(udp))
	sum := wire.PseudoHeader(addr16(from), addr16(netip.MustParseAddr("198.18.1.1")), wire.ProtoUDP, uint32(udp))
	if !from.Is4() {
		sum = wire.PseudoHeader6(from.As16(), netip.MustParseAddr("2001:db8:1::1").As16(), wire.ProtoUDP, uint32(udp))
	}
	u.FillChecksum(sum)
	return p
}

func addr16(a netip.Addr) [16]byte { return a.As16() }

// passing sends one datagram from each source and returns the sources of those that reach a backend. An honest datagram
// goes before, until the way is known, and one of each family behind, by which the others must have arrived.
func (s *site) passing(h *heard, phase string, sources []string) (passed []string) {
	s.t.Helper()
	arrives := func(src, text string) {
		s.t.Helper()
		for end := time.Now().Add(30 * time.Second); !h.has(text); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				s.t.Fatalf("%s: a datagram from %s does not arrive", phase, src)
			}
			s.sendFrames([][]byte{datagramFrom(s, src, text)})
		}
	}
	families := []string{"198.18.0.2", "2001:db8::2"}
	for _, src := range families {
		arrives(src, phase+" before "+src)
	}
	var frames [][]byte
	for _, src := range sources {
		frames = append(frames, datagramFrom(s, src, phase+" "+src))
	}
	s.sendFrames(frames)
	for _, src := range families {
		arrives(src, phase+" behind "+src)
	}
	for _, src := range sources {
		if h.has(phase + " " + src) {
			passed = append(passed, src)
		}
	}
	return passed
}

// linuxForwards makes the gateway's kernel a router with DNAT and SNAT, and returns what undoes that.
func (s *site) linuxForwards() (undo func()) {
	s.t.Helper()
	must := func(args ...string) {
		s.t.Helper()
		if out, err := s.gate.Run(args[0], args[1:]...); err != nil {
			s.t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	s.must(s.gate.Sysctl("net.ipv4.ip_forward", "1"))
	s.must(s.gate.Sysctl("net.ipv6.conf.all.forwarding", "1"))
	for _, dev := range []string{"all", "front", "back1", "back2"} {
		s.must(s.gate.Sysctl("net.ipv4.conf."+dev+".rp_filter", "0"))
	}
	own := []string{"198.18.1.1/32", "198.18.2.1/32", "2001:db8:1::1/128", "2001:db8:2::1/128"}
	for _, a := range own {
		must("ip", "addr", "add", a, "dev", "lo")
	}
	for _, family := range []struct{ name, vip, backend, snat string }{
		{"ip", "198.18.1.1", "198.18.3.2", "198.18.2.1"}, {"ip6", "2001:db8:1::1", "[2001:db8:3::2]", "2001:db8:2::1"},
	} {
		must("nft", fmt.Sprintf("table %[1]s t {\nchain p {\ntype nat hook prerouting priority -100\n%[1]s daddr %[2]s udp dport 53 dnat to %[3]s:5353\n}\n"+
			"chain q {\ntype nat hook postrouting priority 100\nudp dport 5353 snat to %[4]s\n}\n}\n", family.name, family.vip, family.backend, family.snat))
	}
	return func() {
		must("nft", "flush ruleset")
		for _, a := range own {
			must("ip", "addr", "del", a, "dev", "lo")
		}
		s.must(s.gate.Sysctl("net.ipv4.ip_forward", "0"))
		s.must(s.gate.Sysctl("net.ipv6.conf.all.forwarding", "0"))
	}
}

// TestMartiansOfLinuxAreMartians sends datagrams with forged sources: what Linux does not forward the gateway does not
// either, and no address of its own passes as a source. Honest ones pass.
func TestMartiansOfLinuxAreMartians(t *testing.T) {
	t.Parallel()
	testnet.Program(t, "nft", "ip", "curl")
	for _, driver := range []string{"afxdp", "afpacket"} {
		t.Run(driver, func(t *testing.T) {
			s, _ := layOut(t, "mr-gwmart-"+driver)
			h := &heard{}
			for i := range s.backends {
				h.listen(s, i)
			}
			undo := s.linuxForwards()
			sources := append(slices.Clone(honestSources), forgedSources...)
			linux := s.passing(h, "linux", sources)
			undo()
			for _, src := range forgedSources {
				if broadcast := strings.HasPrefix(src, "198.18.") && strings.HasSuffix(src, ".255"); slices.Contains(linux, src) && netip.MustParseAddr(src).Is4() && !broadcast {
					t.Errorf("Linux forwards from %s", src)
				}
			}
			s.configure(driver, "")
			s.start([]string{}...)
			ours := s.passing(h, "gateway", sources)
			if !slices.Equal(ours, honestSources) {
				t.Errorf("the gateway forwards from %v, Linux from %v", ours, linux)
			}
			sum := s.stop()
			if n := sum.Gateway.Dropped["martian"]; n != uint64(len(forgedSources)) {
				t.Errorf("%d of %d forged datagrams are dropped as martians: %v", n, len(forgedSources), sum.Gateway.Dropped)
			}
		})
	}
}
