package dpdk_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/dpdk"
	"github.com/millrace/millrace/pmd/virtio"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

// kind is a sort of packet with work that its sender leaves to the device.
type kind struct {
	udp, v6 bool
	tagged  bool
	mss     uint16 // 0: the checksum alone
	ecn     bool
}

func (k kind) String() string {
	return fmt.Sprintf("udp=%v,v6=%v,tagged=%v,mss=%d,ecn=%v", k.udp, k.v6, k.tagged, k.mss, k.ecn)
}

// build returns a packet of n bytes of payload whose checksum field has the sum of the pseudo-header, and the Offload that goes
// with it in a frame with so much headroom.
func (k kind) build(n, headroom int) (p []byte, o packet.Offload) {
	p = append(p, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2)
	if k.tagged {
		p = append(p, 0x81, 0, 0, 7)
	}
	proto, header, at := uint8(wire.ProtoTCP), 20, 16
	if o.GSO = packet.GSOTCPv4; k.v6 {
		o.GSO = packet.GSOTCPv6
	}
	if k.udp {
		proto, header, at, o.GSO = wire.ProtoUDP, 8, 6, packet.GSOUDP
	}
	var sum uint32
	if k.v6 {
		p = append(p, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, proto, 64)
		p = append(p, bytes.Repeat([]byte{0x20, 1, 0xd, 0xb8}, 8)...)
		ip := wire.IPv6(p[len(p)-40:])
		ip.SetPayloadLen(uint16(header + n))
		sum = wire.PseudoHeader6(ip.Src(), ip.Dst(), proto, uint32(header+n))
	} else {
		p = append(p, 8, 0, 0x45, 0, 0, 0, 0, 7, 0, 0, 64, proto, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2)
		ip := wire.IPv4(p[len(p)-20:])
		ip.SetTotalLen(uint16(20 + header + n))
		ip.FillChecksum()
		sum = wire.PseudoHeader4(ip.Src(), ip.Dst(), proto, uint32(header+n))
	}
	l4 := len(p)
	if k.udp {
		p = append(p, 0x12, 0x34, 0, 80, 0, 0, 0, 0)
		binary.BigEndian.PutUint16(p[l4+4:], uint16(8+n))
	} else {
		p = append(p, 0x12, 0x34, 0, 80, 0, 0, 0, 9, 0, 0, 0, 1, 0x50, 0x19, 1, 0, 0, 0, 0, 0) // FIN, PSH, ACK
		if k.ecn {
			p[l4+13] |= 0x80 // CWR
			o.GSO |= packet.GSOECN
		}
	}
	binary.BigEndian.PutUint16(p[l4+at:], ^wire.Fold(sum))
	for i := range n {
		p = append(p, byte(i*7))
	}
	o.Flags, o.SegmentSize = packet.OffloadNeedsChecksum, k.mss
	o.HeadersEnd, o.ChecksumFrom, o.ChecksumAt = uint16(headroom+l4+header), uint16(headroom+l4), uint16(at)
	if k.mss == 0 {
		o.GSO, o.HeadersEnd = packet.GSONone, 0
	}
	return p, o
}

// checked returns the headers' length of a complete packet, whose checksums it computes byte by byte.
func checked(t *testing.T, p []byte) int {
	t.Helper()
	l3 := 14
	if p[12] == 0x81 {
		l3 = 18
	}
	l4, proto := l3+20, p[l3+9]
	var sum uint32
	words := func(b []byte) {
		for i, c := range b {
			sum += uint32(c) << (8 * (1 - i&1))
		}
	}
	if p[l3]>>4 == 6 {
		l4, proto = l3+40, p[l3+6]
		words(p[l3+8 : l3+40])
		if n := int(binary.BigEndian.Uint16(p[l3+4:])); n != len(p)-l4 {
			t.Errorf("payload length %d of %d", n, len(p)-l4)
		}
	} else {
		words(p[l3 : l3+20])
		for sum>>16 != 0 {
			sum = sum>>16 + sum&0xffff
		}
		if sum != 0xffff || int(binary.BigEndian.Uint16(p[l3+2:])) != len(p)-l3 {
			t.Errorf("IPv4 header %x of %d bytes", p[l3:l3+20], len(p)-l3)
		}
		sum = 0
		words(p[l3+12 : l3+20])
	}
	sum += uint32(proto) + uint32(len(p)-l4)
	words(p[l4:])
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	if sum != 0xffff {
		t.Errorf("transport checksum: the sum is %#x in %x", sum, p[:min(len(p), 80)])
	}
	if proto == wire.ProtoUDP {
		return l4 + 8
	}
	return l4 + 20
}

