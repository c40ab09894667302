package syncookie

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/random"
)

func TestCookiesComeBackAsTheyWere(t *testing.T) { // RFC 4987 3.6
	var j Codec
	now := clock.Time(1000 * time.Hour)
	for mss, want := range map[uint16]uint16{
		0: 216, 216: 216, 535: 216, 536: 536, 1219: 536, 1220: 1220, 1380: 1340, 1400: 1400, 1440: 1440, 1459: 1440,
		1460: 1460, 1461: 1460, 8939: 1460, 8940: 8940, 0xffff: 8940,
	} {
		for stamp := range Stamp(StampMask + 1) {
			tuple := flow(int(stamp), 2)
			iss := j.Encode(now, tuple, 77, mss, stamp)
			for _, age := range []time.Duration{0, time.Second, Period} {
				if got, ok := j.Verify(now.Add(age), tuple, iss, 77, stamp); !ok || got != want {
					t.Fatalf("MSS %d after %v: %d %v, want %d", mss, age, got, ok, want)
				}
			}
		}
	}
}

func TestCookiesAreRefused(t *testing.T) {
	now := clock.Time(1000 * time.Hour)
	var fresh Codec
	tuple, other := flow(1, 2), flow(2, 2)
	j := fresh
	iss := j.Encode(now, tuple, 77, 1460, 5)
	late := j
	late.until = clock.Never
	for name, c := range map[string]struct {
		j *Codec
		f func(*Codec) bool
	}{
		"none was sent":         {&fresh, func(j *Codec) bool { _, ok := j.Verify(now, tuple, iss, 77, 5); return ok }},
		"another tuple":         {&j, func(j *Codec) bool { _, ok := j.Verify(now, other, iss, 77, 5); return ok }},
		"another irs":           {&j, func(j *Codec) bool { _, ok := j.Verify(now, tuple, iss, 78, 5); return ok }},
		"other terms":           {&j, func(j *Codec) bool { _, ok := j.Verify(now, tuple, iss, 77, 4); return ok }},
		"another mss":           {&j, func(j *Codec) bool { _, ok := j.Verify(now, tuple, iss^1<<30, 77, 5); return ok }},
		"another mac":           {&j, func(j *Codec) bool { _, ok := j.Verify(now, tuple, iss+1, 77, 5); return ok }},
		"when none is expected": {&j, func(j *Codec) bool { _, ok := j.Verify(now.Add(2*Period), tuple, iss, 77, 5); return ok }},
		"two periods old":       {&late, func(j *Codec) bool { _, ok := j.Verify(now.Add(2*Period), tuple, iss, 77, 5); return ok }},
		"four periods old":      {&late, func(j *Codec) bool { _, ok := j.Verify(now.Add(4*Period), tuple, iss, 77, 5); return ok }},
		"another key":           {&j, func(j *Codec) bool { _, ok := j.Verify(now, flow(1, 3), iss, 77, 5); return ok }},
	} {
		if c.f(c.j) {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestGuessedCookiesAreRare(t *testing.T) {
	g := rand.New(rand.NewPCG(1, 2))
	var j Codec
	now := clock.Time(1000 * time.Hour)
	tuple := flow(1, 2)
	j.Encode(now, tuple, 0, 1460, 0)
	for range 1 << 18 { // one in 2^28 is right
		if _, ok := j.Verify(now, tuple, g.Uint32(), 77, 0); ok {
			t.Fatal("a guess was taken")
		}
	}
}

func TestStampsDoNotRunBackwards(t *testing.T) {
	g := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		ts, s := g.Uint32(), StampOf(g.Uint32())
		got := s.Timestamp(ts)
		if StampOf(got) != s || ts-got > StampMask {
			t.Fatalf("%#x with %#x: %#x", ts, s, got)
		}
	}
}

// flow returns the hash of a flow that differs with n, under a key that differs with key.
func flow(n, key int) random.Hash {
	h := random.Key{1, uint64(key)}.Start()
	for range FlowLen / 8 {
		h.Word(uint64(n))
	}
	return h
}
