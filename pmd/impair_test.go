package pmd_test

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

var (
	_ pmd.Driver  = (*pmd.Impair)(nil)
	_ ring.Holder = (*pmd.Impair)(nil)
)

// arrival is a packet that came out of a bad link.
type arrival struct {
	seq int
	at  clock.Time
}

// path is a memory pair whose end a is impaired, driven in virtual time.
type path struct {
	*pair
	im     *pmd.Impair
	tx, rx *packet.Batch
	got    []arrival
	see    func(seq int, b []byte) // borrows each packet that arrives, where set
}

func newPath(t testing.TB, profile string) *path {
	t.Helper()
	return newPathOf(t, profile, 16384, 4096)
}

func newPathOf(t testing.TB, profile string, frames, hold int) *path {
	t.Helper()
	p, err := pmd.ParseProfile(profile)
	if err != nil {
		t.Fatal(err)
	}
	l := &path{pair: newPair(t, frames, 512, 512)}
	l.im, err = pmd.NewImpair(l.a, pmd.ImpairConfig{Profile: p, Pool: l.poolA, Hold: hold})
	if err != nil {
		t.Fatal(err)
	}
	l.tx, l.rx = packet.NewBatch(l.arena.View(), 256), packet.NewBatch(l.arena.View(), 256)
	return l
}

// send offers n packets of size bytes at one time, numbered from seq.
func (l *path) send(t testing.TB, now clock.Time, seq, n, size int) {
	t.Helper()
	fill(t, l.tx, l.poolA, seq, n, size)
	l.offer(t, now)
}

// offer sends what is in tx and looks what arrives.
func (l *path) offer(t testing.TB, now clock.Time) {
	t.Helper()
	n, err := l.im.Tx(now, l.tx)
	if err != nil || n != l.tx.Len() {
		t.Fatalf("at %d: Tx took %d of %d, %v", now, n, l.tx.Len(), err)
	}
	l.tx.Reset()
	l.receive(t, now)
}

// receive takes what has arrived at b.
func (l *path) receive(t testing.TB, now clock.Time) {
	t.Helper()
	for {
		n, err := l.b.Rx(now, l.rx)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			l.got = append(l.got, arrival{seqOf(l.rx, i), now})
			if l.see != nil {
				l.see(seqOf(l.rx, i), l.rx.Bytes(i))
			}
		}
		l.poolB.PutBatch(l.rx)
		if _, err := l.im.Rx(now, l.rx); err != nil { // nothing comes back; collects frames
			t.Fatal(err)
		}
		if n == 0 {
			return
		}
	}
}

// until advances time to end, in the steps that Next returns.
func (l *path) until(t testing.TB, end clock.Time) {
	t.Helper()
	for next := l.im.Next(); next <= end; next = l.im.Next() {
		if _, err := l.im.Rx(next, l.rx); err != nil {
			t.Fatal(err)
		}
		l.receive(t, next)
	}
}

// finish lets everything arrive and checks that nothing was lost but by the profile.
func (l *path) finish(t testing.TB) pmd.ImpairStats {
	t.Helper()
	l.until(t, clock.Never-1)
	_, c := l.im.Counts()
	if c.Packets+c.Duplicated != c.Passed+c.Lost() {
		t.Errorf("packets do not add up: %+v", c)
	}
	if int(c.Passed) != len(l.got) {
		t.Errorf("%d packets arrived, %d passed", len(l.got), c.Passed)
	}
	l.audit(t, l.im)
	if l.poolA.Free() != l.poolA.Size() || l.poolB.Free() != l.poolB.Size() {
		t.Errorf("pools hold %d of %d and %d of %d frames at rest", l.poolA.Free(), l.poolA.Size(), l.poolB.Free(), l.poolB.Size())
	}
	return c
}

// within fails unless got successes of n draws are within 4 standard deviations of probability p.
func within(t testing.TB, what string, got, n int, p float64) {
	t.Helper()
	mean, sigma := p*float64(n), math.Sqrt(p*(1-p)*float64(n))
	if d := math.Abs(float64(got) - mean); d > 4*sigma+1 {
		t.Errorf("%s: %d of %d, want %.0f +- %.0f (4 sigma)", what, got, n, mean, 4*sigma)
	}
}

// run sends total packets of 100 bytes, one every gap.
func (l *path) run(t testing.TB, total int, gap time.Duration) pmd.ImpairStats {
	t.Helper()
	l.got = make([]arrival, 0, total+total/8)
	for i := range total {
		now := clock.Time(i) * clock.Time(gap)
		l.until(t, now)
		l.send(t, now, i, 1, 100)
	}
	return l.finish(t)
}

