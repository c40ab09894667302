package transport

import (
	"bytes"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/rdma/memory"
	"github.com/millrace/millrace/rdma/roce"
	"github.com/millrace/millrace/wire"
)

// TestWrongRequests has each wrong request get its NAK, or silence, with the exact reason. A NAK ends the queue pair, and
// flushes it; the memory stays as it was.
func TestWrongRequests(t *testing.T) {
	const (
		inv  = roce.NakInvalidRequest
		acc  = roce.NakRemoteAccess
		none = roce.Syndrome(0)
	)
	type step struct {
		pk      roce.Packet
		payload int
	}
	write := func(op roce.Opcode, psn uint32, va uint64, length uint32) roce.Packet {
		return roce.Packet{Opcode: op, PSN: psn, VA: va, Length: length, RKey: 1}
	}
	one := func(pk roce.Packet, payload int) []step { return []step{{pk, payload}} }
	for _, c := range []struct {
		name  string
		steps []step
		why   Reason // of the last
		nak   roce.Syndrome
	}{
		{"middle without a first", one(roce.Packet{Opcode: roce.SendMiddle, PSN: 100}, 256), InvalidRequest, inv},
		{"last without a first", one(roce.Packet{Opcode: roce.WriteLast, PSN: 100}, 8), InvalidRequest, inv},
		{"first in a message", []step{{roce.Packet{Opcode: roce.SendFirst, PSN: 100}, 256}, {roce.Packet{Opcode: roce.SendFirst, PSN: 101}, 256}}, InvalidRequest, inv},
		{"SEND in a WRITE", []step{{write(roce.WriteFirst, 100, vaBase, 512), 256}, {roce.Packet{Opcode: roce.SendLast, PSN: 101}, 256}}, InvalidRequest, inv},
		{"READ in a SEND", []step{{roce.Packet{Opcode: roce.SendFirst, PSN: 100}, 256}, {write(roce.ReadRequest, 101, vaBase, 8), 0}}, InvalidRequest, inv},
		{"atomic in a WRITE", []step{{write(roce.WriteFirst, 100, vaBase, 512), 256}, {write(roce.FetchAdd, 101, vaBase, 0), 0}}, InvalidRequest, inv},
		{"first of less than the MTU", one(roce.Packet{Opcode: roce.SendFirst, PSN: 100}, 255), InvalidRequest, inv},
		{"only of more than the MTU", one(roce.Packet{Opcode: roce.SendOnly, PSN: 100}, 257), InvalidRequest, inv},
		{"empty last", []step{{roce.Packet{Opcode: roce.SendFirst, PSN: 100}, 256}, {roce.Packet{Opcode: roce.SendLast, PSN: 101}, 0}}, InvalidRequest, inv},
		{"more than the receive", []step{{roce.Packet{Opcode: roce.SendFirst, PSN: 100}, 256}, {roce.Packet{Opcode: roce.SendLast, PSN: 101}, 256}}, InvalidRequest, inv},
		{"WRITE of less than it declares", one(write(roce.WriteOnly, 100, vaBase, 9), 8), InvalidRequest, inv},
		{"WRITE of more than it declares", one(write(roce.WriteOnly, 100, vaBase, 7), 8), InvalidRequest, inv},
		{"first WRITE packet with all bytes", one(write(roce.WriteFirst, 100, vaBase, 255), 256), InvalidRequest, inv},
		{"last WRITE packet too early", []step{{write(roce.WriteFirst, 100, vaBase, 600), 256}, {roce.Packet{Opcode: roce.WriteLast, PSN: 101}, 256}}, InvalidRequest, inv},
		{"WRITE of more than 2 GiB", one(write(roce.WriteFirst, 100, vaBase, 1<<31+1), 256), InvalidRequest, inv},
		{"READ of more than 2 GiB", one(write(roce.ReadRequest, 100, vaBase, 1<<31+1), 0), InvalidRequest, inv},
		{"WRITE below the region", one(write(roce.WriteOnly, 100, vaBase-1, 8), 8), NoAccess, acc},
		{"WRITE over the end", one(write(roce.WriteOnly, 100, vaBase+1<<16-7, 8), 8), NoAccess, acc},
		{"WRITE whose end wraps", one(write(roce.WriteOnly, 100, math.MaxUint64-3, 8), 8), NoAccess, acc},
		{"WRITE that goes beyond later", one(write(roce.WriteFirst, 100, vaBase+1<<16-256, 257), 256), NoAccess, acc},
		{"READ beyond the region", one(write(roce.ReadRequest, 100, vaBase+1<<16-8, 9), 0), NoAccess, acc},
		{"READ of all addresses", one(write(roce.ReadRequest, 100, vaBase, 1<<31), 0), NoAccess, acc},
		{"atomic at an odd address", one(write(roce.FetchAdd, 100, vaBase+4, 0), 0), InvalidRequest, inv},
		{"atomic behind the region", one(write(roce.CompareSwap, 100, vaBase+1<<16, 0), 0), NoAccess, acc},
		{"invalidation of a key that is not", one(roce.Packet{Opcode: roce.SendOnlyInv, PSN: 100, InvKey: 77}, 8), NoAccess, acc},
		{"far ahead", one(roce.Packet{Opcode: roce.SendOnly, PSN: 100 + 1<<23 - 1}, 8), OutOfSequence, roce.NakSequence},
		{"far behind", one(roce.Packet{Opcode: roce.SendOnly, PSN: (100 - 1<<23) & roce.Mask24}, 8), Duplicate, 1},
		{"READ that was never made, behind", one(write(roce.ReadRequest, 90, vaBase, 8), 0), Duplicate, none},
		{"another service", one(roce.Packet{Opcode: roce.SendOnly.Of(roce.UC), PSN: 100}, 8), WrongService, none},
		{"another partition", one(roce.Packet{Opcode: roce.SendOnly, PSN: 100, PKey: 0x8001}, 8), WrongPKey, none},
		{"acknowledgement of nothing", one(roce.Packet{Opcode: roce.Acknowledge, PSN: 100, Syndrome: roce.UnlimitedCredits}, 0), GhostAck, none},
		{"NAK of nothing", one(roce.Packet{Opcode: roce.Acknowledge, PSN: 105, Syndrome: roce.NakRemoteAccess}, 0), GhostAck, none},
		{"response to nothing", one(roce.Packet{Opcode: roce.ReadOnly, PSN: 100}, 8), GhostAck, none},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, options{psn: 100})
			p.b.fill(7)
			p.b.receive(1, 0, 300)
			before := bytes.Clone(p.b.mem)
			var why Reason
			var got []reply
			for _, s := range c.steps {
				if s.pk.RKey == 1 {
					s.pk.RKey = p.b.key
				}
				why, got = p.craft(s.pk, s.payload)
			}
			last := c.steps[len(c.steps)-1].pk
			var want []reply
			switch c.nak {
			case none:
			case roce.NakSequence:
				want = []reply{{roce.Acknowledge, c.nak, 100, 0}}
			case 1:
				want = []reply{{roce.Acknowledge, c.nak, 99, 0}}
			default:
				want = []reply{{roce.Acknowledge, c.nak, last.PSN, 0}}
			}
			if diff := cmp.Diff(want, got); diff != "" || why != c.why {
				t.Errorf("%v, want %v; %s", why, c.why, diff)
			}
			fatal := c.nak == inv || c.nak == acc
			if state := p.b.qp.State(); (state == Error) != fatal {
				t.Errorf("the queue pair is in state %v", state)
			}
			if fatal && (len(p.b.recvs) != 1 || p.b.recvs[0].Status == Success) {
				t.Errorf("the receive completed as %+v", p.b.recvs)
			}
			if n := p.b.qp.Counters().Dropped[c.why]; n != 1 {
				t.Errorf("%d counted", n)
			}
			if c.steps[0].payload == 256 { // the first packet was right
				clear(before[:256])
				clear(p.b.mem[:256])
			}
			if !bytes.Equal(before, p.b.mem) && c.name != "invalidation of a key that is not" {
				t.Error("memory was written")
			}
		})
	}
}

