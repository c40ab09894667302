package control

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
)

// flood is a batch of packets from distinct clients, UDP datagrams or SYNs, ready for Handle without the engine.
// Handle rewrites the frames, so restore puts back what it changed.
type flood struct {
	w    *world
	b    *packet.Batch
	orig []byte
	desc []packet.Desc

	next     int // the first client that sent nothing yet, where the test counts
	services int // 0, or client n goes to service n modulo this many; see manyServices
}

func newFlood(w *world, n int) *flood { return newFloodOf(w, n, "") }

// newFloodOf returns a flood of TCP segments with the given flags; "" is UDP.
func newFloodOf(w *world, n int, flags string) *flood {
	var pkts [][]byte
	for i := range n {
		pkts = append(pkts, client(fmt.Sprintf("198.18.0.9:%d", 1+i), dns, flags).bytes())
	}
	f := &flood{w: w, b: w.batch(0, pkts...)}
	if err := w.engine.Submit(f.b); err != nil {
		w.t.Fatal(err)
	}
	w.engine.Poll(make([]*packet.Batch, 1))
	f.orig = append(f.orig, w.arena.Mem...)
	f.desc = append(f.desc, f.b.D...)
	return f
}

// from sets the client of packet i to number n, and restores the rest of its headers.
func (f *flood) from(i, n int) {
	off := int(f.desc[i].Off)
	p := f.w.arena.Mem[off : off+64]
	copy(p, f.orig[off:])
	binary.BigEndian.PutUint32(p[26:], 0xc6000000|uint32(n)>>12)
	binary.BigEndian.PutUint16(p[34:], uint16(n&0xfff)+1)
	if f.services > 0 {
		binary.BigEndian.PutUint32(p[30:], 0xc6130000|uint32(n%f.services))
	}
	f.b.D[i] = f.desc[i]
}

// floodClient returns client number n, as from makes it.
func floodClient(n int) netip.AddrPort {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 0xc6000000|uint32(n)>>12)
	return netip.AddrPortFrom(netip.AddrFrom4(a), uint16(n&0xfff)+1)
}

// handle passes clients first, first+step ... through the handler.
func (f *flood) handle(first, step int) {
	for i := range f.desc {
		f.from(i, first+i*step)
	}
	f.w.h.Handle(f.w.now, f.b)
}

func (f *flood) forwarded(t testing.TB) {
	t.Helper()
	for i := range f.b.D {
		if v := f.b.D[i].Verdict; v != packet.Forward {
			t.Fatalf("packet %d: %v", i, v)
		}
	}
}

func TestNoPacketAllocates(t *testing.T) {
	w := newWorld(t, bigTable(4096))
	f := newFlood(w, 64)
	f.handle(0, 1)
	if n := testing.AllocsPerRun(100, func() { f.handle(0, 1) }); n != 0 {
		t.Errorf("known connections: %.1f allocations a batch", n)
	}
	first := 64
	if n := testing.AllocsPerRun(60, func() { f.handle(first, 1); first += 64 }); n != 0 {
		t.Errorf("new connections: %.1f allocations a batch", n)
	}
	f.forwarded(t)
	first = 1 << 20
	if n := testing.AllocsPerRun(20, func() { f.handle(first, 1); first += 64 }); n != 0 {
		t.Errorf("refused connections: %.1f allocations a batch", n)
	}
	if n := testing.AllocsPerRun(20, func() { w.now = w.now.Add(20 * time.Second); w.h.Tick(w.now) }); n != 0 {
		t.Errorf("expiry: %.1f allocations a tick", n)
	}
	ask := arpFor("198.18.1.1", 1)
	b := w.batch(0, ask)
	b.D[0].L3 = 14
	if n := testing.AllocsPerRun(20, func() { copy(b.Bytes(0), ask); w.h.Handle(w.now, b) }); n != 0 || b.D[0].Verdict != packet.Forward {
		t.Errorf("ARP: %.1f allocations, %v", n, b.D[0].Verdict)
	}
}

// bigTable serves 16 backends; with 1 M connections each has some 60 000 and four SNAT addresses.
func bigTable(size int) string {
	s := fmt.Sprintf("devices: [{name: gw0}, {name: gw1}]\nsnat: [198.18.2.1, 198.18.2.2, 198.18.2.3, 198.18.2.4]\ntable: {size: %d, udp: 1h}\n", size)
	s += "services:\n  - name: dns\n    protocol: udp\n    address: 198.18.1.1:53\n    backends:\n"
	for i := range 16 {
		s += fmt.Sprintf("      - {name: b%d, address: 198.18.2.%d:53}\n", i, 100+i)
	}
	return s
}

// BenchmarkHandle is the cost of the handler for each packet, the engine not counted. Rewriting the
// frame back to a client's packet is part of it, and measured alone as "restore".
func BenchmarkHandle(b *testing.B) {
	perPacket := func(b *testing.B, n int) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/packet")
		b.ReportMetric(0, "ns/op")
	}
	const burst = 64
	b.Run("restore", func(b *testing.B) {
		f := newFlood(newWorld(b, bigTable(1024)), burst)
		for b.Loop() {
			for i := range burst {
				f.from(i, i)
			}
		}
		perPacket(b, burst)
	})
	for _, flows := range []int{1000, 1_000_000} {
		w := newWorld(b, bigTable(1_000_000))
		f := newFlood(w, burst)
		for i := 0; i+burst <= flows; i += burst {
			f.handle(i, 1)
		}
		b.Run(fmt.Sprintf("known/%d", flows), func(b *testing.B) {
			i := 0
			for b.Loop() {
				f.handle(i, 7)
				if i += burst * 7; i+burst*7 > flows {
					i = i % 7
				}
			}
			f.forwarded(b)
			perPacket(b, burst)
		})
		b.Run(fmt.Sprintf("reply/%d", flows), func(b *testing.B) { benchReplies(b, w, f, flows); perPacket(b, burst) })
	}
	b.Run("new/1000000", func(b *testing.B) {
		w := newWorld(b, bigTable(1_000_000))
		f, i := newFlood(w, burst), 0
		for b.Loop() {
			if i+burst > 1_000_000 {
				b.StopTimer()
				w.now, i = w.now.Add(2*time.Hour), 0
				for w.h.Connections() > 0 {
					w.h.Tick(w.now)
				}
				b.StartTimer()
			}
			f.handle(i, 1)
			i += burst
		}
		f.forwarded(b)
		perPacket(b, burst)
	})
}

// benchReplies sends replies to random connections of the table.
func benchReplies(b *testing.B, w *world, f *flood, flows int) {
	type reply struct {
		target, source [4]byte
		ports          uint32
	}
	var replies []reply
	for _, c := range w.conns() {
		replies = append(replies, reply{c.Target.Addr().As4(), c.Source.Addr().As4(), uint32(c.Target.Port())<<16 | uint32(c.Source.Port())})
	}
	n := 0
	for b.Loop() {
		for i := range f.desc {
			n = (n + 7919) % min(flows, len(replies))
			f.from(i, 0)
			p, r := w.arena.Mem[f.desc[i].Off:], &replies[n]
			copy(p[26:30], r.target[:])
			copy(p[30:34], r.source[:])
			binary.BigEndian.PutUint32(p[34:], r.ports)
			copy(p, macGw1[:])
			f.b.D[i].Port = 1
		}
		w.h.Handle(w.now, f.b)
	}
	f.forwarded(b)
}
