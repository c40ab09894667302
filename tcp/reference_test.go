package tcp

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/wire"
)

// reference is the event processing of RFC 9293 3.10 for one connection, with RFC 5961, written from the text: no
// part of it is of package tcp. Sequence numbers are relative and never wrap; the peer's SYN has number 0, as ours.
//
// It differs from the text where the stack does so on purpose:
//   - SYN-RECEIVED: a SYN with the number of the one before is answered by the SYN-ACK again;
//   - an empty segment at the right edge of the window is acceptable, as is any at the left edge of a closed one,
//     for their ACKs; a FIN at the right edge of the window counts;
//   - a SYN in the window is challenged in SYN-RECEIVED, too (RFC 5961 4.2).
type reference struct {
	state    State
	passive  bool
	una, nxt int
	queued   int  // written and not sent yet
	closing  bool // CLOSE was called, and its FIN not sent yet
	irs      int
	rcvNxt   int
	edge     int // the right edge of the window: nobody reads, so that it stays
	window   int
	have     map[int]bool
	fin      int // the peer's FIN, -1 for none
}

// answer is what a segment is answered by.
type answer struct {
	flags wire.TCPFlags // 0 is nothing
	seq   int           // of a RST without ACK
}

func acks() answer { return answer{flags: ackF} }

// write and close are the calls SEND and CLOSE (3.10.2, 3.10.4).
func (r *reference) write(n int) { r.queued += n }

func (r *reference) close() {
	r.closing = true
	switch r.state {
	case StateEstablished:
		r.state = StateFinWait1
	case StateCloseWait:
		r.state = StateLastAck
	}
}

// transmit notes that what waited was sent up to nxt: when that happens is for congestion control to say. It
// reports whether so much waited.
func (r *reference) transmit(nxt int) bool {
	n := nxt - r.nxt
	if n < 0 || n > r.queued && (!r.closing || n > r.queued+1) || n > 0 && (r.state == StateSynSent || r.state == StateSynReceived) {
		return false
	}
	if n > r.queued {
		r.closing = false
	}
	r.queued -= min(n, r.queued)
	r.nxt = nxt
	return true
}

// established is the entry into ESTABLISHED, after which a CLOSE that waited is processed.
func (r *reference) established() {
	r.state = StateEstablished
	if r.closing {
		r.state = StateFinWait1
	}
}

// arrives is SEGMENT ARRIVES (3.10.7).
func (r *reference) arrives(s seg) answer {
	seq, ack := int(int32(s.seq)), int(int32(s.ack))
	if r.state == StateSynSent {
		return r.synSent(s, seq, ack)
	}
	has := func(f wire.TCPFlags) bool { return s.flags.Has(f) }
	wnd := r.edge - r.rcvNxt
	length := s.n
	if has(syn) {
		length++
	}
	if has(fin) {
		length++
	}
	inWindow := func(x int) bool { return r.rcvNxt <= x && x < r.rcvNxt+wnd }
	if r.state == StateSynReceived && has(syn) && !has(rst) && seq == r.irs {
		switch {
		case !has(ackF):
			return answer{flags: syn | ackF}
		case r.passive:
			return acks()
		case ack <= r.una || ack > r.nxt:
			return answer{flags: rst, seq: ack}
		}
		r.una = ack
		r.established()
		r.text(seq+1, s)
		return acks()
	}
	// First, the sequence number.
	acceptable := seq == r.rcvNxt || inWindow(seq) || length == 0 && seq == r.edge || length > 0 && inWindow(seq+length-1)
	if length > 0 && !inWindow(seq) && seq < r.rcvNxt && seq+length > r.rcvNxt {
		acceptable = true // longer than the window
	}
	if !acceptable {
		if has(rst) {
			return answer{}
		}
		return acks()
	}
	// Second, RST (RFC 5961 3.2).
	if has(rst) {
		switch {
		case seq == r.rcvNxt:
			r.state = StateClosed
		case inWindow(seq):
			return acks()
		}
		return answer{}
	}
	// Fourth, SYN (RFC 5961 4.2).
	if has(syn) {
		return acks()
	}
	// Fifth, ACK (RFC 5961 5.2).
	if !has(ackF) {
		return answer{}
	}
	if r.state == StateSynReceived {
		if ack <= r.una || ack > r.nxt {
			return answer{flags: rst, seq: ack}
		}
		r.established()
	}
	if ack > r.nxt {
		return acks()
	}
	if ack > r.una {
		r.una = ack
	}
	if allAcked := r.una == r.nxt; allAcked && !r.closing {
		switch r.state {
		case StateFinWait1:
			r.state = StateFinWait2
		case StateClosing:
			r.state = StateTimeWait
			return answer{}
		case StateLastAck:
			r.state = StateClosed
			return answer{}
		}
	}
	// Seventh and eighth.
	if s.n == 0 && !has(fin) {
		return answer{}
	}
	switch r.state {
	case StateEstablished, StateFinWait1, StateFinWait2:
		r.text(seq, s)
		return acks()
	}
	if seq+s.n > r.rcvNxt {
		return answer{}
	}
	return acks()
}

