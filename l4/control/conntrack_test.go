package control

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Linux's conntrack decides about the same segments as the gateway: it says which of them do not belong to their
// connection (ct state invalid), and the gateway which of them change nothing. Both go by van Rooij's conditions, so
// each difference has a reason, or is a fault.

// difference is a kind of segment about which both decide differently.
type difference struct {
	kind   string
	states string // of the gateway's connection before; "" is any
	taker  string // conntrack or gateway: the one for which it belongs to its connection
	goesOn bool   // neither changes the connection by it, or both do alike: they must agree about what follows
	reason string
}

const (
	conntrack  = "conntrack"
	theGateway = "gateway"

	ignores     = "conntrack lets it pass without an effect (NFCT_TCP_IGNORE), as the gateway does"
	resyncs     = "conntrack lets it pass without an effect, and remembers it in case that the other end answers as to a new connection"
	closesEarly = "conntrack takes any RST of a connection that closes, as it may drop it early (tcp_can_early_drop); one half closed may last, so the gateway asks for the exact number (RFC 5961 3.2)"
	reopens     = "conntrack, which takes two FINs of one side for those of both, is in TIME_WAIT, and opens a connection in the other direction; a backend opens none through a service address"
	rstFirst    = "conntrack refuses the combination of flags; a host looks at RST before SYN and FIN (RFC 9293 3.10.7.4), and Linux takes it for a RST"
	keepsClosed = "conntrack opens a connection on the ports of one that a RST of the other end closed only when the SYN is answered, and lets all pass before without an effect; the gateway opens it by the SYN"
	misled      = "conntrack has the backend's numbers of the forged answer, and refuses what follows of the true one; the gateway asks which SYN an answer acknowledges"
)

var differences = []difference{
	{"very old data", "", conntrack, true, ignores},
	{"very old ACK", "", conntrack, true, ignores},
	{"data beyond the window", "", conntrack, false, ignores + ", but counts it as sent, so that what is older may be too old"},
	{"data beyond the window, taken", "", conntrack, true, ignores + ": both take its acknowledgement"},
	{"ACK of what was never sent, after an overrun", "", theGateway, false, "conntrack counts the overrun as sent; the gateway takes any acknowledgement up to another window, so that a forged overrun moves no number"},
	{"duplicate of ACK", "", conntrack, true, ignores},
	{"duplicate of data", "", conntrack, true, ignores},
	{"RST in the window", "established", conntrack, false, "conntrack lets it pass and leaves the connection open, for a challenge ACK (RFC 5961 3.2), as the gateway does, but counts its number as sent"},
	{"RST", "established", conntrack, true, "the data before it was lost before the gateway: conntrack lets it pass and leaves the connection open, as the gateway does"},
	{"RST in the window", "half_closed closing time_wait", conntrack, false, closesEarly},
	{"RST beyond the window", "half_closed closing time_wait", conntrack, false, closesEarly},
	{"RST+ACK beyond the window", "half_closed closing time_wait", conntrack, false, closesEarly},
	{"old RST", "half_closed closing time_wait", conntrack, false, closesEarly},
	{"SYN of the client", "established half_closed closing", conntrack, false, resyncs},
	{"SYN of ends that have forgotten the connection", "established half_closed closing", conntrack, true, resyncs},
	{"SYN of the client in the window", "established half_closed closing", conntrack, false, resyncs},
	{"SYN+ACK of the backend", "established half_closed closing time_wait", conntrack, false, resyncs},
	{"SYN of the backend", "half_closed closing time_wait", conntrack, false, reopens},
	{"SYN of the backend in the window", "half_closed closing time_wait", conntrack, false, reopens},
	{"SYN after a forged one", "syn_sent", conntrack, false, "conntrack goes by the SYN with the largest number; the gateway waits for the answer, which names one"},
	{"SYN and RST", "", theGateway, false, rstFirst},
	{"all flags", "", theGateway, false, rstFirst},
	{"ACK after a forged answer", "syn_recv", theGateway, false, misled},
	{"SYN+ACK of another SYN, after a RST of the backend", "syn_sent", conntrack, false, keepsClosed},
	{"refusal of another SYN, after a RST of the backend", "syn_sent", conntrack, false, keepsClosed},
	{rounded, "", theGateway, false, "a window that is no multiple of its scale was rounded: conntrack takes that for a retraction (RFC 7323 2.4), and what the window before allows for an overrun, of which it takes less and no acknowledgement"},
}

