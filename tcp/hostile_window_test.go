package tcp

import (
	"testing"
	"time"

	"github.com/millrace/millrace/wire"
)

// serve has the server's application write all it can to the connections of the attacker.
func (s *attackTest) serve() {
	var b [16384]byte
	for _, c := range s.accepted {
		for c.State() == StateEstablished && c.Write(s.now, b[:]) == len(b) {
			continue
		}
	}
}

// reap gives connections of the attacker that have ended back.
func (s *attackTest) reap() {
	kept := s.accepted[:0]
	for _, c := range s.accepted {
		if c.State() == StateClosed {
			if c.Err() == ErrMemory {
				s.starved++
			}
			c.Close(s.now)
		} else {
			kept = append(kept, c)
		}
	}
	s.accepted = kept
}

// stubborn answers all that the server sends with an ACK of it and the window.
func (s *attackTest) stubborn(window uint16, taken func(r reply) uint32) func(reply) {
	return func(r reply) {
		if r.seg.Flags().Any(wire.FlagSYN | wire.FlagRST) {
			return
		}
		s.attack(r.tuple, wire.TCPHeader{Seq: r.seg.Ack(), Ack: r.seg.Seq() + taken(r), Flags: wire.FlagACK, Window: window}, nil)
	}
}

const siegeBudget = 8 << 20

// TestSockstress has 2000 connections ask for data and never open their window: each answers probes for ever.
func TestSockstress(t *testing.T) {
	for name, window := range map[string]uint16{"closed": 0, "of a few bytes": 4} {
		t.Run(name, func(t *testing.T) {
			s := newAttackTest(t, 64, func(c *Config, o *Options) { c.Budget = siegeBudget })
			s.connect()
			n := 0
			s.run(20*time.Second, 5*time.Millisecond, func() {
				s.onReply = nil
				s.open(n, window, nil)
				n++
				s.onReply = s.stubborn(window, func(r reply) uint32 { return min(uint32(len(r.seg.Payload())), 1) })
				s.act()
				s.serve()
				for _, c := range s.accepted { // a byte each time looks like progress
					if window > 0 && c.una != c.nxt && n%20 == 0 {
						s.attack(c.Tuple(), wire.TCPHeader{Seq: c.rcvNxt, Ack: c.una + 1, Flags: wire.FlagACK, Window: window}, nil)
					}
				}
				s.reap()
			})
			st := s.server.Stats()
			s.reap()
			if n < 1900 || st.StalledPeers < 100 || s.starved != st.StalledPeers {
				t.Errorf("%d connections were opened, %d ended as hoards", n, st.StalledPeers)
			}
			s.progress()
			s.memory(siegeBudget + 1<<20)
			t.Logf("most memory %d bytes of a budget of %d, %d hoards of %d connections", s.worst, siegeBudget, st.StalledPeers, n)
		})
	}
}

// TestZeroWindowIsAllowedWithoutMemoryPressure has one peer close its window for ten minutes, and memory enough.
func TestZeroWindowIsAllowedWithoutMemoryPressure(t *testing.T) { // RFC 9293 3.8.6.1
	s := newAttackTest(t, 64)
	tuple, seq, ack := s.open(1, 0, nil)
	s.onReply = s.stubborn(0, func(reply) uint32 { return 0 })
	s.act()
	s.run(10*time.Minute, time.Minute, s.serve)
	if st := s.server.Stats(); st.Conns != 1 || s.accepted[0].State() != StateEstablished || st.ZeroWindowProbes < 10 {
		t.Errorf("%d connections, %v, %d probes", st.Conns, s.accepted[0].State(), st.ZeroWindowProbes)
	}
	got := 0
	s.onReply = func(r reply) { got += len(r.seg.Payload()) }
	s.attack(tuple, wire.TCPHeader{Seq: seq, Ack: ack, Flags: wire.FlagACK, Window: 1000}, nil)
	s.run(time.Minute, time.Minute, nil)
	if got == 0 {
		t.Error("the window opened, and nothing came")
	}
}

