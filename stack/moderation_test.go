package stack

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
)

// TestPausesFollowTheFlows has flows send a packet each in turn, and looks at the pause that follows.
func TestPausesFollowTheFlows(t *testing.T) {
	const us = time.Microsecond
	for name, c := range map[string]struct {
		flows int
		gap   time.Duration // between two packets of all flows
		want  time.Duration
	}{
		"no packets":                      {0, 0, 0},
		"one flow, answer by answer":      {1, 30 * us, 0},
		"one flow, bulk":                  {1, 2500, 0},
		"four flows, answer by answer":    {4, 7 * us, 0},
		"too few flows for a burst":       {31, 5 * us, 0},
		"enough flows":                    {32, 5 * us, 20 * us},
		"more flows":                      {48, 5 * us, 30 * us},
		"many flows":                      {64, 6 * us, 48 * us},
		"the longest gap for a burst":     {64, maxPause / pausePackets, maxPause},
		"many flows, but seldom":          {64, maxPause/pausePackets + 100, 0},
		"many flows, hardly ever":         {200, 300 * us, 0},
		"32 flows, the shortest pause":    {32, 2500, minPause},
		"32 flows, too fast for a pause":  {32, 2400, 0},
		"more flows than a window counts": {1000, 6 * us, maxPause},
	} {
		l := &Loop{}
		m := &moderation{}
		now := clock.Time(0)
		for i := 0; now < clock.Time(3*moderationWindow); i++ {
			if c.flows == 0 {
				now = now.Add(us)
			} else {
				m.note(&packet.Batch{D: []packet.Desc{{Hash: uint32(i%c.flows) << 24}}})
				l.count.Received++
				now = now.Add(c.gap)
			}
			m.update(now, l.count.Received)
		}
		if d := m.pause - c.want; d < -us || d > us {
			t.Errorf("%s: it pauses %v, want %v", name, m.pause, c.want)
		}
	}
}

// TestPausesEndWithTheTraffic: what a window has decided holds for the next one only.
func TestPausesEndWithTheTraffic(t *testing.T) {
	m := &moderation{flows: [4]uint64{1<<63 - 1}}
	m.update(clock.Time(moderationWindow)-1, 100)
	if m.pause != 0 {
		t.Error("decided before the end of the window")
	}
	m.update(clock.Time(moderationWindow), 100)
	if m.pause != maxPause {
		t.Fatalf("63 flows with 100 packets in 1 ms: pauses %v", m.pause)
	}
	for n, want := range map[uint64]bool{0: false, 1: true, fullBurst - 1: true, fullBurst: false} {
		if m.pauses(n) != want {
			t.Errorf("after a burst of %d: not %v", n, want)
		}
	}
	m.update(clock.Time(2*moderationWindow), 100)
	if m.pause != 0 || m.pauses(1) {
		t.Errorf("it still pauses %v after a window without packets", m.pause)
	}
}

// TestWhichLoopsPause changes one thing at a time.
func TestWhichLoopsPause(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Loop)
		want   bool
	}{
		"files everywhere":      {func(*Loop) {}, true},
		"a device without file": {func(l *Loop) { l.devices[1].info.Caps = 0 }, false},
		"a fixed spin":          {func(l *Loop) { l.cfg.Spin = time.Microsecond }, false},
	} {
		w := newWorld(t)
		for i := range w.loop.devices {
			w.loop.devices[i].info.Caps = pmd.CapPoll
		}
		w.loop.count.Received = 7
		c.change(w.loop)
		m := w.loop.moderate(5)
		if (m != nil) != c.want {
			t.Errorf("%s: not %v", name, c.want)
		}
		if m != nil && (m.since != 5 || m.received != 7) {
			t.Errorf("%s: the first window begins at %v with %d packets", name, m.since, m.received)
		}
	}
}

// TestOutputLeavesBeforeAPause: what goroutines have left to the loop is sent, and a loop with work does
// not pause.
func TestOutputLeavesBeforeAPause(t *testing.T) {
	w := newWorld(t)
	w.hand.every = clock.Time(time.Hour)
	w.loop.Poll(Now())
	ticks := len(w.hand.ticks)
	if err := w.loop.out.Send(0, []byte{1}); err != nil {
		t.Fatal(err)
	}
	w.loop.out.RequestTick()
	if !w.loop.flushBeforePause() || len(w.port[0].sent) != 1 || len(w.hand.ticks) != ticks+1 || w.loop.count.Sleeps != 1 {
		t.Errorf("sent %d, ticks %d more, sleeps %d", len(w.port[0].sent), len(w.hand.ticks)-ticks, w.loop.count.Sleeps)
	}
	if w.loop.flushBeforePause(); len(w.hand.ticks) != ticks+1 {
		t.Error("Tick was called before it was due")
	}
	w.port[0].room = 0 // a full transmit ring
	if err := w.loop.out.Send(0, []byte{1}); err != nil {
		t.Fatal(err)
	}
	if w.loop.flushBeforePause() {
		t.Error("it pauses with packets to send")
	}
	w.port[0].room = 1
	w.eng.late, w.eng.polls = 1, 0
	w.port[0].in = [][]packet.Desc{w.packets(t, 1, packet.DropRule, 0)}
	w.loop.Poll(0)
	if w.loop.flushBeforePause() {
		t.Error("it pauses while the engine works")
	}
	w.loop.Poll(0)
	w.settled(t)
}

// turns is a device on which 64 flows send a packet each in turn, one every 5 us.
type turns struct {
	script
	begin clock.Time
	sent  int
}

func (d *turns) Rx(now clock.Time, b *packet.Batch) (int, error) {
	n := 0
	for ; n < b.Room() && d.begin.Add(time.Duration(d.sent)*5*time.Microsecond) <= now; n++ {
		off, ok := d.pool.Get()
		if !ok {
			break
		}
		b.Append(packet.Desc{Off: off, Len: 60, Hash: uint32(d.sent)%64<<24 | uint32(packet.DropRule)})
		d.sent++
	}
	return n, nil
}

func TestAServedLoopPauses(t *testing.T) {
	w := newWorld(t)
	w.hand.every = clock.Time(time.Hour)
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for i := range w.loop.devices {
		w.loop.devices[i].info = pmd.Info{Caps: pmd.CapPoll, FD: fd}
	}
	w.loop.devices[0].drv = &turns{script: script{pool: w.pool}, begin: Now()}
	stop := w.serving(t)
	until(t, "200 pauses", func() bool { return w.loop.Stats().Sleeps >= 200 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if s := w.settled(t); s.Received < 2*s.Sleeps || s.Dropped[packet.DropRule] != s.Received {
		t.Errorf("%d packets in %d pauses, %d dropped by the rule", s.Received, s.Sleeps, s.Dropped[packet.DropRule])
	}
}
