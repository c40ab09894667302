package vring

import (
	"fmt"
	"math/bits"
	"unsafe"
)

// Config describes a virtqueue. The addresses are those of vhost-user: user addresses of the process that made it.
type Config struct {
	Size     int  // descriptors: a power of two up to MaxSize, of packed rings any number
	Packed   bool // the form of the ring
	EventIdx bool // VIRTIO_F_EVENT_IDX was accepted
	Indirect bool // VIRTIO_F_INDIRECT_DESC was accepted

	Memory             *Memory
	Desc, Avail, Used  uint64 // of packed rings the descriptors, the driver's and the device's event suppression
	NextAvail, NextUse uint16 // where to begin: indices; of packed rings with the wrap counter in bit 15

	// Resume begins a split ring behind the last used buffer, whatever NextAvail is. A device that uses buffers in order loses and
	// repeats none by it where another one, which has gone, used the ring before.
	Resume bool
}

// MaxSize is the largest size of a virtqueue (virtio 1.2, 2.6).
const MaxSize = 32768

// Device is the device's side of a virtqueue. It belongs to one goroutine at a time.
type Device struct {
	mem                *Memory
	desc, avail, used  unsafe.Pointer
	size, mask         uint16
	packed             bool
	eventIdx, indirect bool

	next     uint16 // of the chain to take: split: a count; packed: a place in the ring
	wrap     bool   // packed: the wrap counter there
	seen     uint16 // split: the driver's index as last loaded
	use      uint16 // of the next used buffer, like next
	useWrap  bool
	called   uint16 // use when the driver was last called
	asked    uint16 // split: avail_event as last stored
	usedFlag uint16 // split: flags of the used ring as last stored
	quiet    bool   // the driver need not notify

	// first is the used descriptor of a packed ring that makes all behind it visible: it is stored last.
	first     unsafe.Pointer
	firstWord uint32
}

// NewDevice checks a configuration and returns the device's side of the ring. Nothing of the ring is accessed yet.
func NewDevice(cfg Config) (*Device, error) {
	if cfg.Size < 1 || cfg.Size > MaxSize || !cfg.Packed && bits.OnesCount(uint(cfg.Size)) != 1 {
		return nil, fmt.Errorf("%w: its size is %d", ErrRing, cfg.Size)
	}
	n := cfg.Size
	d := &Device{
		mem: cfg.Memory, size: uint16(n), mask: uint16(n - 1), packed: cfg.Packed, eventIdx: cfg.EventIdx, indirect: cfg.Indirect,
		next: cfg.NextAvail, use: cfg.NextUse,
	}
	avail, used := splitAvailLen(n), splitUsedLen(n)
	if cfg.Packed {
		avail, used = 4, 4
		d.next, d.wrap = cfg.NextAvail&0x7fff, cfg.NextAvail>>15 != 0
		d.use, d.useWrap = cfg.NextUse&0x7fff, cfg.NextUse>>15 != 0
		if int(d.next) >= n || int(d.use) >= n {
			return nil, fmt.Errorf("%w: it begins at %d, %d of %d", ErrRing, d.next, d.use, n)
		}
	}
	d.seen, d.called = d.next, d.use
	var err error
	if d.desc, err = cfg.Memory.user("descriptors", cfg.Desc, n*descSize, 16); err != nil {
		return nil, err
	}
	// The specification aligns the available ring to 2 bytes; all drivers lay it out behind the descriptors, at a multiple of 4.
	if d.avail, err = cfg.Memory.user("available ring", cfg.Avail, avail, 4); err != nil {
		return nil, err
	}
	if d.used, err = cfg.Memory.user("used ring", cfg.Used, used, 4); err != nil {
		return nil, err
	}
	if cfg.Resume && !cfg.Packed {
		d.next = load16(at(d.used, 2))
		d.use, d.seen, d.called = d.next, d.next, d.next
	}
	return d, nil
}

// splitAvailLen and splitUsedLen are the bytes of the parts of a split ring of n descriptors (2.7), with two at the end so that
// the event index is a whole word.
func splitAvailLen(n int) int { return 4 + 2*n + 2 + 2 }
func splitUsedLen(n int) int  { return 4 + 8*n + 2 + 2 }

// Size returns the number of descriptors.
func (d *Device) Size() int { return int(d.size) }

// Base returns where another device would go on: NextAvail and NextUse of Config.
func (d *Device) Base() (avail, use uint16) {
	if !d.packed {
		return d.next, d.use
	}
	return d.next | wrapBit(d.wrap), d.use | wrapBit(d.useWrap)
}

func wrapBit(wrap bool) uint16 {
	if wrap {
		return 1 << 15
	}
	return 0
}

// Pending reports whether the driver has made a chain available that was not taken.
func (d *Device) Pending() bool {
	if d.packed {
		return d.available()
	}
	return d.next != d.seen || load16(at(d.avail, 2)) != d.next
}

