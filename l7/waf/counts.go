package waf

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// maxCounted bounds the rules that are counted one by one. Those of OWASP are 700.
const maxCounted = 4096

// Counts counts what a firewall does. It outlives reloads.
type Counts struct {
	requests, denied, overload, panics, timeouts, excess atomic.Uint64

	mu    sync.Mutex
	rules map[int]uint64
	other uint64 // matches of rules beyond maxCounted
}

// Sums are the counters at one time.
type Sums struct {
	Requests, Denied, Overload, Panics, Timeouts, Excess uint64
	Rules                                                []RuleCount // by ID
	OtherRules                                           uint64      // matches of rules that are not counted one by one
}

// RuleCount counts the matches of a rule.
type RuleCount struct {
	ID int
	N  uint64
}

// Sums returns the counters. Any goroutine may call it.
func (c *Counts) Sums() Sums {
	s := Sums{
		Requests: c.requests.Load(), Denied: c.denied.Load(), Overload: c.overload.Load(), Panics: c.panics.Load(), Timeouts: c.timeouts.Load(),
		Excess: c.excess.Load(),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(c.rules)) {
		s.Rules = append(s.Rules, RuleCount{id, c.rules[id]})
	}
	s.OtherRules = c.other
	return s
}

// matched counts rules that have matched.
func (c *Counts) matched(ids []int) {
	if len(ids) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rules == nil {
		c.rules = map[int]uint64{}
	}
	for _, id := range ids {
		if _, ok := c.rules[id]; !ok && len(c.rules) >= maxCounted {
			c.other++
			continue
		}
		c.rules[id]++
	}
}