// rounded is the kind of a difference about any segment after a window was rounded.
const rounded = "any segment after a rounded window"

// sample is a segment of a trace.
type sample struct {
	kind        string
	forged      bool
	fromBackend bool
	flags       wire.TCPFlags
	seq, ack    uint32
	window      uint16
	size        int
	options     []byte
	rounded     bool // a window was rounded before
}

func (s *sample) String() string {
	return fmt.Sprintf("%s: backend %v, flags %#02x, seq %d, ack %d, window %d, %d bytes", s.kind, s.fromBackend, uint8(s.flags), s.seq, s.ack, s.window, s.size)
}

// frame returns the segment as it goes from one end to the other.
func (s *sample) frame(from, to wire.MAC, src, dst netip.AddrPort, id uint16) []byte {
	h := wire.TCPHeader{SrcPort: src.Port(), DstPort: dst.Port(), Seq: s.seq, Ack: s.ack, Flags: s.flags, Window: s.window, Options: s.options}
	p := wire.AppendEthernet(nil, to, from, wire.EtherTypeIPv4)
	p = wire.AppendIPv4(p, &wire.IPv4Header{
		Src: src.Addr().As4(), Dst: dst.Addr().As4(), Proto: wire.ProtoTCP, TTL: 64, ID: id,
		PayloadLen: wire.TCPLen + len(s.options) + s.size,
	})
	p = append(wire.AppendTCP(p, &h), make([]byte, s.size)...)
	wire.TCP(p[wire.EthernetLen+wire.IPv4Len:]).FillChecksum(wire.IPv4(p[wire.EthernetLen:]).Pseudo())
	return p
}

// party is an end of the connection of a trace.
type party struct {
	una, next uint32 // acknowledged, and sent, as far as it knows
	fin       bool   // it has sent its FIN, at next-1
	limit     uint32 // up to which its peer lets it send, as far as it knows
	expects   uint32 // of the peer
	edge      uint32 // up to which it lets the peer send; it never moves back
	buffer    uint32 // what it offers at most, bytes
	offered   uint32 // the largest window that it has offered, bytes
	scale     uint8
}

// tracer makes a trace.
type tracer struct {
	r     *rand.Rand
	ends  [2]party // the client, the backend
	trace []sample
	begun int  // where the segments after the handshake begin
	early bool // a forged answer to the SYN went before the true one
	loose bool // an end has sent more than it was offered
	ghost bool // the client's ports seem to be used again, by a forged SYN
	round bool // an end has written a window that is smaller than the one it has offered
	reset bool // the backend has reset the connection before

	forgotten bool // both ends have forgotten the connection before
}

// What happens to a segment of a trace.
type fate int

const (
	arrives fate = iota
	lostBefore
	lostBehind // the gateway, which sees it
)

func (t *tracer) fate() fate {
	switch n := t.r.IntN(100); {
	case n < 85:
		return arrives
	case n < 92:
		return lostBefore
	}
	return lostBehind
}

// field returns the window that an end writes into its next segment.
func (t *tracer) field(side int) uint16 {
	p := &t.ends[side]
	if t.r.IntN(4) != 0 && int32(p.expects+p.buffer-p.edge) > 0 { // the application has read all
		p.edge = p.expects + p.buffer
	}
	t.round = t.round || (p.edge-p.expects)&(1<<p.scale-1) != 0
	return uint16(min((p.edge-p.expects)>>p.scale, 0xffff))
}

