package topk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/l7/accesslog"
)

// The bounds of SpaceSaving hold, beside exact counts, for several loops: a count is too high by at most its error, frequent keys are
// there, and there are never more slots than may be.
func TestCountsAreWithinTheirErrors(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		zipf := rand.NewZipf(r, 1.05, 2, 100_000)
		const loops, n = 3, 60_000
		c := &Collection{shards: make([]shard, loops)}
		exact := map[string]uint64{}
		for range n {
			path := fmt.Sprint(zipf.Uint64())
			exact["a"+path]++
			c.Add(r.IntN(loops), &accesslog.Record{Host: "a", Path: path, Method: "GET", Status: 200})
		}
		got := c.result(time.Second, MaxRows)
		if got.Requests != n || len(got.Paths) != slots || got.Hosts[0].Requests != n || got.Hosts[0].AtMost != 0 {
			t.Fatalf("%d requests, %d paths, %+v", got.Requests, len(got.Paths), got.Hosts[0])
		}
		found := map[string]bool{}
		for _, e := range got.Paths {
			found[e.Name] = true
			if x := exact[e.Name]; x > e.Requests || x < e.Requests-e.AtMost {
				t.Errorf("%s had %d, not %d less at most %d", e.Name, x, e.Requests, e.AtMost)
			}
			if e.AtMost > loops+n/slots {
				t.Errorf("%s has the error %d", e.Name, e.AtMost)
			}
		}
		for key, x := range exact {
			if x > n/slots+loops && !found[key] {
				t.Errorf("%s had %d of %d and is not there", key, x, n)
			}
		}
		for i := range c.shards {
			s := &c.shards[i].sketches[Paths]
			if len(s.heap) > slots || len(s.byKey) != len(s.heap) {
				t.Errorf("%d slots, %d keys", len(s.heap), len(s.byKey))
			}
			for k, p := range s.heap {
				if p.at != k || s.byKey[p.key] != p || k > 0 && s.heap[(k-1)/2].count > p.count {
					t.Fatalf("slot %d is out of its place", k)
				}
			}
		}
	}
}

func TestKeysOfARecord(t *testing.T) {
	c := &Collection{shards: make([]shard, 1)}
	r := accesslog.Record{
		Route: "shop", Host: "a.example", Path: "/x?secret=1", Client: netip.MustParseAddrPort("[::ffff:192.0.2.1]:9"), Pool: "p", Backend: "b", Method: "GET", Status: 503, BytesOut: 7,
		Began: 3 * time.Millisecond,
	}
	c.Add(0, &r)
	r.Status, r.Began, r.Path = 200, time.Millisecond, "/x?secret=2"
	c.Add(0, &r)
	c.Add(0, &accesslog.Record{Status: 400, Reason: "syntax"}) // no key at all
	got := c.result(2*time.Second, 10)
	if got.Requests != 3 || got.Failed != 2 || got.Seconds != 2 {
		t.Errorf("%+v", got)
	}
	for name, list := range map[string][]Entry{"shop": got.Routes, "a.example": got.Hosts, "a.example/x": got.Paths, "192.0.2.1": got.Clients, "p/b": got.Backends} {
		if want := (Entry{Name: name, Requests: 2, Failed: 1, Bytes: 14, Mean: 0.002, Rate: 1}); len(list) != 1 || list[0] != want {
			t.Errorf("%+v, want %+v", list, want)
		}
	}
}

// Only what a backend has answered has stages, which add up to the time of the request.
func TestStagesOfRequests(t *testing.T) {
	c := &Collection{shards: make([]shard, 2)}
	for i := range 2 {
		c.Add(i, &accesslog.Record{Status: 200, Attempts: 1, Began: 6 * time.Second, Waited: time.Second, Answered: 2 * time.Second})
		c.Add(i, &accesslog.Record{Status: 502, Attempts: 1, Began: 9 * time.Second, Waited: time.Second})
		c.Add(i, &accesslog.Record{Status: 404, Began: 9 * time.Second})
	}
	if got := c.result(time.Second, 1).Stages; got != (Stages{Requests: 2, Wait: 2, Backend: 4, Response: 6}) {
		t.Errorf("%+v", got)
	}
}

// Keys are bounded, and what is left of the last one is text.
func TestLongKeysAreCut(t *testing.T) {
	c := &Collection{shards: make([]shard, 1)}
	c.Add(0, &accesslog.Record{Path: "/" + string(make([]byte, 1<<20)), Status: 200})
	c.Add(0, &accesslog.Record{Path: "/\xff", Status: 200})
	for _, e := range c.result(time.Second, 10).Paths {
		if len(e.Name) > maxKey && e.Name != "/\ufffd" {
			t.Errorf("a name of %d bytes", len(e.Name))
		}
	}
}

func TestCollectionsBeginAndEnd(t *testing.T) {
	var cs Collections
	var mu sync.Mutex
	var states []bool
	cs.OnChange(func() { mu.Lock(); defer mu.Unlock(); states = append(states, cs.Running() != nil) })
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range maxAtOnce {
		all.Go(func() {
			if r, err := cs.Collect(ctx, 1, time.Hour, 5); !errors.Is(err, context.Canceled) || r.Requests != 1 {
				t.Errorf("%v, %v", r, err)
			}
		})
	}
	for len(cs.Running()) < maxAtOnce {
		time.Sleep(time.Millisecond)
	}
	if _, err := cs.Collect(t.Context(), 1, time.Nanosecond, 5); !errors.Is(err, ErrBusy) {
		t.Errorf("one more: %v", err)
	}
	for _, c := range cs.Running() {
		c.Add(0, &accesslog.Record{Status: 200})
	}
	stop()
	all.Wait()
	if r, err := cs.Collect(t.Context(), 2, time.Millisecond, 5); err != nil || r.Seconds <= 0 || r.Routes == nil {
		t.Errorf("%+v, %v", r, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if fmt.Sprint(states) != "[true false true false]" || cs.Running() != nil {
		t.Errorf("%v", states)
	}
}

// A key that is there is counted without an allocation.
func TestCountingAllocatesNothing(t *testing.T) {
	c := &Collection{shards: make([]shard, 1)}
	r := &accesslog.Record{Route: "r", Host: "a.example", Path: "/x?y", Client: netip.MustParseAddrPort("192.0.2.1:9"), Pool: "p", Backend: "b", Status: 200}
	c.Add(0, r)
	if n := testing.AllocsPerRun(100, func() { c.Add(0, r) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAdd(b *testing.B) {
	c := &Collection{shards: make([]shard, 1)}
	r := &accesslog.Record{Route: "r", Host: "a.example", Path: "/x?y", Client: netip.MustParseAddrPort("192.0.2.1:9"), Pool: "p", Backend: "b", Status: 200}
	for b.Loop() {
		c.Add(0, r)
	}
}
