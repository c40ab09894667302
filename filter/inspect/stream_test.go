package inspect

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/wire"
)

const evil = `alert tcp any any -> any any (flow:established,to_server; content:"attack at dawn"; sid:7;)`

// TestPatternIsFoundOnce cuts a pattern everywhere, and sends the pieces in any order and several times.
func TestPatternIsFoundOnce(t *testing.T) {
	const text = "we attack at dawn, or later"
	rng := rand.New(rand.NewPCG(5, 6))
	for round := range 500 {
		l := newLab(t, evil)
		c := l.tcp(9).open()
		type piece struct{ at, n int }
		var pieces []piece
		for at := 0; at < len(text); {
			n := 1 + rng.IntN(min(9, len(text)-at))
			pieces = append(pieces, piece{at, n})
			at += n
		}
		for range round % 4 { // and again, cut otherwise
			at := rng.IntN(len(text))
			pieces = append(pieces, piece{at, 1 + rng.IntN(len(text)-at)})
		}
		rng.Shuffle(len(pieces), func(i, j int) { pieces[i], pieces[j] = pieces[j], pieces[i] })
		for _, p := range pieces {
			c.seg(true, c.cSeq+uint32(p.at), wire.FlagACK, text[p.at:p.at+p.n])
		}
		if l.want("shuffled", "7"); t.Failed() {
			t.Fatalf("pieces %v", pieces)
		}
	}
}

func TestDifferentBytesAreAnAnomaly(t *testing.T) {
	l := newLab(t, evil)
	c := l.tcp(9).open()
	c.seg(true, c.cSeq+3, wire.FlagACK, "attack ")
	c.seg(true, c.cSeq+3, wire.FlagACK, "nothing")
	l.want("out of order", "stream overlap differs")
	c.seg(true, c.cSeq, wire.FlagACK, "we ")
	c.seg(true, c.cSeq+10, wire.FlagACK, "at dawn")
	l.want("the bytes that came first count", "7 stream overlap differs")
	c.cSeq += 17
	c.seg(false, c.sSeq, wire.FlagACK, "")
	c.seg(true, c.cSeq-1, wire.FlagACK, "\x00")
	l.want("a keep-alive is none", "7 stream overlap differs")
	c.seg(true, c.cSeq-2, wire.FlagACK, "!!")
	l.want("delivered bytes", "7 stream overlap differs stream overlap differs")
}

// TestPositionsCountInSegmentsToo has rules with a depth whose contents begin a later segment: those with a content to search for and
// those without.
func TestPositionsCountInSegmentsToo(t *testing.T) {
	for _, options := range []string{
		`content:"later"; depth:5;`, `content:"l"; depth:1; content:"te"; distance:1; within:2;`,
		`content:"l"; startswith; pcre:"/^later/";`, `content:"at"; offset:1; depth:2;`,
		`content:"LA"; nocase; depth:2;`, `content:"at"; depth:4;`, `content:!"f"; depth:1; content:"te"; offset:2; depth:2;`,
	} {
		l := newLab(t, "alert tcp any any -> any any (flow:established,to_server; "+options+" sid:1;)")
		l.tcp(9).open().send(true, "first", 5).send(true, "later", 5).send(true, "x later", 7)
		l.want(options, "1")
	}
}

// TestFlowIsKept wants direction and state: the same bytes elsewhere are no match.
func TestFlowIsKept(t *testing.T) {
	l := newLab(t, evil)
	l.tcp(9).open().send(false, "attack at dawn", 100)
	l.want("to the client", "")
	l = newLab(t, evil)
	l.tcp(9).send(true, "attack at dawn", 100)
	l.want("without a handshake", "")
	l = newLab(t, evil)
	l.udp(9, "attack at dawn")
	l.want("UDP", "")
	l = newLab(t, `alert tcp any any -> any any (content:"attack at dawn";)`)
	l.tcp(9).send(true, "attack at dawn", 100)
	l.want("without a handshake, for a rule that does not ask", "1")
	l = newLab(t, `alert udp any any -> any any (flow:established; content:"answer";)`)
	l.udp(9, "answer")
	l.want("the first datagram", "")
	l.frame(ether(wire.EtherTypeIPv4, ipPacket(server, client, wire.ProtoUDP, append(wire.AppendUDP(nil, 9, 4000, 6), "answer"...))))
	l.want("the answer", "1")
}

