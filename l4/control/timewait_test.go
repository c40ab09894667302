package control

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Short connections through a gateway in virtual time, to a backend that keeps TIME-WAIT as Linux does.

// segment is a TCP segment between the two ends of the model.
type segment struct {
	src, dst     uint32 // IPv4 addresses
	sport, dport uint16
	flags        wire.TCPFlags
	seq, ack     uint32
	stamps       bool
	val, echo    uint32
	payload      int
}

const (
	modelVIP  = 0xc6120101 // 198.18.1.1:80
	modelBack = 0xc612020b // 198.18.2.11:80
)

// append writes the frame of the segment; the transport checksum stays wrong, which the gateway forwards.
func (s *segment) append(b []byte, from, to [6]byte) []byte {
	options := 0
	if s.stamps {
		options = 12
	}
	b = wire.AppendEthernet(b, to, from, wire.EtherTypeIPv4)
	b = wire.AppendIPv4(b, &wire.IPv4Header{
		Src: ip4(s.src), Dst: ip4(s.dst), Proto: wire.ProtoTCP, TTL: 64, PayloadLen: wire.TCPLen + options + s.payload,
	})
	at := len(b)
	b = append(b, make([]byte, wire.TCPLen+options+s.payload)...)
	t := b[at:]
	binary.BigEndian.PutUint16(t, s.sport)
	binary.BigEndian.PutUint16(t[2:], s.dport)
	binary.BigEndian.PutUint32(t[4:], s.seq)
	binary.BigEndian.PutUint32(t[8:], s.ack)
	t[12], t[13] = uint8((wire.TCPLen+options)/4<<4), uint8(s.flags)
	binary.BigEndian.PutUint16(t[14:], 64240)
	if s.stamps {
		copy(t[20:], "\x01\x01\x08\x0a")
		binary.BigEndian.PutUint32(t[24:], s.val)
		binary.BigEndian.PutUint32(t[28:], s.echo)
	}
	return b
}

func ip4(a uint32) (b [4]byte) {
	binary.BigEndian.PutUint32(b[:], a)
	return b
}

// parseSegment reads what the gateway forwards.
func parseSegment(d *packet.Desc, p []byte) segment {
	ip, t := wire.IPv4(p[d.L3:]), wire.TCP(p[d.L4:])
	src, dst := [4]byte(ip[12:16]), [4]byte(ip[16:20])
	s := segment{
		src: binary.BigEndian.Uint32(src[:]), dst: binary.BigEndian.Uint32(dst[:]), sport: t.SrcPort(), dport: t.DstPort(),
		flags: t.Flags(), seq: t.Seq(), ack: t.Ack(), payload: int(ip.TotalLen()) - wire.IPv4Len - t.DataOffset(),
	}
	var o wire.TCPOptions
	t.ParseOptions(&o)
	s.stamps, s.val, s.echo = o.HasTimestamps, o.TSVal, o.TSEcr
	return s
}

// backendConn is a connection of the backend, by the address and port that it sees.
type backendConn struct {
	state          string // "syn-received", "established", "fin-wait", "last-ack", "time-wait"
	sndNxt, rcvNxt uint32
	stamps         bool
	recent         uint32 // TS.Recent
	until          clock.Time
}

// linuxBackend is a server on Linux: it answers a request of any length. Its TIME-WAIT is that of
// tcp_timewait_state_process (net/ipv4/tcp_minisocks.c) with the default settings.
type linuxBackend struct {
	rng         *rand.Rand
	conns       map[uint64]*backendConn
	closesFirst bool
	refused     int // SYNs that met an earlier connection
	assassins   int // RSTs that ended TIME-WAIT: RFC 1337
}

