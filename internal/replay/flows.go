package replay

import (
	"encoding/binary"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// DefaultFlows is how many flows are told apart unless Config says otherwise: 64 MiB of table.
const DefaultFlows = 1 << 20

// end is one end of a flow. An IPv4 address fills the upper half of hi.
type end struct {
	hi, lo uint64
	port   uint16
}

// after orders the two ends of a flow.
func (e *end) after(f *end) bool {
	if e.hi != f.hi {
		return e.hi > f.hi
	}
	if e.lo != f.lo {
		return e.lo > f.lo
	}
	return e.port > f.port
}

// flowKey is a flow whatever its direction: no end is after the second.
type flowKey struct {
	a, b  end
	proto uint8
	v6    bool
}

// flow is a slot of the table.
type flow struct {
	key  flowKey
	hash uint32
	file uint32 // the last file that it was seen in; 0 is an empty slot
}

// flows counts flows exactly, up to a bound: a table with open addressing by the engine's hash,
// which is the same for both directions.
type flows struct {
	slots  []flow
	most   int
	used   int
	file   uint32
	inFile uint64 // flows of the present file
	beyond uint64 // packets of flows that found no room
}

func newFlows(most int) *flows {
	if most <= 0 {
		most = DefaultFlows
	}
	return &flows{slots: make([]flow, 1024), most: most}
}

// begin starts the next file.
func (f *flows) begin() {
	f.file++
	f.inFile = 0
}

// add counts the flow of an IP packet p with headers as d says.
func (f *flows) add(p []byte, d *packet.Desc) {
	k := keyOf(p, d)
	mask := uint32(len(f.slots) - 1)
	for at := d.Hash & mask; ; at = (at + 1) & mask {
		s := &f.slots[at]
		if s.file == 0 {
			f.insert(s, k, d.Hash)
			return
		}
		if s.hash == d.Hash && s.key == k {
			if s.file != f.file {
				s.file = f.file
				f.inFile++
			}
			return
		}
	}
}

// insert puts a new flow into an empty slot, or counts it as beyond the bound.
func (f *flows) insert(s *flow, k flowKey, hash uint32) {
	if f.used == f.most {
		f.beyond++
		return
	}
	*s = flow{k, hash, f.file}
	f.used++
	f.inFile++
	if f.used*2 > len(f.slots) {
		f.grow()
	}
}

// grow doubles the table.
func (f *flows) grow() {
	old := f.slots
	f.slots = make([]flow, 2*len(old))
	mask := uint32(len(f.slots) - 1)
	for i := range old {
		if old[i].file == 0 {
			continue
		}
		at := old[i].hash & mask
		for f.slots[at].file != 0 {
			at = (at + 1) & mask
		}
		f.slots[at] = old[i]
	}
}

// keyOf reads the key of a packet. Ports are zero for packets without.
func keyOf(p []byte, d *packet.Desc) (k flowKey) {
	k.proto = d.Proto
	ip := p[d.L3:]
	if d.Flags.Has(packet.FlagIPv4) {
		k.a.hi = uint64(binary.BigEndian.Uint32(ip[12:])) << 32
		k.b.hi = uint64(binary.BigEndian.Uint32(ip[16:])) << 32
	} else {
		k.v6 = true
		k.a.hi, k.a.lo = binary.BigEndian.Uint64(ip[8:]), binary.BigEndian.Uint64(ip[16:])
		k.b.hi, k.b.lo = binary.BigEndian.Uint64(ip[24:]), binary.BigEndian.Uint64(ip[32:])
	}
	if hasPorts(d) {
		k.a.port, k.b.port = binary.BigEndian.Uint16(p[d.L4:]), binary.BigEndian.Uint16(p[d.L4+2:])
	}
	if k.a.after(&k.b) {
		k.a, k.b = k.b, k.a
	}
	return k
}

// hasPorts reports whether the transport header of a packet that has one begins with ports.
func hasPorts(d *packet.Desc) bool {
	return d.Proto == wire.ProtoTCP || d.Proto == wire.ProtoUDP || d.Proto == wire.ProtoSCTP
}
