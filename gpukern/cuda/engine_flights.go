package cuda

import (
	"sync/atomic"
	"unsafe"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
)

// flight is a batch inside the engine.
type flight struct {
	b      *packet.Batch
	d      []packet.Desc // what the device works on: b.D, or the copy
	at     Ptr           // of d
	tables *loaded
	epoch  uint32
	bulk   bool
	search bool // its payloads are searched
	copied bool
	lists  bool // its texts are listed between two launches
	listed bool // and have been
	done   bool // the findings are in b

	next        int    // descriptor that is posted next
	first, last uint64 // numbers of the parts that were posted: from first to before last
	seq         uint32 // what its mark says when a bulk batch is done
	job         uint64 // number of its last job
}

// flights are the batches inside, oldest first, in a ring.
type flights struct {
	words      *sharedMemory
	all        []flight
	head, held int
	posted     int // of those held, how many are posted, from the oldest on
	listed     int // of those posted, how many need no list any more
}

func (f *flights) init(w *sharedMemory, depth int) { f.words, f.all = w, make([]flight, depth) }

// at returns the i-th oldest flight.
func (f *flights) at(i int) *flight { return &f.all[(f.head+i)%len(f.all)] }

// index returns the number of a flight's place.
func (f *flights) index(i int) int { return (f.head + i) % len(f.all) }

// posts counts the parts that were posted in slots. Part p goes to slot p modulo their number: so each
// slot's own numbers follow from p.
type posts struct{ n uint64 }

// slotOf returns the slot of a part and the part's number in it, from 1.
func (e *Engine) slotOf(part uint64) (*slot, uint32) {
	n := uint64(len(e.shared.slots))
	return &e.shared.slots[part%n], uint32(part/n) + 1
}

// Submit takes b until Poll returns it. Errors are ErrFull, ErrClosed, ErrArena and ErrTooLarge; the batch
// stays the caller's then.
func (e *Engine) Submit(b *packet.Batch) error {
	f := &e.flights
	switch {
	case e.closed:
		return gpukern.ErrClosed
	case f.held == len(f.all):
		return gpukern.ErrFull
	case len(b.D) > 0 && unsafe.SliceData(b.Arena.Mem) != unsafe.SliceData(e.cfg.Arena.Mem):
		return ErrArena
	}
	fl := f.at(f.held)
	*fl = flight{b: b, seq: fl.seq}
	if e.down() {
		f.held++
		f.posted, f.listed = f.held, f.held
		e.redo(fl)
		return nil
	}
	if len(b.D) > 0 && !f.place(fl) || e.searches != nil && len(b.D) > e.cfg.Search {
		return ErrTooLarge
	}
	fl.tables = e.take()
	if e.cfg.Flows != nil {
		fl.epoch = e.cfg.Flows.Epoch()
	}
	// Without literals only streams are kept, whose next packets may be searched.
	fl.search = e.searches != nil && (e.searches.streams != nil || fl.tables.tables.Literals != nil)
	fl.bulk = e.isBulk(fl)
	fl.lists = fl.search && fl.bulk && e.searches.streams != nil
	f.held++
	e.post()
	return nil
}

// place finds where the device works on the descriptors of a flight that is about to be the youngest:
// where they are, or in a copy.
func (f *flights) place(fl *flight) bool {
	fl.d = fl.b.D
	if fl.at = f.words.place(fl.d); fl.at != 0 {
		return true
	}
	if len(fl.d) > f.words.each {
		return false
	}
	own := f.words.copies[f.index(f.held)*f.words.each:][:len(fl.d)]
	copy(own, fl.d)
	fl.copied = true
	fl.d, fl.at = own, f.words.ptr(unsafe.Pointer(&own[0]))
	return true
}

// isBulk reports whether a flight goes by launches of its own: it is large, its payloads are searched, or
// it has a packet of more descriptors than a slot takes.
func (e *Engine) isBulk(fl *flight) bool {
	if len(fl.d) >= e.cfg.Bulk || fl.search && len(fl.d) > 0 {
		return true
	}
	for at := 0; len(fl.d)-at > slotMax; {
		n := cut(fl.d[at:])
		if n == 0 {
			return true
		}
		at += n
	}
	return false
}

// cut returns how many descriptors of d go into one slot, whole packets; 0 where the first has too many.
func cut(d []packet.Desc) int {
	if len(d) <= slotMax {
		return len(d)
	}
	return packet.Whole(d, slotMax)
}

// post hands the device what there is room for, in order.
func (e *Engine) post() {
	f := &e.flights
	for ; f.posted < f.held; f.posted++ {
		fl := f.at(f.posted)
		if fl.bulk {
			e.launch(f.index(f.posted), fl)
			continue
		}
		if fl.next == 0 {
			fl.first, fl.last = e.posts.n, e.posts.n
		}
		for fl.next < len(fl.d) {
			if !e.postPart(fl) {
				return
			}
		}
	}
	e.list()
}

