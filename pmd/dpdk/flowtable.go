package dpdk

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/pmd"
)

// flowState is the state of a device's rules.
type flowState uint8

const (
	flowsUntried flowState = iota // no claim was there to be steered
	flowsOn                       // the device has been given rules, and may have refused some
	flowsRefused                  // the device has no rules at all
	flowsClosed                   // the device is being closed
	flowStates
)

// flowMoves lists the states that may follow each state. A refusal is for good: the driver does not learn.
var flowMoves = [flowStates][flowStates]bool{
	flowsUntried: {flowsOn: true, flowsRefused: true, flowsClosed: true},
	flowsOn:      {flowsClosed: true},
	flowsRefused: {flowsClosed: true},
}

// flowTable keeps the rules of a device (rte_flow) in line with the claims of the address table. Claims that the device cannot
// steer are steered in software, by the matcher of the exception path and by handover between loops, as without a rule.
// Calls may come from any goroutine.
type flowTable struct {
	dev     flowDevice
	actions []flowAction

	mu        sync.Mutex
	state     flowState
	installed map[flowRule]uintptr
	actionOf  map[flowKind]int // index of the action that the device takes for a kind of rule; len(actions): none

	status atomic.Pointer[flowStatus] // read without the lock, which is held while the device works
}

// flowStatus is the result of replace.
type flowStatus struct {
	claims  int   // of addresses, for which a device might have rules
	steered int   // of those, the ones that the device has rules for
	cause   error // why others are not, the first such error
}

func newFlowTable(dev flowDevice, actions []flowAction) *flowTable {
	t := &flowTable{dev: dev, actions: actions, installed: map[flowRule]uintptr{}, actionOf: map[flowKind]int{}}
	t.status.Store(&flowStatus{})
	return t
}

// to moves the table to a state. Only this function writes it.
func (t *flowTable) to(s flowState) {
	if t.state != s && flowMoves[t.state][s] {
		t.state = s
	}
}

// replace makes the rules of the device those of the claims, as far as it supports them. An error means that a rule could not be
// removed: the device may go on marking packets that are claimed no longer.
func (t *flowTable) replace(claims []pmd.Rule) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == flowsClosed {
		return pmd.ErrClosed
	}
	claims = steerable(claims)
	s := &flowStatus{claims: len(claims)}
	defer t.status.Store(s)
	if t.state == flowsRefused {
		s.cause = t.status.Load().cause
		return nil
	}
	err := t.remove(claims) // first: what is removed makes room
	for _, c := range claims {
		rules := flowRules(c)
		if len(rules) == 0 {
			continue
		}
		refusal := t.add(rules)
		if refusal == nil {
			s.steered++
		} else if s.cause == nil {
			s.cause = refusal
		}
		if t.state == flowsRefused {
			return err
		}
		t.to(flowsOn)
	}
	return err
}

// steerable returns the claims of packets by addresses. What a rule of kind Keep leaves to the kernel goes before rules for senders,
// and a mark would hide it: with such a rule they stay in software.
func steerable(claims []pmd.Rule) (list []pmd.Rule) {
	keeps := false
	for _, c := range claims {
		keeps = keeps || c.Kind == pmd.Keep
	}
	for _, c := range claims {
		if c.Kind == pmd.To || c.Kind == pmd.From && !keeps {
			list = append(list, c)
		}
	}
	return list
}

// remove takes the rules away that no claim asks for.
func (t *flowTable) remove(claims []pmd.Rule) error {
	want := map[flowRule]bool{}
	for _, c := range claims {
		for _, r := range flowRules(c) {
			want[r] = true
		}
	}
	var errs []error
	for r, handle := range t.installed {
		if want[r] {
			continue
		}
		if err := t.dev.destroy(handle); err != nil {
			errs = append(errs, fmt.Errorf("a rule for %v stays in the device: %w", r.addr, err))
			continue
		}
		delete(t.installed, r)
	}
	return errors.Join(errs...)
}

// add gives the device the rules of one claim. nil: it has all of them.
func (t *flowTable) add(rules []flowRule) error {
	for _, r := range rules {
		if _, there := t.installed[r]; there {
			continue
		}
		handle, err := t.create(r)
		if err != nil {
			return err
		}
		t.installed[r] = handle
	}
	return nil
}

// errRefused is the result for a kind of rule that the device has refused before.
var errRefused = errors.New("the device refuses such rules")

// create gives the device a rule, with the best action that it supports for rules of this kind.
func (t *flowTable) create(r flowRule) (uintptr, error) {
	first := errRefused
	for at := t.actionOf[r.kind()]; at < len(t.actions); at++ {
		handle, err := t.dev.create(r, t.actions[at])
		if err == nil {
			t.actionOf[r.kind()] = at
			return handle, nil
		}
		if errors.Is(err, unix.ENOSYS) { // the driver has no such functions (rte_flow_ops)
			t.to(flowsRefused)
			return 0, err
		}
		if !unsupported(err) {
			return 0, err // full: the next change may find room
		}
		if errors.Is(first, errRefused) {
			first = err
		}
	}
	t.actionOf[r.kind()] = len(t.actions)
	return 0, first
}

// close removes all rules. Nothing is steered by the device from then on.
func (t *flowTable) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.to(flowsClosed)
	if len(t.installed) == 0 {
		return nil
	}
	clear(t.installed)
	return t.dev.flush()
}

// describe renders the state for people; "" where there is nothing to steer.
func (s *flowStatus) describe() string {
	if s.claims == 0 {
		return ""
	}
	return fmt.Sprintf(", rte_flow steers %d of %d claims", s.steered, s.claims)
}

// refusal returns why claims are steered in software; nil where the device steers all, or nothing is claimed.
func (s *flowStatus) refusal() error {
	switch {
	case s.steered == s.claims:
		return nil
	case s.cause != nil:
		return s.cause
	}
	return errNoRule
}

// errNoRule is the reason where a device was not asked: flowRules has none.
var errNoRule = errors.New("devices have no rules for some claims")
