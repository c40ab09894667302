package cache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/semantics"
)

// entryOf is an entry of a URL with so many bytes of content.
func entryOf(url, variant string, size int, vary ...semantics.Field) *Entry {
	x := exchange(200, "date: "+after(0)+"\ncache-control: max-age=100")
	x.request.Key = Key{url, variant}
	for _, f := range vary {
		x.request.Fields = append(x.request.Fields, f)
		x.response.Fields = append(x.response.Fields, semantics.Field{Name: "vary", Value: f.Name})
	}
	e, _ := x.entry()
	return e.Complete(make([]byte, size))
}

func (c *Cache) put(t *testing.T, e *Entry) {
	t.Helper()
	if !c.Store(e, c.Mark(e.URL)) {
		t.Fatalf("%s is not stored", e.URL)
	}
}

// has reports whether a URL is stored, without a use of it.
func (c *Cache) has(url string) bool { return c.find(c.hash(url), url) != nil }

func TestStoreAndLookup(t *testing.T) {
	c := New(Options{Memory: 1 << 20})
	a, b := entryOf("http://a/", "r", 10), entryOf("http://a/", "r2", 10)
	c.put(t, a)
	c.put(t, b)
	if e, miss := c.Lookup(Key{"http://a/", "r"}, nil); e != a || miss != Found {
		t.Errorf("%v, %v", e, miss)
	}
	if e, miss := c.Lookup(Key{"http://a/", "r2"}, nil); e != b || miss != Found {
		t.Errorf("%v, %v", e, miss)
	}
	if e, miss := c.Lookup(Key{"http://a/", "r3"}, nil); e != nil || miss != VariantMiss {
		t.Errorf("%v, %v", e, miss)
	}
	if e, miss := c.Lookup(Key{"http://a/b", "r"}, nil); e != nil || miss != URIMiss {
		t.Errorf("%v, %v", e, miss)
	}
	one, two := entryOf("http://v/", "r", 10, lines("foo", "1")...), entryOf("http://v/", "r", 10, lines("foo", "2")...)
	c.put(t, one)
	c.put(t, two)
	for value, want := range map[string]*Entry{"1": one, "2": two, "3": nil} {
		if e, _ := c.Lookup(Key{"http://v/", "r"}, lines("foo", value)); e != want {
			t.Errorf("foo %s: %v", value, e)
		}
	}
	again := entryOf("http://v/", "r", 20, lines("foo", "1")...)
	c.put(t, again)
	if e, _ := c.Lookup(Key{"http://v/", "r"}, lines("foo", "1")); e != again {
		t.Error("a newer response does not replace the older one")
	}
	older := entryOf("http://v/", "r", 20, lines("foo", "1")...)
	older.generated = older.generated.Add(-time.Second)
	if c.Store(older, c.Mark(older.URL)) {
		t.Error("an older response replaces a newer one")
	}
	if st := c.Stats(); st.Objects != 4 || st.Stored != 5 || st.Bytes != a.Size()+b.Size()+again.Size()+two.Size() {
		t.Errorf("%+v", st)
	}
	c.Remove(a)
	c.Remove(a)
	if st := c.Stats(); st.Objects != 3 || st.Bytes != b.Size()+again.Size()+two.Size() {
		t.Errorf("%+v", st)
	}
}

func TestVariantsAreBounded(t *testing.T) {
	c := New(Options{Memory: 1 << 20})
	for i := range maxVariants + 10 {
		c.put(t, entryOf("http://v/", "r", 10, lines("foo", fmt.Sprint(i))...))
	}
	if st := c.Stats(); st.Objects != maxVariants || st.Evicted != 10 {
		t.Errorf("%+v", st)
	}
	if e, _ := c.Lookup(Key{"http://v/", "r"}, lines("foo", "9")); e != nil {
		t.Error("the oldest stays")
	}
}

// RFC 9111 4.4: also what was asked for before, and arrives after.
func TestInvalidation(t *testing.T) {
	c := New(Options{Memory: 1 << 20})
	for i := range 3 {
		c.put(t, entryOf("http://a/1", fmt.Sprint(i), 10))
	}
	c.put(t, entryOf("http://a/2", "r", 10))
	c.put(t, entryOf("http://b/2", "r", 10))
	late, mark := entryOf("http://a/1", "r", 10), c.Mark("http://a/1")
	if n := c.Invalidate("http://a/1"); n != 3 || c.has("http://a/1") || !c.has("http://a/2") {
		t.Errorf("%d", n)
	}
	if n := c.Invalidate("http://a/1"); n != 0 {
		t.Errorf("%d", n)
	}
	if c.Store(late, mark) || c.has("http://a/1") {
		t.Error("a response that was asked for before is stored")
	}
	c.put(t, late)
	mark = c.Mark("http://z/")
	if n := c.Purge("http://a/"); n != 2 || c.has("http://a/2") || !c.has("http://b/2") {
		t.Errorf("%d", n)
	}
	if c.Store(entryOf("http://z/", "r", 1), mark) {
		t.Error("a response that was asked for before a purge is stored")
	}
	if n := c.Purge(""); n != 1 || c.Stats().Bytes != 0 || c.Stats().Objects != 0 || c.Stats().Invalidated != 6 {
		t.Errorf("%d, %+v", n, c.Stats())
	}
}

