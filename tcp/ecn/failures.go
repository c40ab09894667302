package ecn

import (
	"time"

	"github.com/millrace/millrace/internal/bounded"
	"github.com/millrace/millrace/wire"
)

// Failures records servers that answered a SYN only when it no longer asked for ECN: something on the path
// may drop SYNs for it, which costs each connection two timeouts (RFC 9768 3.1.4.1: "SHOULD cache failed connection
// attempts"). Losses for other reasons look alike, so that one failure is not enough, and the knowledge expires. Times are
// nanoseconds of the caller's clock. The zero value is empty.
type Failures struct {
	servers bounded.Map[wire.Addr, failure]
}

type failure struct {
	inARow      uint8
	pausedUntil int64
}

const (
	mostFailing     = 1024 // servers
	failuresToPause = 2
	firstPause      = int64(30 * time.Minute)
	mostDoublings   = 6 // of the pause: 32 hours
)

// Paused reports whether SYNs to the server ask for no ECN now.
func (f *Failures) Paused(now int64, server *wire.Addr) bool {
	s := f.servers.Get(*server)
	return s != nil && now < s.pausedUntil
}

// Failed notes that the server answered a SYN without ECN after those that asked for it.
func (f *Failures) Failed(now int64, server *wire.Addr) {
	s := f.servers.Enter(*server, mostFailing)
	s.inARow = min(s.inARow+1, failuresToPause+mostDoublings)
	if s.inARow >= failuresToPause {
		s.pausedUntil = now + firstPause<<(s.inARow-failuresToPause)
	}
}

// Worked notes that the server answered a SYN that asked for ECN.
func (f *Failures) Worked(server *wire.Addr) {
	if s := f.servers.Get(*server); s != nil {
		*s = failure{}
	}
}
