// Package sketch counts what each source sends, and how many sources there are, in memory that does not
// grow with them. A CPU and a GPU count alike.
package sketch

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net/netip"

	"github.com/millrace/millrace/gpukern/image"
	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/internal/random"
	"github.com/millrace/millrace/ring"
)

// Limits of sketches.
const (
	MinWidth     = 1 << 8
	MaxWidth     = 1 << 22
	MinPrecision = 10
	MaxPrecision = 16

	depth = 4 // rows
)

// Config describes a sketch.
type Config struct {
	Width     int    // counters in each of 4 rows, a power of two; 0 is 65536. Memory is 64 bytes for each
	Precision int    // 2^Precision registers count distinct sources, 10 to 16; 0 is 14
	Seed      uint64 // of the hash; 0 is a random one
}

// Sketch counts the packets and bytes of each source, and how many sources there are, in memory that
// does not grow with them (OpSketch). A source is an IPv4 address or the /64 that an IPv6 address lies
// in: a host chooses the rest as it likes. It belongs to the loop of the one engine that it is given to
// (Config.Sketch); its memory lies outside of the Go heap.
//
// What one source sent is estimated by count-min (Cormode, Muthukrishnan, "An improved data stream summary:
// the count-min sketch and its applications", 2005): never less than the truth, and more than it by over
// e/Width of all traffic with probability e^-4, 1.8%. The number of sources is estimated by HyperLogLog (Flajolet,
// Fusy, Gandouet, Meunier, 2007) with 64 bits of hash, with a standard error of 1.04/sqrt(2^Precision):
// 0.8% by default.
//
// Counters are sums and registers are maxima: the same packets give the same sketch in whatever order
// and by whichever engine. They begin anew with each Reset; a window is what lies between two.
type Sketch struct {
	cells     []cell   // row after row
	registers []uint32 // of HyperLogLog: the highest rank seen, 0 for none
	key       [3]uint64
	width     uint32
	precision uint32
	arena     *ring.Arena
}

// cell is a counter: struct gk_cell. Both numbers lie in one sector of memory.
type cell struct{ packets, bytes uint64 }

// New returns an empty sketch. The caller closes it after the engine.
func New(cfg Config) (*Sketch, error) {
	if cfg.Width == 0 {
		cfg.Width = 1 << 16
	}
	if cfg.Precision == 0 {
		cfg.Precision = 14
	}
	if cfg.Width < MinWidth || cfg.Width > MaxWidth || bits.OnesCount(uint(cfg.Width)) != 1 {
		return nil, fmt.Errorf("sketch: width %d is not a power of two from %d to %d", cfg.Width, MinWidth, MaxWidth)
	}
	if cfg.Precision < MinPrecision || cfg.Precision > MaxPrecision {
		return nil, fmt.Errorf("sketch: precision %d is not within %d to %d", cfg.Precision, MinPrecision, MaxPrecision)
	}
	if cfg.Seed == 0 {
		cfg.Seed = rand.Uint64()
	}
	s := &Sketch{width: uint32(cfg.Width), precision: uint32(cfg.Precision)}
	src := random.Source(cfg.Seed)
	for i := range s.key {
		s.key[i] = src.Uint64()
	}
	s.key[2] |= 1 // a multiplier loses nothing when it is odd
	cells := depth * cfg.Width
	const page = 64 << 10
	size := 16*cells + 4<<cfg.Precision
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: (size + page - 1) / page, FrameSize: page})
	if err != nil {
		return nil, fmt.Errorf("sketch: %w", err)
	}
	s.arena = arena
	s.cells = image.Over[cell](arena.Mem, cells)
	s.registers = image.Over[uint32](arena.Mem[16*cells:], 1<<cfg.Precision)
	return s, nil
}

// Close unmaps the sketch. No engine may use it any more.
func (s *Sketch) Close() error {
	s.cells, s.registers, s.width = nil, nil, 0
	return s.arena.Close()
}

// Size returns the bytes of memory that the sketch takes.
func (s *Sketch) Size() int { return len(s.arena.Mem) }

// Reset begins a new window. No batch may be in the engine, unless it works on the calling core.
func (s *Sketch) Reset() {
	clear(s.cells)
	clear(s.registers)
}

// hash returns the hash of a source: no two of one family have the same.
func (s *Sketch) hash(v4 bool, hi uint64) uint64 {
	key := s.key[1]
	if v4 {
		key = s.key[0]
	}
	return random.Mix((hi ^ key) * s.key[2])
}

// rows returns the index of a hash's counter in each row. Two halves of a hash, combined, do as well as
// four hashes (Kirsch, Mitzenmacher, "Less hashing, same performance", 2006).
func (s *Sketch) rows(h uint64) (at [depth]uint32) {
	a, b := uint32(h), uint32(h>>32)|1
	for i := range at {
		at[i] = uint32(i)*s.width + a&(s.width-1)
		a += b
	}
	return at
}

// register returns the register of a hash and its rank: one more than the number of zeros in front of
// the bits that did not choose the register.
func (s *Sketch) register(h uint64) (at, rank uint32) {
	rest := h<<s.precision | 1<<(s.precision-1) // a bit that ends the zeros
	return uint32(h >> (64 - s.precision)), uint32(bits.LeadingZeros64(rest)) + 1
}

// add counts a packet of n bytes from the source with hash h.
func (s *Sketch) add(h uint64, n uint32) {
	for _, i := range s.rows(h) {
		c := &s.cells[i]
		c.packets++
		c.bytes += uint64(n)
	}
	at, rank := s.register(h)
	s.registers[at] = max(s.registers[at], rank)
}

// Rate returns how many packets and bytes the source sent in this window: at least that many came, or
// rather fewer, never more (see Sketch).
func (s *Sketch) Rate(source netip.Addr) (packets, bytes uint64) {
	source = source.Unmap()
	hi, _ := tuple.Words(source)
	packets, bytes = ^uint64(0), ^uint64(0)
	for _, i := range s.rows(s.hash(source.Is4(), hi)) {
		packets, bytes = min(packets, s.cells[i].packets), min(bytes, s.cells[i].bytes)
	}
	return packets, bytes
}

// Total returns how many packets and bytes were counted in this window, exactly.
func (s *Sketch) Total() (packets, bytes uint64) {
	for _, c := range s.cells[:s.width] {
		packets += c.packets
		bytes += c.bytes
	}
	return packets, bytes
}

// Image is struct gk_sketches.
func (s *Sketch) Image() image.Image {
	if s == nil {
		s = new(Sketch)
	}
	var m image.Image
	m.Pointer(image.Bytes(s.cells))
	m.Pointer(image.Bytes(s.registers))
	for _, k := range s.key {
		m.U64(k)
	}
	m.U32(s.width)
	m.U32(s.precision)
	return m
}
