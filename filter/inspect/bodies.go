package inspect

// bodyBuffers holds buffers of bodies that were evaluated, for the next ones: each response that rules search would else be garbage of its
// size, and a collection reads the rules. Free buffers are no part of the budget, and have a bound of their own.
type bodyBuffers struct {
	free  [][]byte
	bytes int // their capacities
}

const (
	maxFreeBytes = 1 << 20
	maxFree      = 64
)

// get returns an empty buffer for a body of which n bytes have come; nil where none is free that fits. A much larger one would be charged to a
// body that does not need it.
func (l *bodyBuffers) get(n int) []byte {
	for i := len(l.free) - 1; i >= 0; i-- {
		if b := l.free[i]; cap(b) >= n && cap(b) <= 4*n+1024 {
			last := len(l.free) - 1
			l.free[i], l.free[last] = l.free[last], nil
			l.free = l.free[:last]
			l.bytes -= cap(b)
			return b
		}
	}
	return nil
}

// put takes a buffer that nothing refers to any more. Where there is no room the oldest make some: sizes change with the load.
func (l *bodyBuffers) put(b []byte) {
	if cap(b) == 0 || cap(b) > maxFreeBytes/4 {
		return
	}
	for len(l.free) > 0 && (len(l.free) >= maxFree || l.bytes+cap(b) > maxFreeBytes) {
		l.bytes -= cap(l.free[0])
		copy(l.free, l.free[1:])
		l.free = l.free[:len(l.free)-1]
	}
	l.free, l.bytes = append(l.free, b[:0]), l.bytes+cap(b)
}

// forgetBody gives back the body of a message of a gateway that was evaluated, or is given up. The buffers of the transaction still refer to it,
// until the next message fills them.
func (e *Engine) forgetBody(s *httpSide) {
	e.bodies.put(s.msg.Body)
	s.msg.Body, s.msg.Coding = nil, nil
}
