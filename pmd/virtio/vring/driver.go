package vring

import (
	"fmt"
	"unsafe"
)

// NoFrame is the frame of a buffer that is in none.
const NoFrame = 1<<32 - 1

// Item is one buffer of a chain.
type Item struct {
	Addr  uint64 // guest physical address
	Len   uint32 // bytes
	Frame uint32 // what Take returns for it; NoFrame for nothing
}

// slot is the driver's record of a descriptor that the device has. The ring has a copy, which the device may change.
type slot struct {
	frame uint32
	len   uint32
	next  uint16 // of the chain or of the free list; the slot itself at the end of a chain
	count uint16 // of a head, the slots of its chain; 0: none
}

// Driver is the driver's side of a virtqueue. It belongs to one goroutine at a time.
type Driver struct {
	desc, avail, used unsafe.Pointer
	size, mask        uint16
	packed, eventIdx  bool

	slots    []slot
	freeHead uint16
	free     int

	next     uint16 // of the chain to add
	wrap     bool
	kicked   uint16 // next when the device was last notified
	last     uint16 // of the used buffer to take
	lastWrap bool
	seen     uint16 // split: the device's index as last loaded
	asked    uint16 // split: used_event as last stored
	flags    uint16 // split: flags of the available ring
	quiet    bool

	first     unsafe.Pointer // packed: the descriptor that makes all behind it visible
	firstWord uint32
}

// Layout returns the bytes of the three parts of a virtqueue, each a multiple of 64.
func Layout(size int, packed bool) (desc, avail, used int) {
	desc, avail, used = size*descSize, splitAvailLen(size), splitUsedLen(size)
	if packed {
		avail, used = 4, 4
	}
	return up64(desc), up64(avail), up64(used)
}

func up64(n int) int { return (n + 63) &^ 63 }

// NewDriver returns the driver's side of a ring whose parts, of Layout's lengths, are zeroed.
func NewDriver(cfg Config, desc, avail, used []byte) *Driver {
	d := &Driver{
		desc: unsafe.Pointer(&desc[0]), avail: unsafe.Pointer(&avail[0]), used: unsafe.Pointer(&used[0]),
		size: uint16(cfg.Size), mask: uint16(cfg.Size - 1), packed: cfg.Packed, eventIdx: cfg.EventIdx,
		slots: make([]slot, cfg.Size), free: cfg.Size, wrap: cfg.Packed, lastWrap: cfg.Packed,
	}
	for i := range d.slots {
		d.slots[i] = slot{frame: NoFrame, next: uint16(i + 1)}
	}
	return d
}

// Base returns the values of NextAvail and NextUse that a device begins with.
func (d *Driver) Base() (avail, use uint16) {
	if !d.packed {
		return d.next, d.last
	}
	return d.next | wrapBit(d.wrap), d.last | wrapBit(d.lastWrap)
}

// Free returns how many more items Add takes.
func (d *Driver) Free() int { return d.free }

// Add makes a chain of items available, all to be read or all to be written by the device, which sees it after Publish. The
// caller has checked Free.
func (d *Driver) Add(items []Item, write bool) {
	head := d.freeHead
	id, flags := head, uint16(0)
	if write {
		flags = flagWrite
	}
	for i, it := range items {
		s := &d.slots[id]
		s.frame, s.len, s.count = it.Frame, it.Len, 0
		f, next := flags, s.next
		if i < len(items)-1 {
			f |= flagNext
		} else {
			d.freeHead = next
			s.next = id
		}
		if d.packed {
			d.putPacked(it, head, f)
		} else {
			storeDescriptor(at(d.desc, descSize*int(id)), it.Addr, it.Len, f, next)
		}
		id = next
	}
	d.slots[head].count = uint16(len(items))
	d.free -= len(items)
	if !d.packed {
		*(*uint16)(at(d.avail, 4+2*int(d.next&d.mask))) = head
		d.next++
	}
}

// putPacked writes the next descriptor of a packed ring. The flags of the first since Publish wait for it.
func (d *Driver) putPacked(it Item, id, flags uint16) {
	p := at(d.desc, descSize*int(d.next))
	if d.wrap {
		flags |= flagAvail
	} else {
		flags |= flagUsed
	}
	w := uint32(id) | uint32(flags)<<16
	*(*uint64)(p) = it.Addr
	*(*uint32)(at(p, 8)) = it.Len
	if d.first == nil {
		d.first, d.firstWord = at(p, 12), w
	} else {
		store32(at(p, 12), w)
	}
	if d.next++; d.next == d.size {
		d.next, d.wrap = 0, !d.wrap
	}
}

