package pmd

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
)

// modelPacket is a packet offered to the model, or one that leaves it.
type modelPacket struct {
	Seq  int
	Size int
	At   clock.Time
}

// model is the slow, obvious form of one direction: it sees all packets at once, keeps a plain list
// and sorts it. It draws the same numbers from the same streams.
func model(d Impairment, seed uint64, offered []modelPacket) (out []modelPacket) {
	src := NewRandomSource(seed, 1)
	bad := false
	var leaving []modelPacket // when the wire is done with each
	free, last := new(big.Rat), clock.Time(0)
	place := func(p modelPacket) {
		left := p.At
		waiting, bytes := 0, 0
		for _, l := range leaving {
			if l.At > p.At {
				waiting++
				bytes += l.Size
			}
		}
		if d.Queue.Packets != 0 && waiting >= d.Queue.Packets || d.Queue.Bytes != 0 && bytes+p.Size > d.Queue.Bytes {
			return
		}
		if d.Rate != 0 {
			if now := new(big.Rat).SetInt64(int64(p.At)); free.Cmp(now) < 0 {
				free.Set(now)
			}
			free.Add(free, big.NewRat(int64(p.Size)*8*1e9, int64(d.Rate)))
			up := new(big.Int).Add(free.Num(), new(big.Int).Sub(free.Denom(), big.NewInt(1)))
			left = clock.Time(up.Div(up, free.Denom()).Int64())
		}
		due := left.Add(max(0, d.Delay+src.Jitter(d.Jitter, d.Shape)))
		if d.FIFO && due < last {
			due = last
		}
		last = due
		if src.Sample(CauseReorder, NewProbability(d.Reorder)) {
			due = due.Add(d.ReorderHold)
		}
		leaving = append(leaving, modelPacket{p.Seq, p.Size, left})
		out = append(out, modelPacket{p.Seq, p.Size, due})
	}
	for _, p := range offered {
		if d.MTU != 0 && p.Size-14 > d.MTU || src.Sample(CauseLoss, NewProbability(d.Loss)) {
			continue
		}
		turn, lose := d.Burst.Start, d.Burst.LostGood
		if bad {
			turn = d.Burst.End
		}
		if src.Sample(CauseBurst, NewProbability(turn)) {
			bad = !bad
		}
		if bad {
			lose = d.Burst.LostBad
		}
		if src.Sample(CauseBurstLoss, NewProbability(lose)) {
			continue
		}
		twice := src.Sample(CauseDup, NewProbability(d.Dup))
		place(p)
		if twice {
			place(p)
		}
	}
	slices.SortStableFunc(out, func(a, b modelPacket) int { return int(a.At - b.At) })
	return out
}

// some returns v now and then, the zero value otherwise.
func some[T any](r *rand.Rand, v T) (zero T) {
	if r.IntN(2) == 0 {
		return v
	}
	return zero
}

func randomImpairment(r *rand.Rand) Impairment {
	percent := func() Percent { return some(r, Percent(r.IntN(300))/10) }
	d := Impairment{
		MTU: some(r, 100+r.IntN(1400)), Loss: percent(), Dup: percent(), Reorder: percent(),
		Rate: some(r, BitRate(1+r.Uint64N(50_000_000))), Delay: some(r, time.Duration(r.IntN(5_000_000))),
		FIFO: r.IntN(2) == 0, ReorderHold: time.Duration(1 + r.IntN(3_000_000)),
	}
	if r.IntN(2) == 0 {
		d.Burst = Burst{Start: Percent(r.IntN(20)), End: Percent(r.IntN(100)), LostBad: Percent(r.IntN(101)), LostGood: Percent(r.IntN(5))}
	}
	if r.IntN(2) == 0 {
		d.Jitter, d.Shape = time.Duration(1+r.IntN(3_000_000)), Shape(r.IntN(3))
	}
	if d.Rate != 0 && r.IntN(3) > 0 {
		d.Queue = []Queue{{Packets: 1 + r.IntN(30)}, {Bytes: 100 + r.IntN(20_000)}}[r.IntN(2)]
	}
	if d.Reorder == 0 {
		d.ReorderHold = 0
	}
	return d
}

// The wrapper, in virtual time, does to every packet what the model does, and at the same time.
func TestImpairAgreesWithTheModel(t *testing.T) {
	for round := range 300 {
		r := rand.New(rand.NewPCG(uint64(round), 77))
		d := randomImpairment(r)
		var offered []modelPacket
		at := clock.Time(0)
		for i := range 300 {
			at += clock.Time(some(r, r.IntN(1_000_000)))
			offered = append(offered, modelPacket{i, 60 + r.IntN(1440), at})
		}
		profile := Profile{Tx: d, Seed: uint64(round)}
		got := drive(t, profile, offered)
		if diff := cmp.Diff(model(d, profile.Seed, offered), got); diff != "" {
			t.Fatalf("profile %q: %s", profile, diff)
		}
	}
}

// drive sends the packets through a wrapped memory pair.
func drive(t *testing.T, p Profile, offered []modelPacket) (out []modelPacket) {
	t.Helper()
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 1024 + 64, Huge: ring.HugeOff})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	poolA, _ := arena.Cut(1024)
	poolB, _ := arena.Cut(64)
	a, b, err := NewMemory(MemoryConfig{A: poolA, B: poolB})
	if err != nil {
		t.Fatal(err)
	}
	im, err := NewImpair(a, ImpairConfig{Profile: p, Pool: poolA, Hold: 1000})
	if err != nil {
		t.Fatal(fmt.Errorf("%+v: %w", p, err))
	}
	batch := packet.NewBatch(arena.View(), 64)
	step := func(now clock.Time) {
		if n, err := im.Tx(now, batch); err != nil || n != batch.Len() {
			t.Fatalf("Tx = %d of %d, %v", n, batch.Len(), err)
		}
		batch.Reset()
		for n := -1; n != 0; {
			n, _ = b.Rx(now, batch)
			for i := range n {
				seq := int(binary.BigEndian.Uint32(batch.Bytes(i)))
				out = append(out, modelPacket{seq, int(batch.D[i].Len), now})
			}
			poolB.PutBatch(batch)
			_, _ = im.Rx(now, batch)
		}
	}
	for _, o := range offered {
		for im.Next() < o.At {
			step(im.Next())
		}
		off, _ := poolA.Get()
		batch.Append(packet.Desc{Off: off, Len: uint16(o.Size)})
		clear(batch.Bytes(0))
		binary.BigEndian.PutUint32(batch.Bytes(0), uint32(o.Seq))
		step(o.At)
	}
	for im.Next() != clock.Never {
		step(im.Next())
	}
	if err := ring.Audit(arena, poolA, poolB, im, a, b); err != nil {
		t.Fatal(err)
	}
	return out
}
