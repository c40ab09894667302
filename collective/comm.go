package collective

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/collective/link"
	"github.com/millrace/millrace/collective/schedule"
)

// Comm is a communicator: a group of ranks. Its methods may be called from any goroutine, but all ranks have to call
// operations in the same order.
type Comm struct {
	w       *world
	context uint64
	rank    int
	members []int   // ranks of Connect, by rank
	groups  [][]int // ranks that share a machine
	started atomic.Uint32
	words   []uint64 // scratch of the operation under way

	mu        sync.Mutex
	last      *Handle // the operation that was called last
	closed    bool
	splits    int // that were called
	singles   map[single]uint32
	schedules map[scheduleKey]*schedule.Schedule
	fixed     map[Kind]Algorithm
	chosen    map[choiceKey]Algorithm
}

// single identifies single messages: their number counts those with the same peer, tag and direction.
type single struct {
	peer int
	tag  uint32
	send bool
}

// Rank returns the number of this rank in the communicator, and Size the number of ranks.
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of ranks.
func (c *Comm) Size() int { return len(c.members) }

// root returns the communicator of all ranks.
func (w *world) root() *Comm {
	members := make([]int, w.cfg.Size)
	for i := range members {
		members[i] = i
	}
	return w.newComm(0, w.cfg.Rank, members)
}

func (w *world) newComm(context uint64, rank int, members []int) *Comm {
	c := &Comm{
		w: w, context: context, rank: rank, members: members, groups: w.groups(members),
		singles: map[single]uint32{}, schedules: map[scheduleKey]*schedule.Schedule{}, fixed: map[Kind]Algorithm{}, chosen: map[choiceKey]Algorithm{},
	}
	w.mu.Lock()
	w.comms[context] = c
	w.mu.Unlock()
	return c
}

// groups returns the ranks of a communicator that share a machine, for each machine.
func (w *world) groups(members []int) (groups [][]int) {
	place := map[string]int{}
	for rank, m := range members {
		g, ok := place[w.hosts[m]]
		if !ok {
			g = len(groups)
			place[w.hosts[m]] = g
			groups = append(groups, nil)
		}
		groups[g] = append(groups[g], rank)
	}
	return groups
}

// call describes the parameters of an operation.
type call struct {
	name      string
	typ       Type
	op        Op
	count     int
	root      int
	algorithm Algorithm
}

// String returns the text of errors.
func (k call) String() string {
	s := fmt.Sprintf("%s of %d", k.name, k.count)
	if k.typ.Valid() {
		s += " " + k.typ.String()
	}
	if k.op.Valid() {
		s += ", " + k.op.String()
	}
	if k.root >= 0 {
		s += fmt.Sprintf(", root %d", k.root)
	}
	if k.algorithm != "" {
		s += fmt.Sprintf(" (%s)", k.algorithm)
	}
	return s
}

// fingerprint is a hash of the parameters, which messages carry.
func (k *call) fingerprint() uint32 {
	h := fnv.New32a()
	h.Write([]byte(k.name))
	h.Write([]byte(k.algorithm))
	var b [18]byte
	b[0], b[1] = byte(k.typ), byte(k.op)
	binary.LittleEndian.PutUint64(b[2:], uint64(k.count))
	binary.LittleEndian.PutUint64(b[10:], uint64(k.root))
	h.Write(b[:])
	return h.Sum32()
}

// Handle is an operation that was started.
type Handle struct {
	done chan struct{}
	err  error
}

// Wait waits for the end of the operation, until which its vectors belong to it.
func (h *Handle) Wait() error {
	<-h.done
	return h.err
}

// Done returns a channel that is closed at the end of the operation.
func (h *Handle) Done() <-chan struct{} { return h.done }

// failedHandle returns a Handle of an operation that was not started.
func failedHandle(err error) *Handle {
	h := &Handle{done: make(chan struct{}), err: err}
	close(h.done)
	return h
}

// ErrArguments is the error of calls that cannot be.
var ErrArguments = errors.New("collective: wrong arguments")

// enqueue makes the operation the next of the communicator. It returns the one before.
func (c *Comm) enqueue() (h, before *Handle, sequence uint32, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, 0, ErrClosed
	}
	h, before = &Handle{done: make(chan struct{})}, c.last
	c.last = h
	return h, before, c.started.Add(1), nil
}