// flood sends total packets of 100 bytes, many at once.
func (l *path) flood(t testing.TB, total int) pmd.ImpairStats {
	t.Helper()
	l.got = make([]arrival, 0, total+total/8)
	for i := 0; i < total; i += 250 {
		now := clock.Time(i)
		l.until(t, now)
		l.send(t, now, i, min(250, total-i), 100)
	}
	return l.finish(t)
}

const million = 1_000_000

func TestImpairLossAndDuplicationMatchTheProfile(t *testing.T) {
	for total, p := range map[int]float64{million: 0.01, million + 1: 1, 100_000: 30} {
		l := newPath(t, fmt.Sprintf("loss=%v%% dup=%v%% seed=11", p, p/2))
		c := l.flood(t, total)
		within(t, fmt.Sprintf("lost at %v%%", p), int(c.LostRandom), total, p/100)
		within(t, fmt.Sprintf("copied at %v%%", p), int(c.Duplicated), total-int(c.LostRandom), p/200)
		seen := make([]uint8, total)
		twice := 0
		for _, a := range l.got {
			if seen[a.seq]++; seen[a.seq] == 2 {
				twice++
			}
		}
		if missing := bytesCount(seen, 0); missing != int(c.LostRandom) || twice != int(c.Duplicated) {
			t.Errorf("%v%%: %d missing and %d twice, counted %+v", p, missing, twice, c)
		}
	}
}

func bytesCount(s []uint8, v uint8) (n int) {
	for _, have := range s {
		if have == v {
			n++
		}
	}
	return n
}

func TestImpairLosesAllAtCertaintyAndNoneAtZero(t *testing.T) {
	l := newPath(t, "loss=100% seed=1")
	if c := l.run(t, 1000, 1); c.LostRandom != 1000 {
		t.Errorf("100%%: %+v", c)
	}
	l = newPath(t, "loss=0% seed=1")
	if c := l.run(t, 1000, 1); c.Lost() != 0 || len(l.got) != 1000 {
		t.Errorf("0%%: %+v", c)
	}
}

// The runs of losses of a Gilbert-Elliott link that always loses while it is bad are geometric:
// P(length = k) = r (1-r)^(k-1), and the share of losses is p/(p+r).
func TestImpairBurstLengthsMatchGilbertElliott(t *testing.T) {
	const p, r = 0.01, 0.25
	l := newPath(t, "burst=1%,25% seed=5")
	c := l.flood(t, million)
	lengths, bursts, next := map[int]int{}, 0, 0
	for _, a := range l.got {
		if a.seq > next {
			lengths[a.seq-next]++
			bursts++
		}
		next = a.seq + 1
	}
	within(t, "bursts", bursts, million-int(c.LostBurst), p)
	for k := 1; k <= 12; k++ {
		within(t, fmt.Sprintf("bursts of %d", k), lengths[k], bursts, r*math.Pow(1-r, float64(k-1)))
	}
	share := float64(c.LostBurst) / million
	if want := p / (p + r); math.Abs(share-want) > 0.03*want {
		t.Errorf("lost %.4f, want %.4f", share, want)
	}
}

func TestImpairBurstLossMatchesTheProfileInBothStates(t *testing.T) {
	const total = 200_000
	// Bad for ever from the first packet on, and never bad.
	c := newPath(t, "burst=100%,0%,40%,0% seed=2").flood(t, total)
	within(t, "bad", int(c.LostBurst), total, 0.4)
	c = newPath(t, "burst=0%,100%,100%,3% seed=2").flood(t, total)
	within(t, "good", int(c.LostBurst), total, 0.03)
}

func TestImpairReorderingMatchesTheProfile(t *testing.T) {
	c := newPath(t, "reorder=0.5%,10us seed=3").flood(t, million)
	within(t, "reordered", int(c.Reordered), million, 0.005)
	l := newPath(t, "delay=1ms reorder=0.5%,10us seed=3")
	c = l.run(t, 100_000, time.Microsecond)
	late, highest := 0, -1
	for _, a := range l.got {
		sent := clock.Time(a.seq) * 1000
		if a.seq < highest {
			late++
			if d := a.at.Sub(sent); d != time.Millisecond+10*time.Microsecond {
				t.Fatalf("packet %d took %v", a.seq, d)
			}
		}
		highest = max(highest, a.seq)
	}
	// A packet held back is overtaken unless all of the ten behind it are held back too.
	if late < int(c.Reordered)-2 || late > int(c.Reordered) {
		t.Errorf("%d packets were overtaken, %d held back", late, c.Reordered)
	}
}

