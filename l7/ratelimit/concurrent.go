package ratelimit

import "sync"

// Concurrent bounds how many things happen at a time for each of many keys. Keys without any take no memory. Any goroutine may call its
// methods. The zero value is ready.
type Concurrent struct {
	shards [concurrentShards]concurrentShard
}

type concurrentShard struct {
	mu sync.Mutex
	of map[uint64]int
}

const concurrentShards = 64

// Enter counts one more for a key, and reports false where there are as many as may be.
func (c *Concurrent) Enter(key uint64, most int) bool {
	s := &c.shards[key%concurrentShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[key] >= most {
		return false
	}
	if s.of == nil {
		s.of = map[uint64]int{}
	}
	s.of[key]++
	return true
}

// Leave ends what Enter has counted.
func (c *Concurrent) Leave(key uint64) {
	s := &c.shards[key%concurrentShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[key]--; s.of[key] <= 0 {
		delete(s.of, key)
	}
}

// Len returns how many keys have some.
func (c *Concurrent) Len() (n int) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		n += len(s.of)
		s.mu.Unlock()
	}
	return n
}
