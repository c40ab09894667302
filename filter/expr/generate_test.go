package expr

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
)

// generator writes random expressions of the whole grammar.
type generator struct {
	*rand.Rand
	link LinkType
}

func pick[T any](g *generator, of ...T) T { return of[g.IntN(len(of))] }

// expression returns an expression with at most depth levels.
func (g *generator) expression(depth int) string {
	s := g.term(depth)
	for g.IntN(3) == 0 {
		op := pick(g, " and ", " or ", " && ", " || ")
		s += op + g.term(depth)
	}
	return s
}

func (g *generator) term(depth int) string {
	if depth > 0 {
		switch g.IntN(8) {
		case 0:
			return "not " + g.term(depth-1)
		case 1:
			return "!(" + g.expression(depth-1) + ")"
		case 2, 3:
			return "(" + g.expression(depth-1) + ")"
		}
	}
	switch g.IntN(12) {
	case 0, 1:
		return g.proto()
	case 2, 3:
		return g.relation(depth)
	case 4:
		return g.keyword()
	case 5:
		return pick(g, "tcp ", "udp ", "sctp ", "", "") + g.dir() + "port " + g.list(g.port)
	case 6:
		return pick(g, "tcp ", "udp ", "", "") + g.dir() + fmt.Sprintf("portrange %s-%s", g.port(), g.port())
	case 7:
		return pick(g, "ip ", "", "arp ", "rarp ", "") + g.dir() + "host " + g.list(g.ipv4)
	case 8:
		return pick(g, "ip ", "", "arp ", "") + g.dir() + "net " + g.net()
	case 9:
		return pick(g, "ip6 ", "", "") + g.dir() + pick(g, "host ", "net ") + g.ipv6()
	case 10:
		return "ether " + g.dir() + "host " + g.mac()
	}
	return pick(g, "ip ", "ip6 ", "", "ether ", "iso ", "isis ") + "proto " +
		pick(g, `\tcp`, `\udp`, "6", "17", "1", "58", "0x800", "0x86dd", `\ip`, `\arp`, "47", `\icmp`, "0x83", "12")
}

func (g *generator) dir() string {
	return pick(g, "", "", "src ", "dst ", "src or dst ", "src and dst ", "dst or src ")
}

// list returns one identifier, or several in parentheses.
func (g *generator) list(one func() string) string {
	if g.IntN(5) > 0 {
		return one()
	}
	s := one()
	for range g.IntN(3) + 1 {
		s += pick(g, " or ", " and ") + pick(g, "", "", "not ") + one()
	}
	return "(" + s + ")"
}

func (g *generator) port() string {
	return pick(g, "80", "53", "443", "22", "123", "1900", "5353", "67", strconv.Itoa(g.IntN(65536)), "0x50")
}

func (g *generator) ipv4() string {
	return pick(g, "10.0.0.1", "192.168.1.1", "192.168.1.2", "224.0.0.251", "8.8.8.8", "127.0.0.1", "172.16", "10",
		"192.168.1", "0.0.0.0", fmt.Sprintf("192.168.%d.%d", g.IntN(3), g.IntN(256)))
}

func (g *generator) net() string {
	return pick(g, "10.0.0.0/8", "192.168.0.0/16", "192.168.1.0/24", "10", "172.16.0.0 mask 255.240.0.0", "192.168",
		"0.0.0.0/0", "224.0.0.0/4", "10.1", "8.8.8.8/32", "192.168.1.1/24")
}

func (g *generator) ipv6() string {
	return pick(g, "::1", "fe80::1", "2001:db8::/32", "ff02::fb", "fe80::/10", "::/0", "2001:db8::1/128", "ff00::/8",
		"::ffff:1.2.3.4")
}

func (g *generator) mac() string {
	return pick(g, "ff:ff:ff:ff:ff:ff", "0:1:2:3:4:5", "00-11-22-33-44-55", "0011.2233.4455", "001122334455",
		"01:00:5e:00:00:fb", "33:33:00:00:00:01")
}

func (g *generator) proto() string {
	return pick(g, "ip", "ip6", "tcp", "udp", "icmp", "icmp6", "arp", "rarp", "sctp", "igmp", "ah", "esp", "pim", "vrrp",
		"ip", "tcp", "udp", "atalk", "aarp", "ipx", "stp", "netbeui", "iso", "isis", "esis", "clnp", "l1", "l2", "iih",
		"lsp", "snp", "csnp", "psnp", "decnet", "lat", "sca", "moprc", "mopdl", "carp", "igrp")
}

