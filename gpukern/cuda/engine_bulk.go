package cuda

import (
	"sync/atomic"
	"unsafe"

	"github.com/millrace/millrace/gpukern"
)

// bulkStreams is the number of streams that bulk batches take turns on: the end of one leaves multiprocessors without
// work, which the beginning of the next takes up. No state of the device asks for an order of batches.
const bulkStreams = 3

// bulkJob is a bulk batch on its way to the goroutine that launches it.
type bulkJob struct {
	work   Work
	pass   HeaderPass // without Ops nothing is to be done
	search *Search    // nil where nothing is to be searched, or not yet
	set    LiteralSet
	mark   markParams
	place  int // of the flight
	stream *Stream
}

// launch has a flight go by launches of its own. There is always room for the job: one for each flight.
func (e *Engine) launch(i int, fl *flight) {
	fl.next = len(fl.d)
	j := e.jobOf(i, fl)
	j.pass = HeaderPass{
		Ops: gpukern.Ops(e.headerOps()), Tables: fl.tables.ptr, State: e.state.ptr(), Epoch: fl.epoch,
		Generation: fl.tables.generation,
	}
	if fl.search && !fl.lists {
		j.search = e.searches.of[i]
		j.pass.Texts = j.search
	}
	e.send(fl, j)
}

// launchSearch has the listed texts of a flight searched.
func (e *Engine) launchSearch(i int, fl *flight) {
	j := e.jobOf(i, fl)
	j.search = e.searches.of[i]
	e.send(fl, j)
}

// searchAgain has a flight in place i searched once more, by a list, where it turned out to have packets in
// pieces.
func (e *Engine) searchAgain(i int, fl *flight) bool {
	if !fl.search || fl.lists || !e.searches.of[i].Pieces() {
		return false
	}
	fl.lists = true
	e.searches.list(i, fl)
	e.launchSearch(i, fl)
	return true
}

// jobOf is a job for a flight, and its mark.
func (e *Engine) jobOf(i int, fl *flight) bulkJob {
	fl.seq++
	return bulkJob{
		work: Work{
			Mem: e.region.Ptr, Size: uint64(len(e.region.Mem)), Desc: fl.at, N: len(fl.d), Shift: e.cfg.Arena.Shift,
		},
		set: fl.tables.set, place: i, stream: e.bulk[i%bulkStreams],
		mark: markParams{word: e.shared.ptr(unsafe.Pointer(&e.shared.marks[i])), value: fl.seq},
	}
}

func (e *Engine) send(fl *flight, j bulkJob) {
	e.sent++
	fl.job = e.sent
	e.jobs <- j
}

// run puts on the stream what a bulk batch needs, and the mark behind it.
func (e *Engine) run(j *bulkJob) error {
	if e.fault.Load() != nil {
		return nil
	}
	return e.dev.do(func() error {
		r := &Recorder{j.stream}
		if j.pass.Ops != 0 {
			if err := j.pass.Put(r, j.work); err != nil {
				return err
			}
		}
		if j.search != nil {
			if err := j.search.Put(r, j.work, j.set); err != nil {
				return err
			}
		}
		return Record(r, e.mark, Grid{Blocks: 1, Threads: 32}, &j.mark)
	})
}

// marked reports whether all that was launched for a flight is done.
func (e *Engine) marked(i int, fl *flight) bool {
	return e.ran.Load() >= fl.job && atomic.LoadUint32(&e.shared.marks[i].done) == fl.seq
}
