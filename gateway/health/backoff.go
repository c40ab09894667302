package health

import (
	"time"

	"github.com/millrace/millrace/clock"
)

// Backoff is the time that a backend is ejected. After an ejection it is on probation for as long as that lasted: the next one in
// this time lasts twice as long. The zero value has seen none.
type Backoff struct {
	down     time.Duration // length of the last ejection; 0 is none
	returned clock.Time    // when it ended
}

// Next returns how long an ejection that begins now lasts: first, or up to most after others.
func (b *Backoff) Next(now clock.Time, first, most time.Duration) time.Duration {
	if b.down > 0 && now.Sub(b.returned) < b.down {
		b.down = min(2*b.down, most)
	} else {
		b.down = first
	}
	return b.down
}

// Returned notes when the last ejection ended.
func (b *Backoff) Returned(now clock.Time) { b.returned = now }
