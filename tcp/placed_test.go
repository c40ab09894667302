package tcp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/tcp/auth"
	"github.com/millrace/millrace/wire"
)

// sibling is another connection of the same Mux as p, whose peer begins with the same sequence number. Its application waits
// with a buffer of n bytes.
func (p *peer) sibling(n int, o *Options) (*peer, *reader) {
	p.t.Helper()
	q := &peer{t: p.t, e: p.e, now: p.now, irs: p.irs}
	r := &reader{buf: make([]byte, n)}
	var err error
	q.c, err = p.e.m.Connect(p.now, wire.Tuple{Local: addrA, Remote: addrB, RemotePort: testPort}, o, r)
	if err != nil {
		p.t.Fatal(err)
	}
	q.tuple, q.iss = q.c.Tuple(), q.c.una
	q.poll()
	q.expect(seg{flags: syn})
	q.send(seg{flags: syn | ackF, ack: 1, win: 10000, opts: wire.AppendNOP(wire.AppendWindowScale(wire.AppendMSS(nil, 1000), 0), 1)})
	q.expect(seg{flags: ackF, seq: 1, ack: 1})
	return q, r
}

// placeBytes does what a driver does with a large packet of the given payload, as place does.
func (p *peer) placeBytes(seq uint32, data []byte) (s *Segment, later bool) {
	b := wire.AppendTCP(nil, &wire.TCPHeader{
		SrcPort: p.tuple.RemotePort, DstPort: p.tuple.LocalPort, Seq: p.irs + seq, Ack: p.iss + 1, Flags: ackF, Window: 10000,
	})
	pieces, later := p.e.m.Place(&p.tuple, b, len(data))
	if len(pieces) == 0 {
		return nil, later
	}
	rest := data
	for _, piece := range pieces {
		if len(piece) == 0 || len(piece) > len(rest) {
			p.t.Fatalf("a piece of %d bytes for %d", len(piece), len(rest))
		}
		rest = rest[copy(piece, rest):]
	}
	if len(rest) > 0 {
		p.t.Fatalf("no place for %d bytes of %d", len(rest), len(data))
	}
	var g Coalescer
	g.Begin(b, wire.NotECT)
	g.ExtendPlaced(len(data))
	g.Packets = uint16(max(1, len(data)/1000))
	return &g.Segment, false
}

// inFrames is a segment as it comes in frames.
func (p *peer) inFrames(seq uint32, data []byte) *Segment {
	b := wire.AppendTCP(nil, &wire.TCPHeader{
		SrcPort: p.tuple.RemotePort, DstPort: p.tuple.LocalPort, Seq: p.irs + seq, Ack: p.iss + 1, Flags: ackF, Window: 10000,
	})
	var g Coalescer
	g.Begin(append(b, data...), wire.NotECT)
	return &g.Segment
}

func large() *Options { return &Options{NoTimestamps: true, ReceiveBuffer: 1 << 20} }

// The ring of a burst belongs to one connection: bytes of another, with the same sequence numbers, would be read as its own.
func TestTheRingOfABurstHasOneOwner(t *testing.T) {
	p, r := readerPeer(t, 0, large())
	q, s := p.sibling(0, large())
	mine, other := bytes.Repeat([]byte{1}, 50_000), bytes.Repeat([]byte{2}, 50_000)
	first, _ := p.placeBytes(1, mine)
	second, later := q.placeBytes(1, other)
	if first == nil || second != nil || later {
		t.Fatalf("placed: %v, %v; later %v", first != nil, second != nil, later)
	}
	if v := p.input(first); v != packet.Deliver {
		t.Fatal(v)
	}
	if v := q.input(q.inFrames(1, other)); v != packet.Deliver {
		t.Fatal(v)
	}
	p.poll()
	if !bytes.Equal(r.take(p), mine) || !bytes.Equal(s.take(q), other) {
		t.Error("bytes of one connection reach the other")
	}
	third, _ := q.placeBytes(50_001, other)
	if third == nil || q.input(third) != packet.Deliver || q.c.rcv.Holder != q.c.id {
		t.Error("the ring of a burst does not name its connection, whose memory may be reclaimed")
	}
	q.c.Abort(q.now)
	p.poll()
	if p.memory() != 0 {
		t.Errorf("memory %d", p.memory())
	}
}

