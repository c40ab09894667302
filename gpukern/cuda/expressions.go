package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/millrace/millrace/gpukern/expression"
)

// Expressions search streams for regular expressions on a device. What a search carries from one piece of a stream to the
// next stays with the caller (expression.Stream) and travels with each call: a device that is lost takes
// nothing with it, and the CPU does the call again.
//
// Expressions belong to one goroutine at a time.
type Expressions struct {
	d      *Device
	set    *expression.Set
	table  *Table
	stream *Stream
	kernel *Kernel
	lost   error // why the CPU searches

	bytes, streams int // room of a launch: for texts, and for streams
	in, out        *Block
	mem            *Buffer
	room           int // hits

	jobs   []expressionJob // scratch
	byKey  map[*expression.Stream]int
	redone atomic.Uint64
}

// ExpressionsConfig is the room of a launch. Calls with more are made in several.
type ExpressionsConfig struct {
	Bytes   int // of texts, each rounded up to 16; 0 is 64 MiB
	Streams int // 0 is 32768
	Hits    int // 0 is 65536; more are searched for again, with more room
}

// expressionJob is the pieces of one stream in a launch.
type expressionJob struct {
	stream *expression.Stream
	pieces []uint32 // of the call
}

// The structs of expressions.cu.
type (
	expressionParams struct {
		bytes, pieces, first, groups, rows, found, hits, count Ptr
		streams, groupCount, room, shared                      uint32
	}
	expressionPiece struct{ off, len, ends, spare uint32 }
	expressionHit   struct{ piece, end, group, bit uint32 }
)

const (
	expressionThreads = 128
	expressionClasses = 256
	expressionQuad    = 16 // texts lie on boundaries of so many bytes
)

