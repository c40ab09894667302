package gateway

// The gateway makes no more answers of its own (echo replies, ICMP errors, resets) than this on each
// loop, so that it is no amplifier and a flood of what asks for them costs little (RFC 1812 4.3.2.8,
// RFC 4443 2.4 (f)). Answers to ARP and neighbour solicitations do not count: without them nothing works.
const (
	answersPerTick = 168  // 10 000 a second, a tick is 2^24 ns
	answersAtOnce  = 1000 // after a pause
)

// bucket bounds a rate: it fills by answersPerTick and holds answersAtOnce.
type bucket struct {
	left uint32
	at   ticks
}

// take takes one, if one is there.
func (b *bucket) take(now ticks) bool {
	if since := now - b.at; since != 0 {
		b.left = uint32(min(uint64(b.left)+uint64(since)*answersPerTick, answersAtOnce))
		b.at = now
	}
	if b.left == 0 {
		return false
	}
	b.left--
	return true
}

// mayAnswer reports whether the loop may make another answer now, which it then does.
func (h *Handler) mayAnswer() bool { return h.answers.take(h.now) }
