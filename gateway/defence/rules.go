package defence

import (
	"sync"

	"github.com/millrace/millrace/filter/ebpf"
)

// rules are the names of the kernel's counters. A name keeps its number while the process lives, so that counters only grow.
type rules struct {
	numbers sync.Map // string to uint32

	mu    sync.Mutex
	names []string // by number; append only
}

// others counts for all rules beyond those that have numbers.
const others = "others"

func (r *rules) init() {
	r.names = []string{others}
	r.numbers.Store(others, uint32(0))
}

// number returns the number of a rule, and gives it one if it has none.
func (r *rules) number(name string) uint32 {
	if n, ok := r.numbers.Load(name); ok {
		return n.(uint32)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n, ok := r.numbers.Load(name); ok {
		return n.(uint32)
	}
	if len(r.names) == ebpf.MaxRules {
		return 0
	}
	n := uint32(len(r.names))
	r.names = append(r.names, name)
	r.numbers.Store(name, n)
	return n
}

// all returns the names by number.
func (r *rules) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.names[:len(r.names):len(r.names)]
}