// NewExpressions brings a set to the device. The caller closes it.
func (d *Device) NewExpressions(set *expression.Set, cfg ExpressionsConfig) (*Expressions, error) {
	e := &Expressions{
		d: d, set: set, bytes: cmp.Or(cfg.Bytes, 64<<20), streams: cmp.Or(cfg.Streams, 32<<10), room: cmp.Or(cfg.Hits, 64<<10),
		byKey: map[*expression.Stream]int{},
	}
	if set.Groups() == 0 {
		return e, nil
	}
	if e.bytes < expressionQuad || e.streams < 1 || e.room < 1 {
		return nil, fmt.Errorf("cuda: a search for expressions in %d bytes of %d streams, with %d matches", e.bytes, e.streams, e.room)
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
	if e.table != nil {
		errs = append(errs, e.table.Close())
	}
	if e.stream != nil {
		errs = append(errs, e.stream.Close())
	}
	errs = append(errs, e.release())
	e.table, e.stream = nil, nil
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
	slices.SortFunc(hits[first:], func(a, b expression.Hit) int {
		return cmp.Or(cmp.Compare(a.Text, b.Text), cmp.Compare(a.End, b.End), cmp.Compare(a.Rule, b.Rule))
	})
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
		l := e.layout(len(pieces), len(e.jobs))
		order, used := e.fill(pieces, l)
		count, err := e.run(l, used)
		if err != nil {
			return hits, err
		}
		if count <= e.room { // else the states are still those from before: once more, with room
			return e.results(l, count, order, hits), nil
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

// fill lays texts, pieces and states out, and returns the pieces of the call in the order of the launch, and the bytes of
// the texts.
func (e *Expressions) fill(pieces []expression.Piece, l expressionLayout) (order []uint32, used int) {
	groups := e.set.Groups()
	list := unsafe.Slice((*expressionPiece)(unsafe.Pointer(&e.in.Mem[l.pieces])), len(pieces))
	first := unsafe.Slice((*uint32)(unsafe.Pointer(&e.in.Mem[l.first])), len(e.jobs)+1)
	rows := unsafe.Slice((*uint16)(unsafe.Pointer(&e.in.Mem[l.rows])), groups*len(e.jobs))
	found := unsafe.Slice((*uint32)(unsafe.Pointer(&e.in.Mem[l.found])), groups*len(e.jobs))
	*(*uint32)(unsafe.Pointer(&e.in.Mem[l.count])) = 0
	order = make([]uint32, 0, len(pieces))
	for j := range e.jobs {
		job := &e.jobs[j]
		first[j] = uint32(len(order))
		for _, i := range job.pieces {
			p := &pieces[i]
			at := &list[len(order)]
			*at = expressionPiece{off: uint32(used), len: uint32(len(p.Bytes))}
			if p.Ends {
				at.ends = 1
			}
			copy(e.in.Mem[used:], p.Bytes)
			used += (len(p.Bytes) + expressionQuad - 1) &^ (expressionQuad - 1)
			order = append(order, i)
		}
		for g := range groups {
			rows[g*len(e.jobs)+j], found[g*len(e.jobs)+j] = job.stream.Rows[g], job.stream.Found[g]
		}
	}
	first[len(e.jobs)] = uint32(len(order))
	return order, used
}

// run copies, launches and copies back, and returns how many hits there are.
func (e *Expressions) run(l expressionLayout, used int) (int, error) {
	p := expressionParams{
		bytes: e.mem.Ptr, pieces: e.mem.Ptr + Ptr(l.pieces), first: e.mem.Ptr + Ptr(l.first), groups: e.table.Ptr,
		rows: e.mem.Ptr + Ptr(l.rows), found: e.mem.Ptr + Ptr(l.found), hits: e.mem.Ptr + Ptr(l.hits), count: e.mem.Ptr + Ptr(l.count),
		streams: uint32(len(e.jobs)), groupCount: uint32(e.set.Groups()), room: uint32(e.room), shared: uint32(e.set.Tables()),
	}
	g := Grid{
		Blocks:  e.set.Groups() * ((len(e.jobs) + expressionThreads - 1) / expressionThreads),
		Threads: expressionThreads, Shared: expressionClasses + 2*int(p.shared),
	}
	err := e.d.do(func() error {
		if used > 0 {
			if err := e.stream.copyIn(e.mem.Ptr, e.in.Mem[:used]); err != nil {
				return err
			}
		}
		if err := e.stream.copyIn(e.mem.Ptr+Ptr(l.pieces), e.in.Mem[l.pieces:l.hits]); err != nil {
			return err
		}
		if err := e.stream.launch(e.kernel, g, bytesOf(&p)); err != nil {
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
	count := int(*(*uint32)(unsafe.Pointer(&e.out.Mem[l.count-l.rows])))
	if n := min(count, e.room) * int(unsafe.Sizeof(expressionHit{})); n > 0 {
		at := l.hits - l.rows
		if err := e.stream.CopyOut(e.out, at, p.hits, n); err != nil {
			return 0, err
		}
		err = e.stream.Wait()
	}
	return count, err
}

// results takes states and hits over.
func (e *Expressions) results(l expressionLayout, count int, order []uint32, hits []expression.Hit) []expression.Hit {
	groups := e.set.Groups()
	rows := unsafe.Slice((*uint16)(unsafe.Pointer(&e.out.Mem[0])), groups*len(e.jobs))
	found := unsafe.Slice((*uint32)(unsafe.Pointer(&e.out.Mem[l.found-l.rows])), groups*len(e.jobs))
	for j := range e.jobs {
		s := e.jobs[j].stream
		for g := range groups {
			s.Rows[g], s.Found[g] = rows[g*len(e.jobs)+j], found[g*len(e.jobs)+j]
		}
	}
	for i := range count {
		h := (*expressionHit)(unsafe.Pointer(&e.out.Mem[l.hits-l.rows+i*int(unsafe.Sizeof(expressionHit{}))]))
		hits = append(hits, expression.Hit{Text: order[h.piece], End: h.end, Rule: e.set.Rule(h.group, h.bit)})
	}
	return hits
}
