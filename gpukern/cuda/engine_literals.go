package cuda

import (
	"errors"
	"unsafe"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/packet"
)

// search is what an engine with OpLiterals has besides. A batch goes to the device once where that finds
// the texts by itself: the header pass and the search in one stream. Where the host has to list them
// (needsList) it goes twice: the list is made when the header pass is done, batch after batch, and the
// search is launched then.
type search struct {
	kernel  *Kernel
	limit   int
	streams *gpukern.Streams // nil where packets are texts of their own
	block   *Block
	next    *Buffer // a line for each flight: the word from which warps take texts
	places  []searchPlace
	teller  gpukern.Teller
	view    packet.Batch
	found   []literal.Match
}

// searchPlace is the memory of a flight's search, which the device maps.
type searchPlace struct {
	list         textList
	counts       []uint32
	matches      []literal.Match
	texts, tails Ptr
	countsAt, at Ptr
	next         Ptr
}

// searchTables is what a search needs of the tables.
type searchTables struct {
	set  Ptr // struct gk_literals; 0 where there is no set
	grid Grid
}

// newSearch takes the memory of all flights.
func newSearch(d *Device, cfg *Config) (*search, error) {
	s := &search{limit: gpukern.MatchLimit(cfg.MatchLimit)}
	if cfg.Ops&gpukern.OpFlow != 0 {
		s.streams = cfg.Streams
	}
	s.found = make([]literal.Match, 0, s.limit+1)
	var err error
	if s.kernel, err = d.Kernel("gk_literals"); err != nil {
		return nil, err
	}
	n := cfg.Copy
	sizes := [4]int{n * int(unsafe.Sizeof(literalText{})), n * tailSize, n * 4, n * (s.limit + 1) * 8}
	each := 0
	for i := range sizes {
		sizes[i] = (sizes[i] + 127) &^ 127
		each += sizes[i]
	}
	if s.block, err = d.AllocHost(cfg.Depth * each); err != nil {
		return nil, err
	}
	const line = 128
	if s.next, err = d.Alloc(cfg.Depth * line); err != nil {
		return nil, errors.Join(err, s.block.Close())
	}
	for i := range cfg.Depth {
		p := searchPlace{next: s.next.Ptr + Ptr(i*line)}
		mem, at := s.block.Mem[i*each:][:each], s.block.Ptr+Ptr(i*each)
		p.texts, p.list.Texts = at, unsafe.Slice((*literalText)(unsafe.Pointer(&mem[0])), n)
		mem, at = mem[sizes[0]:], at+Ptr(sizes[0])
		p.tails, p.list.Tails = at, mem[:n*tailSize]
		mem, at = mem[sizes[1]:], at+Ptr(sizes[1])
		p.countsAt, p.counts = at, unsafe.Slice((*uint32)(unsafe.Pointer(&mem[0])), n)
		mem, at = mem[sizes[2]:], at+Ptr(sizes[2])
		p.at, p.matches = at, unsafe.Slice((*literal.Match)(unsafe.Pointer(&mem[0])), n*(s.limit+1))
		s.places = append(s.places, p)
	}
	return s, nil
}

func (s *search) close() error { return errors.Join(s.next.Close(), s.block.Close()) }

// tables says where a set of literals lies and how its search is launched. mem is where struct gk_tables of
// t lies; the literals are its last part.
func (s *search) tables(mem Ptr, whole gpukern.Image, t gpukern.Tables, threads int) (searchTables, error) {
	if t.Literals == nil {
		return searchTables{}, nil
	}
	set := t.Literals.Image().Struct
	g := Grid{Threads: min(threads, s.kernel.Threads)}
	g.Shared = literalShared(set, s.limit, g.Threads)
	var err error
	if g.Blocks, err = s.kernel.Resident(g.Threads, g.Shared); err != nil {
		return searchTables{}, err
	}
	return searchTables{mem + Ptr(len(whole.Struct)-len(set)), g}, nil
}

// put puts the search of a flight on a stream. For the owner.
func (s *search) put(r *Recorder, j *bulkJob) error {
	if j.search.N == 0 || j.search.Set == 0 {
		return nil
	}
	if err := r.Fill(Ptr(j.search.Next), 0, 4); err != nil {
		return err
	}
	return Record(r, s.kernel, j.grid, &j.search)
}

// pass describes the search of a flight: of its list, or by its descriptors.
func (s *search) pass(e *Engine, i int, fl *flight) literalPass {
	p := &s.places[i]
	l := literalPass{
		Mem: uint64(e.region.Ptr), Size: uint64(len(e.region.Mem)), Set: uint64(fl.tables.search.set),
		Next: uint64(p.next), Counts: uint64(p.countsAt), Matches: uint64(p.at), Limit: uint32(s.limit),
	}
	if fl.listed {
		l.Texts, l.Tails, l.N = uint64(p.texts), uint64(p.tails), uint32(len(p.list.Texts))
	} else {
		l.Desc, l.N = uint64(fl.at), uint32(len(fl.d))
	}
	return l
}

// list lists the texts of a flight that the header pass is done with.
func (s *search) list(i int, fl *flight) {
	s.view = packet.Batch{Arena: fl.b.Arena, D: fl.d}
	s.places[i].list.fill(&s.view, s.streams)
	fl.listed = true
}

// tell writes what the device found into the batch.
func (s *search) tell(i int, fl *flight) {
	p := &s.places[i]
	switch {
	case fl.tables.search.set == 0:
		s.teller.Begin(fl.b, s.limit)
	case fl.listed:
		n := len(p.list.Texts)
		tellMatches(&s.teller, fl.b, p.list.Texts, p.counts[:n], p.matches, s.limit)
	default:
		tellMatches(&s.teller, fl.b, nil, p.counts[:len(fl.d)], p.matches, s.limit)
	}
}

// scan does on the CPU what a lost device was to find in a list. The streams know the batch already: it
// must not go into them again.
func (s *search) scan(i int, fl *flight) {
	p := &s.places[i]
	s.teller.Begin(fl.b, s.limit)
	for _, t := range p.list.Texts {
		if fl.tables.tables.Literals == nil {
			return
		}
		var tail []byte
		if t.Tail > 0 {
			slot := p.list.Tails[(t.Tail-1)*tailSize:][:tailSize]
			tail = slot[:slot[tailSize-1]]
		}
		from := int(t.Off) + int(t.From)
		text := fl.b.Arena.Mem[from : from+int(t.Len)]
		s.found = fl.tables.tables.Literals.Scan(tail, text, s.limit, s.found[:0])
		s.teller.Tell(int(t.Mark>>1), int(t.From), t.Mark&1 == 0, s.found)
	}
}
