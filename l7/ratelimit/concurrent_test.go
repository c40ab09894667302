package ratelimit

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestConcurrent(t *testing.T) {
	var c Concurrent
	if !c.Enter(1, 2) || !c.Enter(1, 2) || c.Enter(1, 2) || !c.Enter(65, 1) || c.Len() != 2 {
		t.Errorf("%d keys", c.Len())
	}
	c.Leave(1)
	if !c.Enter(1, 2) || c.Enter(1, 1) {
		t.Error("one that has left leaves no place, or a lower bound counts for nothing")
	}
	c.Leave(1)
	c.Leave(1)
	c.Leave(65)
	if c.Len() != 0 {
		t.Errorf("%d keys stay", c.Len())
	}
	var all sync.WaitGroup
	var now, most atomic.Int64
	for range 8 {
		all.Go(func() {
			for range 1000 {
				if c.Enter(7, 3) {
					n := now.Add(1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					now.Add(-1)
					c.Leave(7)
				}
			}
		})
	}
	if all.Wait(); most.Load() > 3 || c.Len() != 0 {
		t.Errorf("%d at a time, %d keys stay", most.Load(), c.Len())
	}
}
