package ebpf

import (
	"encoding/binary"
	"sync"
)

// front mirrors the map front4 of a process, which it alone writes: an array of verdicts on addresses, that the program
// reads without a call. An address whose place another one has is in exact4.
type front struct {
	mu    sync.Mutex
	slots map[uint32][4]byte // the addresses by place
}

// frontBits is FRONT_BITS of bpf/maps.h.
const frontBits = 16

// frontValue is struct front.
type frontValue struct {
	Addr [4]byte
	_    uint32
	verdictValue
}

// frontSlot returns the place of an address.
func frontSlot(a [4]byte) uint32 {
	return binary.NativeEndian.Uint32(a[:]) * 2654435769 >> (32 - frontBits)
}

// putFront enters a verdict, unless its place is taken. The program finds the address only once the verdict is there.
func (d *Defence) putFront(a [4]byte, v verdictValue) (placed bool, err error) {
	f := d.front
	f.mu.Lock()
	defer f.mu.Unlock()
	slot := frontSlot(a)
	has, taken := f.slots[slot]
	if taken && has != a || a == [4]byte{} {
		return false, nil
	}
	if !taken {
		if err := d.front4.Put(slot, frontValue{verdictValue: v}); err != nil {
			return false, err
		}
	}
	if err := d.front4.Put(slot, frontValue{Addr: a, verdictValue: v}); err != nil {
		return false, err
	}
	f.slots[slot] = a
	_ = d.exact4.Delete(a) // it is there where its place was taken before
	if taken {
		return true, nil
	}
	return true, d.used.Put(uint32(tableFront4), uint32(1))
}

// removeFront frees the place of an address.
func (d *Defence) removeFront(a [4]byte) error {
	f := d.front
	f.mu.Lock()
	defer f.mu.Unlock()
	slot := frontSlot(a)
	if has, ok := f.slots[slot]; !ok || has != a {
		return nil
	}
	if err := d.front4.Put(slot, frontValue{}); err != nil {
		return err
	}
	delete(f.slots, slot)
	if len(f.slots) > 0 {
		return nil
	}
	return d.used.Put(uint32(tableFront4), uint32(0))
}

// lookUpFront reads the verdict of an address in its place.
func (d *Defence) lookUpFront(table uint32, key any, w *verdictValue) (found bool, err error) {
	if d.front == nil || table != tableExact4 {
		return false, nil
	}
	a, v := key.([4]byte), frontValue{}
	err = d.front4.Lookup(frontSlot(a), &v)
	*w = v.verdictValue
	return err == nil && v.Addr == a, err
}

// walkFront calls visit for all places that are taken.
func (d *Defence) walkFront(visit func([4]byte, *verdictValue)) error {
	if d.front == nil {
		return nil
	}
	d.front.mu.Lock()
	slots := make([]uint32, 0, len(d.front.slots))
	for slot := range d.front.slots {
		slots = append(slots, slot)
	}
	d.front.mu.Unlock()
	for _, slot := range slots {
		var v frontValue
		if err := d.front4.Lookup(slot, &v); err != nil {
			return err
		}
		if v.Addr != [4]byte{} {
			visit(v.Addr, &v.verdictValue)
		}
	}
	return nil
}