// send makes a segment of an end, with its acknowledgement, and has it arrive or not.
func (t *tracer) send(kind string, side int, flags wire.TCPFlags, seq uint32, size int, what fate) {
	s := sample{kind: kind, fromBackend: side == 1, flags: flags, seq: seq, size: size, window: t.field(side), rounded: t.round}
	if flags.Has(wire.FlagACK) {
		s.ack = t.ends[side].expects
	}
	if what == lostBefore {
		return
	}
	t.trace = append(t.trace, s)
	if p := &t.ends[side]; uint32(s.window)<<p.scale > p.offered {
		p.offered = uint32(s.window) << p.scale
	}
	if what == arrives {
		t.arrive(&s)
	}
}

// arrive has the other end take a segment.
func (t *tracer) arrive(s *sample) {
	side := 0
	if s.fromBackend {
		side = 1
	}
	me, p := &t.ends[side], &t.ends[1-side]
	end := s.seq + uint32(s.size)
	if s.flags.Has(wire.FlagFIN) {
		end++
	}
	if int32(s.seq-p.expects) <= 0 && int32(end-p.expects) > 0 && int32(end-p.edge) <= 0 {
		p.expects = end
	}
	if int32(s.ack-p.una) > 0 {
		p.una = s.ack
	}
	if limit := s.ack + uint32(s.window)<<me.scale; int32(limit-p.limit) > 0 {
		p.limit = limit
	}
}

// open makes a handshake.
func (t *tracer) open(isn uint32) {
	t.early, t.loose, t.round = false, false, false
	scales := []uint8{noScale, 0, 2, 7, 14}
	scale := [2]uint8{scales[t.r.IntN(len(scales))], scales[t.r.IntN(len(scales))]}
	first := [2]uint32{isn, t.r.Uint32()}
	if t.r.IntN(3) == 0 {
		first[1] = -t.r.Uint32N(5000) // the numbers wrap
	}
	for side := range t.ends {
		p := &t.ends[side]
		*p = party{una: first[side] + 1, next: first[side] + 1, expects: first[1-side] + 1, buffer: []uint32{1000, 5000, 60000, 65535}[t.r.IntN(4)]}
		p.edge, p.offered = p.expects+p.buffer, p.buffer
		if scale[0] != noScale && scale[1] != noScale {
			p.scale = scale[side]
			p.buffer <<= t.r.Uint32N(1 + uint32(p.scale))
		}
	}
	syn := func(side int) sample {
		s := sample{kind: "SYN", fromBackend: side == 1, flags: wire.FlagSYN, seq: first[side], window: uint16(t.ends[side].edge - t.ends[side].expects)}
		if t.ghost {
			s.kind = "SYN after a forged one"
		}
		if t.forgotten {
			s.kind = "SYN of ends that have forgotten the connection"
		}
		if side == 1 {
			s.kind, s.flags, s.ack = "SYN+ACK", wire.FlagSYN|wire.FlagACK, first[0]+1
		}
		if scale[side] != noScale {
			s.options = []byte{1, 3, 3, scale[side]}
		}
		return s
	}
	for side := range t.ends {
		for range 1 + t.r.IntN(2) {
			t.trace = append(t.trace, syn(side))
			if !t.forgotten && t.r.IntN(6) == 0 {
				t.forgeEarly(side, first)
			}
		}
		if side == 1 && t.r.IntN(8) == 0 {
			t.trace = append(t.trace, syn(0)) // it was late
			t.trace = append(t.trace, syn(1))
		}
		t.ends[1-side].limit = first[1-side] + 1 + t.ends[side].edge - t.ends[side].expects
	}
	ack := "ACK"
	if t.early {
		ack = "ACK after a forged answer"
	}
	t.begun = len(t.trace)
	t.send(ack, 0, wire.FlagACK, t.ends[0].next, 0, arrives)
	t.ghost = false
}

const noScale = 0xff

