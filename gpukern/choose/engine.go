// Package choose combines the two back ends of the batch engine: it measures them (Calibrate), sends each batch
// to the one that costs the loop less, and adjusts the share of each by hill climbing on the measured cost.
// "Never on the GPU here" is a possible result.
//
// Batches come from a loop and go back to it in the order of their submission, whichever back end processed
// them. The package sets no verdict.
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
	Calibrations []gpukern.Calibration // from Calibrate, for the operations of both
	Budget       time.Duration         // how long a batch may be in the engine; 0 is DefaultBudget
	Now          func() int64          // monotonic nanoseconds; nil is the process's clock
}

// DefaultBudget is the latency that a batch may have: a GPU that needs longer is used less.
const DefaultBudget = 100 * time.Microsecond

// The back ends, as indices.
const (
	onCPU = iota
	onGPU
	backends
)

// entry is a batch in flight.
type entry struct {
	b    *packet.Batch
	back bool  // the back end has returned it
	late bool  // it is counted as late
	to   int   // the back end
	at   int64 // when it was submitted
}

// A window is the least number of packets and the least time between two changes of the share.
const (
	windowPackets = 4096
	windowTime    = int64(2 * time.Millisecond)
)

// lateBatches are so many late ones that they are no chance.
const lateBatches = 4

// mostPatience bounds the windows that a GPU is left alone for: four seconds or more.
const mostPatience = 64 * pauseWindows

// Engine distributes batches over two engines. It belongs to one loop, as they do. Load and Info may be called
// from any goroutine.
type Engine struct {
	cfg  Config
	back [backends]gpukern.Engine

	// fifo is a ring of the batches in flight, oldest first.
	fifo       []entry
	head, held int
	done       []*packet.Batch

	climber hillClimber
	credit  float64 // share of batches that are due to the GPU and not sent yet
	fixed   int     // the back end that gets every batch, where operations keep state; else free

	// group holds batches for the GPU until they have enough packets or the oldest has waited too long.
	group        []*packet.Batch
	groupPackets int
	groupSince   int64

	// The current window of the measurement.
	since, spent int64 // ns
	packets      int
	stalled      int64 // since when Submit answers "full"; 0 is not
	returned     int   // batches that the GPU returned, or is late with
	late         int   // those beyond the budget
	polled       int64 // when Poll was called last

	patience int      // windows until the GPU is tried again, after a retreat from it
	split    split    // share of the GPU, for others to read
	counts   counters // the same of what it has done
	closed   bool
}

var _ gpukern.Engine = (*Engine)(nil)

// free reports that no back end is fixed.
const free = -1

// stateful are the operations that keep state between packets: a flow must not be in the tables of two back
// ends, so one of them gets every batch.
const stateful = gpukern.OpFlow

// New returns an engine over two. It starts with the largest share for the GPU that the calibrations allow. With
// stateful operations one back end gets every batch: the GPU, if it breaks even at a full burst of packets of
// the usual size.
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
	e.climber, e.patience = newHillClimber(1), pauseWindows
	e.since = e.cfg.Now()
	e.polled = e.since
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

// usualSize is the mean size of packets in bytes, near enough.
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

// submit sends b to a back end.
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
	e.push(entry{b: b, to: onCPU, at: now})
	return nil
}

// nextIsGPU reports whether the next batch goes to the GPU, by its share.
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
	e.push(entry{b: b, to: onGPU, at: now})
	e.group = append(e.group, b)
	e.groupPackets += len(b.D)
	if e.groupPackets >= from {
		e.closeGroup()
	}
}

// closeGroup submits the group to the GPU, as far as it has room. A batch that it rejects for another reason
// goes to the CPU by redirect.
func (e *Engine) closeGroup() {
	n := 0
	for _, b := range e.group {
		if err := e.back[onGPU].Submit(b); err != nil {
			if errors.Is(err, gpukern.ErrFull) || !e.redirect(b) {
				break
			}
			e.at(e.find(b, 0)).to = onCPU
		}
		e.groupPackets -= len(b.D)
		n++
	}
	rest := copy(e.group, e.group[n:])
	clear(e.group[rest:])
	e.group = e.group[:rest]
}

// redirect gives a batch that the GPU rejects to the CPU and reports whether that had room.
func (e *Engine) redirect(b *packet.Batch) bool {
	if e.back[onCPU].Submit(b) != nil {
		return false
	}
	if e.fixed == free {
		e.climber.reset(0)
	}
	return true
}

