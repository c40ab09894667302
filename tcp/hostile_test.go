package tcp

import (
	"container/heap"
	"runtime"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// attackTest is a server under attack, in virtual time: an honest client moves data to and fro over a way
// of 1 ms, while an attacker, who sees what is sent to his own addresses, does his worst.
type attackTest struct {
	*testing.T
	server, client *Mux
	listener       *Listener
	now            clock.Time
	mail           post
	order          int

	caught  []reply // what the server sent to others than the client
	onReply func(reply)

	honest   *Conn // the client's end
	began    clock.Time
	sent     int // bytes of the honest stream
	back     int // and of its echo
	wrong    bool
	starved  uint64  // of the attacker's connections that ended for lack of memory
	accepted []*Conn // the server's ends, but the echo's
	echoes   []*Conn

	base  uint64 // heap in use before
	worst int64  // most bytes of buffers and records that the server had
}

const (
	wayDelay   = time.Millisecond
	honestPace = 4 * time.Microsecond // for each byte of the honest stream
	serverPort = 80
)

var (
	serverAddr = wire.AddrFrom4([4]byte{192, 0, 2, 1})
	clientAddr = wire.AddrFrom4([4]byte{192, 0, 2, 2})
)

// letter is a segment on its way.
type letter struct {
	at    clock.Time
	order int
	to    *Mux
	tuple wire.Tuple
	seg   wire.TCP
	ecn   wire.ECN
}

// post orders letters by time.
type post []letter

func (p post) Len() int { return len(p) }
func (p post) Less(i, j int) bool {
	return p[i].at < p[j].at || p[i].at == p[j].at && p[i].order < p[j].order
}
func (p post) Swap(i, j int) { p[i], p[j] = p[j], p[i] }
func (p *post) Push(x any)   { *p = append(*p, x.(letter)) }
func (p *post) Pop() any {
	old := *p
	x := old[len(old)-1]
	*p = old[:len(old)-1]
	return x
}

// exit is the Output of one end.
type exit struct {
	s    *attackTest
	mine bool // the server's
}

func (e exit) MTU(*wire.Tuple) int     { return 1500 }
func (e exit) LinkMTU(*wire.Tuple) int { return 1500 }
func (e exit) Offload() int            { return 1 << 16 }

func (e exit) Send(now clock.Time, o *Outgoing) bool {
	s := e.s
	payload := append(append([]byte(nil), o.Payload[0]...), o.Payload[1]...)
	h := o.Header
	for first := true; first || len(payload) > 0; first = false {
		n := len(payload)
		if o.SegmentSize > 0 {
			n = min(n, o.SegmentSize)
		}
		x := h
		if n < len(payload) {
			x.Flags &^= wire.FlagFIN | wire.FlagPSH
		}
		seg := wire.TCP(append(wire.AppendTCP(nil, &x), payload[:n]...))
		seg.SetAE(o.AE)
		if o.Sign != nil {
			o.Sign(seg)
		}
		s.post(o.Tuple.Reverse(), seg, o.ECN)
		h.Seq += uint32(n)
		payload = payload[n:]
	}
	return true
}

// post brings a segment to whoever it is for.
func (s *attackTest) post(t wire.Tuple, seg wire.TCP, e wire.ECN) {
	to := s.client
	switch t.Local {
	case serverAddr:
		to = s.server
	case clientAddr:
	default:
		r := reply{tuple: t.Reverse(), seg: seg, ecn: e}
		r.seg.ParseOptions(&r.opts)
		if s.onReply != nil {
			s.onReply(r)
		} else {
			s.caught = append(s.caught, r)
		}
		return
	}
	s.order++
	heap.Push(&s.mail, letter{s.now.Add(wayDelay), s.order, to, t, seg, e})
}

// deliver gives a Mux a segment as a host does.
func deliver(now clock.Time, m *Mux, t wire.Tuple, seg wire.TCP, e wire.ECN) packet.Verdict {
	if !seg.Valid() {
		return packet.DropMalformed
	}
	s := Segment{
		Seq: seg.Seq(), Ack: seg.Ack(), Window: seg.Window(), Urgent: seg.Urgent(), Flags: seg.Flags(), AE: seg.AE(), ECN: e,
		Packets: 1, Len: uint32(len(seg.Payload())), Raw: seg,
	}
	if s.Len > 0 {
		s.Payload = [][]byte{seg.Payload()}
	}
	seg.ParseOptions(&s.Options)
	return m.Input(now, &t, &s)
}

func newAttackTest(t *testing.T, backlog int, change ...func(*Config, *Options)) *attackTest {
	s := &attackTest{T: t, now: clock.Time(50 * time.Hour)}
	cfg := Config{Output: exit{s, true}, Now: s.now, Secret: [32]byte{7}, Seed: 7}
	var o Options
	for _, f := range change {
		f(&cfg, &o)
	}
	s.server = NewMux(cfg)
	s.client = NewMux(Config{Output: exit{s, false}, Now: s.now, Secret: [32]byte{8}, Seed: 8})
	l, err := s.server.Listen(wire.Addr{}, serverPort, backlog, &o, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.listener = l
	s.base = heapInUse()
	return s
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// connect begins the honest connection.
func (s *attackTest) connect() {
	s.Helper()
	c, err := s.client.Connect(s.now, wire.Tuple{Local: clientAddr, Remote: serverAddr, RemotePort: serverPort}, nil, nil)
	if err != nil {
		s.Fatal(err)
	}
	s.honest, s.began = c, s.now
}

// honestByte is byte i of the honest stream.
func honestByte(i int) byte { return byte(i>>8) ^ byte(i*7) }

// act has both applications do what they can.
func (s *attackTest) act() {
	for c := s.listener.Accept(); c != nil; c = s.listener.Accept() {
		if c.Tuple().Remote == clientAddr {
			s.echoes = append(s.echoes, c)
		} else {
			s.accepted = append(s.accepted, c)
		}
	}
	var b [4096]byte
	for _, c := range s.echoes {
		for c.Readable() > 0 && c.Writable() > 0 {
			n := c.Read(s.now, b[:min(len(b), c.Writable())])
			c.Write(s.now, b[:n])
		}
	}
	if s.honest == nil {
		return
	}
	for n := s.honest.Read(s.now, b[:]); n > 0; n = s.honest.Read(s.now, b[:]) {
		for i, x := range b[:n] {
			s.wrong = s.wrong || x != honestByte(s.back+i)
		}
		s.back += n
	}
	if due := int(s.now.Sub(s.began) / honestPace); s.honest.State() == StateEstablished && s.sent < due {
		n := min(due-s.sent, len(b))
		for i := range n {
			b[i] = honestByte(s.sent + i)
		}
		s.sent += s.honest.Write(s.now, b[:n])
	}
}

// run lets d pass, calling attack every step.
func (s *attackTest) run(d, step time.Duration, attack func()) {
	end := s.now.Add(d)
	next := s.now
	for s.now < end {
		if attack != nil && s.now >= next {
			attack()
			next = s.now.Add(step)
		}
		for len(s.mail) > 0 && s.mail[0].at <= s.now {
			x := heap.Pop(&s.mail).(letter)
			deliver(s.now, x.to, x.tuple, x.seg, x.ecn)
		}
		s.act()
		wake := min(s.server.Poll(s.now), s.client.Poll(s.now), end)
		s.act()
		wake = min(wake, s.server.Poll(s.now), s.client.Poll(s.now))
		s.worst = max(s.worst, s.server.Stats().Memory+recordsMemory(&s.server.passive.synQueue.records, 64+16)+recordsMemory(&s.server.passive.timeWait.records, 72))
		if attack != nil {
			wake = min(wake, next)
		}
		if len(s.mail) > 0 {
			wake = min(wake, s.mail[0].at)
		}
		s.now = max(wake, s.now.Add(10*time.Microsecond))
	}
}

// attack gives the server a segment of the attacker's at once.
func (s *attackTest) attack(t wire.Tuple, h wire.TCPHeader, payload []byte) packet.Verdict {
	h.SrcPort, h.DstPort = t.RemotePort, t.LocalPort
	seg := wire.TCP(append(wire.AppendTCP(nil, &h), payload...))
	return deliver(s.now, s.server, t, seg, wire.NotECT)
}

// attacker is the tuple of the attacker's connection n.
func attacker(n int) wire.Tuple {
	return wire.Tuple{
		Local: serverAddr, Remote: wire.AddrFrom4([4]byte{198, 18, byte(n >> 8), byte(n)}),
		LocalPort: serverPort, RemotePort: 1024 + uint16(n>>16),
	}
}

// open completes the attacker's handshake n with the window and options, and returns the tuple and the
// numbers to go on with: his next and the server's.
func (s *attackTest) open(n int, window uint16, options []byte) (t wire.Tuple, seq, ack uint32) {
	t = attacker(n)
	s.caught = nil
	s.attack(t, wire.TCPHeader{Seq: 1000, Flags: wire.FlagSYN, Window: window, Options: options}, nil)
	if len(s.caught) != 1 || !s.caught[0].seg.Flags().Has(wire.FlagSYN|wire.FlagACK) {
		return t, 0, 0
	}
	seq, ack = 1001, s.caught[0].seg.Seq()+1
	s.attack(t, wire.TCPHeader{Seq: seq, Ack: ack, Flags: wire.FlagACK, Window: window}, nil)
	s.caught = nil
	return t, seq, ack
}

// progress fails where the honest stream and its echo did not keep their pace, but for two seconds, or are not whole.
func (s *attackTest) progress() {
	s.Helper()
	took := s.now.Sub(s.began)
	if want := int((took - min(took, 2*time.Second)) / honestPace); s.back < want || s.back == 0 || s.wrong {
		s.Errorf("the honest connection moved %d bytes, want %d; wrong: %v; state %v", s.back, want, s.wrong, s.honest.State())
	}
}

// memory fails where the server needed more than limit bytes at any time, by its own count, or the heap more than
// twice that and a few MiB for the test itself.
func (s *attackTest) memory(limit int64) {
	s.Helper()
	if s.worst > limit {
		s.Errorf("the server took %d bytes, want at most %d", s.worst, limit)
	}
	s.caught = nil
	if grown := int64(heapInUse() - min(s.base, heapInUse())); grown > 2*limit+8<<20 {
		s.Errorf("the heap grew by %d bytes", grown)
	}
}

// recordsMemory returns the bytes of a table whose records take each bytes with their timers.
func recordsMemory[T any, P record[T]](r *records[T, P], each int) int64 {
	return int64(len(r.slots)*each + 4*len(r.buckets))
}