// input returns the reply to a segment; false for none.
func (b *linuxBackend) input(now clock.Time, s *segment) (segment, bool) {
	key := uint64(s.src)<<16 | uint64(s.sport)
	c := b.conns[key]
	if c != nil && c.state == "time-wait" && now >= c.until {
		c = nil
	}
	reply := segment{src: s.dst, dst: s.src, sport: s.dport, dport: s.sport, flags: wire.FlagACK}
	answer := func(c *backendConn, payload int) (segment, bool) {
		reply.seq, reply.ack, reply.stamps, reply.val, reply.echo, reply.payload = c.sndNxt, c.rcvNxt, c.stamps, uint32(now>>20), c.recent, payload
		c.sndNxt += uint32(payload)
		if reply.flags&(wire.FlagSYN|wire.FlagFIN) != 0 {
			c.sndNxt++
		}
		return reply, true
	}
	if s.flags&(wire.FlagSYN|wire.FlagACK|wire.FlagRST) == wire.FlagSYN {
		if c != nil && !(c.state == "time-wait" && c.reopenedBy(s)) {
			b.refused++
			return answer(c, 0)
		}
		c = &backendConn{state: "syn-received", sndNxt: b.rng.Uint32(), rcvNxt: s.seq + 1, stamps: s.stamps, recent: s.val}
		b.conns[key] = c
		reply.flags |= wire.FlagSYN
		return answer(c, 0)
	}
	switch {
	case c == nil:
		return segment{}, false
	case s.flags.Has(wire.FlagRST):
		if s.seq == c.rcvNxt {
			if c.state == "time-wait" {
				b.assassins++
			}
			delete(b.conns, key)
		}
		return segment{}, false
	case s.seq != c.rcvNxt || c.stamps && int32(s.val-c.recent) < 0:
		return answer(c, 0)
	}
	c.recent = s.val
	c.rcvNxt += uint32(s.payload)
	fin := s.flags.Has(wire.FlagFIN)
	if fin {
		c.rcvNxt++
	}
	switch {
	case c.state == "syn-received" || c.state == "established":
		c.state = "established"
		switch {
		case fin:
			c.state = "last-ack"
			reply.flags |= wire.FlagFIN
			return answer(c, 0)
		case s.payload > 0 && b.closesFirst:
			c.state = "fin-wait"
			reply.flags |= wire.FlagFIN
			return answer(c, 100)
		case s.payload > 0:
			return answer(c, 100)
		}
	case c.state == "last-ack":
		delete(b.conns, key)
	case fin:
		c.state, c.until = "time-wait", now.Add(time.Minute)
		return answer(c, 0)
	}
	return segment{}, false
}

// reopenedBy reports whether a SYN ends TIME-WAIT.
func (c *backendConn) reopenedBy(s *segment) bool {
	stamps := c.stamps && s.stamps
	if stamps && int32(s.val-c.recent) < 0 {
		return false // PAWS
	}
	return int32(s.seq-c.rcvNxt) > 0 || stamps && int32(s.val-c.recent) > 0
}

// clientConn is a connection of a client.
type clientConn struct {
	src            uint32
	port           uint16
	stamps         bool
	offset         uint32 // of its timestamps
	isn            uint32
	sndNxt, rcvNxt uint32
	recent         uint32
	state          string // "syn-sent", "established", "fin-wait", "last-ack", "done"
	began          clock.Time
	tries          int
}

func (c *clientConn) segment(now clock.Time, flags wire.TCPFlags, payload int) segment {
	s := segment{
		src: c.src, dst: modelVIP, sport: c.port, dport: 80, flags: flags, seq: c.sndNxt, payload: payload,
		stamps: c.stamps, val: c.offset + uint32(now>>20), echo: c.recent,
	}
	if flags.Has(wire.FlagACK) {
		s.ack = c.rcvNxt
	}
	return s
}

// shortConns is a run of the model.
type shortConns struct {
	w       *world
	rng     *rand.Rand
	backend *linuxBackend
	clients map[uint64]*clientConn
	waiting []*clientConn // SYN sent, by time
	toGate  [2][]segment  // what arrives at the gateway, by its device
	waits   []time.Duration
	hosts   int // clients, each with timestamps and sequence numbers of its own
	stamps  bool
	opened  int
	box     outbox // what the gateway originates
	resets  int    // of these, to the backend
	dropped map[packet.Verdict]int
}

const modelConfig = `
devices: [{name: gw0}, {name: gw1}]
snat: [%s]
snat_ports: %s
table: {size: 400000}
services:
  - {name: web, address: 198.18.1.1:80, backends: [{address: 198.18.2.11:80}]}
`

