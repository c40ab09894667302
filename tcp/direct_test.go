package tcp

import (
	"bytes"
	"testing"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// reader is an app with a goroutine that waits for data, as socket has them.
type reader struct {
	app
	buf []byte
	n   int
}

func (r *reader) ReadBuffer() []byte { return r.buf[r.n:] }
func (r *reader) Filled(n int)       { r.n += n }

// take returns what the reader got, and what it reads without waiting.
func (r *reader) take(p *peer) []byte {
	got := append([]byte(nil), r.buf[:r.n]...)
	r.n, r.buf = 0, nil
	var b [1 << 20]byte
	return append(got, b[:p.c.Read(p.now, b[:])]...)
}

// stream returns n bytes of the peer's stream from byte first on.
func stream(first, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = pattern(first + i)
	}
	return b
}

// readerPeer is an established peer whose application waits with a buffer of n bytes. The receive buffer holds 1 MiB.
func readerPeer(t *testing.T, n int, o *Options) (*peer, *reader) {
	if o == nil {
		o = &Options{NoTimestamps: true, ReceiveBuffer: 1 << 20}
	}
	p := newPeer(t, o)
	p.expect(seg{flags: syn})
	p.send(seg{flags: syn | ackF, ack: 1, win: 10000, opts: wire.AppendNOP(wire.AppendWindowScale(wire.AppendMSS(nil, 1000), 0), 1)})
	p.expect(seg{flags: ackF, seq: 1, ack: 1})
	r := &reader{buf: make([]byte, n)}
	p.c.SetOwner(r)
	return p, r
}

func (p *peer) memory() int64 { return p.e.m.Stats().Memory }

func TestDataGoesStraightToAReaderThatWaits(t *testing.T) {
	p, r := readerPeer(t, 1500, nil)
	p.send(seg{flags: ackF, seq: 1, ack: 1, n: 1000, win: 10000})
	if r.n != 1000 || p.c.rcv != nil || p.memory() != 0 || p.c.Readable() != 0 || r.events&Readable == 0 {
		t.Fatalf("the reader has %d bytes, memory %d, readable %d, %v", r.n, p.memory(), p.c.Readable(), r.events)
	}
	p.send(seg{flags: ackF, seq: 1001, ack: 1, n: 1000, win: 10000})
	if r.n != 1500 || p.c.Readable() != 500 {
		t.Fatalf("the reader has %d bytes, %d wait", r.n, p.c.Readable())
	}
	p.send(seg{flags: ackF, seq: 2001, ack: 1, n: 100, win: 10000}) // behind what waits
	if n := p.c.Info().BytesReceived; n != 2100 {
		t.Errorf("%d bytes received", n)
	}
	if got := r.take(p); !bytes.Equal(got, stream(0, 2100)) {
		t.Errorf("%d bytes, not those that were sent", len(got))
	}
	if p.memory() != 0 {
		t.Errorf("memory %d", p.memory())
	}
}

// A reader that takes all opens the window as Read does.
func TestDirectDataOpensTheWindow(t *testing.T) {
	p, r := readerPeer(t, 1<<20, nil)
	edge := p.c.rcvAdv
	for i := range 40 {
		p.send(seg{flags: ackF, seq: uint32(1 + 16000*i), ack: 1, n: 16000, win: 10000})
	}
	if r.n != 40*16000 || p.c.rcvAdv-edge != 40*16000 {
		t.Errorf("%d bytes moved the edge by %d", r.n, p.c.rcvAdv-edge)
	}
}

// What a hole delays, and what is urgent, goes by the receive buffer.
func TestNotStraightToTheReader(t *testing.T) {
	p, r := readerPeer(t, 5000, nil)
	p.send(seg{flags: ackF, seq: 1001, ack: 1, n: 1000, win: 10000})
	p.send(seg{flags: ackF, seq: 1, ack: 1, n: 1000, win: 10000})
	if r.n != 0 || p.c.Readable() != 2000 {
		t.Fatalf("the reader has %d bytes, %d wait", r.n, p.c.Readable())
	}
	if got := r.take(p); !bytes.Equal(got, stream(0, 2000)) {
		t.Error("not what was sent")
	}
	r.buf = make([]byte, 5000)
	p.send(seg{flags: ackF | urg, seq: 2001, ack: 1, n: 1000, urg: 500, win: 10000})
	if r.n != 0 {
		t.Errorf("%d bytes with an urgent one among them", r.n)
	}
}

// A retransmission that overlaps what was received brings its new bytes only.
func TestDirectDataOfARetransmission(t *testing.T) {
	p, r := readerPeer(t, 5000, nil)
	p.send(seg{flags: ackF, seq: 1, ack: 1, n: 1000, win: 10000})
	p.send(seg{flags: ackF, seq: 501, ack: 1, n: 1500, win: 10000})
	if got := r.take(p); !bytes.Equal(got, stream(0, 2000)) {
		t.Errorf("%d bytes, or others", len(got))
	}
}

