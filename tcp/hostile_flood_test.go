package tcp

import (
	"testing"
	"time"

	"github.com/millrace/millrace/wire"
)

// TestSYNFlood sends 200 000 SYNs with forged sources in 20 s: none of them is ever completed.
func TestSYNFlood(t *testing.T) {
	s := newAttackTest(t, 128, func(c *Config, o *Options) { c.MaxHalfOpen = 4096 })
	s.onReply = func(reply) {}
	n := 0
	flood := func() {
		for range 10 {
			s.attack(attacker(n), wire.TCPHeader{Seq: uint32(n) * 7919, Flags: wire.FlagSYN, Window: 1000}, nil)
			n++
		}
	}
	s.run(5*time.Second, time.Millisecond, flood)
	s.connect()
	s.run(15*time.Second, time.Millisecond, flood)
	st := s.server.Stats()
	if st.CookiesSent < uint64(n)/2 || st.CookiesGood != 1 || st.CookiesBad != 0 {
		t.Errorf("%d SYNs, cookies: %d sent, %d good, %d bad", n, st.CookiesSent, st.CookiesGood, st.CookiesBad)
	}
	if got := s.server.passive.synQueue.used; got > 4096 {
		t.Errorf("%d half-open", got)
	}
	s.progress()
	s.memory(4096*(64+16+8) + 1<<20)
	s.onReply = nil
	s.run(2*time.Minute, time.Second, nil)
	if got := s.server.passive.synQueue.used; got != 0 || s.listener.halfOpen != 0 {
		t.Errorf("after the flood %d are half-open, %d of the listener", got, s.listener.halfOpen)
	}
}

// TestSYNFloodAcrossListeners fills the table of half-open connections itself.
func TestSYNFloodAcrossListeners(t *testing.T) {
	s := newAttackTest(t, 1<<20, func(c *Config, o *Options) { c.MaxHalfOpen = 1000 })
	s.onReply = func(reply) {}
	n := 0
	flood := func() {
		for range 100 {
			s.attack(attacker(n), wire.TCPHeader{Seq: uint32(n), Flags: wire.FlagSYN}, nil)
			n++
		}
	}
	s.run(time.Second, time.Millisecond, flood)
	if got := s.server.passive.synQueue.used; got != 750 {
		t.Errorf("%d half-open of 1000, cookies are to serve beyond 750", got)
	}
	s.connect()
	s.run(5*time.Second, time.Millisecond, flood)
	s.progress()
	s.memory(1000*(64+16+8) + 1<<20)
}

// TestACKFlood sends ACKs to the listener while cookies are good: each is a guess.
func TestACKFlood(t *testing.T) {
	s := newAttackTest(t, 16)
	s.onReply = func(reply) {}
	n := uint32(0)
	s.run(5*time.Second, time.Millisecond, func() {
		s.attack(attacker(int(n%50000)), wire.TCPHeader{Seq: n, Flags: wire.FlagSYN}, nil)
		for range 20 {
			n++
			s.attack(attacker(int(n%50000)+1<<16), wire.TCPHeader{Seq: n * 77, Ack: n * 7919 * 7919, Flags: wire.FlagACK}, nil)
		}
	})
	s.connect()
	s.run(3*time.Second, time.Millisecond, nil)
	st := s.server.Stats()
	if st.CookiesGood > 1 || len(s.accepted) != 0 || st.CookiesBad < 50000 {
		t.Errorf("%d cookies were good, %d bad, %d connections", st.CookiesGood, st.CookiesBad, len(s.accepted))
	}
	if st.ResetsOut > 6000 {
		t.Errorf("%d resets came back", st.ResetsOut)
	}
	s.progress()
}

// TestConnectionFloodBeyondMaxConns completes as many handshakes as can be: what is open already goes on.
func TestConnectionFloodBeyondMaxConns(t *testing.T) {
	s := newAttackTest(t, 64, func(c *Config, o *Options) { c.MaxConns = 500 })
	s.connect()
	s.run(100*time.Millisecond, time.Millisecond, nil)
	n := 0
	s.run(5*time.Second, time.Millisecond, func() {
		s.open(n, 1000, nil)
		n++
	})
	if st := s.server.Stats(); st.Conns > 500 {
		t.Errorf("%d connections", st.Conns)
	}
	if n < 4000 || len(s.accepted) < 400 {
		t.Errorf("%d handshakes, %d accepted", n, len(s.accepted))
	}
	s.progress()
	s.memory(1 << 21)
	for _, c := range s.accepted {
		c.Abort(s.now)
	}
	s.onReply = func(reply) {}
	s.run(2*time.Minute, time.Second, nil)
	if st := s.server.Stats(); st.Conns != 1 {
		t.Errorf("%d connections are left", st.Conns)
	}
}

// TestBacklogFlood has nobody accept: the queue stays within its bound, and nothing else is kept.
func TestBacklogFlood(t *testing.T) {
	s := newAttackTest(t, 10)
	l, err := s.server.Listen(serverAddr, 81, 10, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.connect()
	n := 0
	s.run(3*time.Second, time.Millisecond, func() {
		tuple := attacker(n)
		tuple.LocalPort = 81
		s.caught = nil
		s.attack(tuple, wire.TCPHeader{Seq: 1, Flags: wire.FlagSYN}, nil)
		if len(s.caught) == 1 {
			s.attack(tuple, wire.TCPHeader{Seq: 2, Ack: s.caught[0].seg.Seq() + 1, Flags: wire.FlagACK}, nil)
		}
		n++
	})
	st := s.server.Stats()
	if l.Waiting() != 10 || st.AcceptOverflow < 1000 || st.Conns > 12 {
		t.Errorf("%d wait, %d overflowed, %d connections", l.Waiting(), st.AcceptOverflow, st.Conns)
	}
	s.progress()
	l.Close(s.now)
	s.onReply = func(reply) {}
	s.run(time.Second, time.Second, nil)
	if st := s.server.Stats(); st.Conns != 1 {
		t.Errorf("%d connections are left", st.Conns)
	}
}

// TestTimeWaitExhaustion has the server close first, again and again, so that its records fill up.
func TestTimeWaitExhaustion(t *testing.T) {
	s := newAttackTest(t, 64, func(c *Config, o *Options) { c.MaxTimeWait = 1000 })
	s.connect()
	n := 0
	s.run(5*time.Second, time.Millisecond, func() {
		tuple, seq, ack := s.open(n, 60000, nil)
		n++
		s.act()
		for _, c := range s.accepted {
			c.Close(s.now)
		}
		s.accepted = nil
		s.server.Poll(s.now)
		s.attack(tuple, wire.TCPHeader{Seq: seq, Ack: ack + 1, Flags: wire.FlagACK | wire.FlagFIN, Window: 60000}, nil)
	})
	w := &s.server.passive.timeWait
	if n < 4000 || w.used != 1000 {
		t.Errorf("%d connections, %d records", n, w.used)
	}
	s.progress()
	s.memory(1000*(72+8) + 1<<20)
	s.onReply = func(reply) {}
	s.run(2*time.Minute, time.Second, nil)
	if w.used != 0 || s.server.Stats().Conns != 1 {
		t.Errorf("%d records and %d connections are left", w.used, s.server.Stats().Conns)
	}
}