func newShortConns(t *testing.T, snat, ports string) *shortConns {
	rng := rand.New(rand.NewPCG(1, 2))
	return &shortConns{
		w: newWorld(t, fmt.Sprintf(modelConfig, snat, ports)), rng: rng, clients: map[uint64]*clientConn{},
		backend: &linuxBackend{rng: rng, conns: map[uint64]*backendConn{}}, dropped: map[packet.Verdict]int{},
	}
}

// open starts a connection of the next client.
func (m *shortConns) open() {
	host := m.opened % m.hosts
	c := &clientConn{
		src: 0xc6130000 + uint32(host), port: uint16(2000 + m.opened/m.hosts%60000), stamps: m.stamps,
		offset: uint32(host) * 0x9e3779b9, isn: m.rng.Uint32(), state: "syn-sent", began: m.w.now,
	}
	m.opened++
	c.sndNxt = c.isn
	m.clients[uint64(c.src)<<16|uint64(c.port)] = c
	m.sendSYN(c)
}

func (m *shortConns) sendSYN(c *clientConn) {
	c.sndNxt = c.isn
	m.toGate[0] = append(m.toGate[0], c.segment(m.w.now, wire.FlagSYN, 0))
	c.tries++
	m.waiting = append(m.waiting, c)
}

// clientInput handles what a client gets.
func (m *shortConns) clientInput(s *segment) {
	c := m.clients[uint64(s.dst)<<16|uint64(s.dport)]
	if c == nil {
		return
	}
	send := func(flags wire.TCPFlags, payload int) {
		m.toGate[0] = append(m.toGate[0], c.segment(m.w.now, flags, payload))
		c.sndNxt += uint32(payload)
		if flags.Has(wire.FlagFIN) {
			c.sndNxt++
		}
	}
	if c.state == "syn-sent" {
		if s.ack != c.isn+1 { // RFC 9293 3.10.7.3
			m.toGate[0] = append(m.toGate[0], segment{src: s.dst, dst: s.src, sport: s.dport, dport: s.sport, flags: wire.FlagRST, seq: s.ack})
			return
		}
		if !s.flags.Has(wire.FlagSYN) {
			return
		}
		c.state, c.sndNxt, c.rcvNxt, c.recent = "established", c.isn+1, s.seq+1, s.val
		m.waits = append(m.waits, m.w.now.Sub(c.began))
		send(wire.FlagACK, 0)
		send(wire.FlagACK|wire.FlagPSH, 80)
		return
	}
	if s.seq != c.rcvNxt || s.flags.Has(wire.FlagSYN) {
		return
	}
	c.recent = s.val
	c.rcvNxt += uint32(s.payload)
	fin := s.flags.Has(wire.FlagFIN)
	if fin {
		c.rcvNxt++
	}
	switch {
	case c.state == "established" && fin:
		send(wire.FlagACK, 0)
		send(wire.FlagACK|wire.FlagFIN, 0)
		c.state = "last-ack"
	case c.state == "established" && s.payload > 0:
		send(wire.FlagACK|wire.FlagFIN, 0)
		c.state = "fin-wait"
	case c.state == "fin-wait" && fin:
		send(wire.FlagACK, 0)
		c.state = "done"
	case c.state == "last-ack":
		c.state = "done"
	}
}

// settle passes packets until no end has anything to send.
func (m *shortConns) settle() {
	for len(m.toGate[0])+len(m.toGate[1]) > 0 {
		for port := range m.toGate {
			n := min(len(m.toGate[port]), 64)
			if n == 0 {
				continue
			}
			in := m.toGate[port][:n]
			m.toGate[port] = m.toGate[port][n:]
			m.pass(uint8(port), in)
		}
	}
}