// worth returns how many packets of the size of b's break even on the GPU; 0 is none.
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

// nearest returns the calibration of the nearest packet size, nil where there is none.
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

// push adds a batch to those in flight.
func (e *Engine) push(x entry) {
	*e.at(e.held) = x
	e.held++
}

// at returns the i-th oldest batch in flight.
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
	e.overdue(now)
	e.polled = now
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

// reclaim marks the batches that a back end returns. They come in order, except those that redirect gave to the
// CPU later: the search for a batch starts at the one before and wraps.
func (e *Engine) reclaim(now int64, to int) {
	n := e.back[to].Poll(e.done)
	at := 0
	for _, b := range e.done[:n] {
		at = e.find(b, at)
		x := e.at(at)
		x.back = true
		e.counts.wait[to].Add(now - x.at)
		if to != onGPU {
			continue
		}
		if !x.late {
			e.returned++
		}
		e.judge(now, x)
	}
	clear(e.done[:n])
}

// overdue counts the oldest batch as late, which all others wait behind, while the GPU still has it.
func (e *Engine) overdue(now int64) {
	if e.held == 0 {
		return
	}
	if x := e.at(0); x.to == onGPU && !x.back && !x.late {
		if e.judge(now, x); x.late {
			e.returned++
		}
	}
}

// judge counts a batch of the GPU as late if it is beyond the budget. A loop that was away itself, as others had its core, does not
// know when the batch was ready.
func (e *Engine) judge(now int64, x *entry) {
	budget := int64(e.cfg.Budget)
	if x.late || now-x.at <= budget || now-e.polled > budget/2 {
		return
	}
	x.late = true
	e.late++
	e.counts.late.Add(1)
}

// find returns the position of a batch in flight, searching from a position on.
func (e *Engine) find(b *packet.Batch, from int) int {
	for i := range e.held {
		if at := (from + i) % e.held; e.at(at).b == b {
			return at
		}
	}
	panic("choose: a back end returns a batch that it was not given")
}

// endWindow ends the window when it is long enough, and changes the share by what it cost.
func (e *Engine) endWindow(now int64) {
	if !e.outpaced(now) && (e.packets < windowPackets || now-e.since < windowTime) {
		return
	}
	switch {
	case e.fixed != free: // nothing to move
	case e.back[onGPU].Info().Fault != "":
		e.climber.reset(0)
	case e.late > 0 && e.late*2 >= e.returned:
		e.retreat()
	case e.late > 0 && e.late*100 > e.packets/smallBatch:
		e.climber.reset(e.climber.share / 2)
	default:
		if e.returned > 0 && !e.climber.trying {
			e.patience = pauseWindows
		}
		e.climber.observe(float64(e.spent) / float64(e.packets))
	}
	e.split.store(e.climber.share)
	e.since, e.spent, e.packets, e.late, e.returned = now, 0, 0, 0, 0
}

// outpaced reports that the window need not have its packets to tell that the GPU is too slow: at a low rate those come after seconds.
// A GPU that was left before is left at the first late batch.
func (e *Engine) outpaced(now int64) bool {
	if e.fixed != free || e.climber.share == 0 || e.late == 0 || e.late*2 < e.returned {
		return false
	}
	return now-e.since >= windowTime || e.late >= lateBatches || e.patience > pauseWindows
}

// retreat leaves the GPU, whose batches are late: another program has it, say. Each time in a row that it proves too slow it is left alone
// for longer, up to mostPatience.
func (e *Engine) retreat() {
	if e.climber.share > 0 {
		e.counts.retreats.Add(1)
	}
	e.climber.reset(0)
	e.climber.pause = e.patience
	e.patience = min(4*e.patience, mostPatience)
}

// Load replaces the tables of both back ends, or of none: the GPU, which may have no room, goes first.
func (e *Engine) Load(t gpukern.Tables) error {
	if err := e.back[onGPU].Load(t); err != nil {
		return err
	}
	return e.back[onCPU].Load(t)
}

// Close submits the group, once there is room, and closes both back ends. Poll returns the batches in flight.
func (e *Engine) Close() error {
	for e.closed = true; len(e.group) > 0; runtime.Gosched() {
		e.closeGroup()
		for to := range e.back {
			e.reclaim(e.cfg.Now(), to)
		}
	}
	return errors.Join(e.back[onGPU].Close(), e.back[onCPU].Close())
}
