package http1

// A driver may move content from one connection to another past the machines. It does so between the events of Input, and says
// afterwards how much it was.

// Left returns how many bytes of content follow that Input has not seen, 0 where that is not known: it is for content with a
// Content-Length.
func (m *Machine) Left() int64 {
	if m.state != inContent || m.err != nil {
		return 0
	}
	return int64(m.left)
}

// Bypassed reports that the driver has taken n bytes of content, at most Left, from the connection by itself.
func (m *Machine) Bypassed(n int64) {
	if m.left -= uint64(n); m.left == 0 {
		m.state = ending
	}
}
