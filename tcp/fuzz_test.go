package tcp

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/tcp/buffer"
	"github.com/millrace/millrace/tcp/seqnum"
	"github.com/millrace/millrace/wire"
)

// FuzzInput plays a peer that sends what it likes, and an application that does what it likes, to one
// connection and a listener. Nothing panics, memory stays within the budget, and the connection's
// numbers stay in order.
func FuzzInput(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0x12, 0, 0, 1, 0, 1, 0x10, 4, 0, 1, 0, 20, 1, 9, 2, 30, 0x18, 0, 0, 0, 0})
	f.Add([]byte("\x01\x02\x00\x00\x00\x00\x01\x10\x00\x00\x00\x00\x21\x18\x10\x00\x00\x00\x03\x05\x41\x11\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, script []byte) {
		h := newHostile(t)
		for len(script) >= 6 && h.steps < 2000 {
			h.steps++
			h.step(script[:6])
			script = script[6:]
		}
		h.end()
	})
}

// hostile is a Mux between a hostile peer and a careless application.
type hostile struct {
	t     testing.TB
	m     *Mux
	now   clock.Time
	out   *sink
	conns []*Conn
	l     *Listener
	steps int
}

// sink is an Output that remembers the last header.
type sink struct {
	seq, ack uint32
	full     bool
	ports    [2]uint16
}

func (s *sink) MTU(*wire.Tuple) int     { return 1500 }
func (s *sink) LinkMTU(*wire.Tuple) int { return 1500 }
func (s *sink) Offload() int            { return 64 << 10 }

func (s *sink) Send(now clock.Time, o *Outgoing) bool {
	if !s.full && o.Header.Flags&wire.FlagRST == 0 {
		s.seq, s.ack = o.Header.Seq+uint32(len(o.Payload[0])+len(o.Payload[1])), o.Header.Ack
		if o.Header.Flags.Has(wire.FlagSYN) {
			s.seq++
		}
		s.ports = [2]uint16{o.Tuple.LocalPort, o.Tuple.RemotePort}
	}
	return !s.full
}

const hostileBudget = 1 << 20

