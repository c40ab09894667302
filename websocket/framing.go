package websocket

// headerReader collects the header of a frame, which may come in parts.
type headerReader struct {
	hdr  [maxHeader]byte
	held int // bytes of hdr
}

// header returns the next header, ok once it is complete, and the bytes of in that it took.
func (r *headerReader) header(in []byte) (h header, used int, ok bool) {
	if r.held == 0 {
		if h, used = parseHeader(in); used > 0 {
			return h, used, true
		}
	}
	// It is cut: collect it. Two bytes give the size of the rest.
	for {
		want := 2
		if r.held >= 2 {
			want = headerSize(r.hdr[1])
		}
		n := copy(r.hdr[r.held:want], in[used:])
		r.held += n
		used += n
		if r.held < want {
			return h, used, false
		}
		if h, n = parseHeader(r.hdr[:r.held]); n > 0 {
			r.held = 0
			return h, used, true
		}
	}
}

// Framing follows the frames of one direction of a connection without a Machine, so that a relay knows where it may send a frame
// of its own: between two others (RFC 6455 5.2). The zero value is at the beginning of a connection.
type Framing struct {
	headers headerReader
	left    uint64 // bytes of the payload that are to come
	closed  bool
}

// Pass follows bytes. It borrows p, and checks nothing: what is wrong is the receiver's to refuse.
func (f *Framing) Pass(p []byte) {
	for len(p) > 0 {
		n := min(f.left, uint64(len(p)))
		f.left -= n
		p = p[n:]
		h, used, complete := f.headers.header(p)
		if p = p[used:]; complete {
			f.left = h.length
			f.closed = f.closed || h.opcode() == opClose
		}
	}
}

// Between reports whether what has passed ends with a frame.
func (f *Framing) Between() bool { return f.left == 0 && f.headers.held == 0 }

// Closed reports whether a Close frame has begun: none may follow it (RFC 6455 5.5.1).
func (f *Framing) Closed() bool { return f.closed }