// guestPair is a device of DPDK that a virtio driver of this package's neighbour is the guest of.
type guestPair struct {
	t          *testing.T
	host       *dpdk.Device
	guest      *virtio.Frontend
	arenas     [2]*ring.Arena // of host and guest
	pools      [2]*ring.Pool
	hostHeader int // headroom of packets sent by either end
}

func newGuestPair(t *testing.T, with ...func(dpdk.Config) dpdk.Config) *guestPair {
	t.Helper()
	need(t)
	dir, err := os.MkdirTemp("", "mr-dpdk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := &guestPair{t: t, hostHeader: 128}
	var pools []*ring.Pool
	p.arenas[0], pools = memory(t, 1, 1024, 2048)
	p.pools[0] = pools[0]
	if p.arenas[1], err = ring.NewArena(ring.ArenaConfig{Frames: 1024, Huge: ring.HugeOff, Shared: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.arenas[1].Close() })
	if p.pools[1], err = p.arenas[1].Cut(0); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	cfg := dpdk.Config{Name: "net_vhost0,tso=1,iface=" + path, Pools: pools}
	for _, f := range with {
		cfg = f(cfg)
	}
	p.host = open(t, cfg)
	if p.guest, err = virtio.OpenFrontend(virtio.Config{Path: path, Pools: p.pools[1:], Ring: 256}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.guest.Close(); err != nil {
			t.Error(err)
		}
	})
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		_, a := p.host.Queues[0].Rx(p.now(), packet.NewBatch(p.arenas[0].View(), 1))
		_, b := p.guest.Queues[0].Rx(p.now(), packet.NewBatch(p.arenas[1].View(), 1))
		if a == nil && b == nil {
			return p
		}
		if time.Now().After(end) || a != nil && !errors.Is(a, pmd.ErrDown) || b != nil && !errors.Is(b, pmd.ErrDown) {
			t.Fatal(a, b)
		}
	}
}

func (p *guestPair) now() clock.Time { return clock.Time(time.Now().UnixNano()) }

func (p *guestPair) end(i int) pmd.Driver {
	if i == 0 {
		return p.host.Queues[0]
	}
	return p.guest.Queues[0]
}

// chain returns a batch of one packet in frames of an end.
func (p *guestPair) chain(end int, data []byte, o *packet.Offload) *packet.Batch {
	b := packet.NewBatch(p.arenas[end].View(), 64)
	for room := p.hostHeader; len(data) > 0; room = 0 {
		off, _ := p.pools[end].Get()
		d := packet.Desc{Off: off + uint32(room), Len: uint16(min(len(data), 2048-room))}
		copy(b.Arena.Bytes(&d), data)
		if data = data[d.Len:]; len(data) > 0 {
			d.Flags = packet.FlagMore
		}
		b.Append(d)
	}
	if o != nil {
		b.D[0].Flags |= packet.FlagOffload
		b.Arena.SetOffload(&b.D[0], o)
	}
	return b
}

// send sends a packet by one end, and polls it until all of it has left.
func (p *guestPair) send(end int, data []byte, o *packet.Offload) {
	p.t.Helper()
	b := p.chain(end, data, o)
	for limit := time.Now().Add(10 * time.Second); b.Len() > 0; {
		n, err := p.end(end).Tx(p.now(), b)
		if err != nil || time.Now().After(limit) {
			p.t.Fatalf("Tx = %d, %v", n, err)
		}
		b.Consume(n)
	}
}

// arrived is a received packet.
type arrived struct {
	data    []byte
	offload *packet.Offload // nil: complete
	flags   packet.Flags
}

// receive returns the packets that arrive at one end, until there are so many. The other end is polled too: it may have segments
// to send.
func (p *guestPair) receive(end, count int) (list []arrived) {
	p.t.Helper()
	b := packet.NewBatch(p.arenas[end].View(), 64)
	idle := packet.NewBatch(p.arenas[1-end].View(), 64)
	for limit := time.Now().Add(10 * time.Second); len(list) < count; {
		if _, err := p.end(end).Rx(p.now(), b); err != nil {
			p.t.Fatal(err)
		}
		if _, err := p.end(1-end).Rx(p.now(), idle); err != nil {
			p.t.Fatal(err)
		}
		p.pools[1-end].PutBatch(idle)
		idle.Reset()
		for d := b.D; len(d) > 0; {
			k := packet.Chain(d)
			a := arrived{data: b.Arena.Gather(nil, d[:k], 1<<20), flags: d[0].Flags}
			if d[0].Flags.Has(packet.FlagOffload) {
				o := b.Arena.Offload(&d[0])
				start := uint16(b.Arena.Headroom(&d[0]))
				o.HeadersEnd, o.ChecksumFrom = o.HeadersEnd-start, o.ChecksumFrom-start
				a.offload = &o
			}
			list = append(list, a)
			d = d[k:]
		}
		p.pools[end].PutBatch(b)
		b.Reset()
		if time.Now().After(limit) {
			p.t.Fatalf("%d packets of %d arrived: %+v", len(list), count, p.end(end).Info().Stats)
		}
	}
	return list
}

