package inspect

import (
	"net/netip"

	"github.com/millrace/millrace/filter/signature"
)

// bit is a signature.Bit with numbers for its names.
type bit struct {
	*signature.Bit
	names []int
}

// newBit numbers the names of a bit: maps of numbers are smaller, and compared faster, than those of texts.
func newBit(b *signature.Bit, names *nameNumbering) bit {
	n := bit{Bit: b}
	for _, name := range b.Names {
		n.names = append(n.names, names.number(name))
	}
	return n
}

// bitKey is a bit of one address or pair.
type bitKey struct {
	name int
	a, b netip.Addr
}

// bitKeyOf returns the key of a bit for a packet. That of a pair has the lower address first, so that both directions share it.
func bitKeyOf(name int, t signature.Track, p *packet) bitKey {
	switch t {
	case signature.TrackSrc:
		return bitKey{name: name, a: p.src}
	case signature.TrackDst:
		return bitKey{name: name, a: p.dst}
	}
	a, b := p.src, p.dst
	if b.Less(a) {
		a, b = b, a
	}
	return bitKey{name, a, b}
}

// has reports whether a bit is set.
func (e *Engine) has(b *bit, name int, p *packet) bool {
	if b.Track == signature.TrackFlow {
		return p.flow != nil && p.flow.bits[name]
	}
	return e.hostBits.has(bitKeyOf(name, b.Track, p), e.now)
}

// bitsHold reports whether the conditions of a rule on bits hold.
func (e *Engine) bitsHold(q *rule, p *packet) bool {
	for i := range q.bits {
		b := &q.bits[i]
		if b.Op > signature.IsNotSet {
			continue
		}
		set := false
		for _, n := range b.names {
			set = set || e.has(b, n, p)
		}
		if set != (b.Op == signature.IsSet) {
			return false
		}
	}
	return true
}

// setBits does what a rule that has matched does with bits. It runs before the rules behind it are evaluated (order), which may ask
// for these bits in the same packet.
func (e *Engine) setBits(q *rule, p *packet) {
	for i := range q.bits {
		b := &q.bits[i]
		if b.Op <= signature.IsNotSet {
			continue
		}
		for _, n := range b.names {
			on := b.Op == signature.Set || b.Op == signature.Toggle && !e.has(b, n, p)
			e.setBit(b, n, p, on)
		}
	}
}

// setBit sets or unsets a bit. One of an address expires. At the bound an earlier one makes room: forged sources must not keep those
// that follow from being remembered.
func (e *Engine) setBit(b *bit, name int, p *packet, on bool) {
	if b.Track == signature.TrackFlow {
		if f := p.flow; f != nil {
			if f.bits == nil {
				f.bits = map[int]bool{}
			}
			f.bits[name] = on
		}
		return
	}
	k := bitKeyOf(name, b.Track, p)
	if !on {
		e.hostBits.unset(k)
		return
	}
	e.hostBits.set(k, e.now+int64(b.Expire))
}

// fewEntries is the number of entries of a full table that are compared for the one that is given up: a packet must not cost the
// table's length, as who forges sources keeps it full.
const fewEntries = 64

// earliest returns the key of the earliest of a few entries of m, which are others each time. m is not empty.
func earliest[K comparable, V any](m map[K]V, time func(V) int64) (key K) {
	n, first := 0, int64(0)
	for k, v := range m {
		if t := time(v); n == 0 || t < first {
			key, first = k, t
		}
		if n++; n == fewEntries {
			break
		}
	}
	return key
}