// synSent is 3.10.7.3.
func (r *reference) synSent(s seg, seq, ack int) answer {
	isACK, isRST := s.flags.Has(ackF), s.flags.Has(rst)
	if isACK && (ack <= 0 || ack > r.nxt) {
		if isRST {
			return answer{}
		}
		return answer{flags: rst, seq: ack}
	}
	if isRST {
		if isACK {
			r.state = StateClosed
		}
		return answer{}
	}
	if !s.flags.Has(syn) {
		return answer{}
	}
	r.irs, r.rcvNxt = seq, seq+1
	r.edge = r.rcvNxt + r.window
	if !isACK {
		r.state = StateSynReceived
		return answer{flags: syn | ackF}
	}
	r.una = ack
	r.established()
	r.text(seq+1, s)
	return acks()
}

// text is the seventh and the eighth step: the text in the window, and the FIN behind it.
func (r *reference) text(left int, s seg) {
	end := left + s.n
	for i := max(left, r.rcvNxt); i < min(end, r.edge); i++ {
		if r.fin < 0 || i < r.fin {
			r.have[i] = true
		}
	}
	if s.flags.Has(fin) && r.fin < 0 && end >= r.rcvNxt && end <= r.edge {
		r.fin = end
		for i := range r.have {
			if i >= end {
				r.fin = -1 // text was received behind it
			}
		}
	}
	for r.have[r.rcvNxt] {
		r.rcvNxt++
	}
	if r.fin != r.rcvNxt {
		return
	}
	r.rcvNxt++
	r.edge = max(r.edge, r.rcvNxt)
	switch r.state {
	case StateEstablished:
		r.state = StateCloseWait
	case StateFinWait1:
		r.state = StateClosing
	case StateFinWait2:
		r.state = StateTimeWait
	}
}

const (
	referenceWindow = 6
	paced           = 20 * ms // in which everything leaves, whatever its pace
)

// TestEventProcessing compares a connection with reference, in any state, at any segment near its numbers: state,
// RCV.NXT, SND.UNA, SND.NXT, what can be read and the answer are the same after each.
func TestEventProcessing(t *testing.T) {
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 11))
		runReference(t, 30, func(n int) int { return r.IntN(n) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// FuzzEventProcessing is TestEventProcessing with choices of the fuzzer's.
func FuzzEventProcessing(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})
	f.Fuzz(func(t *testing.T, b []byte) {
		runReference(t, min(len(b)/5, 200), func(n int) int {
			if len(b) == 0 {
				return 0
			}
			v := int(b[0]) % n
			b = b[1:]
			return v
		})
	})
}

// runReference makes steps of which choose says what they are.
func runReference(t *testing.T, steps int, choose func(n int) int) {
	p, m := referencePeer(t, choose(3) == 0)
	var log []string
	for range steps {
		if m.state == StateClosed || m.state == StateTimeWait {
			return
		}
		p.after(2 * challengeEvery * ms)
		p.e.out = nil
		switch choose(12) {
		case 0:
			log = append(log, "CLOSE")
			if !p.c.has(flagFIN) {
				p.c.CloseWrite(p.now)
				m.close()
			}
			p.after(paced)
			p.e.out = nil
			m.check(p, answer{}, log)
			continue
		case 1:
			if p.c.canWrite() && m.nxt < 6 && !(m.passive && m.state == StateSynReceived) {
				log = append(log, "SEND")
				p.c.Write(p.now, []byte{1})
				m.write(1)
			}
			p.after(paced)
			p.e.out = nil
			m.check(p, answer{}, log)
			continue
		}
		s := referenceSegment(m, choose)
		log = append(log, fmt.Sprintf("%v %d(%d) ack %d in %v", s.flags, int32(s.seq), s.n, int32(s.ack), m.state))
		want := m.arrives(s)
		p.send(s)
		p.after(paced)
		m.check(p, want, log)
		if t.Failed() {
			return
		}
	}
}

