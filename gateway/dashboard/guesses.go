package dashboard

import (
	"net/netip"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/bounded"
)

// guesses is a brake on wrong tokens: a source that has given several has to wait before another one of its is compared, be it
// right. Other sources are not held up. A token has 32 characters or more, so that no guess comes near: the brake keeps guessing from
// taking processor time and filling the log, and a token that is weak in spite of its length from being found.
type guesses struct {
	mu      sync.Mutex
	sources bounded.Map[netip.Prefix, tries]
}

// tries are those of a source, in a token bucket: at is the time at which all of them are forgotten.
type tries struct{ at time.Time }

const (
	guessesAtOnce = 10              // wrong tokens of a source that are compared at once
	guessEvery    = 6 * time.Second // and then one in this time
	guessSources  = 4096            // sources that are followed; beyond them the one that has been there for the longest is forgotten
)

// take counts a token as a wrong one before it is compared, so that those that come at once count as well. It returns how long the source
// has to wait where it has none left; the token is not to be compared then.
func (g *guesses) take(from netip.Prefix, now time.Time) (wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.sources.Enter(from, guessSources)
	if t.at.Before(now) {
		t.at = now
	}
	if wait = t.at.Add(-(guessesAtOnce - 1) * guessEvery).Sub(now); wait > 0 {
		return wait
	}
	t.at = t.at.Add(guessEvery)
	return 0
}

// right forgets the wrong tokens of a source, which has given the right one.
func (g *guesses) right(from netip.Prefix) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t := g.sources.Get(from); t != nil {
		t.at = time.Time{}
	}
}

// sourceOf returns the source of an address with a port: an IPv4 address or an IPv6 /64. One that cannot be read is a source, too.
func sourceOf(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	a, bits := at.Addr().Unmap(), 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.WithZone("").Prefix(bits)
	return p
}