// expectSegments compares complete segments with the packet that they are of.
func expectSegments(t *testing.T, data []byte, mss int, list []arrived) {
	t.Helper()
	var all []byte
	head := 0
	for i, a := range list {
		if a.offload != nil {
			t.Errorf("segment %d leaves work: %+v", i, a.offload)
		}
		head = checked(t, a.data)
		all = append(all, a.data[head:]...)
		if last := i == len(list)-1; !last && len(a.data)-head != mss {
			t.Errorf("segment %d has %d bytes", i, len(a.data)-head)
		}
	}
	if !bytes.Equal(all, data[head:]) {
		t.Errorf("%d bytes of payload in %d segments, %d sent", len(all), len(list), len(data)-head)
	}
}

// TestOffloadsToAGuest sends packets with work through DPDK: the device does what it can (the guest sees a large packet), and the
// driver the rest.
func TestOffloadsToAGuest(t *testing.T) {
	p := newGuestPair(t, dpdk.WithTSO)
	if err := p.guest.SetOffload(true); err != nil {
		t.Fatal(err)
	}
	i := p.host.Queues[0].Info()
	if want := pmd.CapMultiBuf | pmd.CapOffload | pmd.CapOffloadUDP | pmd.CapRxChecksum; i.Caps != want || !strings.Contains(i.Negotiated, "rx checksum, tx checksum, TSO") {
		t.Errorf("%v, %s", i.Caps, i.Negotiated)
	}
	var packets, total uint64
	for _, k := range []kind{
		{mss: 1400},
		{v6: true, mss: 1400},
		{tagged: true, mss: 1000},
		{mss: 1400, ecn: true},
		{udp: true, mss: 1200},
		{udp: true, v6: true, mss: 1200},
		{},
		{v6: true},
		{udp: true},
		{udp: true, v6: true},
		{tagged: true},
	} {
		t.Run(k.String(), func(t *testing.T) {
			p.t = t
			n := 30_001
			if k.mss == 0 {
				n = 1001
			}
			data, o := k.build(n, p.hostHeader)
			packets, total = packets+1, total+uint64(len(data))
			want, whole := 1, k.mss != 0 && !k.udp && !k.ecn
			if k.mss != 0 && !whole {
				want = packet.Segments(n, int(k.mss))
			}
			p.send(0, data, &o)
			list := p.receive(1, want)
			if whole {
				a := list[0]
				at := o.ChecksumFrom - uint16(p.hostHeader)
				if w := a.offload; w == nil || w.SegmentSize != k.mss || w.GSO != o.GSO || w.ChecksumFrom != at || w.ChecksumAt != 16 {
					t.Fatalf("%d bytes, %+v", len(a.data), a.offload)
				}
				if head := int(at) + 20; !bytes.Equal(a.data[head:], data[head:]) {
					t.Error("the payload differs")
				}
			} else {
				expectSegments(t, data, int(k.mss), list)
			}
			if s := p.end(0).Info().Stats; s.TxPackets != packets || s.TxBytes != total || s.TxInvalid != 0 {
				t.Errorf("%d packets of %d bytes are counted, %d are invalid; %d of %d were sent", s.TxPackets, s.TxBytes, s.TxInvalid, packets, total)
			}
		})
	}
}

