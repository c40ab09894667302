package cache

import (
	"hash/maphash"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/semantics"
)

// Options bound a Cache.
type Options struct {
	Memory  int64 // bytes of all entries
	Objects int64 // number of entries; 0 is no bound
	// Dropped is called with each entry that has left, under the lock of the cache. It may not call the cache.
	Dropped func(*Entry)
}

const (
	// maxVariants bounds the entries of one URL: a client could otherwise make any number by the values of a field.
	maxVariants = 64
	// bytesOfBucket is the memory for which there is one bucket.
	bytesOfBucket = 2 << 10
	minBuckets    = 1 << 8
	maxBuckets    = 1 << 22
	// marks is the number of counters of invalidations.
	marks = 1 << 10
)

// Cache holds entries. Any goroutine may call its methods.
type Cache struct {
	buckets []atomic.Pointer[group]
	seed    maphash.Seed
	flights flights
	filling atomic.Int64  // bytes of content that is being gathered
	epoch   atomic.Uint64 // of purges by prefix
	changed [marks]atomic.Uint64

	mu     sync.Mutex // of all changes: queues, and lists of buckets and groups
	queues queues

	bound   atomic.Int64 // of queues
	most    atomic.Int64 // entries, 0 is no bound
	dropped func(*Entry)

	bytes, objects              atomic.Int64
	stored, evicted, invalidate atomic.Uint64
}

// group is all that is stored of one URL. Its list is replaced as a whole.
type group struct {
	hash    uint64
	url     string
	next    atomic.Pointer[group]
	entries atomic.Pointer[[]*Entry]
}

// New returns an empty cache.
func New(o Options) *Cache {
	n := min(max(o.Memory/bytesOfBucket, minBuckets), maxBuckets)
	if o.Objects > 0 {
		n = min(n, max(o.Objects, minBuckets))
	}
	n = 1 << bits.Len64(uint64(n-1))
	c := &Cache{buckets: make([]atomic.Pointer[group], n), seed: maphash.MakeSeed(), dropped: o.Dropped}
	c.most.Store(o.Objects)
	c.queues.init(o.Memory, int(n))
	c.bound.Store(o.Memory)
	return c
}

// SetMemory changes the bound.
func (c *Cache) SetMemory(n int64) {
	c.bound.Store(n)
	for more := true; more; { // in steps, between which others may change the cache
		c.mu.Lock()
		c.queues.most = n
		more = !c.makeRoom(0, 256)
		c.mu.Unlock()
	}
}

// Miss classifies requests for which a cache has no response.
type Miss uint8

// Values of Miss.
const (
	Found       Miss = iota
	URIMiss          // nothing of the URL is stored
	VariantMiss      // other variants of it are
)

func (c *Cache) hash(url string) uint64 { return maphash.String(c.seed, url) }

// find returns the group of a URL.
func (c *Cache) find(hash uint64, url string) *group {
	for g := c.buckets[hash&uint64(len(c.buckets)-1)].Load(); g != nil; g = g.next.Load() {
		if g.hash == hash && g.url == url {
			return g
		}
	}
	return nil
}

// Lookup returns the entry for a request with a key and fields. It takes no lock, and does not keep the key. An entry that is returned
// counts as used.
func (c *Cache) Lookup(k Key, fields []semantics.Field) (*Entry, Miss) {
	g := c.find(c.hash(k.URL), k.URL)
	if g == nil {
		return nil, URIMiss
	}
	for _, e := range *g.entries.Load() {
		if e.Variant == k.Variant && selects(e.vary, fields) {
			if n := e.hits.Load(); n < maxHits { // a lost increment costs nothing
				e.hits.Store(n + 1)
			}
			return e, Found
		}
	}
	return nil, VariantMiss
}

// Mark is a state of a URL: a response that was asked for before a change of it must not be stored after it.
type Mark struct{ url, epoch uint64 }

// Mark returns the state of a URL.
func (c *Cache) Mark(url string) Mark {
	return Mark{c.changed[c.hash(url)%marks].Load(), c.epoch.Load()}
}

// Store enters an entry, in the place of one for the same requests, unless it is older than that, or was asked for before the URL was
// invalidated. It reports whether the entry is in.
func (c *Cache) Store(e *Entry, at Mark) bool {
	hash, size := c.hash(e.URL), e.Size()
	c.mu.Lock()
	defer c.mu.Unlock()
	if at != (Mark{c.changed[hash%marks].Load(), c.epoch.Load()}) || size > c.queues.most/4 {
		return false
	}
	in := smallQueue
	g := c.find(hash, e.URL)
	if g != nil {
		list := *g.entries.Load()
		for _, old := range list {
			if old.Variant != e.Variant || !sameVary(old.vary, e.vary) {
				continue
			}
			if old.generated.After(e.generated) {
				return false
			}
			in = old.place.in
			e.hits.Store(old.hits.Load())
			c.drop(old)
			break
		}
		if list = *g.entries.Load(); len(list) >= maxVariants {
			c.drop(list[0])
			c.evicted.Add(1)
		}
	}
	c.makeRoom(size, -1)
	if g = c.find(hash, e.URL); g == nil { // the last variant may have gone
		g = c.addGroup(hash, e.URL)
	}
	list := *g.entries.Load()
	next := append(append(make([]*Entry, 0, len(list)+1), list...), e)
	g.entries.Store(&next)
	c.queues.add(e, hash, size, in)
	c.bytes.Store(c.queues.bytes())
	c.objects.Add(1)
	c.stored.Add(1)
	return true
}

