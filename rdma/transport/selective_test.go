package transport

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/rdma/roce"
)

// TestOneLostPacketIsRepeatedAlone loses packets of a WRITE: with selective repeat these are sent again and no others, without a
// timeout but for the last.
func TestOneLostPacketIsRepeatedAlone(t *testing.T) {
	for _, lost := range [][]uint32{{0}, {5}, {3, 4, 9}, {16, 17, 18, 19}} {
		p := newPair(t, options{psn: 0xfffff8, selective: true})
		p.a.fill(1)
		gone := map[uint32]bool{}
		for _, n := range lost {
			gone[add(0xfffff8, n)] = true
		}
		var repeated []uint32
		seen := map[uint32]bool{}
		p.a.lose = func(pk *roce.Packet) bool {
			if seen[pk.PSN] {
				repeated = append(repeated, uint32(distance(0xfffff8, pk.PSN)))
			}
			seen[pk.PSN] = true
			lose := gone[pk.PSN]
			delete(gone, pk.PSN)
			return lose
		}
		p.a.post(p.a.request(1, OpWrite, 0, 20*256, 0))
		p.run()
		if diff := cmp.Diff(lost, repeated); diff != "" || !bytes.Equal(p.a.mem[:20*256], p.b.mem[:20*256]) {
			t.Errorf("lost %v: %s", lost, diff)
		}
		if c := p.a.qp.Counters(); (c.Timeouts > 0) != (lost[0] == 16) || c.Repeated != uint64(len(lost)) || len(p.a.sends) != 1 {
			t.Errorf("lost %v: %+v", lost, c)
		}
	}
}

// TestARepetitionThatIsLost loses a packet twice: packets that were sent after its repetition show it.
func TestARepetitionThatIsLost(t *testing.T) {
	p := newPair(t, options{selective: true, window: 16})
	times := 0
	p.a.lose = func(pk *roce.Packet) bool {
		if pk.PSN != 2 {
			return false
		}
		times++
		return times <= 2
	}
	p.a.post(p.a.request(1, OpWrite, 0, 200*256, 0))
	p.run()
	if c := p.a.qp.Counters(); len(p.a.sends) != 1 || times != 3 || c.Timeouts > 0 {
		t.Errorf("sent %d times: %+v", times, c)
	}
}

// TestHeldPackets gives packets out of order, twice, and beyond the window.
func TestHeldPackets(t *testing.T) {
	p := newPair(t, options{psn: 100, selective: true, window: 8})
	write := func(psn uint32) roce.Packet {
		return roce.Packet{Opcode: roce.WriteOnly, PSN: psn, VA: vaBase + uint64(psn-100)*8, RKey: p.b.key, Length: 8, Flags: roce.AckReq}
	}
	nak := func(sack uint32) []reply { return []reply{{roce.Acknowledge, roce.NakSequence, 100, sack}} }
	for i, c := range []struct {
		psn  uint32
		why  Reason
		want []reply
	}{
		{103, Taken, nak(103)},
		{101, Taken, nak(101)},
		{103, Duplicate, nil},
		{107, Taken, nak(107)},
		{108, OutOfSequence, nil},
		{100, Taken, []reply{{roce.Acknowledge, 0, 101, 2}}},
		{102, Taken, []reply{{roce.Acknowledge, 0, 103, 4}}},
		{103, Duplicate, []reply{{roce.Acknowledge, 0, 103, 4}}},
		{108, Taken, []reply{{roce.Acknowledge, roce.NakSequence, 104, 108}}},
	} {
		if why, got := p.craft(write(c.psn), 8); why != c.why || cmp.Diff(c.want, got) != "" {
			t.Errorf("step %d: %v, %v; want %v, %v", i, why, got, c.why, c.want)
		}
	}
}

