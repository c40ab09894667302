package transport

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/rdma/memory"
	"github.com/millrace/millrace/rdma/roce"
)

// sizes of messages around the MTU of 256.
var sizes = []uint32{0, 1, 3, 255, 256, 257, 511, 512, 513, 5000}

// TestOperations runs every operation of RC, with sequence numbers that wrap.
func TestOperations(t *testing.T) {
	for _, psn := range []uint32{0, 0xfffff0} {
		for _, n := range sizes {
			t.Run(fmt.Sprintf("psn %#x, %d bytes", psn, n), func(t *testing.T) { operations(t, psn, n) })
		}
	}
}

func operations(t *testing.T, psn, n uint32) {
	p := newPair(t, options{psn: psn})
	p.a.fill(1)
	p.b.fill(2)
	const far = 30000
	before := bytes.Clone(p.b.mem)
	for i := range uint64(3) {
		p.b.receive(i, far+uint32(i)*6000, 6000)
	}
	p.b.receive(3, 0, 0)
	spare, err := p.b.tab.Register(1, make([]byte, 8), 0, everything)
	if err != nil {
		t.Fatal(err)
	}
	imm, inv := p.a.request(11, OpSendImm, 7, n, 0), p.a.request(12, OpSendInv, 7, n, 0)
	imm.Imm, inv.InvKey = 0xcafe, spare
	imm.Flags |= Solicited
	writeImm := p.a.request(14, OpWriteImm, 11, n, 8192)
	writeImm.Imm = 0xbeef
	for _, w := range []SendWR{p.a.request(10, OpSend, 7, n, 0), imm, inv, p.a.request(13, OpWrite, 9, n, 77), writeImm, p.a.request(15, OpRead, 40000, n, 555)} {
		p.a.post(w)
	}
	p.run()
	wantSends := []Completion{
		{ID: 10, Op: OpSend},
		{ID: 11, Op: OpSendImm},
		{ID: 12, Op: OpSendInv},
		{ID: 13, Op: OpWrite},
		{ID: 14, Op: OpWriteImm},
		{ID: 15, Op: OpRead, Bytes: n},
	}
	for i := range wantSends {
		wantSends[i].QPN = p.a.qp.QPN()
	}
	if diff := cmp.Diff(wantSends, p.a.sends); diff != "" {
		t.Error(diff)
	}
	q := p.b.qp.QPN()
	wantRecvs := []Completion{
		{ID: 0, Op: OpRecv, Bytes: n, QPN: q},
		{ID: 1, Op: OpRecv, Bytes: n, QPN: q, Flags: WithImm | SolicitsEvent, Imm: 0xcafe},
		{ID: 2, Op: OpRecv, Bytes: n, QPN: q, Flags: WithInv, InvKey: spare},
		{ID: 3, Op: OpRecvImm, Bytes: n, QPN: q, Flags: WithImm, Imm: 0xbeef},
	}
	if diff := cmp.Diff(wantRecvs, p.b.recvs); diff != "" {
		t.Error(diff)
	}
	want := bytes.Clone(before)
	for i := range 3 {
		copy(want[far+i*6000:], p.a.mem[7:7+n])
	}
	copy(want[77:], p.a.mem[9:9+n])
	copy(want[8192:], p.a.mem[11:11+n])
	if !bytes.Equal(p.b.mem, want) {
		t.Error("the memory of the responder differs")
	}
	if !bytes.Equal(p.a.mem[40000:40000+n], want[555:555+n]) {
		t.Error("READ brought other bytes")
	}
	if p.b.tab.Slice(memory.Accessor{PD: 1}, spare, 0, 1, everything) != nil {
		t.Error("the key was not invalidated")
	}
	if c := p.a.qp.Counters(); c.Repeated+c.Timeouts+c.SequenceNaks+c.ImpliedNaks > 0 || p.a.qp.State() != ReadyToSend {
		t.Errorf("packets were repeated on a link without loss: %+v", c)
	}
}