func TestForeignSource(t *testing.T) {
	p := newPair(t, options{psn: 100})
	p.b.receive(1, 0, 300)
	if why, got := p.craftFrom(wire.AddrFrom4([4]byte{192, 0, 2, 9}), roce.Packet{Opcode: roce.SendOnly, PSN: 100}, 8); why != WrongSource || got != nil {
		t.Errorf("%v %v", why, got)
	}
}

// TestRights has each operation refused without its right, in the region or in the queue pair, and across protection domains.
func TestRights(t *testing.T) {
	ops := map[roce.Opcode]Access{roce.WriteOnly: memory.RemoteWrite, roce.ReadRequest: memory.RemoteRead, roce.FetchAdd: memory.RemoteAtomic, roce.CompareSwap: memory.RemoteAtomic}
	for op, right := range ops {
		for _, where := range []string{"region", "queue pair", "domain", "tag", "deregistered", "nowhere"} {
			p := newPair(t, options{psn: 100})
			pd, access := memory.PD(1), everything
			switch where {
			case "region":
				access &^= right
			case "queue pair":
				p.b.qp.attr.Access &^= right
			case "domain":
				pd = 2
			}
			key, err := p.b.tab.Register(pd, make([]byte, 64), 4096, access)
			if err != nil {
				t.Fatal(err)
			}
			switch where {
			case "tag":
				key ^= 1
			case "deregistered":
				if err := p.b.tab.Deregister(key); err != nil {
					t.Fatal(err)
				}
			}
			why, got := p.craft(roce.Packet{Opcode: op, PSN: 100, VA: 4096, RKey: key, Length: 8}, b2i(op == roce.WriteOnly)*8)
			if where == "nowhere" {
				if why != Taken {
					t.Errorf("%v: %v", op, why)
				}
				continue
			}
			if want := []reply{{roce.Acknowledge, roce.NakRemoteAccess, 100, 0}}; why != NoAccess || cmp.Diff(want, got) != "" {
				t.Errorf("%v without the right in the %s: %v, %v", op, where, why, got)
			}
		}
	}
}

