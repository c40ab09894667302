package kernelflows_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/l4/fastpath"
	"github.com/millrace/millrace/l4/kernelflows"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// judge is the slow and obvious form of what the program decides: it reads a frame with package wire, and has the
// sequence numbers of the connection as sequence.go describes them.
type judge struct {
	flow *fastpath.Flow
	seq  [2]fastpath.Sequence
}

// of returns the reason for a frame of side, and takes note of what is forwarded. gso is the segment size of a large
// packet.
func (j *judge) of(side int, frame []byte, gso int) string {
	d := &j.flow.Directions[side]
	if len(frame) < 42 {
		return "header"
	}
	eth := wire.Ethernet(frame)
	ip := frame[14:]
	var size, l4 int
	var ttl, proto uint8
	switch {
	case eth.EtherType() == wire.EtherTypeIPv4:
		h := wire.IPv4(ip)
		if h[0] != 0x45 || h[6]&0xbf != 0 || h[7] != 0 || wire.Fold(wire.Sum(h[:20], 0)) != 0 {
			return "header"
		}
		size, l4, ttl, proto = int(h.TotalLen()), 20, h[8], h[9]
	case eth.EtherType() == wire.EtherTypeIPv6 && len(frame) < 62:
		return "header"
	case eth.EtherType() == wire.EtherTypeIPv6:
		if ip[0]>>4 != 6 {
			return "header"
		}
		size, l4, ttl, proto = 40+int(binary.BigEndian.Uint16(ip[4:])), 40, ip[7], ip[6]
	default:
		return "no_entry"
	}
	if e := endsOf(frame); proto != j.flow.Proto || e != (ends{d.Src, d.Dst, d.SrcPort, d.DstPort}) {
		return "no_entry"
	}
	switch {
	case [6]byte(frame[:6]) != d.To || eth.Src().Multicast() || d.From != [6]byte{} && [6]byte(frame[6:12]) != d.From:
		return "link"
	case ttl <= 1:
		return "hops"
	case size > len(ip):
		return "header"
	}
	head := l4 + 8
	if proto == wire.ProtoTCP {
		if len(ip) < l4+20 {
			return "header"
		}
		head = l4 + int(ip[l4+12]>>4)*4
		if head < l4+20 {
			return "header"
		}
	} else if int(wire.UDP(ip[l4:]).Len()) != size-l4 {
		return "header"
	}
	if head > size {
		return "header"
	}
	longest := size
	if gso != 0 {
		longest = min(size, head+gso)
	}
	if longest > d.MaxLen {
		return "too_long"
	}
	if proto == wire.ProtoTCP {
		tcp := wire.TCP(ip[l4:])
		if tcp.Flags()&(wire.FlagSYN|wire.FlagFIN|wire.FlagRST|wire.FlagACK) != wire.FlagACK {
			return "flags"
		}
		if !j.follow(side, tcp, uint32(size-head)) {
			return "window"
		}
	}
	return "forwarded"
}

// follow applies conditions I to IV.
func (j *judge) follow(side int, tcp wire.TCP, data uint32) bool {
	me, peer := &j.seq[side], &j.seq[1-side]
	ack, end := tcp.Ack(), tcp.Seq()+data
	window := uint32(tcp.Window()) << (j.flow.Scales >> (4 * side) & 0xf)
	beyond := func(a, b uint32) bool { return int32(a-b) > 0 }
	sent := peer.End
	if most := peer.Limit + me.Window; j.flow.Loose && beyond(most, sent) {
		sent = most
	}
	if beyond(end, me.Limit) || beyond(me.End-peer.Window, end) || beyond(ack, sent) || beyond(peer.End-max(me.Window, 66000), ack) {
		return false
	}
	me.Window = max(me.Window, window)
	for _, r := range []struct {
		at *uint32
		to uint32
	}{{&me.End, end}, {&me.Acked, ack}, {&peer.End, ack}, {&peer.Limit, ack + max(window, 1)}} {
		if beyond(r.to, *r.at) {
			*r.at = r.to
		}
	}
	return true
}

