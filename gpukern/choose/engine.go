// Package choose puts the two back ends of the batch engine behind one: it measures them (Calibrate),
// sends each batch to the one that costs the loop less, and moves the split by what it measures on the
// way. "Never on the GPU here" is a verdict like any other.
//
// Batches come from a loop and go back to it in the order of their submission, whichever back end did
// them. The package decides nothing about packets.
package choose

import (
	"errors"
	"runtime"
	"time"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
)

// Config describes an Engine.
type Config struct {
	CPU, GPU     gpukern.Engine        // both become the Engine's
	Calibrations []gpukern.Calibration // from Calibrate, for the operations that the two do
	Budget       time.Duration         // how long a batch may be in the engine; 0 is DefaultBudget
	Now          func() int64          // nanoseconds that never go back; nil is the process's clock
}

// DefaultBudget is the latency that a batch may have: a GPU that needs longer is used less.
const DefaultBudget = 100 * time.Microsecond

// The back ends, as indices.
const (
	onCPU = iota
	onGPU
	backends
)

// entry is a batch inside.
type entry struct {
	b    *packet.Batch
	back bool  // the back end has returned it
	at   int64 // when it was submitted
}

// window is how many packets and how much time at least pass between two moves of the split.
const (
	windowPackets = 4096
	windowTime    = int64(2 * time.Millisecond)
)

// Engine is two engines as one. It belongs to one loop, as they do; Load and Info may be called from
// any goroutine.
type Engine struct {
	cfg  Config
	back [backends]gpukern.Engine

	// fifo holds the batches inside, oldest first, in a ring.
	fifo       []entry
	head, held int
	done       []*packet.Batch

	climber hillClimber
	credit  float64 // share of batches that the GPU is owed
	fixed   int     // the back end that does everything, where there is state to keep; else free

	// group are batches for the GPU that wait until they are enough, or the first has waited too long.
	group        []*packet.Batch
	groupPackets int
	groupSince   int64

	// The window that is measured.
	since, spent int64 // ns
	packets      int
	stalled      int64 // since when Submit answers "full"; 0 is not
	late         int   // batches of the GPU beyond the budget

	split  split // share of the GPU, for others to read
	closed bool
}

var _ gpukern.Engine = (*Engine)(nil)

// free says that no back end is fixed.
const free = -1

// stateful are the operations that remember packets: a flow must not be in the tables of two back ends, so
// that one of them does all.
const stateful = gpukern.OpFlow | gpukern.OpSketch

// New returns an engine over two. It begins with all that the verdicts allow on the GPU. With operations
// that keep state one back end does everything: the GPU, if the verdicts give it full bursts of packets of
// a usual size.
func New(cfg Config) *Engine {
	if cfg.Budget == 0 {
		cfg.Budget = DefaultBudget
	}
	e := &Engine{cfg: cfg, back: [backends]gpukern.Engine{cfg.CPU, cfg.GPU}}
	if cfg.Now == nil {
		start := time.Now()
		e.cfg.Now = func() int64 { return int64(time.Since(start)) + 1 }
	}
	depth := cfg.CPU.Info().Depth + cfg.GPU.Info().Depth
	e.fifo = make([]entry, depth)
	e.done = make([]*packet.Batch, depth)
	e.group = make([]*packet.Batch, 0, depth)
	e.climber = newHillClimber(1)
	e.since = e.cfg.Now()
	e.fixed = free
	if cfg.CPU.Info().Ops&stateful != 0 {
		e.fixed = onCPU
		if c := e.nearest(usualSize); c != nil && !c.Never() && c.BreakEven <= smallBatch {
			e.fixed = onGPU
		}
	}
	if e.fixed == onCPU {
		e.climber.share = 0
	}
	e.split.store(e.climber.share)
	return e
}

// usualSize is what packets have in the mean, in bytes, near enough.
const usualSize = 512

// Submit takes b until Poll returns it.
func (e *Engine) Submit(b *packet.Batch) error {
	now := e.cfg.Now()
	err := e.submit(now, b)
	end := e.cfg.Now()
	switch {
	case err == nil:
		if e.stalled != 0 { // the loop could do nothing meanwhile
			e.spent += now - e.stalled
			e.stalled = 0
		}
		e.packets += len(b.D)
	case errors.Is(err, gpukern.ErrFull) && e.stalled == 0:
		e.stalled = now
	}
	e.spent += end - now
	return err
}

// submit sends b to the back end that it is for.
func (e *Engine) submit(now int64, b *packet.Batch) error {
	switch {
	case e.closed:
		return gpukern.ErrClosed
	case e.held == len(e.fifo):
		return gpukern.ErrFull
	}
	debt := e.credit
	if from := e.worth(b); from > 0 && e.nextIsGPU() {
		e.gather(now, b, from)
		return nil
	}
	if err := e.back[onCPU].Submit(b); err != nil {
		e.credit = debt // the loop will come with it again
		return err
	}
	e.push(entry{b: b, at: now})
	return nil
}

// nextIsGPU reports whether the next batch is the GPU's, by its share.
func (e *Engine) nextIsGPU() bool {
	if e.credit += e.climber.share; e.credit < 1 {
		return false
	}
	e.credit--
	return true
}

// gather adds b to the group for the GPU, where there is room for all batches inside, and closes it when it
// is large enough.
func (e *Engine) gather(now int64, b *packet.Batch, from int) {
	if len(e.group) == 0 {
		e.groupSince = now
	}
	e.push(entry{b: b, at: now})
	e.group = append(e.group, b)
	e.groupPackets += len(b.D)
	if e.groupPackets >= from {
		e.closeGroup()
	}
}

