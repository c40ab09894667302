package afxdp

import (
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/pmd"
)

// loadSteering loads the program without an interface: it is run by BPF_PROG_TEST_RUN.
func loadSteering(t testing.TB, all bool) (*program, *Steering) {
	t.Helper()
	p, err := load(all)
	if err != nil {
		if os.Getenv("MILLRACE_MUST_NETNS") != "" {
			t.Fatal(err)
		}
		t.Skipf("XDP programs need root: %v", err)
	}
	t.Cleanup(func() { p.close() })
	return p, p.steering(all, nil)
}

// steers runs the program on a frame and reports whether it is for a socket. No queue is open, so
// such frames are counted as unbound.
func steers(t testing.TB, p *program, s *Steering, frame []byte) bool {
	t.Helper()
	before, err := s.Counts()
	must(t, err)
	verdict, err := p.objs.Steer.Run(&ebpf.RunOptions{Data: frame})
	if err != nil {
		t.Fatalf("run on %x: %v", frame, err)
	}
	const xdpPass = 2
	if verdict != xdpPass {
		t.Fatalf("verdict %d without a socket", verdict)
	}
	after, err := s.Counts()
	must(t, err)
	if after.Passed+after.Unbound != before.Passed+before.Unbound+1 {
		t.Fatalf("counters went from %+v to %+v for one frame", before, after)
	}
	return after.Unbound > before.Unbound
}

// pkt serializes layers behind an Ethernet header whose type follows from the first of them.
func pkt(types []layers.EthernetType, ls ...gopacket.SerializableLayer) []byte {
	b := gopacket.NewSerializeBuffer()
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: types[0]}
	all := []gopacket.SerializableLayer{eth}
	for _, next := range types[1:] {
		all = append(all, &layers.Dot1Q{VLANIdentifier: 7, Type: next})
	}
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true}, append(all, ls...)...); err != nil {
		panic(err)
	}
	return b.Bytes()
}

var (
	v4   = []layers.EthernetType{layers.EthernetTypeIPv4}
	v6   = []layers.EthernetType{layers.EthernetTypeIPv6}
	arp  = []layers.EthernetType{layers.EthernetTypeARP}
	data = gopacket.Payload("payload")
)

func ip4(src, dst netip.Addr, proto layers.IPProtocol, edit ...func(*layers.IPv4)) *layers.IPv4 {
	h := &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	for _, e := range edit {
		e(h)
	}
	return h
}

func ip6(src, dst netip.Addr, next layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: next, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
}

func tcp(src, dst int) *layers.TCP {
	return &layers.TCP{SrcPort: layers.TCPPort(src), DstPort: layers.TCPPort(dst), SYN: true}
}

func udp(src, dst int) *layers.UDP {
	return &layers.UDP{SrcPort: layers.UDPPort(src), DstPort: layers.UDPPort(dst)}
}

// raw is an IPv6 extension header or anything else by its bytes.
func raw(b ...byte) gopacket.Payload { return gopacket.Payload(b) }

func arpFor(op uint16, target netip.Addr) *layers.ARP {
	return &layers.ARP{
		AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: op,
		SourceHwAddress: make([]byte, 6), SourceProtAddress: peerAddr.AsSlice(), DstHwAddress: make([]byte, 6), DstProtAddress: target.AsSlice(),
	}
}

// nd is a neighbour solicitation (135) or advertisement (136).
func nd(kind byte, target netip.Addr) gopacket.Payload {
	return append(raw(kind, 0, 0, 0, 0, 0, 0, 0), target.AsSlice()...)
}

var (
	backend  = netip.MustParseAddr("198.18.0.77")
	backend6 = netip.MustParseAddr("2001:db8::77")
	solicit6 = netip.MustParseAddr("ff02::1:ff00:9")
)

func to(a netip.Addr, proto uint8, ports ...uint16) Rule { return ruleFor(pmd.To, a, proto, ports) }

func from(a netip.Addr, proto uint8, ports ...uint16) Rule { return ruleFor(pmd.From, a, proto, ports) }

func ruleFor(m pmd.RuleKind, a netip.Addr, proto uint8, ports []uint16) Rule {
	r := Rule{Addr: a, Kind: m, Proto: proto}
	if len(ports) > 0 {
		r.PortLo, r.PortHi = ports[0], ports[len(ports)-1]
	}
	return r
}

func fragments(r Rule) Rule {
	r.LaterFragments = true
	return r
}

func prefix(a netip.Addr, proto, bits uint8) Rule { return Rule{Addr: a, Proto: proto, Bits: bits} }

