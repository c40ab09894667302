package host

import (
	"encoding/binary"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// headroom is the room that a frame has in front of a packet that is made here: for packet.Offload, and for
// headers that somebody pushes. It keeps the network header aligned to four bytes.
const headroom = 66

// route returns the path of a flow: the one that hint names if it is still right, else what the routes say,
// which hint then names.
func (h *Host) route(now clock.Time, t *wire.Tuple, port uint8, hint *uint64) (*ip.Path, packet.Verdict) {
	if hint != nil && *hint != 0 {
		if p := h.IP.Path(now, ip.Ref(*hint)); p != nil {
			return p, packet.Forward
		}
	}
	p, why := h.IP.Route(now, t.Remote, t.Local, port)
	if p == nil {
		return nil, why
	}
	if hint != nil {
		*hint = uint64(p.Ref)
	}
	return p, packet.Forward
}

// headerTemplate is what the Ethernet and IP headers of the packets of one send have in common.
type headerTemplate struct {
	b   [wire.EthernetLen + wire.IPv6Len]byte
	n   int // length
	v4  bool
	sum uint32 // of the IPv4 header without its length, identification and checksum
	id  uint16 // of the next packet
}

// init makes the stencil of packets that go by path.
func (s *headerTemplate) init(p *ip.Path, hdr *ip.Header) {
	s.n = p.Put(s.b[:], hdr, 0)
	s.v4, s.id = hdr.Src.Is4(), hdr.ID
	if s.v4 {
		q := wire.IPv4(s.b[wire.EthernetLen:s.n])
		q.SetTotalLen(0)
		q.SetID(0)
		q.SetChecksum(0)
		s.sum = wire.Sum(q, 0)
	}
}

// write writes the headers of a packet with payload bytes behind them to the start of b.
func (s *headerTemplate) write(b []byte, payload int) {
	copy(b, s.b[:s.n])
	q := b[wire.EthernetLen:s.n]
	if !s.v4 {
		binary.BigEndian.PutUint16(q[4:], uint16(payload))
		return
	}
	total := uint16(payload + wire.IPv4Len)
	binary.BigEndian.PutUint16(q[2:], total)
	binary.BigEndian.PutUint16(q[4:], s.id)
	binary.BigEndian.PutUint16(q[10:], wire.Fold(s.sum+uint32(total)+uint32(s.id)))
	s.id++
}

// flowLabel returns the flow label of a flow (RFC 6437 3): the same for all its packets, and not to be guessed.
func (h *Host) flowLabel(t *wire.Tuple) uint32 {
	if t.Local.Is4() {
		return 0
	}
	x := h.seed ^ binary.LittleEndian.Uint64(t.Local[8:]) ^ binary.LittleEndian.Uint64(t.Remote[8:])*0x9e3779b97f4a7c15
	x ^= binary.LittleEndian.Uint64(t.Remote[:]) + uint64(t.LocalPort)<<16 + uint64(t.RemotePort)
	x *= 0xd1b54a32d192ed03
	return uint32(x>>44) | 1 // 0 would say that there is none
}

// frameRoom returns how many bytes of a packet one frame holds.
func (h *Host) frameRoom() int { return h.arena.FrameSize() - headroom }

// reserve passes n frames for packets by a path to the caller; nil says that there is no room now.
func (h *Host) reserve(port uint8, n int) []uint32 {
	if port == ip.LoopPort {
		return h.output.ReserveLoopback(n)
	}
	return h.output.Reserve(port, n)
}

// transmit sends the packets in h.out, in frames that reserve gave. Those that come back to this host have not
// passed the engine of the loop, and pass one here.
func (h *Host) transmit(port uint8) {
	if port == ip.LoopPort {
		h.classify()
		h.output.Loopback(h.tx)
	} else {
		h.output.Originate(port, h.tx)
	}
	h.tx = h.tx[:0]
}

// classify has the own engine make its findings about h.out.
func (h *Host) classify() {
	for i := range h.tx {
		h.tx[i].Port = ip.LoopPort
	}
	h.loopback.D = h.tx
	var done [1]*packet.Batch
	if err := h.loopbackEngine.Submit(&h.loopback); err != nil {
		panic(err) // it has room for one batch, and has handed back the last
	}
	h.loopbackEngine.Poll(done[:])
}