// TestRandomPackets passes packets of every kind, many of them damaged, through the program, the judge and the handler:
// the program gives the reason of the judge, changes nothing that goes up, and forwards the bytes that the handler does.
func TestRandomPackets(t *testing.T) {
	everyKind(t, func(t *testing.T, w *world, c *conn) {
		for _, loose := range []bool{false, true} {
			c.flow.Loose, c.flow.Scales = loose, 0x27
			w.table.Loop(0).Leave(c.slot)
			w.enter(c)
			randomPackets(t, w, c, 2000)
		}
	})
}

func randomPackets(t *testing.T, w *world, c *conn, count int) {
	j := &judge{&c.flow, c.flow.Sequences}
	rnd := rand.New(rand.NewPCG(1, 2))
	seen := map[string]int{}
	steered := [2]func([]byte) bool{w.table.Steered(t, 0), w.table.Steered(t, 1)}
	before, err := w.table.Stats()
	must(t, err)
	for i := range count {
		side, gso := rnd.IntN(2), 0
		frame := randomFrame(rnd, &c.sides[side], &j.seq[side], &j.seq[1-side])
		if rnd.IntN(8) == 0 {
			gso = 1 + rnd.IntN(1600)
		}
		known := *j
		byXDP, left := known.of(side, frame, 0), steered[side](frame)
		between, err := w.table.Stats()
		must(t, err)
		if why := reasonOf(&before, &between); left != (byXDP == "forwarded") || !left && why != byXDP || left && why != "" {
			t.Fatalf("packet %d, side %d: left to tc by the XDP program: %v, as %q, want %s\n%x", i, side, left, why, byXDP, frame)
		}
		before, err = w.table.Stats()
		must(t, err)
		result, out := w.table.Run(t, side, frame, uint32(gso))
		after, err := w.table.Stats()
		must(t, err)
		why := reasonOf(&before, &after)
		before = after
		want := j.of(side, frame, gso)
		if why != want {
			t.Fatalf("packet %d, side %d, gso %d: the program says %s, the judge %s\n%x", i, side, gso, why, want, frame)
		}
		seen[why]++
		tr := w.table.Loop(0).Read(c.slot)
		if tr.Sequences != j.seq {
			t.Fatalf("packet %d: the program knows %+v, the judge %+v", i, tr.Sequences, j.seq)
		}
		switch {
		case why != "forwarded":
			if result != goOn || !bytes.Equal(out, frame) {
				t.Fatalf("packet %d goes up with %d as\n%x\nit was\n%x", i, int32(result), out, frame)
			}
		case result != redirect:
			t.Fatalf("packet %d is forwarded with %d", i, int32(result))
		case gso == 0:
			if verdict, want := w.send(uint8(side), frame); verdict != packet.Forward || !bytes.Equal(out, want) {
				t.Fatalf("packet %d: the kernel forwards\n%x\nthe handler, %v,\n%x\nof\n%x", i, out, verdict, want, frame)
			}
		}
	}
	t.Log(seen)
	for _, why := range []string{"forwarded", "no_entry", "header", "hops", "too_long", "link"} {
		if seen[why] < count/200 {
			t.Errorf("only %d packets of %d were %s", seen[why], count, why)
		}
	}
	if c.flow.Proto == wire.ProtoTCP && (seen["flags"] < count/100 || seen["window"] < count/100) {
		t.Errorf("too few of some kind: %v", seen)
	}
}

// reasonOf returns the one reason that was counted between two readings.
func reasonOf(before, after *kernelflows.Stats) string {
	why := ""
	for i, name := range kernelflows.Reasons {
		if n := after.Packets[i] - before.Packets[i]; n != 0 {
			why += fmt.Sprint(name)
		}
	}
	return why
}