// TestOrphansWithAClosedWindow are closed by the application while data waits for a window that never opens.
func TestOrphansWithAClosedWindow(t *testing.T) {
	s := newAttackTest(t, 64)
	s.connect()
	n := 0
	s.run(time.Second, 2*time.Millisecond, func() {
		s.onReply = nil
		s.open(n, 0, nil)
		n++
		s.onReply = s.stubborn(0, func(reply) uint32 { return 0 })
		s.act()
		s.serve()
		for _, c := range s.accepted {
			c.Close(s.now)
		}
		s.accepted = nil
	})
	if st := s.server.Stats(); st.Conns < 100 {
		t.Errorf("only %d connections", st.Conns)
	}
	s.run(2*orphanTime, time.Minute, nil)
	if st := s.server.Stats(); st.Conns != 1 || st.Memory > 1<<20 {
		t.Errorf("%d connections and %d bytes are left", st.Conns, st.Memory)
	}
	s.progress()
}

// TestStalledPeersInFinWait2 never closes what the server has closed.
func TestStalledPeersInFinWait2(t *testing.T) {
	s := newAttackTest(t, 64)
	s.connect()
	n, states := 0, map[State]int{}
	s.run(2*time.Second, 2*time.Millisecond, func() {
		s.onReply = nil
		tuple, seq, ack := s.open(n, 1000, nil)
		n++
		s.act()
		for _, c := range s.accepted {
			c.Close(s.now)
		}
		s.accepted = nil
		s.server.Poll(s.now)
		s.attack(tuple, wire.TCPHeader{Seq: seq, Ack: ack + 1, Flags: wire.FlagACK, Window: 1000}, nil)
	})
	s.server.Each(func(c *Conn) { states[c.State()]++ })
	if states[StateFinWait2] < 900 {
		t.Errorf("%v", states)
	}
	s.memory(1 << 20)
	s.onReply = s.stubborn(1000, func(r reply) uint32 { return 0 })
	s.run(2*orphanTime, time.Minute, nil)
	if st := s.server.Stats(); st.Conns != 1 {
		t.Errorf("%d connections are left", st.Conns)
	}
	s.progress()
}

// TestStalledPeersAfterHalfClose sends its FIN and keeps the rest open: what an idle connection costs, and no buffer.
func TestStalledPeersAfterHalfClose(t *testing.T) {
	s := newAttackTest(t, 64)
	s.connect()
	n := 0
	s.run(2*time.Second, 2*time.Millisecond, func() {
		tuple, seq, ack := s.open(n, 1000, nil)
		n++
		s.attack(tuple, wire.TCPHeader{Seq: seq, Ack: ack, Flags: wire.FlagACK | wire.FlagFIN, Window: 1000}, nil)
	})
	s.caught = nil
	if st := s.server.Stats(); st.Conns < 900 || st.Memory > 1<<20 {
		t.Errorf("%d connections, %d bytes of buffers", st.Conns, st.Memory)
	}
	for _, c := range s.accepted {
		if c.State() != StateCloseWait || !c.Finished() {
			t.Fatalf("%v, finished %v", c.State(), c.Finished())
		}
	}
	s.memory(1 << 20)
	s.progress()
}

// TestStalledPeersWithHoles sends each connection's last byte of the window alone, so that the server would have to hold all before it.
func TestStalledPeersWithHoles(t *testing.T) {
	s := newAttackTest(t, 64, func(c *Config, o *Options) { c.Budget, o.ReceiveBuffer = siegeBudget, initialReceiveBuffer })
	s.connect()
	n := 0
	s.run(6*time.Second, 5*time.Millisecond, func() {
		s.onReply = nil
		tuple, seq, ack := s.open(n, 1000, nil)
		n++
		s.onReply = func(reply) {}
		s.attack(tuple, wire.TCPHeader{Seq: seq + 65000, Ack: ack, Flags: wire.FlagACK, Window: 1000}, []byte("x"))
	})
	if st := s.server.Stats(); n < 1000 || st.Pruned < 100 || st.Pruned > uint64(n) {
		t.Errorf("%d connections, %d bytes pruned", n, st.Pruned)
	}
	s.progress()
	s.memory(siegeBudget + 1<<20)
}
