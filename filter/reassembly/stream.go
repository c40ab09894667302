// Package reassembly puts the segments of one direction of a TCP connection in order, for inspection (RFC 9293
// 3.10.7.4): it delivers every byte once, holds one copy of what it has delivered last and of what is out of
// order, and compares what overlaps with that copy.
//
// Hosts disagree about which bytes of overlapping segments they keep, so that an attacker can show one text to an
// inspector and another to a host. A Stream holds the bytes that came first and reports bytes that differ: there
// is no right guess, and an honest sender never sends such.
//
// Memory is bounded per stream and, by a Budget, for all. The package is pure; a Stream belongs to one caller.
package reassembly

import (
	"bytes"
	"cmp"
	"slices"
)

// Defaults of Config.
const (
	DefaultKeep  = 32 << 10
	DefaultQueue = 256 << 10
)

// Config bounds a Stream. The zero value stands for the defaults.
type Config struct {
	Keep   int     // delivered bytes that stay for the search of patterns and for comparison
	Queue  int     // bytes out of order; where there are more, the gap is given up
	Budget *Budget // nil is no bound for all streams together

	// Hold is for a caller that can keep a segment from its receiver: at a bound a segment is not taken, and nothing is given
	// up. Add reports Full then, and the caller drops the segment, which its sender sends again.
	Hold bool
}

// Event is a set of findings of a Stream, as bits.
type Event uint8

// The events.
const (
	Conflict Event = 1 << iota // bytes differ from those that came first
	Gap                        // bytes were given up: those behind them are delivered
	Full                       // the budget has no space: bytes were dropped
)

// Stream is one direction of a connection. The zero value waits for Start.
type Stream struct {
	cfg     *Config
	started bool
	first   uint32 // sequence number of the first byte
	next    uint64 // offset of the next byte in order
	window  []byte // the last delivered bytes, up to next
	queue   []segment
	queued  int
	counted int    // bytes of the budget that it has: the window and the queue, as they are allocated
	acked   uint64 // the receiver has acknowledged all before it
	skipped uint64 // 1 + the offset at which Skip has left out the last byte; 0 for none
}

// maxPieces bounds the pieces that wait out of order, and so what a segment costs that goes between them: bytes alone would
// allow a quarter of a million pieces of one byte.
const maxPieces = 1024

// What is allocated for a place in the queue, and for a piece however short it is.
const (
	placeSize  = 32 // of a segment, on 64 bits
	leastPiece = 16
)

// segment is bytes out of order. The queue is sorted, its segments do not overlap, and each begins behind next: where the first
// begins at next it is delivered in the same call.
type segment struct {
	at   uint64
	data []byte
}

func (s segment) end() uint64 { return s.at + uint64(len(s.data)) }

// size returns how many bytes are allocated for the data.
func (s segment) size() int { return max(cap(s.data), leastPiece) }

// Start selects which sequence number the first byte has: that behind the SYN.
func (s *Stream) Start(cfg *Config, first uint32) {
	s.Close()
	*s = Stream{cfg: cfg, started: true, first: first}
}

// Started reports whether Start was called.
func (s *Stream) Started() bool { return s.started }

// Next returns the offset in the stream of the next byte in order: how many there have been.
func (s *Stream) Next() uint64 { return s.next }

// Expects reports whether a sequence number is that of the next byte in order.
func (s *Stream) Expects(seq uint32) bool { return seq == s.first+uint32(s.next) }

// Window borrows the bytes that were delivered last, until the next Add, and returns the offset of the first.
func (s *Stream) Window() (b []byte, from uint64) { return s.window, s.next - uint64(len(s.window)) }

// Queued returns how many bytes wait for a gap to be filled.
func (s *Stream) Queued() int { return s.queued }

// offset returns where in the stream a sequence number is, which is at most 2^31 bytes away from the next: the difference of 32
// bits is signed (RFC 9293 3.4), and offsets of 64 bits do not wrap on long streams.
func (s *Stream) offset(seq uint32) (int64, bool) {
	at := int64(s.next) + int64(int32(seq-(s.first+uint32(s.next))))
	if s.skipped > 0 && at < int64(s.skipped)-1 { // it was counted from before the byte that was left out
		at++
	}
	return at, at >= 0
}

// Reaches reports whether a segment that begins at a sequence number leaves no gap.
func (s *Stream) Reaches(seq uint32) bool {
	at, _ := s.offset(seq)
	return s.started && at <= int64(s.next)
}

// Skip leaves out the byte at a sequence number, if it is the next in order: it is no part of the text, as urgent data (RFC
// 9293 3.8.5). What has come after it moves up. Bytes before the last one that was left out keep their places; those before
// an earlier one are not compared any more where they are sent again.
func (s *Stream) Skip(seq uint32) {
	if !s.started || !s.Expects(seq) {
		return
	}
	s.first++
	s.skipped = s.next + 1
	for i := range s.queue {
		s.queue[i].at--
	}
}

