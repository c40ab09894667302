package kernbench

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
)

// work is a load cut into batches, perhaps several times over, so that a run is long enough to be
// timed: each time with descriptors of its own, so that every result can be looked at afterwards.
type work struct {
	load    *load
	batches []*packet.Batch
	lap     int          // batches of one time
	seen    []*flowsSeen // by lap, where each has a flow table of its own; else one

	untouched bool // the run must leave every descriptor as it is
}

// newWork lays out laps times the load, in batches of at most n packets that are made by the engine that
// they are for.
func newWork(l *load, laps, n int, info gpukern.Info) *work {
	w := &work{load: l, seen: []*flowsSeen{newFlowsSeen()}}
	for range laps {
		for at := 0; at < len(l.desc); at += n {
			b := newBatch(info, l.arena.View(), min(n, len(l.desc)-at))
			b.D = b.D[:min(n, len(l.desc)-at)]
			w.batches = append(w.batches, b)
		}
	}
	w.lap = len(w.batches) / laps
	return w
}

func newBatch(info gpukern.Info, a *packet.Arena, n int) *packet.Batch {
	if info.NewBatch != nil {
		return info.NewBatch(a, n)
	}
	return packet.NewBatch(a, n)
}

// own gives each lap a flow table of its own.
func (w *work) own() *work {
	for len(w.seen) < len(w.batches)/w.lap {
		w.seen = append(w.seen, newFlowsSeen())
	}
	return w
}

// packets returns how many packets a run of the work has.
func (w *work) packets() int { return len(w.batches) / w.lap * len(w.load.desc) }

// part returns work of the same kind for other descriptors, as many or fewer: once, or on each lap where
// laps have tables of their own.
func (w *work) part(desc []packet.Desc) *work {
	p := &work{load: w.load}
	for lap := range w.seen {
		rest := desc
		for _, b := range w.batches[lap*w.lap : (lap+1)*w.lap] {
			n := min(cap(b.D), len(rest))
			b.D = append(b.D[:0], rest[:n]...)
			rest = rest[n:]
			p.batches = append(p.batches, b)
		}
	}
	p.lap = w.lap
	return p
}

// poisoned is the value in every field that an engine must write, or must leave as it is.
var poisoned = packet.Desc{
	Port: 0x5a, L3: 0xa5, L4: 0xa5a5, Payload: 0xa5a5, Hash: 0xa5a5a5a5, Flow: 0xa5a5a5a5, Rule: 0xa5a5, NextHop: 0xa5a5,
	Stamp: 0x5a5a5a5a, Flags: ^(packet.FlagMore | packet.FlagOffload), Proto: 0xa5, Verdict: packet.Undecided,
}

// poison makes every result wrong, so that what is right afterwards has been written by the run.
func (w *work) poison(e *expectation) {
	for i, at := 0, 0; i < len(w.batches); i++ {
		b := w.batches[i]
		n := min(cap(b.D), len(e.before)-at)
		b.D = append(b.D[:0], e.before[at:at+n]...)
		b.Matches = append(b.Matches[:0], packet.Match{D: ^uint32(0), Rule: ^uint32(0), End: ^uint32(0)})
		if at += n; at == len(e.before) {
			at = 0
		}
	}
}

// check compares every result with what is expected and returns how many packets were compared.
func (w *work) check(e *expectation) (n int, err error) {
	at := 0
	for i, b := range w.batches {
		if at == len(e.after) {
			at = 0
		}
		if w.untouched {
			err = e.compareBefore(b.D, at)
		} else {
			err = e.compare(b.D, at, w.seen[i/w.lap%len(w.seen)])
		}
		if err != nil {
			return 0, err
		}
		if e.text {
			if err := e.compareMatches(b, at); err != nil {
				return 0, err
			}
		}
		at += len(b.D)
		n += len(b.D)
	}
	return n, nil
}

// noRoom returns how many packets of flows got no slot.
func (w *work) noRoom() (n uint64) {
	for _, s := range w.seen {
		n += s.none
	}
	return n
}

// ErrWrong reports that a back end gave another result than the one that it is compared with.
var ErrWrong = errors.New("wrong result")

func wrong(i int, what string, got, want any) error {
	return fmt.Errorf("%w: packet %d: %s is %v, not %v", ErrWrong, i, what, got, want)
}
