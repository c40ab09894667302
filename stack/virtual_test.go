package stack

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

// This test runs the loop end to end in virtual time: two hosts with a bad link each, and a loop
// with the real engine between them that drops what has a wrong checksum.
//
//	host 0 --- memory --- [Impair | port 0  loop  port 1 | Impair] --- memory --- host 1

// line is the network and its books.
type line struct {
	t     *testing.T
	rnd   *rand.Rand
	arena *ring.Arena
	pool  *ring.Pool // the loop's
	hosts [2]*host
	bad   [2]*pmd.Impair // the loop's ports
	loop  *Loop
}

// host sends numbered datagrams and looks at those that come.
type host struct {
	id       uint8
	drv      *pmd.Memory
	pool     *ring.Pool
	tx, rx   *packet.Batch
	sent     uint32
	got      int
	arrivals uint64 // a hash of what came and when
}

// A datagram: its number, what is the matter with it, filling. A host sends bad ones now and then.
const (
	dgSeq   = wire.EthernetLen + wire.IPv4Len + wire.UDPLen
	dgBad   = dgSeq + 4
	dgLeast = dgBad + 1
)

// judge drops wrong checksums and bridges the rest. It holds the engine against the truth that each
// datagram carries.
type judge struct {
	Bridge
	t *testing.T
}

func (j judge) Handle(now clock.Time, b *packet.Batch) {
	for i := 0; i < len(b.D); i += packet.Chain(b.D[i:]) {
		d := &b.D[i]
		good := d.Flags.Has(packet.FlagIPv4 | packet.FlagIPChecksumOK | packet.FlagL4ChecksumOK)
		if p := b.Bytes(i); good == (p[dgBad] != 0) || d.L4 != wire.EthernetLen+wire.IPv4Len {
			j.t.Fatalf("the engine found %+v in %x", d, p)
		}
		if !good {
			d.Verdict = packet.DropL4Checksum
		}
	}
	j.Bridge.Handle(now, b)
}

func newLine(t *testing.T, seed uint64) *line {
	t.Helper()
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 4096 + 2*512, Huge: ring.HugeOff})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { arena.Close() })
	l := &line{t: t, rnd: rand.New(rand.NewPCG(seed, 0)), arena: arena}
	l.pool, _ = arena.Cut(4096)
	profile, err := pmd.ParseProfile("loss=1% burst=0.1%,30% dup=2% delay=2ms±1ms reorder=1% rx: rate=400mbit queue=200 tx: rate=300mbit")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Pool: l.pool, Engine: gpukern.NewCPU(gpukern.Config{}), Handler: judge{t: t}, Burst: 32}
	for i := range l.hosts {
		h := &host{id: uint8(i), tx: packet.NewBatch(arena.View(), 32), rx: packet.NewBatch(arena.View(), 64)}
		h.pool, _ = arena.Cut(512)
		var near *pmd.Memory
		if h.drv, near, err = pmd.NewMemory(pmd.MemoryConfig{A: h.pool, B: l.pool, Slots: 128}); err != nil {
			t.Fatal(err)
		}
		profile.Seed = seed + uint64(i)
		if l.bad[i], err = pmd.NewImpair(near, pmd.ImpairConfig{Profile: profile, Pool: l.pool, Hold: 300}); err != nil {
			t.Fatal(err)
		}
		l.hosts[i] = h
		cfg.Devices = append(cfg.Devices, held{l.bad[i], near})
	}
	if l.loop, err = NewLoop(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.loop.Close() })
	return l
}

// held is a port with all that it holds: the wrapper's frames and the wrapped driver's.
type held struct {
	*pmd.Impair
	inner *pmd.Memory
}

func (h held) Holds(visit func(uint32)) {
	h.Impair.Holds(visit)
	h.inner.Holds(visit)
}

// Holds visits the frames that wait in the loop. Between two iterations a CPU engine has none.
func (l *line) Holds(visit func(uint32)) {
	for i := range l.loop.devices {
		for _, d := range l.loop.out.queues[i].out.D {
			visit(d.Off)
		}
	}
	for _, h := range l.hosts {
		for _, d := range h.tx.D {
			visit(d.Off)
		}
	}
}

func (l *line) audit() {
	l.t.Helper()
	holders := []ring.Holder{l.pool, l}
	for i, h := range l.hosts {
		holders = append(holders, h.pool, h.drv, l.loop.devices[i].drv.(held))
	}
	if err := ring.Audit(l.arena, holders...); err != nil {
		l.t.Fatal(err)
	}
	if l.loop.inside != 0 || l.loop.waiting != nil {
		l.t.Fatal("a batch stays in the engine")
	}
}

// send makes some datagrams, as far as the host has frames, of one to four pieces, and offers them.
func (l *line) send(h *host, now clock.Time, upTo uint32) {
	for n := l.rnd.IntN(8); n > 0 && h.sent < upTo && h.tx.Room() >= 4 && h.pool.Free() >= 4; n-- {
		body := make([]byte, dgLeast+l.rnd.IntN(1200))
		binary.BigEndian.PutUint32(body[dgSeq:], h.sent)
		h.sent++
		l.headers(h, body)
		for pieces := max(1, l.rnd.IntN(8)-3); len(body) > 0; pieces-- {
			cut := len(body)
			if pieces > 1 {
				cut = min(cut, dgLeast+l.rnd.IntN(cut))
			}
			off, _ := h.pool.Get()
			d := packet.Desc{Off: off + uint32(l.rnd.IntN(100)), Len: uint16(cut)}
			copy(l.arena.Bytes(&d), body[:cut])
			if body = body[cut:]; len(body) > 0 {
				d.Flags = packet.FlagMore
			}
			h.tx.Append(d)
		}
	}
	n, err := h.drv.Tx(now, h.tx)
	if err != nil {
		l.t.Fatal(err)
	}
	h.tx.Consume(n)
}

