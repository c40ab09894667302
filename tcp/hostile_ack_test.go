package tcp

import (
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// download has the attacker fetch data for d from a server that has no end of it, over a way of 20 ms, answering each segment by
// acks, which returns the numbers to acknowledge. It returns how much the server sent and its connection.
func (s *attackTest) download(d time.Duration, acks func(first, behind uint32) []uint32) (sent int, c *Conn) {
	type answer struct {
		at  int // in steps
		seq []uint32
	}
	var due []answer
	step, last := 0, uint32(0)
	tuple, seq, ack := s.open(1, 65535, nil)
	last = ack
	s.onReply = func(r reply) {
		n := uint32(len(r.seg.Payload()))
		if n == 0 {
			return
		}
		sent += int(n)
		if r.seg.Seq() == last { // in order
			last += n
			due = append(due, answer{step + 20, acks(r.seg.Seq(), last)})
		}
	}
	s.act()
	c = s.accepted[0]
	s.run(d, time.Millisecond, func() {
		step++
		s.serve()
		for len(due) > 0 && due[0].at <= step {
			for _, a := range due[0].seq {
				s.attack(tuple, wire.TCPHeader{Seq: seq, Ack: a, Flags: wire.FlagACK, Window: 65535}, nil)
			}
			due = due[1:]
		}
	})
	return sent, c
}

// TestACKSplitting acknowledges each segment in a hundred pieces (Savage et al., 1999): what counts is bytes (RFC 3465,
// RFC 9438 4.1), not ACKs.
func TestACKSplitting(t *testing.T) {
	for _, control := range []string{"reno", "cubic"} {
		with := func(acks func(first, behind uint32) []uint32) (uint64, int) {
			s := newAttackTest(t, 64, func(c *Config, o *Options) { o.Congestion = control })
			sent, c := s.download(300*time.Millisecond, acks)
			return c.Info().Cwnd, sent
		}
		honest, honestSent := with(func(_, behind uint32) []uint32 { return []uint32{behind} })
		split, splitSent := with(func(first, behind uint32) (all []uint32) {
			for a := first + 10; a != behind && int32(a-behind) < 0; a += 10 {
				all = append(all, a)
			}
			return append(all, behind)
		})
		if split > honest+honest/8 || splitSent > honestSent+honestSent/8 {
			t.Errorf("%s: window %d and %d bytes sent; with split ACKs %d and %d", control, honest, honestSent, split, splitSent)
		}
		t.Logf("%s: window %d, %d bytes sent; with split ACKs %d, %d", control, honest, honestSent, split, splitSent)
	}
}

// TestDuplicateACKSpoofing sends a thousand duplicates of one ACK: they say that segments left the way, which they did not.
func TestDuplicateACKSpoofing(t *testing.T) {
	s := newAttackTest(t, 64, func(c *Config, o *Options) { o.Congestion = "reno" })
	sent, c := s.download(200*time.Millisecond, func(_, behind uint32) (all []uint32) {
		for range 50 {
			all = append(all, behind)
		}
		return all
	})
	s2 := newAttackTest(t, 64, func(c *Config, o *Options) { o.Congestion = "reno" })
	honest, _ := s2.download(200*time.Millisecond, func(_, behind uint32) []uint32 { return []uint32{behind} })
	if sent > 2*honest {
		t.Errorf("%d bytes were sent, %d to an honest receiver", sent, honest)
	}
	if f := c.Info().InFlight; f > 1<<20 {
		t.Errorf("%d bytes in flight", f)
	}
}

// TestOptimisticACKs acknowledges what was not sent yet: that is refused, and moves nothing (RFC 5961 5, RFC 9293 3.10.7.4).
func TestOptimisticACKs(t *testing.T) {
	s := newAttackTest(t, 64)
	s.connect()
	tuple, seq, ack := s.open(1, 65535, nil)
	s.onReply = func(reply) {}
	s.act()
	s.serve()
	s.run(10*time.Millisecond, time.Millisecond, nil)
	c := s.accepted[0]
	una, nxt, window := c.una, c.nxt, c.Info().Cwnd
	if una != ack || nxt == una {
		t.Fatalf("una %d, nxt %d, want %d and more", una, nxt, ack)
	}
	for _, beyond := range []uint32{1, 1000, 1 << 16, 1 << 30, 1<<31 - 1} {
		if v := s.attack(tuple, wire.TCPHeader{Seq: seq, Ack: nxt + beyond, Flags: wire.FlagACK, Window: 65535}, nil); v != packet.DropSequence {
			t.Errorf("an ACK %d beyond: %v", beyond, v)
		}
	}
	if c.una != una || c.nxt != nxt || c.Info().Cwnd != window {
		t.Errorf("una %d, nxt %d, window %d; were %d, %d, %d", c.una, c.nxt, c.Info().Cwnd, una, nxt, window)
	}
	s.run(3*time.Second, time.Millisecond, func() {
		s.attack(tuple, wire.TCPHeader{Seq: seq, Ack: c.nxt + 1000, Flags: wire.FlagACK, Window: 65535}, nil)
	})
	if n := s.server.Stats().ChallengeAcks; n > 3050/50+5 {
		t.Errorf("%d challenges in 3 s", n)
	}
	s.progress()
}

// TestSACKOfWhatWasNotSent has blocks beyond SND.NXT, reversed ones and ones of long ago.
func TestSACKOfWhatWasNotSent(t *testing.T) {
	s := newAttackTest(t, 64)
	s.connect()
	tuple, seq, ack := s.open(1, 65535, wire.AppendSACKPermitted(nil))
	s.onReply = func(reply) {}
	s.act()
	s.serve()
	s.run(10*time.Millisecond, time.Millisecond, nil)
	c := s.accepted[0]
	for _, b := range []wire.SACKBlock{
		{Left: c.nxt, Right: c.nxt + 1000},
		{Left: c.nxt - 1, Right: c.nxt + 1},
		{Left: c.una + 100, Right: c.una + 50},
		{Left: c.una - 1000, Right: c.una - 500},
		{Left: c.una, Right: c.una},
		{Left: c.una + 1<<31, Right: c.una + 1<<31 + 5},
		{Left: c.una - 5, Right: c.nxt + 5},
		{Left: 0, Right: 0xffffffff},
	} {
		flight := c.Info().InFlight
		for range 20 {
			s.attack(tuple, wire.TCPHeader{
				Seq: seq, Ack: ack, Flags: wire.FlagACK, Window: 65535, Options: wire.AppendSACK(wire.AppendNOP(nil, 2), b),
			}, nil)
		}
		if c.una != ack || c.State() != StateEstablished {
			t.Errorf("%+v: una moved by %d, %v", b, c.una-ack, c.State())
		}
		if got := c.Info().InFlight; got > flight {
			t.Errorf("%+v: %d bytes in flight, were %d", b, got, flight)
		}
		s.run(5*time.Millisecond, time.Millisecond, nil)
	}
	s.run(3*time.Second, time.Second, nil)
	s.progress()
}
