package gpukern

import (
	"runtime"
	"sync/atomic"

	"github.com/millrace/millrace/gpukern/flow"
	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/packet"
)

// Config describes an engine.
type Config struct {
	Ops     Ops      // what the pass does; 0 is OpsHeader
	Tables  Tables   // to begin with; Load replaces them
	Depth   int      // batches that the engine holds at once; 0 is 4
	HashKey [40]byte // of the Toeplitz hash; all zeros is DefaultHashKey

	// Streams let OpLiterals, with OpFlow, find literals that begin in an earlier packet of a flow's
	// direction. With nil no packet continues another. The engine borrows them; an engine that takes over
	// from another one gets the same.
	Streams *Streams

	// MatchLimit is the number of matches of a packet that OpLiterals reports at most; 0 is DefaultMatchLimit, and
	// more than MaxMatchLimit is that.
	MatchLimit int

	Flows *flow.Table // of OpFlow, the caller's; nil leaves Desc.Flow alone
}

// CPU is the engine that works on the calling core: Submit does the pass, Poll hands the batches
// back. Load may be called from any goroutine; the other methods belong to the loop.
type CPU struct {
	ops    Ops
	tables atomic.Pointer[tableSet]
	key    hasher
	work   *tuple.Chunk
	look   *lookup
	find   inspector
	flows  *flow.Table
	flow   *flow.Stage

	packets, batches atomic.Uint64 // done, for Info

	done       []*packet.Batch // a ring of finished batches
	head, held int
	closed     bool
}

var _ Engine = (*CPU)(nil)

// NewCPU returns an engine on the calling core.
func NewCPU(cfg Config) *CPU {
	if cfg.Ops == 0 {
		cfg.Ops = OpsHeader
	}
	if cfg.Depth < 1 {
		cfg.Depth = 4
	}
	if cfg.HashKey == [40]byte{} {
		cfg.HashKey = DefaultHashKey
	}
	c := &CPU{
		ops:  cfg.Ops | OpParse,
		work: new(tuple.Chunk),
		look: new(lookup),
		done: make([]*packet.Batch, cfg.Depth),
	}
	c.find.limit = MatchLimit(cfg.MatchLimit)
	c.key.init(&cfg.HashKey)
	if c.ops&OpFlow != 0 {
		c.find.streams = cfg.Streams
		if cfg.Flows != nil {
			c.flows, c.flow = cfg.Flows, new(flow.Stage)
		}
	}
	c.tables.Store(&tableSet{cfg.Tables, NextGeneration()})
	return c
}

// tableSet is tables in use, and the number by which flow tables remember what they say.
type tableSet struct {
	Tables
	generation uint32
}

var generations atomic.Uint32

// NextGeneration returns a number that no tables of the process had, for tables that an engine is given.
func NextGeneration() uint32 { return max(generations.Add(1), 1) }

// Submit does the header pass over b and takes b until Poll returns it.
func (c *CPU) Submit(b *packet.Batch) error {
	if c.closed {
		return ErrClosed
	}
	if c.held == len(c.done) {
		return ErrFull
	}
	c.pass(b, c.tables.Load())
	c.packets.Add(uint64(len(b.D)))
	c.batches.Add(1)
	c.done[(c.head+c.held)%len(c.done)] = b
	c.held++
	return nil
}

// Poll returns finished batches, also after Close: their frames need an owner.
func (c *CPU) Poll(done []*packet.Batch) int {
	n := min(len(done), c.held)
	for i := range n {
		at := (c.head + i) % len(c.done)
		done[i], c.done[at] = c.done[at], nil
	}
	c.head = (c.head + n) % len(c.done)
	c.held -= n
	return n
}

// Load replaces the tables for batches submitted from now on. It never fails here.
func (c *CPU) Load(t Tables) error {
	c.tables.Store(&tableSet{t, NextGeneration()})
	return nil
}

// Info describes the engine.
func (c *CPU) Info() Info {
	work := BackendStats{Name: "cpu", Packets: c.packets.Load(), Batches: c.batches.Load(), Share: 1}
	return Info{Name: "cpu", Device: runtime.GOARCH, Ops: c.ops, Depth: len(c.done), Synchronous: true, Backends: []BackendStats{work}}
}

// Close ends the engine: no batch goes in any more. Batches inside are finished already; Poll
// returns them.
func (c *CPU) Close() error {
	c.closed = true
	return nil
}