// The ring of a burst begins where the first placement needed it. A connection that has come further by another way must
// not take it: its next byte would be in front of what was received.
func TestTheRingOfABurstBeginsWhereItIsNeeded(t *testing.T) {
	p, r := readerPeer(t, 1000, large())
	first, ok, _ := p.place(1, 60_000) // 1000 bytes to the reader, the ring from 1001 on
	second, ok2, _ := p.place(60_001, 30_000)
	if !ok || !ok2 {
		t.Fatal("not placed")
	}
	first.Ack = p.iss + 1_000_000
	if v := p.input(first); !v.Dropped() {
		t.Fatal(v)
	}
	r.buf = make([]byte, 100_000) // a reader with more room, which gets all of the retransmission
	for at := 0; at < 60_000; at += 10_000 {
		if v := p.input(p.inFrames(uint32(1+at), stream(at, 10_000))); v != packet.Deliver {
			t.Fatal(v)
		}
	}
	if v := p.input(second); v != packet.DropMemory || p.c.rcvNxt-p.irs != 60_001 {
		t.Fatalf("%v, RCV.NXT %d", v, p.c.rcvNxt-p.irs)
	}
	p.poll()
	p.send(seg{flags: ackF, seq: 60_001, ack: 1, n: 30_000, win: 10000})
	if got := r.take(p); !bytes.Equal(got, stream(0, 90_000)) {
		t.Errorf("%d bytes, or others", len(got))
	}
}

// Readers of two connections, whose next bytes have the same sequence numbers, get theirs from one burst, segment by segment in
// turn.
func TestPlacedForReadersOfTwoConnections(t *testing.T) {
	p, r := readerPeer(t, 100_000, large())
	q, s := p.sibling(100_000, large())
	var mine, other []byte
	var burst []*Segment
	for i := range 3 { // the third needs the ring, which p has
		x, y := bytes.Repeat([]byte{byte(1 + i)}, 40_000), bytes.Repeat([]byte{byte(101 + i)}, 30_000+10_000*min(i, 1))
		for _, a := range []struct {
			p    *peer
			data []byte
			all  *[]byte
		}{{p, x, &mine}, {q, y, &other}} {
			in, later := a.p.placeBytes(uint32(1+len(*a.all)), a.data)
			if in == nil && (a.p == p || i < 2 || !later) {
				t.Fatalf("segment %d is not placed, later %v", i, later)
			}
			if in != nil {
				burst, *a.all = append(burst, in), append(*a.all, a.data...)
			}
		}
	}
	for i, in := range burst {
		to := p
		if i%2 == 1 {
			to = q
		}
		if v := to.input(in); v != packet.Deliver {
			t.Fatalf("segment %d: %v", i, v)
		}
	}
	p.poll()
	if r.n != 100_000 || s.n != 70_000 {
		t.Errorf("the readers have %d and %d bytes", r.n, s.n)
	}
	if !bytes.Equal(r.take(p), mine) || !bytes.Equal(s.take(q), other) {
		t.Error("other bytes than those that were sent")
	}
}