func TestImpairDelayIsExactAndKeepsOrder(t *testing.T) {
	l := newPath(t, "delay=5ms")
	l.send(t, 100, 0, 3, 64)
	l.send(t, 100, 3, 2, 64)
	l.send(t, 101, 5, 1, 64)
	if next := l.im.Next(); next != 5_000_100 {
		t.Errorf("Next = %d, want 5000100", next)
	}
	l.until(t, 5_000_099)
	if len(l.got) != 0 {
		t.Errorf("%d packets came before their time", len(l.got))
	}
	l.finish(t)
	want := []arrival{{0, 5_000_100}, {1, 5_000_100}, {2, 5_000_100}, {3, 5_000_100}, {4, 5_000_100}, {5, 5_000_101}}
	if !slices.Equal(l.got, want) {
		t.Errorf("arrived %v, want %v", l.got, want)
	}
	if l.im.Next() != clock.Never {
		t.Error("Next of an empty link is not Never")
	}
}

func TestImpairJitterHasTheShapeOfTheProfile(t *testing.T) {
	const total = 100_000
	const ms = float64(time.Millisecond)
	tests := []struct {
		profile        string
		sd, least, max float64 // ms
		above3         float64 // share of packets above mean + 3 J
	}{
		{"delay=50ms±6ms seed=1", 6 / math.Sqrt(3), 44, 56, 0},
		{"delay=50ms±6ms/normal seed=1", 6, 14, 86, 0.0013},
		{"delay=50ms±6ms/pareto seed=1", 6, 50 - 6*0.5774, math.Inf(1), 0.0147},
	}
	for _, tt := range tests {
		l := newPath(t, tt.profile)
		l.run(t, total, 20*time.Microsecond)
		var sum, squares, least, most float64 = 0, 0, math.Inf(1), 0
		above := 0
		for _, a := range l.got {
			d := float64(a.at-clock.Time(a.seq)*20_000) / ms
			sum, squares, least, most = sum+d, squares+d*d, min(least, d), max(most, d)
			if d > 50+3*6 {
				above++
			}
		}
		mean := sum / total
		sd := math.Sqrt(squares/total - mean*mean)
		if math.Abs(mean-50) > 4*tt.sd/math.Sqrt(total) {
			t.Errorf("%s: mean %.3f ms", tt.profile, mean)
		}
		// The variance of the Pareto tail (exponent 3) converges slowly.
		if math.Abs(sd-tt.sd) > 0.15*tt.sd {
			t.Errorf("%s: standard deviation %.3f ms, want %.3f", tt.profile, sd, tt.sd)
		}
		if least < tt.least-0.001 || most > tt.max+0.001 {
			t.Errorf("%s: from %.3f to %.3f ms, want within %.3f to %.3f", tt.profile, least, most, tt.least, tt.max)
		}
		if share := float64(above) / total; math.Abs(share-tt.above3) > 0.0015 {
			t.Errorf("%s: %.4f of the packets are 3 J late, want %.4f", tt.profile, share, tt.above3)
		}
	}
}

func TestImpairFIFOJitterLetsNoPacketOvertake(t *testing.T) {
	inOrder := func(profile string) bool {
		l := newPath(t, profile)
		l.run(t, 20_000, 20*time.Microsecond)
		return slices.IsSortedFunc(l.got, func(a, b arrival) int { return a.seq - b.seq })
	}
	if !inOrder("delay=5ms±2ms fifo seed=1") {
		t.Error("a packet overtook another")
	}
	if inOrder("delay=5ms±2ms seed=1") {
		t.Error("without fifo no packet overtook another: the test sees nothing")
	}
}

// At every moment of a busy link the bytes that have arrived are rate x time, within one packet.
func TestImpairRateIsExactWithinOnePacket(t *testing.T) {
	const rate, size = 97_000_003, 700 // bits a second; a prime, so that no packet takes whole nanoseconds
	l := newPath(t, fmt.Sprintf("rate=%dbit delay=3ms queue=50", rate))
	const total = 100_000
	for i := range total {
		now := clock.Time(i) * 40_000 // 140 Mbit/s offered
		l.until(t, now)
		l.send(t, now, i, 1, size)
	}
	c := l.finish(t)
	for i, a := range l.got {
		bytes := float64((i + 1) * size)
		due := float64(a.at-3_000_000) / 1e9 * rate / 8
		if math.Abs(bytes-due) > size {
			t.Fatalf("packet %d: %.0f bytes at %d, want %.0f", i, bytes, a.at, due)
		}
	}
	if c.LostQueue == 0 || c.Lost() != c.LostQueue {
		t.Errorf("at 1.44 times the rate: %+v", c)
	}
	if l.im.Info().Stats.TxInvalid != c.LostQueue {
		t.Errorf("Stats %+v, counts %+v", l.im.Info().Stats, c)
	}
}

