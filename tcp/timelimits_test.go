package tcp

import (
	"testing"
	"time"

	"github.com/millrace/millrace/wire"
)

// TestSYNRetries: the SYN is sent so often again, and no more; the timeout behind the last one ends the attempt.
func TestSYNRetries(t *testing.T) {
	for retries, want := range map[int]time.Duration{
		0: synRetransmitLimit, 1: 3 * time.Second, 3: 15 * time.Second, 6: 127 * time.Second, 8: (127 + 120 + 120) * time.Second,
	} {
		o := bare()
		o.SYNRetries = retries
		p := newPeer(t, o)
		p.after(want - ms)
		p.state(StateSynSent, nil)
		if n := len(p.e.out); retries != 0 && n != retries+1 {
			t.Errorf("%d retries: %d SYNs", retries, n)
		}
		p.after(2 * ms)
		p.state(StateClosed, ErrTimeout)
	}
	o := bare()
	o.SYNRetries, o.UserTimeout = 3, 5*time.Second // Linux has the latter decide, too
	p := newPeer(t, o)
	p.after(5*time.Second + ms)
	p.state(StateClosed, ErrTimeout)
}

// TestOrphanTime: how long FIN-WAIT-2 lasts after Close, in both orders of Close and the ACK of the FIN.
func TestOrphanTime(t *testing.T) {
	for limit, want := range map[time.Duration]time.Duration{0: orphanTime, 5 * time.Second: 5 * time.Second} {
		o := bare()
		o.OrphanTime = limit
		closed := established(t, o)
		closed.c.Close(closed.now)
		closed.poll()
		closed.send(seg{flags: ackF, seq: 1, ack: 2, win: 1000})
		half := established(t, o)
		half.c.CloseWrite(half.now)
		half.poll()
		half.send(seg{flags: ackF, seq: 1, ack: 2, win: 1000})
		half.after(time.Hour)
		half.c.Close(half.now)
		half.poll()
		for name, p := range map[string]*peer{"Close before the ACK": closed, "Close in FIN-WAIT-2": half} {
			p.expect(seg{flags: fin | ackF, seq: 1, ack: 1})
			p.after(want - ms)
			if n := p.e.m.Stats().Conns; n != 1 {
				t.Fatalf("%v, %s: %d connections", limit, name, n)
			}
			p.quiet()
			p.after(2 * ms)
			if n := p.e.m.Stats().Conns; n != 0 {
				t.Errorf("%v, %s: %d connections", limit, name, n)
			}
			p.expect(seg{flags: rst | ackF, seq: 2, ack: 1})
		}
	}
}

// TestNoOrphans ends what would be in FIN-WAIT-2 without an application at once.
func TestNoOrphans(t *testing.T) {
	o := bare()
	o.OrphanTime = NoOrphans
	p := established(t, o)
	p.c.Close(p.now)
	p.poll()
	p.expect(seg{flags: fin | ackF, seq: 1, ack: 1})
	p.send(seg{flags: ackF, seq: 1, ack: 2, win: 1000})
	p.expect(seg{flags: rst | ackF, seq: 2, ack: 1})
	if n := p.e.m.Stats().Conns; n != 0 {
		t.Errorf("%d connections", n)
	}
	p = established(t, o)
	p.c.CloseWrite(p.now)
	p.poll()
	p.expect(seg{flags: fin | ackF, seq: 1, ack: 1})
	p.send(seg{flags: ackF, seq: 1, ack: 2, win: 1000})
	p.state(StateFinWait2, nil)
	p.c.Close(p.now)
	p.poll()
	p.expect(seg{flags: rst | ackF, seq: 2, ack: 1})
	if n := p.e.m.Stats().Conns; n != 0 {
		t.Errorf("%d connections", n)
	}
}