// The bound is one of bytes, also after it was lowered, and nothing is larger than a quarter of it.
func TestMemoryIsBounded(t *testing.T) {
	const most = 1 << 20
	c, random := New(Options{Memory: most}), rand.New(rand.NewPCG(1, 2))
	for i := range 5000 {
		e := entryOf(fmt.Sprintf("http://a/%d", random.IntN(1000)), "r", random.IntN(20_000))
		e.generated = e.generated.Add(time.Duration(i) * time.Second)
		c.put(t, e)
		c.Lookup(Key{fmt.Sprintf("http://a/%d", random.IntN(300)), "r"}, nil)
		if st := c.Stats(); st.Bytes > most {
			t.Fatalf("%d: %+v", i, st)
		}
	}
	c.check(t)
	if c.Store(entryOf("http://a/large", "r", most/4), c.Mark("http://a/large")) {
		t.Error("what is larger than a quarter is stored")
	}
	c.SetMemory(most / 10)
	if st := c.Stats(); st.Bytes > most/10 || st.Bytes == 0 || st.Limit != most/10 {
		t.Errorf("%+v", st)
	}
	c.check(t)
}

// check compares the index, the queues and the counters.
func (c *Cache) check(t *testing.T) {
	t.Helper()
	var n, bytes, queued int64
	c.Each(func(e *Entry) bool {
		n, bytes = n+1, bytes+e.Size()
		if e.place.in == noQueue {
			t.Errorf("%s is in no queue", e.URL)
		}
		return true
	})
	for _, q := range []*queue{&c.queues.small, &c.queues.main} {
		sum := int64(0)
		for e := q.head; e != nil; e = e.place.next {
			queued, sum = queued+1, sum+e.place.size
		}
		if sum != q.bytes {
			t.Errorf("a queue has %d bytes, and says %d", sum, q.bytes)
		}
	}
	if st := c.Stats(); st.Objects != n || st.Bytes != bytes || queued != n || c.queues.bytes() != bytes {
		t.Errorf("%d entries of %d bytes, %d in queues: %+v", n, bytes, queued, st)
	}
}

// A scan of many URLs leaves what is in use.
func TestAScanEvictsScans(t *testing.T) {
	const size, used = 10_000, 50
	c := New(Options{Memory: 100 * (size + 1000)})
	for i := range used {
		c.put(t, entryOf(fmt.Sprintf("http://used/%d", i), "r", size))
	}
	for range 3 {
		for i := range used {
			c.Lookup(Key{fmt.Sprintf("http://used/%d", i), "r"}, nil)
		}
	}
	for i := range 10_000 {
		c.put(t, entryOf(fmt.Sprintf("http://scan/%d", i), "r", size))
		if i%100 == 0 {
			for k := range used {
				c.Lookup(Key{fmt.Sprintf("http://used/%d", k), "r"}, nil)
			}
		}
	}
	left := 0
	for i := range used {
		if c.has(fmt.Sprintf("http://used/%d", i)) {
			left++
		}
	}
	if left != used {
		t.Errorf("%d of %d are left", left, used)
	}
	c.check(t)
}

// What comes back soon after it has left the small queue stays.
func TestGhosts(t *testing.T) {
	const size = 10_000
	c := New(Options{Memory: 100 * (size + 1000)})
	c.put(t, entryOf("http://back/", "r", size))
	for i := 0; c.has("http://back/"); i++ {
		c.put(t, entryOf(fmt.Sprintf("http://scan/%d", i), "r", size))
	}
	c.put(t, entryOf("http://back/", "r", size))
	if e, _ := c.Lookup(Key{"http://back/", "r"}, nil); e.place.in != mainQueue {
		t.Error("it is in the small queue again")
	}
}

// An entry that is replaced keeps its place among those in use.
func TestReplacedEntriesKeepTheirQueue(t *testing.T) {
	c := New(Options{Memory: 1 << 20})
	e := entryOf("http://a/", "r", 10)
	c.put(t, e)
	c.mu.Lock()
	c.queues.remove(e)
	c.queues.add(e, c.hash(e.URL), e.Size(), mainQueue)
	c.mu.Unlock()
	e.hits.Store(2)
	next := entryOf("http://a/", "r", 20)
	if c.put(t, next); next.place.in != mainQueue || next.hits.Load() != 2 {
		t.Errorf("queue %d, %d hits", next.place.in, next.hits.Load())
	}
}

