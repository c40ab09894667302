package transport

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/rdma/roce"
)

// TestSilentPeer has a peer that never answers: the request is sent 1 + Retries times, one timeout after the other.
func TestSilentPeer(t *testing.T) {
	for _, retries := range []uint8{1, 3, 7} {
		p := newPair(t, options{retries: retries})
		p.a.lose = func(*roce.Packet) bool { return true }
		var times []clock.Time
		p.a.record = func(roce.Packet, int) { times = append(times, p.now) }
		p.a.post(p.a.request(1, OpSend, 0, 8, 0))
		p.a.post(p.a.request(2, OpSend, 0, 8, 0))
		p.run()
		timeout := clock.Time(roce.AckTimeout(6))
		if len(times) != 2*(1+int(retries)) || p.now != timeout*clock.Time(1+retries) {
			t.Errorf("%d retries: %d packets until %d", retries, len(times), p.now)
		}
		if len(p.a.sends) != 2 || p.a.sends[0].Status != RetriesExceeded || p.a.sends[1].Status != Flushed || p.a.qp.State() != Error {
			t.Errorf("%+v", p.a.sends)
		}
	}
}

// TestPeerThatNaksEverything has a peer that NAKs everything.
func TestPeerThatNaksEverything(t *testing.T) {
	for s, want := range map[roce.Syndrome]Status{
		roce.NakSequence: RetriesExceeded, roce.NakInvalidRequest: RemoteInvalid, roce.NakRemoteAccess: RemoteAccess,
		roce.NakRemoteOperation: RemoteOperation, roce.NakInvalidRD: RemoteInvalid, roce.RNR(1): RNRExceeded,
	} {
		p := newPair(t, options{psn: 100, rnr: 3})
		p.b.post(p.b.request(1, OpSend, 0, 8, 0))
		sent := 0
		for range 20 {
			sent += len(p.answers())
			if p.b.qp.State() == Error {
				break
			}
			p.craft(roce.Packet{Opcode: roce.Acknowledge, PSN: 100, Syndrome: s}, 0)
			p.now += 100_000
		}
		if len(p.b.sends) != 1 || p.b.sends[0].Status != want {
			t.Errorf("syndrome %#x: %+v after %d packets", s, p.b.sends, sent)
		}
	}
}

// TestRNR has the receive posted after some RNR NAKs, or never.
func TestRNR(t *testing.T) {
	for _, c := range []struct {
		retries uint8
		after   int // NAKs until the receive is posted
		want    Status
	}{{1, 1, Success}, {1, 2, RNRExceeded}, {3, 3, Success}, {3, 4, RNRExceeded}, {7, 20, Success}} {
		t.Run(fmt.Sprintf("%d retries, %d NAKs", c.retries, c.after), func(t *testing.T) {
			p := newPair(t, options{rnr: c.retries})
			p.a.qp.attr.Timeout = 0
			naks := 0
			p.b.record = func(pk roce.Packet, _ int) {
				if pk.Syndrome.IsRNR() {
					naks++
					if naks == c.after {
						p.b.receive(1, 0, 100)
					}
				}
			}
			p.a.fill(9)
			for i := range uint64(3) {
				p.a.post(p.a.request(i, OpSend, 5, 100, 0))
				if i < 2 && c.want == Success {
					p.b.rq.depth = 10
				}
			}
			p.until("the first completion", func() bool { return len(p.a.sends) > 0 })
			if p.a.sends[0].Status != c.want {
				t.Fatalf("%+v after %d NAKs", p.a.sends[0], naks)
			}
			if wait := time.Duration(p.now); c.want == Success && wait < time.Duration(c.after)*roce.RNRTimer(1) {
				t.Errorf("only %v have passed", wait)
			}
		})
	}
}

// TestNoRetriesOfRNR has RNRRetries 0: the first NAK ends it.
func TestNoRetriesOfRNR(t *testing.T) {
	p := newPair(t, options{noRNR: true})
	p.a.post(p.a.request(1, OpSend, 0, 8, 0))
	p.run()
	if len(p.a.sends) != 1 || p.a.sends[0].Status != RNRExceeded || p.a.qp.Counters().RNRNaks != 1 {
		t.Errorf("%+v", p.a.sends)
	}
}

