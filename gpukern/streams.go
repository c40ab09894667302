package gpukern

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/gpukern/flow"
	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// CarryOverLen is the number of bytes of a stream that are kept for literals that continue in the next window: one less than
// the longest literal has.
const CarryOverLen = literal.CarryOverLen

// carryOver is the last bytes of a stream.
type carryOver struct {
	mem [CarryOverLen]byte
	n   uint8 // how many of them there are, from the front
}

// bytes borrows the bytes of t.
func (t *carryOver) bytes() []byte { return t.mem[:t.n:t.n] }

// push appends p and keeps the last CarryOverLen bytes.
func (t *carryOver) push(p []byte) {
	if len(p) >= CarryOverLen {
		t.n = uint8(copy(t.mem[:], p[len(p)-CarryOverLen:]))
		return
	}
	keep := min(int(t.n), CarryOverLen-len(p))
	copy(t.mem[:keep], t.mem[int(t.n)-keep:t.n])
	t.n = uint8(keep + copy(t.mem[keep:], p))
}

// stream is the state of one direction of a flow.
type stream struct {
	owner uint64 // fingerprint of the flow; 0 where the place was never used
	carry carryOver
}

// Streams keep the last bytes of the payloads of flows, so that a literal is found that begins in one packet and
// ends in another. A stream is one direction of a flow. Its bytes are the payloads in the order of arrival:
// TCP sequence numbers are not read, so a retransmission counts twice and a gap is closed.
//
// Desc.Flow is the index of a stream. A fingerprint of addresses, ports and protocol identifies the flow that owns it:
// a flow that takes over the slot of another starts with nothing, whichever table assigned the slot (the CPU's,
// a GPU's, or the one that replaced it after a failure). A flow that timed out and comes back continues if
// nothing took its stream.
//
// Streams belong to one engine at a time. The memory lies outside of the Go heap: 72 bytes for a
// direction, taken from the system when a slot is used for the first time.
type Streams struct {
	mem  []byte
	of   []stream // by Desc.Flow
	seed [2]uint64
}

// MaxStreams is the largest number of slots.
const MaxStreams = 2 * flow.MaxFlows

// NewStreams returns streams for the flows in slots 1 to slots (flow.Table.Slots). It fails where the system has no
// memory, or slots is not between 1 and MaxStreams. The caller closes it.
func NewStreams(slots int) (*Streams, error) {
	if slots < 1 || slots > MaxStreams {
		return nil, fmt.Errorf("streams: %d slots: from 1 to %d are possible", slots, MaxStreams)
	}
	n := 2 * (slots + 1)
	size := n * int(unsafe.Sizeof(stream{}))
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("streams: %d bytes for %d slots: %w", size, slots, err)
	}
	return &Streams{
		mem:  mem,
		of:   unsafe.Slice((*stream)(unsafe.Pointer(&mem[0])), n),
		seed: [2]uint64{rand.Uint64(), rand.Uint64()},
	}, nil
}

// Close frees the memory. No engine may use s any more.
func (s *Streams) Close() error {
	mem := s.mem
	s.mem, s.of = nil, nil
	return unix.Munmap(mem)
}

// Slots returns the highest slot.
func (s *Streams) Slots() int { return len(s.of)/2 - 1 }

// find returns the carry-over of the stream that a packet belongs to, nil where it belongs to none. d is its
// first descriptor, after the header pass, and p the bytes of that.
func (s *Streams) find(d *packet.Desc, p []byte) *carryOver {
	if d.Flow < 2 || uint64(d.Flow) >= uint64(len(s.of)) {
		return nil
	}
	st := &s.of[d.Flow]
	if owner := s.fingerprint(d, p); st.owner != owner {
		st.owner, st.carry.n = owner, 0
	}
	return &st.carry
}

// fingerprint hashes what a flow is known by. It is keyed: who sends packets cannot make two flows
// alike.
func (s *Streams) fingerprint(d *packet.Desc, p []byte) uint64 {
	h := uint64(d.Proto)<<1 | 1
	mix := func(v uint64) {
		hi, lo := bits.Mul64(h^s.seed[0], v^s.seed[1])
		h = hi ^ lo
	}
	if d.Flags&packet.FlagIPv4 != 0 {
		mix(binary.BigEndian.Uint64(p[int(d.L3)+12:]))
	} else {
		addresses := p[int(d.L3)+8:][:32]
		for i := 0; i < 32; i += 8 {
			mix(binary.BigEndian.Uint64(addresses[i:]))
		}
	}
	if hasPorts(d) {
		mix(uint64(binary.BigEndian.Uint32(p[d.L4:])))
	}
	return max(h, 1)
}

// hasPorts reports whether the ports of a packet are part of what its flow is known by.
func hasPorts(d *packet.Desc) bool {
	if d.Payload == 0 || d.Flags&packet.FlagFragment != 0 {
		return false
	}
	return d.Proto == wire.ProtoTCP || d.Proto == wire.ProtoUDP || d.Proto == wire.ProtoSCTP
}
