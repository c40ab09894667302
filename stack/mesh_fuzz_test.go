package stack

import (
	"context"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// FuzzMesh plays any order of events on two to four loops and conserves every frame after each.
func FuzzMesh(f *testing.F) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for loops := range 3 {
		script := []byte{byte(loops)}
		for range 400 {
			script = append(script, byte(rnd.Uint32()))
		}
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 2000 {
			return
		}
		next := func() (b byte) {
			if len(script) > 0 {
				b, script = script[0], script[1:]
			}
			return b
		}
		w := newNet(t, int(next())%3+2, 24)
		w.squeeze(11)
		ended := make([]bool, len(w.nodes))
		for len(script) > 0 {
			w.event(next, ended)
			w.audit()
		}
		w.end()
		w.balance()
	})
}

// event does one thing to a node of the net.
func (w *net) event(next func() byte, ended []bool) {
	op, i := next(), int(next())%len(w.nodes)
	n := w.nodes[i]
	if ended[i] {
		return
	}
	switch op % 16 {
	case 0, 1, 2, 3, 4:
		var burst []packet.Desc
		for range next()%3 + 1 {
			h := uint32(0)
			for hop := range 3 {
				step := uint32(next())
				if step%4 != 0 || hop == 2 {
					step = planForward + step%3
				} else {
					step = step / 4 % 5 // also itself, and one that does not exist
				}
				h |= step << (8 * hop)
			}
			c := w.chain(i, int(next())%3+1, op&1, h)
			if len(burst)+len(c) <= 8 {
				burst = append(burst, c...)
			} else {
				n.held = appendFrames(n.held, c)
			}
		}
		n.port[op&1].in = append(n.port[op&1].in, burst)
	case 5:
		n.port[0].room = int(next()) % 12
	case 6: // somebody else has the frames
		for range next() % 24 {
			if off, ok := n.pool.Get(); ok {
				n.held = append(n.held, off)
			}
		}
	case 7:
		for _, off := range n.held {
			n.pool.Put(off)
		}
		n.held = n.held[:0]
	case 8:
		for _, off := range n.hand.kept {
			n.pool.Put(off)
		}
		n.hand.kept = n.hand.kept[:0]
	case 9:
		_ = n.loop.out.Send(op&1, []byte{0, 0, 0, 0}) // holds what Hash and Stamp 0 want
	case 10:
		if next() < 20 {
			n.loop.drain()
			ended[i] = true
		}
	default:
		n.loop.Poll(0)
	}
}

func appendFrames(offs []uint32, d []packet.Desc) []uint32 {
	for i := range d {
		offs = append(offs, d[i].Off)
	}
	return offs
}

// faucet is a driver that receives packets by a plan, as fast as it is asked, and sends all.
type faucet struct {
	pool  *ring.Pool
	left  int
	steps func() uint32
	sent  int
}

func (f *faucet) Rx(_ clock.Time, b *packet.Batch) (int, error) {
	if f.left == 0 {
		return 0, io.EOF
	}
	n := 0
	for n < b.Room() && f.left > 0 {
		off, ok := f.pool.Get()
		if !ok {
			break
		}
		d := packet.Desc{Off: off, Len: 60, L4: 34, Hash: f.steps()}
		b.Arena.Bytes(&d)[0], b.Arena.Bytes(&d)[1] = byte(d.Hash>>24), byte(d.Hash>>16)
		b.Arena.Bytes(&d)[2], b.Arena.Bytes(&d)[3] = byte(d.Hash>>8), byte(d.Hash)
		b.Append(d)
		f.left--
		n++
	}
	return n, nil
}

func (f *faucet) Tx(_ clock.Time, b *packet.Batch) (int, error) {
	f.sent += b.Len()
	for i := range b.D {
		f.pool.Put(b.D[i].Off)
	}
	return b.Len(), nil
}

func (f *faucet) Info() pmd.Info { return pmd.Info{FD: -1} }
func (f *faucet) Close() error   { return nil }

// threads makes joined loops over faucets.
func threads(t testing.TB, loops, frames, packets int, steps func(loop int, n uint32) uint32) (*ring.Arena, *Mesh, []*Loop, []*ring.Pool) {
	a, err := ring.NewArena(ring.ArenaConfig{Frames: loops * frames, Huge: ring.HugeOff})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	var all []*Loop
	var pools []*ring.Pool
	for i := range loops {
		pool, _ := a.Cut(frames)
		n := uint32(0)
		src := &faucet{pool: pool, left: packets, steps: func() uint32 { n++; return steps(i, n) }}
		h := &planner{t: &testing.T{}}
		if tt, ok := t.(*testing.T); ok {
			h.t = tt
		}
		l, err := NewLoop(Config{Devices: []pmd.Driver{src}, Pool: pool, Engine: &through{}, Handler: h})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		all, pools = append(all, l), append(pools, pool)
	}
	m, err := Join(all...)
	if err != nil {
		t.Fatal(err)
	}
	return a, m, all, pools
}

