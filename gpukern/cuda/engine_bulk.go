package cuda

import (
	"unsafe"

	"github.com/millrace/millrace/gpukern"
)

// bulkJob is a bulk batch on its way to the goroutine that launches it.
type bulkJob struct {
	work   Work
	pass   HeaderPass  // without Ops nothing is to be done
	search literalPass // without N neither
	grid   Grid        // of the search
	mark   markParams
}

// launch has a flight go by launches of its own. There is always room for the job: one for each flight.
func (e *Engine) launch(i int, fl *flight) {
	fl.turn++
	fl.next = len(fl.d)
	j := bulkJob{
		work: Work{
			Mem: e.region.Ptr, Size: uint64(len(e.region.Mem)), Desc: fl.at, N: len(fl.d), Shift: e.cfg.Arena.Shift,
		},
		pass: HeaderPass{
			Ops: gpukern.Ops(e.headerOps()), Tables: fl.tables.ptr, State: e.state.ptr(), Epoch: fl.epoch,
			Generation: fl.tables.generation,
		},
		mark: e.markOf(i, fl),
	}
	if e.search != nil && !fl.lists {
		j.search, j.grid = e.search.pass(e, i, fl), fl.tables.search.grid
	}
	e.jobs <- j
}

// launchSearch has the listed texts of a flight searched. The job before has left: there is room.
func (e *Engine) launchSearch(i int, fl *flight) {
	fl.turn++
	e.jobs <- bulkJob{search: e.search.pass(e, i, fl), grid: fl.tables.search.grid, mark: e.markOf(i, fl)}
}

// markOf is the mark behind a flight's launches.
func (e *Engine) markOf(i int, fl *flight) markParams {
	return markParams{word: e.words.ptr(unsafe.Pointer(&e.words.marks[i])), value: fl.turn}
}

// run puts on the stream what a bulk batch needs, and the mark behind it.
func (e *Engine) run(j *bulkJob) error {
	if e.fault.Load() != nil {
		return nil
	}
	return e.dev.do(func() error {
		r := &Recorder{e.bulk}
		if j.pass.Ops != 0 {
			if err := j.pass.Put(r, j.work); err != nil {
				return err
			}
		}
		if e.search != nil {
			if err := e.search.put(r, j); err != nil {
				return err
			}
		}
		return Record(r, e.mark, Grid{Blocks: 1, Threads: 32}, &j.mark)
	})
}
