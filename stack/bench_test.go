package stack

import (
	"testing"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// source gives full bursts for ever and takes everything: the loop's own cost.
type source struct{ pool *ring.Pool }

func (s *source) Rx(now clock.Time, b *packet.Batch) (int, error) {
	n := b.Room()
	for range n {
		off, _ := s.pool.Get()
		b.Append(packet.Desc{Off: off, Len: 60})
	}
	return n, nil
}

func (s *source) Tx(now clock.Time, b *packet.Batch) (int, error) {
	for i := range b.D {
		s.pool.Put(b.D[i].Off)
	}
	return b.Len(), nil
}

func (s *source) Info() pmd.Info { return pmd.Info{FD: -1} }
func (s *source) Close() error   { return nil }

// through is an engine that looks at nothing.
type through struct{ b *packet.Batch }

func (e *through) Submit(b *packet.Batch) error {
	if e.b != nil {
		return gpukern.ErrFull
	}
	e.b = b
	return nil
}

func (e *through) Poll(done []*packet.Batch) int {
	if e.b == nil {
		return 0
	}
	done[0], e.b = e.b, nil
	return 1
}
func (e *through) Load(gpukern.Tables) error { return nil }
func (e *through) Info() gpukern.Info        { return gpukern.Info{Depth: 1} }
func (e *through) Close() error              { return nil }

// BenchmarkLoop is the cost of a packet in the loop itself, all parts around it being empty.
func BenchmarkLoop(b *testing.B) {
	a, err := ring.NewArena(ring.ArenaConfig{Frames: 1024})
	if err != nil {
		b.Fatal(err)
	}
	defer a.Close()
	pool, _ := a.Cut(0)
	src := &source{pool}
	l, err := NewLoop(Config{Devices: []pmd.Driver{src, src}, Pool: pool, Engine: &through{}, Handler: Bridge{}})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	n := 0
	for b.Loop() {
		n += l.Poll(clock.Time(n))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(l.Stats().Received), "ns/packet")
}

// handOn hands every packet of loop 0 over to loop 1, which forwards it.
type handOn struct{ Bridge }

func (handOn) Handle(_ clock.Time, b *packet.Batch) {
	for i := range b.D {
		d := &b.D[i]
		if d.Flags.Has(packet.FlagHanded) {
			d.Verdict, d.Port = packet.Forward, 0
		} else {
			d.Verdict, d.Flow = packet.Handover, 1
		}
	}
}

// BenchmarkHandover is BenchmarkLoop with each packet handed over to a second loop, on the same
// thread: what the rings, the payment and the second batch cost. What the caches of two CPUs cost comes
// on top where there are two.
func BenchmarkHandover(b *testing.B) {
	a, err := ring.NewArena(ring.ArenaConfig{Frames: 8192})
	if err != nil {
		b.Fatal(err)
	}
	defer a.Close()
	var loops []*Loop
	for i := range 2 {
		pool, _ := a.Cut(4096)
		src := &source{pool}
		ports := []pmd.Driver{src, src}
		if i == 1 {
			ports = []pmd.Driver{&sink{*src}}
		}
		l, err := NewLoop(Config{Devices: ports, Pool: pool, Engine: &through{}, Handler: handOn{}})
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
		loops = append(loops, l)
	}
	if _, err := Join(loops...); err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		n += loops[0].Poll(clock.Time(n))
		loops[1].Poll(clock.Time(n))
	}
	s := loops[1].Stats()
	if s.Forwarded != s.TakenOver || s.TakenOver == 0 || loops[0].Stats().Dropped[packet.DropHandover] != 0 {
		b.Fatalf("%+v of %+v", s, loops[0].Stats())
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(s.TakenOver), "ns/packet")
}

// sink is a source that has dried up.
type sink struct{ source }

func (*sink) Rx(clock.Time, *packet.Batch) (int, error) { return 0, nil }