func TestImpairIdleLinkAccumulatesNoCredit(t *testing.T) {
	l := newPath(t, "rate=8mbit") // a byte a microsecond
	l.send(t, 0, 0, 1, 100)
	l.until(t, 1_000_000)
	l.send(t, 1_000_000, 1, 2, 100)
	l.finish(t)
	want := []arrival{{0, 100_000}, {1, 1_100_000}, {2, 1_200_000}}
	if !slices.Equal(l.got, want) {
		t.Errorf("arrived %v, want %v", l.got, want)
	}
}

func TestImpairQueueIsEmptyTheMomentThatAPacketIsSent(t *testing.T) {
	l := newPath(t, "rate=8mbit queue=1")
	l.send(t, 0, 0, 1, 100)
	l.send(t, 99_999, 1, 1, 100)
	l.send(t, 100_000, 2, 1, 100)
	l.finish(t)
	if want := []arrival{{0, 100_000}, {2, 200_000}}; !slices.Equal(l.got, want) {
		t.Errorf("arrived %v, want %v", l.got, want)
	}
}

func TestImpairQueueIsALimitInPacketsOrBytes(t *testing.T) {
	tests := []struct {
		profile string
		pass    int // of 20 packets of 100 bytes at once
	}{
		{"rate=8mbit queue=7", 7},
		{"rate=8mbit queue=750B", 7},
		{"rate=8mbit queue=700B", 7},
		{"rate=8mbit delay=1ms queue=5", 5},
		{"rate=8mbit", 20},
	}
	for _, tt := range tests {
		l := newPath(t, tt.profile)
		l.send(t, 0, 0, 20, 100)
		c := l.finish(t)
		if len(l.got) != tt.pass || int(c.LostQueue) != 20-tt.pass {
			t.Errorf("%s: %d passed, %+v; want %d", tt.profile, len(l.got), c, tt.pass)
		}
		l.send(t, 1e9, 20, 1, 100)
		if l.finish(t); len(l.got) != tt.pass+1 {
			t.Errorf("%s: the queue is still full when all has left", tt.profile)
		}
	}
}

func TestImpairCorruptsTheBitsThatTheProfileSays(t *testing.T) {
	for _, n := range []int{1, 5} {
		l := newPath(t, fmt.Sprintf("corrupt=2%%,%d seed=9", n))
		total, damaged := 100_000, 0
		where := make([]int, 64)
		l.see = func(_ int, b []byte) {
			flipped := 0
			for i, v := range b {
				flipped += bits.OnesCount8(v ^ 0x5A)
				where[i] += bits.OnesCount8(v ^ 0x5A)
			}
			switch flipped {
			case 0:
			case n:
				damaged++
			default:
				t.Errorf("%d bits are flipped, want %d", flipped, n)
			}
		}
		for i := range total {
			fill(t, l.tx, l.poolA, i, 1, 64)
			b := l.tx.Bytes(0)
			for j := range b {
				b[j] = 0x5A
			}
			l.offer(t, clock.Time(i))
		}
		c := l.finish(t)
		if damaged != int(c.Corrupted) {
			t.Errorf("%d packets are damaged, %d counted", damaged, c.Corrupted)
		}
		within(t, "damaged", damaged, total, 0.02)
		for i, hits := range where {
			within(t, fmt.Sprintf("flips in byte %d", i), hits, damaged*n, 1.0/64)
		}
	}
}

func TestImpairFlipsDifferentBits(t *testing.T) {
	l := newPath(t, "corrupt=100%,64")
	const number = 0x0123_4567_89AB
	l.send(t, 0, number, 1, 8)
	if len(l.got) != 1 || l.got[0].seq != ^number {
		t.Errorf("of 64 bits not all are flipped: %x", l.got)
	}
}

// ecnPacket is a UDP packet in Ethernet, with tags, with the given ECN bits.
func ecnPacket(t *testing.T, v6 bool, tags int, ecn uint8) []byte {
	t.Helper()
	ethType := layers.EthernetTypeIPv4
	var ip gopacket.SerializableLayer = &layers.IPv4{Version: 4, TTL: 64, TOS: 0x48 | ecn, Protocol: layers.IPProtocolUDP, SrcIP: []byte{192, 0, 2, 1}, DstIP: []byte{192, 0, 2, 2}}
	if v6 {
		ethType = layers.EthernetTypeIPv6
		src, dst := make([]byte, 16), make([]byte, 16)
		copy(src, []byte{0x20, 1, 0xd, 0xb8, 15: 1})
		copy(dst, []byte{0x20, 1, 0xd, 0xb8, 15: 2})
		ip = &layers.IPv6{Version: 6, HopLimit: 64, TrafficClass: 0x48 | ecn, FlowLabel: 0xABCDE, NextHeader: layers.IPProtocolUDP, SrcIP: src, DstIP: dst}
	}
	udp := &layers.UDP{SrcPort: 1, DstPort: 2}
	udp.SetNetworkLayerForChecksum(ip.(gopacket.NetworkLayer))
	types := []layers.EthernetType{ethType, layers.EthernetTypeDot1Q, layers.EthernetTypeDot1Q}
	stack := []gopacket.SerializableLayer{&layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: types[min(tags, 1)]}}
	for i := range tags {
		next := layers.EthernetTypeDot1Q
		if i == tags-1 {
			next = ethType
		}
		stack = append(stack, &layers.Dot1Q{VLANIdentifier: 7, Type: next})
	}
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, append(stack, ip, udp, gopacket.Payload("marked"))...); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(buf.Bytes())
}