// place does what a driver does with a large packet: it asks where n bytes from seq on belong, and puts them there.
// It returns the segment for Input; ok is false where they go into frames.
func (p *peer) place(seq uint32, n int) (s *Segment, ok, later bool) {
	b := wire.AppendTCP(nil, &wire.TCPHeader{
		SrcPort: p.tuple.RemotePort, DstPort: p.tuple.LocalPort, Seq: p.irs + seq, Ack: p.iss + 1, Flags: ackF, Window: 10000,
	})
	pieces, later := p.e.m.Place(&p.tuple, b, n)
	if len(pieces) == 0 {
		return nil, false, later
	}
	data, size := stream(int(seq)-1, n), 0
	for _, piece := range pieces {
		size += len(piece)
		data = data[copy(piece, data):]
	}
	if size != n {
		p.t.Fatalf("pieces of %d bytes for %d", size, n)
	}
	var g Coalescer
	g.Begin(b, wire.NotECT)
	g.ExtendPlaced(n)
	g.Packets = uint16(max(1, n/1000))
	return &g.Segment, true, later
}

func (p *peer) input(s *Segment) packet.Verdict { return p.e.m.Input(p.now, &p.tuple, s) }

func TestPlacedPayload(t *testing.T) {
	for _, buf := range []int{0, 1, 30_000, 60_000, 100_000, 300_000} {
		p, r := readerPeer(t, buf, nil)
		var want []byte
		var burst []*Segment
		most := 0 // placed in one burst
		for len(want) < 360_000 {
			s, ok, later := p.place(uint32(1+len(want)), 60_000)
			if ok {
				burst = append(burst, s)
				want = append(want, stream(len(want), 60_000)...)
			} else if !later || len(burst) == 0 {
				t.Fatalf("buffer of %d: not placed behind %d bytes, %d in the burst", buf, len(want), len(burst))
			}
			most = max(most, len(burst))
			if !ok || len(burst) == 3 || len(want) == 360_000 {
				for _, s := range burst {
					if v := p.input(s); v != packet.Deliver {
						t.Fatalf("buffer of %d: %v", buf, v)
					}
				}
				p.poll()
				burst = burst[:0]
			}
		}
		if most < 2 {
			t.Errorf("buffer of %d: bursts of %d", buf, most)
		}
		if got := r.take(p); !bytes.Equal(got, want) {
			t.Errorf("buffer of %d: %d bytes of %d, or others", buf, len(got), len(want))
		}
		if p.memory() != 0 {
			t.Errorf("buffer of %d: memory %d at the end", buf, p.memory())
		}
	}
}

// What is not the next data in order, or has no room, goes into frames.
func TestNotPlaced(t *testing.T) {
	p, r := readerPeer(t, 1000, nil)
	not := func(what string, seq uint32, n int, wantLater bool) {
		t.Helper()
		if _, ok, later := p.place(seq, n); ok || later != wantLater {
			t.Errorf("%s: placed %v, later %v", what, ok, later)
		}
	}
	not("behind a hole", 1001, 5000, true)
	not("before RCV.NXT", 0, 5000, false)
	not("beyond the window", 1, 2<<20, false)
	p.send(seg{flags: ackF, seq: 70_001, ack: 1, n: 1000, win: 10000})
	not("with data out of order", 1, 5000, false)
	p.send(seg{flags: fin | ackF, seq: 71_001, ack: 1, win: 10000})
	not("before a FIN", 1, 5000, false)
	if r.n != 0 {
		t.Errorf("the reader has %d bytes", r.n)
	}
	for _, special := range []wire.TCPFlags{rst | ackF, syn | ackF, urg | ackF, 0} {
		q, _ := readerPeer(t, 1000, nil)
		b := wire.AppendTCP(nil, &wire.TCPHeader{SrcPort: q.tuple.RemotePort, DstPort: q.tuple.LocalPort, Seq: q.irs + 1, Flags: special})
		if pieces, _ := q.e.m.Place(&q.tuple, b, 1000); len(pieces) > 0 {
			t.Errorf("placed with %v", special)
		}
	}
}

// A placed segment that Input rejects leaves nothing behind, and those behind it in the burst are sent again.
func TestPlacedAndRejected(t *testing.T) {
	p, r := readerPeer(t, 70_000, nil)
	first, _, _ := p.place(1, 60_000)
	second, ok, _ := p.place(60_001, 60_000)
	if first == nil || !ok {
		t.Fatal("not placed")
	}
	first.Ack = p.iss + 1_000_000 // of what was never sent (RFC 5961 5.2)
	if v := p.input(first); !v.Dropped() {
		t.Fatalf("%v", v)
	}
	if v := p.input(second); !v.Dropped() {
		t.Fatalf("the second: %v", v)
	}
	p.poll()
	if r.n != 0 || p.c.Readable() != 0 || p.memory() != 0 {
		t.Fatalf("the reader has %d bytes, %d wait, memory %d", r.n, p.c.Readable(), p.memory())
	}
	for i := range 12 { // of smaller segments, as they come again
		p.send(seg{flags: ackF, seq: uint32(1 + 10_000*i), ack: 1, n: 10_000, win: 10000})
	}
	if got := r.take(p); !bytes.Equal(got, stream(0, 120_000)) {
		t.Errorf("%d bytes, or others", len(got))
	}
}

