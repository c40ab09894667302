package tcp

import (
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
)

// TestSynSent is RFC 9293 3.10.7.3.
func TestSynSent(t *testing.T) {
	t.Run("first: an ACK of nothing that was sent is reset", func(t *testing.T) {
		for _, ack := range []uint32{0, 2} {
			p := newPeer(t, bare())
			p.expect(seg{flags: syn})
			p.send(seg{flags: syn | ackF, ack: ack, win: 1000})
			p.expect(seg{flags: rst, seq: ack})
			p.send(seg{flags: rst | ackF, ack: ack})
			p.quiet()
			p.state(StateSynSent, nil)
		}
	})
	t.Run("second: a RST that acknowledges the SYN refuses", func(t *testing.T) {
		p := newPeer(t, bare())
		p.send(seg{flags: rst})
		p.state(StateSynSent, nil)
		p.send(seg{flags: rst | ackF, ack: 1})
		p.state(StateClosed, ErrRefused)
		if p.app.events&Closed == 0 {
			t.Error("the owner was not told")
		}
	})
	t.Run("fourth: a SYN without ACK opens from both ends", func(t *testing.T) {
		p := newPeer(t, bare())
		p.expect(seg{flags: syn})
		p.send(seg{flags: syn, win: 1000})
		p.expect(seg{flags: syn | ackF, ack: 1})
		p.state(StateSynReceived, nil)
		p.send(seg{flags: syn | ackF, ack: 1, win: 1000})
		p.send(seg{flags: ackF, seq: 1, ack: 1, win: 1000})
		p.state(StateEstablished, nil)
	})
	t.Run("fourth: data of the SYN-ACK counts", func(t *testing.T) {
		p := newPeer(t, bare())
		p.expect(seg{flags: syn})
		p.send(seg{flags: syn | ackF, ack: 1, win: 1000})
		p.send(seg{flags: ackF | fin, seq: 1, ack: 1, win: 1000, n: 10})
		p.state(StateCloseWait, nil)
		if p.c.Readable() != 10 {
			t.Errorf("%d bytes", p.c.Readable())
		}
	})
	t.Run("fifth: without SYN and RST it is dropped", func(t *testing.T) {
		p := newPeer(t, bare())
		p.expect(seg{flags: syn})
		if v := p.send(seg{flags: ackF, ack: 1, seq: 1}); v != packet.DropState {
			t.Errorf("%v", v)
		}
		p.quiet()
	})
	t.Run("3.8.3: the SYN is sent for three minutes", func(t *testing.T) {
		p := newPeer(t, bare())
		p.after(179 * time.Second)
		p.state(StateSynSent, nil)
		p.after(2 * time.Second)
		p.state(StateClosed, ErrTimeout)
		if n := len(p.e.out); n < 7 || n > 9 {
			t.Errorf("%d SYNs", n)
		}
	})
}

var synchronized = []State{
	StateSynReceived, StateEstablished, StateFinWait1, StateFinWait2, StateCloseWait, StateClosing, StateLastAck,
}

// TestReset is RFC 9293 3.10.7.4, second, with RFC 5961 3.2, in every state.
func TestReset(t *testing.T) {
	for _, s := range synchronized {
		for name, off := range map[string]uint32{"exact": 0, "in the window": 5, "next but one": 1, "before": ^uint32(0), "behind": 1 << 20} {
			p := inState(t, s)
			next, sent := p.c.rcvNxt-p.irs, p.c.nxt-p.iss
			p.send(seg{flags: rst, seq: next + off})
			switch name {
			case "exact":
				want := error(ErrReset)
				switch s {
				case StateSynReceived:
					want = ErrRefused
				case StateClosing, StateLastAck:
					want = nil
				}
				p.state(StateClosed, want)
				p.quiet()
			case "in the window", "next but one":
				p.state(s, nil)
				p.expect(seg{flags: ackF, seq: sent, ack: next})
				p.send(seg{flags: rst, seq: next + off})
				p.quiet() // RFC 5961 7: challenges are few
			default:
				p.state(s, nil)
				p.quiet()
			}
		}
	}
}

// TestSynInEveryState is RFC 9293 3.10.7.4, fourth, with RFC 5961 4.2: it is challenged.
func TestSynInEveryState(t *testing.T) {
	for _, s := range synchronized {
		for _, off := range []uint32{0, 5, ^uint32(0), 1 << 20} {
			p := inState(t, s)
			next, sent := p.c.rcvNxt-p.irs, p.c.nxt-p.iss
			p.send(seg{flags: syn, seq: next + off})
			if s == StateSynReceived && off == ^uint32(0) { // the one that is answered already, of a peer that lacks the answer
				p.expect(seg{flags: syn | ackF, ack: next})
			} else {
				p.expect(seg{flags: ackF, seq: sent, ack: next})
			}
			p.state(s, nil)
		}
	}
}

// TestUnacceptable is RFC 9293 3.10.7.4, first: what lies outside of the window is answered by an ACK.
func TestUnacceptable(t *testing.T) {
	for _, s := range synchronized {
		p := inState(t, s)
		next, sent, adv := p.c.rcvNxt-p.irs, p.c.nxt-p.iss, p.c.rcvAdv-p.irs
		if v := p.send(seg{flags: ackF, seq: adv, ack: sent, n: 10}); v != packet.DropSequence {
			t.Errorf("%v: behind the window: %v", s, v)
		}
		p.expect(seg{flags: ackF, seq: sent, ack: next})
		p.state(s, nil)
	}
}