// A connection that has lost its ring since its segment was placed does not take that of another.
func TestTheRingOfABurstIsNotTaken(t *testing.T) {
	p, r := readerPeer(t, 0, large())
	q, s := p.sibling(0, large())
	for _, x := range []*peer{p, q} {
		x.send(seg{flags: ackF, seq: 1, ack: 1, n: 500, win: 10000})
	}
	_ = r.take(p) // q's bytes still wait
	second, ok, _ := q.place(501, 3000)
	first, ok2, _ := p.place(501, 3000)
	if !ok || !ok2 {
		t.Fatal("not placed")
	}
	if got := s.take(q); !bytes.Equal(got, stream(0, 500)) || q.c.rcv != nil {
		t.Fatalf("%d bytes, ring %v", len(got), q.c.rcv != nil)
	}
	if v := q.input(second); v != packet.DropMemory {
		t.Error(v)
	}
	if v := p.input(first); v != packet.Deliver {
		t.Error(v)
	}
	p.poll()
	q.send(seg{flags: ackF, seq: 501, ack: 1, n: 3000, win: 10000})
	if !bytes.Equal(r.take(p), stream(500, 3000)) || !bytes.Equal(s.take(q), stream(500, 3000)) {
		t.Error("other bytes than those that were sent")
	}
}

// A placed segment is taken whole or not at all: not where its first bytes have come by another one, nor where a FIN has
// come that ends the stream before its last.
func TestPlacedIsTakenWholeOrNot(t *testing.T) {
	for what, before := range map[string]func(p *peer, r *reader) *Segment{
		"bytes of a retransmission": func(p *peer, r *reader) *Segment { return p.inFrames(1, stream(0, 1000)) },
		"a FIN": func(p *peer, r *reader) *Segment {
			s := p.inFrames(2001, nil)
			s.Flags |= fin
			return s
		},
	} {
		for _, ring := range []bool{false, true} {
			p, r := readerPeer(t, 5000, large())
			buf := r.buf
			if ring {
				r.buf = nil
			}
			s, ok, _ := p.place(1, 3000)
			if !ok {
				t.Fatal("not placed")
			}
			if v := p.input(before(p, r)); v != packet.Deliver {
				t.Fatalf("%s: %v", what, v)
			}
			next := p.c.rcvNxt
			had := r.n
			r.n = 0 // the reader is back with the same buffer
			if v := p.input(s); v != packet.DropMemory || r.n != 0 || p.c.rcvNxt != next {
				t.Errorf("behind %s: %v, %d bytes, RCV.NXT %d after %d", what, v, r.n, p.c.rcvNxt-p.irs, next-p.irs)
			}
			p.poll()
			if !ring && had == 1000 && !bytes.Equal(buf[:1000], stream(0, 1000)) {
				t.Error("the bytes that were read have changed")
			}
		}
	}
}

// Bytes of a segment that was rejected are not read as a part of the one behind it, in a ring that holds data.
func TestPlacedBehindARejectedSegment(t *testing.T) {
	p, r := readerPeer(t, 0, large())
	p.send(seg{flags: ackF, seq: 1, ack: 1, n: 500, win: 10000})
	forged, _ := p.placeBytes(501, bytes.Repeat([]byte{0xbb}, 3000))
	if s, _, later := p.place(3501, 597); s != nil || !later { // one byte more than the ring has
		t.Fatalf("placed %v, later %v, beyond the ring", s != nil, later)
	}
	second, ok, _ := p.place(3501, 500) // in the same ring of 4096 bytes
	if forged == nil || !ok {
		t.Fatal("not placed")
	}
	forged.Ack = p.iss + 1_000_000
	if v := p.input(forged); !v.Dropped() {
		t.Fatal(v)
	}
	if v := p.input(second); v != packet.DropMemory {
		t.Error(v)
	}
	p.poll()
	if got := r.take(p); !bytes.Equal(got, stream(0, 500)) {
		t.Errorf("%d bytes were read, want 500", len(got))
	}
}

