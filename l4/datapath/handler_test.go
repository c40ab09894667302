package datapath

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/lpm"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// bench is a handler with one UDP service, 198.18.1.1:53, and one backend, 198.18.2.11:53.
type bench struct {
	h    *Handler
	snap atomic.Pointer[Snapshot]
	now  clock.Time
}

func newBench() *bench {
	b := &bench{now: clock.Time(time.Hour)}
	vip, at := netip.MustParseAddrPort("198.18.1.1:53"), netip.MustParseAddrPort("198.18.2.11:53")
	s := &Snapshot{
		Devices:  []Device{{MAC: [6]byte{2, 0, 0, 0, 0, 0x90}}, {MAC: [6]byte{2, 0, 0, 0, 0, 0x91}}},
		Timeouts: NewTimeouts(IdleTimes{UDP: time.Minute}),
	}
	front, sv, to := NewVIP(vip, wire.ProtoUDP), NewService("dns", 1), NewEndpoint(at, wire.ProtoUDP)
	front.Service = 0
	to.InUse, to.Hop = true, Hop{MAC: [6]byte{2, 0, 0, 0, 0, 0xb1}, Dev: 1, State: HopReady}
	sv.NewFlow[Family4] = new(PoolCache).Get([]Share{{Name: "d1", Weight: 1, ID: 0}}, 251)
	s.VIPs, s.Services, s.Endpoints = []VIP{front}, []*Service{sv}, []*Endpoint{to}
	s.Backends = []*Backend{NewBackend("", 0, 0, 1)}
	s.Backends[0].Configured = true
	s.SetSNAT(1, netip.MustParseAddr("198.18.2.1"), 1)
	s.SNAT4 = []uint16{1}
	s.Sources.services, s.Limits.services = make([]*SourceTable, 1), make([]Limits, 1)
	s.Index([]netip.Addr{netip.MustParseAddr("198.18.2.1")})
	s.SetOwn(nil, nil)
	b.snap.Store(s)
	b.h = New(Options{Loops: 1, Table: 64, HalfOpen: 32, Fragments: 64, SNATPorts: PortRange{1024, 2047}, Seed: 1}, &b.snap)
	return b
}

// send passes a datagram of n bytes from client 198.18.0.9:40000 to a port of the service address.
func (b *bench) send(port uint16, n int, fragment bool) packet.Verdict {
	const frame = 2048
	arena := &packet.Arena{Mem: make([]byte, 2*frame), Shift: 11}
	p := wire.AppendEthernet(arena.Mem[128:128], [6]byte{2, 0, 0, 0, 0, 0x90}, [6]byte{2, 0, 0, 0, 0, 0xc1}, wire.EtherTypeIPv4)
	p = wire.AppendIPv4(p, &wire.IPv4Header{Src: [4]byte{198, 18, 0, 9}, Dst: [4]byte{198, 18, 1, 1}, Proto: wire.ProtoUDP, TTL: 64, PayloadLen: wire.UDPLen + n})
	p = append(wire.AppendUDP(p, 40000, port, n), make([]byte, n)...)
	if ip := wire.IPv4(p[wire.EthernetLen:]); fragment {
		ip[6] |= 0x20 // more fragments
		ip.FillChecksum()
	}
	batch := packet.NewBatch(arena, 1)
	batch.Append(packet.Desc{Off: 128, Len: uint16(len(p))})
	engine := gpukern.NewCPU(gpukern.Config{})
	if engine.Submit(batch) != nil || engine.Poll(make([]*packet.Batch, 1)) != 1 {
		return packet.Drop
	}
	b.h.Handle(b.now, batch)
	return batch.D[0].Verdict
}

func TestWithoutLimitsThereAreNoMeters(t *testing.T) {
	b := newBench()
	if v := b.send(53, 64, false); v != packet.Forward || b.h.meters != nil {
		t.Errorf("%v, meters %v", v, b.h.meters)
	}
}

// What is not served takes no entry of the datagrams whose fragments are followed.
func TestRejectedFirstFragmentIsNotRemembered(t *testing.T) {
	b := newBench()
	if n := len(b.h.fragments.list); n != 64 {
		t.Errorf("room for %d datagrams", n)
	}
	remembered := func() (n int) {
		for _, e := range b.h.fragments.list {
			if e.until != 0 {
				n++
			}
		}
		return n
	}
	if v := b.send(9, 64, true); v != packet.DropNoService || remembered() != 0 {
		t.Errorf("%v, remembers %d", v, remembered())
	}
	if v := b.send(53, 64, true); v != packet.Forward || remembered() != 1 {
		t.Errorf("%v, remembers %d", v, remembered())
	}
}

// When the lists change a connection is looked up in them once, at its next packet.
func TestConnectionIsMarkedWithTheListsThatLetItIn(t *testing.T) {
	b := newBench()
	b.send(53, 64, false)
	s := b.snap.Load().Clone()
	table, err := lpm.Compile([]lpm.Route{{Prefix: netip.MustParsePrefix("198.18.0.8/32"), NextHop: 2}})
	if err != nil {
		t.Fatal(err)
	}
	s.Sources = s.Sources.Next(&SourceTable{Prefixes: table, Denied: 2}, s.Sources.services, true)
	b.snap.Store(s)
	if v := b.send(53, 64, false); v != packet.Forward {
		t.Fatal(v)
	}
	key := clientKey{client: addr4([]byte{198, 18, 0, 9}), port: 40000}
	if n := b.h.table.byClient(&key); n < 0 || b.h.table.conns[n].lists != s.Sources.Mark || s.Sources.Mark == 0 {
		t.Errorf("connection %d: it will be looked up with every packet", n)
	}
}

// The view that a look-ahead reads is decided on, so nothing of the packet that had its place before may be left in it.
func TestLookingAheadReadsEachViewAnew(t *testing.T) {
	b := newBench()
	b.h.prefetcher.from = 0
	l := &b.h.prefetcher.lookups[0]
	l.view = view{flags: wire.FlagSYN, part: later, mtu: 1, localAddr: addr{1, 1}, idAt: 1, id: 1}
	if v := b.send(53, 64, false); v != packet.Forward {
		t.Fatal(v)
	}
	v := l.view
	v.d, v.p = nil, nil
	if want := (view{src: addr4([]byte{198, 18, 0, 9}), dst: addr4([]byte{198, 18, 1, 1}), sport: 40000, dport: 53, is4: true}); !l.known || fmt.Sprint(v) != fmt.Sprint(want) {
		t.Errorf("known %v, view %+v, want %+v", l.known, v, want)
	}
}
