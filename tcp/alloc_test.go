package tcp

import (
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// direct is an Output that keeps super-segments whole, in memory of its own.
type direct struct {
	queue []directSegment
	head  int
	bytes []byte
}

type directSegment struct {
	tuple wire.Tuple
	seg   Segment
	buf   []byte
	one   [1][]byte
}

func (d *direct) MTU(*wire.Tuple) int     { return 1500 }
func (d *direct) LinkMTU(*wire.Tuple) int { return 1500 }
func (d *direct) Offload() int            { return 64 << 10 }

func (d *direct) Send(now clock.Time, o *Outgoing) bool {
	if d.head == len(d.queue) {
		d.queue, d.head = d.queue[:0], 0
	}
	if len(d.queue) == cap(d.queue) {
		d.queue = append(d.queue, directSegment{})
	} else {
		d.queue = d.queue[:len(d.queue)+1]
	}
	x := &d.queue[len(d.queue)-1]
	x.tuple = o.Tuple.Reverse()
	h := &o.Header
	x.buf = append(append(x.buf[:0], o.Payload[0]...), o.Payload[1]...)
	x.one[0] = x.buf
	x.seg = Segment{
		Seq: h.Seq, Ack: h.Ack, Window: h.Window, Flags: h.Flags, Packets: 1, Len: uint32(len(x.buf)), Payload: x.one[:],
	}
	if o.SegmentSize > 0 && len(x.buf) > 0 {
		x.seg.Packets = uint16((len(x.buf) + o.SegmentSize - 1) / o.SegmentSize)
	}
	d.bytes = wire.AppendTCP(d.bytes[:0], h)
	wire.TCP(d.bytes).ParseOptions(&x.seg.Options)
	return true
}

// to delivers all to m.
func (d *direct) to(now clock.Time, m *Mux) (some bool) {
	for d.head < len(d.queue) {
		x := &d.queue[d.head]
		d.head++
		m.Input(now, &x.tuple, &x.seg)
		some = true
	}
	return some
}

// directPair is two connected ends over directs.
type directPair struct {
	now    clock.Time
	da, db direct
	ma, mb *Mux
	l      *Listener
	a, b   *Conn
}

func newDirectPair(t testing.TB, o Options) *directPair {
	p := &directPair{now: clock.Time(time.Hour)}
	p.ma = NewMux(Config{Output: &p.da, Now: p.now, Secret: [32]byte{1}, Defaults: o})
	p.mb = NewMux(Config{Output: &p.db, Now: p.now, Secret: [32]byte{2}, Defaults: o})
	p.connect(t)
	return p
}

func (p *directPair) connect(t testing.TB) {
	var err error
	if p.l == nil {
		if p.l, err = p.mb.Listen(wire.Addr{}, testPort, 16, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	p.a, err = p.ma.Connect(p.now, wire.Tuple{Local: addrA, Remote: addrB, RemotePort: testPort}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.turn()
	if p.b = p.l.Accept(); p.b == nil {
		t.Fatal("not connected")
	}
}

// turn lets all that is under way arrive.
func (p *directPair) turn() {
	for some := true; some; {
		p.now += clock.Time(5 * time.Microsecond)
		p.ma.Poll(p.now)
		p.mb.Poll(p.now)
		some = p.da.to(p.now, p.mb)
		some = p.db.to(p.now, p.ma) || some
	}
}

// roundTrip sends one byte there and back.
func (p *directPair) roundTrip(t testing.TB) {
	var b [16]byte
	if p.a.Write(p.now, b[:1]) != 1 {
		t.Fatal("no room")
	}
	p.turn()
	if p.b.Read(p.now, b[:]) != 1 || p.b.Write(p.now, b[:1]) != 1 {
		t.Fatal("nothing came")
	}
	p.turn()
	if p.a.Read(p.now, b[:]) != 1 {
		t.Fatal("nothing came back")
	}
}

// bulk sends len(buf) bytes.
func (p *directPair) bulk(t testing.TB, buf []byte) {
	for sent, got := 0, 0; got < len(buf); {
		sent += p.a.Write(p.now, buf[sent:])
		p.turn()
		n := p.b.Readable()
		p.b.Discard(p.now, n)
		if got += n; n == 0 {
			p.now += clock.Time(time.Millisecond)
		}
	}
}

// TestSteadyStateDoesNotAllocate covers small messages and bulk, with every congestion control.
func TestSteadyStateDoesNotAllocate(t *testing.T) {
	for _, name := range []string{"cubic", "reno", "bbr", "dctcp"} {
		p := newDirectPair(t, Options{Congestion: name})
		buf := make([]byte, 1<<20)
		for range 20 {
			p.roundTrip(t)
			p.bulk(t, buf)
		}
		if n := testing.AllocsPerRun(100, func() { p.roundTrip(t) }); n != 0 {
			t.Errorf("%s: a round trip allocates %v times", name, n)
		}
		if n := testing.AllocsPerRun(20, func() { p.bulk(t, buf) }); n != 0 {
			t.Errorf("%s: a megabyte allocates %v times", name, n)
		}
	}
}

// The whole life of a connection: handshake, a round trip, the end of both directions.
func TestConnectionsDoNotAllocate(t *testing.T) {
	p := newDirectPair(t, Options{})
	life := func() {
		p.connect(t)
		p.roundTrip(t)
		p.a.Close(p.now)
		p.turn()
		p.b.Close(p.now)
		p.turn()
	}
	for range 2 * minRecords { // TIME-WAIT's records, too, have their room then
		life()
		p.now = p.now.Add(2 * time.Minute)
		p.turn()
	}
	if n := testing.AllocsPerRun(20, life); n != 0 {
		t.Errorf("%v allocations for each connection", n)
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	p := newDirectPair(b, Options{})
	b.ReportAllocs()
	for b.Loop() {
		p.roundTrip(b)
	}
}

func BenchmarkBulk(b *testing.B) {
	p := newDirectPair(b, Options{})
	buf := make([]byte, 1<<20)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		p.bulk(b, buf)
	}
}