func keep(a netip.Addr) Rule { return Rule{Addr: a, Kind: pmd.Keep} }

func neighbor(a netip.Addr) Rule { return Rule{Addr: a, Kind: pmd.Neighbor} }

// options is an IPv4 header with options.
func options(h *layers.IPv4) {
	h.Options = []layers.IPv4Option{{OptionType: 7, OptionLength: 11, OptionData: make([]byte, 9)}}
}

func fragment(offset uint16, more bool) func(*layers.IPv4) {
	return func(h *layers.IPv4) {
		if h.FragOffset = offset; more {
			h.Flags = layers.IPv4MoreFragments
		}
	}
}

// steerCases are frames with the rules that a gateway would have, and whether they are steered.
var steerCases = []struct {
	name  string
	rules []Rule
	frame []byte
	want  bool
}{
	{"service port", []Rule{to(ourAddr, 6, 80)}, pkt(v4, ip4(peerAddr, ourAddr, 6), tcp(1000, 80)), true},
	{"service port with the address mapped into IPv6", []Rule{to(netip.MustParseAddr("::ffff:198.18.0.9"), 6, 80)}, pkt(v4, ip4(peerAddr, ourAddr, 6), tcp(1000, 80)), true},
	{"another port", []Rule{to(ourAddr, 6, 80)}, pkt(v4, ip4(peerAddr, ourAddr, 6), tcp(1000, 22)), false},
	{"port as source", []Rule{to(ourAddr, 6, 80)}, pkt(v4, ip4(peerAddr, ourAddr, 6), tcp(80, 22)), false},
	{"port of another protocol", []Rule{to(ourAddr, 6, 80)}, pkt(v4, ip4(peerAddr, ourAddr, 17), udp(1000, 80)), false},
	{"port of another address", []Rule{to(ourAddr, 6, 80)}, pkt(v4, ip4(peerAddr, hostAddr, 6), tcp(1000, 80)), false},
	{"service address as source", []Rule{to(ourAddr, 6, 80)}, pkt(v4, ip4(ourAddr, peerAddr, 6), tcp(1000, 80)), false},
	{"no rules", nil, pkt(v4, ip4(peerAddr, ourAddr, 6), tcp(1000, 80)), false},
	{"second of two ports", []Rule{to(ourAddr, 6, 80), to(ourAddr, 6, 443)}, pkt(v4, ip4(peerAddr, ourAddr, 6), tcp(1000, 443)), true},
	{"first of a range", []Rule{to(ourAddr, 17, 2000, 3000)}, pkt(v4, ip4(peerAddr, ourAddr, 17), udp(53, 2000)), true},
	{"last of a range", []Rule{to(ourAddr, 17, 2000, 3000)}, pkt(v4, ip4(peerAddr, ourAddr, 17), udp(53, 3000)), true},
	{"below a range", []Rule{to(ourAddr, 17, 2000, 3000)}, pkt(v4, ip4(peerAddr, ourAddr, 17), udp(53, 1999)), false},
	{"above a range", []Rule{to(ourAddr, 17, 2000, 3000)}, pkt(v4, ip4(peerAddr, ourAddr, 17), udp(53, 3001)), false},
	{"port 0 beside a range", []Rule{to(ourAddr, 17, 2000, 3000)}, pkt(v4, ip4(peerAddr, ourAddr, 17), udp(53, 0)), false},
	{"range that holds another", []Rule{to(ourAddr, 17, 2000, 3000), to(ourAddr, 17, 2100, 2200)}, pkt(v4, ip4(peerAddr, ourAddr, 17), udp(53, 2900)), true},
	{"gap of one between ranges", []Rule{to(ourAddr, 17, 2000, 2100), to(ourAddr, 17, 2102, 2200)}, pkt(v4, ip4(peerAddr, ourAddr, 17), udp(53, 2101)), false},
	{"range that meets another", []Rule{to(ourAddr, 17, 2000, 2100), to(ourAddr, 17, 2101, 2200)}, pkt(v4, ip4(peerAddr, ourAddr, 17), udp(53, 2101)), true},
	{"later fragment, rule with a range from port 0", []Rule{to(ourAddr, 17, 0, 50)}, pkt(v4, ip4(peerAddr, ourAddr, 17, fragment(100, false)), udp(1000, 53)), false},
	{"last of eight ranges", eightRanges(), pkt(v4, ip4(peerAddr, ourAddr, 17), udp(53, 805)), true},
	{"between eight ranges", eightRanges(), pkt(v4, ip4(peerAddr, ourAddr, 17), udp(53, 750)), false},
	{"every port", []Rule{to(ourAddr, 17)}, pkt(v4, ip4(peerAddr, ourAddr, 17), udp(1, 9)), true},
	{"every protocol", []Rule{to(ourAddr, 0)}, pkt(v4, ip4(peerAddr, ourAddr, 89), data), true},
	{"SCTP port", []Rule{to(ourAddr, 132, 80)}, pkt(v4, ip4(peerAddr, ourAddr, 132), raw(1, 2, 0, 80, 0, 0, 0, 0)), true},

	{"answer of a backend", []Rule{from(backend, 6, 8080)}, pkt(v4, ip4(backend, peerAddr, 6), tcp(8080, 5)), true},
	{"backend on another port", []Rule{from(backend, 6, 8080)}, pkt(v4, ip4(backend, peerAddr, 6), tcp(22, 8080)), false},
	{"packet to a backend", []Rule{from(backend, 6, 8080)}, pkt(v4, ip4(peerAddr, backend, 6), tcp(8080, 8080)), false},
	{"everything of a backend", []Rule{from(backend, 0)}, pkt(v4, ip4(backend, peerAddr, 1), data), true},
	{"both addresses have rules, neither matches", []Rule{from(backend, 6, 8080), to(ourAddr, 6, 80)}, pkt(v4, ip4(backend, ourAddr, 6), tcp(80, 8080)), false},

	{"ping without a rule", []Rule{to(ourAddr, 6, 80)}, pkt(v4, ip4(peerAddr, ourAddr, 1), raw(8, 0, 0, 0, 0, 0, 0, 0)), false},
	{"ping with a rule", []Rule{to(ourAddr, 1)}, pkt(v4, ip4(peerAddr, ourAddr, 1), raw(8, 0, 0, 0, 0, 0, 0, 0)), true},
	{"IPv4 options", []Rule{to(ourAddr, 6, 80)}, pkt(v4, ip4(peerAddr, ourAddr, 6, options), tcp(1000, 80)), true},
	{"first fragment", []Rule{to(ourAddr, 17, 53)}, pkt(v4, ip4(peerAddr, ourAddr, 17, fragment(0, true)), udp(1000, 53)), true},
	{"later fragment, rule with a port", []Rule{to(ourAddr, 17, 53)}, pkt(v4, ip4(peerAddr, ourAddr, 17, fragment(100, true)), udp(1000, 53)), false},
	{"later fragment, rule with a range", []Rule{to(ourAddr, 17, 1, 65535)}, pkt(v4, ip4(peerAddr, ourAddr, 17, fragment(100, false)), udp(1000, 53)), false},
	{"later fragment, rule for the protocol", []Rule{to(ourAddr, 17)}, pkt(v4, ip4(peerAddr, ourAddr, 17, fragment(100, false)), udp(1000, 53)), true},
	{"later fragment, rule for the address", []Rule{to(ourAddr, 0)}, pkt(v4, ip4(peerAddr, ourAddr, 17, fragment(1, false)), data), true},
	{"ports cut off", []Rule{to(ourAddr, 6, 80)}, pkt(v4, ip4(peerAddr, ourAddr, 6), raw(0, 80, 0))[:37], false},
	{"ports cut off, rule for the protocol", []Rule{to(ourAddr, 6)}, pkt(v4, ip4(peerAddr, ourAddr, 6), raw(0, 80, 0))[:37], true},
	{"IPv4 header cut off", []Rule{to(ourAddr, 0)}, pkt(v4, ip4(peerAddr, ourAddr, 6))[:33], false},
	{"IPv4 in an IPv6 frame", []Rule{to(ourAddr, 0)}, pkt(v6, ip4(peerAddr, ourAddr, 6), tcp(1, 80)), false},

	{"one tag", []Rule{to(ourAddr, 6, 80)}, pkt(append([]layers.EthernetType{0x8100}, v4...), ip4(peerAddr, ourAddr, 6), tcp(1000, 80)), true},
	{"two tags", []Rule{to(ourAddr, 6, 80)}, pkt(append([]layers.EthernetType{0x88a8, 0x8100}, v4...), ip4(peerAddr, ourAddr, 6), tcp(1000, 80)), true},
	{"three tags", []Rule{to(ourAddr, 6, 80)}, pkt(append([]layers.EthernetType{0x88a8, 0x8100, 0x8100}, v4...), ip4(peerAddr, ourAddr, 6), tcp(1000, 80)), false},
	{"tag cut off", []Rule{to(ourAddr, 0)}, append(make([]byte, 12), 0x81, 0, 0), false},

	{"ARP request for a steered address", []Rule{neighbor(ourAddr)}, pkt(arp, arpFor(1, ourAddr)), true},
	{"ARP reply to a steered address", []Rule{neighbor(ourAddr)}, pkt(arp, arpFor(2, ourAddr)), true},
	{"tagged ARP request for a steered address", []Rule{neighbor(ourAddr)}, pkt(append([]layers.EthernetType{0x8100}, arp...), arpFor(1, ourAddr)), true},
	{"ARP request for the kernel", []Rule{neighbor(ourAddr)}, pkt(arp, arpFor(1, hostAddr)), false},
	{"ARP from a steered address", []Rule{neighbor(peerAddr)}, pkt(arp, arpFor(1, hostAddr)), false},
	{"ARP without a neighbour rule", []Rule{to(ourAddr, 0)}, pkt(arp, arpFor(1, ourAddr)), false},
	{"ARP cut off", []Rule{neighbor(ourAddr)}, pkt(arp, arpFor(1, ourAddr))[:41], false},
	{"service without a neighbour rule's address", []Rule{neighbor(ourAddr)}, pkt(v4, ip4(peerAddr, ourAddr, 6), tcp(1, 80)), false},

	{"IPv6 service port", []Rule{to(our6, 6, 443)}, pkt(v6, ip6(peer6, our6, 6), tcp(1000, 443)), true},
	{"IPv6 other port", []Rule{to(our6, 6, 443)}, pkt(v6, ip6(peer6, our6, 6), tcp(1000, 444)), false},
	{"IPv6 answer of a backend", []Rule{from(backend6, 17, 53)}, pkt(v6, ip6(backend6, peer6, 17), udp(53, 1)), true},
	{
		"hop-by-hop, routing and destination options",
		[]Rule{to(our6, 17, 53)},
		pkt(v6, ip6(peer6, our6, 0), raw(43, 0, 1, 4, 0, 0, 0, 0), raw(60, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), raw(17, 0, 1, 4, 0, 0, 0, 0), udp(1, 53)), true,
	},
	{"authentication header", []Rule{to(our6, 17, 53)}, pkt(v6, ip6(peer6, our6, 51), raw(17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), udp(1, 53)), true},
	{"six extension headers", []Rule{to(our6, 17, 53)}, pkt(v6, ip6(peer6, our6, 60), chain6(6), udp(1, 53)), true},
	{"seven extension headers, rule for the protocol", []Rule{to(our6, 17)}, pkt(v6, ip6(peer6, our6, 60), chain6(7), udp(1, 53)), false},
	{"seven extension headers, rule for the address", []Rule{to(our6, 0)}, pkt(v6, ip6(peer6, our6, 60), chain6(7), udp(1, 53)), true},
	{"extension header cut off, rule for the protocol", []Rule{to(our6, 17)}, pkt(v6, ip6(peer6, our6, 60), raw(17, 0, 1))[:57], false},
	{"IPv6 first fragment", []Rule{to(our6, 17, 53)}, pkt(v6, ip6(peer6, our6, 44), raw(17, 0, 0, 1, 0, 0, 0, 9), udp(1, 53)), true},
	{"IPv6 later fragment, rule with a port", []Rule{to(our6, 17, 53)}, pkt(v6, ip6(peer6, our6, 44), raw(17, 0, 0, 8, 0, 0, 0, 9), udp(1, 53)), false},
	{"IPv6 later fragment, rule for the protocol", []Rule{to(our6, 17)}, pkt(v6, ip6(peer6, our6, 44), raw(17, 0, 0, 8, 0, 0, 0, 9), udp(1, 53)), true},
	{"solicitation for a steered address, multicast", []Rule{neighbor(our6)}, pkt(v6, ip6(peer6, solicit6, 58), nd(135, our6)), true},
	{"solicitation for a steered address, unicast", []Rule{neighbor(our6)}, pkt(v6, ip6(peer6, our6, 58), nd(135, our6)), true},
	{"solicitation for an address with the same multicast group", []Rule{neighbor(our6)}, pkt(v6, ip6(peer6, solicit6, 58), nd(135, netip.MustParseAddr("2001:db8:1::9"))), false},
	{"advertisement to a steered address", []Rule{neighbor(our6)}, pkt(v6, ip6(peer6, our6, 58), nd(136, peer6)), true},
	{"advertisement to the kernel", []Rule{neighbor(our6)}, pkt(v6, ip6(peer6, backend6, 58), nd(136, our6)), false},
	{"ping to a neighbour address", []Rule{neighbor(our6)}, pkt(v6, ip6(peer6, our6, 58), nd(128, our6)), false},
	{"ping with an ICMPv6 rule", []Rule{to(our6, 58)}, pkt(v6, ip6(peer6, our6, 58), raw(128, 0, 0, 0)), true},
	{"solicitation with an ICMPv6 rule", []Rule{to(our6, 58)}, pkt(v6, ip6(peer6, our6, 58), nd(135, our6)), false},
	{"advertisement with an ICMPv6 rule", []Rule{to(our6, 58)}, pkt(v6, ip6(peer6, our6, 58), nd(136, peer6)), false},
	{"redirect with an ICMPv6 rule", []Rule{to(our6, 58)}, pkt(v6, ip6(peer6, our6, 58), nd(137, peer6)), false},
	{"MLD report with an ICMPv6 rule", []Rule{to(our6, 58)}, pkt(v6, ip6(peer6, our6, 58), raw(143, 0, 0, 0)), true},

	{"ICMP of a type", []Rule{to(ourAddr, 1, 3, 12)}, pkt(v4, ip4(peerAddr, ourAddr, 1), raw(3, 4, 0, 0, 0, 0, 0, 0)), true},
	{"ICMP below the types", []Rule{to(ourAddr, 1, 3, 12)}, pkt(v4, ip4(peerAddr, ourAddr, 1), raw(2, 4, 0, 0, 0, 0, 0, 0)), false},
	{"ICMP above the types", []Rule{to(ourAddr, 1, 3, 12)}, pkt(v4, ip4(peerAddr, ourAddr, 1), raw(13, 4, 0, 0, 0, 0, 0, 0)), false},
	{"ICMP of one type", []Rule{to(ourAddr, 1, 8)}, pkt(v4, ip4(peerAddr, ourAddr, 1), raw(8, 0, 0, 0)), true},
	{"ICMP error of a backend", []Rule{from(backend, 1, 3, 12)}, pkt(v4, ip4(backend, peerAddr, 1), raw(3, 3, 0, 0)), true},
	{"echo of a backend", []Rule{from(backend, 1, 3, 3)}, pkt(v4, ip4(backend, peerAddr, 1), raw(8, 0, 0, 0)), false},
	{"ICMP without a type", []Rule{to(ourAddr, 1, 8)}, pkt(v4, ip4(peerAddr, ourAddr, 1))[:34], false},
	{"ICMPv6 error", []Rule{to(our6, 58, 1, 4)}, pkt(v6, ip6(peer6, our6, 58), raw(2, 0, 0, 0)), true},
	{"ICMPv6 echo with a rule for errors", []Rule{to(our6, 58, 1, 4)}, pkt(v6, ip6(peer6, our6, 58), raw(128, 0, 0, 0)), false},

	{"ICMP to an address of a prefix", []Rule{prefix(ourAddr, 1, 24)}, pkt(v4, ip4(peerAddr, hostAddr, 1), raw(3, 0, 0, 0)), true},
	{"ICMP to another prefix", []Rule{prefix(ourAddr, 1, 24)}, pkt(v4, ip4(ourAddr, netip.MustParseAddr("198.18.1.9"), 1), raw(3, 0, 0, 0)), false},
	{"UDP to an address of a prefix", []Rule{prefix(ourAddr, 1, 24)}, pkt(v4, ip4(peerAddr, ourAddr, 17), udp(1, 2)), false},
	{"ICMP to an address of a prefix that the kernel has", []Rule{prefix(ourAddr, 1, 24), keep(hostAddr)}, pkt(v4, ip4(peerAddr, hostAddr, 1), raw(3, 0, 0, 0)), false},
	{"ICMPv6 to an address of a prefix", []Rule{prefix(our6, 58, 64)}, pkt(v6, ip6(peer6, backend6, 58), raw(1, 0, 0, 0)), true},
	{"solicitation to an address of a prefix", []Rule{prefix(our6, 58, 64)}, pkt(v6, ip6(peer6, backend6, 58), nd(135, our6)), false},

	{"later fragment, rule for those", []Rule{fragments(to(ourAddr, 17))}, pkt(v4, ip4(peerAddr, ourAddr, 17, fragment(100, false)), udp(1000, 53)), true},
	{"first fragment, rule for later ones", []Rule{fragments(to(ourAddr, 17))}, pkt(v4, ip4(peerAddr, ourAddr, 17, fragment(0, true)), udp(1000, 53)), false},
	{"port 0, rule for later fragments", []Rule{fragments(to(ourAddr, 17))}, pkt(v4, ip4(peerAddr, ourAddr, 17), udp(1000, 0)), false},
	{"later fragment of another protocol", []Rule{fragments(to(ourAddr, 17))}, pkt(v4, ip4(peerAddr, ourAddr, 6, fragment(100, false)), udp(1000, 53)), false},
	{"later fragment of a backend", []Rule{fragments(from(backend, 17))}, pkt(v4, ip4(backend, peerAddr, 17, fragment(100, false)), udp(1000, 53)), true},
	{"later fragment of ICMP, rule for those", []Rule{fragments(to(ourAddr, 1))}, pkt(v4, ip4(peerAddr, ourAddr, 1, fragment(100, false)), raw(8, 0, 0, 0, 0, 1, 0, 1)), true},
	{"later fragment of ICMP, rule for types", []Rule{to(ourAddr, 1, 3, 12)}, pkt(v4, ip4(peerAddr, ourAddr, 1, fragment(100, false)), raw(8, 0, 0, 0, 0, 1, 0, 1)), false},
	{"echo request, rule for later fragments", []Rule{fragments(to(ourAddr, 1))}, pkt(v4, ip4(peerAddr, ourAddr, 1), raw(8, 0, 0, 0, 0, 1, 0, 1)), false},
	{"IPv6 later fragment of ICMPv6, rule for those", []Rule{fragments(to(our6, 58))}, pkt(v6, ip6(peer6, our6, 44), raw(58, 0, 0, 8, 0, 0, 0, 9), raw(135, 0, 0, 0, 0, 0, 0, 0)), true},
	{"IPv6 later fragment, rule for those", []Rule{fragments(to(our6, 17))}, pkt(v6, ip6(peer6, our6, 44), raw(17, 0, 0, 8, 0, 0, 0, 9), udp(1, 53)), true},

	{"answer of a backend to the kernel", []Rule{from(backend, 6, 8080), keep(hostAddr)}, pkt(v4, ip4(backend, hostAddr, 6), tcp(8080, 5)), false},
	{"answer of a backend to another", []Rule{from(backend, 6, 8080), keep(hostAddr)}, pkt(v4, ip4(backend, peerAddr, 6), tcp(8080, 5)), true},
	{"a service of an address that the kernel has", []Rule{to(hostAddr, 6, 80), keep(hostAddr)}, pkt(v4, ip4(backend, hostAddr, 6), tcp(8080, 80)), true},

	{"not IP", []Rule{to(our6, 0), to(ourAddr, 0)}, append(make([]byte, 12), 0x88, 0xb5, 0, 0), false},
	{"Ethernet header only", []Rule{to(ourAddr, 0)}, append(make([]byte, 12), 8, 0), false},
}

