package kernelflows

import (
	"encoding/binary"
	"structs"
	"sync/atomic"

	"github.com/millrace/millrace/l4/fastpath"
)

// The types below are those of bpf/maps.h, byte for byte (TestLayout). Numbers that packets have are kept in network
// byte order.

// key4 and key6 are the keys of the hash maps.
type (
	key4 struct {
		_        structs.HostLayout
		Dev      uint32
		Src, Dst [4]byte
		Sport    [2]byte
		Dport    [2]byte
		Proto    uint32
	}
	key6 struct {
		_        structs.HostLayout
		Dev      uint32
		Src, Dst [16]byte
		Sport    [2]byte
		Dport    [2]byte
		Proto    uint32
	}
)

// entry is their value.
type entry struct {
	_      structs.HostLayout
	Slot   uint32 // times 2, plus the direction
	Serial uint32
}

// direction is written by the loop before its keys are entered.
type direction struct {
	_          structs.HostLayout
	serial     atomic.Uint32 // 0 while the direction is disabled
	generation uint32
	loop       uint32
	out        uint32
	maxLen     uint32
	sport      [2]byte
	dport      [2]byte
	l3, ports  [2]byte
	src, dst   [4]byte
	nextHop    [6]byte
	outMAC     [6]byte
	to, from   [6]byte

	src6, dst6 [16]byte
	anyFrom    uint8
	scale      uint8
	loose      uint8
	toPeer     uint8
	_          [28]byte
}

// progress is written by the kernel while the direction is enabled.
type progress struct {
	_                         structs.HostLayout
	packets, bytes, last      atomic.Uint64
	end, limit, window, acked atomic.Uint32
	_                         [24]byte
}

// slot is a connection: six cache lines, of which a packet of IPv4 touches two, or three with TCP.
type slot struct {
	_ structs.HostLayout
	d [2]direction
	p [2]progress
}

func be16(v uint16) (b [2]byte) { binary.BigEndian.PutUint16(b[:], v); return b }

// is4 reports whether the 16-byte form a is that of an IPv4 address (RFC 4291 2.5.5.2).
func is4(a *[16]byte) bool {
	return [12]byte(a[:12]) == [12]byte{10: 0xff, 11: 0xff}
}

func last4(a *[16]byte) [4]byte { return [4]byte(a[12:]) }

// keyOf returns the key of packets of a direction that come by the interface with this index.
func keyOf(d *fastpath.Direction, proto uint8, index uint32) key6 {
	return key6{Dev: index, Src: d.Src, Dst: d.Dst, Sport: be16(d.SrcPort), Dport: be16(d.DstPort), Proto: uint32(proto)}
}

// four returns the key in the form of IPv4.
func (k *key6) four() key4 {
	return key4{Dev: k.Dev, Src: last4(&k.Src), Dst: last4(&k.Dst), Sport: k.Sport, Dport: k.Dport, Proto: k.Proto}
}

// set makes d what f says, disabled.
func (d *direction) set(f *fastpath.Flow, side int, generation, loop uint32, out path) {
	from := &f.Directions[side]
	d.generation, d.loop, d.out, d.toPeer = generation, loop, out.index(), bit(out.toPeer())
	d.maxLen = uint32(from.MaxLen)
	if from.MaxLen == 0 {
		d.maxLen = 1<<32 - 1
	}
	d.sport, d.dport = be16(from.NewSrcPort), be16(from.NewDstPort)
	d.l3, d.ports = be16(from.L3Delta), be16(subDiff(from.L4Delta, from.L3Delta))
	d.src, d.dst, d.src6, d.dst6 = last4(&from.NewSrc), last4(&from.NewDst), from.NewSrc, from.NewDst
	d.nextHop, d.outMAC, d.to, d.from = from.NextHop, from.OutMAC, from.To, from.From
	d.anyFrom, d.loose = bit(from.From == [6]byte{}), bit(f.Loose)
	d.scale = f.Scales >> (4 * side) & 0xf
}

// set makes p what it is before the first packet.
func (p *progress) set(s fastpath.Sequence) {
	p.packets.Store(0)
	p.bytes.Store(0)
	p.last.Store(0)
	p.end.Store(s.End)
	p.limit.Store(s.Limit)
	p.window.Store(s.Window)
	p.acked.Store(s.Acked)
}

// sequence returns the sequence numbers.
func (p *progress) sequence() fastpath.Sequence {
	return fastpath.Sequence{End: p.end.Load(), Limit: p.limit.Load(), Window: p.window.Load(), Acked: p.acked.Load()}
}

// raise makes each number the later one of p's and s's.
func (p *progress) raise(s *fastpath.Sequence) {
	raise(&p.end, s.End, after)
	raise(&p.limit, s.Limit, after)
	raise(&p.window, s.Window, func(a, b uint32) bool { return a > b })
	raise(&p.acked, s.Acked, after)
}

// raise sets at to a value that is beyond its own.
func raise(at *atomic.Uint32, to uint32, beyond func(a, b uint32) bool) {
	for old := at.Load(); beyond(to, old) && !at.CompareAndSwap(old, to); old = at.Load() {
	}
}

// after reports whether sequence number a follows b (RFC 9293 3.4).
func after(a, b uint32) bool { return int32(a-b) > 0 }

// subDiff returns the difference that added to b in ones' complement is a.
func subDiff(a, b uint16) uint16 {
	sum := uint32(a) + uint32(^b)
	return uint16(sum + sum>>16)
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
