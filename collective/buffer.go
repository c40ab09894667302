package collective

import (
	"github.com/millrace/millrace/collective/numeric"
)

// Type is the type of elements, and Op a reduction: those of package numeric.
type (
	Type = numeric.Type
	Op   = numeric.Op
)

// The types and reductions.
const (
	Int8     = numeric.Int8
	Int16    = numeric.Int16
	Int32    = numeric.Int32
	Int64    = numeric.Int64
	Uint8    = numeric.Uint8
	Uint16   = numeric.Uint16
	Uint32   = numeric.Uint32
	Uint64   = numeric.Uint64
	Float16  = numeric.Float16
	BFloat16 = numeric.BFloat16
	Float32  = numeric.Float32
	Float64  = numeric.Float64

	Sum  = numeric.Sum
	Prod = numeric.Prod
	Min  = numeric.Min
	Max  = numeric.Max
	Avg  = numeric.Avg
)

// Memory holds elements where the processor may not reach them by loads and stores, such as in a GPU, or in another form than on
// the wire. Offsets and lengths count elements, and bytes are those of the wire, of WireSize for an element. Methods are called
// from several goroutines, for parts that do not overlap.
type Memory interface {
	// WireSize returns the bytes of an element in a message.
	WireSize() int
	// Host returns the elements as they are in messages, if they are in memory of the host in this form; nil is that they are not.
	Host() []byte
	// Scratch returns memory of the same kind for n elements, of which an operation has one at a time.
	Scratch(n int) Memory
	// Load copies elements from off on to b.
	Load(b []byte, off int)
	// Store copies b to the elements from off on.
	Store(b []byte, off int)
	// Reduce combines the elements from off on with those of b.
	Reduce(b []byte, off int, op Op)
	// Divide divides n elements from off on, for Avg.
	Divide(off, n, by int)
}

// Buffer is a vector of an operation.
type Buffer struct {
	mem  Memory
	typ  Type
	off  int // elements
	n    int
	host hostMemory // of most
}

// Slice returns the vector of a slice, whose memory it shares.
func Slice[T numeric.Element](v []T) Buffer {
	return Buffer{typ: numeric.TypeOf[T](), n: len(v), host: hostMemory{numeric.Bytes(v), numeric.TypeOf[T]()}}
}

// InMemory returns a vector of n elements of a type in memory of any kind.
func InMemory(m Memory, t Type, n int) Buffer { return Buffer{mem: m, typ: t, n: n} }

// Len returns the number of elements.
func (b *Buffer) Len() int { return b.n }

// Type returns the type of the elements.
func (b *Buffer) Type() Type { return b.typ }

// Range returns the vector of the elements from lo to hi-1.
func (b *Buffer) Range(lo, hi int) Buffer {
	r := *b
	_ = make([]struct{}, b.n)[lo:hi] // as of a slice
	r.off, r.n = b.off+lo, hi-lo
	return r
}

func (b *Buffer) memory() Memory {
	if b.mem != nil {
		return b.mem
	}
	return &b.host
}

// sameAs reports whether two vectors are the same memory.
func (b *Buffer) sameAs(o *Buffer) bool {
	if b.n != o.n || b.off != o.off || b.typ != o.typ || b.mem != o.mem {
		return false
	}
	return b.n == 0 || b.mem != nil || &b.host.b[0] == &o.host.b[0]
}

// copyElements copies a vector to another one of the same length and type.
func copyElements(dst, src *Buffer) {
	if dst.sameAs(src) || dst.n == 0 {
		return
	}
	to, from := dst.memory(), src.memory()
	size := from.WireSize()
	if h := from.Host(); h != nil && to.WireSize() == size {
		to.Store(h[src.off*size:(src.off+src.n)*size], dst.off)
		return
	}
	const most = 16 << 10 // elements at a time
	stage := make([]byte, min(src.n, most)*size)
	for at := 0; at < src.n; at += most {
		part := stage[:min(most, src.n-at)*size]
		from.Load(part, src.off+at)
		to.Store(part, dst.off+at)
	}
}

// hostMemory is a slice.
type hostMemory struct {
	b []byte
	t Type
}

func (m *hostMemory) WireSize() int { return m.t.Size() }
func (m *hostMemory) Host() []byte  { return m.b }

// Scratch implements Memory, for slices that InMemory was given.
func (m *hostMemory) Scratch(n int) Memory {
	return &hostMemory{numeric.Bytes(make([]uint64, (n*m.t.Size()+7)/8)), m.t}
}

func (m *hostMemory) at(off, n int) []byte { return m.b[off*m.t.Size():][:n] }

func (m *hostMemory) Load(b []byte, off int)  { copy(b, m.at(off, len(b))) }
func (m *hostMemory) Store(b []byte, off int) { copy(m.at(off, len(b)), b) }

func (m *hostMemory) Reduce(b []byte, off int, op Op) {
	numeric.Reduce(m.at(off, len(b)), b, m.t, op)
}

func (m *hostMemory) Divide(off, n, by int) {
	numeric.Divide(m.at(off, n*m.t.Size()), m.t, by)
}