// forgeEarly makes a forged segment while the connection opens: the side has sent its SYN.
func (t *tracer) forgeEarly(side int, first [2]uint32) {
	far := 1<<20 + t.r.Uint32N(1<<30)
	s := sample{forged: true, window: 5000}
	switch kind := t.r.IntN(5); {
	case kind == 0 && side == 0:
		s.kind, s.flags, s.seq, s.ack = "ACK before the SYN+ACK", wire.FlagACK, first[0]+1, far
	case kind == 1 && side == 0:
		s.kind, s.fromBackend, s.flags, s.seq, s.ack = "SYN+ACK of another SYN", true, wire.FlagSYN|wire.FlagACK, far, first[0]+far
	case kind == 2 && side == 0:
		s.kind, s.fromBackend, s.flags, s.ack = "refusal of another SYN", true, wire.FlagRST|wire.FlagACK, first[0]+far
	case kind == 3 && side == 1:
		s.kind, s.flags, s.seq, s.ack = "ACK of another SYN+ACK", wire.FlagACK, first[0]+1, first[1]+far
	case kind == 4 && side == 1:
		s.kind, s.flags, s.seq = "RST out of the window, half-open", wire.FlagRST, first[0]+far
	default:
		return
	}
	if s.fromBackend && t.reset {
		s.kind += ", after a RST of the backend"
	}
	t.early = t.early || s.fromBackend
	t.trace = append(t.trace, s)
}

// step makes one event of an open connection.
func (t *tracer) step() {
	side := t.r.IntN(2)
	p := &t.ends[side]
	room := int(int32(p.limit - p.next))
	switch op := t.r.IntN(20); {
	case op < 8 && !p.fin && room > 0:
		size := 1 + t.r.IntN(min(room, 1400))
		p.next += uint32(size)
		t.send("data", side, wire.FlagACK|wire.FlagPSH, p.next-uint32(size), size, t.fate())
	case op < 8 && !p.fin && p.una == p.next && t.ends[1-side].edge == p.next:
		t.send("window probe", side, wire.FlagACK, p.next, 1, t.fate())
		t.send("ACK", 1-side, wire.FlagACK, t.ends[1-side].next, 0, t.fate())
	case op < 13:
		t.send("ACK", side, wire.FlagACK, p.next, 0, t.fate())
	case op < 16 && p.una != p.next:
		t.resend(side, t.fate())
	case op < 17 && p.una == p.next:
		t.send("keepalive", side, wire.FlagACK, p.next-1, t.r.IntN(2), t.fate())
	case op < 18:
		s := t.trace[t.begun+t.r.IntN(len(t.trace)-t.begun)]
		if s.kind == "data" || s.kind == "ACK" {
			s.kind = "duplicate of " + s.kind
			t.trace = append(t.trace, s)
		}
	case op < 19 && !p.fin && room >= 0 && room < 1400:
		t.overrun(side, room)
	default:
		t.forge()
	}
}

// overrun sends more than the peer offered, in two segments of which the second begins behind the window, and the peer
// takes it.
func (t *tracer) overrun(side, room int) {
	p, peer := &t.ends[side], &t.ends[1-side]
	if p.next != peer.expects {
		return
	}
	for _, kind := range []string{"data", "data beyond the window, taken"} {
		size := room + 1 + t.r.IntN(100)
		p.next += uint32(size)
		peer.edge, room = p.next, 0
		t.send(kind, side, wire.FlagACK|wire.FlagPSH, p.next-uint32(size), size, arrives)
	}
	t.send("ACK", 1-side, wire.FlagACK, peer.next, 0, arrives)
	if t.loose = true; t.r.IntN(4) == 0 {
		t.forgeKind(ackAhead)
	}
}

// resend sends what is not acknowledged again.
func (t *tracer) resend(side int, what fate) {
	p := &t.ends[side]
	size, flags := int(p.next-p.una), wire.FlagACK
	if p.fin {
		size--
	}
	if size <= 1400 && p.fin {
		flags |= wire.FlagFIN
	}
	t.send("retransmission", side, flags, p.una, min(size, 1400), what)
}