// Take fills c with the next chain, which is the caller's until Return; false means that there is none. The error is an ErrRing:
// the ring cannot be used any more. A chain with Err has to be returned as well.
func (d *Device) Take(c *Chain) (bool, error) {
	if d.packed {
		return d.takePacked(c)
	}
	return d.takeSplit(c)
}

// Mark is a position of Take.
type Mark struct {
	next uint16
	wrap bool
}

// Mark returns the position of the next Take.
func (d *Device) Mark() Mark { return Mark{d.next, d.wrap} }

// Rewind makes Take go on at m, where no chain taken since was returned.
func (d *Device) Rewind(m Mark) { d.next, d.wrap = m.next, m.wrap }

// takeSplit reads the head of the next chain in the available ring. The index is loaded before the entries that it covers (2.7.13).
func (d *Device) takeSplit(c *Chain) (bool, error) {
	if d.next == d.seen {
		d.seen = load16(at(d.avail, 2))
		if ahead := d.seen - d.next; ahead > d.size {
			d.seen = d.next
			return false, fmt.Errorf("%w: its available index is %d ahead, of %d descriptors", ErrRing, ahead, d.size)
		}
		if d.next == d.seen {
			return false, nil
		}
	}
	head := *(*uint16)(at(d.avail, 4+2*int(d.next&d.mask)))
	if head >= d.size {
		return false, fmt.Errorf("%w: descriptor %d of %d is available", ErrRing, head, d.size)
	}
	d.next++
	c.reset(head, 1)
	d.walk(c, d.desc, d.size, head, true)
	return true, nil
}

// walk follows a chain from descriptor i of a table of limit descriptors. A chain has as many descriptors as the ring at most (2.7.5.3.1),
// which ends loops.
func (d *Device) walk(c *Chain, table unsafe.Pointer, limit, i uint16, outer bool) {
	for {
		e := loadDescriptor(at(table, descSize*int(i)))
		if e.low&flagIndirect != 0 {
			switch {
			case !d.indirect || !outer:
				c.fail("an indirect table where none may be")
			case e.low&flagNext != 0:
				c.fail("an indirect table with a successor") // 2.7.5.3.1
			default:
				if t := c.table(d.mem, e, d.size); t != nil {
					d.walk(c, unsafe.Pointer(&t[0]), uint16(len(t)/descSize), 0, false)
				}
			}
			return
		}
		if c.count++; c.count > int(d.size) {
			c.fail("more than %d descriptors, or a loop", d.size)
			return
		}
		if !c.add(d.mem, e.addr, e.length, e.low&flagWrite != 0) || e.low&flagNext == 0 {
			return
		}
		if i = e.high; i >= limit {
			c.fail("it goes on at descriptor %d of %d", i, limit)
			return
		}
	}
}

// Return returns a chain to the driver, into which n bytes were written. The driver sees it after Publish.
func (d *Device) Return(c *Chain, n uint32) {
	if d.packed {
		d.returnPacked(c, n)
		return
	}
	*(*uint64)(at(d.used, 4+8*int(d.use&d.mask))) = uint64(c.id) | uint64(n)<<32
	d.use++
}

// Publish makes the returned chains visible, all at once, and reports whether the driver wants to be called for them.
func (d *Device) Publish() (call bool) {
	if d.use == d.called && d.first == nil {
		return false
	}
	if d.packed {
		return d.publishPacked()
	}
	// The store is a full barrier: the driver's wish is loaded behind it (2.7.7.2).
	store32(d.used, uint32(d.usedFlag)|uint32(d.use)<<16)
	old := d.called
	d.called = d.use
	if d.eventIdx {
		return needEvent(load16(at(d.avail, 4+2*int(d.size))), d.use, old)
	}
	return load16(d.avail)&splitQuiet == 0
}

// WantNotify asks the driver to notify of the next chain, and reports whether there is one already: then no notification
// may come for it.
func (d *Device) WantNotify() (pending bool) {
	d.quiet = false
	switch {
	case d.packed && d.eventIdx:
		store32(d.used, uint32(d.next|wrapBit(d.wrap))|packedAt<<16)
	case d.packed:
		store32(d.used, packedAlways<<16)
	case d.eventIdx:
		replace16(at(d.used, 4+8*int(d.size)), d.asked, d.next)
		d.asked = d.next
	default:
		d.usedFlag = 0
		store32(d.used, uint32(d.called)<<16)
	}
	return d.Pending()
}

// NeedNoNotify suppresses notifications of the driver. With event indices it does nothing: an index that stays behind
// suppresses them.
func (d *Device) NeedNoNotify() {
	if d.quiet || d.eventIdx {
		return
	}
	d.quiet = true
	if d.packed {
		store32(d.used, packedNever<<16)
		return
	}
	d.usedFlag = splitQuiet
	store32(d.used, splitQuiet|uint32(d.called)<<16)
}