// Publish makes the added chains available, and reports whether the device wants to be notified.
func (d *Driver) Publish() (kick bool) {
	old := d.kicked
	if d.packed {
		if d.first == nil {
			return false
		}
		store32(d.first, d.firstWord)
		d.first, d.kicked = nil, d.next
		return packedWants(load32(d.used), d.size, d.next, d.wrap, old)
	}
	if old == d.next {
		return false
	}
	store32(d.avail, uint32(d.flags)|uint32(d.next)<<16)
	d.kicked = d.next
	if d.eventIdx {
		return needEvent(load16(at(d.used, 4+8*int(d.size))), d.next, old)
	}
	return load16(d.used)&splitQuiet == 0
}

// Used returns the next chain that the device has returned, by its head, and the bytes written to it as the device reports them. Take
// frees it. The error is an ErrRing.
func (d *Driver) Used() (head uint16, n uint32, ok bool, err error) {
	var id uint32
	if d.packed {
		if !d.returned() {
			return 0, 0, false, nil
		}
		p := at(d.desc, descSize*int(d.last))
		id, n = load32(at(p, 12))&0xffff, *(*uint32)(at(p, 8))
	} else {
		if d.last == d.seen {
			if d.seen = load16(at(d.used, 2)); d.last == d.seen {
				return 0, 0, false, nil
			}
		}
		w := *(*uint64)(at(d.used, 4+8*int(d.last&d.mask)))
		id, n = uint32(w), uint32(w>>32)
	}
	if id >= uint32(d.size) || d.slots[id].count == 0 {
		return 0, 0, false, fmt.Errorf("%w: the device returns buffer %d, which it does not have", ErrRing, id)
	}
	return uint16(id), n, true, nil
}

// returned reports whether the descriptor at last is used.
func (d *Driver) returned() bool {
	f := load32(word(d.desc, d.last)) >> 16
	return (f&flagAvail != 0) == d.lastWrap && (f&flagUsed != 0) == d.lastWrap
}

// Len returns the bytes of the first buffer of a chain.
func (d *Driver) Len(head uint16) uint32 { return d.slots[head].len }

// Take frees the chain that Used has returned, and appends its frames to dst.
func (d *Driver) Take(head uint16, dst []uint32) []uint32 {
	count := d.slots[head].count
	if d.packed {
		if d.last += count; d.last >= d.size {
			d.last -= d.size
			d.lastWrap = !d.lastWrap
		}
	} else {
		d.last++
	}
	return d.release(head, dst)
}

// release puts the slots of a chain into the free list.
func (d *Driver) release(head uint16, dst []uint32) []uint32 {
	last := head
	for i, count := uint16(0), d.slots[head].count; ; {
		s := &d.slots[last]
		if s.frame != NoFrame {
			dst = append(dst, s.frame)
		}
		s.frame, s.count = NoFrame, 0
		d.free++
		if i++; i == count {
			s.next = d.freeHead
			break
		}
		last = s.next
	}
	d.freeHead = head
	return dst
}

// Reclaim frees all chains, for a device that has none of them any more, and appends their frames to dst.
func (d *Driver) Reclaim(dst []uint32) []uint32 {
	for i := range d.slots {
		if d.slots[i].count > 0 {
			dst = d.release(uint16(i), dst)
		}
	}
	return dst
}

// Frames calls visit for each frame that the device has.
func (d *Driver) Frames(visit func(frame uint32)) {
	for i := range d.slots {
		if f := d.slots[i].frame; f != NoFrame {
			visit(f)
		}
	}
}

// Pending reports whether the device has returned a chain that was not taken.
func (d *Driver) Pending() bool {
	if d.packed {
		return d.returned()
	}
	return d.last != d.seen || load16(at(d.used, 2)) != d.last
}

// WantCall asks the device to call when it returns the next chain, and reports whether it has returned one already.
func (d *Driver) WantCall() (pending bool) {
	d.quiet = false
	switch {
	case d.packed && d.eventIdx:
		store32(d.avail, uint32(d.last|wrapBit(d.lastWrap))|packedAt<<16)
	case d.packed:
		store32(d.avail, packedAlways<<16)
	case d.eventIdx:
		replace16(at(d.avail, 4+2*int(d.size)), d.asked, d.last)
		d.asked = d.last
	default:
		d.flags = 0
		store32(d.avail, uint32(d.kicked)<<16)
	}
	return d.Pending()
}

// NeedNoCall suppresses calls of the device. With event indices of a split ring a call may come when the index is
// passed again, 65536 chains later.
func (d *Driver) NeedNoCall() {
	switch {
	case d.quiet:
		return
	case d.packed:
		store32(d.avail, packedNever<<16)
	case !d.eventIdx:
		d.flags = splitQuiet
		store32(d.avail, splitQuiet|uint32(d.kicked)<<16)
	}
	d.quiet = true
}

// NextSlot returns a number below the size that no chain has which the device has: that of the next one.
func (d *Driver) NextSlot() uint16 { return d.freeHead }

// Frame returns the frame of the first buffer of a chain.
func (d *Driver) Frame(head uint16) uint32 { return d.slots[head].frame }
