package tcp

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// echo returns the server's end of the honest connection, and its tuple as the server sees it.
func (s *attackTest) echo() (*Conn, wire.Tuple) {
	s.Helper()
	if len(s.echoes) != 1 {
		s.Fatalf("%d honest connections", len(s.echoes))
	}
	return s.echoes[0], s.echoes[0].Tuple()
}

// TestBlindAttacks is who knows the four numbers of the honest connection's tuple, and forges segments into it. None may be taken:
// neither a RST or SYN in the window but beside its edge, nor data with an ACK out of range (RFC 5961 3, 4, 5).
func TestBlindAttacks(t *testing.T) {
	for name, forge := range map[string]func(g *rand.Rand, c *Conn) wire.TCPHeader{
		"RST anywhere": func(g *rand.Rand, c *Conn) wire.TCPHeader {
			return wire.TCPHeader{Seq: g.Uint32() | 1<<31 ^ c.rcvNxt&(1<<31), Flags: wire.FlagRST}
		},
		"RST in the window": func(g *rand.Rand, c *Conn) wire.TCPHeader {
			return wire.TCPHeader{Seq: c.rcvNxt + 1 + g.Uint32N(60000), Flags: wire.FlagRST}
		},
		"RST ACK in the window": func(g *rand.Rand, c *Conn) wire.TCPHeader {
			return wire.TCPHeader{Seq: c.rcvNxt + 1 + g.Uint32N(60000), Ack: c.nxt, Flags: wire.FlagRST | wire.FlagACK}
		},
		"RST before the window": func(g *rand.Rand, c *Conn) wire.TCPHeader {
			return wire.TCPHeader{Seq: c.rcvNxt - 1 - g.Uint32N(60000), Flags: wire.FlagRST}
		},
		"SYN at the edge": func(g *rand.Rand, c *Conn) wire.TCPHeader {
			return wire.TCPHeader{Seq: c.rcvNxt, Flags: wire.FlagSYN}
		},
		"SYN anywhere": func(g *rand.Rand, c *Conn) wire.TCPHeader {
			return wire.TCPHeader{Seq: g.Uint32(), Flags: wire.FlagSYN}
		},
		"SYN ACK": func(g *rand.Rand, c *Conn) wire.TCPHeader {
			return wire.TCPHeader{Seq: c.rcvNxt, Ack: c.nxt, Flags: wire.FlagSYN | wire.FlagACK}
		},
		"data with a guessed ACK": func(g *rand.Rand, c *Conn) wire.TCPHeader {
			return wire.TCPHeader{Seq: c.rcvNxt, Ack: c.nxt + 1 + g.Uint32N(1<<30), Flags: wire.FlagACK, Window: 100}
		},
		"data with an old ACK": func(g *rand.Rand, c *Conn) wire.TCPHeader {
			return wire.TCPHeader{Seq: c.rcvNxt, Ack: c.una - c.maxWnd - 1 - g.Uint32N(1<<30), Flags: wire.FlagACK, Window: 100}
		},
		"data without ACK": func(g *rand.Rand, c *Conn) wire.TCPHeader {
			return wire.TCPHeader{Seq: c.rcvNxt}
		},
		"FIN with a guessed ACK": func(g *rand.Rand, c *Conn) wire.TCPHeader {
			return wire.TCPHeader{Seq: c.rcvNxt, Ack: c.nxt + 1 + g.Uint32N(1<<30), Flags: wire.FlagACK | wire.FlagFIN}
		},
		"data anywhere": func(g *rand.Rand, c *Conn) wire.TCPHeader {
			return wire.TCPHeader{Seq: c.rcvAdv + g.Uint32N(1<<30), Ack: c.una, Flags: wire.FlagACK}
		},
	} {
		for _, stamps := range []bool{false, true} {
			s := newAttackTest(t, 64, func(c *Config, o *Options) { o.NoTimestamps = !stamps })
			g := rand.New(rand.NewPCG(1, 2))
			s.connect()
			s.run(100*time.Millisecond, time.Millisecond, nil)
			c, tuple := s.echo()
			accepted := 0
			s.run(2500*time.Millisecond, time.Millisecond, func() {
				for range 4 {
					h := forge(g, c)
					if stamps { // the attacker has even guessed these
						h.Options = wire.AppendTimestamps(wire.AppendNOP(nil, 2), c.tsRecent+1, 0)
					}
					var payload []byte
					if !h.Flags.Any(wire.FlagRST | wire.FlagSYN) {
						payload = []byte("forged")
					}
					if s.attack(tuple, h, payload) == packet.Deliver {
						accepted++
					}
				}
			})
			if accepted != 0 || c.State() != StateEstablished || s.honest.State() != StateEstablished {
				t.Errorf("%s, timestamps %v: %d were taken; %v and %v", name, stamps, accepted, c.State(), s.honest.State())
			}
			if n := s.server.Stats().ChallengeAcks; n > 60 {
				t.Errorf("%s: %d challenges in 2.5 s (RFC 5961 7)", name, n)
			}
			if s.progress(); t.Failed() {
				t.Fatalf("%s, timestamps %v", name, stamps)
			}
		}
	}
}

