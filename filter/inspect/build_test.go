package inspect

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/wire"
)

// lab runs packets through an engine and keeps the alerts.
type lab struct {
	t      *testing.T
	e      *Engine
	now    int64
	alerts []Alert
	record func(frame []byte) // called with each frame; may be nil
}

// newLab compiles rules, one per line; a line of options only is a rule about TCP or UDP with any addresses.
func newLab(t *testing.T, rules string) *lab {
	t.Helper()
	var text strings.Builder
	for i, line := range strings.Split(strings.TrimSpace(rules), "\n") {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "alert ") && !strings.HasPrefix(line, "pass ") {
			line = fmt.Sprintf("alert ip any any -> any any (%s sid:%d;)", line, i+1)
		} else if !strings.Contains(line, "sid:") {
			line = strings.TrimSuffix(line, ")") + fmt.Sprintf(" sid:%d;)", i+1)
		}
		text.WriteString(line + "\n")
	}
	f := signature.Parse("test", text.String(), nil)
	for _, e := range append(f.Errors, f.Skipped...) {
		t.Fatal(e)
	}
	r, err := Compile(f.Rules)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, now: 1e9}
	l.e = New(r, Config{}, func(a *Alert) { l.alerts = append(l.alerts, *a) })
	return l
}

// frame gives the engine a frame.
func (l *lab) frame(b []byte) {
	l.now += 1e6
	if l.record != nil {
		l.record(b)
	}
	l.e.Packet(l.now, b)
}

// sids returns the alerts as "sid" or the anomaly, sorted.
func (l *lab) sids() string {
	var s []string
	for _, a := range l.alerts {
		if a.Rule == nil {
			s = append(s, a.Anomaly.String())
		} else {
			s = append(s, fmt.Sprint(a.Rule.SID))
		}
	}
	slices.Sort(s)
	return strings.Join(s, " ")
}

func (l *lab) want(what, sids string) {
	l.t.Helper()
	if got := l.sids(); got != sids {
		l.t.Errorf("%s: alerts %q, want %q", what, got, sids)
	}
}

var (
	client = [4]byte{192, 0, 2, 1}
	server = [4]byte{198, 18, 0, 1}
	mac    = wire.MAC{2, 0, 0, 0, 0, 1}
)

// ipPacket returns an IPv4 packet.
func ipPacket(src, dst [4]byte, proto uint8, body []byte) []byte {
	b := wire.AppendIPv4(nil, &wire.IPv4Header{PayloadLen: len(body), TTL: 64, Proto: proto, Src: src, Dst: dst})
	return append(b, body...)
}

func ether(etherType uint16, body []byte) []byte {
	return append(wire.AppendEthernet(nil, mac, mac, etherType), body...)
}

func udpPacket(src, dst uint16, payload []byte) []byte {
	return ipPacket(client, server, wire.ProtoUDP, append(wire.AppendUDP(nil, src, dst, len(payload)), payload...))
}

// udp gives the engine a datagram from client to server.
func (l *lab) udp(dst uint16, payload string) {
	l.frame(ether(wire.EtherTypeIPv4, udpPacket(4000, dst, []byte(payload))))
}

// conn is a TCP connection that a test plays.
type conn struct {
	l          *lab
	port       uint16
	cSeq, sSeq uint32
	wrap       func(ip []byte) []byte // to a frame
	acks       bool
	active     bool // the server opens it, from port 20 (RFC 959 3.2)
}

// tcp opens a connection.
func (l *lab) tcp(port uint16) *conn {
	c := &conn{l: l, port: port, cSeq: 0xfffffff0, sSeq: 5000, acks: true}
	c.wrap = func(ip []byte) []byte { return ether(wire.EtherTypeIPv4, ip) }
	return c
}

func (c *conn) open() *conn {
	c.seg(true, c.cSeq-1, wire.FlagSYN, "")
	c.seg(false, c.sSeq-1, wire.FlagSYN|wire.FlagACK, "")
	c.seg(true, c.cSeq, wire.FlagACK, "")
	return c
}

// seg sends one segment.
func (c *conn) seg(fromClient bool, seq uint32, flags wire.TCPFlags, payload string) {
	h := wire.TCPHeader{SrcPort: 40000, DstPort: c.port, Seq: seq, Ack: c.sSeq, Flags: flags, Window: 65535}
	src, dst := client, server
	if c.active {
		h.SrcPort, src, dst = 20, server, client
	}
	if !fromClient && c.active {
		h.SrcPort, h.DstPort, h.Ack = c.port, 20, c.cSeq
		src, dst = client, server
	} else if !fromClient {
		h.SrcPort, h.DstPort, h.Ack = c.port, 40000, c.cSeq
		src, dst = server, client
	}
	c.l.frame(c.wrap(ipPacket(src, dst, wire.ProtoTCP, append(wire.AppendTCP(nil, &h), payload...))))
}

// send sends a text in segments of at most mss bytes.
func (c *conn) send(fromClient bool, text string, mss int) *conn {
	seq := &c.sSeq
	if fromClient {
		seq = &c.cSeq
	}
	for len(text) > 0 {
		n := min(mss, len(text))
		at := *seq
		*seq += uint32(n)
		c.seg(fromClient, at, wire.FlagACK|wire.FlagPSH, text[:n])
		text = text[n:]
	}
	return c
}

func (c *conn) close() {
	c.seg(true, c.cSeq, wire.FlagFIN|wire.FlagACK, "")
	c.seg(false, c.sSeq, wire.FlagFIN|wire.FlagACK, "")
	c.l.e.Flush()
}

func addrOf(a [4]byte) netip.Addr { return netip.AddrFrom4(a) }
