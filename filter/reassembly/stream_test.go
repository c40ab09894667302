package reassembly

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// collect adds segments and returns what was delivered.
type collector struct {
	s      Stream
	got    []byte
	events Event
}

func (c *collector) add(seq uint32, data string) {
	n, ev := c.s.Add(seq, []byte(data))
	c.take(n, ev)
}

func (c *collector) take(n int, ev Event) {
	w, _ := c.s.Window()
	c.got = append(c.got, w[len(w)-n:]...)
	c.events |= ev
}

func TestSegmentsAreDeliveredOnceInOrder(t *testing.T) {
	const first = 0xfffffff0 // the numbers wrap
	c := &collector{}
	c.s.Start(&Config{}, first)
	for _, seg := range []struct {
		at   uint32
		data string
	}{{0, "abcd"}, {8, "ijkl"}, {6, "ghij"}, {0, "ab"}, {20, "uvwx"}, {12, "mnopqrstuv"}, {0xffffffff, "?a"}, {3, "defgh"}, {4, "efghijklmnopqrstuvwxyz"}} {
		c.add(first+seg.at, seg.data)
	}
	if string(c.got) != "abcdefghijklmnopqrstuvwxyz" || c.events != 0 || c.s.Queued() != 0 {
		t.Errorf("%q, events %b, %d queued", c.got, c.events, c.s.Queued())
	}
}

func TestDifferentBytesAreAConflict(t *testing.T) {
	for name, segs := range map[string][]struct {
		at   uint32
		data string
	}{
		"delivered":        {{0, "abcd"}, {1, "bX"}},
		"queued":           {{4, "efgh"}, {5, "fX"}},
		"queued, covered":  {{4, "efgh"}, {2, "cdeXghij"}},
		"queued, then new": {{4, "ef"}, {0, "abcdeX"}},
	} {
		c := &collector{}
		c.s.Start(&Config{}, 0)
		for i, s := range segs {
			if c.add(s.at, s.data); (c.events&Conflict != 0) != (i == 1) {
				t.Errorf("%s: segment %d: events %b", name, i, c.events)
			}
		}
		if bytes.Contains(c.got, []byte("X")) {
			t.Errorf("%s: %q has bytes that came later", name, c.got)
		}
	}
}

func TestGapIsGivenUp(t *testing.T) {
	c := &collector{}
	c.s.Start(&Config{Queue: 8}, 0)
	c.add(0, "ab")
	c.add(4, "efgh")
	c.add(8, "ijkl")
	if string(c.got) != "ab" || c.events != 0 {
		t.Fatalf("%q %b before the queue is full", c.got, c.events)
	}
	c.add(12, "m")
	if string(c.got) != "abefghijklm" || c.events != Gap {
		t.Errorf("%q, events %b", c.got, c.events)
	}
	if _, from := c.s.Window(); from != 4 {
		t.Errorf("the window begins at %d, want behind the gap", from)
	}
	c.add(2, "cd")
	if string(c.got) != "abefghijklm" {
		t.Errorf("%q: bytes of the gap came out of order", c.got)
	}
}

func TestAcknowledgedGapIsGivenUp(t *testing.T) {
	c := &collector{}
	c.s.Start(&Config{}, 100)
	c.add(104, "ef")
	c.take(c.s.Acked(104))
	if len(c.got) != 0 {
		t.Fatalf("%q before it was acknowledged", c.got)
	}
	c.take(c.s.Acked(106))
	if string(c.got) != "ef" || c.events != Gap {
		t.Errorf("%q, events %b", c.got, c.events)
	}
}

// held returns what is allocated for a stream.
func held(s *Stream) int {
	n := cap(s.window) + cap(s.queue)*placeSize
	for _, q := range s.queue {
		n += q.size()
	}
	return n
}

func TestWindowAndBudgetAreBounded(t *testing.T) {
	b := &Budget{Max: 1500}
	cfg := &Config{Keep: 100, Budget: b}
	var s, o Stream
	s.Start(cfg, 0)
	o.Start(cfg, 0)
	for i := range 100 {
		if _, ev := s.Add(uint32(i*50), make([]byte, 50)); ev != 0 {
			t.Fatalf("segment %d: %b", i, ev)
		}
		if w, from := s.Window(); len(w) > 250 || from+uint64(len(w)) != uint64(i+1)*50 {
			t.Fatalf("window of %d bytes from %d", len(w), from)
		}
	}
	if _, ev := o.Add(10, make([]byte, 900)); ev != Full {
		t.Errorf("events %b beyond the budget, want Full", ev)
	}
	if b.Used() > 1500 {
		t.Errorf("%d bytes", b.Used())
	}
	s.Close()
	o.Close()
	if b.Used() != 0 {
		t.Errorf("%d bytes are still counted", b.Used())
	}
}

// TestRandomSegments compares with the text that was cut.
func TestRandomSegments(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		text := make([]byte, 1+rng.IntN(2000))
		for i := range text {
			text[i] = byte(rng.Uint32())
		}
		b := &Budget{Max: 1 << 20}
		c := &collector{}
		first := rng.Uint32()
		c.s.Start(&Config{Keep: 64, Budget: b}, first)
		for len(c.got) < len(text) {
			at := rng.IntN(len(text))
			n := 1 + rng.IntN(len(text)-at)
			c.add(first+uint32(at), string(text[at:at+n]))
			if b.Used() != held(&c.s) {
				t.Fatalf("budget %d, held %d", b.Used(), held(&c.s))
			}
		}
		if !bytes.Equal(c.got, text) || c.events != 0 {
			t.Fatalf("%d bytes, want %d; events %b", len(c.got), len(text), c.events)
		}
	}
}