// TestBlindRSTOfTheExactNumber is the one that has to count: the peer itself resets (RFC 5961 3.2).
func TestBlindRSTOfTheExactNumber(t *testing.T) {
	s := newAttackTest(t, 64)
	s.connect()
	s.run(100*time.Millisecond, time.Millisecond, nil)
	c, tuple := s.echo()
	if v := s.attack(tuple, wire.TCPHeader{Seq: c.rcvNxt, Flags: wire.FlagRST}, nil); v != packet.Deliver || c.Err() != ErrReset {
		t.Errorf("%v, %v", v, c.Err())
	}
}

// TestForgedICMP tells the server about segments of the honest connection: only what is in flight is heeded, no message ends it,
// and no MTU goes below the floor (RFC 5927).
func TestForgedICMP(t *testing.T) {
	kinds := []ip.ErrorKind{
		ip.NetUnreachable, ip.HostUnreachable, ip.ProtoUnreachable, ip.PortUnreachable, ip.TooBig, ip.Prohibited, ip.TimeExceeded,
		ip.ParameterProblem,
	}
	s := newAttackTest(t, 64)
	g := rand.New(rand.NewPCG(5, 6))
	s.connect()
	s.run(100*time.Millisecond, time.Millisecond, nil)
	c, tuple := s.echo()
	mss, heeded := c.Info().MSS, 0
	tell := func(seq uint32, k ip.ErrorKind, mtu int) bool {
		return s.server.ICMP(s.now, &tuple, seq, ip.ICMPError{Kind: k, MTU: mtu, Tuple: tuple})
	}
	s.run(2*time.Second, time.Millisecond, func() {
		for _, k := range kinds {
			for _, seq := range []uint32{c.nxt, c.nxt + g.Uint32N(1<<30), c.una - 1 - g.Uint32N(1<<30)} {
				if tell(seq, k, 68) {
					heeded++
				}
			}
		}
	})
	if heeded != 0 || c.Info().MSS != mss {
		t.Errorf("%d messages about what is not in flight were heeded; MSS %d, was %d", heeded, c.Info().MSS, mss)
	}
	inFlight := 0
	s.run(2*time.Second, time.Millisecond, func() {
		for _, k := range kinds {
			for _, mtu := range []int{0, 1, 68, 296, 575, 70000, -1} {
				if tell(c.una, k, mtu) {
					inFlight++
				}
			}
		}
	})
	if inFlight == 0 {
		t.Error("none about what was in flight")
	}
	if c.State() != StateEstablished || s.honest.State() != StateEstablished {
		t.Errorf("%v, %v", c.State(), s.honest.State())
	}
	if got := int(c.segment); got != 576-40 {
		t.Errorf("segments of %d bytes, want the floor's %d", got, 576-40)
	}
	s.progress()
}

// TestMTUFloorOfIPv6 is 1280 (RFC 8200 5).
func TestMTUFloorOfIPv6(t *testing.T) {
	four, six := from(1), six(1)
	if minPathMTU(&four) != 576 || minPathMTU(&six) != 1280 {
		t.Errorf("%d, %d", minPathMTU(&four), minPathMTU(&six))
	}
}

// TestForgedICMPWhileHalfOpen has no say over what is half-open.
func TestForgedICMPWhileHalfOpen(t *testing.T) {
	s := newAttackTest(t, 64)
	tuple := attacker(1)
	s.attack(tuple, wire.TCPHeader{Seq: 1, Flags: wire.FlagSYN}, nil)
	if s.server.ICMP(s.now, &tuple, s.caught[0].seg.Seq(), ip.ICMPError{Kind: ip.PortUnreachable}) || s.server.passive.synQueue.used != 1 {
		t.Error("heeded")
	}
}
