package tcp

import (
	"testing"
	"time"

	"github.com/millrace/millrace/tcp/ecn"
)

// Connections that nothing happens to give up what only work needs, and work again as if they had not.
func TestIdleConnectionsAreCompacted(t *testing.T) {
	for name, o := range map[string]*Options{"cubic": nil, "bbr": {Congestion: "bbr"}, "no SACK": {NoSACK: true, NoTimestamps: true}} {
		n := newNet(t)
		a, b, _, _ := n.open(t, o, o)
		n.pour(t, a, b, 1<<18, 10*time.Second)
		n.run(compactAfter / 2)
		if a.active == nil || b.active == nil {
			t.Errorf("%s: at rest too soon", name)
		}
		// What counts from now is not of the state.
		infos := func() (i [2]Info) {
			for k, c := range []*Conn{a, b} {
				i[k] = c.Info()
				i[k].LastDataSent, i[k].LastDataReceived, i[k].LastAckReceived = 0, 0, 0
			}
			return i
		}
		want := infos()
		n.run(2 * compactAfter)
		if a.active != nil || b.active != nil {
			t.Fatalf("%s: still awake", name)
		}
		if a.Readable() != 0 || a.Unacked() != 0 || a.Finished() || a.Peek()[0] != nil {
			t.Errorf("%s: %d to read, %d not acknowledged", name, a.Readable(), a.Unacked())
		}
		if got := infos(); got != want {
			t.Errorf("%s: before it rested\n%+v\nafter\n%+v", name, want, got)
		}
		if a.sender.mss() != uint32(a.mss()) {
			t.Errorf("%s: segments of %d, want %d", name, a.sender.mss(), a.mss())
		}
		n.run(2 * compactAfter)
		if a.active != nil || b.active != nil {
			t.Errorf("%s: being looked at keeps it awake", name)
		}
		n.pour(t, b, a, 1<<18, 10*time.Second)
		n.pour(t, a, b, 1<<18, 10*time.Second)
		if r := a.Info().Retransmits + b.Info().Retransmits; r != 0 {
			t.Errorf("%s: %d segments were sent again", name, r)
		}
		n.run(2 * compactAfter)
		a.Close(n.now)
		n.run(100 * time.Millisecond)
		if !b.Finished() || b.active == nil {
			t.Errorf("%s: %v after the end", name, b.State())
		}
		n.run(2 * compactAfter) // half closed, at rest
		if b.active != nil || !b.Finished() {
			t.Errorf("%s: half closed, awake", name)
		}
		b.Close(n.now)
		n.run(100 * time.Millisecond)
		if s := n.a.m.Stats(); s.Conns != 0 || n.b.m.Stats().Conns != 0 || s.TimeWait != 1 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// What a connection has yet to do keeps it awake.
func TestConnectionsWithWorkAreNotCompacted(t *testing.T) {
	for name, work := range map[string]func(n *net, a, b *Conn) *Conn{
		"data not read": func(n *net, a, b *Conn) *Conn { a.Write(n.now, []byte("x")); return b },
		"data not acknowledged": func(n *net, a, b *Conn) *Conn {
			n.delay = time.Hour
			a.Write(n.now, []byte("x"))
			return a
		},
		"a pace to keep": func(n *net, a, b *Conn) *Conn {
			o := a.Options()
			o.MaxPacing = 100
			if a.SetOptions(n.now, &o) != nil {
				return nil
			}
			a.Write(n.now, make([]byte, 5000))
			n.run(20 * time.Millisecond)
			b.Discard(n.now, b.Readable())
			return a
		},
		"a reduction to tell": func(n *net, a, b *Conn) *Conn { a.ecn.mode, a.sender.cwr = ecn.Classic, true; return a },
	} {
		n := newNet(t)
		a, b, _, _ := n.open(t, nil, nil)
		if c := work(n, a, b); c == nil {
			t.Errorf("%s: refused", name)
		} else if n.run(3 * compactAfter); c.active == nil {
			t.Errorf("%s: at rest", name)
		}
	}
}

// Only the ECN of RFC 3168 announces a reduction: a loss without it must not keep a connection active for ever.
func TestAReductionThatNobodyAwaitsIsCompacted(t *testing.T) {
	for _, mode := range []ecn.Mode{ecn.None, ecn.Accurate} {
		n := newNet(t)
		o := &Options{ECN: ECNOff}
		if mode == ecn.Accurate {
			o.ECN = ECNAccurate
		}
		a, _, _, _ := n.open(t, o, nil)
		a.sender.cwr = true
		if n.run(3 * compactAfter); a.active != nil || a.ecn.mode != mode {
			t.Errorf("mode %v: active", a.ecn.mode)
		}
	}
}

// At rest a connection has no timer but keepalive's, which does not wake it before it is due.
func TestKeepAliveOfCompactedConnections(t *testing.T) {
	n := newNet(t)
	o := &Options{KeepAlive: KeepAlive{Idle: time.Minute}}
	a, b, _, _ := n.open(t, o, nil)
	n.run(30 * time.Second)
	if a.active != nil || b.active != nil || n.a.m.Stats().KeepAlive != 0 {
		t.Fatal("awake, or probed early")
	}
	n.run(31 * time.Second)
	if s := n.a.m.Stats(); s.KeepAlive != 1 || a.State() != StateEstablished {
		t.Errorf("%d probes, %v", s.KeepAlive, a.State())
	}
	n.run(3 * compactAfter)
	if a.active != nil || b.active != nil {
		t.Error("awake after the answer")
	}
}
