package proxy

import (
	"encoding/binary"

	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/l7/pool"
)

// EndStreams ends the WebSockets and the connections that are passed through to a backend whose drain time is over. Both sides of a
// WebSocket get a Close frame with 1001 where no other frame has been sent in part (RFC 6455 5.5.1, 7.4.1); the rest is reset.
func (w *Worker) EndStreams(b *pool.Backend) {
	w.enter()
	for l := range w.fronts {
		switch s := l.session.(type) {
		case *front1:
			if s.x.drains(b) {
				s.l.closeBy(closeLinger) // what the client still sends would have the kernel reset the connection, and with it the frame
				s.x.endSocket()
			}
		case *front2:
			s.m.Each(func(s2 *http2.Stream) {
				if st, ok := s2.User.(*stream2); ok && st.x.drains(b) {
					st.x.endSocket()
				}
			})
		case *passEnd:
			if s.p.server.l != nil && s.p.backend == b && !s.p.over {
				s.p.endDrained()
			}
		}
	}
	for f := range w.fronts3 {
		for i := len(f.streams) - 1; i >= 0; i-- {
			if i < len(f.streams) && f.streams[i].x.drains(b) {
				f.streams[i].x.endSocket()
			}
		}
	}
}

// cutDrained is the failure of streams that end with the drain time of their backend.
const cutDrained = "backend_drained"

// drains reports whether the exchange is a WebSocket to a backend.
func (x *exchange) drains(b *pool.Backend) bool {
	return x != nil && x.phase == tunnel && x.backend == b
}

// goingAway is the payload of a Close frame: code 1001.
var goingAway = [2]byte{1001 >> 8, 1001 & 0xff}

// endSocket ends a WebSocket.
func (x *exchange) endSocket() {
	x.w.counters.drained.Add(1)
	x.failure = cutDrained
	var key [4]byte
	binary.LittleEndian.PutUint32(key[:], uint32(x.w.random()))
	masked := []byte{0x88, 0x82, key[0], key[1], key[2], key[3], goingAway[0] ^ key[0], goingAway[1] ^ key[1]}
	if x.up.closeSocket(masked) {
		x.back.end(nil)
	} else if x.phase != done {
		x.back.cancel()
	}
	if x.phase == done {
		return
	}
	if x.down.closeSocket([]byte{0x88, 2, goingAway[0], goingAway[1]}) && x.phase != done {
		x.front.end(nil)
		x.finish()
		return
	}
	if x.phase != done {
		x.cut()
	}
}

// closeSocket sends a Close frame, unless one has been sent, and reports whether the receiver can understand the end that follows.
func (r *relay) closeSocket(frame []byte) bool {
	if r.to == nil || r.ended || len(r.held) > 0 || !r.frames.between() {
		return false
	}
	return r.frames.closed || r.to.write(frame) == len(frame)
}

// endDrained ends a connection that is passed through.
func (p *pass) endDrained() {
	p.w.counters.drained.Add(1)
	p.failure = cutDrained
	p.finish(pool.NoFailure)
	p.client.abort()
	p.server.abort()
}

// framing follows the frames of a WebSocket in one direction (RFC 6455 5.2), so that another one can be sent between two of them.
type framing struct {
	left   uint64 // bytes of the payload that are to come
	head   [14]byte
	n      int  // bytes of head that have come
	closed bool // a Close frame has begun
}

// between reports whether what has passed ends with a frame.
func (f *framing) between() bool { return f.left == 0 && f.n == 0 }

// pass follows bytes. It borrows p.
func (f *framing) pass(p []byte) {
	for len(p) > 0 {
		if f.left > 0 {
			n := min(f.left, uint64(len(p)))
			f.left -= n
			p = p[n:]
			continue
		}
		f.head[f.n] = p[0]
		p = p[1:]
		if f.n++; f.n >= 2 && f.n == f.size() {
			f.begin()
		}
	}
}

// size returns the length of a header whose first two bytes have come.
func (f *framing) size() int {
	n := 2
	switch f.head[1] & 0x7f {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if f.head[1]&0x80 != 0 { // masked
		n += 4
	}
	return n
}

// begin begins the payload of the header that is complete.
func (f *framing) begin() {
	switch n := f.head[1] & 0x7f; n {
	case 126:
		f.left = uint64(binary.BigEndian.Uint16(f.head[2:]))
	case 127:
		f.left = binary.BigEndian.Uint64(f.head[2:])
	default:
		f.left = uint64(n)
	}
	f.closed = f.closed || f.head[0]&0x0f == 8
	f.n = 0
}
