package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/image"
	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/packet"
)

// LiteralSet is a set of literals where the device has it: the last struct in struct gk_tables.
type LiteralSet struct {
	Ptr    Ptr // struct gk_literals
	Filter int // bytes of the filter, which each block copies to shared memory
}

// literalSetSize is the size of struct gk_literals, and where in it bits and classes are.
const (
	literalSetSize  = 40
	literalBitsAt   = 24
	literalClassAt  = 36
	literalStage    = 64 + 512 + 64 + 16 // GK_LITERAL_WARP: what a warp has besides its list
	literalQueue    = 2 * 64
	literalQuadSize = 16
)

// LiteralSetOf returns the set of tables whose image m lies at ptr.
func LiteralSetOf(m image.Image, ptr Ptr) LiteralSet {
	at := len(m.Struct) - literalSetSize
	s := LiteralSet{Ptr: ptr + Ptr(at)}
	if binary.LittleEndian.Uint32(m.Struct[at+literalClassAt:]) != 0 {
		s.Filter = 4 << binary.LittleEndian.Uint32(m.Struct[at+literalBitsAt:])
	}
	return s
}

// shared returns the bytes of shared memory of a block of gk_literals.
func (s LiteralSet) shared(limit, threads int) int {
	list := ((limit+1)*8 + literalQuadSize - 1) &^ (literalQuadSize - 1)
	return s.Filter + threads/32*(literalStage+literalQueue+list)
}

// ErrNoRoom reports that a batch does not fit a Search.
var ErrNoRoom = errors.New("batch is larger than the device was prepared for")

// Search holds what a search of one batch for literals needs besides the batch: the texts and counters on the
// device, and memory that both sides map for the list of texts that the host makes, and for the results.
//
//	header pass with Texts ... Put ... Pieces ... Tell
//	header pass ... List ... Put ... Tell
//
// The second is for streams, and for batches that have turned out to have packets in Pieces. List is called
// when the header pass is done; Put puts the search on the stream of the header pass; Pieces and Tell are
// called when it is done. A Search is one batch's at a time, and of no use once the device is lost.
type Search struct {
	d       *Device
	most    int // descriptors
	limit   int
	threads int // of a block

	mapped   *Block
	counters *Buffer
	texts    *Buffer // that the header pass lists, and behind them their lines
	result   *literalResult
	found    matchLists
	list     windowList
	out      gpukern.MatchWriter
	listed   bool

	shape  Grid // of the last launch, for a grid that fills the device
	filter int  // of the set that it was for
}