// referencePeer begins with a SYN that was sent, or with the child of a Fast Open SYN with two bytes.
func referencePeer(t *testing.T, passive bool) (*peer, *reference) {
	m := &reference{state: StateSynSent, nxt: 1, have: map[int]bool{}, fin: -1, window: referenceWindow}
	if passive {
		p := fastOpenChild(t, 2)
		o := p.c.Options()
		o.NoDelayedAck, o.NoDelay = true, true
		if err := p.c.SetOptions(p.now, &o); err != nil {
			t.Fatal(err)
		}
		m.state, m.passive, m.rcvNxt, m.have[1], m.have[2] = StateSynReceived, true, 3, true, true
		m.edge = int(p.c.rcvAdv - p.irs)
		return p, m
	}
	o := bare()
	o.ReceiveBuffer, o.NoDelayedAck, o.NoDelay = referenceWindow, true, true
	p := newPeer(t, o)
	p.expect(seg{flags: syn})
	return p, m
}

// referenceSegment is a segment whose numbers are mostly near those that are expected.
func referenceSegment(m *reference, choose func(n int) int) seg {
	flags := [...]wire.TCPFlags{ackF, ackF, ackF, ackF, ackF | fin, ackF | fin, ackF | syn, ackF | syn | fin, syn, syn | fin, rst, rst | ackF, fin, 0, ackF | rst | syn}
	s := seg{flags: flags[choose(len(flags))], n: choose(5), win: 1000}
	left := [...]int{m.rcvNxt, m.rcvNxt, m.rcvNxt, m.rcvNxt, m.rcvNxt - 1, m.rcvNxt - 2, m.rcvNxt + 1, m.rcvNxt + 2, m.edge - 1, m.edge, m.edge + 1, m.irs, m.irs, 0}
	s.seq = uint32(left[choose(len(left))])
	acked := [...]int{m.nxt, m.nxt, m.nxt, m.nxt, m.una, m.una + 1, m.nxt + 1, m.una - 1, 0}
	s.ack = uint32(acked[choose(len(acked))])
	if s.flags.Has(syn) && m.state == StateSynSent {
		s.seq = 0
	}
	return s
}

// check compares the connection with the model, and what was sent with the answer.
func (m *reference) check(p *peer, want answer, log []string) {
	p.t.Helper()
	fail := func(format string, args ...any) {
		p.t.Helper()
		for _, l := range log {
			p.t.Log(l)
		}
		p.t.Errorf(format, args...)
	}
	c := p.c
	switch {
	case c.State() != m.state:
		fail("%v, want %v", c.State(), m.state)
	case m.state == StateClosed:
	case m.state != StateSynSent && int(int32(c.rcvNxt-p.irs)) != m.rcvNxt:
		fail("RCV.NXT is %d, want %d", int32(c.rcvNxt-p.irs), m.rcvNxt)
	case m.state == StateTimeWait:
	case int(c.una-p.iss) != m.una:
		fail("SND.UNA is %d, want %d", c.una-p.iss, m.una)
	case !m.transmit(int(c.nxt - p.iss)):
		fail("SND.NXT is %d after %d, and %d bytes wait", c.nxt-p.iss, m.nxt, m.queued)
	}
	if m.state == StateTimeWait {
		return
	}
	var got []answer
	for _, w := range p.e.out {
		b := wire.TCP(w.bytes)
		a := answer{flags: b.Flags() &^ (psh | fin)}
		switch {
		case a.flags == rst:
			a.seq = int(int32(b.Seq() - p.iss))
		case b.Flags().Has(ackF) && int(int32(b.Ack()-p.irs)) != m.rcvNxt:
			fail("acknowledges %d, want %d", int32(b.Ack()-p.irs), m.rcvNxt)
		}
		// What is sent for another reason acknowledges, too.
		if b.Flags().Any(fin|syn) || len(b.Payload()) > 0 {
			if a == want {
				got = append(got[:0], a)
			}
			continue
		}
		got = append(got, a)
	}
	switch {
	case want.flags == 0 && len(got) > 0, want.flags != 0 && (len(got) != 1 || got[0] != want):
		fail("answered by %v, want %v", got, want)
	}
}
