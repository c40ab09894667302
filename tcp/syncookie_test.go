package tcp

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
)

func TestCookiesComeBackAsTheyWere(t *testing.T) { // RFC 4987 3.6
	j := cookieJar{key: sipKey{1, 2}}
	now := clock.Time(1000 * time.Hour)
	for mss, want := range map[uint16]uint16{
		0: 216, 216: 216, 535: 216, 536: 536, 1219: 536, 1220: 1220, 1380: 1340, 1400: 1400, 1440: 1440, 1459: 1440,
		1460: 1460, 1461: 1460, 8939: 1460, 8940: 8940, 0xffff: 8940,
	} {
		for stamp := range uint32(cookieTS + 1) {
			tuple := from(int(stamp))
			iss := j.bake(now, &tuple, 77, mss, stamp)
			for _, age := range []time.Duration{0, time.Second, cookiePeriod} {
				if got, ok := j.taste(now.Add(age), &tuple, iss, 77, stamp); !ok || got != want {
					t.Fatalf("MSS %d after %v: %d %v, want %d", mss, age, got, ok, want)
				}
			}
		}
	}
}

func TestCookiesAreRefused(t *testing.T) {
	now := clock.Time(1000 * time.Hour)
	fresh := cookieJar{key: sipKey{1, 2}}
	tuple, other := from(1), from(2)
	j := fresh
	iss := j.bake(now, &tuple, 77, 1460, 5)
	late := j
	late.until = clock.Never
	for name, c := range map[string]struct {
		j *cookieJar
		f func(*cookieJar) bool
	}{
		"none was sent":         {&fresh, func(j *cookieJar) bool { _, ok := j.taste(now, &tuple, iss, 77, 5); return ok }},
		"another tuple":         {&j, func(j *cookieJar) bool { _, ok := j.taste(now, &other, iss, 77, 5); return ok }},
		"another irs":           {&j, func(j *cookieJar) bool { _, ok := j.taste(now, &tuple, iss, 78, 5); return ok }},
		"other terms":           {&j, func(j *cookieJar) bool { _, ok := j.taste(now, &tuple, iss, 77, 4); return ok }},
		"another mss":           {&j, func(j *cookieJar) bool { _, ok := j.taste(now, &tuple, iss^1<<30, 77, 5); return ok }},
		"another mac":           {&j, func(j *cookieJar) bool { _, ok := j.taste(now, &tuple, iss+1, 77, 5); return ok }},
		"when none is expected": {&j, func(j *cookieJar) bool { _, ok := j.taste(now.Add(2*cookiePeriod), &tuple, iss, 77, 5); return ok }},
		"two periods old":       {&late, func(j *cookieJar) bool { _, ok := j.taste(now.Add(2*cookiePeriod), &tuple, iss, 77, 5); return ok }},
		"four periods old":      {&late, func(j *cookieJar) bool { _, ok := j.taste(now.Add(4*cookiePeriod), &tuple, iss, 77, 5); return ok }},
		"another key": {&j, func(j *cookieJar) bool {
			k := *j
			k.key[0]++
			_, ok := k.taste(now, &tuple, iss, 77, 5)
			return ok
		}},
	} {
		if c.f(c.j) {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestGuessedCookiesAreRare(t *testing.T) {
	g := rand.New(rand.NewPCG(1, 2))
	j := cookieJar{key: sipKey{1, 2}}
	now := clock.Time(1000 * time.Hour)
	tuple := from(1)
	j.bake(now, &tuple, 0, 1460, 0)
	for range 1 << 18 { // one in 2^28 is right
		if _, ok := j.taste(now, &tuple, g.Uint32(), 77, 0); ok {
			t.Fatal("a guess was taken")
		}
	}
}

func TestStampsDoNotRunBackwards(t *testing.T) {
	g := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		ts, s := g.Uint32(), g.Uint32()&cookieTS
		got := stampTimestamp(ts, s)
		if got&cookieTS != s || ts-got > cookieTS {
			t.Fatalf("%#x with %#x: %#x", ts, s, got)
		}
	}
}

func TestTermsFitIntoAStamp(t *testing.T) {
	for scale := range synTerms(16) {
		for _, sack := range []synTerms{0, termsSACK} {
			for _, e := range []ecnAgreed{ecnNone, ecnClassic} {
				want := (scale | sack | termsTimestamps).withECN(e)
				if got := cookieTerms(cookieStamp(want)); got != want {
					t.Errorf("%#x came back as %#x", want, got)
				}
			}
		}
	}
}