// chain6 is n destination options headers in front of UDP.
func chain6(n int) gopacket.Payload {
	var b gopacket.Payload
	for i := range n {
		next := byte(60)
		if i == n-1 {
			next = 17
		}
		b = append(b, next, 0, 1, 4, 0, 0, 0, 0)
	}
	return b
}

func eightRanges() (rules []Rule) {
	for i := range uint16(8) {
		rules = append(rules, to(ourAddr, 17, 100+100*i, 110+100*i))
	}
	return rules
}

func TestSteering(t *testing.T) {
	p, s := loadSteering(t, false)
	for _, c := range steerCases {
		t.Run(c.name, func(t *testing.T) {
			must(t, s.Replace(c.rules...))
			if got := steers(t, p, s, c.frame); got != c.want {
				t.Errorf("steered: %v, want %v\n%v", got, c.want, gopacket.NewPacket(c.frame, layers.LayerTypeEthernet, gopacket.Default))
			}
			if got := reference(c.rules, c.frame); got != c.want {
				t.Errorf("the reference says %v, want %v", got, c.want)
			}
		})
	}
}

func TestAllSteersEverythingAndHasNoRules(t *testing.T) {
	p, s := loadSteering(t, true)
	for _, c := range steerCases {
		if !steers(t, p, s, c.frame) {
			t.Errorf("%s: passed to the kernel", c.name)
		}
	}
	if err := s.Add(to(ourAddr, 0)); !errors.Is(err, ErrRule) {
		t.Errorf("Add returned %v", err)
	}
}

