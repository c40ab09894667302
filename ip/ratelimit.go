package ip

import (
	"time"

	"github.com/millrace/millrace/clock"
)

// RateLimiter is a token bucket: it limits what strangers can make this host do or send, such as ICMP errors (RFC 1812
// 4.3.2.8, RFC 4443 2.4 (f)), new neighbour resolutions (RFC 6583 7.1) and router advertisements. Its arithmetic is
// exact in integers: a token is 1e9 units, of which rate arrive each nanosecond.
type RateLimiter struct {
	rate   int64 // tokens a second
	burst  int64
	tokens int64 // available, in units of 1/1e9 tokens; never more than burst
	last   clock.Time
}

// errorBurst is how many ICMP errors may be sent at once, after a pause.
const errorBurst = 50

// NewRateLimiter returns a full bucket.
func NewRateLimiter(rate, burst int, now clock.Time) RateLimiter {
	return RateLimiter{rate: int64(rate), burst: int64(burst), tokens: int64(burst) * int64(time.Second), last: now}
}

// Take takes k tokens and reports true, or takes none. A time before the last one adds nothing.
func (b *RateLimiter) Take(now clock.Time, k int64) bool {
	if d := int64(now.Sub(b.last)); d > 0 {
		b.last = now
		if d >= b.burst*int64(time.Second)/b.rate {
			b.tokens = b.burst * int64(time.Second)
		} else {
			b.tokens = min(b.tokens+d*b.rate, b.burst*int64(time.Second))
		}
	}
	if b.tokens < k*int64(time.Second) {
		return false
	}
	b.tokens -= k * int64(time.Second)
	return true
}