// TestOffloadsFromAGuest receives large packets and packets without checksums through DPDK.
func TestOffloadsFromAGuest(t *testing.T) {
	p := newGuestPair(t)
	if i := p.host.Queues[0].Info(); i.Caps&pmd.CapOffload != 0 || strings.Contains(i.Negotiated, "TSO") {
		t.Errorf("%v, %s", i.Caps, i.Negotiated)
	}
	for _, large := range []bool{false, true} {
		if err := p.host.SetOffload(large); err != nil {
			t.Fatal(err)
		}
		for _, k := range []kind{{mss: 1400}, {v6: true, mss: 1400}, {}, {v6: true}, {udp: true}, {udp: true, v6: true}} {
			t.Run(fmt.Sprintf("large=%v,%v", large, k), func(t *testing.T) {
				p.t = t
				n := 30_001
				if k.mss == 0 {
					n = 1001
				}
				data, o := k.build(n, p.hostHeader)
				before := p.end(0).Info().Stats
				bare := bytes.Clone(data)
				if field := int(o.ChecksumFrom+o.ChecksumAt) - p.hostHeader; !k.udp { // what a device leaves there differs
					copy(bare[field:], []byte{0xbe, 0xef})
				}
				p.send(1, bare, &o)
				whole, want := large && k.mss != 0, 1
				if k.mss != 0 && !whole {
					want = packet.Segments(n, int(k.mss))
				}
				list := p.receive(0, want)
				bytesIn := 0
				for _, a := range list {
					bytesIn += len(a.data)
				}
				if s := p.end(0).Info().Stats; s.RxPackets-before.RxPackets != uint64(want) || s.RxBytes-before.RxBytes != uint64(bytesIn) || s.RxInvalid != 0 {
					t.Errorf("%+v after %+v", s, before)
				}
				if !whole {
					expectSegments(t, data, int(k.mss), list)
					return
				}
				o.HeadersEnd -= uint16(p.hostHeader)
				o.ChecksumFrom -= uint16(p.hostHeader)
				if a := list[0]; a.offload == nil || *a.offload != o || !bytes.Equal(a.data, data) {
					t.Errorf("%d bytes, %+v, want %+v", len(a.data), a.offload, o)
				}
			})
		}
	}
}

// TestStrippedTagsReturn receives packets whose VLAN tags the device takes out: they are in the packets again.
func TestStrippedTagsReturn(t *testing.T) {
	p := newGuestPair(t, dpdk.WithStrippedTags)
	for _, k := range []kind{{tagged: true}, {tagged: true, udp: true}, {}} {
		data, o := k.build(700, p.hostHeader)
		p.send(1, data, &o)
		got := p.receive(0, 1)
		expectSegments(t, data, 0, got)
		if !bytes.Equal(got[0].data[:20], data[:20]) {
			t.Errorf("%x, want %x", got[0].data[:20], data[:20])
		}
	}
}

// TestBrokenOffloadsAreRefused sends packets whose work contradicts their headers: they are counted, and no device sees them.
func TestBrokenOffloadsAreRefused(t *testing.T) {
	p := newGuestPair(t, dpdk.WithTSO)
	for i, spoil := range []func(data []byte, o *packet.Offload){
		func(_ []byte, o *packet.Offload) { o.SegmentSize = 0 },
		func(_ []byte, o *packet.Offload) { o.GSO = packet.GSOTCPv6 },
		func(_ []byte, o *packet.Offload) { o.GSO = packet.GSOUDP },
		func(data []byte, _ *packet.Offload) { data[14] = 0x44 },
		func(_ []byte, o *packet.Offload) { o.Flags = 0 },
	} {
		data, o := kind{mss: 1400}.build(4000, p.hostHeader)
		spoil(data, &o)
		p.send(0, data, &o)
		if s := p.end(0).Info().Stats; s.TxInvalid != uint64(i+1) || s.TxPackets != uint64(i+1) || s.TxInvalidBytes != s.TxBytes {
			t.Errorf("case %d: %+v", i, s)
		}
	}
	data, o := kind{mss: 1400}.build(4000, p.hostHeader)
	p.send(0, data, &o)
	if got := p.receive(1, 3); len(got[0].data) < 1400 { // the guest cuts by default
		t.Errorf("%d bytes", len(got[0].data))
	}
}

// TestCloseWithSegmentsLeft closes a queue that has cut a packet whose segments the guest has no buffers for: the frames return.
func TestCloseWithSegmentsLeft(t *testing.T) {
	p := newGuestPair(t, dpdk.WithTSO)
	refused := false
	for range 20 {
		data, o := kind{udp: true, mss: 1000}.build(60_000, p.hostHeader)
		b := p.chain(0, data, &o)
		n, err := p.end(0).Tx(p.now(), b)
		if err != nil {
			t.Fatal(err)
		}
		if b.Consume(n); b.Len() > 0 { // segments of the packet before it wait
			refused = true
			p.pools[0].PutBatch(b)
			break
		}
	}
	if !refused {
		t.Error("every packet was taken, and the guest has 256 buffers")
	}
	var held []uint32
	p.host.Queues[0].Holds(func(off uint32) { held = append(held, off) })
	slices.Sort(held)
	if len(slices.Compact(held)) != p.pools[0].Size()-p.pools[0].Free() {
		t.Errorf("the queue has %d frames, and the pool lacks %d", len(held), p.pools[0].Size()-p.pools[0].Free())
	}
}
