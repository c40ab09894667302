package gpukern

import (
	"encoding/binary"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// What OpLiterals searches, exactly. The engine on the CPU, the list for the kernels and the kernels themselves
// agree on each of these rules; internal/kernref has them once more.
//
//   - The window of a packet into its stream begins at Payload, or at L4 where there is no Payload. Packets
//     with neither have no window: those that are not IP, malformed ones, those whose transport header is cut
//     off, and fragments other than the first.
//   - It ends where IP says or, where bytes are missing, with the last byte
//     captured. Padding is outside. The descriptors of a packet (FlagMore) share one window.
//   - Where streams are followed and the packet has a flow, the window continues the one before it in the same
//     direction of the flow: CarryOver has the bytes before it. A packet without a window changes nothing.
//   - A match belongs to the packet in which the literal ends. The limit counts the matches of a packet,
//     in the order of their ends and then of their rules.

// StreamWindows iterates over the windows of a batch after the header pass:
//
//	for t.Begin(b, streams); t.Next(); { search t.Bytes, which continues t.CarryOver() }
//
// One StreamWindows serves many batches. It allocates nothing.
type StreamWindows struct {
	D     int    // index of the descriptor
	From  int    // offset of Bytes in the bytes of the descriptor
	Bytes []byte // the window, or the part of it that this descriptor has; not empty; borrowed
	First bool   // whether it is the first part of its packet

	b       *packet.Batch
	streams *Streams
	carry   *carryOver // the bytes before Bytes; nil until the packet has had a part
	pieces  carryOver  // carry-over between the descriptors of a packet without a stream
	next    int        // the descriptor to go on with
	more    bool       // it continues the packet of the one before
	head    int        // the packet's first descriptor
	at      int        // offset of the next descriptor's bytes in the packet
	start   int        // of the packet's window
	end     int
}

// Begin starts over before the first window of b, which the header pass has processed. With nil streams no
// packet continues another.
func (t *StreamWindows) Begin(b *packet.Batch, streams *Streams) {
	t.b, t.streams = b, streams
	t.next, t.more, t.Bytes = 0, false, nil
}

// CarryOver borrows the bytes before Bytes in the stream, at most CarryOverLen. They are valid until Next.
func (t *StreamWindows) CarryOver() []byte { return t.carry.bytes() }

// Next goes to the next window, or the next part of one, and reports whether there is one. Once it has
// returned false the streams have the bytes of all windows of the batch.
func (t *StreamWindows) Next() bool {
	if t.Bytes != nil && (t.more || t.carry != &t.pieces) {
		t.carry.push(t.Bytes)
	}
	for t.Bytes = nil; t.Bytes == nil && t.next < len(t.b.D); t.next++ {
		d, p := &t.b.D[t.next], t.b.Bytes(t.next)
		if !t.more {
			t.head, t.at, t.carry = t.next, 0, nil
			t.start, t.end = windowBounds(d, p)
		}
		from, to := max(t.start-t.at, 0), min(t.end-t.at, len(p))
		if from < to {
			t.D, t.From, t.Bytes, t.First = t.next, from, p[from:to:to], t.carry == nil
			t.follow()
		}
		t.at += len(p)
		t.more = d.Flags&packet.FlagMore != 0
	}
	return t.Bytes != nil
}

// follow finds the carry-over of the first part of a packet.
func (t *StreamWindows) follow() {
	if !t.First {
		return
	}
	if t.streams != nil {
		t.carry = t.streams.find(&t.b.D[t.head], t.b.Bytes(t.head))
	}
	if t.carry == nil {
		t.carry, t.pieces.n = &t.pieces, 0
	}
}

// windowBounds returns where the window of a packet begins and ends, counted from its first byte: d is its
// first descriptor, after the header pass, and p the bytes of that. The end may lie beyond the last
// captured byte. Without a window the end is 0.
func windowBounds(d *packet.Desc, p []byte) (start, end int) {
	start = int(d.Payload)
	if start == 0 {
		start = int(d.L4)
	}
	if start == 0 {
		return 0, 0
	}
	if d.Flags&packet.FlagIPv4 != 0 {
		return start, int(d.L3) + int(binary.BigEndian.Uint16(p[int(d.L3)+2:]))
	}
	return start, int(d.L3) + wire.IPv6Len + int(binary.BigEndian.Uint16(p[int(d.L3)+4:]))
}

// Window returns the bytes of p that OpLiterals searches, from and up to an offset; d is the only descriptor of the
// packet, after the header pass, and p its bytes. Both are 0 where nothing is searched.
func Window(d *packet.Desc, p []byte) (from, to int) {
	from, to = windowBounds(d, p)
	to = min(to, len(p))
	if d.Flags&packet.FlagMore != 0 || from >= to {
		return 0, 0
	}
	return from, to
}

// MatchReader passes the matches of a batch by packet.
type MatchReader struct{ next int }

// Of borrows the matches of descriptor i, which is behind the one of the call before, or the first of a batch.
func (r *MatchReader) Of(b *packet.Batch, i int) []packet.Match {
	if i == 0 || r.next > len(b.Matches) {
		r.next = 0
	}
	for r.next < len(b.Matches) && int(b.Matches[r.next].D) < i {
		r.next++
	}
	from := r.next
	for r.next < len(b.Matches) && int(b.Matches[r.next].D) == i {
		r.next++
	}
	return b.Matches[from:r.next:r.next]
}
