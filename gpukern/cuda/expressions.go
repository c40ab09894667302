package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/millrace/millrace/gpukern/expression"
	"github.com/millrace/millrace/gpukern/image"
)

// Expressions search streams for regular expressions on a device. What a search carries from one piece of a stream to the
// next stays with the caller (expression.Stream) and travels with each call: a device that is lost takes
// nothing with it, and the CPU does the call again.
//
// Expressions belong to one goroutine at a time.
type Expressions struct {
	d       *Device
	set     *expression.Set
	table   *Table
	classes []expression.Class
	which   *Table // their automata
	filter  *Table // nil where no automaton is filtered
	stream  *Stream
	kernel  *Kernel
	marker  *Kernel
	lost    error // why the CPU searches

	bytes, streams int // room of a launch: for texts, and for streams
	threads        int
	in, out        *Block
	mem            *Buffer
	marks          *Buffer // as large as any launch so far needed it
	room           int     // hits

	jobs   []expressionJob // scratch
	byKey  map[*expression.Stream]int
	redone atomic.Uint64
	timing ExpressionTiming
}

// ExpressionTiming is the time of calls so far.
type ExpressionTiming struct {
	Fill    time.Duration // laying texts and states out
	Device  time.Duration // copies both ways and kernels
	Results time.Duration // taking states and matches over
}

// Timing returns the time of calls so far.
func (e *Expressions) Timing() ExpressionTiming { return e.timing }

// ExpressionsConfig is the room of a launch. Calls with more are made in several.
type ExpressionsConfig struct {
	Bytes   int // of texts, each rounded up to 16; 0 is 64 MiB
	Streams int // 0 is 32768
	Hits    int // 0 is 65536; more are searched for again, with more room
	Threads int // of a block of the kernel: at most 512, 0 is 256
}

// expressionJob is the pieces of one stream in a launch.
type expressionJob struct {
	stream *expression.Stream
	pieces []uint32 // of the call
}

// The structs of expressions.cu.
type (
	expressionParams struct {
		bytes, pieces, first, groups, which, filter, marks, rows, found, hits, count Ptr
		streams, groupCount, filtered, markWords, pieceCount, whichCount, room, _    uint32
	}
	expressionPiece struct{ off, len, ends, mark uint32 }
	expressionHit   struct{ piece, end, group, bit uint32 }
)

const (
	expressionThreads = 256

	mostExpressionThreads = 512

	markThreads       = 256
	markBlocks        = 4 // of a multiprocessor
	expressionClasses = 256
	expressionQuad    = 16 // texts lie on boundaries of so many bytes
)