// pass sends a batch through the gateway to the other side.
func (m *shortConns) pass(port uint8, in []segment) {
	w := m.w
	b := packet.NewBatch(w.arena, len(in))
	from, to := macClient, macGw0
	if port == 1 {
		from, to = macBackend, macGw1
	}
	for i := range in {
		off := uint32(i<<frameBits) + 128
		p := in[i].append(w.arena.Mem[off:off:off+1500], from, to)
		b.Append(packet.Desc{Off: off, Len: uint16(len(p)), Port: port})
	}
	w.run(b)
	m.originated()
	for i := range b.D {
		if d := &b.D[i]; d.Verdict != packet.Forward {
			m.dropped[d.Verdict]++
			continue
		}
		s := parseSegment(&b.D[i], b.Bytes(i))
		if port == 1 {
			m.clientInput(&s)
		} else if reply, ok := m.backend.input(w.now, &s); ok {
			m.toGate[1] = append(m.toGate[1], reply)
		}
	}
}

// originated passes the backend what the gateway originated with a batch: it leaves before what the batch forwards.
func (m *shortConns) originated() {
	for _, p := range m.box.frames {
		d := packet.Desc{L3: wire.EthernetLen, L4: wire.EthernetLen + wire.IPv4Len}
		s := parseSegment(&d, p)
		if s.dst != modelBack || s.flags != wire.FlagRST {
			m.w.t.Fatalf("the gateway originated %+v", s)
		}
		m.resets++
		if _, ok := m.backend.input(m.w.now, &s); ok {
			m.w.t.Errorf("the backend answers the reset %+v", s)
		}
	}
	m.box.frames = m.box.frames[:0]
}

// run opens rate connections a second for a time, and lets those that wait try again.
func (m *shortConns) run(rate int, lasts time.Duration) {
	const step = time.Millisecond
	due := 0.0
	for end := m.w.now.Add(lasts + 8*time.Second); m.w.now < end; m.w.now = m.w.now.Add(step) {
		if m.w.now < end.Add(-8*time.Second) {
			for due += float64(rate) * step.Seconds(); due >= 1; due-- {
				m.open()
			}
		}
		m.again()
		m.settle()
		if m.w.now>>20%64 == 0 {
			m.w.h.Tick(m.w.now)
		}
	}
}

// again sends SYNs again: 1 s and 3 s after the first (RFC 6298 5.5).
func (m *shortConns) again() {
	rest := m.waiting[:0]
	var due []*clientConn
	for _, c := range m.waiting {
		switch {
		case c.state != "syn-sent":
		case m.w.now.Sub(c.began) >= time.Duration(1<<c.tries-1)*time.Second && c.tries < 4:
			due = append(due, c)
		default:
			rest = append(rest, c)
		}
	}
	m.waiting = rest
	for _, c := range due {
		m.sendSYN(c)
	}
}

// A backend takes 20 000 short connections a second through one SNAT address: ports whose connections are over are
// used again, by SYNs that the backend takes in TIME-WAIT. Other cases have a tenth of the ports and of the rate.
func TestShortConnectionsGoOnWhenPortsAreShort(t *testing.T) {
	const one, four = "198.18.2.1", "198.18.2.1, 198.18.2.2, 198.18.2.3, 198.18.2.4"
	const all, tenth = "1024-65535", "1024-7475"
	for _, c := range []struct {
		name, snat, ports string
		rate              int
		lasts             time.Duration
		hosts             int
		stamps            bool
		closesFirst       bool
	}{
		{"many clients", one, all, 20_000, 5 * time.Second, 500, true, true},
		{"one client", one, tenth, 2000, 10 * time.Second, 1, true, true},
		{"without timestamps", one, tenth, 2000, 10 * time.Second, 500, false, true},
		{"clients close first", one, tenth, 2000, 10 * time.Second, 500, true, false},
		{"four SNAT addresses", four, tenth, 4000, 10 * time.Second, 500, true, true},
		{"ports whose connections are forgotten", one, tenth, 150, 90 * time.Second, 500, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newShortConns(t, c.snat, c.ports)
			m.hosts, m.stamps, m.backend.closesFirst = c.hosts, c.stamps, c.closesFirst
			m.run(c.rate, c.lasts)
			m.w.audit()
			slices.Sort(m.waits)
			if n := len(m.waits); n != m.opened || m.waits[n*99/100] > 0 {
				t.Errorf("%d of %d connections were served, a hundredth later than at once", n, m.opened)
			}
			t.Logf("%d connections, %d refused SYNs, dropped %v", m.opened, m.backend.refused, m.dropped)
			if m.backend.assassins > 0 || m.backend.refused > 0 {
				t.Errorf("%d SYNs met an earlier connection, %d resets ended TIME-WAIT", m.backend.refused, m.backend.assassins)
			}
		})
	}
}

