package control

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// joinPackets makes the packet that GRO, or a sender with segmentation offload, makes of IPv4 packets of one flow.
func joinPackets(list [][]byte) []byte {
	p := bytes.Clone(list[0])
	ip := wire.IPv4(p[14:])
	l4 := 14 + ip.HeaderLen()
	head := l4 + 8
	if ip.Proto() == wire.ProtoTCP {
		head = l4 + wire.TCP(p[l4:]).DataOffset()
	}
	for _, next := range list[1:] {
		p = append(p, next[head:]...)
	}
	ip = wire.IPv4(p[14:])
	ip.SetTotalLen(uint16(len(p) - 14))
	ip.FillChecksum()
	if ip.Proto() == wire.ProtoUDP {
		wire.UDP(p[l4:]).SetLen(uint16(len(p) - l4))
		return p
	}
	last := list[len(list)-1]
	wire.TCP(p[l4:]).SetFlags(wire.TCP(p[l4:]).Flags() | wire.TCP(last[l4:]).Flags())
	return p
}

// joined passes packets through as one, of frames or with external payload.
func (w *world) joined(from uint8, list [][]byte, gso uint8, external bool) *packet.Batch {
	w.t.Helper()
	p := joinPackets(list)
	l4, at := unfinished(p)
	head := l4 + 8
	if at == 16 {
		head = l4 + wire.TCP(p[l4:]).DataOffset()
	}
	var b *packet.Batch
	if external {
		b = w.batch(from, p[:256])
	} else {
		pieces := [][]byte{p[:min(len(p), 1801)]}
		for rest := p[len(pieces[0]):]; len(rest) > 0; rest = rest[min(len(rest), 1801):] {
			pieces = append(pieces, rest[:min(len(rest), 1801)])
		}
		b = w.batch(from, pieces...)
		for i := range b.D[1:] {
			b.D[i].Flags = packet.FlagMore
		}
	}
	d := &b.D[0]
	d.Flags |= packet.FlagOffload
	start := w.arena.Headroom(d)
	w.arena.SetOffload(d, &packet.Offload{
		Flags: packet.OffloadNeedsChecksum, GSO: gso, SegmentSize: uint16(len(list[0]) - head), HeadersEnd: uint16(start + head),
		ChecksumFrom: uint16(start + l4), ChecksumAt: uint16(at),
	})
	if external {
		w.arena.SetExternal(d, p[256:])
	}
	w.run(b)
	runtime.KeepAlive(p)
	return b
}

// datagramsOf puts fragments together, in the order in which their last ones left.
func datagramsOf(t *testing.T, list [][]byte) (all [][]byte) {
	t.Helper()
	of := map[uint16][][]byte{}
	for _, p := range list {
		id := wire.IPv4(p[14:]).ID()
		of[id] = append(of[id], p)
		if !wire.IPv4(p[14:]).MoreFragments() {
			all = append(all, join(t, of[id]))
			delete(of, id)
		}
	}
	if len(of) > 0 {
		t.Errorf("%d datagrams have no end", len(of))
	}
	return all
}

// burst returns packets of a flow, back to back and of one size but the last.
func burst(src, dst, flags string, n, size int) (list [][]byte) {
	for i := range n {
		s := client(src, dst, flags)
		if i == n-1 {
			size /= 2
		}
		s.payload = string(bytes.Repeat([]byte{byte('a' + i)}, size))
		if s.seq = uint32(1000 + i*size); i == n-1 {
			s.seq = uint32(1000 + i*2*size)
		}
		if flags != "" && i < n-1 {
			s.flags = "A"
		}
		p := s.bytes()
		wire.IPv4(p[14:]).SetID(uint16(300 + i))
		wire.IPv4(p[14:]).FillChecksum()
		list = append(list, p)
	}
	return list
}

// Packets without Don't Fragment that are joined to one, and larger than the MTU of their way out, arrive as those that came
// one by one: as segments of their own, each in fragments.
func TestJoinedPacketsLeaveInFragmentsOfEach(t *testing.T) {
	for name, config := range cutConfigs() {
		for _, c := range []struct {
			dst, open, flags string
			gso              uint8
		}{{dns, "", "", packet.GSOUDP}, {web, "S", "PA", packet.GSOTCPv4}, {web, "S", "PA", packet.GSOTCPv4 | packet.GSOECN}} {
			for _, external := range []bool{false, true} {
				t.Run(fmt.Sprint(name, " ", c.dst, " ", external), func(t *testing.T) {
					list := burst(host, c.dst, c.flags, 20, 1400)
					if c.gso&packet.GSOECN != 0 {
						wire.TCP(list[0][34:]).SetFlags(wire.FlagACK | wire.FlagCWR)
						wire.TCP(list[0][34:]).FillChecksum(wire.IPv4(list[0][14:]).Pseudo())
					}
					const mtu = 1400
					w := newWorld(t, config)
					w.expect(0, client(host, c.dst, c.open).bytes(), 1)
					w.narrow(1, mtu)
					o := w.withOutput()
					single := datagramsOf(t, w.leaves(o, 0, 1, mtu, list...))
					o.originated = nil
					before := w.toBytes()
					b := w.joined(0, list, c.gso, external)
					if d := b.D[0]; d.Verdict != packet.Forward || d.Port != 1 || d.Flags&(packet.FlagOffload|packet.FlagMore) != 0 {
						t.Fatalf("%+v", d)
					}
					for i := range b.D[1:] {
						if b.D[1+i].Verdict != packet.Release {
							t.Fatalf("descriptor %d: %v", 1+i, b.D[1+i].Verdict)
						}
					}
					out, sum := append(o.originated, bytes.Clone(b.Bytes(0))), 0
					for _, p := range out {
						if sum += len(p); len(p) > 14+mtu {
							t.Errorf("a packet of %d bytes", len(p))
						}
					}
					got := datagramsOf(t, out)
					if len(got) != len(list) {
						t.Fatalf("%d packets of %d", len(got), len(list))
					}
					for i := range got {
						w.checksumsRight(got[i])
						if id := wire.IPv4(got[i][14:]).ID(); name == "l2" && int(id) != 300+i {
							t.Errorf("packet %d has identification %d", i, id)
						}
						if flags := wire.TCP(got[i][34:]).Flags(); c.gso&packet.GSOECN != 0 && flags.Has(wire.FlagCWR) != (i == 0) {
							t.Errorf("packet %d has flags %v", i, flags)
						}
						sameDatagram(t, got[i], single[i])
					}
					if n := w.toBytes() - before; name != "l2" && n != uint64(sum) {
						t.Errorf("%d bytes are counted, %d left", n, sum)
					}
				})
			}
		}
	}
}