func TestInvalidRulesAreRejected(t *testing.T) {
	_, s := loadSteering(t, false)
	good := to(ourAddr, 6, 80)
	var nine []Rule
	for i := range uint16(9) {
		nine = append(nine, to(ourAddr, 17, 100+5000*i, 100+5000*i+maxSmall))
	}
	for name, rules := range map[string][]Rule{
		"no address":                {good, {Proto: 6}},
		"unknown match":             {good, {Addr: ourAddr, Kind: 9}},
		"ports the wrong way round": {good, to(ourAddr, 6, 80, 70)},
		"ports without protocol":    {good, to(ourAddr, 0, 80)},
		"a type above 255":          {good, to(ourAddr, 1, 256)},
		"ports of ESP":              {good, to(ourAddr, 50, 80)},
		"kept ports":                {good, {Addr: ourAddr, Kind: pmd.Keep, Proto: 6}},
		"fragments of no protocol":  {good, fragments(to(ourAddr, 0))},
		"fragments with ports":      {good, fragments(to(ourAddr, 6, 80))},
		"a prefix of TCP":           {good, prefix(ourAddr, 6, 24)},
		"a prefix of 33 bits":       {good, prefix(ourAddr, 1, 33)},
		"neighbour with protocol":   {good, {Addr: ourAddr, Kind: pmd.Neighbor, Proto: 6}},
		"too many ranges":           append(nine, good),
	} {
		if err := s.Add(rules...); !errors.Is(err, ErrRule) {
			t.Errorf("%s: Add returned %v", name, err)
		}
	}
	if left := s.Rules(); len(left) != 0 {
		t.Errorf("rejected rules were added: %v", left)
	}
}

