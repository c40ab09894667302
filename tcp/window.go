package tcp

// receiveSpace is how many bytes from RCV.NXT on may arrive: the limit less what waits to be read, as far
// as a window can say so.
func (c *Conn) receiveSpace() uint32 {
	held := uint32(c.Readable())
	if held >= c.rcvLimit {
		return 0
	}
	return min(c.rcvLimit-held, 0xffff<<c.rcvScale)
}

// receiveEdge returns the right edge of the window to tell the peer. It never moves left (RFC 9293
// 3.8.6), and to the right only by a full segment or half of the buffer (section 3.8.6.2.2).
func (c *Conn) receiveEdge() uint32 {
	edge := c.rcvNxt + c.receiveSpace()
	if c.state == StateSynReceived {
		return c.rcvAdv // what the SYN-ACK says, or will say again
	}
	gain := seqDistance(c.rcvAdv, edge)
	if gain < min(c.rcvLimit/2, c.fullSegmentIn()) {
		return seqMax(c.rcvAdv, c.rcvNxt)
	}
	return edge
}

// fullSegmentIn is the size of the peer's full segments, as far as is known.
func (c *Conn) fullSegmentIn() uint32 {
	return max(uint32(c.largestIn), uint32(c.mss()))
}

// scaledWindow returns the window field for the right edge, and moves the edge to what the field says:
// scaling rounds, up where the edge would move left else.
func (c *Conn) scaledWindow(right *uint32) uint16 {
	wnd := *right - c.rcvNxt
	field := wnd >> c.rcvScale
	if c.rcvNxt+field<<c.rcvScale != *right && seqBefore(c.rcvNxt+field<<c.rcvScale, c.rcvAdv) {
		field++
	}
	field = min(field, 0xffff)
	*right = seqMax(c.rcvNxt+field<<c.rcvScale, c.rcvNxt)
	return uint16(field)
}

// windowOpened sends an update where reading has made room worth telling: two segments, or half of
// the buffer.
func (c *Conn) windowOpened() {
	if c.state != StateEstablished && c.state != StateFinWait1 && c.state != StateFinWait2 {
		return
	}
	gain := seqDistance(c.rcvAdv, c.rcvNxt+c.receiveSpace())
	left := seqDistance(c.rcvNxt, c.rcvAdv)
	if gain >= min(c.rcvLimit/2, 2*c.fullSegmentIn()) && left < c.rcvLimit/2 {
		c.ackNow()
	}
}
