package stack

import (
	"cmp"
	"slices"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
)

// Refuser is a Handler that does something with packets of flows that it does not know: it answers them, as with a TCP
// reset, or takes the flow up. Another handler of the loop may know the flow, so a Dispatcher of several asks in two steps.
// A loop without a Dispatcher, and a Dispatcher of one handler, call Handle alone.
type Refuser interface {
	Handler

	// Offer is Handle for packets that another handler may have the flow of. Those that belong to no flow of this one, and
	// open none, it leaves unchanged, unanswered and uncounted, with the verdict DropNoService or DropNoFlow.
	Offer(now clock.Time, b *packet.Batch)

	// Refuse is Handle for packets that Offer has declined and no other handler has taken.
	Refuse(now clock.Time, b *packet.Batch)

	// Elsewhere reports that the first fragment of a datagram, d with its frame, goes to another handler. If this one holds
	// others of the same datagram, it has them offered again (Output.Repeat): they follow the first. It borrows both.
	Elsewhere(d *packet.Desc, frame []byte)
}

// offer has handler i decide packets that are first offered to it.
func (d *Dispatcher) offer(now clock.Time, b *packet.Batch, i int) {
	if r := d.refusers[i]; r != nil {
		r.Offer(now, b)
		return
	}
	d.handlers[i].Handle(now, b)
}

// offerNext offers what the handler `from` has no service or flow for to the next
// claim's handler, in bursts of packets for the same one, and returns what that has none for either.
func (d *Dispatcher) offerNext(now clock.Time, b *packet.Batch, from Target) {
	markHandover(b.D, from)
	if !anyDeclined(b.D) {
		return
	}
	var to Target // of d.again
	for at := 0; at < len(b.D); {
		n := max(1, packet.Chain(b.D[at:]))
		if declined(&b.D[at]) && handedBy(&b.D[at])&offered == 0 && !isPlaced(b, at) {
			if next := d.nextTarget(now, b.Bytes(at), from); next != 0 {
				if next != to {
					d.handleAgain(now, b, from, to)
				}
				to = next
				d.repeat(b, at, n, packet.FlagHanded)
			}
		}
		at += n
	}
	d.handleAgain(now, b, from, to)
	d.refuse(now, b, from)
}

// refuse returns what no handler has taken to the one that it was first offered to. A packet that a second handler has handed
// over is refused by that one's part on this loop: it is the only one here that has seen it.
func (d *Dispatcher) refuse(now clock.Time, b *packet.Batch, by Target) {
	i, _ := by.handler()
	r := d.refusers[i]
	if r == nil {
		return
	}
	for at := 0; at < len(b.D); {
		n := max(1, packet.Chain(b.D[at:]))
		if declined(&b.D[at]) {
			d.keepFragments(now, b, at, by)
			d.repeat(b, at, n, 0)
		}
		at += n
	}
	if len(d.again.D) == 0 {
		return
	}
	d.again.Arena, d.again.Base, d.again.Searched = b.Arena, b.Base, b.Searched
	r.Refuse(now, &d.again)
	d.putBack(b, by)
}

// elsewhere notifies handlers that may hold other fragments of a datagram that the first one goes to another.
func (d *Dispatcher) elsewhere(to Target, desc *packet.Desc, frame []byte) {
	i, ok := to.handler()
	for k, r := range d.refusers {
		if ok && r != nil && k != i {
			r.Elsewhere(desc, frame)
		}
	}
}

// keepFragments has the other fragments of a datagram follow the first one, if that is descriptor at of b, to a handler.
func (d *Dispatcher) keepFragments(now clock.Time, b *packet.Batch, at int, to Target) {
	if !b.D[at].Flags.Has(packet.FlagFragment) {
		return
	}
	if s, ok := selectorOf(b.Bytes(at)); ok && s.fragment && !s.rest {
		d.frags.store(now, &s, to)
	}
}

// declined reports whether a handler has no service or flow for a packet.
func declined(d *packet.Desc) bool {
	return d.Verdict == packet.DropNoService || d.Verdict == packet.DropNoFlow
}

func anyDeclined(list []packet.Desc) bool {
	for i := range list {
		if declined(&list[i]) {
			return true
		}
	}
	return false
}

// nextTarget returns the handler of the next claim on a packet after those of `from`; 0
// is none.
func (d *Dispatcher) nextTarget(now clock.Time, frame []byte, from Target) Target {
	s, ok := selectorOf(frame)
	if !ok {
		return 0
	}
	to := d.table.current.Load().target(&s, from)
	if i, ok := to.handler(); !ok || i >= len(d.handlers) {
		return 0
	}
	if s.fragment && !s.rest { // the others follow it
		d.frags.store(now, &s, to)
	}
	return to
}

// repeat adds n descriptors of b to d.again, with their literal matches, as undecided and without some flags. Without FlagHanded
// the second handler may hand the packet over as if it had come by this loop; one that the first has handed over twice
// is not handed over any more, so that no packet circulates.
func (d *Dispatcher) repeat(b *packet.Batch, at, n int, without packet.Flags) {
	first, _ := slices.BinarySearchFunc(b.Matches, at, func(m packet.Match, at int) int { return cmp.Compare(int(m.D), at) })
	for _, m := range b.Matches[first:] {
		if int(m.D) >= at+n {
			break
		}
		m.D += uint32(len(d.again.D) - at)
		d.again.Matches = append(d.again.Matches, m)
	}
	for i := at; i < at+n; i++ {
		desc := b.D[i]
		repeated(&desc, without)
		d.again.D, d.places = append(d.again.D, desc), append(d.places, i)
	}
}

// handleAgain has a second handler decide d.again. Where the first does not ask for what is left, it is the last one.
func (d *Dispatcher) handleAgain(now clock.Time, b *packet.Batch, from, to Target) {
	if len(d.again.D) == 0 {
		return
	}
	d.again.Arena, d.again.Base, d.again.Searched = b.Arena, b.Base, b.Searched
	first, _ := from.handler()
	second, _ := to.handler()
	if d.refusers[first] != nil {
		d.offer(now, &d.again, second)
	} else {
		d.handlers[second].Handle(now, &d.again)
	}
	d.putBack(b, to|offered)
}

// putBack puts the packets of d.again back where they were in b. Of those that are still declined only the verdict is new.
func (d *Dispatcher) putBack(b *packet.Batch, by Target) {
	markHandover(d.again.D, by)
	for k, at := range d.places {
		if desc := &d.again.D[k]; declined(desc) {
			b.D[at].Verdict = desc.Verdict
		} else {
			b.D[at] = *desc
		}
	}
	d.again.D, d.again.Matches, d.places = d.again.D[:0], d.again.Matches[:0], d.places[:0]
}
