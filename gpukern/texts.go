package gpukern

import (
	"encoding/binary"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// What OpLiterals looks through, exactly. The engine on the CPU, the list for the kernels and the
// kernels themselves agree on each of these sentences; reference.go says them once more.
//
//   - The text of a packet begins at Payload, where there is none at L4, and where there is neither
//     there is no text: packets that are not IP, malformed ones, those whose transport header is cut
//     off, and fragments other than the first.
//   - It ends where IP says (the inner IP under FlagTunnel) or, where bytes are missing, with the
//     bytes: padding is no text. The pieces of a packet (FlagMore) are one text.
//   - Where streams are remembered and the packet has a flow, the text goes on from the one before it
//     in the same direction of the flow. A packet without a text changes nothing.
//   - A match belongs to the packet in which the literal ends. The limit counts the matches of a packet,
//     in the order of their ends and then of their rules.

// Texts walks over the texts of a batch after the header pass:
//
//	for t.Begin(b, streams); t.Next(); { look through t.Bytes, which goes on from t.Tail() }
//
// One Texts may walk over many batches; it allocates nothing.
type Texts struct {
	D     int    // index of the descriptor
	From  int    // offset of the text's first byte from the first byte of the descriptor
	Bytes []byte // the text, or the piece of it that this descriptor has; not empty; borrowed
	First bool   // whether it is the first piece of its packet

	b       *packet.Batch
	streams *Streams
	tail    *tail // what lies in front of Bytes; nil until the packet has shown a text
	chain   tail  // tail of packets that belong to no stream
	next    int   // the descriptor to go on with
	more    bool  // it continues the packet of the one before
	head    int   // the packet's first descriptor
	at      int   // offset of the next descriptor's bytes in the packet
	start   int   // of the packet's text
	end     int
}

// Begin makes t stand in front of the first text of b, which the header pass has been over. streams
// may be nil: then every packet is a text of its own.
func (t *Texts) Begin(b *packet.Batch, streams *Streams) {
	t.b, t.streams = b, streams
	t.next, t.more, t.Bytes = 0, false, nil
}

// Tail borrows the last bytes, at most TailLen, of what Bytes goes on from. They stay until Next.
func (t *Texts) Tail() []byte { return t.tail.bytes() }

// Next goes to the next text, or the next piece of one, and reports whether there is any. The streams
// know of all the texts of the batch when it has returned false.
func (t *Texts) Next() bool {
	if t.Bytes != nil && (t.more || t.tail != &t.chain) {
		t.tail.push(t.Bytes)
	}
	for t.Bytes = nil; t.Bytes == nil && t.next < len(t.b.D); t.next++ {
		d, p := &t.b.D[t.next], t.b.Bytes(t.next)
		if !t.more {
			t.head, t.at, t.tail = t.next, 0, nil
			t.start, t.end = textBounds(d, p)
		}
		from, to := max(t.start-t.at, 0), min(t.end-t.at, len(p))
		if from < to {
			t.D, t.From, t.Bytes, t.First = t.next, from, p[from:to:to], t.tail == nil
			t.follow()
		}
		t.at += len(p)
		t.more = d.Flags&packet.FlagMore != 0
	}
	return t.Bytes != nil
}

// follow finds what the first piece of a packet goes on from.
func (t *Texts) follow() {
	if !t.First {
		return
	}
	if t.streams != nil {
		t.tail = t.streams.find(&t.b.D[t.head], t.b.Bytes(t.head))
	}
	if t.tail == nil {
		t.tail, t.chain.n = &t.chain, 0
	}
}

// textBounds returns where the text of a packet begins and ends, counted from its first byte: d is its
// first descriptor, after the header pass, and p the bytes of that. The end may lie behind the last
// byte there is. Where there is no text, the end is 0.
func textBounds(d *packet.Desc, p []byte) (start, end int) {
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
