package inspect

import (
	"bytes"
	"net/netip"
	"slices"

	"github.com/millrace/millrace/wire"
)

// fragKey holds the fields that the fragments of a packet have in common (RFC 791 3.2, RFC 8200 4.5).
type fragKey struct {
	src, dst netip.Addr
	proto    uint8
	id       uint32
	depth    int
}

// fragments are the parts of one packet.
type fragments struct {
	parts []fragmentPart // sorted, apart
	end   int            // of the packet; 0 while the last fragment is missing
	since int64
	bytes int // of the packet that have come
	held  int // in the budget
	first *packet

	dropped bool // the packet was dropped when it was whole: no fragment of it passes until droppedLife has gone by
}

type fragmentPart struct {
	at   int
	data []byte
}

// What is allocated for a packet that is put together, beside its bytes: the places in tables and the copy of its first
// header, and a place for each part.
const (
	fragmentsSize    = 768
	fragmentPartSize = 32
)

// size returns how many bytes are allocated for the fragments of a packet.
func (f *fragments) size() int {
	n := fragmentsSize + cap(f.parts)*fragmentPartSize
	for _, q := range f.parts {
		n += cap(q.data)
	}
	return n
}

// needs returns how many bytes are allocated at most for another part, of a packet that may be nil.
func (f *fragments) needs(body []byte) int {
	n := len(body) + len(body)/4
	switch {
	case f == nil:
		n += fragmentsSize + fragmentPartSize
	case len(f.parts) == cap(f.parts):
		n += len(f.parts) * fragmentPartSize
	}
	return n
}

// Limits of packets that are being put together.
const (
	maxFragmented   = 4096      // packets at a time
	fragmentTimeout = 60 * 1e9  // nanoseconds, RFC 8200 4.5
	maxPacket       = 65535 + 8 // bytes

	// droppedLife is the time that a receiver may still hold the other fragments of a packet that was dropped: the
	// longest time that RFC 1122 3.3.2 lets it wait. One fragment sent again would otherwise complete the packet there.
	droppedLife = 120 * 1e9 // nanoseconds

	fragmentSweep = 1e9 // nanoseconds between two looks for packets that have waited too long
)

// fragment keeps a part of a packet, and inspects the packet once it is whole. The bytes that came first stay;
// others in their place are an anomaly.
//
// The receiver has every fragment that passed, for as long as it waits for the rest. So with Config.Block
//   - a fragment that is dropped is not kept: the receiver does not have it either,
//   - the fragments of a packet that was dropped are dropped too, those that come again included,
//   - a packet that met a bound is kept, and is inspected again with the next fragment of it.
func (e *Engine) fragment(p *packet, id uint32, at int, more bool, body []byte) {
	e.stats.Fragments++
	e.piece(p)
	if at+len(body) > maxPacket || len(body) == 0 {
		e.stats.Malformed++
		return
	}
	if e.cfg.Block && e.result.Outcome != Pass {
		return
	}
	k := fragKey{p.src, p.dst, p.proto, id, p.depth}
	f := e.frags[k]
	if f != nil && e.expired(f) {
		e.forget(k, f)
		f = nil
	}
	if f != nil && f.dropped {
		e.decide(Drop)
		e.result.Blocked = true
		return
	}
	if f = e.keepFragment(k, f, at, more, body, p); f == nil {
		return
	}
	if whole := f.assemble(); whole != nil {
		e.reassembled(k, f, whole)
	}
}

// keepFragment enters a part in those of its packet, which is nil before the first. It returns nil where a bound is met.
func (e *Engine) keepFragment(k fragKey, f *fragments, at int, more bool, body []byte, p *packet) *fragments {
	need := f.needs(body)
	if !e.budget.Reserve(need) {
		e.bound()
		return nil
	}
	if f == nil {
		if len(e.frags) >= maxFragmented && !e.evictFragments() {
			e.budget.Reserve(-need)
			e.bound()
			return nil
		}
		f = &fragments{since: e.now}
		e.frags[k] = f
	}
	if at == 0 {
		first := *p
		f.first = &first
	}
	conflict := f.contradicts(at+len(body), more)
	if !more && !conflict {
		f.end = at + len(body)
	}
	conflict = f.insert(at, body) || conflict
	held := f.size() // what was there already is not held twice
	e.budget.Charge(held - f.held - need)
	f.held = held
	if conflict {
		e.anomaly(p, FragmentOverlap)
	}
	return f
}

// assemble returns the packet behind its IP header, nil while parts of it are missing.
func (f *fragments) assemble() []byte {
	if f.end == 0 || f.bytes < f.end || f.first == nil {
		return nil
	}
	whole := make([]byte, 0, f.end)
	for _, q := range f.parts {
		if q.at != len(whole) {
			return nil
		}
		whole = append(whole, q.data...)
	}
	return whole
}