// Add takes the payload of a segment, which it borrows, and returns how many bytes are in order now that were not
// before: the last ones of Window. Where these are more than Config.Keep, Window has them all until the next Add.
func (s *Stream) Add(seq uint32, data []byte) (fresh int, ev Event) {
	if !s.started || len(data) == 0 {
		return 0, 0
	}
	at, ok := s.offset(seq)
	if !ok { // it begins before the stream: a keep-alive has the byte before, RFC 9293 3.8.4
		if at+int64(len(data)) <= 0 {
			return 0, 0
		}
		data, at = data[-at:], 0
	}
	s.trim(len(data))
	off := uint64(at)
	if off < s.next {
		ev |= s.compare(off, data)
		skip := s.next - off
		if skip >= uint64(len(data)) {
			return 0, ev
		}
		data, off = data[skip:], s.next
	}
	if off == s.next && len(s.queue) == 0 { // the usual case
		return s.deliver(data, ev)
	}
	if s.cfg.Hold && off != s.next && (s.queued+len(data) > s.queueLimit() || len(s.queue) >= maxPieces) {
		return 0, ev | Full
	}
	ev |= s.insert(off, data)
	n, e := s.drain()
	if n == 0 && !s.cfg.Hold && (s.queued > s.queueLimit() || len(s.queue) > maxPieces) { // skip empties the window, so never behind fresh bytes
		n, e = s.skip()
	}
	return n, ev | e
}

func (s *Stream) queueLimit() int {
	if s.cfg.Queue > 0 {
		return s.cfg.Queue
	}
	return DefaultQueue
}

func (s *Stream) keep() int {
	if s.cfg.Keep > 0 {
		return s.cfg.Keep
	}
	return DefaultKeep
}

// take reserves n bytes of the budget for the stream, or returns them where n is negative.
func (s *Stream) take(n int) bool {
	if !s.cfg.Budget.take(n) {
		return false
	}
	s.counted += n
	return true
}

// Needs returns how many bytes of the budget Add would take for a segment of n bytes.
func (s *Stream) Needs(seq uint32, n int) int {
	if !s.started || n == 0 {
		return 0
	}
	if at, ok := s.offset(seq); ok && uint64(at) > s.next {
		return max(n, leastPiece) + s.placesFor()
	}
	return s.growth(len(s.window) + n)
}

// growth returns how many bytes more are allocated for a window of size bytes.
func (s *Stream) growth(size int) int {
	if size <= cap(s.window) {
		return 0
	}
	return windowSize(size) - cap(s.window)
}

// trim drops the oldest bytes of the window where there would be more than twice those to be kept with n more: each is moved
// once. A window that has grown for a queue gets smaller again.
func (s *Stream) trim(n int) {
	keep := s.keep()
	if len(s.window) <= keep || len(s.window)+n <= 2*keep {
		return
	}
	if most := windowSize(2 * keep); cap(s.window) > most {
		s.resize(keep, most)
		return
	}
	s.window = s.window[:copy(s.window, s.window[len(s.window)-keep:])]
}

// resize puts the last keep bytes of the window into one of a smaller capacity.
func (s *Stream) resize(keep, capacity int) {
	old := s.window
	s.take(capacity - cap(old))
	s.window = append(s.cfg.Budget.window(capacity), old[max(len(old)-keep, 0):]...)
	s.cfg.Budget.recycle(old)
}

// Shrink keeps at most so many of the bytes that were delivered last, and returns how many bytes of memory it has given back.
// What Window has returned is no longer valid.
func (s *Stream) Shrink(keep int) (freed int) {
	if s.cfg == nil || cap(s.window) == 0 {
		return 0
	}
	size := windowSize(max(min(keep, len(s.window)), 1))
	if freed = cap(s.window) - size; freed <= 0 {
		return 0
	}
	s.resize(keep, size)
	return freed
}

// drop abandons the window.
func (s *Stream) drop() {
	old := s.window
	s.take(-cap(old))
	s.window = nil
	s.cfg.Budget.recycle(old)
}

// deliver appends bytes in order. Without memory the kept bytes go before the new ones: patterns that begin in them are missed, as
// Full reports, but what follows is still searched.
func (s *Stream) deliver(data []byte, ev Event) (int, Event) {
	if !s.grow(len(s.window) + len(data)) {
		if s.cfg.Hold {
			return 0, ev | Full
		}
		s.drop()
		ev |= Full
		if !s.grow(len(data)) {
			s.next += uint64(len(data))
			return 0, ev | Gap
		}
	}
	s.window = append(s.window, data...)
	s.next += uint64(len(data))
	return len(data), ev
}