// TestTunnelsAreLookedInto wraps one connection in each of them.
func TestTunnelsAreLookedInto(t *testing.T) {
	over := func(proto uint8, head []byte) func(ip []byte) []byte {
		return func(ip []byte) []byte {
			return ether(wire.EtherTypeIPv4, ipPacket(server, client, proto, append(append([]byte{}, head...), ip...)))
		}
	}
	overUDP := func(port uint16, head []byte) func(ip []byte) []byte {
		return func(ip []byte) []byte {
			return ether(wire.EtherTypeIPv4, udpPacket(9999, port, append(append([]byte{}, head...), ip...)))
		}
	}
	eth := wire.AppendEthernet(nil, mac, mac, wire.EtherTypeIPv4)
	for name, wrap := range map[string]func(ip []byte) []byte{
		"VLAN": func(ip []byte) []byte { return ether(wire.EtherTypeVLAN, append([]byte{0, 5, 8, 0}, ip...)) },
		"QinQ": func(ip []byte) []byte {
			return ether(wire.EtherTypeQinQ, append([]byte{0, 5, 0x81, 0, 0, 6, 8, 0}, ip...))
		},
		"PPPoE": func(ip []byte) []byte {
			head := []byte{0x11, 0, 0, 1, 0, 0, 0, 0x21}
			binary.BigEndian.PutUint16(head[4:], uint16(2+len(ip)))
			return ether(0x8864, append(head, ip...))
		},
		"PPPoE in QinQ": func(ip []byte) []byte {
			return ether(wire.EtherTypeQinQ, append([]byte{0, 5, 0x81, 0, 0, 6, 0x88, 0x64, 0x11, 0, 0, 1, 0, 2, 0, 0x21}, ip...))
		},
		"MPLS":             func(ip []byte) []byte { return ether(0x8847, append([]byte{0, 1, 0, 64, 0, 2, 1, 64}, ip...)) },
		"IP in IP":         over(wire.ProtoIPIP, nil),
		"GRE":              over(wire.ProtoGRE, []byte{0, 0, 8, 0}),
		"GRE, Ethernet":    over(wire.ProtoGRE, append([]byte{0, 0, 0x65, 0x58}, eth...)),
		"VXLAN":            overUDP(4789, append([]byte{8, 0, 0, 0, 0, 0, 1, 0}, eth...)),
		"GENEVE":           overUDP(6081, append([]byte{0, 0, 0x65, 0x58, 0, 0, 1, 0}, eth...)),
		"GTP-U":            overUDP(2152, []byte{0x30, 0xff, 0, 0, 0, 0, 0, 1}),
		"GTP-U, extension": overUDP(2152, []byte{0x34, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 0, 0}),
		"GRE in VXLAN": overUDP(4789, append(append([]byte{8, 0, 0, 0, 0, 0, 1, 0}, eth...),
			ipPacket(server, client, wire.ProtoGRE, []byte{0, 0, 8, 0})...)),
	} {
		l := newLab(t, evil)
		c := l.tcp(9)
		c.wrap = wrap
		if name == "GRE in VXLAN" {
			c.wrap = func(ip []byte) []byte {
				inner := ipPacket(server, client, wire.ProtoGRE, append([]byte{0, 0, 8, 0}, ip...))
				return overUDP(4789, append([]byte{8, 0, 0, 0, 0, 0, 1, 0}, eth...))(inner)
			}
		}
		c.open().send(true, "we attack at dawn", 5)
		l.want(name, "7")
	}
}

func TestFragmentsAreLookedInto(t *testing.T) {
	l := newLab(t, evil)
	c := l.tcp(9).open()
	segment := wire.AppendTCP(nil, &wire.TCPHeader{SrcPort: 40000, DstPort: 9, Seq: c.cSeq, Ack: c.sSeq, Flags: wire.FlagACK})
	segment = append(segment, "we attack at dawn"...)
	frag := func(at, n int, more bool, body []byte) {
		b := ipPacket(client, server, wire.ProtoTCP, body[at:at+n])
		wire.IPv4(b).SetID(77)
		wire.IPv4(b).SetFragmentOffset(at)
		wire.IPv4(b).SetMoreFragments(more)
		l.frame(ether(wire.EtherTypeIPv4, b))
	}
	frag(24, len(segment)-24, false, segment)
	frag(8, 16, true, segment)
	frag(8, 16, true, segment)
	l.want("before the first fragment", "")
	frag(0, 8, true, segment)
	l.want("whole", "7")

	other := append([]byte{}, segment...)
	other[26] = 'X'
	frag(24, 8, true, segment)
	frag(24, 8, true, other)
	l.want("different bytes", "7 fragment overlap differs")
}

func TestFlowsAreBounded(t *testing.T) {
	l := newLab(t, evil)
	l.e.cfg.MaxFlows = 10
	for port := range 100 {
		l.udp(uint16(port+1), "x")
	}
	if s := l.e.Stats(); l.e.flows.n > 10 || s.Evicted != 90 || s.Flows != 100 {
		t.Errorf("%d flows, %+v", l.e.flows.n, s)
	}
	l.e.Flush()
	if l.e.flows.n != 0 || l.e.oldest != nil || l.e.newest != nil || l.e.budget.Used() != 0 {
		t.Errorf("%d flows and %d bytes after the end", l.e.flows.n, l.e.budget.Used())
	}
}

// FuzzPacket gives the engine frames, each behind its length.
func FuzzPacket(f *testing.F) {
	l := newLab(&testing.T{}, evil)
	var seed []byte
	c := l.tcp(80)
	c.wrap = func(ip []byte) []byte {
		b := ether(wire.EtherTypeIPv4, ip)
		seed = append(append(seed, byte(len(b))), b...)
		return b
	}
	c.open().send(true, "GET /%41 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 30).send(false, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 30)
	f.Add(seed)
	f.Add(append([]byte{80}, ether(wire.EtherTypeIPv4, udpPacket(53, 53, []byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x00\x00\x01\x00\x01")))...))
	rules := evil + `
alert http any any -> any any (http.uri; content:"/A"; file_data; content:"abc"; pcre:"/a(b|c)*/"; sid:1;)
alert http any any -> any any (http.header; content:!"x"; http.header_names; content:"Host"; sid:2;)
alert dns any any -> any any (dns.query; content:"www"; endswith; sid:3;)
alert tls any any -> any any (tls.sni; content:"a"; sid:4;)
alert ip any any -> any any (byte_jump:1,0; content:"a"; distance:-5; within:9; sid:5;)`
	compiled := newLab(&testing.T{}, rules).e.rules
	f.Fuzz(func(t *testing.T, frames []byte) {
		l := &lab{t: t, e: New(compiled, Config{}, func(*Alert) {})}
		for len(frames) > 0 {
			n := min(int(frames[0]), len(frames)-1)
			l.frame(frames[1 : 1+n])
			frames = frames[1+n:]
		}
		l.e.Flush()
		if used := l.e.budget.Used(); used != 0 {
			t.Fatalf("%d bytes are held after the end", used)
		}
	})
}
