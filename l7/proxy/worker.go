package proxy

import (
	"net/netip"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/quicconn"
	"github.com/millrace/millrace/l7/route"
	"github.com/millrace/millrace/l7/transport"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/tls"
)

// Bounds of links.
const (
	readSize    = 48 << 10 // it stays in the first cache: docs/design/027 has figures
	sealSize    = 128 << 10
	bufferSize  = 4 << 10         // of a new buffer
	keepSize    = 256 << 10       // larger buffers are not kept
	keepCount   = 1024            // buffers that are kept for use again
	compactTime = 2 * time.Second // idle, before buffers are given back
	closeTime   = 10 * time.Second
	backWrite   = 30 * time.Second // without progress of what is sent to a backend
	tick        = 10 * time.Millisecond
)

// listening is a socket that listens.
type listening struct {
	w         *Worker
	current   *Listener          // as the configuration describes it now
	socket    transport.Listener // nil for HTTP/3 alone
	quic      bool               // HTTP/3 is served
	admission *Admission
	removed   bool // the configuration has it no more
}

// timed is what a timer belongs to.
type timed interface{ fired() }

// Worker is the part of a proxy that one loop has. All methods belong to the loop.
type Worker struct {
	loop transport.Loop
	now  clock.Time

	buf     []byte   // every connection is read into it
	sealed  []byte   // and encrypted into it
	buffers [][]byte // free ones
	run     runQueue

	wheel      *clock.Wheel
	timers     []timed
	freeTimers []uint32

	tree        *Tree
	pools       map[*Pool]bool // those of tree
	listeners   map[string]*listening
	admissions  map[string]*Admission // of listeners without one, by name
	exchanges   *exchange             // free ones
	backs       map[backsKey]*backends
	coroutines  *tls.Coroutines
	routed      route.Request
	refused     func(client netip.Addr, r Refusal, n int) // see OnRefused; nil: nobody asks
	fronts      map[*link]struct{}
	frontClosed func(*link) // clientClosed
	queues      []*backends // that have one
	queuesAt    clock.Time  // when they are looked at
	turns       uint64      // of waiters so far
	misfits     int         // events that exchanges got in phases that do not permit them: always 0
	draining    bool

	endpoints *Endpoints
	hub       *quicconn.Hub
	fronts3   map[*clientInfo]*front3

	id       int // of the worker, from 0
	counters counters
	latency  metrics.Histogram
	onRecord func(*Record)
	entry    Record // given to onRecord
}

// NewWorker returns a worker for a loop. id numbers the workers of a proxy from 0. Apply gives it a configuration.
func NewWorker(loop transport.Loop, id int) *Worker {
	w := &Worker{
		id: id, loop: loop, now: loop.Now(), buf: make([]byte, readSize), sealed: make([]byte, 0, sealSize),
		listeners: map[string]*listening{}, admissions: map[string]*Admission{}, backs: map[backsKey]*backends{}, coroutines: &tls.Coroutines{}, fronts: map[*link]struct{}{},
	}
	w.frontClosed = w.clientClosed
	w.wheel = clock.NewWheel(64, tick, w.now)
	w.hub, w.fronts3 = quicconn.NewHub(loop), map[*clientInfo]*front3{}
	loop.SetTick(w.tick)
	return w
}

// enter notes the time of a batch of events. The last tick may be long ago: deadlines from its time would have passed.
func (w *Worker) enter() { w.now = w.loop.Now() }

// tick runs timers, reads what is taken again, and sends what the batch has produced.
func (w *Worker) tick(now clock.Time) clock.Time {
	w.now = now
	w.wheel.Advance(now, func(id uint32) {
		if t := w.timers[id]; t != nil {
			t.fired()
		}
	})
	w.run.begin()
	w.checkQueues()
	if w.run.run() {
		return now // at once
	}
	return min(w.wheel.Next(), w.nextCheck())
}

// maxSteps bounds what a link does in one iteration of the loop: reads of readSize, or moves of bypassMost, each.
const maxSteps = 8

// maxLast bounds how often a link advances once its connection has failed: by more than a receive buffer has.
const maxLast = 64

// newTimer returns a timer that calls t.
func (w *Worker) newTimer(t timed) uint32 {
	if n := len(w.freeTimers); n > 0 {
		id := w.freeTimers[n-1]
		w.freeTimers = w.freeTimers[:n-1]
		w.timers[id] = t
		return id
	}
	id := uint32(len(w.timers))
	w.timers = append(w.timers, t)
	w.wheel.Grow(max(64, 2*int(id)))
	return id
}

// once is a timer that frees itself.
type once struct {
	w  *Worker
	id uint32
	t  timed
}

func (o *once) fired() {
	o.w.freeTimer(o.id)
	o.t.fired()
}

// after calls t once, after a time.
func (w *Worker) after(d time.Duration, t timed) {
	o := &once{w: w, t: t}
	o.id = w.newTimer(o)
	w.wheel.Arm(o.id, w.now.Add(d))
}

func (w *Worker) freeTimer(id uint32) {
	w.wheel.Stop(id)
	w.timers[id] = nil
	w.freeTimers = append(w.freeTimers, id)
}

// getBuffer returns an empty buffer.
func (w *Worker) getBuffer() []byte {
	if n := len(w.buffers); n > 0 {
		b := w.buffers[n-1]
		w.buffers = w.buffers[:n-1]
		return b
	}
	return make([]byte, 0, bufferSize)
}

// putBuffer takes a buffer back.
func (w *Worker) putBuffer(b *[]byte) {
	if c := cap(*b); c >= bufferSize && c <= keepSize && len(w.buffers) < keepCount {
		w.buffers = append(w.buffers, (*b)[:0])
	}
	*b = nil
}
