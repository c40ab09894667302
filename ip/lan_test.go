package ip

import (
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// lan joins nodes by one Ethernet in virtual time. Frames arrive at once, in the order they were sent;
// the descriptors come from the engine that loops use.
type lan struct {
	t     testing.TB
	now   clock.Time
	hosts []*station
	air   []sent
	seen  [][]byte // all frames, when keep is set
	keep  bool
	lose  func(frame []byte) bool // nil loses nothing
}

type sent struct {
	from  *station
	frame []byte
}

// station is a node on a lan, or what stands for one: without a node it only collects frames.
type station struct {
	*Node
	lan           *lan
	mac           wire.MAC
	engine        *gpukern.CPU
	batch         *packet.Batch
	room          []byte
	full          bool // no frame is free
	loopback      [][]byte
	verdicts      [packet.Verdicts]int
	got           []Datagram // copies
	gotBytes      [][]byte
	changes       []Change
	errors        []ICMPError
	confirmErrors bool
	inbox         [][]byte
	next          clock.Time
}

func newLAN(t testing.TB) *lan { return &lan{t: t, now: clock.Time(time.Hour)} }

// add puts a node on the lan; change its configuration by the function.
func (l *lan) add(id byte, change func(*Config)) *station {
	s := &station{lan: l, mac: wire.MAC{2, 0, 0, 0, 0, id}, confirmErrors: true, room: make([]byte, 1<<16)}
	a := &packet.Arena{Mem: make([]byte, 1<<16), Shift: 16}
	s.engine, s.batch = gpukern.NewCPU(gpukern.Config{}), packet.NewBatch(a, 1)
	cfg := Config{
		Now: l.now, Seed: uint64(id), Links: []Link{{MAC: s.mac, MTU: 1500}}, Output: s,
		Changed: func(_ clock.Time, c Change) { s.changes = append(s.changes, c) },
		Error: func(_ clock.Time, e *ICMPError) bool {
			c := *e
			c.Quote = append([]byte(nil), e.Quote...)
			s.errors = append(s.errors, c)
			return s.confirmErrors
		},
	}
	cfg.Secret[0] = id
	if change != nil {
		change(&cfg)
	}
	s.Node = New(cfg)
	s.next = l.now
	l.hosts = append(l.hosts, s)
	return s
}

// tap puts a station without a node on the lan.
func (l *lan) tap(id byte) *station {
	s := &station{lan: l, mac: wire.MAC{2, 0, 0, 0, 0, id}}
	l.hosts = append(l.hosts, s)
	return s
}

func (s *station) Frame(dev uint8, n int) []byte {
	if s.full {
		return nil
	}
	for i := range s.room[:n] {
		s.room[i] = 0xee // what is not written shows
	}
	return s.room[:n]
}

func (s *station) Send(dev uint8, n int) { s.transmit(dev, s.room[:n]) }

func (s *station) transmit(dev uint8, frame []byte) {
	f := append([]byte(nil), frame...)
	if dev == LoopDev {
		s.loopback = append(s.loopback, f)
		return
	}
	s.lan.air = append(s.lan.air, sent{s, f})
}

// inject sends a frame from s as it is.
func (s *station) inject(frame []byte) { s.transmit(0, frame) }

// feed gives the node one frame and returns the verdict.
func (s *station) feed(dev uint8, frame []byte) packet.Verdict {
	d := s.describe(frame)
	var g Datagram
	v := s.Input(s.lan.now, dev, frame, &d, &g)
	s.verdicts[v]++
	if v == packet.Undecided {
		s.gotBytes = append(s.gotBytes, append([]byte(nil), g.Payload...))
		g.Payload, g.Packet = s.gotBytes[len(s.gotBytes)-1], append([]byte(nil), g.Packet...)
		s.got = append(s.got, g)
	}
	return v
}

// describe has the engine look at a frame.
func (s *station) describe(frame []byte) packet.Desc {
	b := s.batch
	b.Reset()
	copy(b.Arena.Mem, frame)
	b.Append(packet.Desc{Len: uint16(len(frame))})
	if err := s.engine.Submit(b); err != nil {
		s.lan.t.Fatal(err)
	}
	var done [1]*packet.Batch
	for s.engine.Poll(done[:]) == 0 {
	}
	return b.D[0]
}

// settle delivers what is on its way, and what is sent because of it.
func (l *lan) settle() {
	for moved := true; moved; {
		moved = false
		for len(l.air) > 0 {
			x := l.air[0]
			l.air, moved = l.air[1:], true
			l.deliver(x)
		}
		for _, s := range l.hosts {
			for len(s.loopback) > 0 {
				f := s.loopback[0]
				s.loopback, moved = s.loopback[1:], true
				s.feed(LoopDev, f)
			}
		}
	}
}

func (l *lan) deliver(x sent) {
	if x.from.Node != nil {
		decode(l.t, x.frame)
	}
	if l.keep {
		l.seen = append(l.seen, x.frame)
	}
	if l.lose != nil && l.lose(x.frame) {
		return
	}
	dst := wire.Ethernet(x.frame).Dst()
	for _, s := range l.hosts {
		switch {
		case s == x.from || !dst.Multicast() && dst != s.mac:
		case s.Node == nil:
			s.inbox = append(s.inbox, x.frame)
		default:
			s.feed(0, x.frame)
		}
	}
}

// after lets time pass: nodes are polled when they asked to be.
func (l *lan) after(d time.Duration) {
	end := l.now.Add(d)
	for {
		l.settle()
		next := clock.Never
		for _, s := range l.hosts {
			if s.Node != nil {
				next = min(next, s.wheel.Next())
			}
		}
		if next > end {
			break
		}
		l.now = max(l.now, next)
		for _, s := range l.hosts {
			if s.Node != nil {
				s.Poll(l.now)
			}
		}
	}
	l.now = end
	for _, s := range l.hosts {
		if s.Node != nil {
			s.Poll(l.now)
		}
	}
	l.settle()
}

// addr is an address in short.
func addr(s string) wire.Addr { return wire.AddrFrom(netip.MustParseAddr(s)) }

// addAddr gives the station an address at once.
func (s *station) addAddr(p string) *station {
	s.lan.t.Helper()
	if err := s.AddAddr(s.lan.now, 0, netip.MustParsePrefix(p), Static, true); err != nil {
		s.lan.t.Fatal(err)
	}
	return s
}

// send sends a datagram of UDP from port 40001 to port 40002 with the payload given, without asking for a
// path first.
func (s *station) udp(src, dst string, payload []byte, change func(*Header)) packet.Verdict {
	s.lan.t.Helper()
	h := Header{Src: addr(src), Dst: addr(dst), Proto: wire.ProtoUDP}
	if change != nil {
		change(&h)
	}
	p, v := s.Route(s.lan.now, h.Dst, h.Src, AnyDev)
	if p == nil {
		return v
	}
	b := append(wire.AppendUDP(nil, 40001, 40002, len(payload)), payload...)
	wire.UDP(b).FillChecksum(pseudo(&h, len(b)))
	return s.Node.Send(s.lan.now, p, &h, b)
}

func pseudo(h *Header, n int) uint32 {
	if h.Dst.Is4() {
		return wire.PseudoHeader4(h.Src.As4(), h.Dst.As4(), h.Proto, uint32(n))
	}
	return wire.PseudoHeader6(h.Src, h.Dst, h.Proto, uint32(n))
}

// ping sends an echo request.
func (s *station) ping(src, dst string, id uint16, data []byte) packet.Verdict {
	s.lan.t.Helper()
	h := Header{Src: addr(src), Dst: addr(dst), Proto: wire.ProtoICMP}
	typ := wire.ICMPEcho
	if !h.Dst.Is4() {
		h.Proto, typ = wire.ProtoICMPv6, wire.ICMPv6Echo
	}
	b := append(wire.AppendICMP(nil, typ, 0, uint32(id)<<16|1), data...)
	if h.Dst.Is4() {
		wire.ICMP(b).FillChecksum()
	} else {
		wire.ICMPv6(b).FillChecksum(pseudo(&h, len(b)))
	}
	s.Serve(h.Proto, true)
	p, v := s.Route(s.lan.now, h.Dst, h.Src, AnyDev)
	if p == nil {
		return v
	}
	return s.Node.Send(s.lan.now, p, &h, b)
}