// The number of a connection that ends in a burst is free for another only after Poll, which forgets the placements of the
// burst: so a number means one connection there.
func TestPlacedForANumberThatIsReused(t *testing.T) {
	for _, buf := range []int{0, 20_000} {
		p, _ := readerPeer(t, buf, large())
		s, ok, _ := p.place(1, 60_000)
		if !ok {
			t.Fatal("not placed")
		}
		id := p.c.id
		p.c.Abort(p.now)
		p.c.Close(p.now)
		if q, err := p.e.m.Connect(p.now, wire.Tuple{Local: addrA, Remote: addrB, RemotePort: testPort}, large(), p.app); err != nil || q.id == id {
			t.Fatalf("connection %d in the burst in which %d ended, %v", q.id, id, err)
		}
		p.poll()
		p.e.out = nil
		q, r := p.sibling(buf, large())
		if q.c.id != id {
			t.Fatalf("connection %d after %d", q.c.id, id)
		}
		s.Ack = q.iss + 1
		if v := q.input(s); v != packet.DropMemory || r.n > 0 || q.c.rcv != nil {
			t.Errorf("buffer of %d: %v, %d bytes of the connection before", buf, v, r.n)
		}
		first, _ := q.placeBytes(1, stream(0, 5000))
		if first == nil || q.input(first) != packet.Deliver {
			t.Fatalf("buffer of %d: not placed", buf)
		}
		q.poll()
		if got := r.take(q); !bytes.Equal(got, stream(0, 5000)) {
			t.Errorf("buffer of %d: %d bytes, or others", buf, len(got))
		}
	}
}

// After Close no byte goes to the reader that waited: its buffer belongs to the caller of Read again.
func TestNothingIsPlacedForAReaderAfterClose(t *testing.T) {
	for what, end := range map[string]func(p *peer){
		"Close":     func(p *peer) { p.c.Close(p.now) },
		"Abort":     func(p *peer) { p.c.Abort(p.now) },
		"CloseRead": func(p *peer) { p.c.CloseRead(p.now) },
		"no owner":  func(p *peer) { p.c.SetOwner(nil) },
		"a key":     func(p *peer) { p.c.auth = &auth.State{} }, // the signature covers the payload
		"no reader": func(p *peer) { p.c.owner.(*reader).buf = nil },
	} {
		p, r := readerPeer(t, 5000, large())
		buf := r.buf
		end(p)
		s, _ := p.placeBytes(1, stream(0, 4000))
		if s != nil {
			p.input(s)
		}
		if wants := what == "no owner" || what == "no reader"; (s != nil) != wants { // into the receive buffer
			t.Errorf("after %s: placed %v", what, s != nil)
		}
		p.poll()
		if !bytes.Equal(buf, make([]byte, 5000)) || r.n != 0 {
			t.Errorf("after %s: the buffer was written to", what)
		}
	}
}

// A placement that is forgotten at the end of its burst is neither delivered nor written to in the next: the reader's buffer
// may be the caller's again.
func TestTheNextBurstBeginsWithWhatWasReceived(t *testing.T) {
	p, r := readerPeer(t, 100_000, large())
	if s, _ := p.placeBytes(1, bytes.Repeat([]byte{0xee}, 30_000)); s == nil { // rejected by the host: its checksum
		t.Fatal("not placed")
	}
	p.poll()
	r.buf = r.buf[:40_000:40_000]
	for at := 0; at < 80_000; at += 20_000 {
		s, ok, _ := p.place(uint32(1+at), 20_000)
		if !ok {
			t.Fatalf("not placed at %d", at)
		}
		if v := p.input(s); v != packet.Deliver {
			t.Fatalf("%v at %d", v, at)
		}
		p.poll()
	}
	if got := r.take(p); !bytes.Equal(got, stream(0, 80_000)) {
		t.Errorf("%d bytes, or others", len(got))
	}
}

// readerFlow is one connection of TestPlacedBurstsOfSeveralConnections.
type readerFlow struct {
	p   *peer
	r   *reader
	key byte
	got []byte // what was read
}

// data returns n genuine bytes of the flow from byte at on.
func (f *readerFlow) data(at, n int) []byte {
	b := stream(at, n)
	for i := range b {
		b[i] ^= f.key
	}
	return b
}

