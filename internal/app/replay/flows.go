package replay

import (
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// DefaultFlows is the number of flows that are counted unless Config says otherwise: 96 MiB of table.
const DefaultFlows = 1 << 20

// flowKey is a flow whatever its direction, in words that compare without jumps:
//
//	IPv4   address, port | address, port | 0       | 0       |        4, protocol
//	IPv6   address       | address       | address | address | ports, 6, protocol
//
// The lower of the two ends comes first.
type flowKey [5]uint64

// is reports whether k and l are the same flow.
func (k *flowKey) is(l *flowKey) bool {
	return (k[0]^l[0])|(k[1]^l[1])|(k[2]^l[2])|(k[3]^l[3])|(k[4]^l[4]) == 0
}

// hash adds up products of the words, each with a seed of its own in it. It is not the engine's hash,
// which leaves the ports out for fragments: a flow of which a packet is fragmented would be two.
func (k *flowKey) hash(seed *flowKey) uint64 {
	return mix(k[0]^seed[0], k[1]^seed[1]) ^ mix(k[2]^seed[2], k[3]^seed[3]) ^ mix(k[4], seed[4])
}

// mix folds a product of 128 bits into 64.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// flowSlot is a slot of the table.
type flowSlot struct {
	key          flowKey
	file         uint32 // the last file that it was seen in; 0 is an empty slot
	conversation uint32 // its index in flows.conversations, where those are counted
}

// flows counts flows exactly, up to a bound: a table with open addressing. Its seed is another in
// each run, so that no capture can be made whose flows all meet in one slot.
type flows struct {
	seed   flowKey
	slots  []flowSlot
	most   int
	used   int
	file   uint32
	inFile uint64 // flows of the present file
	beyond uint64 // packets of flows that found no room

	classify      bool           // to be recognised too
	converse      bool           // to be counted:
	conversations []conversation // of all flows, in the order of their first packets
	present       uint32         // the index of the conversation of the packet that is counted, or noConversation
}

// noConversation is no index of flows.conversations.
const noConversation = math.MaxUint32

func newFlows(most int) *flows {
	if most <= 0 {
		most = DefaultFlows
	}
	f := &flows{slots: make([]flowSlot, 1024), most: most, present: noConversation}
	for i := range f.seed {
		f.seed[i] = rand.Uint64()
	}
	return f
}

// begin starts the next file.
func (f *flows) begin() {
	f.file++
	f.inFile = 0
}

// add counts the flow of an IP packet p with headers as d says, of size bytes, captured at time at.
func (f *flows) add(p []byte, d *packet.Desc, size int, at int64) {
	var k flowKey
	k.read(p, d)
	s := f.find(&k)
	switch {
	case s == nil:
		f.beyond++
	case !f.converse:
	default:
		if int(s.conversation) == len(f.conversations) { // a new flow
			f.conversations = append(f.conversations, conversation{key: k, reversed: reversed(p, d), first: at, last: at})
			if f.classify {
				f.conversations[s.conversation].application = &application{}
			}
		}
		f.present = s.conversation
		c := &f.conversations[s.conversation]
		way := c.count(reversed(p, d), size, at)
		if c.application != nil {
			c.application.packet(p, d, way)
		}
	}
}

// find returns the slot of a flow, a new one where it has none, or nil beyond the bound of the table. A new flow has the
// index of the next conversation. The slot holds until the next call.
func (f *flows) find(k *flowKey) *flowSlot {
	mask := uint64(len(f.slots) - 1)
	for at := k.hash(&f.seed) & mask; ; at = (at + 1) & mask {
		s := &f.slots[at]
		if s.file == 0 {
			return f.insert(s, k)
		}
		if s.key.is(k) {
			if s.file != f.file {
				s.file = f.file
				f.inFile++
			}
			return s
		}
	}
}

// insert puts a new flow into an empty slot, or returns nil beyond the bound.
func (f *flows) insert(s *flowSlot, k *flowKey) *flowSlot {
	if f.used == f.most {
		return nil
	}
	*s = flowSlot{*k, f.file, uint32(len(f.conversations))}
	f.used++
	f.inFile++
	if f.used*2 > len(f.slots) {
		f.grow()
		return f.find(k)
	}
	return s
}

// grow doubles the table.
func (f *flows) grow() {
	old := f.slots
	f.slots = make([]flowSlot, 2*len(old))
	mask := uint64(len(f.slots) - 1)
	for i := range old {
		if old[i].file == 0 {
			continue
		}
		at := old[i].key.hash(&f.seed) & mask
		for f.slots[at].file != 0 {
			at = (at + 1) & mask
		}
		f.slots[at] = old[i]
	}
}

// read reads the key of a packet. Ports are zero for packets without.
func (k *flowKey) read(p []byte, d *packet.Desc) {
	var ports uint32
	if hasPorts(d) {
		ports = binary.BigEndian.Uint32(p[d.L4:])
	}
	if d.Flags.Has(packet.FlagIPv4) {
		k.read4(p[d.L3:], ports)
		k[4] = 4<<8 | uint64(d.Proto)
		return
	}
	ports = k.read6(p[d.L3:], ports)
	k[4] = uint64(ports)<<16 | 6<<8 | uint64(d.Proto)
}

// read4 reads the ends and orders them as numbers: a jump on their order would be mispredicted at every
// second packet.
func (k *flowKey) read4(ip []byte, ports uint32) {
	a := uint64(binary.BigEndian.Uint32(ip[12:]))<<16 | uint64(ports>>16)
	b := uint64(binary.BigEndian.Uint32(ip[16:]))<<16 | uint64(ports&0xffff)
	k[0], k[1] = min(a, b), max(a, b)
}

// read6 reads the ends and returns the ports in their order.
func (k *flowKey) read6(ip []byte, ports uint32) uint32 {
	srcHi, srcLo := binary.BigEndian.Uint64(ip[8:]), binary.BigEndian.Uint64(ip[16:])
	dstHi, dstLo := binary.BigEndian.Uint64(ip[24:]), binary.BigEndian.Uint64(ip[32:])
	if srcHi > dstHi || srcHi == dstHi && (srcLo > dstLo || srcLo == dstLo && ports>>16 > ports&0xffff) {
		srcHi, srcLo, dstHi, dstLo = dstHi, dstLo, srcHi, srcLo
		ports = bits.RotateLeft32(ports, 16)
	}
	k[0], k[1], k[2], k[3] = srcHi, srcLo, dstHi, dstLo
	return ports
}

// hasPorts reports whether the transport header of a packet that has one begins with ports.
func hasPorts(d *packet.Desc) bool {
	return d.Proto == wire.ProtoTCP || d.Proto == wire.ProtoUDP || d.Proto == wire.ProtoSCTP
}