// sameVary reports whether two entries are for the same requests.
func sameVary(a, b []semantics.Field) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// addGroup adds an empty group at the begin of its bucket. The caller holds c.mu.
func (c *Cache) addGroup(hash uint64, url string) *group {
	g := &group{hash: hash, url: url}
	g.entries.Store(new([]*Entry))
	b := &c.buckets[hash&uint64(len(c.buckets)-1)]
	g.next.Store(b.Load())
	b.Store(g)
	return g
}

// drop takes an entry out of its queue and its group. The caller holds c.mu.
func (c *Cache) drop(e *Entry) {
	if !c.queues.remove(e) {
		return
	}
	c.objects.Add(-1)
	c.bytes.Store(c.queues.bytes())
	if c.dropped != nil {
		c.dropped(e)
	}
	g := c.find(e.place.hash, e.URL)
	list := *g.entries.Load()
	next := make([]*Entry, 0, len(list))
	for _, o := range list {
		if o != e {
			next = append(next, o)
		}
	}
	g.entries.Store(&next)
	if len(next) > 0 {
		return
	}
	at := &c.buckets[g.hash&uint64(len(c.buckets)-1)]
	for at.Load() != g {
		at = &at.Load().next
	}
	at.Store(g.next.Load()) // those who read g still find what follows it
}

// tooMany reports whether there are more entries than there may be, with one that is to come if it has a size.
func (c *Cache) tooMany(size int64) bool {
	most := c.most.Load()
	return most > 0 && c.objects.Load()+min(size, 1) > most
}

// makeRoom evicts entries until size fits, at most so many if most is not below 0. It reports whether it fits. The caller holds c.mu.
func (c *Cache) makeRoom(size int64, most int) bool {
	for c.queues.bytes() > 0 && (c.queues.bytes()+size > c.queues.most || c.tooMany(size)) {
		if most == 0 {
			return false
		}
		most--
		if e := c.queues.victim(); e != nil {
			c.drop(e)
			c.evicted.Add(1)
		}
	}
	return true
}

// same returns the entry for the same requests as e, nil for none.
func (c *Cache) same(e *Entry) *Entry {
	if g := c.find(c.hash(e.URL), e.URL); g != nil {
		for _, o := range *g.entries.Load() {
			if o.Variant == e.Variant && sameVary(o.vary, e.vary) {
				return o
			}
		}
	}
	return nil
}

// Remove removes an entry, if it is still there.
func (c *Cache) Remove(e *Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(e)
}

// Invalidate removes all that is stored of a URL, and keeps what is under way from being stored (RFC 9111 4.4). It returns the number
// of entries.
func (c *Cache) Invalidate(url string) int {
	hash := c.hash(url)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed[hash%marks].Add(1)
	g := c.find(hash, url)
	if g == nil {
		return 0
	}
	list := *g.entries.Load()
	for _, e := range list {
		c.drop(e)
	}
	c.invalidate.Add(uint64(len(list)))
	return len(list)
}

// Purge removes all entries whose URL begins with a prefix, "" for all, and keeps what is under way from being stored. It returns their
// number. It looks at all entries, without a lock, and takes the lock for one URL at a time.
func (c *Cache) Purge(prefix string) (n int) {
	c.epoch.Add(1)
	var urls []string
	c.Each(func(e *Entry) bool {
		if strings.HasPrefix(e.URL, prefix) && (len(urls) == 0 || urls[len(urls)-1] != e.URL) {
			urls = append(urls, e.URL)
		}
		return true
	})
	for _, url := range urls {
		n += c.Invalidate(url)
	}
	return n
}

// Each calls yield with the entries, those of one URL together, until it returns false. Entries that come or go meanwhile may be missing.
func (c *Cache) Each(yield func(*Entry) bool) {
	for i := range c.buckets {
		for g := c.buckets[i].Load(); g != nil; g = g.next.Load() {
			for _, e := range *g.entries.Load() {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// Reserve takes memory for content that is gathered, and reports whether there is any: a quarter of that of the cache. A negative
// number returns it.
func (c *Cache) Reserve(n int64) bool {
	if c.filling.Add(n) > c.bound.Load()/4 && n > 0 {
		c.filling.Add(-n)
		return false
	}
	return true
}

// Stats are counters of a cache. Bytes and Objects are of now, the others only grow.
type Stats struct {
	Bytes, Limit, Objects        int64
	Stored, Evicted, Invalidated uint64
}

// Stats returns the counters.
func (c *Cache) Stats() Stats {
	return Stats{
		Bytes: c.bytes.Load(), Limit: c.bound.Load(), Objects: c.objects.Load(), Stored: c.stored.Load(), Evicted: c.evicted.Load(), Invalidated: c.invalidate.Load(),
	}
}