// reassembled inspects a packet that is whole.
func (e *Engine) reassembled(k fragKey, f *fragments, whole []byte) {
	q := *f.first
	q.whole, q.joined = true, true
	if !e.cfg.Block {
		e.forget(k, f)
		e.transport(&q, whole)
		return
	}
	if wrongChecksum(&q, whole) { // the receiver discards it: nothing of it is part of a stream there
		e.stats.Malformed++
		e.decide(Drop)
	} else {
		e.transport(&q, whole)
	}
	e.releaseFragments(k, f)
}

// releaseFragments forgets a packet that was whole, unless its verdict is needed for fragments that come again: those of a packet that was
// dropped are dropped too, and one that met a bound is inspected again.
func (e *Engine) releaseFragments(k fragKey, f *fragments) {
	switch {
	case e.result.Outcome != Pass:
		f.dropped, f.parts, f.first, f.since = true, nil, nil, e.now
		held := f.size()
		e.budget.Charge(held - f.held)
		f.held = held
	case e.result.Bound && e.cfg.Refuse:
	default:
		e.forget(k, f)
	}
}

// contradicts reports whether a fragment that ends at end is not of the same packet as the others: another one is
// the last, or it lies behind the last.
func (f *fragments) contradicts(end int, more bool) bool {
	if f.end != 0 {
		return end > f.end || !more && end != f.end
	}
	if n := len(f.parts); !more && n > 0 {
		last := f.parts[n-1]
		return last.at+len(last.data) > end
	}
	return false
}

// wrongChecksum reports whether a receiver discards a packet of TCP or UDP that was put together (RFC 9293 3.1, RFC 768, RFC
// 8200 8.1): devices leave checksums to others only in packets that are whole.
func wrongChecksum(p *packet, body []byte) bool {
	switch {
	case p.proto == wire.ProtoUDP && len(body) >= wire.UDPLen:
		if !p.v6 && wire.UDP(body).Checksum() == 0 { // the sender has made none
			return false
		}
		if n := int(wire.UDP(body).Len()); n >= wire.UDPLen && n <= len(body) {
			body = body[:n]
		}
	case p.proto == wire.ProtoTCP && len(body) >= wire.TCPLen:
	default:
		return false
	}
	pseudo := wire.PseudoHeader(wire.Addr(p.src.As16()), wire.Addr(p.dst.As16()), p.proto, uint32(len(body)))
	return wire.Fold(wire.Sum(body, pseudo)) != 0
}

// forget abandons what there is of a packet.
func (e *Engine) forget(k fragKey, f *fragments) {
	delete(e.frags, k)
	e.budget.Reserve(-f.held)
}

// expired reports whether the rest of a packet is too late.
func (e *Engine) expired(f *fragments) bool {
	if f.dropped {
		return e.now-f.since > droppedLife
	}
	return e.now-f.since > fragmentTimeout
}

// sweepFragments abandons the packets that have waited too long. Without it they would hold memory that streams and other
// packets need, until their number is that of maxFragmented.
func (e *Engine) sweepFragments() {
	if d := e.now - e.fragsSwept; d >= 0 && d < fragmentSweep || len(e.frags) == 0 {
		return
	}
	e.fragsSwept = e.now
	for k, f := range e.frags {
		if e.expired(f) {
			e.forget(k, f)
		}
	}
}

// evictFragments makes room for another packet. It reports false where there is none.
func (e *Engine) evictFragments() bool {
	if e.cfg.Refuse { // sweepFragments abandons those that are too late
		return false
	}
	k := earliest(e.frags, func(f *fragments) int64 { return f.since })
	e.forget(k, e.frags[k])
	return true
}

// piece evaluates the rules of single packets on a fragment: its header may be what a rule is about. It belongs to
// no flow, and its payload is inspected when the packet is whole.
func (e *Engine) piece(p *packet) {
	e.serial++
	q := *p
	q.bit = bitOf(p.proto)
	e.addresses(&q)
	e.single(&q)
}

// insert keeps the bytes that are new, and reports whether others differ from what is there.
func (f *fragments) insert(at int, data []byte) (conflict bool) {
	for i := 0; len(data) > 0; i++ {
		if i == len(f.parts) || at < f.parts[i].at {
			n := len(data)
			if i < len(f.parts) {
				n = min(n, f.parts[i].at-at)
			}
			f.parts = slices.Insert(f.parts, i, fragmentPart{at, bytes.Clone(data[:n])})
			f.bytes += n
			at, data = at+n, data[n:]
			continue
		}
		q := f.parts[i]
		if at >= q.at+len(q.data) {
			continue
		}
		held := q.data[at-q.at:]
		n := min(len(held), len(data))
		conflict = conflict || !bytes.Equal(held[:n], data[:n])
		at, data = at+n, data[n:]
	}
	return conflict
}