// turn reads as a goroutine does, at the end of a burst, and waits again. The bytes beyond those that the reader got are
// overwritten: they are scratch space and of no meaning.
func (f *readerFlow) turn(rng *rand.Rand) {
	if rng.IntN(3) == 0 {
		return // it comes later
	}
	f.got = append(f.got, f.r.take(f.p)...)
	f.r.buf = bytes.Repeat([]byte{0xdd}, []int{0, 100, 5000, 40_000, 200_000}[rng.IntN(5)])
}

// Several connections with the same sequence numbers in one burst, whose segments come interleaved, in the wrong order, twice,
// with other contents, with forged headers, and placed where that is possible. What each reader gets is its peer's stream.
func TestPlacedBurstsOfSeveralConnections(t *testing.T) {
	var placed, rejected, framed int
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 768))
		p, r := readerPeer(t, 0, large())
		flows := []*readerFlow{{p: p, r: r, key: 0}}
		for i := range 2 {
			q, s := p.sibling(0, large())
			flows = append(flows, &readerFlow{p: q, r: s, key: byte(85 * (i + 1))})
		}
		for burst := range 60 {
			type arrival struct {
				f       *readerFlow
				s       *Segment
				genuine bool
			}
			var in []arrival
			next := map[*readerFlow]int{} // what this burst has of each flow, in order
			for range 1 + rng.IntN(12) {
				f := flows[rng.IntN(len(flows))]
				have := int(f.p.c.rcvNxt - f.p.irs - 1)
				at := have + next[f]
				n := 1 + rng.IntN([]int{100, 5000, 60_000}[rng.IntN(3)])
				data, genuine := f.data(at, n), true
				switch rng.IntN(8) {
				case 0: // a hole before it
					at += 1 + rng.IntN(3000)
					data = f.data(at, n)
				case 1: // again, the old part with other contents
					back := min(have, rng.IntN(5000))
					at = have - back
					data = append(bytes.Repeat([]byte{0xee}, back), f.data(have, n)...)
				case 2: // forged: acknowledges what was never sent
					data, genuine = bytes.Repeat([]byte{0xbb}, n), false
				default:
					next[f] += n
				}
				s, later := f.p.placeBytes(uint32(1+at), data)
				if later && len(in) > 0 {
					if genuine && next[f] > 0 && rng.IntN(2) == 0 {
						break // the driver ends the burst
					}
				}
				if s == nil {
					s = f.p.inFrames(uint32(1+at), data)
					framed++
				} else {
					placed++
				}
				if !genuine {
					s.Ack = f.p.iss + 1_000_000
				}
				in = append(in, arrival{f, s, genuine})
			}
			if rng.IntN(3) == 0 { // as GRO slots of several flows are flushed
				rng.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
			}
			for _, a := range in {
				v := a.f.p.input(a.s)
				if a.s.Placed && v.Dropped() {
					rejected++
				}
				if !a.genuine && !v.Dropped() {
					t.Fatalf("seed %d, burst %d: a forged segment is %v", seed, burst, v)
				}
			}
			p.poll()
			p.e.out = nil
			for _, f := range flows {
				f.turn(rng)
			}
		}
		for i, f := range flows {
			f.got = append(f.got, f.r.take(f.p)...)
			if want := f.data(0, len(f.got)); !bytes.Equal(f.got, want) {
				t.Fatalf("seed %d, flow %d: %s", seed, i, firstWrong(f.got, want))
			}
			f.p.c.Abort(f.p.now)
		}
		p.poll()
		if p.memory() != 0 {
			t.Errorf("seed %d: memory %d", seed, p.memory())
		}
	}
	if placed < 500 || rejected < 50 || framed < 500 {
		t.Errorf("%d placed, of which %d rejected, %d in frames: the test shows little", placed, rejected, framed)
	}
}

func firstWrong(got, want []byte) string {
	for i := range got {
		if got[i] != want[i] {
			return fmt.Sprintf("byte %d of %d is %#x, want %#x", i, len(got), got[i], want[i])
		}
	}
	return "equal"
}