// TestAckInEveryState is RFC 9293 3.10.7.4, fifth, with RFC 5961 5.2.
func TestAckInEveryState(t *testing.T) {
	for _, s := range synchronized {
		p := inState(t, s)
		next, sent := p.c.rcvNxt-p.irs, p.c.nxt-p.iss
		p.send(seg{flags: ackF, seq: next, ack: sent + 1, win: 100})
		if s == StateSynReceived {
			p.expect(seg{flags: rst, seq: sent + 1})
			continue
		}
		p.expect(seg{flags: ackF, seq: sent, ack: next})
		p.state(s, nil)
		if p = inState(t, s); p.send(seg{flags: psh, seq: next, n: 5}) != packet.DropState {
			t.Errorf("%v: a segment without ACK was taken", s)
		}
	}
	p := established(t, bare())
	p.send(seg{flags: ackF, seq: 1, ack: ^uint32(20_000), win: 100, n: 5}) // older than any window
	p.expect(seg{flags: ackF, seq: 1, ack: 1})
	if p.c.Readable() != 0 {
		t.Error("data came with an ACK that is too old")
	}
}

// TestClosing is RFC 9293 3.6: both orders of FINs, and crossing ones.
func TestClosing(t *testing.T) {
	p := inState(t, StateFinWait2)
	p.send(seg{flags: fin | ackF, seq: 1, ack: 2, win: 1000, n: 10})
	p.expect(seg{flags: ackF, seq: 2, ack: 12})
	p.state(StateTimeWait, nil)
	if p.c.Readable() != 10 || p.c.Finished() {
		t.Errorf("%d bytes to read in TIME-WAIT", p.c.Readable())
	}
	p.send(seg{flags: fin | ackF, seq: 1, ack: 2, win: 1000, n: 10})
	p.expect(seg{flags: ackF, seq: 2, ack: 12})

	p = inState(t, StateFinWait1)
	p.send(seg{flags: fin | ackF, seq: 1, ack: 2, win: 1000})
	p.expect(seg{flags: ackF, seq: 2, ack: 2})
	p.state(StateTimeWait, nil)

	p = inState(t, StateClosing)
	p.send(seg{flags: ackF, seq: 2, ack: 2, win: 1000})
	p.state(StateTimeWait, nil)

	p = inState(t, StateLastAck)
	p.send(seg{flags: ackF, seq: 2, ack: 2, win: 1000})
	p.state(StateClosed, nil)
	if p.app.events&Closed == 0 || p.app.events&Readable == 0 {
		t.Errorf("told %b", p.app.events)
	}
}

// TestDataAfterClose is RFC 9293 3.6, MAY-1: nobody would read it.
func TestDataAfterClose(t *testing.T) {
	p := established(t, bare())
	p.c.Close(p.now)
	p.poll()
	p.expect(seg{flags: fin | ackF, seq: 1, ack: 1})
	p.send(seg{flags: ackF, seq: 1, ack: 2, win: 1000})
	p.send(seg{flags: ackF, seq: 1, ack: 2, win: 1000, n: 10})
	p.expect(seg{flags: rst | ackF, seq: 2, ack: 1})
	if s := p.e.m.Stats(); s.Conns != 0 {
		t.Errorf("%d connections", s.Conns)
	}

	p = established(t, bare())
	p.send(seg{flags: ackF, seq: 1, ack: 1, win: 1000, n: 10})
	p.e.out = nil
	p.c.Close(p.now) // with unread data
	p.poll()
	p.expect(seg{flags: rst | ackF, seq: 1, ack: 11})
	if s := p.e.m.Stats(); s.Conns != 0 || s.Memory != 0 {
		t.Errorf("%d connections, %d bytes", s.Conns, s.Memory)
	}
}

// TestOrphansTimeOut ends a FIN-WAIT-2 of which no application knows.
func TestOrphansTimeOut(t *testing.T) {
	p := established(t, bare())
	p.c.Close(p.now)
	p.poll()
	p.send(seg{flags: ackF, seq: 1, ack: 2, win: 1000})
	p.after(orphanTime - time.Second)
	if s := p.e.m.Stats(); s.Conns != 1 {
		t.Fatalf("%d connections", s.Conns)
	}
	p.after(2 * time.Second)
	if s := p.e.m.Stats(); s.Conns != 0 {
		t.Errorf("%d connections", s.Conns)
	}
	p = inState(t, StateFinWait2) // the application may still read
	p.after(time.Hour)
	p.state(StateFinWait2, nil)
}

// TestAbort is RFC 9293 3.10.5.
func TestAbort(t *testing.T) {
	p := newPeer(t, bare())
	p.expect(seg{flags: syn})
	p.c.Abort(p.now)
	p.poll()
	p.quiet()
	for _, s := range synchronized {
		p := inState(t, s)
		sent, next := p.c.nxt-p.iss, p.c.rcvNxt-p.irs
		p.c.Abort(p.now)
		p.poll()
		p.expect(seg{flags: rst | ackF, seq: sent, ack: next})
		p.send(seg{flags: ackF, seq: next, ack: sent, win: 10})
		p.expect(seg{flags: rst, seq: sent}) // it is forgotten
	}
}