// headers fills in the headers of a datagram; one in twenty gets a wrong checksum and says so.
func (l *line) headers(h *host, b []byte) {
	if l.rnd.IntN(20) == 0 {
		b[dgBad] = 1
	}
	wire.Ethernet(b).SetEtherType(wire.EtherTypeIPv4)
	ip := wire.IPv4(b[wire.EthernetLen:])
	ip.SetHeaderLen(wire.IPv4Len)
	ip.SetTotalLen(uint16(len(ip)))
	ip.SetTTL(64)
	ip.SetProto(wire.ProtoUDP)
	ip.SetSrc([4]byte{198, 18, 0, h.id})
	ip.SetDst([4]byte{198, 18, 0, 1 - h.id})
	ip.FillChecksum()
	udp := wire.UDP(ip[wire.IPv4Len:])
	udp.SetDstPort(9)
	udp.SetLen(uint16(len(udp)))
	udp.FillChecksum(ip.Pseudo())
	udp.SetChecksum(udp.Checksum() + uint16(b[dgBad]))
}

// receive looks at what has come: whole datagrams with right checksums.
func (l *line) receive(h *host, now clock.Time) {
	n, err := h.drv.Rx(now, h.rx)
	if err != nil {
		l.t.Fatal(err)
	}
	sum := fnv.New64a()
	for i := 0; i < n; {
		var p []byte
		for chain := packet.Chain(h.rx.D[i:]); chain > 0; chain-- {
			p = append(p, h.rx.Bytes(i)...)
			i++
		}
		ip := wire.IPv4(p[wire.EthernetLen:])
		if !ip.Valid() || !wire.UDP(ip.Payload()).ChecksumOK(ip.Pseudo()) || p[dgBad] != 0 || ip.Dst()[3] != h.id {
			l.t.Fatalf("host %d received %x", h.id, p)
		}
		h.got++
		_ = binary.Write(sum, binary.BigEndian, []uint64{h.arrivals, uint64(now)})
		sum.Write(p)
		h.arrivals = sum.Sum64()
	}
	h.pool.PutBatch(h.rx)
}

// run sends so many datagrams from each host and lets the links run dry.
func (l *line) run(each uint32) {
	const step = 20_000 // ns
	end := clock.Never
	for now, i := clock.Time(-1_000_000), 0; now < end; now, i = now+step, i+1 {
		for _, h := range l.hosts {
			l.send(h, now, each)
		}
		l.loop.Poll(now)
		for _, h := range l.hosts {
			l.receive(h, now)
		}
		if i%64 == 0 {
			l.audit()
		}
		if end == clock.Never && l.hosts[0].sent == each && l.hosts[1].sent == each {
			end = now + 1_000_000_000
		}
	}
	l.audit()
}

// balance holds the books of all that a packet passes against each other.
func (l *line) balance() {
	l.t.Helper()
	equal := func(what string, a, b uint64) {
		l.t.Helper()
		if a != b {
			l.t.Errorf("%s: %d and %d", what, a, b)
		}
	}
	s := l.loop.Stats()
	equal("received = forwarded + dropped", s.Received, s.Forwarded+s.TotalDropped())
	var in, out, lost, copied uint64
	for i, h := range l.hosts {
		rx, tx := l.bad[i].Counts()
		mem, port := h.drv.Info().Stats, l.bad[i].Info().Stats
		equal("sent by the host", uint64(h.sent), mem.TxPackets)
		equal("host to link", mem.TxPackets, rx.Packets)
		equal("into the link = out of it", rx.Packets+rx.Duplicated, rx.Passed+rx.Lost())
		equal("link to loop", rx.Passed, port.RxPackets)
		equal("loop to link", port.TxPackets, tx.Packets)
		equal("into the link back = out of it", tx.Packets+tx.Duplicated, tx.Passed+tx.Lost())
		equal("link to host", tx.Passed, mem.RxPackets)
		equal("seen by the host", uint64(h.got), mem.RxPackets)
		in, out = in+rx.Passed, out+tx.Packets
		lost, copied = lost+rx.Lost()+tx.Lost(), copied+rx.Duplicated+tx.Duplicated
	}
	equal("links to loop", in, s.Received)
	equal("loop to links", out, s.Forwarded)
	if s.Dropped[packet.DropL4Checksum] == 0 || s.Dropped[packet.DropTxFull] == 0 || lost == 0 || copied == 0 {
		l.t.Errorf("%d lost in links, %d copied, %+v: nothing went wrong, so the test shows nothing", lost, copied, s)
	}
}

func TestAllCountersBalanceInVirtualTime(t *testing.T) {
	l := newLine(t, 1)
	l.run(50_000)
	l.balance()
	// What the links still hold goes back when they close.
	for i, h := range l.hosts {
		if err := errors.Join(l.bad[i].Close(), h.drv.Close()); err != nil {
			t.Error(err)
		}
	}
	l.audit()
	if free := l.pool.Free() + l.hosts[0].pool.Free() + l.hosts[1].pool.Free(); free != 4096+2*512 {
		t.Errorf("%d frames are free", free)
	}
}

func TestVirtualTimeIsDeterminedByItsSeed(t *testing.T) {
	play := func(seed uint64) [2]uint64 {
		l := newLine(t, seed)
		l.run(1000)
		return [2]uint64{l.hosts[0].arrivals, l.hosts[1].arrivals}
	}
	first := play(7)
	if again := play(7); again != first {
		t.Errorf("the same seed brought %x and %x", first, again)
	}
	if other := play(8); other == first {
		t.Error("another seed brought the same")
	}
}
