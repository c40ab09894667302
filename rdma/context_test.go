package rdma

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/rdma/transport"
	"github.com/millrace/millrace/ring"
)

const everything = LocalWrite | RemoteWrite | RemoteRead | RemoteAtomic

var ownAddr = netip.MustParseAddr("198.18.0.1")

// openContext returns a context on a running node whose device is memory: its queue pairs speak to each other.
func openContext(t testing.TB, loops int, cfg Config) *Context {
	t.Helper()
	n, err := node.Open(node.Config{
		Loops: loops, Devices: []node.Device{{Name: "m0"}},
		OpenDevice: func(_ node.Device, pools []*ring.Pool) (*device.Device, error) {
			var near, far []pmd.Driver
			for _, p := range pools {
				a, b, err := pmd.NewMemory(pmd.MemoryConfig{A: p, B: p})
				if err != nil {
					return nil, err
				}
				near, far = append(near, a), append(far, b)
			}
			return device.New("memory", near, func() (err error) {
				for i := range near {
					err = errors.Join(err, near[i].Close(), far[i].Close())
				}
				return err
			}), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Addr = ownAddr; cfg.Hops == nil {
		cfg.Hops = nexthop.Static{}
	}
	c, err := New(n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := errors.Join(n.Add(c.Service()), n.Start()); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, n.Close()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// side is what a test has of one queue pair.
type side struct {
	t  testing.TB
	pd *PD
	cq *CQ
	qp *QP
	mr *MR
}

// newSide makes a domain, a region of n bytes, a completion queue and a queue pair in state Reset.
func newSide(t testing.TB, c *Context, service Transport, n int) *side {
	t.Helper()
	return newSideWith(t, c, QPConfig{Service: service}, n)
}

func newSideWith(t testing.TB, c *Context, cfg QPConfig, n int) *side {
	t.Helper()
	s := &side{t: t, pd: c.AllocPD()}
	var err1, err2, err3 error
	s.mr, err1 = s.pd.RegMR(make([]byte, n), everything)
	s.cq, err2 = c.CreateCQ(1024)
	cfg.SendCQ, cfg.RecvCQ = s.cq, s.cq
	s.qp, err3 = s.pd.CreateQP(cfg)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	return s
}

// join connects two sides.
func join(t testing.TB, a, b *side, cfg ConnectConfig) {
	t.Helper()
	ea, eb := a.qp.Endpoint(0xfffff0), b.qp.Endpoint(77)
	cfg.PSN = ea.PSN
	err := a.qp.Connect(eb, cfg)
	cfg.PSN = eb.PSN
	if err := errors.Join(err, b.qp.Connect(ea, cfg)); err != nil {
		t.Fatal(err)
	}
}

// completions waits for n completions.
func (s *side) completions(n int) (list []Completion) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var wc [16]Completion
	for len(list) < n {
		k, err := s.cq.Next(ctx, wc[:min(16, n-len(list))])
		if err != nil {
			s.t.Fatalf("%d of %d completions, then %v", len(list), n, err)
		}
		list = append(list, wc[:k]...)
	}
	return list
}

func (s *side) post(w SendWR) {
	s.t.Helper()
	w.Flags |= Signaled
	if err := s.qp.PostSend(&w); err != nil {
		s.t.Fatal(err)
	}
}

// TestVerbs runs each operation between two queue pairs of one context.
func TestVerbs(t *testing.T) {
	c := openContext(t, 1, Config{})
	a, b := newSide(t, c, RC, 1<<16), newSide(t, c, RC, 1<<16)
	join(t, a, b, ConnectConfig{})
	copy(a.mr.Bytes(), "written, sent and read")
	if err := b.qp.PostRecv(&RecvWR{ID: 9, List: []SGE{b.mr.SGE(1000, 100)}}); err != nil {
		t.Fatal(err)
	}
	va, rkey := b.mr.Addr(), b.mr.RKey()
	a.post(SendWR{ID: 1, Op: OpWrite, List: []SGE{a.mr.SGE(0, 22)}, RemoteAddr: va + 5, RKey: rkey})
	a.post(SendWR{ID: 2, Op: OpSend, List: []SGE{a.mr.SGE(0, 22)}})
	a.post(SendWR{ID: 3, Op: OpRead, Flags: Fence, List: []SGE{a.mr.SGE(3000, 22)}, RemoteAddr: va + 5, RKey: rkey})
	a.post(SendWR{ID: 4, Op: OpFetchAdd, List: []SGE{a.mr.SGE(4096, 8)}, RemoteAddr: va + 8192, RKey: rkey, Swap: 3})
	for i, w := range a.completions(4) {
		if w.ID != uint64(i+1) || w.Status != transport.Success {
			t.Errorf("%+v", w)
		}
	}
	if got := b.completions(1)[0]; got.ID != 9 || got.Bytes != 22 || got.QPN != b.qp.QPN() {
		t.Errorf("%+v", got)
	}
	if s := string(b.mr.Bytes()[5:27]) + string(b.mr.Bytes()[1000:1022]) + string(a.mr.Bytes()[3000:3022]); s != "written, sent and readwritten, sent and readwritten, sent and read" {
		t.Errorf("%q", s)
	}
	if b.mr.Bytes()[8192] != 3 {
		t.Error("the atomic had no effect")
	}
}

// TestLargeTransfers moves 16 MiB by WRITEs of 1 MiB, on a context that is not on the first of several loops.
func TestLargeTransfers(t *testing.T) {
	c := openContext(t, 3, Config{Loop: 1})
	const size, piece = 16 << 20, 1 << 20
	a, b := newSide(t, c, RC, size), newSide(t, c, RC, size)
	join(t, a, b, ConnectConfig{})
	for i := range a.mr.Bytes() {
		a.mr.Bytes()[i] = byte(i * 7 >> 3)
	}
	for at := 0; at < size; at += piece {
		a.post(SendWR{Op: OpWrite, List: []SGE{a.mr.SGE(at, piece)}, RemoteAddr: b.mr.Addr() + uint64(at), RKey: b.mr.RKey()})
	}
	for _, w := range a.completions(size / piece) {
		if w.Status != transport.Success {
			t.Fatal(w.Status)
		}
	}
	if string(a.mr.Bytes()) != string(b.mr.Bytes()) {
		t.Error("the bytes differ")
	}
}

// TestDatagrams sends from one queue pair to another by an address handle.
func TestDatagrams(t *testing.T) {
	c := openContext(t, 1, Config{})
	a, b := newSide(t, c, UD, 4096), newSide(t, c, UD, 4096)
	if err := errors.Join(a.qp.OpenDatagrams(1), b.qp.OpenDatagrams(2), b.qp.PostRecv(&RecvWR{ID: 5, List: []SGE{b.mr.SGE(0, 200)}})); err != nil {
		t.Fatal(err)
	}
	ah, err := a.pd.CreateAH(ownAddr)
	if err != nil {
		t.Fatal(err)
	}
	copy(a.mr.Bytes(), "datagram")
	w := SendWR{Op: OpSend, List: []SGE{a.mr.SGE(0, 8)}, Path: ah.Number(), DestQP: b.qp.QPN(), QKey: 2}
	a.post(w)
	if got := b.completions(1)[0]; got.SrcQP != a.qp.QPN() || got.Bytes != 48 || string(b.mr.Bytes()[40:48]) != "datagram" {
		t.Errorf("%+v", got)
	}
	if err := errors.Join(ah.Destroy()); err != nil {
		t.Fatal(err)
	}
	if err := a.qp.PostSend(&w); !errors.Is(err, transport.ErrRequest) {
		t.Errorf("with a handle that is gone: %v", err)
	}
	if err := ah.Destroy(); !errors.Is(err, ErrClosed) {
		t.Errorf("destroyed twice: %v", err)
	}
	b2 := newSide(t, c, UD, 64)
	if err := b2.qp.PostSend(&w); err == nil {
		t.Error("another domain's handle was taken")
	}
}

// TestLifetimes has objects refuse to end while others use them.
func TestLifetimes(t *testing.T) {
	c := openContext(t, 1, Config{MaxQPs: 2})
	s := newSide(t, c, RC, 64)
	other := c.AllocPD()
	srq, err := other.CreateSRQ(4)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.pd.CreateQP(QPConfig{Service: RC, SendCQ: s.cq, RecvCQ: s.cq, SRQ: srq}); err == nil {
		t.Error("a queue of another domain was taken")
	}
	q, err := other.CreateQP(QPConfig{Service: RC, SendCQ: s.cq, RecvCQ: s.cq, SRQ: srq})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.CreateQP(QPConfig{Service: RC, SendCQ: s.cq, RecvCQ: s.cq}); !errors.Is(err, ErrLimit) {
		t.Errorf("a third queue pair: %v", err)
	}
	for name, end := range map[string]func() error{"domain": other.Dealloc, "shared queue": srq.Destroy, "completion queue": s.cq.Destroy} {
		if err := end(); !errors.Is(err, ErrBusy) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := errors.Join(q.Destroy(), srq.Destroy(), other.Dealloc(), s.qp.Destroy(), s.cq.Destroy(), s.mr.Dereg(), s.pd.Dealloc()); err != nil {
		t.Error(err)
	}
	if !errors.Is(s.qp.Destroy(), ErrClosed) || !errors.Is(s.qp.PostSend(&SendWR{}), ErrClosed) || !errors.Is(s.qp.PostRecv(&RecvWR{}), ErrClosed) ||
		!errors.Is(s.qp.Modify(Init, Attr{}, ownAddr), ErrClosed) {
		t.Error("a destroyed queue pair goes on")
	}
	if len(c.qps)+len(c.paths)+c.table.Len() != 0 {
		t.Errorf("left: %d queue pairs, %d paths, %d regions", len(c.qps), len(c.paths), c.table.Len())
	}
}

// TestManyQueuePairs makes and destroys connected queue pairs: places and timers are used again.
func TestManyQueuePairs(t *testing.T) {
	c := openContext(t, 1, Config{})
	a := newSide(t, c, RC, 64)
	for range 2000 {
		q, err := a.pd.CreateQP(QPConfig{Service: RC, SendCQ: a.cq, RecvCQ: a.cq, SendDepth: 1, RecvDepth: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(q.Connect(a.qp.Endpoint(0), ConnectConfig{}), q.Destroy()); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.slots) != 2 || len(c.qps) != 1 || len(c.paths) != 0 {
		t.Errorf("%d timers, %d queue pairs, %d paths", len(c.slots), len(c.qps), len(c.paths))
	}
}

// TestTenThousandQueuePairs bounds the memory of queue pairs that are connected and idle, and writes by every hundredth.
func TestTenThousandQueuePairs(t *testing.T) {
	const n = 10_000
	c := openContext(t, 1, Config{})
	a, b := newSide(t, c, RC, 4096), newSide(t, c, RC, 4096)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var qps []*QP
	for range n / 2 {
		x, err1 := a.pd.CreateQP(QPConfig{Service: RC, SendCQ: a.cq, RecvCQ: a.cq})
		y, err2 := b.pd.CreateQP(QPConfig{Service: RC, SendCQ: b.cq, RecvCQ: b.cq})
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(x.Connect(y.Endpoint(0), ConnectConfig{}), y.Connect(x.Endpoint(0), ConnectConfig{})); err != nil {
			t.Fatal(err)
		}
		qps = append(qps, x, y)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := (after.HeapAlloc - before.HeapAlloc) / n; each > 24<<10 {
		t.Errorf("%d bytes for each queue pair", each)
	} else {
		t.Logf("%d bytes for each queue pair", each)
	}
	for i := 0; i < n; i += 100 {
		a.qp = qps[i]
		a.post(SendWR{Op: OpWrite, List: []SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()})
	}
	for _, w := range a.completions(n / 100) {
		if w.Status != transport.Success {
			t.Fatal(w.Status)
		}
	}
	for _, q := range qps {
		if err := q.Destroy(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestQueuePairsLeaveNothing creates, connects, uses and destroys queue pairs, a million with MILLRACE_SOAK: memory and tables do not grow.
func TestQueuePairsLeaveNothing(t *testing.T) {
	rounds := 100
	if os.Getenv("MILLRACE_SOAK") != "" {
		rounds = 10_000
	}
	c := openContext(t, 1, Config{})
	a, b := newSide(t, c, RC, 4096), newSide(t, c, RC, 4096)
	round := func() {
		var qps []*QP
		for range 50 {
			x, err1 := a.pd.CreateQP(QPConfig{Service: RC, SendCQ: a.cq, RecvCQ: a.cq})
			y, err2 := b.pd.CreateQP(QPConfig{Service: RC, SendCQ: b.cq, RecvCQ: b.cq})
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(x.Connect(y.Endpoint(0), ConnectConfig{}), y.Connect(x.Endpoint(0), ConnectConfig{})); err != nil {
				t.Fatal(err)
			}
			qps = append(qps, x, y)
		}
		a.qp = qps[0]
		a.post(SendWR{Op: OpWrite, List: []SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()})
		a.completions(1)
		for _, q := range qps {
			if err := q.Destroy(); err != nil {
				t.Fatal(err)
			}
		}
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for range 10 {
		round()
	}
	before, slots := heap(), len(c.slots)
	for range rounds {
		round()
	}
	if after := heap(); after > before+1<<20 || len(c.slots) != slots || len(c.qps) != 2 || len(c.paths) != 0 {
		t.Errorf("heap %d, then %d bytes; %d slots, then %d; %d queue pairs, %d paths", before, after, slots, len(c.slots), len(c.qps), len(c.paths))
	}
}

// TestNotifications has a completion queue notify of any completion or of solicited ones, and report an overrun.
func TestNotifications(t *testing.T) {
	c := openContext(t, 1, Config{})
	cq, err := c.CreateCQ(2)
	if err != nil {
		t.Fatal(err)
	}
	notified := func() bool {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		select {
		case <-cq.wake:
			cq.wake <- struct{}{}
			return cq.Wait(context.Background()) == nil
		default:
			return cq.Wait(ctx) == nil
		}
	}
	poll := func() int {
		n, _ := cq.Poll(make([]Completion, 4))
		return n
	}
	for i, step := range []struct {
		arm, solicited bool
		c              Completion
		want           bool
	}{
		{false, false, Completion{}, false},
		{true, false, Completion{}, true},
		{false, false, Completion{}, false}, // once
		{true, true, Completion{}, false},
		{false, false, Completion{Flags: transport.SolicitsEvent}, true},
		{true, true, Completion{Status: transport.Flushed}, true},
	} {
		if step.arm {
			cq.ReqNotify(step.solicited)
		}
		cq.sendDone(step.c)
		if got := notified(); got != step.want || poll() != 1 {
			t.Errorf("step %d: notified %v", i, got)
		}
	}
	for range 4 {
		cq.sendDone(Completion{})
	}
	if n, err := cq.Poll(make([]Completion, 4)); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := cq.Poll(make([]Completion, 4)); !errors.Is(err, ErrOverrun) {
		t.Errorf("after the overrun: %v", err)
	}
	if e := <-c.Events(); e.Kind != CQOverrun || e.CQ != cq || len(c.Events()) != 0 {
		t.Errorf("%+v", e)
	}
}

// TestEvents has a queue pair fail, and a shared queue reach its limit.
func TestEvents(t *testing.T) {
	c := openContext(t, 1, Config{})
	a, b := newSide(t, c, RC, 64), newSide(t, c, RC, 64)
	srq, err := b.pd.CreateSRQ(4)
	if err != nil {
		t.Fatal(err)
	}
	if b.qp, err = b.pd.CreateQP(QPConfig{Service: RC, SendCQ: b.cq, RecvCQ: b.cq, SRQ: srq}); err != nil {
		t.Fatal(err)
	}
	join(t, a, b, ConnectConfig{})
	for range 2 {
		if err := srq.PostRecv(&RecvWR{List: []SGE{b.mr.SGE(0, 64)}}); err != nil {
			t.Fatal(err)
		}
	}
	srq.SetLimit(2)
	a.post(SendWR{Op: OpSend, List: []SGE{a.mr.SGE(0, 8)}})
	a.completions(1)
	if e := <-c.Events(); e.Kind != SRQLimit || e.SRQ != srq {
		t.Errorf("%v", e.Kind)
	}
	a.post(SendWR{Op: OpWrite, List: []SGE{a.mr.SGE(0, 8)}, RemoteAddr: 1, RKey: b.mr.RKey()})
	if w := a.completions(1)[0]; w.Status != transport.RemoteAccess {
		t.Errorf("%+v", w)
	}
	failed := map[*QP]bool{}
	for range 2 {
		e := <-c.Events()
		failed[e.QP] = e.Kind == QPFatal
	}
	if !failed[a.qp] || !failed[b.qp] || a.qp.State() != Error {
		t.Errorf("%v", failed)
	}
}

// TestSelectiveRepeatIsNegotiated has it used where both sides have it, with the smaller window.
func TestSelectiveRepeatIsNegotiated(t *testing.T) {
	c := openContext(t, 1, Config{})
	side := func(selective bool, window uint32) *side {
		s := newSide(t, c, RC, 4096)
		var err error
		if s.qp, err = s.pd.CreateQP(QPConfig{Service: RC, SendCQ: s.cq, RecvCQ: s.cq, SelectiveRepeat: selective, Window: window}); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, x := range []struct {
		a, b   bool
		window uint32
	}{{true, true, 64}, {true, false, 256}, {false, true, 256}, {false, false, 256}} {
		a, b := side(x.a, 256), side(x.b, 64)
		join(t, a, b, ConnectConfig{})
		a.post(SendWR{Op: OpWrite, List: []SGE{a.mr.SGE(0, 4096)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()})
		if w := a.completions(1)[0]; w.Status != transport.Success {
			t.Errorf("%+v: %v", x, w.Status)
		}
		if at := a.qp.qp.Attr(); at.SelectiveRepeat != (x.a && x.b) || at.Window != x.window || b.qp.qp.Attr().SelectiveRepeat != (x.a && x.b) {
			t.Errorf("%+v: %+v", x, at)
		}
	}
	s := newSide(t, c, RC, 64)
	for _, cfg := range []QPConfig{{Service: UC, SelectiveRepeat: true}, {Service: RC, SelectiveRepeat: true, Window: 1<<15 + 1}} {
		cfg.SendCQ, cfg.RecvCQ = s.cq, s.cq
		if _, err := s.pd.CreateQP(cfg); !errors.Is(err, transport.ErrAttribute) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

func TestEndpoints(t *testing.T) {
	for _, s := range []string{"0000:000123:abcdef:00000000000000000000ffffc6120001", "0100:ffffff:000000:20010db8000000000000000000000001"} {
		e, err := ParseEndpoint(s)
		if err != nil || e.String() != s {
			t.Errorf("%s: %v, %v", s, e, err)
		}
	}
	for _, s := range []string{"", "10000:1:2:00000000000000000000ffffc6120001", "0000:1:2", "0000:1:2:zz", "0000:1000000:2:00000000000000000000ffffc6120001", "0000:1:1000000:00000000000000000000ffffc6120001", "0:1:2:00"} {
		if e, err := ParseEndpoint(s); err == nil {
			t.Errorf("%q: %v", s, e)
		}
	}
}

func TestRejectedContexts(t *testing.T) {
	c := openContext(t, 1, Config{})
	for _, cfg := range []Config{{}, {Addr: ownAddr}, {Addr: ownAddr, Hops: nexthop.Static{}, Loop: 1}, {Addr: netip.MustParseAddr("224.0.0.1"), Hops: nexthop.Static{}}} {
		if _, err := New(c.node, cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
	s := newSide(t, c, RC, 64)
	for _, cfg := range []ConnectConfig{{MTU: 8192}, {MTU: 4096}} {
		if err := s.qp.Connect(Endpoint{Addr: ownAddr, QPN: 5}, cfg); !errors.Is(err, transport.ErrAttribute) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	for _, a := range []string{"2001:db8::1", "224.0.0.1"} {
		if err := s.qp.Connect(Endpoint{Addr: netip.MustParseAddr(a), QPN: 5}, ConnectConfig{}); !errors.Is(err, ErrPath) {
			t.Errorf("%s: %v", a, err)
		}
	}
	if len(c.paths) != 0 {
		t.Errorf("%d paths are left", len(c.paths))
	}
}
