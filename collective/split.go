package collective

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"slices"
	"time"
)

// Split makes communicators of the ranks with the same color, numbered by key and then by their rank here. All ranks call it. A
// negative color is none: the result is nil.
func (c *Comm) Split(color, key int) (*Comm, error) {
	all := make([]int64, 2*c.Size())
	if err := c.AllGather(Slice(all), Slice([]int64{int64(color), int64(key)})); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.splits++
	split := c.splits
	c.mu.Unlock()
	if color < 0 {
		return nil, nil
	}
	var ranks []int
	for r := range c.Size() {
		if all[2*r] == int64(color) {
			ranks = append(ranks, r)
		}
	}
	slices.SortStableFunc(ranks, func(a, b int) int { return cmp.Compare(all[2*a+1], all[2*b+1]) })
	members, rank := make([]int, len(ranks)), 0
	for i, r := range ranks {
		members[i] = c.members[r]
		if r == c.rank {
			rank = i
		}
	}
	s := c.w.newComm(subcontext(c.context, split, color), rank, members)
	return s, nil
}

// subcontext returns the context of a communicator. Two of the same ranks differ in it, but for one pair in 2^63.
func subcontext(parent uint64, split, color int) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %d %d", parent, split, color)
	return max(h.Sum64()&^singleMessages, 1)
}

// ErrIntact is the error of Shrink where no rank has failed.
var ErrIntact = errors.New("collective: no rank has failed: use Split")

// Shrink connects the ranks of the communicator that are left after a failure, in their order. All of them call it, each after an
// operation has returned an Error. Ranks that do not call it within half of the time-out are left out as well.
func (c *Comm) Shrink(ctx context.Context) (*Comm, error) {
	failure, ok := c.w.failureNow().(*Error)
	if !ok {
		return nil, ErrIntact
	}
	var left []int
	for _, m := range c.members {
		if !slices.Contains(failure.Ranks, m) {
			left = append(left, m)
		}
	}
	place := slices.Index(left, c.members[c.rank])
	if place < 0 {
		return nil, fmt.Errorf("collective: this rank is one of those that have failed: %w", failure)
	}
	old := c.w
	old.shut()
	ctx, cancel := context.WithTimeoutCause(ctx, old.cfg.Timeout, fmt.Errorf("collective: the ranks that are left have not come within %v", old.cfg.Timeout))
	defer cancel()
	address := old.addresses[left[0]][0]
	cfg := old.cfg
	cfg.Rank, cfg.Size = place, len(left)
	host, _, err := net.SplitHostPort(old.addresses[c.members[c.rank]][0])
	if err != nil {
		return nil, err
	}
	w, err := prepare(ctx, cfg, old.generation+1, host)
	if err != nil {
		return nil, err
	}
	w.shrinking = true
	return w.connect(ctx, address)
}

// patience bounds the time that the coordinator of a Shrink waits for ranks.
func (w *world) patience() time.Duration { return w.cfg.Timeout / 2 }
