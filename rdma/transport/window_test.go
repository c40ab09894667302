package transport

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/rdma/memory"
	"github.com/millrace/millrace/rdma/roce"
)

// window makes a window of a side and returns its key.
func (e *end) window(kind memory.WindowType) uint32 {
	e.p.t.Helper()
	key, err := e.tab.AllocWindow(1, kind)
	if err != nil {
		e.p.t.Fatal(err)
	}
	return key
}

// bind returns a request that binds n bytes from at on, with the window's next key.
func (e *end) bind(id uint64, key, at, n uint32, access Access) SendWR {
	return SendWR{
		ID: id, Op: OpBind, Flags: Signaled, RKey: key&^0xff | (key+1)&0xff, InvKey: e.key, RemoteAddr: vaBase + uint64(at), Compare: uint64(n),
		Swap: uint64(access),
	}
}

// TestWindows binds a window, lets the peer write by it, and invalidates it: by the peer's SEND, and by a request of its own.
func TestWindows(t *testing.T) {
	for _, own := range []bool{false, true} {
		p := newPair(t, options{})
		key := p.b.window(memory.Type2B)
		bind := p.b.bind(1, key, 64, 128, memory.RemoteWrite)
		p.b.post(bind)
		p.run()
		if len(p.b.sends) != 1 || p.b.sends[0].Status != Success || p.b.sends[0].Op != OpBind {
			t.Fatalf("bind: %+v", p.b.sends)
		}
		write := func(id uint64, at, n uint32) Status {
			p.a.fill(byte(id))
			w := p.a.request(id, OpWrite, 0, n, at)
			w.RKey = bind.RKey
			p.a.post(w)
			p.run()
			return p.a.sends[len(p.a.sends)-1].Status
		}
		if s := write(1, 64, 128); s != Success || string(p.b.mem[64:192]) != string(p.a.mem[:128]) {
			t.Fatalf("within the window: %v", s)
		}
		if own {
			p.b.post(SendWR{ID: 2, Op: OpLocalInvalidate, Flags: Signaled, InvKey: bind.RKey})
		} else {
			p.b.receive(2, 0, 8)
			w := p.a.request(2, OpSendInv, 0, 8, 0)
			w.InvKey = bind.RKey
			p.a.post(w)
		}
		p.run()
		if c := p.b.recvs; !own && (len(c) != 1 || c[0].Flags&WithInv == 0 || c[0].InvKey != bind.RKey) {
			t.Errorf("SEND with invalidate: %+v", c)
		}
		if s := write(3, 64, 8); s != RemoteAccess || p.b.drops[NoAccess] != 1 {
			t.Errorf("after the invalidation: %v", s)
		}
	}
}

// TestWrongUsesOfWindows: each ends the queue pair, and changes no memory.
func TestWrongUsesOfWindows(t *testing.T) {
	for name, c := range map[string]struct {
		at, n  uint32
		access Access
		op     Op
	}{
		"before":       {63, 8, everything &^ memory.LocalWrite, OpWrite},
		"beyond":       {185, 8, everything &^ memory.LocalWrite, OpWrite},
		"write only":   {64, 8, memory.RemoteWrite, OpRead},
		"read only":    {64, 8, memory.RemoteRead, OpWrite},
		"not atomic":   {64, 8, memory.RemoteRead | memory.RemoteWrite, OpFetchAdd},
		"not bound":    {64, 8, 0, OpRead},
		"wrong tag":    {64, 8, memory.RemoteRead, OpRead},
		"other domain": {64, 8, memory.RemoteRead, OpRead},
	} {
		p := newPair(t, options{})
		p.b.fill(9)
		before := string(p.b.mem)
		bind := p.b.bind(1, p.b.window(memory.Type1), 64, 128, c.access)
		if name == "other domain" {
			p.b.qp.self.PD = 2 // of the region and the window is 1
		}
		p.b.post(bind)
		p.run()
		w := p.a.request(1, c.op, 0, c.n, c.at)
		if w.RKey = bind.RKey; name == "wrong tag" {
			w.RKey++
		}
		p.a.post(w)
		p.run()
		want := RemoteAccess
		if name == "other domain" {
			want = RetriesExceeded // the bind has ended the other queue pair
		}
		if len(p.a.sends) != 1 || p.a.sends[0].Status != want || string(p.b.mem) != before {
			t.Errorf("%s: %+v", name, p.a.sends)
		}
	}
}

// TestBindsKeepTheirPlace: requests without packets complete in order with others, once, on a link that loses packets, and a failure waits for
// those before it.
func TestBindsKeepTheirPlace(t *testing.T) {
	for seed := range uint64(20) {
		p := newPair(t, options{seed: seed, selective: seed%2 == 1, imp: impairment{loss: 50, reorder: 100, delay: 50 * time.Microsecond}})
		key := p.a.window(memory.Type1)
		var want []string
		for i := range uint64(30) {
			switch i % 3 {
			case 0:
				w := p.a.bind(i, key, 0, 8, memory.RemoteRead)
				key = w.RKey
				p.a.post(w)
				want = append(want, fmt.Sprint(i, OpBind, Success))
			case 1:
				p.a.post(p.a.request(i, OpWrite, 0, 700, 0))
				want = append(want, fmt.Sprint(i, OpWrite, Success))
			case 2:
				p.a.post(p.a.request(i, OpRead, 0, 600, 0))
				want = append(want, fmt.Sprint(i, OpRead, Success))
			}
		}
		p.a.post(p.a.bind(30, key-1, 0, 8, memory.RemoteRead)) // the tag that it has
		want = append(want, fmt.Sprint(30, OpBind, BindError))
		p.run()
		for i, c := range p.a.sends {
			if got := fmt.Sprint(c.ID, c.Op, c.Status); got != want[i] {
				t.Errorf("seed %d: completion %d is %s, want %s", seed, i, got, want[i])
			}
		}
		if len(p.a.sends) != len(want) || !p.a.tab.Permits(p.a.qp.self, key, vaBase, 8, memory.RemoteRead) {
			t.Errorf("seed %d: %d completions of %d", seed, len(p.a.sends), len(want))
		}
	}
}

// TestWindowsOfUnreliableConnections: binds are requests of UC too.
func TestWindowsOfUnreliableConnections(t *testing.T) {
	p := newPair(t, options{service: roce.UC})
	p.a.post(p.a.request(1, OpWrite, 0, 700, 0))
	p.a.post(p.a.bind(2, p.a.window(memory.Type2B), 0, 8, memory.RemoteWrite))
	p.a.post(p.a.request(3, OpWrite, 0, 700, 0))
	p.run()
	if len(p.a.sends) != 3 || p.a.sends[1].Op != OpBind || p.a.sends[1].Status != Success {
		t.Errorf("%+v", p.a.sends)
	}
}

// TestWindowsEndWithTheirQueuePair: the next queue pair with the number does not reach what was bound.
func TestWindowsEndWithTheirQueuePair(t *testing.T) {
	p := newPair(t, options{})
	w := p.b.bind(1, p.b.window(memory.Type2B), 0, 8, memory.RemoteRead)
	p.b.post(w)
	p.run()
	if !p.b.tab.Permits(p.b.qp.self, w.RKey, vaBase, 8, memory.RemoteRead) {
		t.Fatal("not bound")
	}
	if err := p.b.qp.Modify(Reset, Attr{}, p.a.addr); err != nil || p.b.tab.Permits(p.b.qp.self, w.RKey, vaBase, 8, memory.RemoteRead) {
		t.Errorf("bound after RESET: %v", err)
	}
}
