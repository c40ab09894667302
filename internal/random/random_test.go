package random

import (
	"math/rand/v2"
	"testing"
	"time"
)

var _ rand.Source = (*Source)(nil)

// The reference implementation (Vigna, splitmix64.c) gives these after seed 1234567.
func TestSplitMix64HasTheVectorsOfItsReference(t *testing.T) {
	s := Source(1234567)
	for i, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821} {
		if got := s.Uint64(); got != want {
			t.Errorf("number %d is %d, want %d", i, got, want)
		}
	}
}

func TestBetweenIncludesBothEnds(t *testing.T) {
	var s Source
	seen := map[time.Duration]bool{}
	for range 1000 {
		d := s.Between(3, 6)
		if d < 3 || d > 6 {
			t.Fatalf("%d", d)
		}
		seen[d] = true
	}
	if len(seen) != 4 {
		t.Errorf("saw %v", seen)
	}
	if d := s.Between(5, 5); d != 5 {
		t.Errorf("empty range: %d", d)
	}
	if d := s.Between(5, 4); d != 5 {
		t.Errorf("reversed range: %d", d)
	}
}

// Appendix A of the paper: key 00..0f, message 00..0e.
func TestSipHashHasTheVectorOfItsPaper(t *testing.T) {
	key := make([]byte, 16)
	message := make([]byte, 15)
	for i := range key {
		key[i] = byte(i)
	}
	for i := range message {
		message[i] = byte(i)
	}
	const want = 0xa129ca6149be45e5
	k := KeyFrom(key)
	if got := k.Sum(message); got != want {
		t.Errorf("Sum: %#x", got)
	}
	h := k.Start()
	h.Word(0x0706050403020100)
	if got := h.Sum(15, 0x000e0d0c0b0a0908); got != want {
		t.Errorf("Word: %#x", got)
	}
}

func TestNothingAllocates(t *testing.T) {
	var s Source
	k, b := Key{1, 2}, make([]byte, 33)
	if n := testing.AllocsPerRun(100, func() { s.Uint64(); k.Sum(b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkSipHash44(b *testing.B) {
	k := Key{1, 2}
	var x uint64
	for b.Loop() {
		h := k.Start()
		for range 5 {
			h.Word(x)
		}
		x = h.Sum(44, x)
	}
}
