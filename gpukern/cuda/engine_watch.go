package cuda

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"
)

// queued is the number of persistent kernels that are under way: one that runs, and one that waits for its end.
const queued = 2

// watchDevice is the goroutine that watches the device by the words that both share. It makes no call of the
// driver, which a hung device might not answer.
func (e *Engine) watchDevice() {
	defer e.running.Done()
	t := time.NewTicker(e.cfg.every)
	defer t.Stop()
	limit := max(2, int(e.cfg.Patience/e.cfg.every))
	w := watch{last: make([]seen, len(e.shared.slots)), limit: limit}
	launches := launchWatch{limit: launchPatience * limit}
	for {
		select {
		case <-e.quit:
			return
		case <-t.C:
		}
		if e.fault.Load() != nil {
			continue
		}
		heartbeat(e.shared.slots)
		if i := w.stuck(e.shared.slots); i >= 0 {
			e.dev.markLost(&Error{Op: "serve batches", Text: fmt.Sprintf("the block of slot %d makes no progress", i), kind: ErrLost})
		}
		if launches.stuck(e.shared.marks, e.asked) {
			e.dev.markLost(&Error{Op: "serve batches", Text: "the launches of large batches make no progress", kind: ErrLost})
		}
		if err := e.dev.Lost(); err != nil {
			e.lose(err)
			continue
		}
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
}

// watch finds blocks that make no progress though they have work. It counts checks, not time: a process that was
// stopped for a while finds its device as it left it.
type watch struct {
	last  []seen
	limit int // checks without a change
}

type seen struct {
	done, beat uint32
	checks     int
}

// stuck returns a slot that has waited for too long while its block gave no sign, else -1.
func (w *watch) stuck(slots []slot) int {
	for i := range slots {
		s, l := &slots[i], &w.last[i]
		done, beat := atomic.LoadUint32(&s.done), atomic.LoadUint32(&s.beat)
		if !s.waits() || done != l.done || beat != l.beat {
			*l = seen{done: done, beat: beat}
			continue
		}
		if l.checks++; l.checks >= w.limit {
			return i
		}
	}
	return -1
}

// launchPatience multiplies Patience for the launches: they give no sign before their end.
const launchPatience = 10

// launchWatch finds out that launches of large batches do not end. It counts checks as watch does.
type launchWatch struct {
	sum    uint32 // of the marks at the last change
	checks int
	limit  int // checks without a change while launches are under way
}

// stuck reports whether no launch has ended for too long though some are under way. asked is what the marks
// are to say in the end.
func (w *launchWatch) stuck(marks []mark, asked []atomic.Uint32) bool {
	sum, waits := uint32(0), false
	for i := range marks {
		want := asked[i].Load() // before the mark, which may follow at once
		done := atomic.LoadUint32(&marks[i].done)
		sum += done
		waits = waits || done != want
	}
	if !waits || sum != w.sum {
		w.sum, w.checks = sum, 0
		return false
	}
	w.checks++
	return w.checks >= w.limit
}

// makeCalls is the goroutine that makes the engine's calls of the driver: none of them is the loop's.
func (e *Engine) makeCalls() {
	defer e.running.Done()
	for {
		var err error
		select {
		case <-e.quit:
			return
		case j := <-e.jobs:
			e.asked[j.place].Store(j.mark.value) // before calls that might not come back
			err = e.run(&j)
			e.ran.Add(1)
		case <-e.wake:
			err = e.relaunch()
		}
		if err != nil {
			e.lose(err)
		}
	}
}

// relaunch has a next kernel wait behind the present one.
func (e *Engine) relaunch() error {
	if _, err := e.ring.Done(); err != nil {
		return err
	}
	w := &e.shared
	for e.fault.Load() == nil && e.launched-atomic.LoadUint32(&w.slots[0].ended) < queued {
		p := ringParams{
			slots: w.ptr(unsafe.Pointer(&w.slots[0])),
			mem:   e.region.Ptr, size: uint64(len(e.region.Mem)), state: e.state.ptr(),
			lifetime: uint64(e.cfg.Lifetime), patience: uint64(e.cfg.Patience),
			shift: uint32(e.cfg.Arena.Shift), launch: e.launched + 1,
		}
		if err := Launch(e.ring, e.serve, Grid{Blocks: len(w.slots), Threads: e.cfg.threads}, &p); err != nil {
			return err
		}
		e.launched++
	}
	return nil
}

// markLost calls a device lost that answers calls, perhaps, but does not work.
func (d *Device) markLost(why *Error) { d.lost.CompareAndSwap(nil, why) }
