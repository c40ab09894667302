package proxy

import (
	"net/netip"
	"sync/atomic"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/encode"
	"github.com/millrace/millrace/l7/h3side"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/quicconn"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/l7/route"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/l7/transport"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/tls"
)

// listening is a socket that listens. It outlives the Listener that describes it: a reload gives it another one, and
// connections that came in before keep theirs until their next request.
type listening struct {
	w         *Worker
	current   *Listener          // as the configuration describes it now
	socket    transport.Listener // nil for HTTP/3 alone
	quic      bool               // HTTP/3 is served
	admission *Admission
	removed   bool // the configuration has it no more
}

// Worker is the part of a proxy that one loop has. All methods belong to the loop, so that nothing here has a lock:
// workers share only counters, which are atomic, and Endpoints.
type Worker struct {
	link.Runner

	// The configuration, which Apply sets as a whole.
	tree        *Tree
	pools       map[*Pool]bool // those of tree
	listeners   map[string]*listening
	admissions  map[string]*Admission // of listeners without one, by name: a reload must not forget what is open
	exchanges   *exchange             // free ones
	holds       *hold                 // the same
	inspections *inspected            // the same
	cached      *cached               // the same
	parts       [][]byte              // free buffers for parts of files
	mirrors     int                   // copies of requests that are gathered or under way
	encoders    encode.Pool           // of responses that are compressed
	backs       map[backsKey]*backConns
	coroutines  *tls.Coroutines
	routed      route.Request                                  // of the request that is being routed: a table keeps none, so that one is enough
	values      rewrite.Values                                 // of the exchange that asks for them
	refused     func(client netip.Addr, r side.Refusal, n int) // see OnRefused; nil: not reported
	inspector   Inspector                                      // see Inspect; nil where no listener has Inspection
	fronts      map[*link.Link]*clientInfo                     // nil for one that was refused
	frontClosed func(*link.Link)                               // clientClosed
	queues      []*backConns                                   // that have one
	queuesAt    clock.Time                                     // when they are looked at
	turns       uint64                                         // of waiters so far
	dials       dials
	fileWaits   []*local   // that wait for the descriptor of a file, in order
	filesAt     clock.Time // when they are looked at
	diskReads   int        // requests that wait for files of a cache
	misfits     int        // events that exchanges got in phases that do not permit them: always 0
	draining    bool       // set once: a worker that drains never serves again

	endpoints *Endpoints
	hub       *quicconn.Hub
	fronts3   map[*clientInfo]*h3side.Front
	lines3    lineBudget // of failed handshakes

	linesDenied lineBudget // of connections that are refused as soon as they come

	// What is counted and reported. Counters have one writer, the loop, and any number of readers.
	id       int // of the worker, from 0
	counters counters
	latency  metrics.Histogram
	onRecord func(*Record)
	// recording switches onRecord.
	recording atomic.Bool
	entry     Record // given to onRecord
}

// NewWorker returns a worker for a loop, whose tick is the worker's from then on. id numbers the workers of a proxy from 0. Apply
// sets its configuration.
func NewWorker(loop transport.Loop, id int) *Worker {
	w := &Worker{
		id: id, Runner: link.NewRunner(loop),
		listeners: map[string]*listening{}, admissions: map[string]*Admission{}, backs: map[backsKey]*backConns{},
		encoders: encode.Pool{Most: maxEncoders}, coroutines: &tls.Coroutines{}, fronts: map[*link.Link]*clientInfo{},
	}
	w.frontClosed = w.clientClosed // once: a method value for each connection would be allocated
	w.hub, w.fronts3 = quicconn.NewHub(loop), map[*clientInfo]*h3side.Front{}
	loop.SetTick(w.tick)
	return w
}

// tick runs timers, reads what is taken again, and sends what the batch has produced. Queues are checked between: the timers may
// have freed connections, and requests that take them are sent with this batch.
func (w *Worker) tick(now clock.Time) clock.Time {
	w.Advance(now)
	w.checkQueues()
	checkFiles(w)
	return min(w.Finish(), w.nextCheck(), nextFiles(w))
}
