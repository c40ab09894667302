package rdma

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/rdma/cm"
	"github.com/millrace/millrace/rdma/roce"
	"github.com/millrace/millrace/rdma/transport"
	"github.com/millrace/millrace/wire"
)

// short returns a context that bounds a test's wait.
func short(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// connectSides connects a to b by RDMA-CM on port 7174, and closes the listener.
func connectSides(t testing.TB, a, b *side, ca, cb ConnParam) (ida, idb *CMID) {
	t.Helper()
	l, err := b.qp.ctx.ListenCM(7174, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx := short(t)
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		r, err := l.GetRequest(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		if idb, err = r.Accept(ctx, b.qp, cb); err != nil {
			t.Error(err)
		}
	}()
	ida, err = a.qp.ctx.ConnectCM(ctx, netip.AddrPortFrom(b.qp.ctx.Addr(), 7174), a.qp, ca)
	if err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	return ida, idb
}

func isDone(id *CMID) bool {
	select {
	case <-id.Done():
		return true
	case <-time.After(20 * time.Second):
		return false
	}
}

// TestConnectionManager connects queue pairs of RC and UC by RDMA-CM, moves a message with private data agreed on, and ends the connection
// from either side.
func TestConnectionManager(t *testing.T) {
	c := openContext(t, 1, Config{})
	for _, service := range []Transport{RC, UC} {
		for _, byA := range []bool{true, false} {
			a, b := newSide(t, c, service, 4096), newSide(t, c, service, 4096)
			for _, s := range []*side{a, b} {
				if err := s.qp.Modify(Init, Attr{}, netip.Addr{}); err != nil {
					t.Fatal(err)
				}
				if err := s.qp.PostRecv(&RecvWR{ID: 3, List: []SGE{s.mr.SGE(2048, 100)}}); err != nil {
					t.Fatal(err)
				}
			}
			ida, idb := connectSides(t, a, b, ConnParam{Private: []byte("question"), MaxReads: 4}, ConnParam{Private: []byte("answer"), MaxReads: 9})
			if string(ida.Private()[:6]) != "answer" || string(idb.Private()[:8]) != "question" || len(idb.Private()) != 56 {
				t.Errorf("%q %q", ida.Private(), idb.Private())
			}
			if idb.Remote().Addr() != c.Addr() || ida.Remote().Port() != 7174 {
				t.Error(idb.Remote(), ida.Remote())
			}
			for _, s := range []*side{a, b} {
				s.qp.ctx.lock.Enter()
				at := s.qp.qp.Attr()
				s.qp.ctx.lock.ExitUnchanged()
				if service == RC && (at.MaxReads != 4 || at.MaxDestReads != 4) || at.MTU != c.MaxMTU() {
					t.Errorf("%+v", at)
				}
			}
			// Each side names the first packet that it receives (table 106).
			if qa, qb := a.qp.qp.Attr(), b.qp.qp.Attr(); qa.RecvPSN != idb.peer.psn || qb.RecvPSN != ida.peer.psn || qa.SendPSN != qb.RecvPSN {
				t.Errorf("%+v\n%+v", qa, qb)
			}
			copy(a.mr.Bytes(), "by a connection")
			a.post(SendWR{ID: 1, Op: OpSend, List: []SGE{a.mr.SGE(0, 15)}})
			if w := b.completions(1)[0]; w.Status != transport.Success || string(b.mr.Bytes()[2048:2063]) != "by a connection" {
				t.Errorf("%+v", w)
			}
			a.completions(1)
			first := ida
			if !byA {
				first = idb
			}
			if err := first.Disconnect(); err != nil {
				t.Fatal(err)
			}
			if !isDone(ida) || !isDone(idb) || a.qp.State() != Error || b.qp.State() != Error {
				t.Error("the connection goes on")
			}
			if w := a.completions(1)[0]; w.Status != transport.Flushed || w.ID != 3 {
				t.Errorf("%+v", w)
			}
			for _, id := range []*CMID{ida, idb} {
				if err := errors.Join(id.Disconnect(), id.QP().Destroy()); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// TestRefusedConnections has each way in which RDMA-CM makes no connection: nothing stays behind.
func TestRefusedConnections(t *testing.T) {
	c := openContext(t, 1, Config{})
	to := netip.AddrPortFrom(c.Addr(), 7174)
	s, other := newSide(t, c, RC, 64), newSide(t, c, UC, 64)
	var rejected *RejectedError
	if _, err := c.ConnectCM(short(t), to, s.qp, ConnParam{}); !errors.As(err, &rejected) || rejected.Reason != cm.RejInvalidServiceID {
		t.Errorf("%v", err)
	}
	if s.qp.State() != Error {
		t.Error(s.qp.State())
	}
	l, err := c.ListenCM(7174, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.ListenCM(7174, 1); !errors.Is(err, ErrAddrInUse) {
		t.Error(err)
	}
	s = newSide(t, c, RC, 64)
	done := make(chan error, 1)
	connect := func() {
		_, err := c.ConnectCM(short(t), to, s.qp, ConnParam{})
		done <- err
	}
	go connect()
	r, err := l.GetRequest(short(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Accept(short(t), other.qp, ConnParam{}); !errors.Is(err, transport.ErrAttribute) {
		t.Error(err)
	}
	if err := r.Reject([]byte("go away")); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.As(err, &rejected) || rejected.Reason != cm.RejConsumer || string(rejected.Private[:7]) != "go away" {
		t.Error(err)
	}
	if err := r.Reject(nil); !errors.Is(err, ErrNotAnswered) {
		t.Error(err)
	}
	if _, err := r.Accept(short(t), s.qp, ConnParam{}); !errors.Is(err, ErrNotAnswered) {
		t.Error(err)
	}
	s = newSide(t, c, RC, 64)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, err := c.ConnectCM(ctx, to, s.qp, ConnParam{})
		done <- err
	}()
	if r, err = l.GetRequest(short(t)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; !errors.Is(err, ErrUnreachable) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for end := time.Now().Add(20 * time.Second); r.Reject(nil) == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the request stays")
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := l.GetRequest(short(t)); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	s = newSide(t, c, RC, 64)
	if _, err := c.ConnectCM(short(t), to, s.qp, ConnParam{Private: make([]byte, 57)}); !errors.Is(err, transport.ErrAttribute) {
		t.Error(err)
	}
	if _, err := c.ConnectCM(short(t), netip.MustParseAddrPort("198.18.7.7:7174"), s.qp, ConnParam{}); !errors.Is(err, ErrPath) {
		t.Error(err)
	}
	c.lock.Enter()
	defer c.lock.ExitUnchanged()
	if n := c.gsi.manager.Conns(); n != 0 {
		t.Errorf("%d connections stay", n)
	}
}

// TestDatagramsOfManagement gives queue pair 1 datagrams that are not of the communication manager, and a flood of requests: each has its
// reason, and half-open connections stay within the limit.
func TestDatagramsOfManagement(t *testing.T) {
	c := openContext(t, 1, Config{MaxHalfOpen: 20, MaxHalfOpenBySource: 5})
	l, err := c.ListenCM(7174, 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	request := func(src wire.Addr, id uint32) []byte {
		h := cm.IPHeader{Src: src, Dst: c.addr, SrcPort: 9}
		m := cm.Message{Kind: cm.REQ, LocalID: id, QPN: id + 2, MTU: 1, Service: cm.ServiceID(cm.SpaceTCP, 7174), Private: h.Append(nil)}
		return m.Append(nil)
	}
	far := wire.AddrFrom4([4]byte{198, 18, 0, 9})
	send := func(src wire.Addr, mad []byte, change func(*roce.Packet)) packet.Verdict {
		p := roce.Packet{Opcode: roce.SendOnly.Of(roce.UD), PKey: 0xffff, DestQP: 1, SrcQP: 1, QKey: cm.QKey}
		if change != nil {
			change(&p)
		}
		b := make([]byte, 512)
		b = b[:roce.Build(b, &roce.Envelope{Src: src, Dst: c.addr, TTL: 1, SrcMAC: wire.MAC{2, 1}}, &p, mad)]
		now := c.lock.Enter()
		defer c.lock.ExitUnchanged()
		return c.input(now, b)
	}
	for name, x := range map[string]struct {
		change func(*roce.Packet)
		want   packet.Verdict
		why    transport.Reason
	}{
		"not a datagram": {func(p *roce.Packet) { p.Opcode = roce.SendOnly }, packet.DropState, transport.WrongService},
		"queue key":      {func(p *roce.Packet) { p.QKey = 1 }, packet.DropDenied, transport.WrongQKey},
		"partition":      {func(p *roce.Packet) { p.PKey = 0x8001 }, packet.DropDenied, transport.WrongPKey},
		"source":         {func(p *roce.Packet) { p.SrcQP = 2 }, packet.DropDenied, transport.WrongSource},
	} {
		if v := send(far, request(far, 1), x.change); v != x.want || c.gsi.dropped[x.why] != 1 {
			t.Errorf("%s: %v, counted %d", name, v, c.gsi.dropped[x.why])
		}
	}
	if send(far, request(c.addr, 900), nil); l.queue != nil || c.gsi.manager.HalfOpen() != 0 {
		t.Error("a request from another address than its private data names waits")
	}
	if v := send(far, request(far, 1)[:100], nil); v != packet.DropTruncated {
		t.Error(v)
	}
	for i := range 100 {
		send(far, request(far, uint32(10+i)), nil)
	}
	for i := range 100 {
		src := wire.AddrFrom4([4]byte{198, 18, 1, byte(i)})
		send(src, request(src, 7), nil)
	}
	c.lock.Enter()
	defer c.lock.ExitUnchanged()
	count := c.gsi.manager.Counters()
	if c.gsi.manager.HalfOpen() != 20 || count.Received[cm.SourceFull] != 95 || count.Received[cm.HalfOpenFull] != 85 {
		t.Errorf("%d half-open, %v", c.gsi.manager.HalfOpen(), count.Received)
	}
	for r := range cm.Reasons {
		if v := messageVerdicts[r]; v.Dropped() == (r == cm.Taken || r == cm.Duplicate) {
			t.Errorf("%v has the verdict %v", r, v)
		}
	}
}
