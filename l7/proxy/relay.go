package proxy

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/semantics"
	"github.com/millrace/millrace/websocket"
)

// relay is one direction of an exchange. Both directions are alike but for what may be kept for another attempt: so no
// code of theirs asks which one it is.
type relay struct {
	to       side.Stream // nil while there is nowhere to send
	from     side.Stream
	held     []byte // content that the receiver has not taken; while there is some, what comes after it joins it
	kept     []byte // content that it has taken, for another attempt,
	keep     int    // of at most so many bytes; 0 keeps none
	trailers []semantics.Field
	message  messageState
	paused   bool // the sender is not read
	bytes    uint64
	frames   websocket.Framing
	progress *clock.Time // of the exchange
	bypassed bypass
}

// messageState is how much of the message that a relay passes on has come and gone.
type messageState uint8

const (
	flowing    messageState = iota
	allArrived              // the sender has ended it: held may still have some of it
	allPassed               // the receiver has got the end, too
)

// data passes content on. What the receiver does not take is held, and the sender waits: one read of the sender bounds
// what is held, whatever the difference of their speeds. A sender with HTTP/2 or HTTP/3 gets no more credit while it
// waits (RFC 9113 5.2, RFC 9000 4.1), and one with HTTP/1.1 is not read, so that TCP's window closes.
func (r *relay) data(w *Worker, p []byte) {
	r.bytes += uint64(len(p))
	*r.progress = w.Now
	if len(r.held) == 0 && r.to != nil {
		n := r.to.Write(p)
		r.remember(w, p[:n])
		p = p[n:]
	}
	if len(p) > 0 {
		if r.held == nil {
			r.held = w.GetBuffer()
		}
		r.held = append(r.held, p...)
		if !r.paused && r.from != nil { // a response of the gateway comes from no stream
			r.paused = true
			r.from.Pause(true)
		}
	}
}

// push sends as much of the held content as the receiver takes. The end follows only after all of it, and the sender is
// read again only when nothing is held: so at most one read of it is held at any time, and bytes keep their order.
func (r *relay) push(w *Worker) {
	if r.to == nil {
		return
	}
	if len(r.held) > 0 {
		n := r.to.Write(r.held)
		if n > 0 {
			*r.progress = w.Now
		}
		r.remember(w, r.held[:n])
		if r.held = r.held[:copy(r.held, r.held[n:])]; len(r.held) > 0 {
			return
		}
		w.PutBuffer(&r.held)
	}
	if r.message == allArrived {
		r.message, *r.progress = allPassed, w.Now
		r.to.End(r.trailers)
		return
	}
	if r.paused {
		if r.paused = false; r.from != nil {
			r.from.Pause(false)
		}
	}
}

// end notes the end of the message, and passes it on, or has push do so after what is held.
func (r *relay) end(w *Worker) {
	r.message = max(r.message, allArrived)
	if len(r.held) == 0 {
		r.push(w)
	}
}

// passed counts n bytes of content that have gone to a connection past its protocol machine. Content with a length has no framing, but
// the machine checks the length as before.
func (r *relay) passed(n int, to *link.Link, m *http1.Machine) {
	to.Out, _ = m.AppendDataHeader(to.Out, n)
	r.bytes += uint64(n)
	*r.progress = to.Runner.Now
}