// portsConfig has ten ports to each backend on each of two SNAT addresses.
const portsConfig = `
devices: [{name: gw0}, {name: gw1}]
snat: [198.18.2.1, 198.18.2.2]
snat_ports: 5000-5009
services:
  - {name: web, address: 198.18.1.1:80, backends: [{address: 198.18.2.11:80}]}
  - {name: dns, protocol: udp, address: 198.18.1.1:53, backends: [{address: 198.18.2.11:53}]}
`

// The ports of an address are counted by what has them, and a warning comes when open connections have most.
func TestTheUseOfPortsIsShown(t *testing.T) {
	w := newWorld(t, portsConfig)
	var warned [][]SNATStatus
	w.g.mu.Lock()
	w.g.opt.OnPortsShort = func(list []SNATStatus) { warned = append(warned, list) }
	w.g.mu.Unlock()
	warn := func(at time.Duration) int {
		w.g.mu.Lock()
		defer w.g.mu.Unlock()
		w.g.warnOfPorts(time.Time{}.Add(24*time.Hour + at))
		return len(warned)
	}
	var out [][]byte
	open := func(n int) {
		for range n {
			p := w.expect(0, client(fmt.Sprintf("198.18.0.9:%d", 1000+len(out)), dns, "").bytes(), 1)
			w.expect(1, answer(p, "").bytes(), 0)
			out = append(out, p)
		}
		w.after(time.Second)
	}
	open(16)
	use := map[string]uint64{}
	for _, st := range w.g.Status().SNAT {
		use["open"] += st.Open
		use["percent"] = max(use["percent"], uint64(st.UsedPercent))
		if st.Ports != 10 || st.Closed != 0 || st.MostUsedBy.String() != "198.18.2.11:53" {
			t.Errorf("%+v, most used by %v", st, st.MostUsedBy)
		}
	}
	if use["open"] != 16 || use["percent"] < 80 || use["percent"] > 90 || warn(0) != 0 {
		t.Errorf("%v, %d warnings", use, warn(0))
	}
	open(4)
	if warn(0) != 1 || warn(30*time.Second) != 1 || warn(61*time.Second) != 2 || len(warned[0]) != 2 || warned[0][0].UsedPercent != 100 {
		t.Errorf("warned %+v", warned)
	}
	w.refused(0, client("198.18.0.9:3000", dns, "").bytes(), packet.DropPortsFull)
	for _, want := range []string{
		`millrace_l4_snat_ports{address="198.18.2.2"} 10`, `millrace_l4_snat_open_ports{address="198.18.2.1"} 10`,
		`millrace_l4_snat_used_ratio{address="198.18.2.1"} 1`, `millrace_l4_snat_closed_ports{address="198.18.2.2"} 0`,
		`millrace_l4_snat_reclaimed_ports_total{address="198.18.2.1",kind="half_open"} 0`,
	} {
		if !strings.Contains(w.scrape(), want+"\n") {
			t.Errorf("lacks %s", want)
		}
	}
}

