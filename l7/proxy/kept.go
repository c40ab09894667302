package proxy

// Content that was sent to a backend is kept until the response begins, as long as it is small: where the backend then turns out
// not to have served the request, it goes to another connection.
//
// The typical cases are a small PUT on an idle connection that the backend closes at the same moment, and a POST that it refuses by
// REFUSED_STREAM: without a copy the client would get an error for a request that no backend has processed. mayRetry decides
// whether the copy may be sent. It ends with the response, since no retry follows one.

// Bounds of content that is kept.
const (
	DefaultReplay = 16 << 10 // of a request
	maxKept       = 64 << 20 // of all requests of a worker
)

// replay returns how much content of a request is kept: nothing of one that will not fit.
func (x *exchange) replay() int {
	most := x.pooled.Replay
	if most == 0 {
		most = DefaultReplay
	}
	if x.up.message != flowing || x.request.ContentLength > int64(most) {
		return 0
	}
	return max(most, 0)
}

// remember keeps a copy of content that was sent. It borrows p. Content is kept whole or not at all: a part of it could not be sent
// again (see repeatable).
func (r *relay) remember(w *Worker, p []byte) {
	if r.keep == 0 || len(p) == 0 {
		return
	}
	if len(r.kept)+len(p) > r.keep || w.counters.kept.Load()+int64(len(p)) > maxKept {
		r.forget(w)
		return
	}
	if r.kept == nil {
		r.kept = w.GetBuffer()
	}
	r.kept = append(r.kept, p...)
	w.counters.kept.Add(int64(len(p)))
}

// forget gives back what is kept, and keeps no more: from then on repeatable is false, unless none was sent.
func (r *relay) forget(w *Worker) {
	r.keep = 0
	if r.kept != nil {
		w.counters.kept.Add(-int64(len(r.kept)))
		w.PutBuffer(&r.kept)
	}
}

// rewind has what was sent wait to be sent again, before what has not been sent yet.
func (r *relay) rewind(w *Worker) {
	if len(r.kept) == 0 {
		return
	}
	w.counters.kept.Add(-int64(len(r.kept)))
	all := append(r.kept, r.held...)
	w.PutBuffer(&r.held)
	r.held, r.kept = all, nil
}

// repeatable reports whether all content that has come is still there: each byte is either kept, having been sent, or held. The sum
// fails where forget has dropped some, and where a bypass has moved bytes that were never in a buffer.
func (r *relay) repeatable() bool { return r.bytes == uint64(len(r.kept)+len(r.held)) }