func TestImpairMarksCongestionOnlyWhereThePacketIsCapable(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for tags := range 3 {
			for ecn := range uint8(4) {
				l := newPath(t, "ce=100%")
				in := ecnPacket(t, v6, tags, ecn)
				want := in
				if ecn == 1 || ecn == 2 {
					want = ecnPacket(t, v6, tags, 3) // with the checksum that gopacket computes
				}
				var got []byte
				l.see = func(_ int, b []byte) { got = slices.Clone(b) }
				fill(t, l.tx, l.poolA, 0, 1, len(in))
				copy(l.tx.Bytes(0), in)
				l.offer(t, 0)
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("IPv6 %v, %d tags, ECN %d: %s", v6, tags, ecn, d)
				}
			}
		}
	}
	l := newPath(t, "ce=10% seed=4")
	for i := range 100_000 {
		in := ecn4
		fill(t, l.tx, l.poolA, 0, 1, len(in))
		copy(l.tx.Bytes(0), in)
		l.offer(t, clock.Time(i))
	}
	within(t, "marked", int(l.finish(t).Marked), 100_000, 0.1)
}

// ecn4 is the start of an ECT(0) packet: a header is enough.
var ecn4 = append(make([]byte, 12), 8, 0, 0x45, 2, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2)

func TestImpairMarksNothingInShortOrUnknownPackets(t *testing.T) {
	l := newPath(t, "ce=100% seed=4")
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 10_000 {
		n := 8 + rnd.IntN(60)
		fill(t, l.tx, l.poolA, 0, 1, n)
		b := l.tx.Bytes(0)
		for j := range b {
			b[j] = byte(rnd.Uint32())
		}
		if n > 14 {
			copy(b[12:], [][]byte{{8, 0}, {0x86, 0xdd}, {0x81, 0}}[rnd.IntN(3)])
		}
		l.offer(t, clock.Time(i)) // the test is that nothing panics
	}
	l.finish(t)
}

func TestImpairMTUCountsBytesBehindTheTags(t *testing.T) {
	l := newPath(t, "mtu=100")
	for i, size := range []int{114, 115, 118, 119} {
		fill(t, l.tx, l.poolA, i, 1, size)
		if size > 115 {
			wire.Ethernet(l.tx.Bytes(0)).SetEtherType(wire.EtherTypeVLAN)
		}
		l.offer(t, 0)
	}
	if c := l.finish(t); c.LostMTU != 2 || len(l.got) != 2 || l.got[0].seq != 0 || l.got[1].seq != 2 {
		t.Errorf("%v arrived, %+v", l.got, c)
	}
}

// A packet that the device cuts is as large as its segments: 28 bytes of headers behind those of Ethernet, and their payload.
func TestImpairMTUOfPacketsThatTheDeviceCuts(t *testing.T) {
	l := newPath(t, "mtu=100")
	for _, segment := range []uint16{72, 73} {
		fill(t, l.tx, l.poolA, 0, 1, 800)
		d := &l.tx.D[0]
		d.Flags |= packet.FlagOffload
		start := uint16(l.arena.View().Headroom(d))
		l.arena.View().SetOffload(d, &packet.Offload{GSO: packet.GSOUDP, HeadersEnd: start + 42, SegmentSize: segment})
		l.offer(t, 0)
		if len(l.got) != 1 {
			t.Errorf("segments of %d: %d packets have arrived, want the first", segment, len(l.got))
		}
	}
	if c := l.finish(t); c.LostMTU != 1 {
		t.Errorf("%+v", c)
	}
}

const everything = "delay=2ms±1ms/normal loss=3% burst=1%,25%,90%,0.1% reorder=2%,1ms dup=2% corrupt=2% ce=5% rate=50mbit queue=40 mtu=1400"

func TestImpairIsDeterminedByItsSeed(t *testing.T) {
	run := func(profile string) []arrival {
		l := newPath(t, profile)
		l.see = func(seq int, _ []byte) {}
		l.run(t, 20_000, 20*time.Microsecond)
		return l.got
	}
	a, b, c := run(everything+" seed=1"), run(everything+" seed=1"), run(everything+" seed=2")
	if !slices.Equal(a, b) {
		t.Error("one seed, two runs")
	}
	if slices.Equal(a, c) {
		t.Error("two seeds, one run")
	}
}