// NewExpressions brings a set to the device. The caller closes it.
func (d *Device) NewExpressions(set *expression.Set, cfg ExpressionsConfig) (*Expressions, error) {
	e := &Expressions{
		d: d, set: set, bytes: cmp.Or(cfg.Bytes, 64<<20), streams: cmp.Or(cfg.Streams, 32<<10), room: cmp.Or(cfg.Hits, 64<<10),
		byKey: map[*expression.Stream]int{}, threads: cmp.Or(cfg.Threads, expressionThreads),
	}
	if set.Groups() == 0 {
		return e, nil
	}
	if e.bytes < expressionQuad || e.streams < 1 || e.room < 1 || e.threads < 1 || e.threads > mostExpressionThreads {
		return nil, fmt.Errorf("cuda: a search for expressions in %d bytes of %d streams, with %d matches, by %d threads", e.bytes, e.streams, e.room, e.threads)
	}
	if err := e.open(); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func (e *Expressions) open() (err error) {
	if e.kernel, err = e.d.Kernel("gk_expressions"); err != nil {
		return err
	}
	if e.table, err = e.d.Upload(e.set.Image()); err != nil {
		return err
	}
	e.classes = e.set.Classes()
	var which image.Image
	for _, c := range e.classes {
		which.Pointer(image.Bytes(c.Groups))
	}
	if e.which, err = e.d.Upload(which); err != nil {
		return err
	}
	if e.set.Filtered() > 0 {
		if e.marker, err = e.d.Kernel("gk_expression_marks"); err != nil {
			return err
		}
		if e.filter, err = e.d.Upload(e.set.FilterImage()); err != nil {
			return err
		}
	}
	if e.stream, err = e.d.NewStream(Patient); err != nil {
		return err
	}
	return e.allocate()
}

// allocate takes the memory of a launch, for e.room hits.
func (e *Expressions) allocate() (err error) {
	l := e.layout(e.pieces(), e.streams)
	if e.in, err = e.d.AllocHost(l.hits); err != nil {
		return err
	}
	if e.out, err = e.d.AllocHost(l.size - l.rows); err != nil {
		return err
	}
	e.mem, err = e.d.Alloc(l.size)
	return err
}

// expressionLayout is where things lie on the device, one behind the other: what is copied there, what is copied both
// ways, and what is copied back.
type expressionLayout struct{ pieces, first, rows, found, count, hits, size int }

// pieces is the most pieces of a launch.
func (e *Expressions) pieces() int { return max(e.bytes/64, e.streams) }

func (e *Expressions) layout(pieces, streams int) (l expressionLayout) {
	up := func(n int) int { return (n + 255) &^ 255 }
	groups := e.set.Groups()
	l.pieces = up(e.bytes)
	l.first = l.pieces + up(pieces*int(unsafe.Sizeof(expressionPiece{})))
	l.rows = l.first + up(4*(streams+1))
	l.found = l.rows + up(2*groups*streams)
	l.count = l.found + up(4*groups*streams)
	l.hits = l.count + 256
	l.size = l.hits + e.room*int(unsafe.Sizeof(expressionHit{}))
	return l
}

// Close frees what is on the device.
func (e *Expressions) Close() error {
	var errs []error
	for _, t := range []*Table{e.table, e.which, e.filter} {
		if t != nil {
			errs = append(errs, t.Close())
		}
	}
	if e.stream != nil {
		errs = append(errs, e.stream.Close())
	}
	if e.marks != nil {
		errs = append(errs, e.marks.Close())
	}
	errs = append(errs, e.release())
	e.table, e.which, e.filter, e.stream, e.marks = nil, nil, nil, nil, nil
	return errors.Join(errs...)
}

// release frees the memory of launches.
func (e *Expressions) release() error {
	var errs []error
	for _, b := range []*Block{e.in, e.out} {
		if b != nil {
			errs = append(errs, b.Close())
		}
	}
	if e.mem != nil {
		errs = append(errs, e.mem.Close())
	}
	e.in, e.out, e.mem = nil, nil, nil
	return errors.Join(errs...)
}

// Lost returns why the CPU searches; nil while the device does.
func (e *Expressions) Lost() error { return e.lost }

// Redone returns how many pieces were on the device when it was lost, and were searched again on the CPU.
func (e *Expressions) Redone() uint64 { return e.redone.Load() }

// ScanPieces is expression.Set.ScanPieces, on the device. Once that is lost the CPU does it.
func (e *Expressions) ScanPieces(pieces []expression.Piece, hits []expression.Hit) []expression.Hit {
	first := len(hits)
	for at := 0; at < len(pieces) && e.set.Groups() > 0; {
		n := e.take(pieces[at:])
		if n == 0 || e.lost != nil { // a piece larger than a launch, or no device
			n = max(n, 1)
			hits = e.onCPU(pieces, at, n, hits)
		} else if found, err := e.launch(pieces[at:at+n], hits); err == nil {
			for i := range found[len(hits):] {
				found[len(hits)+i].Text += uint32(at)
			}
			hits = found
		} else {
			e.lost = err
			e.redone.Add(uint64(n))
			hits = e.onCPU(pieces, at, n, hits)
		}
		at += n
	}
	expression.SortHits(hits[first:], len(pieces))
	return hits
}

func (e *Expressions) onCPU(pieces []expression.Piece, at, n int, hits []expression.Hit) []expression.Hit {
	first := len(hits)
	hits = e.set.ScanPieces(pieces[at:at+n], hits)
	for i := range hits[first:] {
		hits[first+i].Text += uint32(at)
	}
	return hits
}

// take returns how many pieces fit a launch, and sorts them by streams.
func (e *Expressions) take(pieces []expression.Piece) int {
	clear(e.byKey)
	e.jobs = e.jobs[:0]
	used := 0
	for i := range pieces {
		p := &pieces[i]
		size := (len(p.Bytes) + expressionQuad - 1) &^ (expressionQuad - 1)
		job, known := e.byKey[p.Stream]
		if used+size > e.bytes || i == e.pieces() || !known && len(e.jobs) == e.streams {
			return i
		}
		used += size
		if !known {
			job = len(e.jobs)
			e.byKey[p.Stream] = job
			if cap(e.jobs) > job {
				e.jobs = e.jobs[:job+1]
				e.jobs[job] = expressionJob{p.Stream, e.jobs[job].pieces[:0]}
			} else {
				e.jobs = append(e.jobs, expressionJob{stream: p.Stream})
			}
		}
		e.jobs[job].pieces = append(e.jobs[job].pieces, uint32(i))
	}
	return len(pieces)
}

// launch searches pieces that fit, and takes over the streams' states.
func (e *Expressions) launch(pieces []expression.Piece, hits []expression.Hit) ([]expression.Hit, error) {
	for {
		began := time.Now()
		l := e.layout(len(pieces), len(e.jobs))
		f := e.fill(pieces, l)
		if err := e.grow(f.marks); err != nil {
			return hits, err
		}
		began = e.took(&e.timing.Fill, began)
		count, err := e.run(l, f)
		if err != nil {
			return hits, err
		}
		began = e.took(&e.timing.Device, began)
		if count <= e.room { // else the states are still those from before: once more, with room
			hits = e.results(l, count, f.order, hits)
			e.took(&e.timing.Results, began)
			return hits, nil
		}
		if err := e.release(); err != nil {
			return hits, err
		}
		e.room = count + count/4
		if err := e.allocate(); err != nil {
			return hits, err
		}
	}
}

// took adds what has passed since began, and returns the time.
func (e *Expressions) took(to *time.Duration, began time.Time) time.Time {
	now := time.Now()
	*to += now.Sub(began)
	return now
}

// grow takes memory for the marks of a launch, of so many words for each filtered automaton.
func (e *Expressions) grow(words int) (err error) {
	size := 4 * words * e.set.Filtered()
	if size == 0 || e.marks != nil && e.marks.Size >= size {
		return nil
	}
	if e.marks != nil {
		err = e.marks.Close()
	}
	if err == nil {
		e.marks, err = e.d.Alloc(size + size/4)
	}
	return err
}

// filled holds the sizes and the order of a launch whose memory has been filled.
type filled struct {
	order []uint32 // the pieces of the call, in the order of the launch
	bytes int      // of the texts
	marks int      // words of an automaton
}

// fill lays texts, pieces and states out.
func (e *Expressions) fill(pieces []expression.Piece, l expressionLayout) (f filled) {
	groups := e.set.Groups()
	list := image.Over[expressionPiece](e.in.Mem[l.pieces:], len(pieces))
	first := image.Over[uint32](e.in.Mem[l.first:], len(e.jobs)+1)
	rows := image.Over[uint16](e.in.Mem[l.rows:], groups*len(e.jobs))
	found := image.Over[uint32](e.in.Mem[l.found:], groups*len(e.jobs))
	image.Over[uint32](e.in.Mem[l.count:], 1)[0] = 0
	f.order = make([]uint32, 0, len(pieces))
	for j := range e.jobs {
		job := &e.jobs[j]
		first[j] = uint32(len(f.order))
		for _, i := range job.pieces {
			p := &pieces[i]
			at := &list[len(f.order)]
			*at = expressionPiece{off: uint32(f.bytes), len: uint32(len(p.Bytes)), mark: uint32(f.marks)}
			if p.Ends {
				at.ends = 1
			}
			f.bytes += (len(p.Bytes) + expressionQuad - 1) &^ (expressionQuad - 1)
			f.marks += expression.MarkWords(len(p.Bytes))
			f.order = append(f.order, i)
		}
		copy(rows[j*groups:], job.stream.Rows)
		copy(found[j*groups:], job.stream.Found)
	}
	first[len(e.jobs)] = uint32(len(f.order))
	e.copyTexts(pieces, list, f.order)
	return f
}

// copyCores bounds the cores that copy texts: one alone is slower than the bus.
const copyCores = 4

// copyTexts copies the texts of a launch to where its pieces say.
func (e *Expressions) copyTexts(pieces []expression.Piece, list []expressionPiece, order []uint32) {
	share := max(64, (len(order)+copyCores-1)/copyCores)
	var work sync.WaitGroup
	for at := 0; at < len(order); at += share {
		work.Go(func() {
			for k := at; k < min(len(order), at+share); k++ {
				copy(e.in.Mem[list[k].off:], pieces[order[k]].Bytes)
			}
		})
	}
	work.Wait()
}

// run copies, launches and copies back, and returns how many hits there are.
func (e *Expressions) run(l expressionLayout, f filled) (int, error) {
	p := expressionParams{
		bytes: e.mem.Ptr, pieces: e.mem.Ptr + Ptr(l.pieces), first: e.mem.Ptr + Ptr(l.first), groups: e.table.Ptr,
		rows: e.mem.Ptr + Ptr(l.rows), found: e.mem.Ptr + Ptr(l.found), hits: e.mem.Ptr + Ptr(l.hits), count: e.mem.Ptr + Ptr(l.count),
		streams: uint32(len(e.jobs)), groupCount: uint32(e.set.Groups()), filtered: uint32(e.set.Filtered()), markWords: uint32(f.marks),
		pieceCount: uint32(len(f.order)), room: uint32(e.room),
	}
	if p.filtered > 0 {
		p.filter, p.marks = e.filter.Ptr, e.marks.Ptr
	}
	err := e.d.do(func() error {
		if f.bytes > 0 {
			if err := e.stream.copyIn(e.mem.Ptr, e.in.Mem[:f.bytes]); err != nil {
				return err
			}
		}
		if err := e.stream.copyIn(e.mem.Ptr+Ptr(l.pieces), e.in.Mem[l.pieces:l.hits]); err != nil {
			return err
		}
		if err := e.launches(&p); err != nil {
			return err
		}
		return e.stream.copyOut(e.out.Mem[:l.hits-l.rows], p.rows)
	})
	if err == nil {
		err = e.stream.Wait()
	}
	if err != nil {
		return 0, err
	}
	count := int(image.Over[uint32](e.out.Mem[l.count-l.rows:], 1)[0])
	if n := min(count, e.room) * int(unsafe.Sizeof(expressionHit{})); n > 0 {
		at := l.hits - l.rows
		if err := e.stream.CopyOut(e.out, at, p.hits, n); err != nil {
			return 0, err
		}
		err = e.stream.Wait()
	}
	return count, err
}

// launches launches the kernels. For the owner.
func (e *Expressions) launches(p *expressionParams) error {
	if words := int(p.filtered * p.markWords); words > 0 {
		if err := e.d.lib.fill(p.marks, 0, 4*words, e.stream.id); err != nil {
			return err
		}
		warps := markThreads / 32
		g := Grid{
			Blocks:  min((int(p.pieceCount)+warps-1)/warps, markBlocks*e.d.info.SMs),
			Threads: markThreads, Shared: e.set.FilterBytes(),
		}
		if err := e.stream.launch(e.marker, g, bytesOf(p)); err != nil {
			return err
		}
	}
	for i, c := range e.classes {
		p.which, p.whichCount = e.which.Part(i), uint32(len(c.Groups))
		if err := e.stream.launch(e.kernel, Grid{
			Blocks:  len(c.Groups) * ((int(p.streams) + e.threads - 1) / e.threads),
			Threads: e.threads, Shared: expressionClasses + c.Bytes,
		}, bytesOf(p)); err != nil {
			return err
		}
	}
	return nil
}

// results takes states and hits over.
func (e *Expressions) results(l expressionLayout, count int, order []uint32, hits []expression.Hit) []expression.Hit {
	groups := e.set.Groups()
	rows := image.Over[uint16](e.out.Mem, groups*len(e.jobs))
	found := image.Over[uint32](e.out.Mem[l.found-l.rows:], groups*len(e.jobs))
	for j := range e.jobs {
		s := e.jobs[j].stream
		copy(s.Rows, rows[j*groups:])
		copy(s.Found, found[j*groups:])
	}
	if count == 0 {
		return hits
	}
	for _, h := range image.Over[expressionHit](e.out.Mem[l.hits-l.rows:], count) {
		hits = append(hits, expression.Hit{Text: order[h.piece], End: h.end, Rule: e.set.Rule(h.group, h.bit)})
	}
	return hits
}