func (g *generator) keyword() string {
	n := strconv.Itoa(g.IntN(300))
	s := pick(g, "broadcast", "multicast", "ip multicast", "ip6 multicast", "ether broadcast", "less "+n, "greater "+n,
		"byte 3 > 4", "byte 12 & 8", "byte 0 | 0", "byte 14 = 0x45", "vlan", "vlan 100", "vlan and vlan 5", "mpls",
		"mpls 16", "pppoes", "pppoed", "pppoes 1", "geneve", "vxlan", "geneve 5 and tcp", "vxlan 42 and ip", "llc", "llc u",
		"llc rnr", "llc ui", "ip protochain 6", "ip6 protochain 17", "protochain 51", "vlan and ip", "mpls and ip",
		"pppoes and ip", "vxlan and tcp port 80", "inbound", "outbound", "decnet src 1.2", "decnet host 10.500")
	switch g.link {
	case Link80211, LinkRadiotap, LinkPrism, LinkAVS, LinkPPI:
		s = pick(g, s, "type mgt", "type data subtype qos-data", "subtype beacon", "dir tods", "type ctl subtype ack",
			"wlan addr1 0:1:2:3:4:5", "wlan addr2 0:1:2:3:4:5", "wlan addr3 0:1:2:3:4:5", "wlan addr4 0:1:2:3:4:5",
			"wlan ra 0:1:2:3:4:5", "wlan ta 0:1:2:3:4:5", "radio[0] = 0", "wlan[0] != 0x80", "dir 3")
	case LinkSunATM:
		s = pick(g, s, "vpi 3", "vci > 5", "vci (3 or 4 or 5)", "metac", "bcc", "oam", "oamf4", "sc", "ilmic", "lane", "llc",
			"connectmsg", "metaconnect", "lane and ip", "vpi <= 2")
	case LinkMTP2, LinkMTP2Phdr, LinkERF:
		s = pick(g, "fisu", "lssu", "msu", "hfisu", "hlssu", "hmsu", "sio 3", "opc 70", "dpc >= 80", "sls (1 or 2)",
			"hsio 4", "hopc < 300", "hdpc != 5", "hsls 7", "opc (1 or 2)", s)
	case LinkPFLog:
		s = pick(g, s, "ifname em0", "on em1", "rset xyz", "rulenum 5", "srnr 4", "reason match", "action pass", "reason 3",
			"action block")
	}
	return s
}

func (g *generator) relation(depth int) string {
	op := pick(g, "=", "==", "!=", ">", "<", ">=", "<=")
	return g.arith(2) + pick(g, " ", "") + op + pick(g, " ", "") + g.arith(pick(g, 0, 0, 0, 1))
}

func (g *generator) arith(depth int) string {
	if depth > 0 {
		switch g.IntN(6) {
		case 0:
			return g.arith(depth-1) + pick(g, " + ", " - ", " * ", " & ", " | ", " / ", " % ", " ^ ", " << ", " >> ") +
				g.arith(depth-1)
		case 1:
			return "(" + g.arith(depth-1) + pick(g, " & ", " + ", " << ", "*") + g.number() + ")"
		case 2:
			return "-" + g.arith(depth-1)
		}
	}
	if g.IntN(3) == 0 {
		return pick(g, g.number(), g.number(), "len")
	}
	of := pick(g, "ip", "tcp", "udp", "ether", "icmp", "ip6", "icmp6", "arp", "sctp", "igmp", "link")
	at := pick(g, "0", "1", "2", "4", "6", "8", "9", "12", "13", "16", "tcpflags", "icmptype", "20", "40", "ip[0]&0xf",
		strconv.Itoa(g.IntN(100)), "len-1", "4*(ip[0]&15)")
	return of + "[" + at + pick(g, "", ":1", ":2", ":4") + "]"
}

func (g *generator) number() string {
	return pick(g, "0", "1", "2", "5", "6", "17", "64", "0x0f", "0x45", "0x1fff", "100", "255", "0xffffffff", "tcp-syn",
		"tcp-ack", "icmp-echo", strconv.Itoa(g.IntN(70000)))
}

// generatedLinks are the link types of generated expressions, Ethernet most often.
var generatedLinks = []LinkType{
	LinkEthernet, LinkEthernet, LinkEthernet, LinkEthernet, LinkEthernet, LinkEthernet, LinkEthernet, LinkEthernet,
	LinkEthernet, LinkEthernet, LinkRaw, LinkLinuxCooked, LinkLinuxCooked2, LinkNull, LinkLoop, Link80211, LinkRadiotap,
	LinkPPP, LinkPPPoE, LinkPFLog, LinkPrism, LinkAVS, LinkPPI, LinkFDDI, LinkTokenRing, LinkSunATM, LinkMTP2, LinkIPv4,
	LinkIPv6, LinkCiscoHDLC, LinkFrameRelay, LinkIPOverFC, LinkARCNETLinux, LinkDSATagMarvell, LinkNetAnalyzer,
	LinkATMRFC1483, LinkPPPBSDOS, LinkEnc, LinkIPNET, LinkJuniperEther, LinkERF, LinkBACnetMSTP, LinkSLIP,
}

