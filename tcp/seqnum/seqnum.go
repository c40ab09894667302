// Package seqnum compares TCP sequence numbers.
//
// They live on a circle of 2^32 (RFC 9293 3.4): a is before b when b lies within the half
// circle ahead of a. This holds as long as no two numbers that are compared are 2^31 or
// more apart, which is why windows end at 2^30 bytes (RFC 7323 2.3).
package seqnum

// Before reports whether a is before b.
func Before(a, b uint32) bool { return int32(a-b) < 0 }

// AtOrBefore reports whether a is before b or equal to it.
func AtOrBefore(a, b uint32) bool { return int32(a-b) <= 0 }

// Latest returns the later of a and b.
func Latest(a, b uint32) uint32 {
	if Before(a, b) {
		return b
	}
	return a
}

// Earliest returns the earlier of a and b.
func Earliest(a, b uint32) uint32 {
	if Before(a, b) {
		return a
	}
	return b
}

// Distance returns how far b lies ahead of a, 0 where it does not.
func Distance(a, b uint32) uint32 {
	if Before(a, b) {
		return b - a
	}
	return 0
}
