package tcp

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/wire"
)

// finModel is the receiver of a stream as RFC 9293 3.10.7.4, seventh and eighth, describe it: the text in the
// window is kept, and the FIN counts once everything before it has arrived. No byte of it is of package tcp.
type finModel struct {
	have [64]bool // by sequence number
	edge uint32   // the right edge of the window, which nobody moves
	fin  uint32   // number of the FIN, 0 while it is not known
}

func (m *finModel) next() uint32 {
	n := uint32(1)
	for m.have[n] {
		n++
	}
	if m.fin != 0 && n == m.fin {
		n++
	}
	return n
}

// input takes text [left, right), and a FIN behind it.
func (m *finModel) input(left, right uint32, fin bool) {
	next := m.next()
	n := right - left
	if fin {
		n++
	}
	// First: nothing of it is in the window. A segment at the left edge of a closed one is still looked at,
	// and a FIN needs no room, so that one at the right edge counts.
	if left+n <= next || left >= max(m.edge, next+1) {
		return
	}
	for seq := left; seq < min(right, m.edge); seq++ {
		if m.fin == 0 || seq < m.fin {
			m.have[seq] = true
		}
	}
	if fin && m.fin == 0 && right <= m.edge {
		m.fin = right
	}
}

// TestFINWithTextThatIsThere is RFC 9293 3.10.7.4, eighth: whatever part of the text before a FIN has arrived,
// in the window or beyond it, in whatever state.
func TestFINWithTextThatIsThere(t *testing.T) {
	const piece = 10
	for _, state := range []State{StateEstablished, StateFinWait1, StateFinWait2} {
		for pieces := range uint32(4) {
			for first := range uint32(1) << pieces {
				for window := range pieces + 2 {
					for _, less := range []uint32{0, 1, piece - 1} {
						for left := uint32(1); left <= pieces*piece+1; left += piece / 2 {
							edge := 1 + (window+1)*piece - less
							t.Run(fmt.Sprintf("%v/%d/%b/%d/%d", state, pieces, first, edge, left), func(t *testing.T) {
								finCase(t, state, pieces, first, edge, left)
							})
						}
					}
				}
			}
		}
	}
}

// finCase sends the pieces whose bits first has, then the FIN with the text from left on, and then everything
// again as a peer does that got no ACK.
func finCase(t *testing.T, state State, pieces, first, edge, left uint32) {
	const piece = 10
	o := bare()
	o.ReceiveBuffer = int(edge - 1)
	p := newPeer(t, o)
	p.expect(seg{flags: syn})
	p.send(seg{flags: syn | ackF, ack: 1, win: 10000})
	ack := uint32(1)
	if state != StateEstablished {
		p.c.CloseWrite(p.now)
		p.poll()
	}
	if state == StateFinWait2 {
		ack = 2
		p.send(seg{flags: ackF, seq: 1, ack: 2, win: 10000})
	}
	m := &finModel{edge: edge}
	end := 1 + pieces*piece
	input := func(left, right uint32, flags wire.TCPFlags) {
		t.Helper()
		p.after(2 * challengeEvery * ms)
		p.e.out = nil
		m.input(left, right, flags.Has(fin))
		p.send(seg{flags: ackF | flags, seq: left, ack: ack, win: 10000, n: int(right - left)})
		if got := p.c.rcvNxt - p.irs; got != m.next() {
			t.Fatalf("%d:%d %v: RCV.NXT is %d, want %d", left, right, flags, got, m.next())
		}
		want := state
		if m.fin != 0 && m.next() == m.fin+1 {
			want = map[State]State{StateEstablished: StateCloseWait, StateFinWait1: StateClosing, StateFinWait2: StateTimeWait}[state]
		}
		if p.c.State() != want {
			t.Fatalf("%d:%d %v: %v, want %v", left, right, flags, p.c.State(), want)
		}
		if flags.Has(fin) && len(p.e.out) == 0 && want != StateTimeWait {
			t.Fatalf("%d:%d %v: no ACK", left, right, flags)
		}
	}
	for i := range pieces {
		if first>>i&1 != 0 {
			input(1+i*piece, 1+(i+1)*piece, 0)
		}
	}
	input(left, end, fin)
	input(left, end, fin)
	input(1, end, fin)
	for i := range pieces {
		input(1+i*piece, 1+(i+1)*piece, 0)
	}
	input(end, end, fin)
	input(1, end, fin)
	text := min(m.next(), end) - 1
	p.wantText(int(text))
	if done := m.next() == end+1; p.c.Finished() != done {
		t.Fatalf("finished: %v, want %v", p.c.Finished(), done)
	}
}

// TestDelayFINAck: our FIN carries the ACK of the peer's where it follows within the delay of an ACK. An ACK of its own
// follows otherwise, and at once where nothing else can carry it: for a FIN after ours, one that comes again, and one behind more
// text than a delay is for.
func TestDelayFINAck(t *testing.T) {
	o := bare()
	o.DelayFINAck = true
	p := established(t, o)
	p.send(seg{flags: fin | ackF, seq: 1, ack: 1, win: 10000})
	p.quiet()
	p.c.CloseWrite(p.now)
	p.poll()
	p.expect(seg{flags: fin | ackF, seq: 1, ack: 2})
	p.send(seg{flags: ackF, seq: 2, ack: 2, win: 10000})
	p.after(2 * delayedAck)
	p.quiet()
	p.state(StateClosed, nil)

	p = established(t, o)
	p.send(seg{flags: fin | ackF, seq: 1, ack: 1, win: 10000})
	p.after(delayedAck - ms)
	p.quiet()
	p.send(seg{flags: fin | ackF, seq: 1, ack: 1, win: 10000})
	p.expect(seg{flags: ackF, seq: 1, ack: 2})
	p.after(2 * ms)
	p.quiet()

	p = established(t, o)
	p.send(seg{flags: fin | ackF, seq: 1, ack: 1, win: 10000})
	p.after(delayedAck + ms)
	p.expect(seg{flags: ackF, seq: 1, ack: 2})

	p = established(t, o)
	p.c.CloseWrite(p.now)
	p.poll()
	p.expect(seg{flags: fin | ackF, seq: 1, ack: 1})
	p.send(seg{flags: fin | ackF, seq: 1, ack: 2, win: 10000})
	p.expect(seg{flags: ackF, seq: 2, ack: 2})

	p = established(t, o)
	p.c.quickACKs = 0
	p.send(seg{flags: ackF, seq: 1, ack: 1, win: 10000, n: 1000})
	p.quiet()
	p.send(seg{flags: fin | ackF, seq: 1001, ack: 1, win: 10000, n: 1000})
	p.expect(seg{flags: ackF, seq: 1, ack: 2002})
}
