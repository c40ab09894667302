package transport

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/rdma/roce"
	"github.com/millrace/millrace/wire"
)

// reply is an answer of the side under test.
type reply struct {
	Op       roce.Opcode
	Syndrome roce.Syndrome
	PSN, MSN uint32
}

// craft gives b a packet that a never sent, and returns the reason and the answers.
func (p *pair) craft(pk roce.Packet, payload int) (Reason, []reply) {
	return p.craftFrom(p.a.addr, pk, payload)
}

func (p *pair) craftFrom(src wire.Addr, pk roce.Packet, payload int) (Reason, []reply) {
	p.t.Helper()
	if pk.PKey == 0 {
		pk.PKey = defaultPKey
	}
	pk.DestQP = p.b.qp.QPN()
	env := roce.Envelope{Src: src, Dst: p.b.addr, SrcPort: 50000, TTL: 64}
	frame := make([]byte, roce.Overhead+payload)
	frame = frame[:roce.Build(frame, &env, &pk, make([]byte, payload))]
	var f roce.Frame
	if why := f.Parse(frame); why != roce.Accepted {
		p.t.Fatalf("%v: %v", pk.Opcode, why)
	}
	why := p.b.qp.Input(p.now, &f)
	return why, p.answers()
}

// answers returns what b sends now.
func (p *pair) answers() (list []reply) {
	p.b.qp.Poll(p.now, func(_ uint32, a *roce.Packet, _ [][]byte) bool {
		list = append(list, reply{a.Opcode, a.Syndrome, a.PSN, a.MSN})
		return true
	})
	return list
}

// TestAnswersOfRxe sends what was sent to Linux's rdma_rxe (6.1), and compares with its answers. Two differ: own receive queues announce
// credits, which rxe has not, and behind an RNR NAK later packets are dropped in silence (9.7.5.1.1), where rxe
// sends a NAK for a gap that is none.
func TestAnswersOfRxe(t *testing.T) {
	const ack = roce.Acknowledge
	send := func(psn uint32) roce.Packet { return roce.Packet{Opcode: roce.SendOnly, PSN: psn, Flags: roce.AckReq} }
	for _, c := range []struct {
		name   string
		recvs  int
		shared bool
		steps  []roce.Packet
		want   [][]reply
		why    []Reason
	}{
		{
			"packet ahead: one NAK with the expected number", 4, true,
			[]roce.Packet{send(103), send(105), send(100), send(103)},
			[][]reply{{{ack, 0x60, 100, 0}}, nil, {{ack, 0x1f, 100, 1}}, {{ack, 0x60, 101, 1}}},
			[]Reason{OutOfSequence, OutOfSequence, Taken, OutOfSequence},
		},
		{"congestion notification: silence", 4, true, []roce.Packet{{Opcode: roce.CNP}}, [][]reply{nil}, []Reason{OtherOpcode}},
		{
			"in order: acknowledged, MSN counts", 4, true,
			[]roce.Packet{send(100), send(101)},
			[][]reply{{{ack, 0x1f, 100, 1}}, {{ack, 0x1f, 101, 2}}},
			[]Reason{Taken, Taken},
		},
		{
			"own queue: credits", 4, false,
			[]roce.Packet{send(100), send(101), send(102), send(103)},
			[][]reply{{{ack, 3, 100, 1}}, {{ack, 2, 101, 2}}, {{ack, 1, 102, 3}}, {{ack, 0, 103, 4}}},
			[]Reason{Taken, Taken, Taken, Taken},
		},
		{
			"duplicate: the same acknowledgement again", 4, true,
			[]roce.Packet{send(100), send(100), send(100)},
			[][]reply{{{ack, 0x1f, 100, 1}}, {{ack, 0x1f, 100, 1}}, {{ack, 0x1f, 100, 1}}},
			[]Reason{Taken, Duplicate, Duplicate},
		},
		{
			"old duplicate: the latest acknowledgement", 4, true,
			[]roce.Packet{send(100), send(101), send(100)},
			[][]reply{{{ack, 0x1f, 100, 1}}, {{ack, 0x1f, 101, 2}}, {{ack, 0x1f, 101, 2}}},
			[]Reason{Taken, Taken, Duplicate},
		},
		{
			"no receive: RNR NAK with the timer, once", 0, true,
			[]roce.Packet{send(100), send(101)},
			[][]reply{{{ack, 0x2c, 100, 0}}, nil},
			[]Reason{NoReceive, OutOfSequence},
		},
		{
			"without the bit no acknowledgement", 4, true,
			[]roce.Packet{{Opcode: roce.SendOnly, PSN: 100}, send(101)},
			[][]reply{nil, {{ack, 0x1f, 101, 2}}},
			[]Reason{Taken, Taken},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, options{psn: 100, shared: c.shared})
			p.b.qp.attr.RNRTimer = 12
			for i := range c.recvs {
				if err := p.b.rq.Post(&RecvWR{ID: uint64(i), List: []SGE{p.b.sge(0, 64)}}); err != nil {
					t.Fatal(err)
				}
			}
			for i, s := range c.steps {
				why, got := p.craft(s, 0)
				if diff := cmp.Diff(c.want[i], got); diff != "" || why != c.why[i] {
					t.Errorf("step %d: %v, want %v; %s", i, why, c.why[i], diff)
				}
			}
		})
	}
}

// TestGoBackN withholds acknowledgements: after the time everything from the first packet on is sent again, as rxe does.
func TestGoBackN(t *testing.T) {
	p := newPair(t, options{psn: 0xfffffe})
	p.b.lose = func(*roce.Packet) bool { return p.now < 100_000 }
	var sent []uint32
	p.a.record = func(pk roce.Packet, _ int) { sent = append(sent, pk.PSN) }
	p.a.post(p.a.request(1, OpWrite, 0, 1000, 0))
	p.run()
	want := []uint32{0xfffffe, 0xffffff, 0, 1, 0xfffffe, 0xffffff, 0, 1}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Error(diff)
	}
	if p.now < 262144 || len(p.a.sends) != 1 || p.a.sends[0].Status != Success {
		t.Errorf("at %d: %+v", p.now, p.a.sends)
	}
}

// TestAcknowledgementsAreCoalesced has several packets arrive before an answer leaves.
func TestAcknowledgementsAreCoalesced(t *testing.T) {
	p := newPair(t, options{psn: 100})
	for i := range uint32(5) {
		pk := roce.Packet{Opcode: roce.WriteOnly, PSN: 100 + i, PKey: defaultPKey, DestQP: p.b.qp.QPN(), Flags: roce.AckReq, VA: vaBase, RKey: p.b.key, Length: 0}
		f := roce.Frame{Packet: pk}
		f.Src = p.a.addr
		if why := p.b.qp.Input(p.now, &f); why != Taken {
			t.Fatal(why)
		}
	}
	if diff := cmp.Diff([]reply{{roce.Acknowledge, 0, 104, 5}}, p.answers()); diff != "" {
		t.Error(diff)
	}
}
