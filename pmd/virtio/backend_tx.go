package virtio

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd/virtio/vring"
)

// maxLarge is the length of the longest packet, bytes: IP's 64 KiB behind Ethernet and two tags.
const maxLarge = 65535 + 22

// outcome is the result of sending one packet.
type outcome uint8

const (
	sent    outcome = iota
	invalid         // it can never be sent
	waits           // the driver has no buffers for it now
)

// Tx implements pmd.Driver. Packets are copied to the driver's buffers, and their frames are the pool's again when it returns.
func (q *BackendQueue) Tx(now clock.Time, b *packet.Batch) (n int, err error) {
	if busy, err := q.enter("tx"); busy || err != nil {
		return 0, err
	}
	defer func() { // also after a fault: what the driver has got is gone
		q.count.Tx(b.D[:n])
		q.gone.D = b.D[:n]
		q.pool.PutBatch(&q.gone)
	}()
	defer q.leave(catchFaults())
	q.transmitAll(b, &n)
	return n, nil
}

// transmitAll sends packets of b while the driver has buffers, and counts their descriptors in n.
func (q *BackendQueue) transmitAll(b *packet.Batch, n *int) {
	if !q.flush() {
		return
	}
	for *n < len(b.D) {
		if k := q.transmitRun(b.D[*n:]); k > 0 {
			*n += k
			continue
		}
		k := packet.Chain(b.D[*n:])
		if k == 0 {
			break // an incomplete packet is the caller's
		}
		d := b.D[*n:][:k]
		how := q.transmit(d)
		if q.out == nil || how == waits { // nil: the ring broke
			break
		}
		if how == invalid {
			q.count.Refuse(d)
		}
		*n += k
	}
	q.publish(toDriverRing, q.out)
}

// transmit sends one packet.
func (q *BackendQueue) transmit(d []packet.Desc) outcome {
	_, size := packet.Count(d[:len(d):len(d)])
	n := int(size)
	h := headerOf(q.mem, &d[0])
	if h.gso == packet.GSONone {
		first := q.mem.Bytes(&d[0])
		if n < 14 || n > q.dev.cfg.MTU+14 && n > limit(first, q.dev.cfg.MTU) {
			return invalid
		}
	}
	if n > maxLarge {
		return invalid
	}
	if !h.complete() && !q.takes.takes(&h) {
		return q.transmitReduced(d, &h, n)
	}
	how := q.reserve(n)
	if how != sent {
		return how
	}
	q.cursor.header(&h, q.header)
	for i := range d {
		q.cursor.write(q.mem.Bytes(&d[i]))
	}
	q.commit()
	return sent
}

// transmitReduced sends a packet with work that the driver does not do itself: its checksum is completed, or it is cut into segments,
// which are sent now as far as there are buffers and later otherwise (flush).
func (q *BackendQueue) transmitReduced(d []packet.Desc, h *header, n int) outcome {
	if h.gso == packet.GSONone {
		how := q.reserve(n)
		if how != sent {
			return how
		}
		if !completeChecksum(q.mem, d, h) {
			q.unreserve()
			return invalid
		}
		q.cursor.header(&header{}, q.header)
		for i := range d {
			q.cursor.write(q.mem.Bytes(&d[i]))
		}
		q.commit()
		return sent
	}
	q.big = q.mem.Gather(q.big[:0], d, maxLarge)
	if !startCut(&q.cut, q.big, h) {
		return invalid
	}
	q.flush()
	return sent
}

// flush sends what is left of a packet that is being segmented, and reports whether nothing is.
func (q *BackendQueue) flush() bool {
	for q.cut.Active() {
		head, payload := q.cut.Build()
		switch q.reserve(len(head) + len(payload)) {
		case waits:
			q.publish(toDriverRing, q.out)
			return false
		case invalid: // the driver's buffers are too small: the rest of the packet would be of no use
			q.count.TxInvalid.Add(1)
			q.cut.Stop()
			return true
		}
		q.cursor.header(&header{}, q.header)
		q.cursor.write(head)
		q.cursor.write(payload)
		q.commit()
		q.cut.Next()
	}
	return true
}

// reserve takes buffers of the driver for a packet of n bytes and sets the cursor to their start. Where there are too few, none is taken.
func (q *BackendQueue) reserve(n int) outcome {
	c := &q.cursor
	c.mark = q.out.Mark()
	c.used = 0
	for room := 0; room < q.header+n; c.used++ {
		if c.used == 1 && !q.merge || c.used == len(q.chains) {
			q.unreserve()
			return invalid
		}
		chain := &q.chains[c.used]
		ok, err := q.out.Take(chain)
		switch {
		case err != nil:
			q.broken(err)
			return invalid
		case !ok:
			q.unreserve()
			return waits
		case chain.Err != nil || len(chain.In) > 0 || chain.OutLen() == 0:
			return q.refuse()
		}
		room += chain.OutLen()
	}
	c.start(q.chains[:c.used])
	return sent
}

// unreserve puts the buffers back.
func (q *BackendQueue) unreserve() { q.out.Rewind(q.cursor.mark) }

// refuse returns the buffers that were taken, of which the last is unusable, without a packet. The packet that they were for
// waits for others.
func (q *BackendQueue) refuse() outcome {
	for i := range q.chains[:q.cursor.used+1] {
		q.out.Return(&q.chains[i], 0)
	}
	return waits
}

// commit returns the buffers with the packet in them. The driver sees all of them or none (Publish).
func (q *BackendQueue) commit() {
	for i := range q.cursor.chains {
		q.out.Return(&q.chains[i], q.cursor.lens[i])
	}
}

// writer writes a packet to chains of buffers.
type writer struct {
	chains []vring.Chain
	lens   [maxMerge]uint32 // bytes written to each
	piece  []byte           // where the next byte goes
	chain  int
	index  int // of the piece behind
	mark   vring.Mark
	used   int
}

// start begins at the first byte of chains, which have room for what will be written.
func (w *writer) start(chains []vring.Chain) {
	w.chains, w.chain, w.index, w.piece = chains, 0, 0, nil
	for i := range chains {
		w.lens[i] = 0
	}
}

// write appends p.
func (w *writer) write(p []byte) {
	for len(p) > 0 {
		for len(w.piece) == 0 {
			if w.index == len(w.chains[w.chain].Out) {
				w.chain, w.index = w.chain+1, 0
				continue
			}
			w.piece = w.chains[w.chain].Out[w.index]
			w.index++
		}
		n := copy(w.piece, p)
		w.piece, p = w.piece[n:], p[n:]
		w.lens[w.chain] += uint32(n)
	}
}

// header appends the header of the packet.
func (w *writer) header(h *header, n int) {
	h.buffers = uint16(len(w.chains))
	var raw [maxHeader]byte
	h.put(raw[:n])
	w.write(raw[:n])
}
