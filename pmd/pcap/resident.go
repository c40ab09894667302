package pcap

import (
	"fmt"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// residentAlign is the alignment of packets in a frame: a cache line, so that the headers of two packets
// never share one, as on a device.
const residentAlign = 64

// resident is a lap of packets that lie in frames, as slices by descriptor: appendResident copies runs of d and
// reads the others only where it paces or stamps.
type resident struct {
	d     []packet.Desc
	time  []int64  // of the packet that d[i] is a piece of
	size  []int32  // of the packet that d[i] begins
	at    int      // next to receive
	frame []uint32 // offsets of the frames that the driver owns until Close
	owned []bool   // by frame index
	shift uint8    // of the frame size
}

// makeResident moves the packets of m into frames of the pool, several to a frame where they fit:
//
//	frame: | packet, 60 B | pad | packet, 1,514 B     | pad | next frame ...
//	       0              64                          1600
func (p *Driver) makeResident(m *memorySource) (*resident, error) {
	a := p.pool.Arena()
	r := &resident{owned: make([]bool, a.Frames()), shift: a.Shift}
	used := a.FrameSize() // bytes used in the last frame
	var k sourcePacket
	for m.next(&k) == nil {
		if k.size() > p.perFrame && p.cfg.DropLong {
			p.records.tooLong.Add(1)
			p.count.RxInvalid.Add(1)
			continue
		}
		for from := 0; from < k.size(); {
			n := min(k.size()-from, p.perFrame)
			if used+n > a.FrameSize() { // a piece never crosses frames, as on a device
				off, ok := p.pool.Get()
				if !ok {
					r.close(p.pool)
					return nil, p.tooSmall(len(m.bytes))
				}
				r.add(off)
				used = 0
			}
			off := r.frame[len(r.frame)-1] + uint32(used)
			k.copyTo(a.Mem[off:off+uint32(n)], from)
			d := packet.Desc{Off: off, Len: uint16(n), Stamp: uint32(k.time)}
			if from += n; from < k.size() {
				d.Flags = packet.FlagMore
			}
			r.d, r.time, r.size = append(r.d, d), append(r.time, k.time), append(r.size, int32(k.size()))
			used = (used + n + residentAlign - 1) &^ (residentAlign - 1)
		}
	}
	m.bytes = nil // a large capture would otherwise be in memory twice
	return r, nil
}

// tooSmall returns the error of a capture that is larger than the pool. Resident mode replays all packets or fails at Open:
// a part of them would change what is measured.
func (p *Driver) tooSmall(bytes int) error {
	return &pmd.OpError{
		Op: "load", Device: p.device(),
		Err:    fmt.Errorf("%d bytes of packets do not fit the %d frames of the pool", bytes, p.pool.Size()),
		Remedy: "give a larger arena, or preload instead of resident",
	}
}

// add makes a frame resident.
func (r *resident) add(off uint32) {
	r.frame = append(r.frame, off)
	r.owned[off>>r.shift] = true
}

// owns reports whether the frame at off is resident: such a frame never goes to the pool before Close, even when it is sent,
// because later laps have its packets again.
func (r *resident) owns(off uint32) bool { return r.owned[off>>r.shift] }

// Holds visits each resident frame.
func (r *resident) Holds(visit func(off uint32)) {
	for _, off := range r.frame {
		visit(off)
	}
}

// close returns the frames to the pool. Descriptors of batches that are still in use point into them.
func (r *resident) close(pool *ring.Pool) {
	for _, off := range r.frame {
		pool.Put(off)
		r.owned[off>>r.shift] = false
	}
	r.frame = nil
}

// appendResident appends descriptors of resident packets, across laps, until b is full or a packet is not due
// or too far from b.Base. The descriptors are copied in runs: 32 bytes are the whole cost of a packet, so that a replay
// measures what follows it and not itself.
func (p *Driver) appendResident(now clock.Time, b *packet.Batch) {
	for p.err == nil && b.Room() > 0 {
		if p.res.at == len(p.res.d) {
			p.lap.n = uint64(len(p.res.d))
			p.endLap(p.src.(*memorySource).err)
			p.res.at = 0
			continue
		}
		n := p.runLen(now, b)
		// Nothing fits, is due or within the range of a Stamp: a later call continues, unless the packet can never fit.
		if n == 0 {
			if !p.skipLong(cap(b.D)) {
				return
			}
			continue
		}
		from := len(b.D)
		b.D = append(b.D, p.res.d[p.res.at:p.res.at+n]...)
		if p.cfg.StampNow {
			restamp(b.D[from:], uint32(now))
		}
		p.res.at += n
	}
}

// skipLong skips a packet of more descriptors than a batch of the caller's size holds, and counts it: it would block the
// capture for ever. False means that the next packet is not such a one: it waits for room or for its time.
func (p *Driver) skipLong(most int) bool {
	n := packet.Chain(p.res.d[p.res.at:])
	if n <= most {
		return false
	}
	p.res.at += n
	p.ready = false
	p.records.tooLong.Add(1)
	p.count.RxInvalid.Add(1)
	return true
}

// runLen returns how many of the next descriptors may be received in one run: those for which b has room, whose times a
// Stamp can express, that make whole packets, and that are due by the rate.
func (p *Driver) runLen(now clock.Time, b *packet.Batch) int {
	r := p.res
	limit := min(b.Room(), len(r.d)-r.at)
	if p.cfg.StampNow {
		b.Base = int64(now)
	} else {
		// An empty batch takes the time of its first packet as Base; one that is not empty keeps its own.
		if len(b.D) == 0 {
			b.Base = r.time[r.at]
		}
		times := r.time[r.at : r.at+limit]
		for i, t := range times {
			if !withinStamp(t, b.Base) {
				limit = i
				break
			}
		}
	}
	// A chain that does not fit whole waits for the next batch.
	limit = packet.Whole(r.d[r.at:], limit)
	if p.cfg.Rate == (Rate{}) {
		return limit
	}
	return p.dueLen(now, limit)
}

// dueLen returns how many of the next limit descriptors are due. The pacer counts packets, so the descriptors of a chain
// are due together.
func (p *Driver) dueLen(now clock.Time, limit int) int {
	r := p.res
	for i := 0; i < limit; {
		if !p.ready {
			p.ready = true
			p.pace.add(&p.cfg.Rate, int(r.size[r.at+i]), r.time[r.at+i])
		}
		if !p.pace.due(&p.cfg.Rate, now) {
			return i
		}
		p.ready = false
		i += packet.Chain(r.d[r.at+i:])
	}
	return limit
}

// restamp sets the arrival of packets that are received at the caller's time. It writes to the copies in the batch; the
// resident descriptors keep their capture time.
func restamp(d []packet.Desc, stamp uint32) {
	for i := range d {
		d[i].Stamp = stamp
	}
}
