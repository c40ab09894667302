package collective

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// coordinatorState is the state of the coordinator.
type coordinatorState uint8

const (
	serving       coordinatorState = iota // all is well
	investigating                         // a rank has reported a failure, and all are asked
	decided                               // the failure has a name, which all ranks know
)

// coordinator decides about failures, for all ranks alike. It runs in the process of the lowest rank.
type coordinator struct {
	conns  []*frameConn
	events chan event
	grace  time.Duration
	done   chan struct{}
	idle   chan struct{} // is closed when all ranks but this one have left

	state    coordinatorState
	gone     []bool // the connection has ended
	left     []bool // after a frameBye
	trigger  suspectFrame
	by       int // the rank that reported it
	statuses map[int]statusFrame
	deadline <-chan time.Time
	again    <-chan time.Time
	compared map[operation]map[int]compareFrame
}

// event is a frame of a rank, or the end of its connection.
type event struct {
	rank int
	kind frameType // 0 is the end
	body []byte
}

func newCoordinator(conns []*frameConn, grace time.Duration) *coordinator {
	n := len(conns)
	c := &coordinator{
		conns: conns, events: make(chan event, 4*n), grace: grace, done: make(chan struct{}), idle: make(chan struct{}),
		gone: make([]bool, n), left: make([]bool, n), compared: map[operation]map[int]compareFrame{},
	}
	for r := range conns {
		go c.receive(r)
	}
	go c.run()
	return c
}

func (c *coordinator) receive(rank int) {
	for {
		t, body, err := c.conns[rank].read()
		if err != nil {
			c.events <- event{rank: rank}
			return
		}
		c.events <- event{rank, t, body}
	}
}

// run handles events until all ranks are gone.
func (c *coordinator) run() {
	defer close(c.done)
	for slices.Contains(c.gone, false) {
		select {
		case e := <-c.events:
			c.handle(e)
			c.checkIdle()
		case <-c.deadline:
			c.decide(c.judge())
		case <-c.again:
			if c.state == investigating {
				c.query()
			}
		}
	}
}

// checkIdle closes idle.
func (c *coordinator) checkIdle() {
	for r := 1; r < len(c.gone); r++ { // rank 0 is the coordinator's own
		if !c.gone[r] && !c.left[r] {
			return
		}
	}
	select {
	case <-c.idle:
	default:
		close(c.idle)
	}
}

func (c *coordinator) handle(e event) {
	switch e.kind {
	case 0:
		c.gone[e.rank] = true
		if !c.left[e.rank] {
			c.decide(&Error{Kind: Died, Ranks: []int{e.rank}, Reason: "its connection for control ended, so that the process has died"})
		}
	case frameBye:
		c.left[e.rank] = true
	case frameSuspect:
		var s suspectFrame
		if c.state == serving && c.parse(e, &s) {
			c.investigate(e.rank, s)
		}
	case frameStatus:
		var s statusFrame
		if c.state == investigating && c.parse(e, &s) {
			c.statuses[e.rank] = s
			c.answered()
		}
	case frameCompare:
		var f compareFrame
		if c.state == serving && c.parse(e, &f) {
			c.compare(e.rank, f)
		}
	}
}

// complete reports whether all ranks have answered that have not left.
func (c *coordinator) complete() bool {
	for r := range c.conns {
		if _, ok := c.statuses[r]; !ok && !c.left[r] {
			return false
		}
	}
	return true
}

// answered decides when all ranks have answered. Where their calls differ, those that have not come to the operation yet are asked
// again until the deadline, since the more are compared the better is the name.
func (c *coordinator) answered() {
	switch {
	case !c.complete():
	case c.trigger.Kind == Differs && c.behind(nil) != nil:
		c.again = time.After(10 * time.Millisecond)
	default:
		c.decide(c.judge())
	}
}

// parse reads the body of a frame. A rank that sends another one has failed.
func (c *coordinator) parse(e event, v any) bool {
	if err := json.Unmarshal(e.body, v); err != nil {
		c.decide(&Error{Kind: Violated, Ranks: []int{e.rank}, Reason: errFrame.Error()})
		return false
	}
	return true
}

// investigate begins to look for what has failed.
func (c *coordinator) investigate(by int, s suspectFrame) {
	c.state, c.by, c.trigger, c.statuses = investigating, by, s, map[int]statusFrame{}
	c.deadline = time.After(c.grace / 2)
	c.query()
}

// query asks all ranks what they do.
func (c *coordinator) query() {
	clear(c.statuses)
	for r := range c.conns {
		c.send(r, frameQuery, struct{}{})
	}
}

// send writes to a rank without waiting for it.
func (c *coordinator) send(rank int, t frameType, v any) {
	if !c.gone[rank] {
		go func() { _ = c.conns[rank].write(t, v) }() // a rank that cannot be written to does not answer, or its connection ends
	}
}

// decide sends the error to all ranks, once.
func (c *coordinator) decide(e *Error) {
	if c.state == decided {
		return
	}
	c.state, c.deadline = decided, nil
	var others sync.WaitGroup
	for r := 1; r < len(c.conns); r++ {
		if !c.gone[r] {
			others.Go(func() { _ = c.conns[r].write(frameAbort, e) }) // as in send
		}
	}
	sent := make(chan struct{})
	go func() { others.Wait(); close(sent) }()
	select { // this process may end as soon as it has the error itself
	case <-sent:
	case <-time.After(c.grace / 4):
	}
	c.send(0, frameAbort, e)
}

