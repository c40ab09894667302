package kernbench

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/packet"
)

// work is a load cut into batches, perhaps several times over, so that a run is long enough to be
// timed: each time with descriptors of its own, so that every result can be looked at afterwards.
type work struct {
	*load
	all     []packet.Desc // copies x the load's, outside of the Go heap
	batches []*packet.Batch
}

// newWork lays out copies times the load, in batches of at most n packets.
func newWork(l *load, copies, n int) (*work, error) {
	all, err := offHeap(copies * len(l.desc))
	if err != nil {
		return nil, err
	}
	w := &work{load: l, all: all[:copies*len(l.desc)]}
	for at := 0; at < len(w.all); at += len(l.desc) {
		one := w.all[at : at+len(l.desc)]
		for len(one) > 0 {
			k := min(n, len(one))
			w.batches = append(w.batches, &packet.Batch{Arena: l.arena.View(), D: one[:k:k]})
			one = one[k:]
		}
	}
	return w, nil
}

func (w *work) close() error { return freeDescs(w.all) }

// poisoned is what lies in every field that an engine must write, or must leave as it is.
var poisoned = packet.Desc{
	Port: 0x5a, L3: 0xa5, L4: 0xa5a5, Payload: 0xa5a5, Hash: 0xa5a5a5a5, Flow: 0xa5a5a5a5, Rule: 0xa5a5, NextHop: 0xa5a5,
	Stamp: 0x5a5a5a5a, Flags: ^(packet.FlagMore | packet.FlagOffload), Proto: 0xa5, Verdict: packet.Undecided,
}

// poison makes every result wrong, so that what is right afterwards has been written by the run.
func (w *work) poison(e *expectation) {
	for at := 0; at < len(w.all); at += len(e.before) {
		copy(w.all[at:], e.before)
	}
	for _, b := range w.batches {
		b.Matches = append(b.Matches[:0], packet.Match{D: ^uint32(0), Rule: ^uint32(0), End: ^uint32(0)})
	}
	e.poisonPackets(w.load)
}

// check compares every result with what is expected and returns how many packets were compared.
func (w *work) check(e *expectation, seen *flowsSeen) (int, error) {
	for at := 0; at < len(w.all); at += len(e.after) {
		if err := e.compare(w.all[at:at+len(e.after)], seen); err != nil {
			return 0, err
		}
	}
	if e.text {
		at := 0
		for _, b := range w.batches {
			if err := e.compareMatches(b, at%len(e.after)); err != nil {
				return 0, err
			}
			at += b.Len()
		}
	}
	if err := e.comparePackets(w.load); err != nil {
		return 0, err
	}
	return len(w.all), nil
}

// ErrWrong says that a back end gave another result than the one that it is compared with.
var ErrWrong = errors.New("wrong result")

func wrong(i int, what string, got, want any) error {
	return fmt.Errorf("%w: packet %d: %s is %v, not %v", ErrWrong, i, what, got, want)
}