// Memory for placed bytes counts against the budget, and comes back where the connection ends before they do.
func TestPlacedMemoryIsOfTheBudget(t *testing.T) {
	p, _ := readerPeer(t, 0, nil)
	s, ok, _ := p.place(1, 60_000)
	if !ok || p.memory() < 60_000 {
		t.Fatalf("placed %v with memory %d", ok, p.memory())
	}
	p.c.Abort(p.now)
	if v := p.input(s); !v.Dropped() {
		t.Errorf("after Abort: %v", v)
	}
	p.poll()
	if p.memory() != 0 {
		t.Errorf("memory %d", p.memory())
	}
}

// A burst that was not handled is forgotten: its segment comes too late.
func TestPlacementEndsWithPoll(t *testing.T) {
	p, r := readerPeer(t, 100_000, nil)
	s, ok, _ := p.place(1, 60_000)
	p.poll()
	if v := p.input(s); !ok || v != packet.DropMemory || r.n != 0 {
		t.Errorf("placed %v, then %v with %d bytes", ok, v, r.n)
	}
}

// The reader may be another one, or none, when the segment comes.
func TestPlacedForAReaderThatLeft(t *testing.T) {
	p, r := readerPeer(t, 100_000, nil)
	s, ok, _ := p.place(1, 60_000)
	r.buf = make([]byte, 100_000)
	if v := p.input(s); !ok || v != packet.DropMemory || r.n != 0 {
		t.Errorf("placed %v, then %v with %d bytes", ok, v, r.n)
	}
}

// So may its buffer, which then has no room for all that was placed into it.
func TestPlacedForAReaderWithLessRoom(t *testing.T) {
	p, r := readerPeer(t, 5000, nil)
	s, ok, _ := p.place(1, 3000)
	r.buf = r.buf[:1000]
	if v := p.input(s); !ok || v != packet.DropMemory || r.n != 0 {
		t.Errorf("placed %v, then %v with %d bytes", ok, v, r.n)
	}
	p.poll()
	p.expect(seg{flags: ackF, seq: 1, ack: 1}) // a duplicate: the peer sends it again
}

// A ring that grows for a segment in frames has not the bytes that were placed into its old memory.
func TestPlacedIntoARingThatMoved(t *testing.T) {
	p, r := readerPeer(t, 0, nil)
	p.send(seg{flags: ackF, seq: 1, ack: 1, n: 1000, win: 10000}) // a ring of 1024 bytes
	s, ok, _ := p.place(1001, 3000)                               // 4096
	if !ok {
		t.Fatal("not placed")
	}
	p.e.deliver(p.now, p.wireSegment(50_001, 10_000)) // out of order: the ring grows
	if v := p.input(s); v != packet.DropMemory {
		t.Errorf("%v", v)
	}
	p.poll()
	for i := range 6 {
		p.send(seg{flags: ackF, seq: uint32(1001 + 10_000*i), ack: 1, n: 10_000, win: 10000})
	}
	if got := r.take(p); !bytes.Equal(got, stream(0, 61_000)) {
		t.Errorf("%d bytes, or others", len(got))
	}
}

// wireSegment is a segment with n bytes of the peer's stream.
func (p *peer) wireSegment(seq uint32, n int) *wireSegment {
	b := wire.AppendTCP(nil, &wire.TCPHeader{
		SrcPort: p.tuple.RemotePort, DstPort: p.tuple.LocalPort, Seq: p.irs + seq, Ack: p.iss + 1, Flags: ackF, Window: 10000,
	})
	return &wireSegment{tuple: p.tuple, bytes: append(b, stream(int(seq)-1, n)...)}
}

// At most so many placements are remembered; then the burst ends.
func TestManyPlacements(t *testing.T) {
	p, r := readerPeer(t, 0, nil)
	n := 0
	for ; n < 100; n++ {
		if _, ok, later := p.place(uint32(1+1000*n), 1000); !ok {
			if !later {
				t.Error("into frames, and not later")
			}
			break
		}
	}
	if n != maxPlacements {
		t.Errorf("%d placements", n)
	}
	_ = r
}

// Where segments are so large that an ACK may wait, the window that a reader opens does not.
func TestDirectDataOpensTheWindowAtOnce(t *testing.T) {
	p, r := readerPeer(t, 1<<20, &Options{NoTimestamps: true, ReceiveBuffer: 8000})
	for i := range 40 { // the first 16 are acknowledged at once in any case
		if p.send(seg{flags: ackF, seq: uint32(1 + 5000*i), ack: 1, n: 5000, win: 10000}) != packet.Deliver {
			t.Fatalf("segment %d is rejected", i)
		}
		p.expect(seg{flags: ackF, seq: 1, ack: uint32(1 + 5000*(i+1))})
	}
	if r.n != 40*5000 {
		t.Errorf("the reader has %d bytes", r.n)
	}
}