// TestRegionEndsInTheMiddle has a region end between two packets of a WRITE, and of a READ's response.
func TestRegionEndsInTheMiddle(t *testing.T) {
	p := newPair(t, options{psn: 100})
	if why, _ := p.craft(roce.Packet{Opcode: roce.WriteFirst, PSN: 100, VA: vaBase, RKey: p.b.key, Length: 512}, 256); why != Taken {
		t.Fatal(why)
	}
	if err := p.b.tab.Deregister(p.b.key); err != nil {
		t.Fatal(err)
	}
	if why, got := p.craft(roce.Packet{Opcode: roce.WriteLast, PSN: 101}, 256); why != NoAccess || len(got) != 1 || got[0].Syndrome != roce.NakRemoteAccess {
		t.Errorf("%v %v", why, got)
	}

	p = newPair(t, options{})
	p.a.post(p.a.request(1, OpRead, 0, 1024, 0))
	p.b.room = 2
	p.until("two packets of the response", func() bool { return p.b.room == 0 && len(p.flying) == 2 })
	if err := p.b.tab.Deregister(p.b.key); err != nil {
		t.Fatal(err)
	}
	p.b.room = -1
	p.run()
	if len(p.a.sends) != 1 || p.a.sends[0].Status != RemoteAccess || p.b.qp.State() != Error {
		t.Errorf("%+v, %v", p.a.sends, p.b.qp.State())
	}
}

// TestLocalErrors has requests and receives whose own memory is not permitted: in order behind those before.
func TestLocalErrors(t *testing.T) {
	for _, op := range []Op{OpSend, OpWrite, OpRead, OpFetchAdd} {
		p := newPair(t, options{})
		p.b.receive(1, 0, 300)
		p.a.post(p.a.request(1, OpWrite, 0, 8, 0))
		w := p.a.request(2, op, 0, 8, 0)
		w.List[0].LKey ^= 1 << 30
		p.a.post(w)
		p.a.post(p.a.request(3, OpWrite, 0, 8, 0))
		p.run()
		want := []Status{Success, LocalProtection, Flushed}
		for i, c := range p.a.sends {
			if c.ID != uint64(i+1) || c.Status != want[i] {
				t.Errorf("%v: completion %+v, want %v", op, c, want[i])
			}
		}
		if len(p.a.sends) != 3 || p.a.qp.State() != Error || p.b.qp.State() != ReadyToSend {
			t.Errorf("%v: %v and %v", op, p.a.qp.State(), p.b.qp.State())
		}
	}
	p := newPair(t, options{})
	if err := p.b.qp.PostRecv(&RecvWR{ID: 1, List: []SGE{{Addr: 1, Length: 300, LKey: p.b.key}}}); err != nil {
		t.Fatal(err)
	}
	p.a.post(p.a.request(1, OpSend, 0, 8, 0))
	p.run()
	if p.a.sends[0].Status != RemoteOperation || p.b.recvs[0].Status != LocalProtection || p.b.drops[LocalFailure] != 1 {
		t.Errorf("%+v %+v", p.a.sends, p.b.recvs)
	}
}

// TestWrongResponses has answers of another kind or length than the request's.
func TestWrongResponses(t *testing.T) {
	for _, c := range []struct {
		name    string
		op      Op // of b's request
		pk      roce.Packet
		payload int
		why     Reason
	}{
		{"response to a WRITE", OpWrite, roce.Packet{Opcode: roce.ReadOnly}, 8, WrongResponse},
		{"atomic's to a READ", OpRead, roce.Packet{Opcode: roce.AtomicAcknowledge}, 0, WrongResponse},
		{"READ's to an atomic", OpFetchAdd, roce.Packet{Opcode: roce.ReadOnly}, 8, WrongResponse},
		{"one byte more", OpRead, roce.Packet{Opcode: roce.ReadOnly}, 9, WrongResponse},
		{"one byte less", OpRead, roce.Packet{Opcode: roce.ReadOnly}, 7, WrongResponse},
		{"first of a message of one", OpRead, roce.Packet{Opcode: roce.ReadFirst}, 8, WrongResponse},
		{"reserved syndrome", OpRead, roce.Packet{Opcode: roce.Acknowledge, Syndrome: 0x40}, 0, WrongResponse},
		{"acknowledgement of a READ", OpRead, roce.Packet{Opcode: roce.Acknowledge, Syndrome: 0x1f}, 0, Taken},
	} {
		p := newPair(t, options{psn: 100})
		before := bytes.Clone(p.b.mem)
		p.b.post(p.b.request(1, c.op, 0, 8, 0))
		p.answers()
		c.pk.PSN = 100
		why, _ := p.craft(c.pk, c.payload)
		if why != c.why || !bytes.Equal(before, p.b.mem) {
			t.Errorf("%s: %v, want %v", c.name, why, c.why)
		}
		if end := c.why == WrongResponse && c.pk.Syndrome == 0; end != (p.b.qp.State() == Error) || end && p.b.sends[0].Status != BadResponse {
			t.Errorf("%s: %v, %+v", c.name, p.b.qp.State(), p.b.sends)
		}
	}
}
