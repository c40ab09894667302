package datapath

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/random"
)

// TestAMeterAgreesWithATokenBucket takes tokens at random times from a meter and from a count of
// tokens, kept exactly.
func TestAMeterAgreesWithATokenBucket(t *testing.T) {
	for _, c := range []struct {
		rate  int
		burst time.Duration
	}{{1, time.Second}, {10, 100 * time.Millisecond}, {1000, time.Second}, {1_000_000, 10 * time.Millisecond}, {100, 10 * time.Millisecond}} {
		r := rand.New(rand.NewPCG(uint64(c.rate), 4))
		a := newAllowance(c.rate, c.burst)
		var m meter
		most := max(float64(c.rate)*c.burst.Seconds(), 1)
		tokens, last := most, clock.Time(1<<44) // near the wrap of moments
		now := last
		allowed := 0
		for range 200_000 {
			now = now.Add(time.Duration(r.ExpFloat64() * 0.7 * float64(time.Second) / float64(c.rate)))
			if r.IntN(5000) == 0 {
				now = now.Add(c.burst)
			}
			tokens = min(tokens+now.Sub(last).Seconds()*float64(c.rate), most)
			last = now
			got := a.take(&m.packets, moment(now))
			if got != (tokens >= 1) && (tokens < 0.99 || tokens > 1.01) {
				t.Fatalf("rate %d: allowed is %v with %.3f tokens", c.rate, got, tokens)
			}
			if got {
				tokens--
				allowed++
			}
		}
		if allowed == 0 || allowed == 200_000 {
			t.Errorf("rate %d: %d allowed", c.rate, allowed)
		}
	}
}

// A bucket says nothing any more when moments have wrapped, but for as long as its burst lasts.
func TestABucketIsForgottenInTime(t *testing.T) {
	a := newAllowance(10, time.Second)
	var m meter
	start := clock.Time(time.Hour)
	for a.take(&m.packets, moment(start)) {
	}
	for _, after := range []time.Duration{time.Second, time.Hour, 1<<44 - 2*time.Minute, 1<<44 - time.Second} {
		n := m
		if !a.take(&n.packets, moment(start.Add(after))) {
			t.Errorf("%v later there is no token", after)
		}
	}
}

// Ten million forged sources take each other's buckets: memory does not grow, and a client that is
// at its limit stays there. Time stands still, so that nothing is forgiven.
func TestForgedSourcesDoNotResetALimit(t *testing.T) {
	forged := 10_000_000
	if testing.Short() {
		forged = 1_000_000
	}
	m, a := newMeters(1024, newHashKey(new(random.Source))), newAllowance(100, time.Second)
	var held []addr
	now := moment(clock.Time(time.Hour))
	for i := range 64 {
		c := addr4([]byte{198, 18, 1, byte(i)})
		held = append(held, c)
		for a.take(&m.find(c, 0, now).packets, now) {
		}
	}
	for i := range forged {
		c := addr{0, mapped | uint64(i)<<4&0xffffffff}
		a.take(&m.find(c, 0, now).packets, now)
	}
	reset := 0
	for _, c := range held {
		if a.take(&m.find(c, 0, now).packets, now) {
			reset++
		}
	}
	if reset > 0 || len(m.sets) != 256 {
		t.Errorf("%d of 64 clients have new buckets, %d sets", reset, len(m.sets))
	}
}