// TestWindowClamp: no window beyond it is announced, in the SYN and later, and it opens again as data is read; what was
// announced before stays (RFC 9293 3.8.6).
func TestWindowClamp(t *testing.T) {
	o := bare()
	o.WindowClamp = 2048
	p := newPeer(t, o)
	if b := p.expect(seg{flags: syn}); b.Window() != 2048 {
		t.Errorf("a SYN with a window of %d", b.Window())
	}
	p.send(seg{flags: syn | ackF, ack: 1, win: 10000, opts: wire.AppendMSS(nil, 1000)})
	p.expect(seg{flags: ackF, seq: 1, ack: 1})
	buf := make([]byte, 4000)
	for at := uint32(1); at < 40_000; {
		for range 2 {
			p.send(seg{flags: ackF, seq: at, ack: 1, win: 10000, n: 1000})
			at += 1000
		}
		p.after(time.Second)
		if n := p.c.Read(p.now, buf); n != 2000 {
			t.Fatalf("%d bytes", n)
		}
		p.poll()
		opened := false
		for _, w := range p.e.out {
			b := wire.TCP(w.bytes)
			if b.Window() > 2048 {
				t.Fatalf("a window of %d", b.Window())
			}
			opened = b.Ack()-p.irs == at && b.Window() == 2048
		}
		if !opened {
			t.Fatalf("the window is closed at %d", at)
		}
		p.e.out = nil
	}

	p = established(t, bare())
	more := p.c.Options()
	more.WindowClamp = 1000
	if err := p.c.SetOptions(p.now, &more); err != nil {
		t.Fatal(err)
	}
	edge := p.c.rcvAdv
	p.send(seg{flags: ackF, seq: 1, ack: 1, win: 10000, n: 1000})
	p.after(time.Second)
	if b := p.expect(seg{flags: ackF, seq: 1, ack: 1001}); b.Ack()+uint32(b.Window()) != edge {
		t.Errorf("the edge moves by %d", int32(b.Ack()+uint32(b.Window())-edge))
	}
	for name, bad := range map[string]Options{"SYNRetries": {SYNRetries: -1}, "OrphanTime": {OrphanTime: -2}, "WindowClamp": {WindowClamp: -1}} {
		if err := p.c.SetOptions(p.now, &bad); err != ErrBadOption {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSYNRetriesAreOfConnect: an answer to the SYN of the peer is sent for as long as without them.
func TestSYNRetriesAreOfConnect(t *testing.T) {
	p := inState(t, StateSynReceived)
	o := p.c.Options()
	o.SYNRetries = 1
	if err := p.c.SetOptions(p.now, &o); err != nil {
		t.Fatal(err)
	}
	p.after(synRetransmitLimit - 10*time.Second)
	p.state(StateSynReceived, nil)
}

// TestASmallWindowClampMovesOn: less than a segment, in steps of the peer's segments, and after the buffer was full.
func TestASmallWindowClampMovesOn(t *testing.T) {
	o := bare()
	o.WindowClamp, o.ReceiveBuffer = 600, 4096
	p := newPeer(t, o)
	p.expect(seg{flags: syn})
	p.send(seg{flags: syn | ackF, ack: 1, win: 10000, opts: wire.AppendMSS(nil, 1000)})
	p.expect(seg{flags: ackF, seq: 1, ack: 1})
	window := func(at uint32) uint16 {
		t.Helper()
		p.after(time.Second)
		last := uint16(0)
		for _, w := range p.e.out {
			if b := wire.TCP(w.bytes); b.Ack()-p.irs == at {
				last = b.Window()
			}
		}
		p.e.out = nil
		return last
	}
	at := uint32(1)
	for at < 3000 {
		p.send(seg{flags: ackF, seq: at, ack: 1, win: 10000, n: 500})
		if at += 500; window(at) < 500 {
			t.Fatalf("the window is closed at %d", at)
		}
	}
	for range 10 {
		p.send(seg{flags: ackF, seq: at, ack: 1, win: 10000, n: int(p.c.rcvAdv - p.c.rcvNxt)})
		at = p.c.rcvNxt - p.irs
		p.after(time.Second)
	}
	p.send(seg{flags: ackF, seq: at, ack: 1, win: 10000, n: 1}) // a probe
	if w := window(at); w != 0 {
		t.Fatalf("a window of %d with a full buffer", w)
	}
	p.c.Read(p.now, make([]byte, 8192))
	p.poll()
	if w := window(at); w != 600 {
		t.Errorf("a window of %d when all is read", w)
	}
}