// randomFrame returns a packet that s would send, with sequence numbers in or around the window, and often changed.
func randomFrame(rnd *rand.Rand, s *seg, me, peer *fastpath.Sequence) []byte {
	p := *s
	p.payload = []int{0, 1, 7, rnd.IntN(1460), 1400 + rnd.IntN(160)}[rnd.IntN(5)]
	p.noChecked, p.dontFrag = rnd.IntN(4) == 0 && p.src.Addr().Is4(), rnd.IntN(2) == 0
	if rnd.IntN(10) == 0 {
		p.ttl = uint8(rnd.IntN(4))
	}
	if rnd.IntN(20) == 0 {
		p.from[5]++
	}
	if rnd.IntN(20) == 0 {
		p.to[rnd.IntN(6)] ^= 4
	}
	p.flags = wire.FlagACK
	switch rnd.IntN(12) {
	case 0:
		p.flags = wire.TCPFlags(rnd.IntN(256))
	case 1:
		p.flags |= []wire.TCPFlags{wire.FlagPSH, wire.FlagURG, wire.FlagECE, wire.FlagCWR}[rnd.IntN(4)]
	}
	p.window = uint16(rnd.IntN(1 << rnd.IntN(17)))
	near := func(x uint32, by int) uint32 { return x + uint32(rnd.IntN(2*by+1)-by) }
	p.seq, p.ack = near(me.End, 1+rnd.IntN(2000)), near(peer.End-500, 1+rnd.IntN(600))
	switch rnd.IntN(12) {
	case 0:
		p.seq = near(me.Limit-uint32(p.payload), 2)
	case 1:
		p.seq = near(me.End-peer.Window-uint32(p.payload), 2)
	case 2:
		p.ack = near(peer.End, 2)
	case 3:
		p.ack = near(peer.End-max(me.Window, 66000), 2)
	case 4:
		p.ack = near(peer.Limit+me.Window, 2)
	case 5:
		p.seq = rnd.Uint32()
	case 6:
		p.seq = me.End
	}
	if rnd.IntN(4) == 0 {
		p.options = make([]byte, 4*rnd.IntN(11))
		for i := range p.options {
			p.options[i] = 1
		}
	}
	return damaged(rnd, p.bytes())
}

// damaged changes every third frame or so.
func damaged(rnd *rand.Rand, b []byte) []byte {
	ip := b[14:]
	four := ip[0]>>4 == 4
	resum := func() {
		if four {
			wire.IPv4(ip).SetChecksum(0)
			wire.IPv4(ip).SetChecksum(wire.Fold(wire.Sum(ip[:20], 0)))
		}
	}
	switch rnd.IntN(36) {
	case 0:
		b[rnd.IntN(len(b))] ^= 1 << rnd.IntN(8)
	case 1: // the kernel runs no program without a whole network header
		least := 14 + transport(four)
		return b[:least+rnd.IntN(len(b)-least)]
	case 2: // padding
		return append(b, make([]byte, rnd.IntN(20))...)
	case 3: // fragments, and the reserved bit
		if four {
			binary.BigEndian.PutUint16(ip[6:], []uint16{0x2000, 0x8000, 1, 0x1fff, uint16(rnd.IntN(1 << 16))}[rnd.IntN(5)])
			resum()
		}
	case 4: // options: the first bytes of the transport header
		if four {
			ip[0] = 0x40 + byte(rnd.IntN(16))
			resum()
		}
	case 5:
		ip[0] = byte(rnd.IntN(256))
		resum()
	case 6: // length
		at := 2
		if !four {
			at = 4
		}
		binary.BigEndian.PutUint16(ip[at:], uint16(rnd.IntN(1<<rnd.IntN(17))))
		resum()
	case 7: // data offset, or the length of UDP
		b[len(b)-len(ip)+transport(four)+[]int{12, 4, 5}[rnd.IntN(3)]%8] ^= byte(rnd.IntN(256))
	case 8: // protocol, ports
		at := 9
		if !four {
			at = 6
		}
		ip[at] = []byte{6, 17, 1, 0, 44, 132}[rnd.IntN(6)]
		resum()
	case 9:
		ip[transport(four)+rnd.IntN(4)] ^= 1 << rnd.IntN(8)
	case 10: // EtherType
		if len(b) < 54 { // too short for IPv6: see above
			return b
		}
		binary.BigEndian.PutUint16(b[12:], []uint16{0x0800, 0x86dd, 0x8100, 0x0806}[rnd.IntN(4)])
	case 11: // addresses
		ip[8+rnd.IntN(12)] ^= 1 << rnd.IntN(8)
		resum()
	case 12: // checksum of the transport
		ip[transport(four)+6] ^= 0x55
		if len(ip) > transport(four)+17 {
			ip[transport(four)+16] ^= 0x55
		}
	}
	return b
}

func transport(four bool) int {
	if four {
		return 20
	}
	return 40
}