// judge names the ranks that have failed.
func (c *coordinator) judge() *Error {
	var silent, left []int
	for r := range c.conns {
		if _, ok := c.statuses[r]; ok {
			continue
		}
		if c.left[r] {
			left = append(left, r)
		} else {
			silent = append(silent, r)
		}
	}
	s := &c.trigger
	switch {
	case len(silent) > 0:
		return &Error{Kind: Hung, Ranks: silent, Reason: fmt.Sprintf("no answer within %v: the process is stopped, or its machine cannot be reached", c.grace)}
	case s.Rank >= 0 && c.left[min(s.Rank, len(c.left)-1)]:
		return &Error{Kind: Left, Ranks: []int{s.Rank}, Reason: fmt.Sprintf("has called Close, while rank %d waits for it", c.by)}
	case !s.Waits && s.Rank >= 0 && s.Kind != Differs:
		return &Error{Kind: s.Kind, Ranks: []int{s.Rank}, Reason: s.Reason + fmt.Sprintf(" (seen by rank %d)", c.by)}
	}
	if e := c.behind(left); e != nil && s.Kind != Differs {
		return e
	}
	if e := c.differing(); e != nil {
		return e
	}
	if s.Kind == Differs {
		return &Error{Kind: Differs, Ranks: []int{c.by, s.Rank}, Reason: s.Reason + c.waiting()}
	}
	return &Error{Kind: Stalled, Ranks: []int{c.by, max(s.Rank, 0)}, Reason: s.Reason + c.waiting()}
}

// of returns the state of the communicator of the trigger at a rank.
func (c *coordinator) of(rank int) (s commStatus, ok bool) {
	for _, s := range c.statuses[rank].Comms {
		if s.Context == c.trigger.Context {
			return s, true
		}
	}
	return s, false
}

// latest returns the number of the last operation of the communicator that a rank has called.
func (c *coordinator) latest() (last uint32) {
	for _, r := range c.trigger.Members {
		if s, ok := c.of(r); ok {
			last = max(last, s.Started)
		}
	}
	return last
}

// behind names the ranks that have called fewer operations of the communicator than others.
func (c *coordinator) behind(left []int) *Error {
	last := c.latest()
	var ranks []int
	for _, r := range c.trigger.Members {
		if s, ok := c.of(r); !ok || s.Started < last {
			ranks = append(ranks, r)
		}
	}
	if len(ranks) == 0 {
		return nil
	}
	kind := Hung
	if slices.ContainsFunc(ranks, func(r int) bool { return slices.Contains(left, r) }) {
		kind = Left
	}
	return &Error{Kind: kind, Ranks: ranks, Reason: fmt.Sprintf("has not called operation %d, which others wait in", last) + c.waiting()}
}

// differing names the ranks whose operation is not that of most.
func (c *coordinator) differing() *Error {
	calls, last := map[string][]int{}, c.latest()
	for _, r := range c.trigger.Members {
		if s, ok := c.of(r); ok && s.Active && s.Started == last {
			calls[s.What] = append(calls[s.What], r)
		}
	}
	return minority(calls)
}

// minority returns the error of those that do not call what most do; nil is that all call the same.
func minority(calls map[string][]int) *Error {
	if len(calls) < 2 {
		return nil
	}
	texts := slices.SortedFunc(maps.Keys(calls), func(a, b string) int {
		return cmp.Or(len(calls[b])-len(calls[a]), calls[a][0]-calls[b][0])
	})
	e := &Error{Kind: Differs, Reason: fmt.Sprintf("calls %s, where ranks %s call %s", texts[1], numbers(calls[texts[0]]), texts[0])}
	for _, text := range texts[1:] {
		e.Ranks = append(e.Ranks, calls[text]...)
	}
	slices.Sort(e.Ranks)
	return e
}

// waiting describes who waits for whom.
func (c *coordinator) waiting() string {
	var b strings.Builder
	for r := range c.conns {
		s, ok := c.of(r)
		if !ok || !s.Active || b.Len() > 600 {
			continue
		}
		fmt.Fprintf(&b, "; rank %d is in %s", r, s.What)
		if len(s.Waits) > 0 {
			fmt.Fprintf(&b, " and waits for %s", numbers(s.Waits))
		}
	}
	return b.String()
}

// compare collects the parameters of an operation of all members.
func (c *coordinator) compare(rank int, f compareFrame) {
	k := f.operation
	if c.compared[k] == nil {
		c.compared[k] = map[int]compareFrame{}
	}
	c.compared[k][rank] = f
	if len(c.compared[k]) < len(f.Members) {
		return
	}
	calls := map[string][]int{}
	for _, r := range slices.Sorted(maps.Keys(c.compared[k])) {
		calls[c.compared[k][r].What] = append(calls[c.compared[k][r].What], r)
	}
	delete(c.compared, k)
	if e := minority(calls); e != nil {
		c.decide(e)
		return
	}
	f.Members = nil
	for _, ranks := range calls {
		for _, r := range ranks {
			c.send(r, frameAgree, f)
		}
	}
}
