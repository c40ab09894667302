package capture

import (
	"math"
	"math/bits"
)

const second = 1_000_000_000

// ticks turns the timestamps of a pcapng interface into nanoseconds (if_tsresol and if_tsoffset,
// pcapng 4.2).
type ticks struct {
	mul    uint64 // ns per tick, for ticks of a nanosecond and longer; 0 otherwise
	div    uint64 // ticks per ns, for shorter decimal ones; 0 otherwise
	binary uint8  // 1<<binary ticks per second, where mul and div are 0
	offset int64  // seconds to add
}

// micros is the resolution where an interface names none.
var micros = ticks{mul: 1000}

// resolve sets the resolution from if_tsresol: a power of 10, or of 2 where the high bit is set.
func (t *ticks) resolve(res uint8) {
	t.mul, t.div, t.binary = 0, 0, 0
	switch exp := res & 0x7F; {
	case res&0x80 != 0:
		t.binary = exp
	case exp <= 9:
		t.mul = pow10(9 - exp)
	case exp > 28: // 64 bits of ticks are less than a nanosecond
		t.binary = 127
	default:
		t.div = pow10(exp - 9)
	}
}

// pow10 returns 10^n, n at most 19.
func pow10(n uint8) uint64 {
	v := uint64(1)
	for range n {
		v *= 10
	}
	return v
}

// ns returns the time of tick n in ns since the Unix epoch; times beyond 2262 are cut to the
// largest that int64 holds.
func (t *ticks) ns(n uint64) int64 {
	v := t.elapsed(n)
	if t.offset == 0 {
		return v
	}
	return addSeconds(v, t.offset)
}

// elapsed is n ticks in nanoseconds.
func (t *ticks) elapsed(n uint64) int64 {
	switch {
	case t.mul != 0:
		hi, lo := bits.Mul64(n, t.mul)
		if hi != 0 {
			return math.MaxInt64
		}
		return int64(min(lo, math.MaxInt64))
	case t.div != 0:
		return int64(min(n/t.div, math.MaxInt64))
	}
	hi, lo := bits.Mul64(n, second)
	if t.binary >= 64 {
		return int64(hi >> (t.binary - 64))
	}
	if hi>>t.binary != 0 {
		return math.MaxInt64
	}
	return int64(min(hi<<(64-t.binary)|lo>>t.binary, math.MaxInt64))
}

// addSeconds returns ns + s seconds, cut to what int64 holds.
func addSeconds(ns, s int64) int64 {
	hi, off := bits.Mul64(uint64(max(s, -s)), second)
	if hi != 0 || off > math.MaxInt64 || s == math.MinInt64 {
		off = math.MaxInt64
	}
	if s < 0 {
		return ns - int64(off) // ns is not negative: no overflow
	}
	if ns > math.MaxInt64-int64(off) {
		return math.MaxInt64
	}
	return ns + int64(off)
}
