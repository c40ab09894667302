package netsim

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

// fate is when a packet arrived, and with what behind its IP header's start.
type fate struct {
	at    clock.Time
	bytes string
}

// send is a packet of a test: when, and how long.
func script(k int) (at clock.Time, n int) {
	return start.Add(time.Duration(k/3) * 300 * time.Microsecond), 20 + (k*613)%1400
}

const scripted = 3000

// capable is the ECN field of packet k: every third may be marked.
func capable(k int) wire.ECN {
	if k%3 == 0 {
		return wire.ECT0
	}
	return wire.NotECT
}

func datagram(k int) []byte {
	_, n := script(k)
	t := wire.Tuple{Local: wire.AddrFrom4([4]byte{198, 18, 0, 1}), Remote: wire.AddrFrom4([4]byte{198, 18, 0, 2})}
	b := AppendIP(nil, &t, n-20, capable(k), 0)
	for len(b) < n {
		b = append(b, byte(k), byte(k>>8))
	}
	return b[:n]
}

// viaImpair is what the wrapper for drivers makes of the script.
func viaImpair(t *testing.T, p pmd.Profile) (got []fate, count pmd.ImpairStats) {
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 8192, FrameSize: 2048})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	pool, err := arena.Cut(8192)
	if err != nil {
		t.Fatal(err)
	}
	a, b, err := pmd.NewMemory(pmd.MemoryConfig{A: pool, B: pool, Slots: 8192})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	m, err := pmd.NewImpair(a, pmd.ImpairConfig{Profile: p, Pool: pool, Hold: 6000})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	out := packet.NewBatch(arena.View(), 64)
	in := packet.NewBatch(arena.View(), 8192)
	drain := func(now clock.Time) {
		in.Reset()
		if _, err := b.Rx(now, in); err != nil {
			t.Fatal(err)
		}
		for i := range in.D {
			got = append(got, fate{now, string(in.Arena.Bytes(&in.D[i])[14:])})
			pool.Put(in.D[i].Off)
		}
	}
	pump := func(until clock.Time) {
		for m.Next() <= until {
			now := m.Next()
			out.Reset()
			if _, err := m.Tx(now, out); err != nil {
				t.Fatal(err)
			}
			drain(now)
		}
	}
	for k := range scripted {
		at, _ := script(k)
		pump(at)
		out.Reset()
		off, _ := pool.Get()
		frame := append(append(make([]byte, 12), 8, 0), datagram(k)...)
		d := packet.Desc{Off: off, Len: uint16(len(frame))}
		copy(arena.View().Bytes(&d), frame)
		out.D = append(out.D, d)
		if n, err := m.Tx(at, out); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		drain(at)
	}
	pump(clock.Never - 1)
	_, count = m.Counts()
	return got, count
}

// viaPipe is what a pipe makes of it.
func viaPipe(p pmd.Profile) (got []fate, count Count) {
	n := New(0)
	a, b := n.Raw(), n.Raw()
	l := newPipe(n, p.Tx, pmd.NewRandomSource(p.Seed, 1))
	n.Path(a, b, l)
	b.Receive = func(x []byte) { got = append(got, fate{n.Now(), string(x)}) }
	for k := range scripted {
		at, _ := script(k)
		n.At(at, func() { a.Send(b, datagram(k)) })
	}
	n.Run(time.Hour)
	return got, l.Count
}

func TestPipesDoWhatTheImpairWrapperDoes(t *testing.T) {
	for _, text := range []string{
		"delay=10ms", "loss=10%", "burst=2%,20%,90%,1%", "dup=5% delay=2ms±1ms", "ce=30%", "mtu=700",
		"rate=10mbit", "rate=10mbit queue=8", "rate=20mbit queue=20kB", "delay=5ms±3ms", "delay=5ms±3ms/normal fifo",
		"delay=8ms±2ms/pareto", "reorder=10%", "reorder=20%,7ms delay=1ms",
		"delay=5ms±1ms loss=3% burst=1%,10% dup=3% ce=10% rate=30mbit queue=30 reorder=5%,2ms mtu=1300",
	} {
		for seed := range uint64(3) {
			p, err := pmd.ParseProfile(text)
			if err != nil {
				t.Fatal(err)
			}
			p.Seed = seed
			want, count := viaImpair(t, p)
			got, have := viaPipe(p)
			if len(want) != len(got) {
				t.Fatalf("%s: %d packets arrive, %d through the wrapper", p, len(got), len(want))
			}
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("%s: packet %d arrives at %v with %d bytes, through the wrapper at %v with %d", p, i, got[i].at, len(got[i].bytes), want[i].at, len(want[i].bytes))
				}
			}
			a := fmt.Sprint(have.Packets, have.Passed, have.LostRandom, have.LostBurst, have.LostQueue, have.LostMTU, have.Duplicated, have.Marked, have.Reordered)
			b := fmt.Sprint(count.Packets, count.Passed, count.LostRandom, count.LostBurst, count.LostQueue, count.LostMTU, count.Duplicated, count.Marked, count.Reordered)
			if a != b {
				t.Errorf("%s: counts %s, of the wrapper %s", p, a, b)
			}
		}
	}
}
