package reassembly

import (
	"math/rand/v2"
	"runtime"
	"testing"
)

// heap returns the bytes of the heap that are in use.
func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what the first has found unused, sweeping
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestTheBudgetHoldsForTheHeap fills a budget with streams of several kinds, and compares the heap with it.
func TestTheBudgetHoldsForTheHeap(t *testing.T) {
	const segment = 1300
	data := make([]byte, 300_000)
	kinds := map[string]func(s *Stream, r *rand.Rand){
		"a few bytes": func(s *Stream, r *rand.Rand) { s.Add(0, data[:1+r.IntN(200)]) },
		"just over a size": func(s *Stream, _ *rand.Rand) {
			for i := range 26 {
				s.Add(uint32(i*segment), data[:segment])
			}
		},
		"long": func(s *Stream, _ *rand.Rand) {
			for i := range 200 {
				s.Add(uint32(i*segment), data[:segment])
			}
		},
		"pieces of one byte": func(s *Stream, _ *rand.Rand) {
			for i := range 900 {
				s.Add(uint32(2*i+1), data[:1])
			}
		},
		"pieces that were drained": func(s *Stream, _ *rand.Rand) {
			for i := range 900 {
				s.Add(uint32(2*i+1), data[:1])
			}
			for i := range 900 {
				s.Add(uint32(2*i), data[:1])
			}
		},
		"a queue that was drained": func(s *Stream, _ *rand.Rand) {
			for i := range 180 {
				s.Add(uint32((i+1)*segment), data[:segment])
			}
			s.Add(0, data[:segment])
		},
		"then quiet": func(s *Stream, _ *rand.Rand) {
			for i := range 200 {
				s.Add(uint32(i*segment), data[:segment])
			}
			s.Shrink(2 << 10)
		},
		"closed": func(s *Stream, r *rand.Rand) {
			for i := range 1 + r.IntN(60) {
				s.Add(uint32(i*segment), data[:segment])
			}
			s.Close()
		},
	}
	for name, fill := range kinds {
		for _, hold := range []bool{false, true} {
			b := &Budget{Max: 1 << 20}
			cfg := &Config{Budget: b, Hold: hold}
			streams := make([]Stream, 1_000)
			r := rand.New(rand.NewPCG(1, 2))
			before := heap()
			for i := range streams {
				streams[i].Start(cfg, 0)
				fill(&streams[i], r)
			}
			got := heap() - before
			if most := b.Max + b.Max/32; got > most {
				t.Errorf("%s, hold %v: %d bytes of heap, the budget has %d and says %d are used", name, hold, got, b.Max, b.Used())
			}
			if got > b.Used()+b.freeBytes+b.Max/32 {
				t.Errorf("%s, hold %v: %d bytes of heap, the budget says %d are used", name, hold, got, b.Used())
			}
			for i := range streams {
				streams[i].Close()
			}
			if b.Used() != 0 {
				t.Errorf("%s, hold %v: %d bytes are used without streams", name, hold, b.Used())
			}
			runtime.KeepAlive(streams)
		}
	}
}

// A window that is kept for the next stream counts: it is dropped where it does not fit beside what is used.
func TestKeptWindowsAreWithinTheBudget(t *testing.T) {
	for most, kept := range map[int]int{2500: 0, 3072: 1024} {
		b := &Budget{Max: most}
		var s Stream
		s.Start(&Config{Budget: b}, 0)
		s.Add(0, make([]byte, 600))
		if _, ev := s.Add(600, make([]byte, 600)); ev != 0 || b.Used() != 2048 || b.freeBytes != kept {
			t.Errorf("of %d bytes %d are used and %d kept, want %d (%b)", most, b.Used(), b.freeBytes, kept, ev)
		}
		b.Charge(most - 2048) // of others
		if b.freeBytes != 0 {
			t.Errorf("%d bytes are kept in a full budget", b.freeBytes)
		}
		b.Charge(2048 - most)
		s.Close()
	}
}

// A window that is dropped for want of memory makes room for what comes, and that of a stream that has ended serves the next one.
func TestADroppedWindowMakesRoom(t *testing.T) {
	b := &Budget{Max: 4 << 10}
	cfg := &Config{Budget: b}
	var s Stream
	s.Start(cfg, 1)
	if n, ev := s.Add(1, make([]byte, 3000)); n != 3000 || ev != 0 {
		t.Fatalf("%d bytes, %v", n, ev)
	}
	if n, ev := s.Add(3001, make([]byte, 2000)); n != 2000 || ev != Full || b.Used() != 2048 {
		t.Errorf("%d bytes, %v, %d are used; want 2000, Full, 2048", n, ev, b.Used())
	}
	s.Close()
	kept := b.freeBytes
	if b.Used() != 0 || kept == 0 {
		t.Errorf("%d bytes are used after the end, %d kept", b.Used(), kept)
	}
	s.Start(cfg, 1)
	if s.Add(1, make([]byte, 2000)); b.freeBytes != kept-2048 {
		t.Errorf("%d bytes are kept, were %d: the next stream has allocated its own", b.freeBytes, kept)
	}
}