// settledMesh checks the books of loops that have ended.
func settledMesh(t testing.TB, a *ring.Arena, m *Mesh, loops []*Loop, pools []*ring.Pool) (sum Stats) {
	t.Helper()
	holders := []ring.Holder{m}
	for i, l := range loops {
		if s := l.Stats(); s.InFlight() != 0 {
			t.Errorf("loop %d: %+v", i, s)
		}
		sum.Add(l.Stats())
		holders = append(holders, pools[i])
		if pools[i].Free() != pools[i].Size() {
			t.Errorf("pool %d has %d of %d frames", i, pools[i].Free(), pools[i].Size())
		}
	}
	if err := ring.Audit(a, holders...); err != nil {
		t.Error(err)
	}
	if sum.HandedOver != sum.TakenOver || sum.Received != sum.Forwarded+sum.TotalDropped() {
		t.Errorf("sum %+v", sum)
	}
	return sum
}

// TestThreadsHandOverUntilTheFilesEnd runs loops on threads: of three packets one stays, one goes to
// another loop, one by a second to a third.
func TestThreadsHandOverUntilTheFilesEnd(t *testing.T) {
	const loops, packets = 3, 30_000
	a, m, all, pools := threads(t, loops, 4096, packets, func(loop int, n uint32) uint32 {
		near, far := uint32(loop+1)%loops, uint32(loop+2)%loops
		return [3]uint32{plan(planForward), plan(near, planForward), plan(near, far, planForward)}[n%3]
	})
	if err := RunAll(t.Context(), all...); err != nil {
		t.Error(err)
	}
	s := settledMesh(t, a, m, all, pools)
	if s.Received != loops*packets || s.HandedOver+s.Dropped[packet.DropHandover] < loops*packets/3 || s.Forwarded < loops*packets/3 {
		t.Errorf("sum %+v", s)
	}
	t.Logf("%d handed over, %d found no room", s.HandedOver, s.Dropped[packet.DropHandover])
}

// TestThreadsEndInTheMiddle cancels loops that hand everything over, one before the others.
func TestThreadsEndInTheMiddle(t *testing.T) {
	for round := range 20 {
		const loops = 3
		a, m, all, pools := threads(t, loops, 2048, 1<<30, func(loop int, n uint32) uint32 {
			return plan((uint32(loop)+1+n&1)%loops, planForward)
		})
		var wg sync.WaitGroup
		var stops []context.CancelFunc
		for _, l := range all {
			ctx, cancel := context.WithCancel(t.Context())
			stops = append(stops, cancel)
			wg.Go(func() {
				if err := l.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		for all[round%loops].Stats().TakenOver < 500 {
			time.Sleep(50 * time.Microsecond)
		}
		for i := range stops {
			stops[(i+round)%loops]()
			if round&1 == 1 {
				time.Sleep(time.Millisecond)
			}
		}
		wg.Wait()
		settledMesh(t, a, m, all, pools)
		for _, l := range all {
			l.Close()
		}
	}
}

// TestAHandoverWakesASleepingLoop has a loop that nothing else wakes: without a wakeup the test waits for ever.
func TestAHandoverWakesASleepingLoop(t *testing.T) {
	w := newNet(t, 2, 64)
	a, b := w.nodes[0], w.nodes[1]
	for _, n := range w.nodes {
		for i := range n.port {
			n.loop.devices[i].info = pmd.Info{Caps: pmd.CapPoll, FD: -1}
		}
	}
	b.loop.out.tick, b.loop.maxSleep = clock.Never, time.Hour // only a packet wakes it
	var taken atomic.Uint64
	b.port[0].onTx = func(packet.Desc) { taken.Add(1) }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- b.loop.Run(ctx) }()
	const rounds = 20
	for n := uint64(1); n <= rounds; n++ {
		until(t, "asleep", b.loop.notifier.armed.Load)
		w.give(0, plan(1, planForward))
		a.loop.Poll(0)
		until(t, "the packet wakes the loop", func() bool { return taken.Load() == n })
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	a.loop.Poll(0)
	w.balance()
}