// TestPlacesOfHeldPacketsAreUsedAgain has a packet that was held and could not be executed come once more, and then another with
// the same place.
func TestPlacesOfHeldPacketsAreUsedAgain(t *testing.T) {
	p := newPair(t, options{psn: 100, selective: true, window: 8})
	give := func(op roce.Opcode, psn uint32, want Reason) {
		t.Helper()
		if why, _ := p.craft(roce.Packet{Opcode: op, PSN: psn}, 0); why != want {
			t.Fatalf("packet %d: %v, want %v", psn, why, want)
		}
	}
	give(roce.SendOnly, 101, Taken)
	give(roce.WriteOnly, 100, Taken) // 101 is executed, and has no receive
	p.b.receive(1, 0, 8)
	give(roce.SendOnly, 101, Taken)
	give(roce.WriteOnly, 109, Taken)
	for psn := uint32(102); psn <= 108; psn++ {
		give(roce.WriteOnly, psn, Taken)
	}
	if p.b.qp.resp.psn != 110 || len(p.b.recvs) != 1 {
		t.Errorf("the next packet is %d; %+v", p.b.qp.resp.psn, p.b.recvs)
	}
}

// TestForgedSelectiveNaks has numbers that are not in flight.
func TestForgedSelectiveNaks(t *testing.T) {
	for _, msn := range []uint32{99, 100, 103, 104, 1 << 23} {
		p := newPair(t, options{psn: 100, selective: true})
		p.b.post(p.b.request(1, OpWrite, 0, 700, 0))
		p.answers()
		if why, sent := p.craft(roce.Packet{Opcode: roce.Acknowledge, PSN: 100, Syndrome: roce.NakSequence, MSN: msn}, 0); why != GhostAck || sent != nil {
			t.Errorf("number %d: %v, %v", msn, why, sent)
		}
	}
}

// longLink returns how long 8 MiB take on a link of 10 Gb/s with a round trip of 1 ms that loses packets.
func longLink(t *testing.T, selective bool, loss float64) time.Duration {
	const size = 8 << 20
	p := newPair(t, options{mtu: 1024, memory: 2 * size, window: 2048, depth: 1024, selective: selective, timeout: 4, line: 0, seed: 3})
	r := rand.New(rand.NewPCG(6, 6))
	var busy clock.Time
	p.a.route = func(frame []byte) (clock.Time, bool) {
		busy = max(busy, p.now).Add(time.Duration(float64(len(frame)) * 0.8))
		return busy.Add(500 * time.Microsecond), r.Float64() >= loss
	}
	p.b.route = func([]byte) (clock.Time, bool) { return p.now.Add(500 * time.Microsecond), r.Float64() >= loss }
	p.a.fill(1)
	for at := uint32(0); at < size; at += 1 << 16 {
		p.a.post(p.a.request(uint64(at), OpWrite, at, 1<<16, at))
	}
	p.until("all completions", func() bool { return len(p.a.sends) == size>>16 })
	if !bytes.Equal(p.a.mem[:size], p.b.mem[:size]) || p.a.qp.State() != ReadyToSend {
		t.Errorf("selective %v: the bytes differ, state %v", selective, p.a.qp.State())
	}
	c := p.a.qp.Counters()
	t.Logf("selective %v, loss %.1f %%: %v, %.2f Gb/s, sent %d, repeated %d, timeouts %d", selective, loss*100, time.Duration(p.now), size*8/float64(p.now), c.Sent, c.Repeated, c.Timeouts)
	return time.Duration(p.now)
}

// TestSelectiveRepeatIsFasterThanGoBackN compares both on a link of 10 Gb/s, 1 ms round trip and 1 % loss: five times as fast at
// least, and both the same without loss.
func TestSelectiveRepeatIsFasterThanGoBackN(t *testing.T) {
	if a, b := longLink(t, false, 0), longLink(t, true, 0); a != b {
		t.Errorf("without loss: %v and %v", a, b)
	}
	if a, b := longLink(t, false, 0.01), longLink(t, true, 0.01); a < 5*b {
		t.Errorf("go-back-N takes %v, selective repeat %v", a, b)
	}
}