// TestPiecesAreBounded sends single bytes with gaps between them: what waits stays small, and with it the work of the next.
func TestPiecesAreBounded(t *testing.T) {
	for _, hold := range []bool{false, true} {
		b := &Budget{Max: 1 << 20}
		var s Stream
		s.Start(&Config{Budget: b, Hold: hold}, 0)
		refused, gaps := 0, 0
		for i := range 100_000 {
			_, ev := s.Add(uint32(2*(i*7919%100_000)+1), []byte{'x'})
			if len(s.queue) > maxPieces+1 {
				t.Fatalf("hold %v: %d pieces wait", hold, len(s.queue))
			}
			refused += int(ev & Full / Full)
			gaps += int(ev & Gap / Gap)
		}
		if want := held(&s); b.Used() != want {
			t.Errorf("hold %v: %d bytes are counted, want %d", hold, b.Used(), want)
		}
		switch {
		case hold && (refused < 90_000 || gaps > 0 || len(s.queue) != maxPieces):
			t.Errorf("hold: %d segments refused, %d gaps given up, %d pieces", refused, gaps, len(s.queue))
		case !hold && (gaps == 0 || refused > 0):
			t.Errorf("%d segments refused, %d gaps given up", refused, gaps)
		}
		s.Close()
		if b.Used() != 0 {
			t.Errorf("hold %v: %d bytes are still counted", hold, b.Used())
		}
	}
}

// TestPiecesCostMemory: the budget counts them, not their bytes alone.
func TestPiecesCostMemory(t *testing.T) {
	b := &Budget{Max: 10*leastPiece + 16*placeSize}
	var s Stream
	s.Start(&Config{Budget: b}, 0)
	for i := range 10 {
		if _, ev := s.Add(uint32(2*i+2), []byte{'x'}); ev != 0 {
			t.Fatalf("piece %d: events %b", i, ev)
		}
	}
	if _, ev := s.Add(100, []byte{'x'}); ev != Full {
		t.Errorf("events %b, want Full", ev)
	}
}

// FuzzStream reads operations: offset, length and a byte to fill; every byte is delivered at most once, in order,
// and is one that was sent there first.
func FuzzStream(f *testing.F) {
	f.Add([]byte{0, 4, 'a', 8, 4, 'b', 2, 10, 'a', 200, 1, 'x'})
	f.Add([]byte{4, 4, 'a', 0, 4, 'b', 0, 8, 'c', 30, 250, 'd', 255, 0, 0})
	f.Fuzz(func(t *testing.T, ops []byte) {
		b := &Budget{Max: 3000}
		c := &collector{}
		c.s.Start(&Config{Keep: 32, Queue: 200, Budget: b}, 7)
		before := uint64(0)
		for ; len(ops) >= 3; ops = ops[3:] {
			seq := 7 + uint32(ops[0]) + uint32(before)&^63
			n, ev := 0, Event(0)
			if ops[1] == 0 {
				n, ev = c.s.Acked(seq)
			} else {
				n, ev = c.s.Add(seq, bytes.Repeat(ops[2:3], int(ops[1])))
			}
			w, from := c.s.Window()
			if n < 0 || n > len(w) || from+uint64(len(w)) != c.s.Next() || c.s.Next() < before {
				t.Fatalf("%d new of %d from %d, next %d, before %d", n, len(w), from, c.s.Next(), before)
			}
			if ev&Gap == 0 && c.s.Next() != before+uint64(n) {
				t.Fatalf("%d new bytes from %d to %d without a gap", n, before, c.s.Next())
			}
			if b.Used() > b.Max || b.Used() != held(&c.s) || b.Used() != c.s.counted {
				t.Fatalf("budget %d, held %d, counted %d", b.Used(), held(&c.s), c.s.counted)
			}
			before = c.s.Next()
		}
		c.s.Close()
		if b.Used() != 0 {
			t.Fatalf("%d bytes are still counted", b.Used())
		}
	})
}

// A byte that is left out is no part of the text; what is sent again keeps its place, and what waits moves up.
func TestSkippedBytesAreLeftOut(t *testing.T) {
	for _, at := range []uint32{0, 3, 5} {
		const text = "abcdefgh"
		c := &collector{}
		c.s.Start(&Config{}, 100)
		wire := text[:at] + "X" + text[at:]
		if at < 5 {
			c.add(100+6, wire[6:7]) // before the gap is filled
		}
		c.add(100, wire[:at])
		c.s.Skip(100 + at + 1) // not the next
		c.s.Skip(100 + at)
		c.add(100+at+1, wire[at+1:])
		for i := range len(wire) { // all of it again, but for the byte that is none
			if i != int(at) {
				c.add(100+uint32(i), wire[i:i+1])
			}
		}
		if string(c.got) != text || c.events != 0 || c.s.Queued() != 0 || !c.s.Reaches(100) || c.s.Reaches(100+10) {
			t.Errorf("at %d: %q, events %b, %d queued", at, c.got, c.events, c.s.Queued())
		}
	}
	var s Stream
	if s.Skip(1); s.Reaches(1) {
		t.Error("a stream that was not started reaches")
	}
}
