package tcp

import (
	"math/bits"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

func TestInitialSequenceIsAClockPlusASecret(t *testing.T) { // RFC 6528 3
	s := newSecrets(&[32]byte{1})
	a, b := from(1), from(2)
	now := clock.Time(time.Hour)
	for _, d := range []time.Duration{4 * time.Microsecond, time.Second, time.Hour} {
		got := s.initialSequence(now.Add(d), &a) - s.initialSequence(now, &a)
		if want := uint32(d / (4 * time.Microsecond)); got != want {
			t.Errorf("in %v it moves on by %d, want %d", d, got, want)
		}
	}
	other := newSecrets(&[32]byte{2})
	distances := map[uint32]bool{}
	for _, d := range []uint32{
		s.initialSequence(now, &a) - s.initialSequence(now, &b),
		s.initialSequence(now, &a) - other.initialSequence(now, &a),
		s.timestampOffset(&a) - s.timestampOffset(&b),
		s.timestampOffset(&a) - s.initialSequence(0, &a),
	} {
		if n := bits.OnesCount32(d); n < 4 || n > 28 {
			t.Errorf("a distance of %#x: not random", d)
		}
		distances[d] = true
	}
	if len(distances) != 4 {
		t.Error("distances repeat")
	}
	port := a
	port.RemotePort++
	if s.initialSequence(now, &a) == s.initialSequence(now, &port) {
		t.Error("ports do not count")
	}
}

func TestSequenceAbove(t *testing.T) {
	for _, c := range []struct{ iss, last, want uint32 }{
		{10, 5, 10}, {5, 5, 5 + 1<<16 + 1}, {4, 5, 5 + 1<<16 + 1}, {3, 0xfffffff0, 3}, {0xfffffff0, 3, 3 + 1<<16 + 1},
	} {
		if got := sequenceAbove(c.iss, c.last); got != c.want {
			t.Errorf("%d after %d: %d, want %d", c.iss, c.last, got, c.want)
		}
	}
}

func TestPortsAreEachTriedOnce(t *testing.T) { // RFC 6056 3.3.4
	p := portChooser{key: sipKey{1, 2}}
	tuple := from(1)
	seen := map[uint16]int{}
	if p.choose(&tuple, portCount, func(t *wire.Tuple) bool { seen[t.LocalPort]++; return false }) || tuple.LocalPort != 0 {
		t.Errorf("chose %d", tuple.LocalPort)
	}
	if len(seen) != portCount || seen[firstPort] != 1 || seen[lastPort] != 1 {
		t.Errorf("tried %d ports, want %d", len(seen), portCount)
	}
}

func TestPortsIncreasePerDestinationAndRevealNothing(t *testing.T) {
	p := portChooser{key: sipKey{1, 2}}
	yes := func(*wire.Tuple) bool { return true }
	a, last := from(1), 0
	for i := range 100 {
		if !p.choose(&a, portCount, yes) {
			t.Fatal("none")
		}
		if i > 0 && (int(a.LocalPort)-last+portCount)%portCount != 1 {
			t.Errorf("port %d after %d", a.LocalPort, last)
		}
		last = int(a.LocalPort)
	}
	first := map[uint16]bool{}
	for i := range 1000 {
		b := from(i)
		p.choose(&b, portCount, yes)
		first[b.LocalPort] = true
	}
	if len(first) < 950 {
		t.Errorf("1000 destinations begin with %d ports", len(first))
	}
}

func TestConnectTakesPortsThatOwnsApproves(t *testing.T) {
	d := newMuxTest(t, func(c *Config) { c.Owns = func(t *wire.Tuple) bool { return t.LocalPort%8 == 3 } })
	l, _ := d.m.Listen(wire.Addr{}, firstPort+3, 1, nil, nil)
	for range 2 * portCount / 8 {
		tuple := from(1)
		if err := d.m.choosePort(d.now, &tuple, func(t *wire.Tuple) bool { return t.LocalPort == firstPort+11 }); err != nil {
			t.Fatal(err)
		}
		if p := tuple.LocalPort; p%8 != 3 || p == firstPort+3 || p == firstPort+11 {
			t.Fatalf("port %d", p)
		}
	}
	l.Close(d.now)
}