// close ends the connection by FINs, in all orders.
func (t *tracer) close() {
	first := t.r.IntN(2)
	fin := func(side int, what fate) {
		t.ends[side].fin = true
		t.ends[side].next++
		t.send("FIN", side, wire.FlagACK|wire.FlagFIN, t.ends[side].next-1, 0, what)
	}
	settle := func(side int) { // all is acknowledged
		for i := 0; t.ends[side].una != t.ends[side].next && i < 200; i++ {
			t.resend(side, t.fate())
			t.send("ACK", 1-side, wire.FlagACK, t.ends[1-side].next, 0, t.fate())
		}
	}
	for side := range t.ends {
		settle(side)
		for range 3 { // there is room for a FIN
			t.send("ACK", side, wire.FlagACK, t.ends[side].next, 0, arrives)
		}
	}
	if t.r.IntN(3) == 0 { // at once
		fin(0, lostBehind)
		fin(1, lostBehind)
	} else {
		fin(first, t.fate())
		for range t.r.IntN(10) {
			t.step()
		}
		fin(1-first, t.fate())
	}
	settle(0)
	settle(1)
	if t.r.IntN(3) == 0 { // the last ACK was lost
		s := t.trace[len(t.trace)-1]
		t.trace = append(t.trace, s)
	}
	for i := t.r.IntN(3); i > 0 && !t.ghost; i-- {
		t.forge()
	}
}

// abort ends the connection by a RST.
func (t *tracer) abort() {
	side := t.r.IntN(2)
	t.reset = side == 1
	p := &t.ends[side]
	flags := wire.FlagRST
	if t.r.IntN(2) == 0 {
		flags |= wire.FlagACK
	}
	peer := &t.ends[1-side]
	if t.send("RST", side, flags, p.next, 0, lostBehind); p.next != peer.expects { // challenged (RFC 5961 3.2)
		t.send("ACK", 1-side, wire.FlagACK, peer.next, 0, lostBehind)
		t.send("RST", side, wire.FlagRST, peer.expects, 0, lostBehind)
	}
}

// forge makes a forged segment.
func (t *tracer) forge() { t.forgeKind(t.r.IntN(24)) }

const ackAhead = 2 // kind of forged segment

