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
	if have := p.read(10*time.Millisecond, 120<<10); have != first {
		t.Errorf("%d bytes of buffer, though the last growth has gained a fifth only", have)
	}
	if have := p.read(10*time.Millisecond, 300<<10); have < 900<<10 {
		t.Errorf("%d bytes of buffer, though the last growth has tripled the rate", have)
	}
	p.c.rcvAdv = p.c.rcvNxt + p.c.fullSegmentIn()
	if before, have := p.c.rcvLimit, p.read(10*time.Millisecond, 1<<20); have != before {
		t.Errorf("%d bytes of buffer where the window was not full", have)
	}
}

// The receiver's round-trip time is the least of the last period, so that it follows a path that became longer.
func TestReceiveRTTIsTheLeast(t *testing.T) {
	var r receiveTuning
	for _, d := range []time.Duration{30, 20, 25} {
		r.sample(d * time.Millisecond)
	}
	if r.rtt != 20_001 || r.low != 20_001 {
		t.Errorf("rtt %d, low %d", r.rtt, r.low)
	}
}
