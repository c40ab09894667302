// Package gpukern is the batch engine: one pass over every packet of a batch parses headers, verifies checksums,
// looks up rules, routes and flows, and writes the results into the descriptors. The interface Engine has a
// CPU implementation here and a CUDA implementation in gpukern/cuda, with identical results. The tables are
// packages below: acl, lpm, flow, literal.
//
// A batch comes from a driver through a loop, goes in by Submit, comes back by Poll, and goes on to
// the filter and the gateway or transports. The engine never sets a verdict.
package gpukern

import (
	"errors"
	"strings"

	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/gpukern/lpm"
	"github.com/millrace/millrace/packet"
)

// Ops are the operations of an engine, as bits. OpParse is implied by the others.
type Ops uint32

// The bits of Ops.
const (
	OpParse    Ops = 1 << iota // L3, L4, Payload, Proto and the flags about headers
	OpChecksum                 // FlagIPChecksumOK, FlagL4ChecksumOK
	OpHash                     // Hash
	OpACL                      // Rule
	OpLPM                      // NextHop, of the destination address
	OpFlow                     // Flow: slot << 1 | direction in the engine's flow table
	OpLiterals                 // Batch.Matches, the literals found in payloads
	OpL2Encap                  // look behind MPLS label stacks and PPPoE session headers as behind VLAN tags

	// OpsHeader are the default operations of an engine.
	OpsHeader = OpParse | OpChecksum | OpHash | OpACL | OpLPM
)

var opNames = []string{"parse", "checksum", "hash", "acl", "lpm", "flow", "literals", "l2encap"}

// String returns the names of the set bits, joined by "+".
func (o Ops) String() string {
	var on []string
	for i, name := range opNames {
		if o&(1<<i) != 0 {
			on = append(on, name)
		}
	}
	return strings.Join(on, "+")
}

// Errors of engines.
var (
	ErrFull   = errors.New("engine has no room for another batch")
	ErrClosed = errors.New("engine is closed")
)

// Tables hold the tables of the operations. They are immutable: a change is a new Tables.
type Tables struct {
	ACL      *acl.List    // nil matches nothing
	Routes   *lpm.Table   // nil finds nothing
	Literals *literal.Set // nil finds nothing
}

// Engine runs the header pass over batches. It belongs to one loop.
type Engine interface {
	// Submit takes b until Poll returns it. ErrFull says to Poll first; the batch stays the
	// caller's then.
	Submit(b *packet.Batch) error

	// Poll stores finished batches in done, in the order of their submission, passes them back to
	// the caller and returns how many. It does not block.
	Poll(done []*packet.Batch) int

	// Load replaces the tables, for batches submitted from now on. It may be called from any
	// goroutine.
	Load(t Tables) error

	// Info describes the engine.
	Info() Info

	// Close waits for the batches inside and ends the engine.
	Close() error
}

// Info describes an engine, for people and for metrics. It may be asked for from any goroutine.
type Info struct {
	Name   string // "cpu", "cuda", "auto"
	Device string // what it runs on: the CPU's architecture or the GPU's name
	Ops    Ops    // operations that are on
	Depth  int    // batches that it can hold at once

	// Synchronous reports that Submit does the work: the next Poll returns the batch.
	Synchronous bool

	// NewBatch makes a batch of at most n packets of a whose descriptors the engine works on without a copy.
	// nil means that every batch is as good. It belongs to the loop and is called before the first Submit.
	NewBatch func(a *packet.Arena, n int) *packet.Batch

	Fault  string // why the GPU is no longer used and the CPU does its work; "" while it works
	Redone uint64 // packets in flight on the GPU when it was lost, processed again on the CPU

	Retreats uint64 // times that the batches of a GPU were late, so that the CPU does its work for a while

	Backends     []BackendStats // what each back end has done, the CPU's first
	Calibrations []Calibration  // of the back ends, where they were measured
}
