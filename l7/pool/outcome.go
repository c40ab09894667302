package pool

import (
	"sync/atomic"
	"time"
)

// Failure classifies a request that failed without a response, or in the middle of one.
type Failure uint8

// Values of Failure. All but NoFailure and Canceled count against the backend.
const (
	NoFailure      Failure = iota
	Refused                // no connection: refused or unreachable
	ConnectTimeout         // no connection in time
	Handshake              // TLS, or the preface of HTTP/2 or 3, failed
	Reset                  // the connection ended before the response did
	Timeout                // no response in time, or its body stalled
	Malformed              // what came was no response
	Canceled               // the client left, or the gateway gave up for a reason of its own
	Failures               // how many there are
)

var failures = [Failures]string{"", "refused", "connect_timeout", "handshake", "reset", "timeout", "malformed", "canceled"}

// String returns the name of the failure in metrics, "" for NoFailure.
func (f Failure) String() string { return failures[f] }

// Outcome is the result of a request.
type Outcome struct {
	Status  int // of the final response, 0 without one and for connections of a TCP pool
	Failure Failure
	Latency time.Duration // from Start to the head of the response; 0 is not known
	Retry   bool          // the request was a retry of another one
}

// counters count what backends did, since they were added.
type counters struct {
	statuses [6]atomic.Uint64 // by the hundreds of the status; 0: without one and without a failure
	failures [Failures]atomic.Uint64
	retries  atomic.Uint64
	latency  atomic.Int64 // ns, smoothed

	ejections atomic.Uint64
}

// latencyShare is the part of the smoothed latency that a new one replaces, as in RFC 6298 2.3.
const latencyShare = 8

func (c *counters) add(o *Outcome) {
	if o.Failure != NoFailure {
		c.failures[o.Failure].Add(1)
	} else {
		c.statuses[min(uint(o.Status)/100, 5)].Add(1)
	}
	if o.Retry {
		c.retries.Add(1)
	}
	if o.Latency > 0 { // two at the same moment may lose one: it is an estimate
		was := c.latency.Load()
		if was == 0 {
			was = int64(o.Latency)
		}
		c.latency.Store(was + (int64(o.Latency)-was)/latencyShare)
	}
}
