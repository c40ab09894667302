package packet

// Arena is the view of memory that descriptors point into: equal frames, one after the other.
// The memory belongs to its maker (ring.Arena). A view is only read.
type Arena struct {
	Mem   []byte // outside of the Go heap, page-aligned, a whole number of frames
	Shift uint8  // the frame size is 1<<Shift bytes
}

// FrameSize returns the size of a frame in bytes.
func (a *Arena) FrameSize() int { return 1 << a.Shift }

// Frames returns the number of frames.
func (a *Arena) Frames() int { return len(a.Mem) >> a.Shift }

// Bytes borrows the bytes that d describes. It panics when d points outside of the arena, which
// only a broken driver can cause. The capacity ends with the packet: an append must not write over
// the frame behind it.
func (a *Arena) Bytes(d *Desc) []byte {
	end := uint64(d.Off) + uint64(d.Len)
	return a.Mem[d.Off:end:end]
}

// Frame returns the index of the frame that the byte offset off lies in.
func (a *Arena) Frame(off uint32) uint32 { return off >> a.Shift }

// Headroom returns the bytes between the start of d's frame and the packet: room for a header that
// is pushed in front.
func (a *Arena) Headroom(d *Desc) int { return int(d.Off & (1<<a.Shift - 1)) }

// Tailroom returns the bytes between the packet's end and the end of its frame.
func (a *Arena) Tailroom(d *Desc) int { return a.FrameSize() - a.Headroom(d) - int(d.Len) }

// BatchSize is the usual capacity of a batch: large enough that the cost of a hand-off vanishes
// (1.9 ns against 72 ns a packet), small enough that 256 header lines stay in the first-level cache.
const BatchSize = 256

// Batch is a list of packets in one arena. One type serves receive, transmit, offload, capture and
// replay. Who holds a batch owns its frames.
type Batch struct {
	Arena *Arena
	Base  int64  // clock at the last receive into this batch, ns; Desc.Stamp is read relative to it
	D     []Desc // the packets; cap(D) bounds them

	// Matches are the literals that an engine found in the payloads, by packet and, within one, by End
	// and then by Rule. The engine truncates the slice and appends to it, so that its memory is reused.
	Matches []Match

	// Searched names the literals that Matches are of (gpukern/literal.Set.ID); 0 is none. A reader that has replaced the
	// literals compares it: batches that were submitted before come back with matches of the old ones.
	Searched uint64
}

// Match is a literal that ends in the payload of a packet.
type Match struct {
	D    uint32 // index in Batch.D of the descriptor in whose bytes the literal ends
	Rule uint32 // number of the literal's rule, from 1; 0: the packet has more matches than are listed
	End  uint32 // offset behind the literal's last byte, from the first byte of that descriptor
}

// NewBatch returns an empty batch of at most n packets in a.
func NewBatch(a *Arena, n int) *Batch { return &Batch{Arena: a, D: make([]Desc, 0, n)} }

// Len returns the number of descriptors.
func (b *Batch) Len() int { return len(b.D) }

// Room returns how many descriptors the batch still holds.
func (b *Batch) Room() int { return cap(b.D) - len(b.D) }

// Reset empties the batch. The frames must have another owner by then, or they are lost to every pool.
func (b *Batch) Reset() { b.D = b.D[:0] }

// Append adds d and takes its frame. The caller has checked Room: beyond it Append would allocate, and
// the batch would no longer use the memory that its owner sized.
func (b *Batch) Append(d Desc) { b.D = append(b.D, d) }

// Bytes borrows the bytes of packet i.
func (b *Batch) Bytes(i int) []byte { return b.Arena.Bytes(&b.D[i]) }

// Time returns the arrival of packet i in nanoseconds of the clock that Base was read from. A Stamp
// has the low 32 bits of it, which repeat every 4.3 s: the result is right for packets that arrived
// within 2.1 s of Base.
func (b *Batch) Time(i int) int64 { return b.Base + int64(int32(b.D[i].Stamp-uint32(b.Base))) }

// Consume drops the first n descriptors, which another owner has taken, and moves the rest to the
// front.
func (b *Batch) Consume(n int) {
	rest := copy(b.D, b.D[n:])
	b.D = b.D[:rest]
}