// closeGroup submits what waits for the GPU, as far as it has room. What it refuses for another reason
// than that goes to the CPU's back end by redirect.
func (e *Engine) closeGroup() {
	n := 0
	for _, b := range e.group {
		if err := e.back[onGPU].Submit(b); err != nil {
			if errors.Is(err, gpukern.ErrFull) || !e.redirect(b) {
				break
			}
		}
		e.groupPackets -= len(b.D)
		n++
	}
	rest := copy(e.group, e.group[n:])
	clear(e.group[rest:])
	e.group = e.group[:rest]
}

// redirect gives a batch that the GPU's back end refuses to the CPU; it reports whether there was room.
func (e *Engine) redirect(b *packet.Batch) bool {
	if e.back[onCPU].Submit(b) != nil {
		return false
	}
	if e.fixed == free {
		e.climber.reset(0)
	}
	return true
}

// worth returns how many packets like those of b are worth a trip to the GPU; 0 is none.
func (e *Engine) worth(b *packet.Batch) int {
	if e.fixed != free {
		return e.fixed // 1 packet or none: onCPU is 0
	}
	if len(b.D) == 0 || e.climber.share == 0 {
		return 0
	}
	c := e.nearest(typicalSize(b))
	if c == nil || c.GPU.At(len(b.D)) > e.cfg.Budget {
		return 0
	}
	return c.BreakEven
}

// nearest returns the verdict about the size nearest to one, nil where there is none.
func (e *Engine) nearest(size int) *gpukern.Calibration {
	var best *gpukern.Calibration
	for i := range e.cfg.Calibrations {
		c := &e.cfg.Calibrations[i]
		if best == nil || apart(c.Bytes, size) < apart(best.Bytes, size) {
			best = c
		}
	}
	return best
}

func apart(a, b int) int { return max(a-b, b-a) }

// typicalSize is the mean size of a few packets of b.
func typicalSize(b *packet.Batch) int {
	step := max(1, len(b.D)/8)
	sum, n := 0, 0
	for i := 0; i < len(b.D); i += step {
		sum += int(b.D[i].Len)
		n++
	}
	return sum / n
}

// push adds a batch to those inside.
func (e *Engine) push(x entry) {
	*e.at(e.held) = x
	e.held++
}

// at returns the i-th oldest batch inside.
func (e *Engine) at(i int) *entry { return &e.fifo[(e.head+i)%len(e.fifo)] }

// Poll returns finished batches in the order of their submission.
func (e *Engine) Poll(done []*packet.Batch) int {
	now := e.cfg.Now()
	if len(e.group) > 0 && now-e.groupSince >= int64(e.cfg.Budget)/4 {
		e.closeGroup()
	}
	for to := range e.back {
		e.reclaim(now, to)
	}
	n := 0
	for n < len(done) && e.held > 0 && e.at(0).back {
		x := e.at(0)
		done[n] = x.b
		*x = entry{}
		e.head = (e.head + 1) % len(e.fifo)
		e.held--
		n++
	}
	e.endWindow(now)
	if n > 0 {
		e.spent += e.cfg.Now() - now
	}
	return n
}

// reclaim marks the batches that a back end returns. They come in order, but for those that the CPU was
// given later, by redirect: the search for a batch begins at the one before and goes round.
func (e *Engine) reclaim(now int64, to int) {
	n := e.back[to].Poll(e.done)
	at := 0
	for _, b := range e.done[:n] {
		at = e.find(b, at)
		x := e.at(at)
		x.back = true
		if to == onGPU && now-x.at > int64(e.cfg.Budget) {
			e.late++
		}
	}
	clear(e.done[:n])
}

// find returns the place of a batch that is inside, from a place on.
func (e *Engine) find(b *packet.Batch, from int) int {
	for i := range e.held {
		if at := (from + i) % e.held; e.at(at).b == b {
			return at
		}
	}
	panic("choose: a back end returns a batch that it was not given")
}

// endWindow ends the window when it is long enough, and moves the split by what it cost.
func (e *Engine) endWindow(now int64) {
	if e.packets < windowPackets || now-e.since < windowTime {
		return
	}
	switch {
	case e.fixed != free: // nothing to move
	case e.back[onGPU].Info().Fault != "":
		e.climber.reset(0)
	case e.late > 0 && e.late*100 > e.packets/smallBatch:
		e.climber.reset(e.climber.share / 2)
	default:
		e.climber.observe(float64(e.spent) / float64(e.packets))
	}
	e.split.store(e.climber.share)
	e.since, e.spent, e.packets, e.late = now, 0, 0, 0
}

// Load replaces the tables of both back ends, or of none: the GPU, which may have no room, is asked first,
// and the CPU takes everything.
func (e *Engine) Load(t gpukern.Tables) error {
	if err := e.back[onGPU].Load(t); err != nil {
		return err
	}
	return e.back[onCPU].Load(t)
}

// Close sends what still waits, once there is room, and ends both back ends. Poll returns the batches inside.
func (e *Engine) Close() error {
	for e.closed = true; len(e.group) > 0; runtime.Gosched() {
		e.closeGroup()
		for to := range e.back {
			e.reclaim(e.cfg.Now(), to)
		}
	}
	return errors.Join(e.back[onGPU].Close(), e.back[onCPU].Close())
}