// collective executes an operation behind those that were called before, in this goroutine or in another.
func (c *Comm) collective(k call, async bool, do func(r *run) error) *Handle {
	h, before, sequence, err := c.enqueue()
	if err != nil {
		return failedHandle(err)
	}
	execute := func() {
		defer close(h.done)
		if before != nil {
			<-before.done
		}
		h.err = c.execute(k, sequence, do)
	}
	if async {
		go execute()
	} else {
		execute()
	}
	return h
}

// execute runs an operation.
func (c *Comm) execute(k call, sequence uint32, do func(r *run) error) error {
	if err := c.w.failureNow(); err != nil {
		return err
	}
	act := c.begin(k)
	defer c.end(act)
	if c.w.cfg.Debug {
		if err := c.compare(k, sequence); err != nil {
			return err
		}
	}
	return do(&run{c: c, act: act, op: k.op, sequence: sequence, sum: k.fingerprint()})
}

func (c *Comm) begin(k call) *activity {
	act := &activity{comm: c, what: k}
	act.waits.Store(-1)
	c.w.mu.Lock()
	c.w.active[act] = struct{}{}
	c.w.mu.Unlock()
	return act
}

func (c *Comm) end(act *activity) {
	c.w.mu.Lock()
	delete(c.w.active, act)
	c.w.mu.Unlock()
}

// compare waits until all ranks have called the same operation.
func (c *Comm) compare(k call, sequence uint32) error {
	key, agreed := operation{c.context, sequence}, make(chan struct{})
	c.w.mu.Lock()
	c.w.waiting[key] = agreed
	c.w.mu.Unlock()
	if err := c.w.control.write(frameCompare, compareFrame{key, k.String(), c.members}); err != nil {
		return c.broken(-1, err)
	}
	select {
	case <-agreed:
		return nil
	case <-c.w.failed:
		return c.w.failureNow()
	}
}

// agreed ends compare.
func (w *world) agreed(f compareFrame) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := f.operation
	if ch := w.waiting[key]; ch != nil {
		close(ch)
		delete(w.waiting, key)
	}
}

// classify sets the kind of a failure by the error of a link.
func classify(s *suspectFrame, err error) {
	switch {
	case errors.Is(err, link.ErrMismatch):
		s.Kind, s.Reason = Differs, err.Error()
	case errors.Is(err, link.ErrHeader):
		s.Kind, s.Reason = Violated, err.Error()
	}
}

// Close leaves the group. Messages that were sent reach their ranks. The lowest rank waits for the others, at most for the time-out: it
// coordinates them. Operations that are under way fail.
func (c *Comm) Close() error {
	c.mu.Lock()
	closed, last := c.closed, c.last
	c.closed = true
	c.mu.Unlock()
	if closed {
		return nil
	}
	if last != nil {
		<-last.done
	}
	w := c.w
	if c.context != 0 {
		w.mu.Lock()
		delete(w.comms, c.context)
		w.mu.Unlock()
		return nil
	}
	for _, l := range w.links {
		if l != nil && w.failureNow() == nil {
			l.Flush(w.grace())
		}
	}
	w.mu.Lock()
	w.leaving = true
	w.mu.Unlock()
	_ = w.control.write(frameBye, struct{}{}) // a coordinator that is gone needs none
	if w.coord != nil {
		w.coord.finish(w.cfg.Timeout)
	}
	w.shut()
	return nil
}

// finish waits until all other ranks have left.
func (c *coordinator) finish(timeout time.Duration) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-c.idle:
	case <-timer.C:
	}
	for _, conn := range c.conns {
		_ = conn.conn.Close() // ranks that are still there learn that the coordinator has left
	}
	<-c.done
}

// shut closes everything, of a Connect that has failed or a communicator that is closed.
func (w *world) shut() {
	w.mu.Lock()
	w.leaving = true
	select {
	case <-w.done:
	default:
		close(w.done)
	}
	listeners, control, links := w.listeners, w.control, w.links
	w.mu.Unlock()
	for _, l := range listeners {
		_ = l.Close() // nothing is lost with it
	}
	if control != nil {
		_ = control.conn.Close() // as above
	}
	for _, l := range links {
		if l != nil {
			l.Close(ErrClosed)
		}
	}
}

// ErrClosed is the error of calls after Close.
var ErrClosed = errors.New("collective: the communicator is closed")