func TestImpairCausesHaveIndependentStreams(t *testing.T) {
	lost := func(profile string) []arrival {
		l := newPath(t, profile)
		l.run(t, 20_000, 20*time.Microsecond)
		slices.SortFunc(l.got, func(a, b arrival) int { return a.seq - b.seq })
		for i := range l.got {
			l.got[i].at = 0
		}
		return slices.Compact(l.got)
	}
	if !slices.Equal(lost("loss=3% seed=1"), lost("loss=3% dup=5% delay=3ms±1ms reorder=1% ce=1% seed=1")) {
		t.Error("other words in the profile changed which packets are lost")
	}
}

func TestImpairDirectionsAreIndependent(t *testing.T) {
	l := newPath(t, "rx: loss=100% tx: delay=1ms")
	l.send(t, 0, 0, 4, 64)
	l.until(t, 1e9)
	if len(l.got) != 4 {
		t.Errorf("%d of 4 packets left", len(l.got))
	}
	fill(t, l.tx, l.poolB, 0, 3, 64)
	l.b.Tx(0, l.tx)
	l.tx.Reset()
	if n, err := l.im.Rx(0, l.rx); n != 0 || err != nil {
		t.Errorf("Rx = %d, %v", n, err)
	}
	rx, tx := l.im.Counts()
	if rx.LostRandom != 3 || tx.LostRandom != 0 {
		t.Errorf("rx %+v, tx %+v", rx, tx)
	}
	if s := l.im.Info().Stats; s.RxPackets != 0 || s.RxMissed != 3 || s.TxPackets != 4 {
		t.Errorf("stats %+v", s)
	}
	if i := l.im.Info(); i.Caps&pmd.CapTimed == 0 || i.Driver != "memory" {
		t.Errorf("info %+v", i)
	}
}

func TestImpairReceivedPacketsCarryTheTimeOfTheirArrival(t *testing.T) {
	l := newPath(t, "rx: delay=2ms±1ms seed=1")
	fill(t, l.tx, l.poolB, 0, 5, 64)
	l.b.Tx(0, l.tx)
	l.tx.Reset()
	if n, _ := l.im.Rx(1000, l.rx); n != 0 {
		t.Fatal("came at once")
	}
	next := l.im.Next()
	n, _ := l.im.Rx(10_000_000, l.rx)
	if n != 5 || clock.Time(l.rx.Time(0)) != next {
		t.Fatalf("%d packets, the first at %d, want 5, %d", n, l.rx.Time(0), next)
	}
	for i := 1; i < n; i++ {
		if l.rx.Time(i) < l.rx.Time(i-1) {
			t.Error("out of the order of arrival")
		}
	}
}

func TestImpairHoldsBackInsteadOfLosing(t *testing.T) {
	l := newPathOf(t, "delay=1ms", 64, 8)
	fill(t, l.tx, l.poolA, 0, 20, 64)
	if n, err := l.im.Tx(0, l.tx); n != 8 || err != nil {
		t.Fatalf("Tx = %d, %v; want the 8 that may be held", n, err)
	}
	l.tx.Consume(8)
	fill(t, l.rx, l.poolB, 0, 20, 64)
	l.b.Tx(0, l.rx)
	l.rx.Reset()
	if n, _ := l.im.Rx(0, l.rx); n != 0 {
		t.Fatalf("Rx = %d", n)
	}
	l.audit(t, l.im, held{l.tx})
	n, _ := l.im.Rx(1_000_000, l.rx)
	if n != 8 {
		t.Fatalf("Rx = %d, want the 8 that were held", n)
	}
	if n, _ := l.im.Tx(1_000_000, l.tx); n != 8 {
		t.Fatalf("Tx = %d, want 8 with room again", n)
	} else {
		l.tx.Consume(n)
	}
	seen := l.rx.Len()
	l.poolA.PutBatch(l.rx)
	for now := clock.Time(2_000_000); now < 10_000_000; now += 1_000_000 {
		n, err := l.im.Rx(now, l.rx)
		if err != nil {
			t.Fatal(err)
		}
		seen += n
		l.poolA.PutBatch(l.rx)
	}
	if rx, tx := l.im.Counts(); rx.Lost()+tx.Lost() != 0 || seen != 20 {
		t.Errorf("%d of 20 packets came; lost: rx %+v, tx %+v", seen, rx, tx)
	}
	l.audit(t, l.im, held{l.tx})
}