func (t *tracer) forgeKind(kind int) {
	side := t.r.IntN(2)
	me, peer := &t.ends[side], &t.ends[1-side]
	little, far := 2+t.r.Uint32N(1000), 1<<17+me.offered+peer.offered+t.r.Uint32N(1<<29)
	s := sample{forged: true, fromBackend: side == 1, flags: wire.FlagACK, seq: me.next, ack: me.expects, window: uint16((me.edge - me.expects) >> me.scale)}
	switch kind {
	case 0:
		s.kind, s.seq, s.size = "data far beyond the window", s.seq+far, 10
	case 1:
		s.kind, s.seq, s.size = "data beyond the window", peer.edge+1+little, 10
	case ackAhead:
		s.kind, s.ack = "ACK of what was never sent", peer.next+little
		if t.loose {
			s.kind += ", after an overrun"
		}
	case 3:
		s.kind, s.ack = "ACK far beyond what was sent", peer.next+far
	case 4:
		s.kind, s.ack = "very old ACK", s.ack-far
	case 5:
		s.kind, s.seq, s.size = "very old data", s.seq-far, 10
	case 6:
		s.kind, s.flags, s.seq = "RST in the window", wire.FlagRST, peer.expects+1+t.r.Uint32N(max(peer.edge-peer.expects, 2)-1)
		if s.seq == me.next {
			return
		}
	case 7:
		s.kind, s.flags, s.seq = "RST beyond the window", wire.FlagRST, peer.edge+far
	case 8:
		s.kind, s.flags, s.seq = "old RST", wire.FlagRST, peer.expects-far
	case 9:
		s.kind, s.flags, s.seq = "RST+ACK beyond the window", wire.FlagRST|wire.FlagACK, peer.edge+far
	case 10:
		s.kind, s.flags, s.seq = "FIN beyond the window", wire.FlagFIN|wire.FlagACK, peer.edge+far
	case 11:
		s.kind, s.flags, s.ack = "FIN with an ACK beyond what was sent", wire.FlagFIN|wire.FlagACK, peer.next+far
	case 12:
		s.kind, s.flags, s.ack = "SYN of the client", wire.FlagSYN, 0
		if s.seq += far; side == 1 {
			s.kind = "SYN of the backend"
		}
		t.ghost = true
	case 13:
		s.kind, s.flags, s.ack = "SYN of the client in the window", wire.FlagSYN, 0
		if side == 1 {
			s.kind = "SYN of the backend in the window"
		}
		t.ghost = true
	case 14:
		s.kind, s.flags = "SYN+ACK of the client", wire.FlagSYN|wire.FlagACK
		if side == 1 {
			s.kind = "SYN+ACK of the backend"
		}
	case 15:
		s.kind, s.flags = "SYN and FIN", wire.FlagSYN|wire.FlagFIN
	case 16:
		s.kind, s.flags = "no flags", 0
	case 17:
		s.kind, s.flags = "FIN without ACK", wire.FlagFIN
	case 18:
		s.kind, s.flags = "all flags", 0x3f
	case 19:
		s.kind, s.flags = "SYN and RST", wire.FlagSYN|wire.FlagRST
	case 20:
		s.kind, s.flags = "PSH without ACK", wire.FlagPSH
	case 21:
		s.kind, s.flags = "FIN and RST", wire.FlagFIN|wire.FlagRST|wire.FlagACK
		s.seq += far
	case 22:
		s.kind, s.flags = "URG without ACK", wire.FlagURG
	case 23:
		s.kind, s.ack = "old ACK", peer.una-t.r.Uint32N(30000)
	}
	s.rounded = t.round
	t.trace = append(t.trace, s)
}

// newTrace returns the trace of a seed: a connection and, on the same ports, others.
func newTrace(seed uint64) []sample {
	t := &tracer{r: rand.New(rand.NewPCG(seed, 9))}
	isn := t.r.Uint32()
	if t.r.IntN(3) == 0 {
		isn = -t.r.Uint32N(5000)
	}
	for range 1 + t.r.IntN(3) {
		if t.open(isn); t.early {
			break // conntrack may have windows of the forged answer
		}
		for range t.r.IntN(40) {
			t.step()
		}
		t.forgotten = !t.ghost && !t.loose && t.r.IntN(5) == 0
		if t.forgotten {
			t.reset = false
		} else if t.r.IntN(4) == 0 {
			t.abort()
		} else {
			t.close()
			t.reset = false
		}
		isn = t.ends[0].next + 1<<20 + t.r.Uint32N(1<<20)
	}
	return t.trace
}

// kernelTracker is a namespace that forwards by conntrack.
type kernelTracker struct {
	t    *testing.T
	fd   [2]int // packet sockets beside the client and the backend
	mac  [2]wire.MAC
	port uint16 // of the client of the trace
	id   uint16
}

var trackedBackend = netip.MustParseAddrPort("198.18.2.11:80")

