package cuda

import (
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
)

// fault is the reason why the device was given up.
type fault struct{ err error }

// lose gives the device up. The loop notices at its next call and does what is inside again. A kernel that
// still runs takes no batch any more.
func (e *Engine) lose(err error) {
	if !e.fault.CompareAndSwap(nil, &fault{err}) {
		return
	}
	stop(e.shared.slots)
	if e.cfg.Lost != nil {
		go e.cfg.Lost(err)
	}
}

// down reports whether the CPU does all work now. The first time after a loss it does the batches inside.
func (e *Engine) down() bool {
	if e.cpu != nil {
		return true
	}
	if e.fault.Load() == nil {
		return false
	}
	cfg := e.cfg.Config
	cfg.Depth = 1
	e.cpu = gpukern.NewCPU(cfg)
	f := &e.flights
	for i := range f.held {
		if fl := f.at(i); !fl.done {
			e.recoverFlight(i, fl)
		}
	}
	f.posted, f.listed = f.held, f.held
	return true
}

// recoverFlight finishes a flight that the device had when it was lost. Doing it again gives the same: a pass
// reads of a descriptor what no pass changes, and writes the rest anew.
func (e *Engine) recoverFlight(i int, fl *flight) {
	if e.finishedFlight(i) {
		e.complete(i)
		return
	}
	e.redone.Add(uint64(len(fl.b.D)))
	if fl.listed {
		e.recoverSearch(i, fl)
		return
	}
	e.redo(fl)
}

// recoverSearch finishes a flight whose headers the device had done, and whose texts are listed.
func (e *Engine) recoverSearch(i int, fl *flight) {
	if fl.copied {
		copy(fl.b.D, fl.d)
	}
	e.detach(fl.b)
	e.searches.of[e.flights.index(i)].scan(fl.b, fl.tables.tables.Literals)
	e.release(fl.tables)
	fl.tables = nil
	fl.done = true
	e.byCPU.count(fl.b)
}

// redo does a flight on the CPU, with the tables that it was submitted with.
func (e *Engine) redo(fl *flight) {
	l := fl.tables
	if l == nil {
		l = e.tables.Load()
	}
	if e.onCPU != l {
		_ = e.cpu.Load(l.tables) // it never fails
		e.onCPU = l
	}
	e.detach(fl.b)
	_ = e.cpu.Submit(fl.b) // there is room: the batch before has left
	e.cpu.Poll(e.back[:])
	if fl.tables != nil {
		e.release(fl.tables)
		fl.tables = nil
	}
	fl.done = true
	e.byCPU.count(fl.b)
}

// detach moves the descriptors of a batch out of the memory that the device writes: it may be slow rather
// than dead.
func (e *Engine) detach(b *packet.Batch) {
	if e.shared.place(b.D) == 0 {
		return
	}
	b.D = append(make([]packet.Desc, 0, cap(b.D)), b.D...)
}
