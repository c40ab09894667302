package vring

import "unsafe"

// RunSize is the number of buffers of a Run at most.
const RunSize = 64

// Run is a number of buffers in a row of one descriptor each, in one region of the guest's memory each: the usual form of small
// packets. Those to read have been loaded, all before the caller needs one: a load that misses the cache waits for none of the
// others.
type Run struct {
	N    int
	buf  [RunSize]unsafe.Pointer
	size [RunSize]uint32
	id   [RunSize]uint16
	sum  byte // keeps the loads
}

// Bytes borrows buffer i.
func (r *Run) Bytes(i int) []byte { return unsafe.Slice((*byte)(r.buf[i]), r.size[i]) }

// TakeRun fills r with the next buffers that need no chain: at most so many of them, which the device writes or reads, of least bytes
// or more, which is one or more. Whatever differs ends the run and is for Take, errors too.
func (d *Device) TakeRun(r *Run, most int, write bool, least uint32) int {
	r.N = 0
	most = min(most, RunSize)
	if d.packed {
		d.packedRun(r, most, write, least)
	} else {
		d.splitRun(r, most, write, least)
	}
	if !write { // a load before a store would fetch the line twice: to be shared, and then to be owned
		r.load()
	}
	return r.N
}

// load loads the first two cache lines of each buffer: a header, and a small packet.
func (r *Run) load() {
	sum := byte(0)
	for i, p := range r.buf[:r.N] {
		sum += *(*byte)(p) + *(*byte)(at(p, int(min(r.size[i]-1, 64))))
	}
	r.sum = sum
}

func (d *Device) splitRun(r *Run, most int, write bool, least uint32) {
	if most > int(d.seen-d.next) {
		seen := load16(at(d.avail, 2)) // before the entries that it covers (2.7.13)
		if seen-d.next > d.size {
			return // Take reports it
		}
		d.seen = seen
		most = min(most, int(seen-d.next))
	}
	want := uint16(0)
	if write {
		want = flagWrite
	}
	for i := range most {
		head := *(*uint16)(at(d.avail, 4+2*int((d.next+uint16(i))&d.mask)))
		if head >= d.size {
			break
		}
		e := loadDescriptor(at(d.desc, descSize*int(head)))
		if e.low != want || !r.put(d.mem, i, &e, least) {
			break
		}
		r.id[i], r.N = head, i+1
	}
	d.next += uint16(r.N)
}

// packedRun: the flags of a descriptor are loaded before its other fields (2.8.20).
func (d *Device) packedRun(r *Run, most int, write bool, least uint32) {
	want := uint16(0)
	if write {
		want = flagWrite
	}
	next, wrap := d.next, d.wrap
	for i := range most {
		p := at(d.desc, descSize*int(next))
		mark := uint16(flagUsed)
		if wrap {
			mark = flagAvail
		}
		if uint16(load32(at(p, 12))>>16) != mark|want {
			break
		}
		e := loadDescriptor(p)
		if !r.put(d.mem, i, &e, least) {
			break
		}
		r.id[i], r.N = e.low, i+1
		if next++; next == d.size {
			next, wrap = 0, !wrap
		}
	}
	d.next, d.wrap = next, wrap
}

// put stores the buffer of a descriptor as number i, and reports whether it can be part of a run.
func (r *Run) put(m *Memory, i int, e *descriptor, least uint32) bool {
	if e.length < least {
		return false
	}
	p := m.At(e.addr, e.length)
	if uint32(len(p)) != e.length {
		return false
	}
	r.buf[i], r.size[i] = unsafe.Pointer(unsafe.SliceData(p)), e.length
	return true
}

// Untake makes Take and TakeRun go on at buffer i of r, the last run taken, none of which behind it was returned.
func (d *Device) Untake(r *Run, i int) {
	back := uint16(r.N - i)
	r.N = i
	if d.packed && back > d.next {
		d.next, d.wrap = d.next+d.size, !d.wrap
	}
	d.next -= back
}

// ReturnRun returns the buffers of r, into which so many bytes were written, to the driver. It sees them after Publish.
func (d *Device) ReturnRun(r *Run, written []uint32) {
	for i, n := range written {
		id := r.id[i]
		if d.packed {
			d.returnOne(id, 1, n)
			continue
		}
		*(*uint64)(at(d.used, 4+8*int(d.use&d.mask))) = uint64(id) | uint64(n)<<32
		d.use++
	}
}
