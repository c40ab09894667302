package replay

import (
	"encoding/binary"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd/pcap"
	"github.com/millrace/millrace/wire"
)

// rebased is a packet that the engine sees from a later byte on, with an EtherType in front of the network header.
type rebased struct {
	off    uint32 // of the descriptor meanwhile
	shift  uint8
	moved  bool
	tagged bool
	was    [2]byte // what the EtherType overwrites, where moved is set
}

// rebase shows the engine those packets of b, from descriptor first on, that begin with headers which it does not read.
// Resident packets are not written to: several laps of one packet are in the batch at once.
func (s *source) rebase(b *packet.Batch, first int) {
	for i := first; i < len(b.D); i += max(1, packet.Chain(b.D[i:])) {
		d := &b.D[i]
		p := b.Arena.Bytes(d)
		if len(p) < 14 {
			continue
		}
		switch binary.BigEndian.Uint16(p[12:]) {
		case wire.EtherTypeIPv4, wire.EtherTypeIPv6, wire.EtherTypeARP:
			continue
		}
		r := capture.Rebase(p)
		if r.Shift == 0 || r.Moved && s.mode == pcap.Resident {
			continue
		}
		was := rebased{off: d.Off + uint32(r.Shift), shift: uint8(r.Shift), moved: r.Moved, tagged: r.Tagged}
		if r.Moved {
			at := p[r.Shift+12:]
			was.was = [2]byte(at)
			binary.BigEndian.PutUint16(at, r.Ether)
		}
		d.Off, d.Len = was.off, d.Len-uint16(r.Shift)
		s.rebased = append(s.rebased, was)
	}
}

// restore makes the packets of b whole again that rebase changed. Batches come in the order of Rx.
func (s *source) restore(b *packet.Batch) {
	done := 0
	for i := 0; i < len(b.D) && done < len(s.rebased); i++ {
		d, r := &b.D[i], &s.rebased[done]
		if d.Off != r.off {
			continue
		}
		done++
		d.Off, d.Len = d.Off-uint32(r.shift), d.Len+uint16(r.shift)
		if r.moved {
			copy(b.Arena.Bytes(d)[r.shift+12:], r.was[:])
		}
		if r.tagged {
			d.Flags |= packet.FlagVLAN
		}
		if d.L3 != 0 {
			d.L3 += r.shift
		}
		if d.L4 != 0 {
			d.L4 += uint16(r.shift)
		}
		if d.Payload != 0 {
			d.Payload += uint16(r.shift)
		}
		for k := range b.Matches {
			if int(b.Matches[k].D) == i {
				b.Matches[k].End += uint32(r.shift)
			}
		}
	}
	s.rebased = append(s.rebased[:0], s.rebased[done:]...)
}