func newHostile(t testing.TB) *hostile {
	h := &hostile{t: t, now: clock.Time(time.Hour), out: &sink{}}
	h.m = NewMux(Config{Output: h.out, Now: h.now, Secret: [32]byte{7}, Budget: hostileBudget, MaxConns: 64})
	l, err := h.m.Listen(wire.Addr{}, testPort, 4, &Options{FastOpen: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.l = l
	h.connect()
	return h
}

func (h *hostile) connect() {
	c, err := h.m.Connect(h.now, wire.Tuple{Local: addrA, Remote: addrB, RemotePort: 7}, nil, nil)
	if err == nil {
		h.conns = append(h.conns, c)
	}
	h.m.Poll(h.now)
}

// step does what six bytes say: half of them are segments.
func (h *hostile) step(b []byte) {
	h.now = h.now.Add(time.Duration(b[5]) * time.Duration(b[5]) * time.Millisecond)
	if b[0]&1 == 0 {
		h.segment(b)
	} else {
		h.application(b)
	}
	h.m.Poll(h.now)
	h.check()
}

// segment makes a segment near what the last one sent makes likely.
func (h *hostile) segment(b []byte) {
	s := Segment{
		Seq: h.out.ack + uint32(int32(int8(b[2])))<<(b[0]>>4&7), Ack: h.out.seq + uint32(int32(int8(b[3])))<<(b[0]>>5&7),
		Flags: wire.TCPFlags(b[1]), Window: uint16(b[4]) << 8, Packets: 1, Urgent: uint16(b[3]), ECN: wire.ECN(b[4] & 3), AE: b[4]&4 != 0,
	}
	if b[0]&2 != 0 {
		p := make([]byte, int(b[4])*16)
		s.Payload, s.Len, s.Packets = [][]byte{p[:len(p)/2], p[len(p)/2:]}, uint32(len(p)), 2
	}
	if b[0]&4 != 0 {
		s.Options = wire.TCPOptions{
			HasTimestamps: true, TSVal: uint32(b[5]), TSEcr: binary.BigEndian.Uint32(b[1:]), SACKs: b[2] % 5, MSS: uint16(b[3]),
			SACK: [4]wire.SACKBlock{{Left: h.out.seq - uint32(b[4]), Right: h.out.seq - uint32(b[3])}, {Left: s.Ack, Right: s.Ack + 9}},
		}
	}
	t := wire.Tuple{Local: addrA, Remote: addrB, LocalPort: h.out.ports[0], RemotePort: h.out.ports[1]}
	if b[0]&8 != 0 {
		t.LocalPort, t.RemotePort = testPort, 1000+uint16(b[5])
	}
	h.m.Input(h.now, &t, &s)
}

// application calls a method.
func (h *hostile) application(b []byte) {
	if c := h.l.Accept(); c != nil {
		h.conns = append(h.conns, c)
	}
	if b[0]&2 != 0 {
		h.out.full = !h.out.full
	}
	if len(h.conns) == 0 {
		h.connect()
		return
	}
	i := int(b[1]) % len(h.conns)
	c := h.conns[i]
	buf := make([]byte, int(b[3])*64)
	switch b[2] % 12 {
	case 0:
		c.Write(h.now, buf)
	case 1:
		c.WriteMore(h.now, buf)
	case 2:
		c.WriteZeroCopy(h.now, buf, nil)
	case 3:
		c.WriteUrgent(h.now, buf)
	case 4, 5:
		c.Read(h.now, buf)
	case 6:
		c.CloseWrite(h.now)
	case 7:
		c.Close(h.now)
		h.conns = append(h.conns[:i], h.conns[i+1:]...)
	case 8:
		c.Abort(h.now)
		h.conns = append(h.conns[:i], h.conns[i+1:]...)
	case 9:
		c.CloseRead(h.now)
	case 10:
		h.m.ICMP(h.now, &c.tuple, c.una, ip.ICMPError{Kind: ip.ErrorKind(b[3] % 8), MTU: int(b[4]) * 8})
	default:
		h.connect()
	}
}

// check looks at the invariants of the Mux.
func (h *hostile) check() {
	if h.m.buffers.Used() > hostileBudget || h.m.buffers.Used() < 0 {
		h.t.Fatalf("%d bytes of buffers", h.m.buffers.Used())
	}
	h.m.Each(func(c *Conn) {
		switch {
		case c.ended():
		case seqnum.Before(c.nxt, c.una):
			h.t.Fatalf("%v: SND.NXT %d before SND.UNA %d", c.state, c.nxt, c.una)
		case seqnum.Before(c.end+1, c.nxt):
			h.t.Fatalf("%v: SND.NXT %d behind the end %d", c.state, c.nxt, c.end)
		case c.state >= StateEstablished && seqnum.Before(c.rcvAdv, c.rcvNxt):
			h.t.Fatalf("%v: RCV.NXT %d behind the window %d", c.state, c.rcvNxt, c.rcvAdv)
		case c.active == nil:
			if c.outstanding() || c.unsent() != 0 || c.has(flagDirty) {
				h.t.Fatalf("%v: at rest with work to do", c.state)
			}
		case c.sender.scoreboard.Outstanding() != c.nxt-c.una:
			h.t.Fatalf("%v: %d outstanding, the board has %d", c.state, c.nxt-c.una, c.sender.scoreboard.Outstanding())
		}
		if c.active == nil {
			return
		}
		if r := c.rcv; r != nil {
			h.checkRing(c, r)
		}
	})
}

func (h *hostile) checkRing(c *Conn, r *buffer.Ring) {
	used := h.m.buffers.Used()
	if r.Reserve(&h.m.buffers, r.End()); h.m.buffers.Used() != used {
		h.t.Fatalf("%d bytes in a ring of less", r.End()-r.Base())
	}
	at := r.Next()
	for _, g := range r.OutOfOrder() {
		if !seqnum.Before(at, g.Left) || !seqnum.Before(g.Left, g.Right) {
			h.t.Fatalf("range %d-%d after %d", g.Left, g.Right, at)
		}
		at = g.Right
	}
	if seqnum.Before(c.rcvAdv, at) {
		h.t.Fatalf("data up to %d beyond the window %d", at, c.rcvAdv)
	}
}

// end lets go of all, after which nothing is left.
func (h *hostile) end() {
	h.out.full = false
	h.l.Close(h.now)
	for _, c := range h.conns {
		c.Abort(h.now)
	}
	h.m.Poll(h.now)
	for range 40 {
		h.now = h.now.Add(time.Minute)
		h.m.Poll(h.now)
	}
	if s := h.m.Stats(); s.Conns != 0 || s.Memory != 0 || h.m.table.used != 0 {
		h.t.Fatalf("left: %d connections, %d bytes, %d in the table", s.Conns, s.Memory, h.m.table.used)
	}
}

// TestRandomHostility runs FuzzInput's scripts from seeds.
func TestRandomHostility(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 2))
		h := newHostile(t)
		for range 20 + r.Uint32()%200 {
			var b [6]byte
			binary.BigEndian.PutUint32(b[:], r.Uint32())
			b[4], b[5] = byte(r.Uint32()), byte(r.Uint32()>>24>>(r.Uint32()%8))
			if b[0]&1 == 0 && r.Uint32()%4 > uint32(seed%4) {
				b[1], b[2], b[3] = byte(wire.FlagACK)|b[1]&b[2], b[2]&b[4], b[3]&b[4]&3
			}
			h.steps++
			h.step(b[:])
		}
		h.end()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
