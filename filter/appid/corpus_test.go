package appid

import (
	"bufio"
	"crypto/sha256"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/capture"
)

// flowID is a flow of a capture, by the addresses of its ends in the order of a flow's first packet.
type flowID struct {
	transport string
	a, b      netip.AddrPort
}

func (f flowID) reversed() flowID { return flowID{f.transport, f.b, f.a} }

// expectation is what the other classifier says of a flow.
type expectation struct {
	id         flowID
	name       string // master protocol
	sub        string
	sni        string
	confidence string
	line       string
}

var expectedFlow = regexp.MustCompile(`^\s+\d+\s+(\S+) (?:(\S+?):(\d+)|\[(\S+)\]:(\d+)|(\S+)) <?->? (?:(\S+?):(\d+)|\[(\S+)\]:(\d+)|(\S+)) (?:\[VLAN: \d+\])?.*?\[proto: [^/]*/([^\]]+)\]`)

// expectations reads the judge's file of a capture.
func expectations(t testing.TB, path string) []expectation {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []expectation
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		m := expectedFlow.FindStringSubmatch(in.Text())
		if m == nil {
			continue
		}
		master, sub, _ := strings.Cut(m[12], ".")
		all = append(all, expectation{
			id:   flowID{m[1], end(m[2:7]), end(m[7:12])},
			name: master, sub: sub, sni: field(in.Text(), "Hostname/SNI: "), confidence: field(in.Text(),
				"Confidence: "), line: in.Text(),
		})
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func end(m []string) netip.AddrPort {
	host, port := strings.Trim(m[0]+m[2]+m[4], "[]"), m[1]+m[3]
	a, _ := netip.ParseAddr(host)
	if port == "" {
		port = "0"
	}
	p, _ := netip.ParseAddrPort("0.0.0.0:" + port)
	return netip.AddrPortFrom(a, p.Port())
}

func field(line, name string) string {
	_, rest, found := strings.Cut(line, "["+name)
	if !found {
		return ""
	}
	v, _, _ := strings.Cut(rest, "]")
	return v
}

// each calls f with all packets of a capture that have a transport.
func each(t testing.TB, path string, f func(id flowID, p *Packet)) { eachOf(t, path, false, f) }

// eachOf is each, of the outermost UDP or TCP instead of the innermost if outermost.
func eachOf(t testing.TB, path string, outermost bool, f func(id flowID, p *Packet)) {
	r, err := capture.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		rec, err := r.Next()
		if err != nil {
			break
		}
		decode(rec, outermost, f)
	}
}

// decode finds the innermost IP packet of a record, or the outermost.
func decode(rec *capture.Record, outermost bool, f func(id flowID, p *Packet)) {
	frame, err := capture.ToEthernet(rec.LinkType, rec.Data, nil)
	if err != nil {
		return
	}
	pkt := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.DecodeOptions{Lazy: false, NoCopy: true})
	var id flowID
	var p Packet
	found := false
	for _, l := range pkt.Layers() {
		switch l := l.(type) {
		case *layers.IPv4:
			src, _ := netip.AddrFromSlice(l.SrcIP)
			dst, _ := netip.AddrFromSlice(l.DstIP)
			id = flowID{proto(l.Protocol), netip.AddrPortFrom(src, 0), netip.AddrPortFrom(dst, 0)}
			p = Packet{Transport: uint8(l.Protocol), Payload: l.Payload}
			found = l.FragOffset == 0
		case *layers.IPv6:
			src, _ := netip.AddrFromSlice(l.SrcIP)
			dst, _ := netip.AddrFromSlice(l.DstIP)
			id = flowID{proto(l.NextHeader), netip.AddrPortFrom(src, 0), netip.AddrPortFrom(dst, 0)}
			p = Packet{Transport: uint8(l.NextHeader), Payload: l.Payload}
			found = true
		case *layers.TCP:
			id.transport = "TCP"
			id.a, id.b = netip.AddrPortFrom(id.a.Addr(), uint16(l.SrcPort)), netip.AddrPortFrom(id.b.Addr(),
				uint16(l.DstPort))
			p = Packet{
				Transport: 6, Source: uint16(l.SrcPort), Destination: uint16(l.DstPort), Payload: l.Payload,
				Sequence: l.Seq, SYN: l.SYN,
			}
			if outermost {
				f(id, &p)
				return
			}
		case *layers.UDP:
			id.transport = "UDP"
			id.a, id.b = netip.AddrPortFrom(id.a.Addr(), uint16(l.SrcPort)), netip.AddrPortFrom(id.b.Addr(),
				uint16(l.DstPort))
			p = Packet{Transport: 17, Source: uint16(l.SrcPort), Destination: uint16(l.DstPort), Payload: l.Payload}
			if outermost {
				f(id, &p)
				return
			}
		}
	}
	if found {
		f(id, &p)
	}
}

func proto(p layers.IPProtocol) string {
	switch p {
	case 1:
		return "ICMP"
	case 2:
		return "IGMP"
	case 58:
		return "ICMPV6"
	case 50:
		return "ESP"
	case 51:
		return "AH"
	case 47:
		return "GRE"
	case 89:
		return "OSPF"
	case 103:
		return "PIM"
	case 112:
		return "VRRP"
	case 113:
		return "PGM"
	case 132:
		return "SCTP"
	}
	return p.String()
}

// heldOut reports whether a capture belongs to the third that recognisers are not tuned on: the first byte of SHA-256 of
// its name is divisible by 3.
func heldOut(name string) bool { return sha256.Sum256([]byte(name))[0]%3 == 0 }

// corpus returns the expectations of the tuned part, or of the held-out part if MILLRACE_PCAPS_PART is "held-out".
func corpus(t testing.TB) []string {
	dir := os.Getenv("MILLRACE_PCAPS")
	if dir == "" {
		t.Skip("MILLRACE_PCAPS names no folder of captures")
	}
	part := os.Getenv("MILLRACE_PCAPS_PART")
	if part != "" && part != "tuned" && part != "held-out" {
		t.Fatalf("MILLRACE_PCAPS_PART is %q: set it to tuned or held-out", part)
	}
	files, err := filepath.Glob(filepath.Join(dir, "expected", "*.out"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no expectations in %s: %v", dir, err)
	}
	return slices.DeleteFunc(files, func(f string) bool {
		return heldOut(strings.TrimSuffix(filepath.Base(f), ".out")) != (part == "held-out")
	})
}

// The split must not move: a capture that changes sides was tuned on. The digests are those of sha256sum.
func TestSplitOfCaptures(t *testing.T) {
	for name, want := range map[string]bool{
		"a.pcap":   false, // 08fc...
		"b.pcap":   true,  // 307a...
		"c.pcap":   false, // d75a...
		"d.pcap":   true,  // 6973...
		"e.pcapng": false, // d4af...
		"f.pcapng": false, // dc16...
	} {
		if got := heldOut(name); got != want {
			t.Errorf("%s: held out %v, want %v", name, got, want)
		}
	}
}
