package datapath

import (
	"encoding/binary"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// A packet that is larger than its way out leaves in fragments where its sender permits that: IPv4 without Don't Fragment
// (RFC 1812 4.2.2.7), and outer packets of tunnels (tunnel.go). Some senders ignore the path MTU, DNS servers among them,
// and an error instead of fragments would lose all that they send.

// fragmentable reports whether a packet may leave in fragments of itself, or of its segments (segmenter.go).
func (h fragmenter) fragmentable(v *view) bool {
	return v.is4 && h.out != nil && !wire.IPv4(v.p[v.d.L3:]).DontFragment() &&
		(!v.d.Flags.Has(packet.FlagOffload) || h.segmentable(v))
}

// leave ends the decision on a packet whose headers have been written for hop: with v.mtu set, it leaves in fragments. A
// whole packet that is translated gets an identification of the gateway's, for the reason of view.renumber.
func (h fragmenter) leave(v *view, hop *Hop, translated bool) packet.Verdict {
	if v.mtu == 0 {
		return packet.Forward
	}
	if v.d.Flags.Has(packet.FlagOffload) {
		return h.leaveSegments(v, hop, translated)
	}
	ip := wire.IPv4(h.arena.Bytes(v.d)[v.d.L3:])
	id := uint32(ip.ID())
	if translated && v.part == whole {
		id = h.fragments.nextID(h.loop, h.loops)
	}
	return h.fragment(v, hop, &fragmentation{
		size: int(ip.TotalLen()), mtu: v.mtu, header: ip.HeaderLen(), is4: true, id: id,
		base: ip.FragmentOffset(), more: ip.MoreFragments(),
	})
}

// fragmentation describes how a packet is cut.
type fragmentation struct {
	size, mtu int    // of the packet from its IP header on, and of the largest fragment
	header    int    // length of the IP header, which every fragment repeats
	base      int    // offset of the packet's data in its datagram: a fragment can be cut again
	more      bool   // fragments of the datagram follow the packet
	id        uint32 // identification
	is4       bool
	flags     packet.Flags // of the fragments
	data      []byte       // the packet with its link header, where the frames of the one that is decided have another
	ahead     bool         // it leaves before the packet that is decided, whose frames keep what they have

	template []byte // link header and IP header of the packet
	link     int
}

// fragment cuts a packet into fragments. The last one leaves in the packet's own frame and the others, which the loop
// originates, leave before it: so they arrive in order. A packet of several frames is left with the first.
func (h fragmenter) fragment(v *view, hop *Hop, f *fragmentation) packet.Verdict {
	f.link = linkLen(hop)
	grow := 0
	if !f.is4 {
		grow = wire.FragmentHeaderLen
	}
	head, frame := f.link+f.header, 1<<h.arena.Shift
	each := (min(f.mtu, frame-f.link) - f.header - grow) &^ 7
	left := f.size - f.header
	n := (left + each - 1) / each
	others := n - 1
	if f.ahead {
		others = n
	}
	frames := h.out.Reserve(hop.Dev, others)
	if frames == nil && others > 0 {
		return packet.DropNoFrame
	}
	f.template = h.arena.Bytes(v.d)[:head:head]
	if f.data != nil {
		f.template = f.data[:head:head]
	}
	list := h.pieces[:0]
	for i := range others {
		at := i * each
		d := packet.Desc{Off: frames[i], Len: uint16(head + grow + min(each, left-at)), Flags: f.flags}
		p := h.arena.Bytes(&d)
		f.write(p, at, i < n-1 || f.more)
		h.copyData(f, p[head+grow:], head+at)
		v.cut += uint32(d.Len)
		list = append(list, d)
	}
	h.pieces = list
	if !f.ahead {
		h.leaveLast(v, f, head+grow, (n-1)*each)
	}
	h.out.Originate(hop.Dev, list)
	return packet.Forward
}

// leaveLast makes the packet that is decided the last fragment, which begins at byte at of its payload and has so many bytes
// of headers.
func (h fragmenter) leaveLast(v *view, f *fragmentation, headers, at int) {
	frame := 1 << h.arena.Shift
	h.tail = append(h.tail[:0], make([]byte, headers+f.size-f.header-at)...)
	f.write(h.tail, at, f.more)
	h.copyData(f, h.tail[headers:], f.link+f.header+at)
	v.d.Off &^= uint32(frame - 1)
	v.d.Len = uint16(len(h.tail))
	v.d.Flags = f.flags
	copy(h.arena.Bytes(v.d), h.tail)
}

// write writes the headers of the fragment that fills p and begins at byte at of the packet's payload.
func (f *fragmentation) write(p []byte, at int, more bool) {
	copy(p, f.template)
	if f.is4 {
		ip := wire.IPv4(p[f.link:])
		ip.SetTotalLen(uint16(len(ip)))
		ip.SetID(uint16(f.id))
		ip.SetDontFragment(false)
		ip.SetFragmentOffset(f.base + at)
		ip.SetMoreFragments(more)
		if at > 0 {
			blankUncopied(ip[wire.IPv4Len:f.header])
		}
		ip.FillChecksum()
		return
	}
	b := p[f.link:]
	next := b[6]
	b[6] = wire.ProtoFragment
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)-wire.IPv6Len))
	h := b[wire.IPv6Len:]
	flags := uint16(at) // a multiple of 8: the offset is the upper 13 bits (RFC 8200 4.5)
	if more {
		flags |= 1
	}
	h[0], h[1] = next, 0
	binary.BigEndian.PutUint16(h[2:], flags)
	binary.BigEndian.PutUint32(h[4:], f.id)
}

// blankUncopied replaces the IPv4 options that only the first fragment repeats, those without the copied flag, by no
// operation (RFC 791 3.1). The header keeps its length, as in Linux.
func blankUncopied(options []byte) {
	const end, noOperation, copied = 0, 1, 0x80
	for len(options) > 0 && options[0] != end {
		n := 1
		if options[0] != noOperation {
			if len(options) < 2 || options[1] < 2 || int(options[1]) > len(options) {
				return
			}
			n = int(options[1])
		}
		if options[0]&copied == 0 {
			for i := range options[:n] {
				options[i] = noOperation
			}
		}
		options = options[n:]
	}
}

// copyData copies bytes of the packet that is cut, from the at-th on, to dst.
func (h fragmenter) copyData(f *fragmentation, dst []byte, at int) {
	if f.data != nil {
		copy(dst, f.data[at:])
		return
	}
	h.copyChain(dst, at)
}

// copyChain copies bytes of the packet that is decided on, from the at-th of its first descriptor on, to dst.
func (h fragmenter) copyChain(dst []byte, at int) {
	for i := range h.chain {
		p := h.arena.Bytes(&h.chain[i])
		if at < len(p) {
			dst = dst[copy(dst, p[at:]):]
			at = len(p)
		}
		if at -= len(p); len(dst) == 0 {
			return
		}
		if !h.chain[i].Flags.Has(packet.FlagMore) {
			break
		}
	}
	if d := &h.chain[0]; d.Flags.Has(packet.FlagOffload) {
		copy(dst, h.arena.External(d)[at:])
	}
}