// Buckets with many URLs lose them in any order.
func TestChains(t *testing.T) {
	c := New(Options{Memory: 1 << 24})
	c.buckets = make([]atomic.Pointer[group], 1)
	var urls []string
	for i := range 50 {
		urls = append(urls, fmt.Sprintf("http://a/%d", i))
		c.put(t, entryOf(urls[i], "r", 10))
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(urls), func(i, k int) { urls[i], urls[k] = urls[k], urls[i] })
	for i, url := range urls {
		c.Invalidate(url)
		for k, other := range urls {
			if c.has(other) != (k > i) {
				t.Fatalf("%s after %d", other, i)
			}
		}
	}
	c.check(t)
}

// Loops look up, store and invalidate at the same time.
func TestConcurrentUse(t *testing.T) {
	c := New(Options{Memory: 1 << 20})
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 2))
			for range 3000 {
				url := fmt.Sprintf("http://a/%d", random.IntN(200))
				switch k := (Key{url, "r"}); random.IntN(5) {
				case 0:
					c.Store(entryOf(url, "r", random.IntN(20_000)), c.Mark(url))
				case 1:
					if random.IntN(10) == 0 {
						c.Invalidate(url)
					}
				default:
					if e, miss := c.Lookup(k, nil); e != nil && (e.URL != url || miss != Found) {
						t.Errorf("%s for %s", e.URL, url)
					}
				}
			}
		})
	}
	all.Wait()
	c.check(t)
}

// Memory for content that is gathered is a quarter of the cache's.
func TestReserve(t *testing.T) {
	c := New(Options{Memory: 4000})
	if !c.Reserve(600) || c.Reserve(401) || !c.Reserve(400) {
		t.Error("more or less than a quarter")
	}
	if c.Reserve(-1000); !c.Reserve(1000) {
		t.Error("it was not given back")
	}
}

func TestFlights(t *testing.T) {
	c := New(Options{Memory: 1 << 20})
	k := Key{"http://a/", "r"}
	f, how := c.Join(k, nil, start, &Waiter{}, nil)
	if how != Leads || f == nil {
		t.Fatalf("%v", how)
	}
	woken := []int{}
	waiters := make([]Waiter, 4)
	for i := range waiters {
		if _, how := c.Join(k, nil, start, &waiters[i], func() { woken = append(woken, i) }); how != Waits {
			t.Fatalf("%v", how)
		}
	}
	if other, how := c.Join(Key{"http://a/", "r2"}, nil, start, &Waiter{}, nil); how != Leads || other == f {
		t.Errorf("another variant: %v", how)
	}
	if !waiters[1].Leave() || waiters[1].Leave() {
		t.Error("a waiter leaves once")
	}
	f.End(Failed, start)
	slices.Sort(woken)
	if !slices.Equal(woken, []int{0, 2, 3}) || waiters[0].Leave() {
		t.Errorf("%v", woken)
	}
	if f, how = c.Join(k, nil, start, &Waiter{}, nil); how != Leads {
		t.Errorf("after a failure: %v", how)
	}
	f.End(Unshared, start)
	if _, how := c.Join(k, nil, start.Add(passTime-1), &Waiter{}, nil); how != Alone {
		t.Errorf("after a response that is none for others: %v", how)
	}
	if _, how := c.Join(k, nil, start.Add(passTime), &Waiter{}, nil); how != Leads {
		t.Errorf("later: %v", how)
	}
}

// Requests wait for what they will get alone: as far as the last response has shown by what it varies.
func TestFlightsOfVariants(t *testing.T) {
	c := New(Options{Memory: 1 << 20})
	c.put(t, entryOf("http://v/", "r", 10, lines("foo", "0")...))
	k := Key{"http://v/", "r"}
	if _, how := c.Join(k, lines("foo", "1"), start, &Waiter{}, nil); how != Leads {
		t.Errorf("%v", how)
	}
	if _, how := c.Join(k, lines("foo", "1"), start, &Waiter{}, nil); how != Waits {
		t.Errorf("%v", how)
	}
	if _, how := c.Join(k, lines("foo", "2"), start, &Waiter{}, nil); how != Differs {
		t.Errorf("%v", how)
	}
}

func BenchmarkLookup(b *testing.B) {
	c := New(Options{Memory: 1 << 28})
	const n = 10_000
	var keys []Key
	for i := range n {
		e := entryOf(fmt.Sprintf("https://shop.example.org/images/%d.png", i), "shop/images", 4096)
		c.Store(e, c.Mark(e.URL))
		keys = append(keys, Key{e.URL, "shop/images"})
	}
	fields := parse("host: shop.example.org\naccept: */*\naccept-encoding: gzip\nuser-agent: x")
	b.RunParallel(func(p *testing.PB) {
		for i := 0; p.Next(); i++ {
			if e, _ := c.Lookup(keys[i%n], fields); e == nil {
				b.Error("a miss")
				return
			}
		}
	})
}

func BenchmarkStore(b *testing.B) {
	c := New(Options{Memory: 1 << 26})
	content := make([]byte, 4096)
	for i := 0; b.Loop(); i++ {
		e := entryOf(fmt.Sprintf("https://shop.example.org/images/%d.png", i), "shop/images", 0)
		e.Complete(content)
		c.Store(e, c.Mark(e.URL))
	}
}