// grow makes the window large enough for size bytes. It reports false where the budget has no space.
func (s *Stream) grow(size int) bool {
	n := s.growth(size)
	if n == 0 {
		return true
	}
	if !s.take(n) {
		return false
	}
	old := s.window
	s.window = append(s.cfg.Budget.window(windowSize(size)), old...)
	s.cfg.Budget.recycle(old)
	return true
}

// compare compares bytes at an offset with those of the window.
func (s *Stream) compare(off uint64, data []byte) Event {
	if len(data) == 1 && off+1 == s.next && s.next <= s.acked {
		return 0 // a keep-alive: its byte is garbage, and no receiver takes it (RFC 9293 3.8.4)
	}
	from := s.next - uint64(len(s.window))
	if off < from {
		if skip := from - off; skip < uint64(len(data)) {
			data, off = data[skip:], from
		} else {
			return 0
		}
	}
	held := s.window[off-from:]
	n := min(len(held), len(data))
	if !bytes.Equal(held[:n], data[:n]) {
		return Conflict
	}
	return 0
}

// insert queues what is not queued yet, and compares what is.
func (s *Stream) insert(off uint64, data []byte) (ev Event) {
	first, _ := slices.BinarySearchFunc(s.queue, off, func(q segment, off uint64) int { return cmp.Compare(q.end(), off+1) })
	for i := first; len(data) > 0; i++ {
		if i == len(s.queue) || off < s.queue[i].at {
			part := data
			if i < len(s.queue) {
				part = data[:min(uint64(len(data)), s.queue[i].at-off)]
			}
			if !s.enqueue(i, off, part) {
				return ev | Full
			}
			off, data = off+uint64(len(part)), data[len(part):]
			continue
		}
		q := s.queue[i]
		if off >= q.end() {
			continue
		}
		held := q.data[off-q.at:]
		n := min(len(held), len(data))
		if !bytes.Equal(held[:n], data[:n]) {
			ev |= Conflict
		}
		off, data = off+uint64(n), data[n:]
	}
	return ev
}

// enqueue puts a copy of bytes at a place in the queue: the segment is borrowed, and its frame is used again. It reports false
// where the budget has no space.
func (s *Stream) enqueue(i int, off uint64, part []byte) bool {
	places := s.placesFor()
	if b := s.cfg.Budget; b != nil && b.used+len(part)+places > b.Max {
		return false // nothing is allocated in vain
	}
	q := segment{off, append([]byte(nil), part...)}
	if !s.take(q.size() + places) {
		return false
	}
	if places > 0 {
		s.queue = append(make([]segment, 0, cap(s.queue)+places/placeSize), s.queue...)
	}
	s.queue = slices.Insert(s.queue, i, q)
	s.queued += len(part)
	return true
}

// placesFor returns how many bytes the queue takes to have another place.
func (s *Stream) placesFor() int {
	if len(s.queue) < cap(s.queue) {
		return 0
	}
	return max(4, len(s.queue)) * placeSize
}

// drain delivers queued bytes that are in order now.
func (s *Stream) drain() (n int, ev Event) {
	done := 0
	for _, q := range s.queue {
		if q.at != s.next {
			break
		}
		s.queued -= len(q.data)
		s.take(-q.size()) // deliver counts the bytes again
		fresh, e := s.deliver(q.data, 0)
		if e&Full != 0 { // the window was emptied, of what this call has delivered too
			n, e = 0, e|Gap
		}
		n, ev = n+fresh, ev|e
		done++
	}
	if s.queue = slices.Delete(s.queue, 0, done); len(s.queue) == 0 {
		s.take(-cap(s.queue) * placeSize)
		s.queue = nil
	}
	return n, ev
}

// skip abandons the bytes that are missing before the queue. The window is emptied: with the bytes from before the gap in it, a
// pattern could match across bytes that were never next to each other.
func (s *Stream) skip() (int, Event) {
	if len(s.queue) == 0 {
		return 0, 0
	}
	s.window = s.window[:0]
	s.next = s.queue[0].at
	n, ev := s.drain()
	return n, ev | Gap
}

// Acked reports that the receiver has acknowledged all before a sequence number. What is missing there was not
// captured: the host has it, so nothing waits for it.
func (s *Stream) Acked(ack uint32) (fresh int, ev Event) {
	if !s.started {
		return 0, 0
	}
	at, ok := s.offset(ack)
	if !ok {
		return 0, 0
	}
	s.acked = max(s.acked, uint64(at))
	if len(s.queue) > 0 && uint64(at) > s.queue[0].at && !s.cfg.Hold {
		return s.skip()
	}
	return 0, 0
}

// Close returns the memory.
func (s *Stream) Close() {
	if s.cfg != nil {
		s.cfg.Budget.take(-s.counted)
		s.cfg.Budget.recycle(s.window)
	}
	*s = Stream{}
}
