package pool

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/clock"
)

// Affinity remembers which backend serves a key: a client, or a session. It is bounded, and forgets keys that are not used for a time.
// Its methods may be called by all loops.
//
// A key has a bucket of eight places. Where all are in use, the one that was not used for longest makes room. A bucket is read and
// written behind one of 64 locks, which are held for a look at 192 bytes.
type Affinity struct {
	ttl     clock.Time
	buckets []affinityBucket
	locks   [64]sync.Mutex

	hits, misses, evicted atomic.Uint64
}

type affinityBucket [affinityWays]affinityEntry

const affinityWays = 8

// affinityEntry is a key with its backend. until is 0 in one that was never used.
type affinityEntry struct {
	key, token uint64 // the token is that of the backend, which outlives reloads
	until      clock.Time
}

// AffinityStats are the counters of an Affinity.
type AffinityStats struct {
	Hits, Misses uint64 // look-ups that have found a backend, or none
	Evicted      uint64 // keys in use that have made room for others
}

// NewAffinity returns a table for at least so many keys, which are forgotten a time after their last use.
func NewAffinity(entries int, ttl time.Duration) *Affinity {
	n := max(1, (entries+affinityWays-1)/affinityWays)
	return &Affinity{ttl: clock.Time(ttl), buckets: make([]affinityBucket, 1<<bits.Len(uint(n-1)))}
}

// Stats returns the counters. Each is of another moment.
func (a *Affinity) Stats() AffinityStats {
	return AffinityStats{a.hits.Load(), a.misses.Load(), a.evicted.Load()}
}

// bucket returns the bucket of a key, locked.
func (a *Affinity) bucket(key uint64) (*affinityBucket, *sync.Mutex) {
	i := int(key & uint64(len(a.buckets)-1))
	lock := &a.locks[i%len(a.locks)]
	lock.Lock()
	return &a.buckets[i], lock
}

// find returns the token of a key's backend.
func (a *Affinity) find(now clock.Time, key uint64) (token uint64, ok bool) {
	b, lock := a.bucket(key)
	defer lock.Unlock()
	for i := range b {
		if e := &b[i]; e.key == key && e.until > now {
			return e.token, true
		}
	}
	return 0, false
}

// Set notes that a backend serves a key, for the time from now.
func (a *Affinity) Set(now clock.Time, key uint64, to *Backend) {
	b, lock := a.bucket(key)
	defer lock.Unlock()
	place := &b[0]
	for i := range b {
		e := &b[i]
		if e.key == key && e.until > now {
			place = e
			break
		}
		if e.until < place.until {
			place = e
		}
	}
	if place.key != key && place.until > now {
		a.evicted.Add(1)
	}
	*place = affinityEntry{key, to.token.Load(), now + a.ttl}
}

// Kept returns the backend that serves a key; nil where there is none, or it takes no requests. A draining backend keeps its keys.
func (p *Pool) Kept(now clock.Time, a *Affinity, key uint64) *Backend {
	if token, ok := a.find(now, key); ok {
		if b, _ := p.fromToken(now, token); b != nil {
			a.hits.Add(1)
			return b
		}
	}
	a.misses.Add(1)
	return nil
}
