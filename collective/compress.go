package collective

import (
	"fmt"
	"math"
	"slices"

	"github.com/millrace/millrace/collective/numeric"
)

// Compressed returns the vector of a slice whose elements travel as bfloat16, in half of the bytes. Sums are kept in float32. Each rank
// rounds what it sends in its own vector, too, so all ranks end with the same bits.
//
// Each message rounds by at most 2^-9 of the value that is sent. In an all-reduce an element is sent at most Size times before its sum
// is complete, and that is rounded once more: the error is at most (Size+1) 2^-9 times the sum of the magnitudes of the ranks'
// elements.
func Compressed(v []float32) Buffer { return InMemory(&brainMemory{v}, Float32, len(v)) }

// brainMemory is a slice that travels as bfloat16.
type brainMemory struct{ v []float32 }

func (m *brainMemory) WireSize() int { return 2 }
func (m *brainMemory) Host() []byte  { return nil }

// Scratch implements Memory.
func (m *brainMemory) Scratch(n int) Memory { return &brainMemory{make([]float32, n)} }

// rounder is memory whose elements lose bits when they are sent.
type rounder interface {
	// Round rounds n elements from off on, as Load does.
	Round(off, n int)
}

// Round implements rounder.
func (m *brainMemory) Round(off, n int) {
	for i, x := range m.v[off : off+n] {
		m.v[off+i] = numeric.BrainOf(x).Float32()
	}
}

// Load implements Memory: it keeps what it sends.
func (m *brainMemory) Load(b []byte, off int) {
	for i := range len(b) / 2 {
		w := numeric.BrainOf(m.v[off+i])
		m.v[off+i] = w.Float32()
		b[2*i], b[2*i+1] = byte(w), byte(w>>8)
	}
}

func brainAt(b []byte, i int) float32 {
	return numeric.Brain(uint16(b[2*i]) | uint16(b[2*i+1])<<8).Float32()
}

// Store implements Memory.
func (m *brainMemory) Store(b []byte, off int) {
	for i := range len(b) / 2 {
		m.v[off+i] = brainAt(b, i)
	}
}

// Reduce implements Memory.
func (m *brainMemory) Reduce(b []byte, off int, op Op) {
	v := m.v[off : off+len(b)/2]
	var stage [256]float32
	for at := 0; at < len(v); at += len(stage) {
		part := v[at:min(at+len(stage), len(v))]
		for i := range part {
			stage[i] = brainAt(b, at+i)
		}
		numeric.Reduce(numeric.Bytes(part), numeric.Bytes(stage[:len(part)]), Float32, op)
	}
}

// Divide implements Memory.
func (m *brainMemory) Divide(off, n, by int) {
	numeric.Divide(numeric.Bytes(m.v[off:off+n]), Float32, by)
}

// TopK sums only the largest elements of a vector, and keeps the others for the next sum (error feedback), so that nothing is lost over
// many steps of a training. It belongs to one vector of one rank; all ranks have the same K and the same length.
type TopK struct {
	K int // elements of each rank that are sent

	rest []float32
}

// Rest returns what has not been sent so far.
func (t *TopK) Rest() []float32 { return t.rest }

// AllReduce adds v to what was left before, sends the K elements of largest magnitude, and puts the sum of what all ranks have sent
// into v. Ranks that have the same elements largest send 8 K bytes each, whatever the length of the vector.
func (t *TopK) AllReduce(c *Comm, v []float32) error {
	if t.K < 1 || t.K > len(v) || t.rest != nil && len(t.rest) != len(v) {
		return fmt.Errorf("%w: the %d largest of %d elements", ErrArguments, t.K, len(v))
	}
	if t.rest == nil {
		t.rest = make([]float32, len(v))
	}
	for i, x := range v {
		t.rest[i] += x
	}
	order := make([]uint32, len(v))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int { // equal magnitudes by index
		switch x, y := math.Abs(float64(t.rest[a])), math.Abs(float64(t.rest[b])); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return int(a) - int(b)
	})
	own, all := make([]uint32, 2*t.K), make([]uint32, 2*t.K*c.Size())
	for i, at := range order[:t.K] {
		own[2*i], own[2*i+1] = at, math.Float32bits(t.rest[at])
	}
	if err := c.AllGather(Slice(all), Slice(own)); err != nil {
		return err // what was to be sent is kept
	}
	for _, at := range order[:t.K] {
		t.rest[at] = 0
	}
	clear(v)
	for i := 0; i < len(all); i += 2 {
		if int(all[i]) >= len(v) {
			return fmt.Errorf("%w: element %d of %d comes from another rank: all have vectors of the same length", ErrArguments, all[i], len(v))
		}
		v[all[i]] += math.Float32frombits(all[i+1])
	}
	return nil
}