// NewSearch prepares for batches of at most most descriptors, of whose packets at most limit matches are
// reported, from 1 to gpukern.MaxMatchLimit. The caller closes it.
func (d *Device) NewSearch(most, limit int) (*Search, error) {
	if most < 1 || limit < 1 || limit > gpukern.MaxMatchLimit {
		return nil, fmt.Errorf("cuda: a search of %d descriptors for %d matches", most, limit)
	}
	s := &Search{d: d, most: most, limit: limit, threads: literalThreads}
	err := d.do(s.open)
	if err == nil {
		err = d.stage.upload(d, s.counters.Ptr, make([]byte, literalCounters))
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Where things lie in Search.mapped: the result and what was found, which the device writes, and the list,
// which it reads.
const foundAt = 128

func (s *Search) carryOverAt() int { return (foundAt + 8*foundWords(s.most, s.limit) + 127) &^ 127 }
func (s *Search) windowsAt() int   { return s.carryOverAt() + s.most*carryOverSize }

// literalTextSize is the size of struct gk_text.
const literalTextSize = int(unsafe.Sizeof(literalWindow{}))

// open takes the memory. For the owner.
func (s *Search) open() (err error) {
	if s.counters, err = s.d.alloc(literalCounters); err != nil {
		return err
	}
	if s.texts, err = s.d.alloc(s.most * (textLine + literalTextSize)); err != nil {
		return err
	}
	if s.mapped, err = s.d.allocHost(s.windowsAt() + s.most*literalTextSize); err != nil {
		return err
	}
	at := func(i int) unsafe.Pointer { return unsafe.Pointer(&s.mapped.Mem[i]) }
	s.result = (*literalResult)(at(0))
	s.found = newMatchLists(s.most, unsafe.Slice((*literal.Occurrence)(at(foundAt)), foundWords(s.most, s.limit)))
	s.list.Tails = s.mapped.Mem[s.carryOverAt():s.windowsAt()]
	s.list.Texts = unsafe.Slice((*literalWindow)(at(s.windowsAt())), s.most)[:0]
	return nil
}

// Close returns the memory, when no search runs. It may wait for kernels, as Buffer.Close does.
func (s *Search) Close() error {
	var errs []error
	if s.mapped != nil {
		errs = append(errs, s.mapped.Close())
	}
	for _, b := range []*Buffer{s.counters, s.texts} {
		if b != nil {
			errs = append(errs, b.Close())
		}
	}
	return errors.Join(errs...)
}

// List lists the texts of b, at most as many descriptors as s is for, for the next Put. The header pass over
// b is done; streams, which may be nil, go on from batch to batch, so that lists are made in the order of
// submission.
func (s *Search) List(b *packet.Batch, streams *gpukern.Streams) {
	s.list.fill(b, streams)
	s.listed = true
}

// Put puts the search of a batch on the stream that r records: of the texts that were listed since the last
// Tell, or of those that a header pass with Texts has found.
func (s *Search) Put(r *Recorder, w Work, set LiteralSet) error {
	k, err := s.d.Kernel("gk_literals")
	if err != nil {
		return err
	}
	p := literalPass{
		Mem: uint64(w.Mem), Size: w.Size, Texts: uint64(s.texts.Ptr), Lines: uint64(s.linesPtr()), Set: uint64(set.Ptr), Counters: uint64(s.counters.Ptr),
		Result: s.mappedAt(0), Found: s.mappedAt(foundAt), N: uint32(w.N), Limit: uint32(s.limit),
	}
	if s.listed {
		p.Lines = 0
		p.Texts, p.Tails, p.N = s.mappedAt(s.windowsAt()), s.mappedAt(s.carryOverAt()), uint32(len(s.list.Texts))
	}
	if err := s.fits(int(p.N)); err != nil {
		return err
	}
	g, err := s.grid(k, set, int(p.N))
	if err != nil || p.N == 0 {
		return err
	}
	return Record(r, k, g, &p)
}

// fits refuses batches that are too large.
func (s *Search) fits(n int) error {
	if n > s.most {
		return fmt.Errorf("%w: %d packets, the search was prepared for %d", ErrNoRoom, n, s.most)
	}
	return nil
}

// linesPtr is where the lines of the texts lie.
func (s *Search) linesPtr() Ptr { return s.texts.Ptr + Ptr(s.most*literalTextSize) }

func (s *Search) mappedAt(i int) uint64 { return uint64(s.mapped.Ptr) + uint64(i) }

// grid returns the shape of a launch for n texts: as many blocks as run at once, or as have something to
// do. For the owner.
func (s *Search) grid(k *Kernel, set LiteralSet, n int) (Grid, error) {
	if s.shape.Blocks == 0 || s.filter != set.Filter {
		g := Grid{Threads: s.threads, Shared: set.shared(s.limit, s.threads)}
		if err := k.allow(g.Shared); err != nil {
			return g, err
		}
		each, err := s.d.lib.occupancy(k.fn, g.Threads, g.Shared)
		if err != nil {
			return g, err
		}
		g.Blocks = max(1, each*s.d.info.SMs)
		s.shape, s.filter = g, set.Filter
	}
	g := s.shape
	warps := g.Threads / 32
	g.Blocks = min(g.Blocks, (n+warps-1)/warps)
	return g, nil
}

// Pieces reports whether the batch that was searched has packets in pieces, so that not all was found: it
// wants a List, and another Put.
func (s *Search) Pieces() bool { return !s.listed && s.result.Pieces != 0 }

// WriteMatches writes what the search for set found into b.Matches.
func (s *Search) WriteMatches(b *packet.Batch, set *literal.Set) {
	var list []literalWindow
	texts := len(b.D)
	if s.listed {
		list = s.list.Texts
		texts = len(list)
	}
	words := 0
	if texts > 0 { // else nothing was launched
		words = int(s.result.Words)
	}
	s.found.write(&s.out, b, list, words, s.limit, set)
	s.listed = false
}
