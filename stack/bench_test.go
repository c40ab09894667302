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
	l, err := NewLoop(Config{Ports: []pmd.Driver{src, src}, Pool: pool, Engine: &through{}, Handler: Bridge{}})
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
