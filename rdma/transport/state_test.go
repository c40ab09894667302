package transport

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/rdma/memory"
	"github.com/millrace/millrace/rdma/roce"
	"github.com/millrace/millrace/wire"
)

// TestTransitions tries every change of state by Modify, of every service. The table is InfiniBand's (specification 1, table 96),
// written down once more.
func TestTransitions(t *testing.T) {
	//                       to: RESET INIT  RTR  RTS  SQD  SQE  ERR
	table := map[State]string{
		Reset:          "            y     y    -    -    -    -    y",
		Init:           "            y     y    y    -    -    -    y",
		ReadyToReceive: "            y     -    -    y    -    -    y",
		ReadyToSend:    "            y     -    -    y    y    -    y",
		Drained:        "            y     -    -    y    y    -    y",
		SendError:      "            y     -    -    y    -    -    y",
		Error:          "            y     -    -    -    -    -    y",
	}
	for _, service := range []roce.Transport{roce.RC, roce.UC, roce.UD} {
		for from := range states {
			allowed := []byte{}
			for _, c := range []byte(table[from]) {
				if c != ' ' {
					allowed = append(allowed, c)
				}
			}
			for to := range states {
				q := inState(t, service, from)
				err := q.Modify(to, goodAttr, wire.Addr{})
				want := from
				if allowed[to] == 'y' {
					want = to
				}
				if (err == nil) != (allowed[to] == 'y') || err != nil && !errors.Is(err, ErrTransition) || q.State() != want {
					t.Errorf("%v to %v: %v, now %v", from, to, err, q.State())
				}
			}
		}
	}
}

var goodAttr = Attr{MTU: 1024, DestQP: 7, Access: everything, MaxDestReads: 4, MaxReads: 4, Timeout: 14, Retries: 7, RNRRetries: 7, RNRTimer: 12}

