package collective

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/collective/link"
	"github.com/millrace/millrace/collective/schedule"
)

// part is a range of elements of a memory.
type part struct {
	mem    Memory
	off, n int
}

// run executes a schedule for this rank.
type run struct {
	c        *Comm
	act      *activity
	sched    *schedule.Schedule
	block    func(b int) part // where a block is
	op       Op
	sequence uint32
	sum      uint32 // fingerprint

	sent    map[int]uint32 // messages to a peer, and from one
	got     map[int]uint32
	pending link.Pending
	parts   [][]byte
	to      sink
}

// execute runs all steps.
func (r *run) execute() error {
	r.sent, r.got = make(map[int]uint32, 4), make(map[int]uint32, 4)
	for i := range r.sched.Steps {
		if err := r.step(&r.sched.Steps[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) step(st *schedule.Step) error {
	for i := range st.Send {
		r.send(st, &st.Send[i])
	}
	for i := range st.Recv {
		if err := r.recv(&st.Recv[i]); err != nil {
			return err
		}
	}
	if err := r.pending.Wait(); err != nil {
		return r.c.broken(r.peerOf(st), err)
	}
	return nil
}

// peerOf returns a peer of the sends of a step, whose link may have failed.
func (r *run) peerOf(st *schedule.Step) int {
	if len(st.Send) == 1 {
		return st.Send[0].Peer
	}
	return -1
}

// header returns the header of the next message from this rank to a peer, or from it.
func (r *run) header(count map[int]uint32, peer, total int) link.Header {
	step := count[peer]
	count[peer] = step + 1
	return link.Header{Key: link.Key{Context: r.c.context, Sequence: r.sequence, Step: step}, Fingerprint: r.sum, Total: uint64(total)}
}

// most is the size up to which links copy what they cannot write, so that the step may change it.
const most = 64 << 10

// gatherParts returns the bytes of a message and their number.
func (r *run) gatherParts(m *schedule.Message) (parts [][]byte, total int) {
	parts = r.parts[:0]
	for p := range r.ranges(m) {
		size := p.mem.WireSize()
		n := p.n * size
		total += n
		if h := p.mem.Host(); h != nil {
			parts = append(parts, h[p.off*size:][:n])
			continue
		}
		b := make([]byte, n)
		p.mem.Load(b, p.off)
		parts = append(parts, b)
	}
	r.parts = parts[:0]
	return parts, total
}

func (r *run) send(st *schedule.Step, m *schedule.Message) {
	parts, total := r.gatherParts(m)
	if total > most {
		parts = slices.Clone(parts) // the link keeps it
		if overlaps(m.Spans, st.Recv) {
			for i, b := range parts {
				parts[i] = slices.Clone(b)
			}
		}
	}
	h := r.header(r.sent, m.Peer, total)
	r.c.link(m.Peer).Send(&h, parts, &r.pending)
}

// overlaps reports whether one of the messages has blocks of the spans.
func overlaps(spans []schedule.Span, messages []schedule.Message) bool {
	for _, a := range spans {
		for i := range messages {
			for _, b := range messages[i].Spans {
				if a.Lo < b.Hi && b.Lo < a.Hi {
					return true
				}
			}
		}
	}
	return false
}

// ranges yields the memory of a message's blocks, joined where they touch.
func (r *run) ranges(m *schedule.Message) func(yield func(part) bool) {
	return func(yield func(part) bool) {
		var last part
		for _, s := range m.Spans {
			for b := s.Lo; b < s.Hi; b++ {
				p := r.block(b)
				switch {
				case p.n == 0:
				case last.n > 0 && last.mem == p.mem && last.off+last.n == p.off:
					last.n += p.n
				default:
					if last.n > 0 && !yield(last) {
						return
					}
					last = p
				}
			}
		}
		if last.n > 0 {
			yield(last)
		}
	}
}

func (r *run) recv(m *schedule.Message) error {
	s := &r.to
	s.reset(r.act, r.op, m.Reduce)
	for p := range r.ranges(m) {
		s.add(p)
	}
	h := r.header(r.got, m.Peer, s.total)
	r.act.waits.Store(int32(r.c.members[m.Peer]))
	if err := r.c.link(m.Peer).Recv(&h, s); err != nil {
		return r.c.broken(m.Peer, err)
	}
	r.act.waits.Store(-1)
	r.act.progress.Add(1)
	return nil
}

// sink puts a message into memory.
type sink struct {
	act    *activity
	op     Op
	reduce bool
	parts  []part
	starts []int // of the parts, in bytes
	total  int
}

func (s *sink) reset(act *activity, op Op, reduce bool) {
	*s = sink{act: act, op: op, reduce: reduce, parts: s.parts[:0], starts: s.starts[:0]}
}

func (s *sink) add(p part) {
	s.parts, s.starts = append(s.parts, p), append(s.starts, s.total)
	s.total += p.n * p.mem.WireSize()
}

// find returns the part of byte off of the message.
func (s *sink) find(off int) int {
	i, found := slices.BinarySearch(s.starts, off)
	if !found {
		i--
	}
	return i
}

// Direct implements link.Sink.
func (s *sink) Direct(off, n int) []byte {
	s.act.progress.Add(1)
	if s.reduce {
		return nil
	}
	i := s.find(off)
	p := &s.parts[i]
	h := p.mem.Host()
	if h == nil {
		return nil
	}
	size := p.mem.WireSize()
	from := p.off*size + off - s.starts[i]
	return h[from:min(from+n, (p.off+p.n)*size)]
}

// Store implements link.Sink. Pieces of messages end between elements: links cut at multiples of 64 bytes.
func (s *sink) Store(off int, b []byte) {
	s.act.progress.Add(1)
	for len(b) > 0 {
		i := s.find(off)
		p := &s.parts[i]
		size := p.mem.WireSize()
		skip := off - s.starts[i]
		n := min(len(b), p.n*size-skip)
		if at := p.off + skip/size; s.reduce {
			p.mem.Reduce(b[:n], at, s.op)
		} else {
			p.mem.Store(b[:n], at)
		}
		b, off = b[n:], off+n
	}
}

// link returns the link to a rank of the communicator.
func (c *Comm) link(rank int) link.Link { return c.w.links[c.members[rank]] }

// broken returns the error of an operation whose link to a rank has failed; -1 is unknown.
func (c *Comm) broken(rank int, err error) error {
	if failure := c.w.failureNow(); failure != nil {
		return failure
	}
	s := suspectFrame{Kind: Died, Rank: -1, Context: c.context, Members: c.members}
	s.Reason = fmt.Sprintf("the connection to it ended: %v", err)
	if rank >= 0 {
		s.Rank = c.members[rank]
	}
	classify(&s, err)
	return c.w.suspect(s)
}
