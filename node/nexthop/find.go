package nexthop

import (
	"net/netip"
	"sync"
	"time"
)

// findTime is the time that an address that Find wants is tried.
const findTime = 3 * time.Second

// Finds are the addresses that a Resolver was asked to Find and has not found yet. Any goroutine may Add; one tries them.
type Finds struct {
	Most int // addresses that are tried at once: what is beyond is forgotten

	mu     sync.Mutex
	wanted []find // not tried yet
	trying []find // of the goroutine that tries
}

// find is an address that is to be resolved once; it is forgotten after until.
type find struct {
	addr  netip.Addr
	found func(netip.Addr, Hop)
	until time.Time
}

// Add enters addresses. found is called for each that is found, by the goroutine that tries.
func (f *Finds) Add(addrs []netip.Addr, found func(netip.Addr, Hop)) {
	until := time.Now().Add(findTime)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range addrs[:min(len(addrs), f.Most-len(f.wanted))] {
		f.wanted = append(f.wanted, find{a, found, until})
	}
}

// Try reports the addresses that resolve knows now, forgets those whose time is over, and returns whether none is left.
func (f *Finds) Try(resolve func(netip.Addr) (Hop, bool)) bool {
	f.mu.Lock()
	f.trying = append(f.trying, f.wanted[:min(len(f.wanted), f.Most-len(f.trying))]...)
	f.wanted = nil
	f.mu.Unlock()
	left := f.trying[:0]
	for _, one := range f.trying {
		switch hop, ok := resolve(one.addr); {
		case ok && hop.State != Unresolved:
			one.found(one.addr, hop)
		case time.Now().Before(one.until):
			left = append(left, one)
		}
	}
	clear(f.trying[len(left):])
	f.trying = left
	return len(left) == 0
}
