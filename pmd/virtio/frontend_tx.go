package virtio

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd/virtio/vring"
)

// Tx implements pmd.Driver. The back end reads the frames themselves, which return to the pool in a later call of Rx or Tx.
func (q *FrontendQueue) Tx(now clock.Time, b *packet.Batch) (n int, err error) {
	if busy, err := q.enter("tx"); busy || err != nil {
		return 0, err
	}
	defer q.mu.Unlock()
	if !q.reclaim() || !q.flush() {
		return 0, nil
	}
	for n < len(b.D) {
		k := packet.Chain(b.D[n:])
		if k == 0 {
			break // an incomplete packet is the caller's
		}
		d := b.D[n:][:k]
		how := q.transmit(d)
		if how == waits {
			break
		}
		if how == invalid {
			q.count.Refuse(d)
			q.put(d)
		}
		n += k
	}
	q.publish()
	q.count.Tx(b.D[:n])
	return n, nil
}

func (q *FrontendQueue) put(d []packet.Desc) {
	for i := range d {
		q.pool.Put(d[i].Off)
	}
}

// publish shows the back end what was added, and notifies it where it wants that.
func (q *FrontendQueue) publish() {
	if q.out.Publish() {
		q.count.Wakeups.Add(1)
		signal(q.kick[fromDriverRing])
	}
}

// reclaim returns the frames to the pool that the back end has sent. False: it broke the ring.
func (q *FrontendQueue) reclaim() bool {
	for {
		head, _, ok, err := q.out.Used()
		if err != nil {
			q.broken(err)
			return false
		}
		if !ok {
			return true
		}
		q.done = q.out.Take(head, q.done[:0])
		for _, off := range q.done {
			q.pool.Put(off)
		}
	}
}

// transmit adds one packet to the ring, or has it cut first.
func (q *FrontendQueue) transmit(d []packet.Desc) outcome {
	_, size := packet.Count(d)
	n := int(size)
	h := headerOf(q.mem, &d[0])
	if n > maxLarge || len(d)+1 > q.dev.cfg.Ring {
		return invalid
	}
	if h.gso == packet.GSONone && (n < 14 || n > q.dev.cfg.MTU+14 && n > limit(q.mem.Bytes(&d[0]), q.dev.cfg.MTU)) {
		return invalid
	}
	if h.complete() || q.takes.takes(&h) {
		return q.add(d, &h)
	}
	if h.gso != packet.GSONone {
		q.big = q.mem.Gather(q.big[:0], d, maxLarge)
		if !startCut(&q.cut, q.big, &h) {
			return invalid
		}
		q.put(d)
		q.flush()
		return sent
	}
	if len(d)+1 > q.out.Free() {
		return waits
	}
	if !completeChecksum(q.mem, d, &h) {
		return invalid
	}
	return q.add(d, &header{})
}

// add makes a packet available. Its header lies in front of it, where the frame has room, and elsewhere otherwise.
func (q *FrontendQueue) add(d []packet.Desc, h *header) outcome {
	if len(d)+1 > q.out.Free() {
		return waits
	}
	h.buffers = 0 // of packets to the driver only
	q.items = q.items[:0]
	for i := range d {
		frame := d[i].Off &^ (1<<q.mem.Shift - 1)
		q.items = append(q.items, vring.Item{Addr: arenaBase + uint64(d[i].Off), Len: uint32(d[i].Len), Frame: frame})
	}
	n := uint32(q.header)
	if q.mem.Headroom(&d[0]) >= q.header {
		first := &q.items[0]
		first.Addr -= uint64(n)
		first.Len += n
		h.put(q.mem.Mem[d[0].Off-n:][:n])
	} else {
		slot := int(q.out.NextSlot()) * headerSlot
		h.put(q.slots[slot:][:n])
		place := q.place[fromDriverRing]
		addr := ringsBase + uint64((2*q.id+fromDriverRing)*len(place)+len(place)-len(q.slots)+slot)
		q.items = append(q.items, vring.Item{})
		copy(q.items[1:], q.items)
		q.items[0] = vring.Item{Addr: addr, Len: n, Frame: vring.NoFrame}
	}
	q.out.Add(q.items, false)
	return sent
}

// flush adds what is left of a packet that is being segmented, and reports whether nothing is.
func (q *FrontendQueue) flush() bool {
	for q.cut.Active() {
		size := q.mem.FrameSize()
		frames := (q.dev.cfg.Headroom + q.cut.Payload + q.cut.MSS() + size - 1) / size
		if frames > q.pool.Free() || frames+1 > q.out.Free() {
			q.publish()
			return false
		}
		var d [maxLarge/2048 + 2]packet.Desc
		head, payload := q.cut.Build()
		q.add(q.frames(d[:0], head, payload, 0), &header{})
		q.cut.Next()
	}
	return true
}

// frames copies a segment to frames of the pool, of which there are enough, and appends their descriptors.
func (q *FrontendQueue) frames(d []packet.Desc, head, payload []byte, stamp uint32) []packet.Desc {
	parts := [2][]byte{head, payload}
	at, room, size := 0, q.dev.cfg.Headroom, q.mem.FrameSize()
	for left := len(head) + len(payload); left > 0; {
		off, _ := q.pool.Get()
		one := packet.Desc{Off: off + uint32(room), Len: uint16(min(left, size-room)), Stamp: stamp}
		if left -= int(one.Len); left > 0 {
			one.Flags = packet.FlagMore
		}
		d = append(d, one)
		gather(q.mem.Bytes(&one), parts[:], at)
		at += int(one.Len)
		room = 0
	}
	return d
}