// strict reports an expression that libpcap refuses for a mistake of its own: it takes the first
// instruction of a divisor for the divisor. So "len / ip[0]" divides by zero there, for the index.
func strict(v verdict) bool {
	for _, s := range []string{"division by zero", "modulus by zero", "shift by more than 31 bits"} {
		if strings.Contains(v.err, s) {
			return true
		}
	}
	return strings.Contains(v.err, "too many registers")
}

// clobbered reports an expression for which libpcap keeps the place of a header in a cell of memory that
// also holds an intermediate value: the cell was free when the arithmetic was compiled, and what fills it
// is put in front of the program. The tests after it look at arbitrary places.
func clobbered(t *testing.T, q question) bool {
	t.Helper()
	opts := q.options()
	n, err := parse(q.text)
	if err != nil {
		t.Fatal(err)
	}
	_, g, err := lowerState(n, q.link, &opts)
	if err != nil {
		t.Fatal(err)
	}
	return g.mixed
}

// movedHeader reports expressions whose current header does not begin with the packet.
func movedHeader(t LinkType, text string) bool {
	l := links[t]
	for _, word := range []string{"vxlan", "geneve", "pppoes", "lane"} {
		if strings.Contains(text, word) {
			return true
		}
	}
	return l.header != 0 || l.headerVaries || l.payloadVaries
}

// TestGenerated compares MILLRACE_PCAP_EXPRESSIONS generated expressions (10 000) with libpcap, on all
// captures of MILLRACE_PCAPS and of libpcap's tests and on packets made for each expression.
func TestGenerated(t *testing.T) {
	count := 10000
	if n, err := strconv.Atoi(os.Getenv("MILLRACE_PCAP_EXPRESSIONS")); err == nil {
		count = n
	}
	seed, _ := strconv.ParseUint(os.Getenv("MILLRACE_PCAP_SEED"), 10, 64)
	files := captureFiles(t, os.Getenv("MILLRACE_PCAP_FILES"))
	if dir := os.Getenv("MILLRACE_PCAPS"); dir != "" {
		files = append(files, captureFiles(t, dir)...)
	}
	o := startOracle(t, files)
	pkts := readCaptures(t, files)
	rng := rand.New(rand.NewPCG(3, seed))
	batches := map[LinkType]batchCase{}
	for link := range pkts {
		batches[link] = newBatchCase(t, link, pkts[link])
	}
	valid, refused, lenient, broken, judged, matched := 0, 0, 0, 0, 0, 0
	for valid < count {
		g := generator{rng, generatedLinks[rng.IntN(len(generatedLinks))]}
		q := question{link: g.link, text: g.expression(3), source: pick(&g, FromFile, FromFile, FromSwappedFile, FromHost)}
		if rng.IntN(3) == 0 {
			q.netmask = netip.MustParseAddr("255.255.255.0")
		}
		// libpcap adds the place of the header to the offsets of metadata, which breaks them.
		q.kernel = rng.IntN(10) == 0 && !movedHeader(g.link, q.text)
		v := o.ask(t, q)
		f, err := Compile(q.text, q.link, q.options())
		switch {
		case v.err != "" && err != nil:
			refused++
			continue
		case v.err != "" && strict(v):
			lenient++
			continue
		case v.err != "" || err != nil:
			t.Errorf("%q on %v: libpcap says %q, we %v", q.text, q.link, v.err, err)
			continue
		}
		if clobbered(t, q) {
			broken++
			continue
		}
		valid++
		var aux *auxData
		if q.kernel {
			aux = &auxData{rng.Uint32N(2), 5 + rng.Uint32N(2), 3 + rng.Uint32N(2), rng.Uint32N(20)}
		}
		made := directed(rng, v.prog, 60)
		m, ok := agree(t, q, f, v, made, aux)
		judged += len(made)
		matched += m
		if !ok || q.kernel {
			continue
		}
		judged += len(pkts[q.link])
		for i, p := range pkts[q.link] {
			want := strings.IndexByte("0123456789abcdef", v.matches[i/4])>>(i%4)&1 == 1
			if want {
				matched++
			}
			if got := f.Match(p.data, int(p.len)); got != want {
				t.Errorf("%q on %v, packet %d: %v, libpcap says %v\n%x", q.text, q.link, i, got, want, p.data)
				break
			}
		}
		batches[q.link].check(t, f)
	}
	t.Logf("%d expressions compared, %d refused by both, %d only by libpcap, %d clobbered there, %d verdicts, %d matches",
		valid, refused, lenient, broken, judged, matched)
}