// newKernelTracker lays out the network:
//
//	ends c ---- c 198.18.0.1 gate b 198.18.2.1 ---- b ends
//
// A segment that is invalid gets another DSCP instead of being dropped, so that each one comes out and none is waited for
// in vain. To conntrack it is the same: it has decided before (prerouting).
func newKernelTracker(t *testing.T) *kernelTracker {
	testnet.Program(t, "nft", "ip")
	n := testnet.For(t, "mr-gwct")
	gate, ends := n.Namespace("gate"), n.Namespace("ends")
	k := &kernelTracker{t: t}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, dev := range []string{"c", "b"} {
		must(n.Link(gate, dev, ends, dev))
		must(gate.Up(dev, []string{"198.18.0.1/24", "198.18.2.1/24"}[i]))
		must(ends.Up(dev))
		_, err := gate.Run("ip", "neigh", "add", []string{"198.18.0.9", "198.18.2.11"}[i], "lladdr", []string{"02:00:00:00:00:c1", "02:00:00:00:00:b1"}[i], "dev", dev)
		must(err)
		must(gate.Do(func() error {
			link, err := net.InterfaceByName(dev)
			if err == nil {
				k.mac[i] = wire.MAC(link.HardwareAddr)
			}
			return err
		}))
		must(ends.Do(func() error {
			link, err := net.InterfaceByName(dev)
			if err != nil {
				return err
			}
			if k.fd[i], err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
				return err
			}
			t.Cleanup(func() { unix.Close(k.fd[i]) })
			const ip = unix.ETH_P_IP<<8&0xff00 | unix.ETH_P_IP>>8 // in network byte order
			return unix.Bind(k.fd[i], &unix.SockaddrLinklayer{Protocol: ip, Ifindex: link.Index})
		}))
	}
	must(gate.Sysctl("net.ipv4.ip_forward", "1"))
	_, err := gate.Run("nft", "table ip t {\nchain c {\ntype filter hook forward priority 0\nct state invalid ip dscp set cs1\n}\n}\n")
	must(err)
	must(gate.Sysctl("net.netfilter.nf_conntrack_tcp_be_liberal", "0"))
	must(gate.Sysctl("net.netfilter.nf_conntrack_tcp_loose", "0")) // a connection begins with its SYN
	k.awaitLinks()
	return k
}

// awaitLinks waits until frames pass both ways: a device that is up drops what it sends until its queueing discipline is
// there.
func (k *kernelTracker) awaitLinks() {
	k.t.Helper()
	k.port = 19999
	for i := range k.fd {
		k.wait(i, unix.Timeval{Usec: 50_000})
	}
	for _, s := range []sample{{flags: wire.FlagSYN}, {fromBackend: true, flags: wire.FlagSYN}} {
		_, ok := k.verdict(&s)
		for tries := 0; !ok; tries++ {
			if tries == 200 {
				k.t.Fatal("no frame passes")
			}
			_, ok = k.verdict(&s)
		}
	}
	for i := range k.fd {
		k.wait(i, unix.Timeval{Sec: 10})
	}
}

// wait bounds the wait for a frame beside an end.
func (k *kernelTracker) wait(end int, most unix.Timeval) {
	k.t.Helper()
	if err := unix.SetsockoptTimeval(k.fd[end], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &most); err != nil {
		k.t.Fatal(err)
	}
}

// takes reports whether a segment is one of its connection.
func (k *kernelTracker) takes(s *sample) bool {
	k.t.Helper()
	valid, ok := k.verdict(s)
	if !ok {
		k.t.Fatalf("not forwarded: %v", s)
	}
	return valid
}

// verdict returns what conntrack says of a segment; false if it did not come out.
func (k *kernelTracker) verdict(s *sample) (valid, ok bool) {
	k.t.Helper()
	src, dst := netip.AddrPortFrom(netip.MustParseAddr("198.18.0.9"), k.port), trackedBackend
	in, out := 0, 1
	if s.fromBackend {
		in, out, src, dst = 1, 0, dst, src
	}
	k.id++
	if _, err := unix.Write(k.fd[in], s.frame(wire.MAC{2, 6, 6, 6, 6, 6}, k.mac[in], src, dst, k.id)); err != nil {
		k.t.Fatal(err)
	}
	b := make([]byte, 2048)
	for {
		n, err := unix.Read(k.fd[out], b)
		if err == unix.EINTR {
			continue
		}
		if err == unix.EAGAIN {
			return false, false
		}
		if err != nil {
			k.t.Fatal(err)
		}
		if ip := b[wire.EthernetLen:n]; binary.BigEndian.Uint16(ip[4:]) == k.id && wire.IPv4(ip).Proto() == wire.ProtoTCP {
			return ip[1] == 0, true
		}
	}
}

