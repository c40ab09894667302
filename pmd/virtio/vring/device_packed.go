package vring

import (
	"fmt"
	"unsafe"
)

// A packed ring is one ring of descriptors that both sides write. Two flags of a descriptor say whose it is, by the wrap counter
// that each side counts for itself (virtio 1.2, 2.8.1):
//
//	available:  AVAIL == counter, USED != counter        used:  AVAIL == USED == counter

// word returns the last four bytes of descriptor i: buffer ID and flags.
func word(desc unsafe.Pointer, i uint16) unsafe.Pointer { return at(desc, descSize*int(i)+12) }

// available reports whether the next descriptor is.
func (d *Device) available() bool {
	f := load32(word(d.desc, d.next)) >> 16
	return (f&flagAvail != 0) == d.wrap && (f&flagUsed != 0) != d.wrap
}

// takePacked reads the descriptors of the next chain, which lie one after the other. The flags of the first are loaded before the
// others: the driver stores them last (2.8.20).
func (d *Device) takePacked(c *Chain) (bool, error) {
	if !d.available() {
		return false, nil
	}
	c.reset(0, 0)
	for good := true; ; {
		e := loadDescriptor(at(d.desc, descSize*int(d.next)))
		if c.slots++; c.slots > d.size {
			return false, fmt.Errorf("%w: a chain has no end within its %d descriptors", ErrRing, d.size)
		}
		if d.next++; d.next == d.size {
			d.next, d.wrap = 0, !d.wrap
		}
		if good {
			good = d.addPacked(c, e)
		}
		if e.high&flagNext == 0 {
			c.id = e.low // that of the last one (2.8.6)
			return true, nil
		}
	}
}

// addPacked appends one descriptor of the ring, or the table that it names.
func (d *Device) addPacked(c *Chain, e descriptor) bool {
	if e.high&flagIndirect == 0 {
		return c.add(d.mem, e.addr, e.length, e.high&flagWrite != 0)
	}
	if !d.indirect || e.high&flagNext != 0 || c.slots > 1 {
		return c.fail("an indirect table where none may be") // 2.8.19
	}
	t := c.table(d.mem, e, d.size)
	for ; len(t) > 0; t = t[descSize:] { // all of them, whatever their flags (2.8.7)
		e := loadDescriptor(unsafe.Pointer(&t[0]))
		if e.high&flagIndirect != 0 {
			return c.fail("an indirect table in another one")
		}
		if !c.add(d.mem, e.addr, e.length, e.high&flagWrite != 0) {
			return false
		}
	}
	return c.Err == nil
}

// returnPacked writes a used descriptor. The flags of the first of a burst wait for Publish, so that a driver that finds one finds all
// of them: buffers of one packet (VIRTIO_NET_F_MRG_RXBUF) have to come together. The others are plain stores: a driver looks at none
// of them before it has found the first.
func (d *Device) returnPacked(c *Chain, n uint32) { d.returnOne(c.id, c.slots, n) }

func (d *Device) returnOne(id, slots uint16, n uint32) {
	p := at(d.desc, descSize*int(d.use))
	w := uint32(id)
	if d.useWrap {
		w |= (flagAvail | flagUsed) << 16
	}
	if n > 0 {
		w |= flagWrite << 16
	}
	if d.first == nil {
		*(*uint32)(at(p, 8)) = n
		d.first, d.firstWord = at(p, 12), w
	} else {
		*(*uint64)(at(p, 8)) = uint64(n) | uint64(w)<<32
	}
	if d.use += slots; d.use >= d.size {
		d.use -= d.size
		d.useWrap = !d.useWrap
	}
}

func (d *Device) publishPacked() (call bool) {
	store32(d.first, d.firstWord)
	d.first = nil
	old := d.called
	d.called = d.use
	return packedWants(load32(d.avail), d.size, d.use, d.useWrap, old)
}

// packedWants reports whether the other side, which has stored want in its event suppression structure (2.8.10), is to be
// notified of what came from the place old to the place to, where the wrap counter is wrap.
func packedWants(want uint32, size, to uint16, wrap bool, old uint16) bool {
	switch want >> 16 & 3 {
	case packedNever:
		return false
	case packedAt:
	default:
		return true
	}
	event := uint16(want) & 0x7fff
	if to <= old { // places as counts, which do not wrap
		old -= size
	}
	if wrap != (want&(1<<15) != 0) {
		event -= size
	}
	return needEvent(event, to, old)
}