func TestImpairKeepsWhatTheWrappedDriverDoesNotTake(t *testing.T) {
	w := newPair(t, 64, 64, 2) // two slots
	p, err := pmd.ParseProfile("tx: delay=1ms")
	if err != nil {
		t.Fatal(err)
	}
	im, err := pmd.NewImpair(w.a, pmd.ImpairConfig{Profile: p, Pool: w.poolA, Hold: 10})
	if err != nil {
		t.Fatal(err)
	}
	tx := packet.NewBatch(w.arena.View(), 16)
	fill(t, tx, w.poolA, 0, 16, 64)
	offer := func(now clock.Time, want int) {
		t.Helper()
		n, err := im.Tx(now, tx)
		if n != want || err != nil {
			t.Fatalf("at %d: Tx = %d, %v; want %d", now, n, err, want)
		}
		tx.Consume(n)
	}
	offer(0, 10)
	offer(1_000_000, 2) // for the two that went into the slots
	if im.Next() != 1_000_000 {
		t.Errorf("Next = %d while packets wait that are due", im.Next())
	}
	w.audit(t, im, held{tx})
	if err := im.Close(); err != nil {
		t.Fatal(err)
	}
	if _, c := im.Counts(); c.Discarded != 10 || c.Passed != 2 {
		t.Errorf("%+v", c)
	}
	w.b.Close()
	w.audit(t, held{tx})
}

func TestImpairDuplicatesOnlyWithinHold(t *testing.T) {
	l := newPathOf(t, "delay=1ms dup=100%", 64, 5)
	l.send(t, 0, 0, 5, 64)
	if c := l.finish(t); c.Duplicated != 2 || c.Uncopied != 3 {
		t.Errorf("%+v", c)
	}
	l = newPathOf(t, "delay=1ms dup=100%", 4, 100)
	l.send(t, 0, 0, 3, 64)
	if c := l.finish(t); c.Duplicated != 1 || c.Uncopied != 2 {
		t.Errorf("with a pool of 4 frames: %+v", c)
	}
}

func TestImpairChainsStayWhole(t *testing.T) {
	l := newPathOf(t, "delay=1ms±1ms dup=50% loss=20% corrupt=10% reorder=10% seed=8", 512, 100)
	chain := []int{0, 0}
	for i := range 2000 {
		now := clock.Time(i) * 100_000
		fill(t, l.tx, l.poolA, i, 1+i%4, 64)
		for j := range l.tx.Len() - 1 {
			l.tx.D[j].Flags = packet.FlagMore
		}
		n, err := l.im.Tx(now, l.tx)
		if err != nil || n != 1+i%4 {
			t.Fatalf("Tx = %d of %d, %v", n, l.tx.Len(), err)
		}
		l.tx.Reset()
		l.b.Rx(now, l.rx)
		for _, d := range l.rx.D {
			chain[1]++
			if !d.Flags.Has(packet.FlagMore) {
				chain[0]++
			}
		}
		l.poolB.PutBatch(l.rx)
		l.im.Rx(now, l.rx)
	}
	l.until(t, clock.Never-1)
	l.audit(t, l.im)
	if s := l.b.Info().Stats; chain[0] == 0 || s.RxBytes == 0 {
		t.Errorf("%+v", s)
	}
	// A packet of more frames than may be held is lost, not stuck.
	fill(t, l.tx, l.poolA, 0, 101, 64)
	for j := range 100 {
		l.tx.D[j].Flags = packet.FlagMore
	}
	if n, _ := l.im.Tx(clock.Time(1e12), l.tx); n != 101 {
		t.Errorf("Tx = %d of 101", n)
	}
	l.tx.Reset()
	if _, c := l.im.Counts(); c.LostMTU != 1 {
		t.Errorf("%+v", c)
	}
	l.audit(t, l.im)
}

func TestImpairCloseReturnsFramesAndCountsThem(t *testing.T) {
	l := newPath(t, "delay=1ms")
	l.send(t, 0, 0, 10, 64)
	fill(t, l.tx, l.poolB, 0, 4, 64)
	l.b.Tx(0, l.tx)
	l.tx.Reset()
	l.im.Rx(0, l.rx)
	if err := l.im.Close(); err != nil {
		t.Fatal(err)
	}
	l.im.Close()
	rx, tx := l.im.Counts()
	if rx.Discarded != 4 || tx.Discarded != 10 {
		t.Errorf("rx %+v, tx %+v", rx, tx)
	}
	if _, err := l.im.Rx(0, l.rx); !errors.Is(err, pmd.ErrClosed) {
		t.Error(err)
	}
	if _, err := l.im.Tx(0, l.rx); !errors.Is(err, pmd.ErrClosed) {
		t.Error(err)
	}
	l.b.Close()
	l.audit(t)
	if l.poolA.Free() != l.poolA.Size() {
		t.Errorf("%d of %d frames came back", l.poolA.Free(), l.poolA.Size())
	}
}