// TestSequenceNakDuringWait has the NAK for a gap that some peers send behind an RNR NAK: it must not end the wait.
func TestSequenceNakDuringWait(t *testing.T) {
	p := newPair(t, options{psn: 100, retries: 1})
	p.b.post(p.b.request(1, OpSend, 0, 8, 0))
	p.answers()
	p.craft(roce.Packet{Opcode: roce.Acknowledge, PSN: 100, Syndrome: roce.RNR(14)}, 0)
	for range 3 {
		if _, sent := p.craft(roce.Packet{Opcode: roce.Acknowledge, PSN: 100, Syndrome: roce.NakSequence}, 0); sent != nil {
			t.Fatal("the wait was cut short")
		}
	}
	p.now = p.now.Add(roce.RNRTimer(14))
	if sent := p.answers(); len(sent) != 1 || p.b.qp.State() != ReadyToSend {
		t.Errorf("%v after the wait", sent)
	}
}

// TestCredits has a sender that is faster than its receiver. With credits a single packet asks for a receive, and the
// acknowledgement that a posted one causes lets the rest go; without, the whole window is sent in vain each time.
func TestCredits(t *testing.T) {
	for _, shared := range []bool{false, true} {
		p := newPair(t, options{shared: shared})
		post := func(id uint64) {
			if err := p.b.rq.Post(&RecvWR{ID: id, List: []SGE{p.b.sge(0, 600)}}); err != nil {
				t.Fatal(err)
			}
		}
		post(0)
		post(1)
		p.a.post(p.a.request(0, OpSend, 0, 600, 0)) // its acknowledgement brings the first credits
		p.run()
		for i := range uint64(20) {
			p.a.post(p.a.request(1+i, OpSend, 0, 600, 0))
		}
		for i := uint64(2); len(p.a.sends) < 21; i++ {
			done := len(p.b.recvs)
			p.until("a receive", func() bool { return len(p.b.recvs) > done })
			before := p.now
			p.until("the next microseconds", func() bool { return p.now > before+30_000 || len(p.a.sends) == 21 })
			if i <= 21 {
				post(i)
			}
		}
		c := p.a.qp.Counters()
		if few := c.Repeated <= 20; few == shared {
			t.Errorf("shared %v: %d packets were sent in vain", shared, c.Repeated)
		}
		if n := p.a.qp.req.limit; !shared && distance(21, n) != 0 {
			t.Errorf("the limit is message %d", n)
		}
	}
}

// TestReadsOutstanding bounds READs and atomics in flight on both sides.
func TestReadsOutstanding(t *testing.T) {
	for _, most := range []uint8{1, 2, 7} {
		p := newPair(t, options{reads: most})
		inFlight, highest := 0, 0
		p.a.record = func(roce.Packet, int) { inFlight++; highest = max(highest, inFlight) }
		p.b.record = func(roce.Packet, int) { inFlight-- }
		for i := range uint64(20) {
			op := []Op{OpRead, OpFetchAdd}[i%2]
			p.a.post(p.a.request(i, op, 0, 8, 0))
		}
		p.run()
		if highest != int(most) || len(p.a.sends) != 20 || p.a.qp.Counters().Repeated > 0 {
			t.Errorf("%d in flight, want %d", highest, most)
		}
	}
}

// TestWindow bounds packets in flight.
func TestWindow(t *testing.T) {
	for _, window := range []uint32{1, 8, 64} {
		p := newPair(t, options{window: window})
		p.a.post(p.a.request(1, OpWrite, 0, 60000, 0))
		for p.step() {
			if n := distance(p.a.qp.req.una, p.a.qp.req.sent); n > int32(window) {
				t.Fatalf("%d packets in flight", n)
			}
		}
		if len(p.a.sends) != 1 || p.a.qp.Counters().Timeouts > 0 {
			t.Errorf("window %d: %+v", window, p.a.qp.Counters())
		}
	}
}

// TestNoRoom has an output with room for one packet at a time, on both sides.
func TestNoRoom(t *testing.T) {
	p := newPair(t, options{imp: impairment{loss: 10}})
	p.b.fill(4)
	p.a.post(p.a.request(1, OpRead, 0, 20000, 30000))
	w := p.a.request(2, OpWrite, 0, 20000, 0)
	w.Flags |= Fence
	p.a.post(w)
	for len(p.a.sends) < 2 {
		p.a.room, p.b.room = 1, 1
		p.now += 1000
		if !p.step() {
			t.Fatal("nothing moves")
		}
	}
	for i := range 20000 {
		if p.a.mem[i] != p.b.mem[i] || p.a.mem[i] != p.b.mem[30000+i] {
			t.Fatalf("byte %d differs", i)
		}
	}
}