// list lists the texts of the flights that the header pass is done with, in their order, and has them
// searched.
func (e *Engine) list() {
	f := &e.flights
	if e.searches == nil {
		return
	}
	for ; f.listed < f.posted; f.listed++ {
		fl, i := f.at(f.listed), f.index(f.listed)
		if !fl.lists || fl.listed {
			continue
		}
		if !e.marked(i, fl) {
			return
		}
		e.searches.list(i, fl)
		e.launchSearch(i, fl)
	}
}

// postPart puts the next part of a flight into its slot, and reports whether that was free.
func (e *Engine) postPart(fl *flight) bool {
	s, seq := e.slotOf(e.posts.n)
	if !e.finished(s, seq-1) {
		return false
	}
	n := cut(fl.d[fl.next:])
	w := work{
		desc: fl.at + Ptr(fl.next*packet.DescSize), tables: fl.tables.ptr, n: uint32(n), ops: e.headerOps(),
		epoch: fl.epoch, generation: fl.tables.generation,
	}
	s.post(seq, w)
	fl.next += n
	e.posts.n++
	fl.last = e.posts.n
	return true
}

// headerOps are the operations of the header pass.
func (e *Engine) headerOps() uint32 {
	if e.cfg.Null {
		return 0
	}
	return uint32(e.cfg.Ops &^ gpukern.OpLiterals)
}

// finished reports whether batch seq of a slot is done. A slot in state ERROR gives the device up.
func (e *Engine) finished(s *slot, seq uint32) bool {
	if !s.finished(seq) {
		return false
	}
	if status := atomic.LoadUint32(&s.status); status != 0 {
		e.lose(&Error{Op: "serve a batch", Text: statusText(status), kind: ErrLost})
		return false
	}
	return true
}

// finishedFlight reports whether the device is done with the i-th oldest flight.
func (e *Engine) finishedFlight(i int) bool {
	f := &e.flights
	fl := f.at(i)
	if i >= f.posted {
		return false
	}
	if fl.bulk {
		return fl.lists == fl.listed && e.marked(f.index(i), fl) && !e.searchAgain(f.index(i), fl)
	}
	// A part that is older than all slots is done: its slot has been used again.
	first := max(fl.first, fl.last-min(fl.last, uint64(len(e.shared.slots))))
	for p := first; p < fl.last; p++ {
		if s, seq := e.slotOf(p); !e.later(p) && !e.finished(s, seq) {
			return false
		}
	}
	return true
}

// later reports whether the slot of a part has been given to another since.
func (e *Engine) later(part uint64) bool { return part+uint64(len(e.shared.slots)) < e.posts.n }

// complete brings the findings of the i-th oldest flight, which the device is done with, into its batch.
func (e *Engine) complete(i int) {
	fl := e.flights.at(i)
	if fl.copied {
		copy(fl.b.D, fl.d)
	}
	if e.searches != nil {
		if of := e.searches.of[e.flights.index(i)]; fl.search {
			of.WriteMatches(fl.b, fl.tables.tables.Literals)
		} else {
			of.scan(fl.b, nil) // no matches of the batch before
		}
	}
	e.release(fl.tables)
	fl.tables = nil
	fl.done = true
	e.byGPU.count(fl.b)
}

// Poll stores finished batches in done and returns how many, also after Close.
func (e *Engine) Poll(done []*packet.Batch) int {
	f := &e.flights
	e.post()
	n := 0
	for ; n < len(done) && f.held > 0; n++ {
		fl := f.at(0)
		if !fl.done && !e.completeNext(0) {
			break
		}
		done[n] = fl.b
		fl.b, fl.d = nil, nil
		f.head = (f.head + 1) % len(f.all)
		f.held--
		f.posted--
		f.listed = max(f.listed-1, 0)
	}
	return n
}

// completeNext finishes the i-th oldest flight, if the device has done it or does nothing any more.
func (e *Engine) completeNext(i int) bool {
	fl := e.flights.at(i)
	if e.finishedFlight(i) {
		e.complete(i)
		return true
	}
	if !e.down() {
		return false
	}
	return fl.done // down has done it again
}

// drain finishes what it can and reports whether nothing is left to be done.
func (e *Engine) drain() bool {
	if e.cpu == nil {
		e.post()
	}
	for i := range e.flights.held {
		if fl := e.flights.at(i); !fl.done && !e.completeNext(i) {
			return false
		}
	}
	for i := range e.flights.held {
		e.detach(e.flights.at(i).b)
	}
	return true
}