// Ranges beyond those that the program searches are entered port by port, and follow the rules as others do.
func TestSmallRangesBeyondEightAreEnteredByPort(t *testing.T) {
	p, s := loadSteering(t, false)
	rules := append(eightRanges(), to(ourAddr, 17, 9000, 9001), to(ourAddr, 17, 20000, 20000+maxSmall-12), to(ourAddr, 17, 30000, 40000))
	check := func(rules []Rule) {
		t.Helper()
		for _, port := range []uint16{99, 100, 110, 111, 750, 800, 810, 811, 8999, 9000, 9001, 9002, 19999, 20000, 20000 + maxSmall - 12, 20001 + maxSmall - 12, 29999, 30000, 40000, 40001} {
			frame := pkt(v4, ip4(peerAddr, ourAddr, 17), udp(53, int(port)))
			if got, want := steers(t, p, s, frame), reference(rules, frame); got != want {
				t.Errorf("port %d is steered: %v, want %v", port, got, want)
			}
		}
	}
	must(t, s.Replace(rules...))
	check(rules)
	must(t, s.Replace(rules[2:]...))
	check(rules[2:])
	must(t, s.Replace())
	if left := dump(t, s); len(left) != 0 {
		t.Errorf("the empty set has entries: %v", left)
	}
}

