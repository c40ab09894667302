// Package flowmodel is a fastpath.Forwarder in memory that really forwards: frames in, frames out, by the rules of
// l4/fastpath, without a kernel. Tests run the gateway with it in virtual time, and hold the eBPF programs of
// l4/kernelflows against it. It is written for reading and parses each frame anew.
//
// Frames come from a test (Kernel.Packet) and go back to it. Nothing here knows of a gateway, of a clock, or of the
// kernel.
package flowmodel

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l4/fastpath"
	"github.com/millrace/millrace/wire"
)

// coarse is the resolution of the kernel's clock: CLOCK_MONOTONIC_COARSE.
const coarse = 4_000_000 // ns

// Kernel is what the loops of a gateway share: the table of flows by key.
type Kernel struct {
	flows map[key]*direction
	loops []*Loop
}

type key struct {
	dev          uint8
	src, dst     [16]byte
	sport, dport uint16
	proto        uint8
}

// direction is one side of an entered flow.
type direction struct {
	loop *Loop
	slot uint32
	side int
}

// New returns a kernel without flows.
func New() *Kernel { return &Kernel{flows: map[key]*direction{}} }

// Loop is the fastpath.Forwarder of one loop.
type Loop struct {
	kernel     *Kernel
	slots      []slot
	generation int
	enter      []uint32 // slots whose keys the next Flush enters
	remove     []uint32 // and removes
	reject     func(*fastpath.Flow) bool
	misuse     []error
}

// slot is a connection.
type slot struct {
	used       bool // from Enter to the Flush behind Leave
	enabled    bool // from Enter to Leave
	keyed      bool
	generation int
	flow       fastpath.Flow
	traffic    fastpath.Traffic
}

// Loop returns the Forwarder of another loop, for so many connections. reject says which it does not take; it may be nil.
func (k *Kernel) Loop(slots int, reject func(*fastpath.Flow) bool) *Loop {
	l := &Loop{kernel: k, slots: make([]slot, slots), reject: reject}
	k.loops = append(k.loops, l)
	return l
}

// Entered returns how many connections the kernel has, and how many keys.
func (k *Kernel) Entered() (connections, keys int) {
	for _, l := range k.loops {
		for i := range l.slots {
			if l.slots[i].enabled {
				connections++
			}
		}
	}
	return connections, len(k.flows)
}

// Misuse returns the first call that the contract does not allow, nil when there was none.
func (k *Kernel) Misuse() error {
	for _, l := range k.loops {
		if len(l.misuse) > 0 {
			return l.misuse[0]
		}
	}
	return nil
}

func (l *Loop) wrong(format string, args ...any) {
	l.misuse = append(l.misuse, fmt.Errorf(format, args...))
}

// Kernel returns the kernel that the loop belongs to.
func (l *Loop) Kernel() *Kernel { return l.kernel }

// Enter implements fastpath.Forwarder.
func (l *Loop) Enter(f *fastpath.Flow) (uint32, bool) {
	if l.reject != nil && l.reject(f) || f.Directions[0].VLAN|f.Directions[0].OutVLAN|f.Directions[1].VLAN|f.Directions[1].OutVLAN != 0 {
		return 0, false
	}
	for i := range l.slots {
		if s := &l.slots[i]; !s.used {
			*s = slot{used: true, enabled: true, generation: l.generation, flow: *f, traffic: fastpath.Traffic{Sequences: f.Sequences, Loose: f.Loose}}
			l.enter = append(l.enter, uint32(i))
			return uint32(i), true
		}
	}
	return 0, false
}

// Leave implements fastpath.Forwarder.
func (l *Loop) Leave(n uint32) fastpath.Traffic {
	t := l.Read(n)
	l.slots[n].enabled = false
	l.remove = append(l.remove, n)
	return t
}

// Read implements fastpath.Forwarder.
func (l *Loop) Read(n uint32) fastpath.Traffic {
	if s := &l.slots[n]; !s.enabled {
		l.wrong("slot %d is read after it was left", n)
	}
	return l.slots[n].traffic
}

// Raise implements fastpath.Forwarder.
func (l *Loop) Raise(n uint32, to *[2]fastpath.Sequence) {
	s := &l.slots[n]
	if !s.enabled {
		l.wrong("slot %d is raised after it was left", n)
	}
	for side := range to {
		raise(&s.traffic.Sequences[side], &to[side])
	}
}

