package transport

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/rdma/memory"
	"github.com/millrace/millrace/rdma/roce"
)

// TestUnreliableConnection sends over UC: complete messages arrive, those with a gap are dropped, and their receive serves the next.
func TestUnreliableConnection(t *testing.T) {
	p := newPair(t, options{service: roce.UC, psn: 0xfffffe})
	p.a.fill(1)
	for i := range uint64(3) {
		p.b.receive(i, uint32(i)*1000, 700)
	}
	lost := map[uint32]bool{1: true, 5: true} // of the second SEND, and of the first WRITE
	p.a.lose = func(pk *roce.Packet) bool { return lost[pk.PSN] }
	p.a.post(p.a.request(0, OpSend, 0, 300, 0))       // fffffe, ffffff
	p.a.post(p.a.request(1, OpSend, 100, 700, 0))     // 0, 1, 2
	p.a.post(p.a.request(2, OpWrite, 200, 700, 5000)) // 3, 4, 5
	p.a.post(p.a.request(3, OpWrite, 300, 256, 7000)) // 6
	imm := p.a.request(4, OpSendImm, 400, 512, 0)     // 7, 8
	imm.Imm = 9
	p.a.post(imm)
	w := p.a.request(5, OpWriteImm, 500, 30, 8000) // 9
	w.Imm = 10
	p.a.post(w)
	p.run()
	if len(p.a.sends) != 6 || p.a.sends[5].Status != Success {
		t.Errorf("%+v", p.a.sends)
	}
	q := p.b.qp.QPN()
	want := []Completion{
		{ID: 0, Op: OpRecv, Bytes: 300, QPN: q},
		{ID: 1, Op: OpRecv, Bytes: 512, Flags: WithImm, Imm: 9, QPN: q},
		{ID: 2, Op: OpRecvImm, Bytes: 30, Flags: WithImm, Imm: 10, QPN: q},
	}
	if diff := cmp.Diff(want, p.b.recvs); diff != "" {
		t.Error(diff)
	}
	for _, c := range [][3]int{{0, 0, 300}, {1000, 400, 512}, {7000, 300, 256}, {8000, 500, 30}} {
		if !bytes.Equal(p.b.mem[c[0]:c[0]+c[2]], p.a.mem[c[1]:c[1]+c[2]]) {
			t.Errorf("the bytes at %d differ", c[0])
		}
	}
	if p.b.qp.Counters().Sent != 0 || p.b.drops[OutOfSequence] != 1 {
		t.Errorf("%+v %v", p.b.qp.Counters(), p.b.drops)
	}
}

// TestUnreliableConnectionSurvives has wrong requests dropped without an answer: the queue pair goes on.
func TestUnreliableConnectionSurvives(t *testing.T) {
	p := newPair(t, options{service: roce.UC})
	psn := uint32(0)
	for _, c := range []struct {
		pk      roce.Packet
		payload int
		why     Reason
	}{
		{roce.Packet{Opcode: roce.SendOnly}, 8, NoReceive},
		{roce.Packet{Opcode: roce.SendFirst}, 8, InvalidRequest},
		{roce.Packet{Opcode: roce.SendLast}, 8, OutOfSequence},
		{roce.Packet{Opcode: roce.WriteOnly, VA: 1, Length: 8, RKey: p.b.key}, 8, NoAccess},
		{roce.Packet{Opcode: roce.WriteOnly, VA: vaBase, Length: 9, RKey: p.b.key}, 8, InvalidRequest},
		{roce.Packet{Opcode: roce.WriteOnly, VA: vaBase, Length: 8, RKey: p.b.key}, 8, Taken},
	} {
		c.pk.Opcode = c.pk.Opcode.Of(roce.UC)
		c.pk.PSN = psn
		psn++
		if why, got := p.craft(c.pk, c.payload); why != c.why || got != nil || p.b.qp.State() != ReadyToSend {
			t.Errorf("%v: %v, want %v; %v, %v", c.pk.Opcode, why, c.why, got, p.b.qp.State())
		}
	}
	p.b.receive(1, 0, 4)
	if why, _ := p.craft(roce.Packet{Opcode: roce.SendOnly.Of(roce.UC), PSN: psn}, 8); why != InvalidRequest || len(p.b.recvs) != 0 {
		t.Errorf("message beyond the receive: %v, %+v", why, p.b.recvs)
	}
	if why, _ := p.craft(roce.Packet{Opcode: roce.SendOnly.Of(roce.UC), PSN: psn + 1}, 4); why != Taken || len(p.b.recvs) != 1 {
		t.Errorf("the receive is lost: %v, %+v", why, p.b.recvs)
	}
}