func TestAtomics(t *testing.T) {
	p := newPair(t, options{psn: 0xfffffe})
	binary.NativeEndian.PutUint64(p.b.mem[64:], 40)
	steps := []struct {
		op            Op
		compare, swap uint64
		old, now      uint64
	}{
		{OpFetchAdd, 0, 2, 40, 42},
		{OpFetchAdd, 0, ^uint64(0), 42, 41},
		{OpCompareSwap, 41, 7, 41, 7},
		{OpCompareSwap, 41, 9, 7, 7},
		{OpFetchAdd, 0, 0, 7, 7},
	}
	for i, s := range steps {
		w := p.a.request(uint64(i), s.op, uint32(8*i), 8, 64)
		w.Compare, w.Swap = s.compare, s.swap
		p.a.post(w)
		p.run()
		if got, now := binary.NativeEndian.Uint64(p.a.mem[8*i:]), binary.NativeEndian.Uint64(p.b.mem[64:]); got != s.old || now != s.now {
			t.Errorf("step %d: returned %d and left %d, want %d and %d", i, got, now, s.old, s.now)
		}
	}
	if len(p.a.sends) != len(steps) || p.a.sends[4].Bytes != 8 {
		t.Errorf("%+v", p.a.sends)
	}
}

// TestInlineAndLists sends from copies and from lists with many elements, empty ones among them, into such a list.
func TestInlineAndLists(t *testing.T) {
	p := newPair(t, options{})
	p.a.fill(3)
	text := []byte("inline data")
	p.b.receive(1, 100, 50)
	if err := p.b.qp.PostRecv(&RecvWR{ID: 2, List: []SGE{p.b.sge(1000, 7), p.b.sge(0, 0), p.b.sge(2000, 300), p.b.sge(3000, 1000)}}); err != nil {
		t.Fatal(err)
	}
	p.a.post(SendWR{ID: 1, Op: OpSend, Flags: Inline, Inlined: text})
	text[0] = 'X' // is the caller's again
	w := SendWR{ID: 2, Op: OpSend, Flags: Signaled, List: []SGE{p.a.sge(5, 0), p.a.sge(10, 200), p.a.sge(700, 1), p.a.sge(800, 600)}}
	p.a.post(w)
	p.run()
	if got := string(p.b.mem[100:111]); got != "inline data" {
		t.Errorf("inline: %q", got)
	}
	sent := append(append(bytes.Clone(p.a.mem[10:210]), p.a.mem[700]), p.a.mem[800:1400]...)
	got := append(append(bytes.Clone(p.b.mem[1000:1007]), p.b.mem[2000:2300]...), p.b.mem[3000:3494]...)
	if !bytes.Equal(got, sent) {
		t.Error("the lists differ")
	}
	if len(p.a.sends) != 1 || p.a.sends[0].ID != 2 || len(p.b.recvs) != 2 || p.b.recvs[1].Bytes != 801 {
		t.Errorf("%+v %+v", p.a.sends, p.b.recvs)
	}
}

// TestFence has a WRITE with the flag wait for the READ before it.
func TestFence(t *testing.T) {
	for _, fence := range []SendFlags{0, Fence} {
		p := newPair(t, options{})
		var order []roce.Kind
		p.a.record = func(pk roce.Packet, _ int) { order = append(order, pk.Opcode.Kind()) }
		p.b.record = func(pk roce.Packet, _ int) { order = append(order, pk.Opcode.Kind()) }
		p.a.post(p.a.request(1, OpRead, 0, 8, 0))
		w := p.a.request(2, OpWrite, 0, 8, 0)
		w.Flags |= fence
		p.a.post(w)
		p.run()
		want := []roce.Kind{roce.KindRead, roce.KindReadResponse, roce.KindWrite, roce.KindAck}
		if fence == 0 {
			want[1], want[2] = want[2], want[1]
		}
		if diff := cmp.Diff(want, order); diff != "" {
			t.Errorf("fence %v: %s", fence != 0, diff)
		}
	}
}