func raise(s, to *fastpath.Sequence) {
	s.End, s.Limit, s.Acked = later(s.End, to.End), later(s.Limit, to.Limit), later(s.Acked, to.Acked)
	s.Window = max(s.Window, to.Window)
}

func later(a, b uint32) uint32 {
	if after(b, a) {
		return b
	}
	return a
}

func after(a, b uint32) bool { return int32(a-b) > 0 }

// Renew implements fastpath.Forwarder.
func (l *Loop) Renew() { l.generation++ }

// Flush implements fastpath.Forwarder.
func (l *Loop) Flush(clock.Time) error {
	var failed int
	for _, n := range l.enter {
		s := &l.slots[n]
		if !s.enabled {
			continue // left before
		}
		for side := range s.flow.Directions {
			k := keyOf(&s.flow, side)
			if d := l.kernel.flows[k]; d != nil && d.loop.slots[d.slot].enabled {
				l.wrong("slots %d and %d have the key %v", d.slot, n, k)
				failed++
			}
			l.kernel.flows[k] = &direction{l, n, side}
		}
		s.keyed = true
	}
	for _, n := range l.remove {
		s := &l.slots[n]
		for side := range s.flow.Directions {
			k := keyOf(&s.flow, side)
			if d := l.kernel.flows[k]; s.keyed && d != nil && d.loop == l && d.slot == n {
				delete(l.kernel.flows, k)
			}
		}
		*s = slot{}
	}
	l.enter, l.remove = l.enter[:0], l.remove[:0]
	if failed > 0 {
		return errors.New("keys are in use")
	}
	return nil
}

func keyOf(f *fastpath.Flow, side int) key {
	d := &f.Directions[side]
	return key{d.Dev, d.Src, d.Dst, d.SrcPort, d.DstPort, f.Proto}
}

// Verdict says what became of a frame.
type Verdict int

// The verdicts.
const (
	Forwarded Verdict = iota
	NoEntry           // of no flow, or nothing that flows have
	Renewed           // of a flow of another generation, or one that was left
	Flags
	Window
	Header
	Hops
	TooLong
	Link
)

// frame is a parsed one.
type frame struct {
	p         []byte // the frame
	l3, l4    int
	is4       bool
	size      int // of the network-layer packet
	hops      uint8
	key       key
	seq, ack  uint32
	data      int // bytes of TCP payload
	flags     wire.TCPFlags
	rawWindow uint32
}

// Packet has the kernel judge a frame that comes by a device. What it forwards is rewritten in p and leaves by out. It is
// none of the large ones of offloads.
func (k *Kernel) Packet(now clock.Time, dev uint8, p []byte) (out uint8, v Verdict) {
	f, v := parse(dev, p)
	if v != Forwarded {
		return 0, v
	}
	at := k.flows[f.key]
	if at == nil {
		return 0, NoEntry
	}
	s := &at.loop.slots[at.slot]
	if v := s.judge(&f, at.side, at.loop.generation); v != Forwarded {
		return 0, v
	}
	s.traffic.Packets[at.side]++
	s.traffic.Bytes[at.side] += uint64(len(p))
	s.traffic.Last[at.side] = now - now%coarse
	d := &s.flow.Directions[at.side]
	f.rewrite(d)
	return d.OutDev, Forwarded
}

// parse reads the headers of a frame that may be a flow's.
func parse(dev uint8, p []byte) (f frame, v Verdict) {
	f = frame{p: p, l3: wire.EthernetLen, key: key{dev: dev}}
	if len(p) < wire.EthernetLen+wire.IPv4Len+wire.UDPLen {
		return f, Header
	}
	ip := p[f.l3:]
	switch wire.Ethernet(p).EtherType() {
	case wire.EtherTypeIPv4:
		h := wire.IPv4(ip)
		if ip[0] != 0x45 || binary.BigEndian.Uint16(ip[6:])&0xbfff != 0 || wire.SumPlain(ip[:wire.IPv4Len], 0) != 0xffff {
			return f, Header
		}
		f.is4, f.l4, f.size, f.hops, f.key.proto = true, f.l3+wire.IPv4Len, int(h.TotalLen()), ip[8], h.Proto()
		f.key.src, f.key.dst = h.SrcAddr().As16(), h.DstAddr().As16()
	case wire.EtherTypeIPv6:
		if len(p) < wire.EthernetLen+wire.IPv6Len+wire.UDPLen || ip[0]>>4 != 6 {
			return f, Header
		}
		h := wire.IPv6(ip)
		f.l4, f.size, f.hops, f.key.proto = f.l3+wire.IPv6Len, wire.IPv6Len+int(h.PayloadLen()), ip[7], ip[6]
		copy(f.key.src[:], ip[8:24])
		copy(f.key.dst[:], ip[24:40])
	default:
		return f, NoEntry
	}
	l4 := p[f.l4:]
	f.key.sport, f.key.dport = binary.BigEndian.Uint16(l4), binary.BigEndian.Uint16(l4[2:])
	return f, Forwarded
}