// Ports are reclaimed of connections that rest, then of closed ones, then of half-open ones, never of open ones.
func TestPortsAreReclaimedInOrder(t *testing.T) {
	m := newShortConns(t, "198.18.2.1", "5000-5009")
	m.hosts, m.stamps, m.backend.closesFirst = 1, true, true
	some := func(n int) {
		for range n {
			m.w.now = m.w.now.Add(10 * time.Millisecond)
			m.open()
			m.settle()
		}
	}
	reclaimed := func() Reclaimed { m.w.after(time.Second); return m.w.g.Status().SNAT[0].Reclaimed }
	some(4)
	m.w.after(40 * time.Second) // forgotten
	some(4)
	for i := range 2 { // never answered
		m.w.expect(0, client(fmt.Sprintf("198.18.0.9:%d", 1000+i), web, "S").bytes(), 1)
	}
	if st := m.w.g.Status().SNAT[0]; st.Reclaimed != (Reclaimed{}) {
		t.Errorf("reclaimed %+v while ports are free", st.Reclaimed)
	}
	hold := m.hold
	hold(4)
	if got := reclaimed(); got != (Reclaimed{Resting: 4}) {
		t.Errorf("reclaimed %+v", got)
	}
	hold(4)
	if got := reclaimed(); got != (Reclaimed{Resting: 4, Closed: 4}) {
		t.Errorf("reclaimed %+v", got)
	}
	hold(2)
	if got := reclaimed(); got != (Reclaimed{4, 4, 2}) {
		t.Errorf("reclaimed %+v", got)
	}
	m.w.refused(0, client("198.18.0.7:999", web, "S").bytes(), packet.DropPortsFull)
	m.w.audit()
}

// hold opens n connections of other clients, which stay.
func (m *shortConns) hold(n int) {
	for i := range n {
		src := fmt.Sprintf("198.18.0.8:%d", 1000+i+int(m.w.now>>20)%10000)
		syn := client(src, web, "S")
		syn.options = []byte{8, 10, byte(m.w.now >> 44), byte(m.w.now >> 36), byte(m.w.now >> 28), byte(m.w.now >> 20), 0, 0, 0, 0, 1, 1}
		p := m.w.expect(0, syn.bytes(), 1)
		m.w.expect(1, answer(p, "SA").bytes(), 0)
		m.w.expect(0, client(src, web, "A").bytes(), 1)
	}
}

// Ports that rest serve again where no connection is closed.
func TestPortsThatRestAreReclaimed(t *testing.T) {
	m := newShortConns(t, "198.18.2.1", "5000-5009")
	m.hosts, m.stamps, m.backend.closesFirst = 1, true, true
	for range 4 {
		m.w.now = m.w.now.Add(10 * time.Millisecond)
		m.open()
		m.settle()
	}
	m.w.after(40 * time.Second) // the connections are forgotten
	m.hold(10)
	m.w.after(time.Second)
	if got := m.w.g.Status().SNAT[0].Reclaimed; got != (Reclaimed{Resting: 4}) {
		t.Errorf("reclaimed %+v", got)
	}
}

// A port rests for 60 s after a connection that the backend closed first, and is free at once after others.
func TestOnlyPortsOfBackendsInTimeWaitRest(t *testing.T) {
	for _, first := range []bool{true, false} {
		m := newShortConns(t, "198.18.2.1", "5000-5009")
		m.hosts, m.stamps, m.backend.closesFirst = 1, true, first
		for range 4 {
			m.open()
			m.settle()
		}
		closed := func(after time.Duration) uint64 { m.w.after(after); return m.w.g.Status().SNAT[0].Closed }
		want := uint64(0)
		if first {
			want = 4
		}
		if n := closed(time.Second); n != 4 {
			t.Errorf("backend first %v: %d ports of closed connections", first, n)
		}
		if n := closed(40 * time.Second); n != want {
			t.Errorf("backend first %v: %d ports rest, want %d", first, n, want)
		}
		if n := closed(22 * time.Second); n != 0 {
			t.Errorf("backend first %v: %d ports rest after 63 s", first, n)
		}
	}
}

// A connection that the client resets leaves nothing in TIME-WAIT at its backend.
func TestThePortOfAResetConnectionDoesNotRest(t *testing.T) {
	w := newWorld(t, portsConfig)
	p := w.expect(0, client(host, web, "S").bytes(), 1)
	w.expect(1, answer(p, "SA").bytes(), 0)
	w.expect(0, client(host, web, "A").bytes(), 1)
	w.expect(1, answer(p, "FA").bytes(), 0)
	w.expect(0, client(host, web, "R").bytes(), 1)
	w.after(40 * time.Second)
	if st := w.g.Status(); st.Connections != 0 || st.SNAT[0].Closed+st.SNAT[1].Closed != 0 {
		t.Errorf("%d connections, %+v", st.Connections, st.SNAT)
	}
}