// inState returns a queue pair in a state.
func inState(t *testing.T, service roce.Transport, s State) *QP {
	t.Helper()
	q, err := New(Config{
		Service: service, QPN: 5, PD: 1, Memory: memory.NewTable(func() uint32 { return 0 }), SendDepth: 4, Recv: NewRecvQueue(4, false, nil),
		SendDone: func(Completion) {}, RecvDone: func(Completion) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	ways := map[State][]State{
		Init: {Init}, ReadyToReceive: {Init, ReadyToReceive}, ReadyToSend: {Init, ReadyToReceive, ReadyToSend},
		Drained: {Init, ReadyToReceive, ReadyToSend, Drained}, SendError: {Init, ReadyToReceive, ReadyToSend}, Error: {Error},
	}
	for _, next := range ways[s] {
		if err := q.Modify(next, goodAttr, wire.Addr{}); err != nil {
			t.Fatal(err)
		}
	}
	if s == SendError {
		q.setState(SendError)
	}
	return q
}

// TestWhatStatesPermit posts sends and receives and gives a packet in every state.
func TestWhatStatesPermit(t *testing.T) {
	for s := range states {
		q := inState(t, roce.UC, s)
		var done []Completion
		q.cfg.SendDone = func(c Completion) { done = append(done, c) }
		q.cfg.RecvDone = q.cfg.SendDone
		send, recv := q.PostSend(&SendWR{Op: OpSend}), q.PostRecv(&RecvWR{})
		if (send == nil) != (s >= ReadyToSend) || (recv == nil) != (s != Reset) {
			t.Errorf("%v: send %v, receive %v", s, send, recv)
		}
		flushed := map[State]int{SendError: 1, Error: 2}[s]
		if len(done) != flushed || flushed > 0 && done[0].Status != Flushed {
			t.Errorf("%v: completions %+v", s, done)
		}
		f := roce.Frame{Packet: roce.Packet{Opcode: roce.SendOnly.Of(roce.UC), PKey: 0xffff}}
		if why := q.Input(0, &f); (why == Taken) != (s >= ReadyToReceive && s <= SendError) {
			t.Errorf("%v: packet %v", s, why)
		}
		sent := 0
		q.Poll(0, func(uint32, *roce.Packet, [][]byte) bool { sent++; return true })
		if (sent == 1) != (s == ReadyToSend) {
			t.Errorf("%v: %d packets sent", s, sent)
		}
	}
}

func TestAttributesAreChecked(t *testing.T) {
	change := func(f func(a *Attr)) Attr {
		a := goodAttr
		f(&a)
		return a
	}
	for _, c := range []struct {
		to State
		a  Attr
	}{
		{ReadyToReceive, change(func(a *Attr) { a.MTU = 0 })},
		{ReadyToReceive, change(func(a *Attr) { a.MTU = 8192 })},
		{ReadyToReceive, change(func(a *Attr) { a.MTU = 1000 })},
		{ReadyToReceive, change(func(a *Attr) { a.DestQP = 0 })},
		{ReadyToReceive, change(func(a *Attr) { a.DestQP = 1 << 24 })},
		{ReadyToReceive, change(func(a *Attr) { a.RecvPSN = 1 << 24 })},
		{ReadyToReceive, change(func(a *Attr) { a.RNRTimer = 32 })},
		{ReadyToReceive, change(func(a *Attr) { a.MaxDestReads = 129 })},
		{ReadyToSend, change(func(a *Attr) { a.SendPSN = 1 << 24 })},
		{ReadyToSend, change(func(a *Attr) { a.Timeout = 32 })},
		{ReadyToSend, change(func(a *Attr) { a.Retries = 8 })},
		{ReadyToSend, change(func(a *Attr) { a.RNRRetries = 8 })},
		{ReadyToSend, change(func(a *Attr) { a.MaxReads = 129 })},
	} {
		q := inState(t, roce.RC, c.to-1)
		if err := q.Modify(c.to, c.a, wire.Addr{}); !errors.Is(err, ErrAttribute) || q.State() != c.to-1 {
			t.Errorf("%v %+v: %v, now %v", c.to, c.a, err, q.State())
		}
	}
	good := Config{Service: roce.RC, SendDepth: 1, Recv: NewRecvQueue(1, false, nil)}
	for _, f := range []func(c *Config){
		func(c *Config) { c.Service = 2 }, func(c *Config) { c.SendDepth = 0 }, func(c *Config) { c.SendDepth = 1<<15 + 1 },
		func(c *Config) { c.Window = 1<<16 + 1 },
	} {
		c := good
		f(&c)
		if _, err := New(c); !errors.Is(err, ErrAttribute) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestRejectedRequests(t *testing.T) {
	sge := func(n uint32) []SGE { return []SGE{{Length: n}} }
	for _, c := range []struct {
		name    string
		service roce.Transport
		w       SendWR
	}{
		{"unknown operation", roce.RC, SendWR{Op: opsOfSends}},
		{"long list", roce.RC, SendWR{List: make([]SGE, MaxSGE+1)}},
		{"more than 2 GiB", roce.RC, SendWR{List: []SGE{{Length: 1 << 31}, {Length: 1}}}},
		{"sum that wraps", roce.RC, SendWR{List: []SGE{{Length: 1<<32 - 1}, {Length: 1}}}},
		{"inline READ", roce.RC, SendWR{Op: OpRead, Flags: Inline}},
		{"long inline", roce.RC, SendWR{Flags: Inline, Inlined: make([]byte, MaxInline+1)}},
		{"inline and a list", roce.RC, SendWR{Flags: Inline, List: sge(1)}},
		{"atomic of 4 bytes", roce.RC, SendWR{Op: OpFetchAdd, List: sge(4)}},
		{"atomic at an odd address", roce.RC, SendWR{Op: OpCompareSwap, List: sge(8), RemoteAddr: 4}},
		{"READ over UC", roce.UC, SendWR{Op: OpRead, List: sge(8)}},
		{"invalidation over UC", roce.UC, SendWR{Op: OpSendInv}},
		{"WRITE over UD", roce.UD, SendWR{Op: OpWrite}},
		{"datagram of more than the MTU", roce.UD, SendWR{Op: OpSend, List: sge(1025)}},
	} {
		q := inState(t, c.service, ReadyToSend)
		if err := q.PostSend(&c.w); !errors.Is(err, ErrRequest) || q.req.tail != 0 {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	q := inState(t, roce.RC, Init)
	if err := q.PostRecv(&RecvWR{List: make([]SGE, MaxSGE+1)}); !errors.Is(err, ErrRequest) {
		t.Errorf("receive with a long list: %v", err)
	}
	for i := range 5 {
		if err := q.PostRecv(&RecvWR{}); errors.Is(err, ErrQueueFull) != (i == 4) {
			t.Errorf("receive %d: %v", i, err)
		}
	}
	q = inState(t, roce.RC, ReadyToSend)
	for i := range 5 {
		if err := q.PostSend(&SendWR{Op: OpWrite}); errors.Is(err, ErrQueueFull) != (i == 4) {
			t.Errorf("send %d: %v", i, err)
		}
	}
}

// TestFlush has all that is posted completed in order when a queue pair goes to Error, and forgotten when it is reset.
func TestFlush(t *testing.T) {
	for _, to := range []State{Error, Reset} {
		p := newPair(t, options{})
		for i := range uint64(3) {
			p.a.receive(10+i, 0, 8)
			p.a.post(SendWR{ID: i, Op: OpWrite}) // not signaled
		}
		if err := p.a.qp.Modify(to, Attr{}, wire.Addr{}); err != nil {
			t.Fatal(err)
		}
		if to == Reset {
			if len(p.a.sends)+len(p.a.recvs)+p.a.rq.Len() > 0 {
				t.Errorf("completions of a reset: %+v %+v", p.a.sends, p.a.recvs)
			}
			continue
		}
		for i := range uint64(3) {
			if p.a.sends[i].ID != i || p.a.sends[i].Status != Flushed || p.a.recvs[i].ID != 10+i || p.a.recvs[i].Status != Flushed {
				t.Errorf("%+v %+v", p.a.sends[i], p.a.recvs[i])
			}
		}
		if p.a.timer = p.a.qp.Poll(0, p.a.output); p.a.timer != 1<<63-1 {
			t.Error("a timer is left")
		}
	}
}

// TestDrained has a queue pair complete what has begun and begin nothing new, until it is ready again.
func TestDrained(t *testing.T) {
	p := newPair(t, options{})
	p.a.post(p.a.request(1, OpWrite, 0, 1000, 0))
	p.a.room = 2
	p.a.poll()
	if err := p.a.qp.Modify(Drained, Attr{}, wire.Addr{}); err != nil {
		t.Fatal(err)
	}
	p.a.post(p.a.request(2, OpWrite, 0, 8, 0))
	p.a.room = -1
	p.run()
	if len(p.a.sends) != 1 || p.a.sends[0].ID != 1 {
		t.Errorf("drained: %+v", p.a.sends)
	}
	if err := p.a.qp.Modify(ReadyToSend, Attr{}, wire.Addr{}); err != nil {
		t.Fatal(err)
	}
	p.run()
	if len(p.a.sends) != 2 || p.a.sends[1].Status != Success {
		t.Errorf("ready again: %+v", p.a.sends)
	}
}
