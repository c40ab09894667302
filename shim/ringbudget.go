package shim

import (
	"sync"
	"time"

	"github.com/millrace/millrace/clock"
)

const (
	// ringBurst is how many connections get rings whatever they move, and ringPause how often one more does. To make, map and
	// unmap rings costs node and program some 40 us, about as much as all else that a connection of a few
	// messages does: at this rate it is less than 1 % of a processor.
	ringBurst = 1024
	ringPause = 5 * time.Millisecond

	// ringWorth is from how many bytes on a connection has been worth its rings.
	ringWorth = 256 << 10
)

// ringBudget says which connections of a listener, or of a channel of a process, get rings: so a program whose connections are
// short and many does not pay for them. The others travel by the socket. The zero value has not been used. Its methods
// may be called from several goroutines.
type ringBudget struct {
	mu   sync.Mutex
	used int        // of ringBurst
	last clock.Time // when used was last reduced for the time that has passed
}

// take reports whether a connection that begins at now gets rings.
func (b *ringBudget) take(now clock.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := int(now.Sub(b.last) / ringPause); n > 0 {
		b.used = max(0, b.used-n)
		b.last = b.last.Add(time.Duration(n) * ringPause)
	}
	if b.used >= ringBurst {
		return false
	}
	b.used++
	return true
}

// refund is called at the end of a connection that had rings and has moved as many bytes.
func (b *ringBudget) refund(moved uint64) {
	if moved < ringWorth {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used = max(0, b.used-1)
}