// trackedConfig has one service that conntrack could track: the backend sees the client's own address and port.
const trackedConfig = `
devices: [{name: gw0}, {name: gw1}]
services:
  - {name: own, source: client, unknown: drop, address: 198.18.1.1:80, backends: [{address: 198.18.2.11:80}]}
`

// gatewayTracker is a gateway in virtual time.
type gatewayTracker struct {
	*world
	client netip.AddrPort
}

// takes reports whether a segment changes its connection.
func (g *gatewayTracker) takes(s *sample) bool {
	g.t.Helper()
	was, known := g.conn()
	ended := g.now.Add(was.Left)
	g.now = g.now.Add(1 << 24) // a tick
	var p []byte
	from := uint8(0)
	if s.fromBackend {
		from = 1
		p = s.frame(macBackend, macGw1, trackedBackend, g.client, 1)
	} else {
		p = s.frame(macClient, macGw0, g.client, netip.MustParseAddrPort("198.18.1.1:80"), 1)
	}
	if got := g.send(from, p); got.verdict != packet.Forward {
		return false
	}
	is, still := g.conn()
	return known != still || is.State != was.State || g.now.Add(is.Left) != ended
}

func (g *gatewayTracker) conn() (datapath.ConnInfo, bool) {
	c, ok := g.conns()[g.client]
	return c, ok
}

// TestConntrackAgrees asks both about traces. A trace ends at a difference that leads to others. It fails where a difference
// is not in the list, where one of the list does not occur, and where neither takes a segment that is not forged.
func TestConntrackAgrees(t *testing.T) {
	runtime.LockOSThread() // so that the namespace gets frames in the order in which they are sent
	defer runtime.UnlockOSThread()
	kernel := newKernelTracker(t)
	gate := &gatewayTracker{world: newWorld(t, trackedConfig)}
	seen, segments, faults := make([]int, len(differences)), 0, 0
	for seed := range uint64(traces) {
		kernel.port = uint16(20000 + seed)
		gate.client = netip.AddrPortFrom(netip.MustParseAddr("198.18.0.9"), kernel.port)
		trace := newTrace(seed)
		for i := range trace {
			s := &trace[i]
			was, _ := gate.conn()
			a, b := kernel.takes(s), gate.takes(s)
			segments++
			if a == b {
				if !a && !s.forged && !(s.rounded && s.kind == "data beyond the window, taken") {
					t.Errorf("seed %d, segment %d of %d, %s: neither takes %v", seed, i, len(trace), was.State, s)
				}
				continue
			}
			taker := theGateway
			if a {
				taker = conntrack
			}
			k := slices.IndexFunc(differences, func(d difference) bool {
				return (d.kind == s.kind || d.kind == rounded && s.rounded) && d.taker == taker && (d.states == "" || slices.Contains(strings.Fields(d.states), was.State))
			})
			if k < 0 {
				t.Errorf("seed %d, segment %d of %d, %s: only %s takes %v", seed, i, len(trace), was.State, taker, s)
				if faults++; faults == 20 {
					t.Fatal("and so on")
				}
				break
			}
			if seen[k]++; !differences[k].goesOn {
				break
			}
		}
		gate.h.ResetAll(0, 1<<20) // so that few connections are looked through
	}
	for k, n := range seen {
		d := &differences[k]
		if t.Logf("%4d %s, %s: only %s takes it, since %s", n, d.kind, d.states, d.taker, d.reason); n == 0 {
			t.Errorf("there is no such difference any more: %s, %s, %s", d.kind, d.states, d.taker)
		}
	}
	t.Logf("%d segments", segments)
}

const traces = 1000
