package tcp

// Sequence numbers live on a circle (RFC 9293 3.4): a is before b when b lies within half of it ahead.

// seqBefore reports whether a is before b.
func seqBefore(a, b uint32) bool { return int32(a-b) < 0 }

// seqUpTo reports whether a is before b or equal to it.
func seqUpTo(a, b uint32) bool { return int32(a-b) <= 0 }

// seqMax returns the later of a and b, seqMin the earlier.
func seqMax(a, b uint32) uint32 {
	if seqBefore(a, b) {
		return b
	}
	return a
}

func seqMin(a, b uint32) uint32 {
	if seqBefore(a, b) {
		return a
	}
	return b
}

// seqDistance returns how far b lies ahead of a, 0 where it does not.
func seqDistance(a, b uint32) uint32 {
	if seqBefore(a, b) {
		return b - a
	}
	return 0
}