func TestEquivalentRulesAreOne(t *testing.T) {
	_, s := loadSteering(t, false)
	mapped := netip.AddrFrom16(ourAddr.As16())
	must(t, s.Add(to(ourAddr, 6, 80), Rule{Addr: mapped, Proto: 6, PortLo: 80}, to(ourAddr, 6), Rule{Addr: ourAddr, Proto: 6, PortHi: 65535}))
	want := []Rule{to(ourAddr, 6), to(ourAddr, 6, 80)}
	if diff := cmp.Diff(want, s.Rules(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

// TestChangesEqualAFreshSet adds and removes rules at random and compares the maps in
// the kernel with those of a program that was only given the result.
func TestChangesEqualAFreshSet(t *testing.T) {
	_, s := loadSteering(t, false)
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		for range 5 {
			var rules []Rule
			for range rnd.IntN(6) {
				rules = append(rules, append(fuzzRules, moreRules...)[rnd.IntN(len(fuzzRules)+len(moreRules))])
			}
			if rnd.IntN(2) == 0 {
				must(t, s.Add(rules...))
			} else {
				must(t, s.Remove(rules...))
			}
		}
		_, fresh := loadSteering(t, false)
		must(t, fresh.Add(s.Rules()...))
		if diff := cmp.Diff(dump(t, fresh), dump(t, s)); diff != "" {
			t.Fatal(diff)
		}
	}
	must(t, s.Replace())
	if left := dump(t, s); len(left) != 0 {
		t.Errorf("the empty set has entries: %v", left)
	}
}

// dump reads the maps of rules, as bytes.
func dump(t testing.TB, s *Steering) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, m := range map[string]*ebpf.Map{"addresses": s.maps.Addresses, "ports": s.maps.Ports, "ranges": s.maps.Ranges, "prefixes": s.maps.Prefixes} {
		key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
		it := m.Iterate()
		for it.Next(&key, &value) {
			out[name+" "+string(key)] = string(value)
		}
		must(t, it.Err())
	}
	return maps.Clone(out)
}

func TestSteeringLeavesOtherPacketsToTheKernel(t *testing.T) {
	for _, mode := range []Mode{ModeNative, ModeGeneric} {
		w := newNetwork(t, 1, 1500)
		r := w.open(t, Config{Mode: mode, Rules: []Rule{
			to(hostAddr, 17, 53), // an address shared with the kernel
			neighbor(ourAddr), to(ourAddr, 6, 80), neighbor(our6), to(our6, 6, 80),
		}})
		w.wantKernelReset(t, hostAddr, true) // ARP, SYN and RST
		w.wantKernelReset(t, netip.MustParseAddr("2001:db8::1"), true)
		w.sendUDP(t, "198.18.0.1:53", []byte("steered"), 0)
		r.wantPacket(t, "UDP to the steered port of a shared address", func(f []byte) bool { return f[12] == 8 && f[23] == 17 })
		go w.dial(ourAddr, time.Second) // no host answers ARP for it: the request is steered
		r.wantPacket(t, "ARP for the steered address", func(f []byte) bool { return f[12] == 8 && f[13] == 6 })
		go w.dial(our6, time.Second)
		r.wantPacket(t, "solicitation for the steered IPv6 address", func(f []byte) bool { return f[12] == 0x86 && f[54] == 135 })

		must(t, r.Steering().Remove(to(hostAddr, 17, 53)))
		before, err := r.Steering().Counts()
		must(t, err)
		w.sendUDP(t, "198.18.0.1:53", []byte("the kernel's now"), 0)
		w.wantKernelReset(t, hostAddr, true)
		after, err := r.Steering().Counts()
		must(t, err)
		if after.Passed < before.Passed+2 {
			t.Errorf("counters went from %+v to %+v", before, after)
		}
		must(t, r.Steering().Add(to(hostAddr, 17, 53)))
		w.sendUDP(t, "198.18.0.1:53", []byte("steered again"), 0)
		r.wantPacket(t, "UDP after the rule is back", func(f []byte) bool { return f[12] == 8 && f[23] == 17 })
	}
}

// wantPacket receives until a frame is accepted.
func (r *rig) wantPacket(t testing.TB, what string, accept func([]byte) bool) {
	t.Helper()
	t.Log(what)
	b := newBatch(r)
	for found := false; !found; {
		r.recv(t, b, 1)
		for i := range b.D {
			found = found || b.Len() > 0 && accept(b.Bytes(i))
		}
		r.pools[0].PutBatch(b)
	}
}

func TestAddressFilterFollowsTheRules(t *testing.T) {
	w := newNetwork(t, 1, 1500)
	groups := func() string { return w.run(t, w.host, "ip", "maddr", "show", "dev", dev) }
	link := func() string { return w.run(t, w.host, "ip", "-d", "link", "show", "dev", dev) }
	const group, same = "33:33:ff:00:aa:09", "2001:db8:5::aa09"
	vip := netip.MustParseAddr("2001:db8::aa09")

	r := w.open(t, Config{Rules: []Rule{neighbor(ourAddr), neighbor(vip)}})
	if !strings.Contains(groups(), group) || strings.Contains(link(), "promiscuity 1") {
		t.Errorf("with a neighbour rule:\n%s%s", groups(), link())
	}
	must(t, r.Steering().Add(neighbor(netip.MustParseAddr(same)), neighbor(vip)))
	must(t, r.Steering().Remove(neighbor(vip)))
	if !strings.Contains(groups(), group) {
		t.Errorf("the group of another address is left: %s", groups())
	}
	must(t, r.Steering().Replace())
	if strings.Contains(groups(), group) {
		t.Errorf("the group stays without a rule: %s", groups())
	}
	must(t, r.Steering().Add(neighbor(vip)))
	must(t, r.Close())
	if strings.Contains(groups(), group) {
		t.Errorf("the group stays after Close: %s", groups())
	}

	all := w.open(t, Config{All: true})
	if !strings.Contains(link(), "promiscuity 1") {
		t.Errorf("with All: %s", link())
	}
	must(t, all.Close())
	if !strings.Contains(link(), "promiscuity 0") {
		t.Errorf("after Close: %s", link())
	}
}
