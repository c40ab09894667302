package tcp

import (
	"testing"
	"time"
)

// reading is an established connection whose application reads at times of the test's choosing. Its round-trip
// time is below leastRound.
func reading(t *testing.T) *peer {
	p := established(t, &Options{})
	p.c.tuning.since = p.now
	return p
}

// read has the application read n bytes after d, and returns the receive buffer.
func (p *peer) read(d time.Duration, n uint32) uint32 {
	p.now = p.now.Add(d)
	p.c.tuneReceive(p.now, n)
	return p.c.rcvLimit
}

// What was read in a longer time than a round trip is scaled to one: a loop that serves the connection once a
// millisecond is no reason for megabytes on a path of microseconds.
func TestReceiveBufferScalesByElapsedTime(t *testing.T) {
	p := reading(t)
	if have := p.read(leastRound-1, 1000); have != initialReceiveBuffer {
		t.Errorf("%d bytes of buffer before the round is over", have)
	}
	p = reading(t)
	perRound := uint32(1 << 20)
	if have, want := p.read(4*leastRound, 4*perRound), 3*perRound+24*p.c.fullSegmentIn(); have != want {
		t.Errorf("%d bytes of buffer, want %d: half more than twice what is read in a round", have, want)
	}
	p = reading(t)
	if have := p.read(time.Hour, 1<<20); have != initialReceiveBuffer {
		t.Errorf("%d bytes of buffer after an hour of silence", have)
	}
}

// A full window that was read at once lets the buffer grow by all of it, as long as that makes the peer faster.
func TestReceiveBufferGrowsWhereTheWindowLimits(t *testing.T) {
	p := reading(t)
	p.c.rcvAdv = p.c.rcvNxt
	first := p.read(10*time.Millisecond, 100<<10)
	if first < 300<<10 {
		t.Fatalf("%d bytes of buffer after a full window", first)
	}
	if have := p.read(100*time.Millisecond, 1200<<10); have != first {
		t.Errorf("%d bytes of buffer, though the last growth has gained a fifth only", have)
	}
	if have := p.read(10*time.Millisecond, 300<<10); have < 900<<10 {
		t.Errorf("%d bytes of buffer, though the last growth has tripled the rate", have)
	}
	p.c.rcvAdv = p.c.rcvNxt + 1000
	p.send(seg{flags: ackF, seq: 1, ack: 1, win: 10000, n: 10})
	p.c.rcvAdv = p.c.rcvNxt
	before := p.c.rcvLimit
	if have := p.read(10*time.Millisecond, 1<<20); have != before {
		t.Errorf("%d bytes of buffer, though the application leaves data unread", have)
	}
	p.c.Read(p.now, make([]byte, 10))
	p.c.rcvAdv = p.c.rcvNxt + p.c.fullSegmentIn()
	if have := p.read(10*time.Millisecond, 1<<20); have != before {
		t.Errorf("%d bytes of buffer where the window was not full", have)
	}
}

// A hole keeps data from the application for longer than a round trip. The window that fills meanwhile limits the
// peer, however fast the data is read then.
func TestReceiveBufferCoversTheRepairOfAHole(t *testing.T) {
	p := reading(t)
	p.c.rcvAdv = p.c.rcvNxt
	p.c.tuning.rate = 1 << 30 // of data that a hole has held back before
	if have := p.read(10*time.Millisecond, 100<<10); have != initialReceiveBuffer {
		t.Fatalf("%d bytes of buffer without a hole", have)
	}
	p.c.tuning.hole = true
	grown := p.read(10*time.Millisecond, 100<<10)
	if grown < 300<<10 {
		t.Errorf("%d bytes of buffer after a hole", grown)
	}
	if have := p.read(10*time.Millisecond, 200<<10); have != grown {
		t.Errorf("%d bytes of buffer in the round after it", have)
	}
}

// The receiver's round-trip time is the least of the last period, so that it follows a path that became longer.
// Each echo counts once, and of full segments only: others may have waited for the application.
func TestReceiveRTTIsTheLeastOfLate(t *testing.T) {
	p := stampedPeer(t)
	c := p.c
	c.largestIn = 1000
	echo := func(after, rtt time.Duration, n uint32, want time.Duration) {
		t.Helper()
		p.now = p.now.Add(after)
		s := Segment{Len: n}
		s.Options.HasTimestamps, s.Options.TSEcr = true, timestamp(p.now.Add(-rtt))+c.tsOffset
		c.measureReceive(p.now, &s)
		if have := time.Duration(c.tuning.rtt-1) * time.Microsecond; have.Round(time.Millisecond) != want {
			t.Errorf("round-trip time %v, want %v", have, want)
		}
	}
	const ms, period = time.Millisecond, receiveRTTPeriod
	echo(0, 30*ms, 1000, 30*ms)
	echo(40*ms, 20*ms, 1000, 20*ms)
	echo(10*ms, 30*ms, 1000, 20*ms) // the same echo
	echo(40*ms, 5*ms, 999, 20*ms)
	echo(40*ms, 80*ms, 1000, 20*ms)
	echo(period, 90*ms, 1000, 20*ms) // the least of the period that ends is 20
	echo(period/2, 70*ms, 1000, 20*ms)
	echo(period, 90*ms, 1000, 70*ms)
	c.sender.scoreboard.MeasuredRTT(p.now, 69500*time.Microsecond)
	if have, srtt := c.receiveRTT(), c.sender.scoreboard.SRTT(); have != max(srtt, 69*ms) {
		t.Errorf("round-trip time %v beside the sender's %v", have, srtt)
	}
}

// TestCloseReadUpdatesTheWindowForFreedBytes is RFC 9293 3.8.6.2.2: unread bytes that CloseRead drops open the window,
// and the peer learns of it.
func TestCloseReadUpdatesTheWindowForFreedBytes(t *testing.T) {
	for _, unread := range []bool{false, true} {
		o := bare()
		o.ReceiveBuffer = 8000
		p := established(t, o)
		for i := range 5 {
			p.send(seg{flags: ackF | psh, seq: uint32(1 + i*1000), ack: 1, win: 10000, n: 1000})
		}
		if !unread {
			p.c.Discard(p.now, p.c.Readable())
		}
		p.after(time.Second)
		p.e.out = nil
		p.c.CloseRead(p.now)
		p.poll()
		if sent := len(p.e.out) > 0; sent != unread {
			t.Errorf("unread %v: window update %v", unread, sent)
		}
	}
}