// TestGuessesOfKeysAreBounded has a peer of UC try keys.
func TestGuessesOfKeysAreBounded(t *testing.T) {
	p := newPair(t, options{service: roce.UC})
	tried := uint32(0)
	for ; p.b.qp.State() == ReadyToSend && tried < 1000; tried++ {
		why, _ := p.craft(roce.Packet{Opcode: roce.WriteOnly.Of(roce.UC), PSN: tried, VA: vaBase, Length: 8, RKey: p.b.key + 1 + tried}, 8)
		if why != NoAccess {
			t.Fatal(why)
		}
	}
	if tried != mostGuesses || p.b.qp.State() != Error {
		t.Errorf("%d attempts, then %v", tried, p.b.qp.State())
	}
}

// TestDatagrams sends over UD, also to a queue pair that has no receive, one that is too short, and another queue key.
func TestDatagrams(t *testing.T) {
	p := newPair(t, options{service: roce.UD})
	p.a.fill(5)
	send := func(id uint64, n, qkey uint32) {
		w := p.a.request(id, OpSendImm, 10, n, 0)
		w.DestQP, w.QKey, w.Imm = p.b.qp.QPN(), qkey, 77
		w.Flags |= Solicited
		p.a.post(w)
		p.run()
	}
	send(0, 8, 0x1234)
	p.b.receive(7, 100, 40+256)
	send(1, 100, 0x4321)
	send(2, 256, 0x1234)
	p.b.receive(8, 1000, 40+99)
	send(3, 100, 0x1234)
	send(4, 99, 0x1234)
	if len(p.a.sends) != 5 {
		t.Errorf("%+v", p.a.sends)
	}
	want := []Completion{
		{ID: 7, Op: OpRecv, Flags: WithGRH | WithImm | SolicitsEvent, Bytes: 296, QPN: p.b.qp.QPN(), SrcQP: p.a.qp.QPN(), Imm: 77},
		{ID: 8, Op: OpRecv, Flags: WithGRH | WithImm | SolicitsEvent, Bytes: 139, QPN: p.b.qp.QPN(), SrcQP: p.a.qp.QPN(), Imm: 77},
	}
	if diff := cmp.Diff(want, p.b.recvs); diff != "" {
		t.Error(diff)
	}
	if p.b.drops != [Reasons]int{Taken: 2, NoReceive: 1, WrongQKey: 1, TooLong: 1} {
		t.Errorf("%v", p.b.drops)
	}
	if b := p.b.mem[100:]; b[20] != 0x45 || !bytes.Equal(b[32:36], []byte{198, 18, 0, 1}) || !bytes.Equal(b[40:296], p.a.mem[10:266]) {
		t.Errorf("the buffer is % x", b[:48])
	}
}

// TestSharedReceives has two queue pairs use one queue, whose limit event happens once.
func TestSharedReceives(t *testing.T) {
	tab := memory.NewTable(func() uint32 { return 1 })
	mem := make([]byte, 1024)
	key, err := tab.Register(1, mem, 0, everything)
	if err != nil {
		t.Fatal(err)
	}
	events := 0
	srq := NewRecvQueue(8, true, func() { events++ })
	for i := range uint64(4) {
		if err := srq.Post(&RecvWR{ID: i, List: []SGE{{Addr: i * 100, Length: 100, LKey: key}}}); err != nil {
			t.Fatal(err)
		}
	}
	srq.SetLimit(3)
	var got []Completion
	var qps []*QP
	for i := range uint32(2) {
		q, err := New(Config{Service: roce.RC, QPN: 50 + i, PD: 1, Memory: tab, SendDepth: 1, Recv: srq, RecvDone: func(c Completion) { got = append(got, c) }})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []State{Init, ReadyToReceive} {
			if err := q.Modify(s, goodAttr, [16]byte{}); err != nil {
				t.Fatal(err)
			}
		}
		qps = append(qps, q)
	}
	for i := range uint32(4) {
		f := roce.Frame{Packet: roce.Packet{Opcode: roce.SendOnly, PKey: 0xffff, PSN: i / 2, Payload: []byte{byte(i)}}}
		if why := qps[i%2].Input(0, &f); why != Taken {
			t.Fatal(why)
		}
		if want := b2i(i >= 1); events != want {
			t.Errorf("%d limit events after %d receives", events, i+1)
		}
	}
	for i, c := range got {
		if c.ID != uint64(i) || c.QPN != 50+uint32(i)%2 || mem[i*100] != byte(i) {
			t.Errorf("%+v", c)
		}
	}
	if err := qps[0].PostRecv(&RecvWR{}); err == nil {
		t.Error("a receive was posted to a queue pair with a shared queue")
	}
	qps[0].setState(Error)
	srq.SetLimit(1)
	if len(got) != 4 || events != 2 {
		t.Errorf("%d completions, %d events", len(got), events)
	}
}
