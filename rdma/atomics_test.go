package rdma

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/rdma/transport"
)

// atomicOp is an operation of a history: when it began and ended on one clock, and what it returned.
type atomicOp struct {
	begin, end    int64
	add           bool   // FETCH_ADD; otherwise CMP_SWAP
	compare, swap uint64 // swap is added by FETCH_ADD
	got           uint64
}

// apply returns the value behind the operation, and whether it returns what it did.
func (o *atomicOp) apply(v uint64) (uint64, bool) {
	switch {
	case o.got != v:
		return v, false
	case o.add:
		return v + o.swap, true
	case v == o.compare:
		return o.swap, true
	}
	return v, true
}

// linearizable reports whether the operations, at most 64, can be put in an order that returns what they did and in which none comes before one
// that had ended when it began (Wing and Gong, Testing and Verifying Concurrent Objects, 1993).
func linearizable(ops []atomicOp, first uint64) bool {
	type state struct{ done, value uint64 }
	seen := map[state]bool{}
	var search func(done, v uint64) bool
	search = func(done, v uint64) bool {
		if done == 1<<len(ops)-1 {
			return true
		}
		if seen[state{done, v}] {
			return false
		}
		seen[state{done, v}] = true
		least := int64(1 << 62) // the earliest end of those that are left: none that begins later may come next
		for i := range ops {
			if done>>i&1 == 0 {
				least = min(least, ops[i].end)
			}
		}
		for i := range ops {
			if done>>i&1 == 1 || ops[i].begin > least {
				continue
			}
			if next, ok := ops[i].apply(v); ok && search(done|1<<i, next) {
				return true
			}
		}
		return false
	}
	return search(0, first)
}

// TestChecker has histories that are wrong.
func TestChecker(t *testing.T) {
	good := []atomicOp{{0, 3, true, 0, 5, 0}, {1, 2, false, 5, 7, 5}, {4, 5, true, 0, 1, 7}}
	if !linearizable(good, 0) {
		t.Error("a good history is refused")
	}
	for name, change := range map[string]func(o []atomicOp){
		"a value twice":           func(o []atomicOp) { o[2].got = 5 },
		"a value from nowhere":    func(o []atomicOp) { o[1].got = 6 },
		"an effect before its op": func(o []atomicOp) { o[0].begin, o[0].end = 6, 7 },
	} {
		bad := append([]atomicOp(nil), good...)
		if change(bad); linearizable(bad, 0) {
			t.Errorf("%s is accepted", name)
		}
	}
}

// TestAtomicsAreLinearizable has four goroutines add to one word and compare and swap it, each by a queue pair of its own.
func TestAtomicsAreLinearizable(t *testing.T) {
	const clients, each = 4, 12
	c := openContext(t, 1, Config{})
	for seed := range uint64(10) {
		word := newSide(t, c, RC, 8)
		var clock atomic.Int64
		var all sync.WaitGroup
		history := make([]atomicOp, clients*each)
		for i := range clients {
			near, far := newSide(t, c, RC, 8), &side{t: t, pd: word.pd, cq: word.cq, mr: word.mr}
			var err error
			if far.qp, err = word.pd.CreateQP(QPConfig{Service: RC, SendCQ: word.cq, RecvCQ: word.cq}); err != nil {
				t.Fatal(err)
			}
			join(t, near, far, ConnectConfig{})
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			all.Go(func() {
				last := uint64(0)
				for k := range each {
					o := &history[i*each+k]
					o.add, o.compare, o.swap = r.IntN(2) == 0, last, 1+r.Uint64N(9)
					w := SendWR{Op: OpCompareSwap, List: []SGE{near.mr.SGE(0, 8)}, RemoteAddr: word.mr.Addr(), RKey: word.mr.RKey(), Compare: o.compare, Swap: o.swap}
					if o.add {
						w.Op = OpFetchAdd
					}
					o.begin = clock.Add(1)
					near.post(w)
					done := near.completions(1)[0]
					o.end = clock.Add(1)
					if done.Status != transport.Success {
						t.Error(done.Status)
						return
					}
					o.got = binary.NativeEndian.Uint64(near.mr.Bytes())
					last = o.got
				}
			})
		}
		all.Wait()
		if !t.Failed() && !linearizable(history, 0) {
			t.Fatalf("seed %d: no order explains %+v", seed, history)
		}
	}
}