func TestImpairPassesAnErrorOnWhenNothingIsHeld(t *testing.T) {
	l := newPath(t, "delay=1ms")
	fill(t, l.tx, l.poolB, 0, 1, 64)
	l.b.Tx(0, l.tx)
	l.tx.Reset()
	l.im.Rx(0, l.rx)
	l.b.Close()
	if n, err := l.im.Rx(1, l.rx); n != 0 || err != nil {
		t.Errorf("Rx = %d, %v while a packet is held", n, err)
	}
	if n, err := l.im.Rx(2_000_000, l.rx); n != 1 || err != nil {
		t.Errorf("Rx = %d, %v; want the packet that was held", n, err)
	}
	if _, err := l.im.Rx(2_000_000, l.rx); !errors.Is(err, pmd.ErrGone) {
		t.Errorf("Rx: %v, want ErrGone", err)
	}
}

func TestImpairRejectsAProfileOutOfBounds(t *testing.T) {
	l := newPath(t, "")
	for _, d := range []pmd.Impairment{{Loss: 101}, {Loss: -1}, {Delay: -1}, {Shape: pmd.Pareto}, {Shape: 9, Jitter: 1}, {CorruptBits: 2}, {MTU: -1}, {Rate: 1, Queue: pmd.Queue{Packets: 1, Bytes: 1}}, {Queue: pmd.Queue{Packets: 1}}, {Loss: pmd.Percent(math.NaN())}} {
		if _, err := pmd.NewImpair(l.b, pmd.ImpairConfig{Profile: pmd.Profile{Tx: d}, Pool: l.poolB}); err == nil {
			t.Errorf("%+v was accepted", d)
		}
	}
}

func TestImpairMovesPacketsWithoutAllocating(t *testing.T) {
	l := newPath(t, everything+" seed=3")
	now := clock.Time(0)
	round := func() {
		now += 100_000
		fill(t, l.tx, l.poolA, 0, 32, 64)
		n, _ := l.im.Tx(now, l.tx)
		l.tx.Consume(n)
		l.poolA.PutBatch(l.tx)
		l.b.Rx(now, l.rx)
		n, _ = l.b.Tx(now, l.rx)
		l.rx.Consume(n)
		l.poolB.PutBatch(l.rx)
		l.im.Rx(now, l.rx)
		l.poolA.PutBatch(l.rx)
	}
	for range 100 {
		round()
	}
	if n := testing.AllocsPerRun(200, round); n != 0 {
		t.Errorf("%v allocations a round", n)
	}
}

func BenchmarkImpairDelay(b *testing.B) {
	l := newPath(b, "delay=1ms loss=1% rate=10gbit")
	for i := 0; i < b.N; i += 64 {
		now := clock.Time(i) * 1000
		fill(b, l.tx, l.poolA, 0, 64, 64)
		n, _ := l.im.Tx(now, l.tx)
		l.tx.Consume(n)
		l.poolA.PutBatch(l.tx)
		l.b.Rx(now, l.rx)
		l.poolB.PutBatch(l.rx)
		l.im.Rx(now, l.rx)
	}
}

func TestImpairLosesAPacketThatNoBatchHolds(t *testing.T) {
	l := newPathOf(t, "delay=1ms", 512, 100)
	fill(t, l.rx, l.poolB, 0, 12, 64)
	for j := range 8 { // nine descriptors, then three packets
		l.rx.D[j].Flags = packet.FlagMore
	}
	l.b.Tx(0, l.rx)
	l.rx.Reset()
	small := packet.NewBatch(l.arena.View(), 8)
	l.im.Rx(0, small)
	n, err := l.im.Rx(1_000_000, small)
	if rx, _ := l.im.Counts(); n != 3 || err != nil || rx.LostMTU != 1 || rx.Passed != 3 {
		t.Errorf("Rx = %d, %v; %+v", n, err, rx)
	}
	l.audit(t, l.im, held{small})

	// One that an empty batch just holds waits for an empty batch.
	fill(t, l.rx, l.poolB, 0, 8, 64)
	for j := range 7 {
		l.rx.D[j].Flags = packet.FlagMore
	}
	l.b.Tx(1_000_000, l.rx)
	l.rx.Reset()
	for i, want := range []int{0, 0, 8} { // at first it is delayed
		n, err := l.im.Rx(clock.Time(3+2*i)*1_000_000, small)
		if rx, _ := l.im.Counts(); n != want || err != nil || rx.LostMTU != 1 {
			t.Errorf("Rx = %d, %v, want %d; %+v", n, err, want, rx)
		}
		if want == 0 && small.Len() == 3 {
			l.poolA.Put(small.D[0].Off) // two are in the way still
			small.Consume(1)
			continue
		}
		l.poolA.PutBatch(small)
	}
	l.audit(t, l.im)
}