// toBytes returns the bytes that have left for all backends.
func (w *world) toBytes() (n uint64) {
	w.after(0)
	for _, s := range w.g.Status().Services {
		for _, b := range s.Backends {
			n += b.ToBytes
		}
	}
	return n
}

// The same on the way to a client behind a narrower link.
func TestJoinedRepliesLeaveInFragmentsOfEach(t *testing.T) {
	w := newWorld(t, fill(""))
	o := w.withOutput()
	out := w.expect(0, client(host, dns, "").bytes(), 1)
	s := answer(out, "")
	list := burst(s.src.String(), s.dst.String(), "", 5, 1400)
	for _, p := range list {
		copy(p, s.bytes()[:14])
	}
	w.narrow(0, 700)
	o.dev = 0
	b := w.joined(1, list, packet.GSOUDP, false)
	got := datagramsOf(t, append(o.originated, bytes.Clone(b.Bytes(0))))
	if b.D[0].Verdict != packet.Forward || b.D[0].Port != 0 || len(got) != 5 {
		t.Fatalf("%+v, %d datagrams", b.D[0], len(got))
	}
	for i, p := range got {
		w.checksumsRight(p)
		if f := flowOf(p); f.payload != string(list[i][42:]) || f.dst.String() != host {
			t.Errorf("datagram %d: %v, %d bytes", i, f.dst, len(f.payload))
		}
	}
}

// A packet with external payload keeps the bytes of its frame, whatever the way to the backend.
func TestExternalPayloadStaysBehindItsHeaders(t *testing.T) {
	for name, config := range cutConfigs() {
		w := newWorld(t, config)
		b := w.joined(0, burst(host, dns, "", 5, 1400), packet.GSOUDP, true)
		if d := &b.D[0]; d.Verdict != packet.Forward || d.Len != 256 || len(w.arena.External(d)) != 14+20+8+4*1400+700-256 {
			t.Errorf("%s: %v, %d bytes in the frame and %d behind", name, d.Verdict, d.Len, len(w.arena.External(d)))
		}
	}
}

// Where frames run out, the segments of a joined packet that have left stay sent, and the rest is dropped; with Don't
// Fragment, and of IPv6, the packet is answered as before.
func TestWhatOfJoinedPacketsLeavesInNoFragments(t *testing.T) {
	w := newWorld(t, fill(""))
	o := w.withOutput()
	o.dev = 1
	list := burst(host, dns, "", 5, 1400)
	w.narrow(1, 1000)
	o.room = 1
	if b := w.joined(0, list, packet.GSOUDP, false); b.D[0].Verdict != packet.DropNoFrame {
		t.Errorf("without frames: %v", b.D[0].Verdict)
	}
	o.room = 64
	for _, p := range list {
		dontFragment(p)
	}
	b := w.joined(0, list, packet.GSOUDP, false)
	if got := toldBy(t, bytes.Clone(b.Bytes(0))); b.D[0].Port != 0 || got.mtu != 1000 {
		t.Errorf("with Don't Fragment: %v, %+v", b.D[0].Verdict, got)
	}
}

func TestSegmentingAllocatesNothing(t *testing.T) {
	w := newWorld(t, fill(""))
	s := &spare{output: output{w: w}}
	for i := range s.frames {
		s.frames[i] = uint32((128 + i) << frameBits)
	}
	w.h.SetOutput(s)
	list := burst(host, dns, "", 5, 1400)
	w.joined(0, list, packet.GSOUDP, false)
	w.narrow(1, 1000)
	p := joinPackets(list)
	l4, at := unfinished(p)
	out := w.arena.Mem[10<<frameBits:]
	b, done := packet.NewBatch(w.arena, 1), [1]*packet.Batch{}
	n := testing.AllocsPerRun(20, func() {
		copy(out[128:], p[:256])
		d := packet.Desc{Off: 10<<frameBits + 128, Len: 256, Flags: packet.FlagOffload}
		start := w.arena.Headroom(&d)
		w.arena.SetOffload(&d, &packet.Offload{
			Flags: packet.OffloadNeedsChecksum, GSO: packet.GSOUDP, SegmentSize: 1400,
			ChecksumFrom: uint16(start + l4), ChecksumAt: uint16(at),
		})
		w.arena.SetExternal(&d, p[256:])
		b.D = append(b.D[:0], d)
		if err := w.engine.Submit(b); err != nil || w.engine.Poll(done[:]) != 1 {
			t.Fatal(err)
		}
		if w.h.Handle(w.now, b); b.D[0].Verdict != packet.Forward {
			t.Fatal(b.D[0].Verdict)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}