// judge decides on a frame of the flow, and takes note of it.
func (s *slot) judge(f *frame, side, generation int) Verdict {
	d := &s.flow.Directions[side]
	eth := wire.Ethernet(f.p)
	longest := d.MaxLen
	switch {
	case !s.enabled || s.generation != generation:
		return Renewed
	case eth.Dst() != d.To || d.From != [6]byte{} && eth.Src() != d.From:
		return Link
	case f.hops <= 1:
		return Hops
	case f.l3+f.size > len(f.p):
		return Header
	}
	if f.key.proto == wire.ProtoUDP {
		if f.l4-f.l3+int(wire.UDP(f.p[f.l4:]).Len()) != f.size {
			return Header
		}
	} else if v := f.readTCP(); v != Forwarded {
		return v
	}
	if longest != 0 && f.size > longest {
		return TooLong
	}
	if f.key.proto == wire.ProtoUDP {
		return Forwarded
	}
	if f.flags&(wire.FlagSYN|wire.FlagFIN|wire.FlagRST|wire.FlagACK) != wire.FlagACK {
		return Flags
	}
	return s.follow(f, side)
}

// readTCP reads the header of a segment.
func (f *frame) readTCP() Verdict {
	l4 := f.p[f.l4:]
	if len(l4) < wire.TCPLen {
		return Header
	}
	tcp := wire.TCP(l4)
	head := tcp.DataOffset()
	if head < wire.TCPLen || f.l4-f.l3+head > f.size {
		return Header
	}
	f.seq, f.ack, f.flags, f.rawWindow = tcp.Seq(), tcp.Ack(), tcp.Flags(), uint32(tcp.Window())
	f.data = f.size - (f.l4 - f.l3) - head
	return Forwarded
}

// follow judges the sequence numbers of a segment: conditions I to IV of Guido van Rooij's, and the end too has to lie
// in the window.
func (s *slot) follow(f *frame, side int) Verdict {
	me, peer := &s.traffic.Sequences[side], &s.traffic.Sequences[1-side]
	end, window := f.seq+uint32(f.data), f.rawWindow<<(s.flow.Scales>>(4*side)&15)
	sent := peer.End
	if s.flow.Loose {
		sent = later(sent, peer.Limit+me.Window)
	}
	if after(end, me.Limit) || after(me.End-peer.Window, end) || after(f.ack, sent) || after(peer.End-max(me.Window, 66000), f.ack) {
		return Window
	}
	me.Window = max(me.Window, window)
	me.End, me.Acked = later(me.End, end), later(me.Acked, f.ack)
	peer.End, peer.Limit = later(peer.End, f.ack), later(peer.Limit, f.ack+max(window, 1))
	return Forwarded
}

// rewrite makes the frame the one that leaves.
func (f *frame) rewrite(d *fastpath.Direction) {
	copy(f.p[0:6], d.NextHop[:])
	copy(f.p[6:12], d.OutMAC[:])
	ip, l4 := f.p[f.l3:], f.p[f.l4:]
	if f.is4 {
		ip[8]--
		copy(ip[12:16], d.NewSrc[12:])
		copy(ip[16:20], d.NewDst[12:])
		h := wire.IPv4(ip)
		h.SetChecksum(wire.Apply(h.Checksum(), wire.AddDiff(d.L3Delta, 0xfeff)))
	} else {
		ip[7]--
		copy(ip[8:24], d.NewSrc[:])
		copy(ip[24:40], d.NewDst[:])
	}
	binary.BigEndian.PutUint16(l4, d.NewSrcPort)
	binary.BigEndian.PutUint16(l4[2:], d.NewDstPort)
	if f.key.proto == wire.ProtoUDP {
		wire.UDP(l4).Update(d.L4Delta)
		return
	}
	tcp := wire.TCP(l4)
	tcp.SetChecksum(wire.Apply(tcp.Checksum(), d.L4Delta))
}
