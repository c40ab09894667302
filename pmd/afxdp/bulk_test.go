package afxdp

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testpackets"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
)

// flood sends n numbered frames from the peer and returns when the kernel has taken them all.
func (w *network) flood(t testing.TB, s *wire, from, n int) {
	t.Helper()
	host, far := w.mac(t, w.host, dev), w.mac(t, w.peer, peerDev)
	for i := from; i < from+n; i++ {
		s.send(t, frame(host, far, 60, uint32(i)))
	}
}

// numbers adds the numbers of the test frames in b to seen.
func numbers(b *packet.Batch, seen map[int]int) {
	for i := range b.D {
		if p := b.Bytes(i); isTest(p) {
			seen[number(p)]++
		}
	}
}

func TestTwoQueuesShareOneArena(t *testing.T) {
	w := newNetwork(t, 2, 1500)
	a := newArena(t, 2048, 2048)
	r := w.open(t, Config{Pools: []*ring.Pool{cut(t, a, 1024), cut(t, a, 1024)}, Rules: []Rule{{Addr: ourAddr, Proto: 17}}})
	w.neighbours(t)
	far, host := w.mac(t, w.peer, peerDev), w.mac(t, w.host, dev)
	peer := w.wire(t)
	batches := [2]*packet.Batch{packet.NewBatch(a.View(), 64), packet.NewBatch(a.View(), 64)}
	var got [2]int
	for flows := 0; got[0] == 0 || got[1] == 0; flows++ { // the kernel picks a queue for each flow
		if flows > 200 {
			t.Fatalf("200 flows, of which queue 0 got %d and queue 1 %d", got[0], got[1])
		}
		w.sendUDP(t, "198.18.0.9:53", make([]byte, 100), 0)
		for i, b := range batches {
			n, err := r.poll(i, b)
			must(t, err)
			got[i] += n
			r.pools[i].PutBatch(b)
		}
	}
	for i, b := range batches {
		off, _ := r.pools[i].Get()
		b.Append(packet.Desc{Off: off, Len: uint16(copy(a.Mem[off:], frame(far, host, 60, uint32(i))))})
		if n, err := r.Queues[i].Tx(r.now, b); n != 1 || err != nil {
			t.Fatalf("queue %d: Tx returned %d, %v", i, n, err)
		}
		if got := number(peer.recv(t, isTest)); got != i {
			t.Errorf("the peer received %d from queue %d", got, i)
		}
		b.Consume(1)
	}
	must(t, r.Queues[0].Close()) // the owner of the registration goes first; the other works on
	for n := 0; n == 0; {
		w.sendUDP(t, "198.18.0.9:53", make([]byte, 100), 0)
		n, _ = r.poll(1, batches[1])
	}
	r.pools[1].PutBatch(batches[1])
}

func TestRxRingFullDropsCountsAndRecovers(t *testing.T) {
	w := newNetwork(t, 1, 1500).silencePeer(t)
	r := w.open(t, Config{All: true, Rings: Rings{Rx: 32}})
	peer := w.wire(t)
	w.flood(t, peer, 0, 200)
	b := packet.NewBatch(r.arena.View(), 256)
	r.recv(t, b, 32)
	r.pools[0].PutBatch(b)
	if s := r.Queues[0].Info().Stats; s.RxPackets != 32 || s.RxMissed < 168 {
		t.Errorf("%d received, %d dropped, want 32 and at least 168", s.RxPackets, s.RxMissed)
	}
	w.flood(t, peer, 1000, 10)
	seen := map[int]int{}
	r.until(t, 0, b, func() bool { numbers(b, seen); r.pools[0].PutBatch(b); return len(seen) >= 10 })
}

func TestTxRejectsInvalidPacketsAndReturnsTheirFrames(t *testing.T) {
	w := newNetwork(t, 1, 1500)
	for _, multi := range []MultiBuf{MultiBufOff, MultiBufOn} {
		r := w.open(t, Config{All: true, MultiBuf: multi})
		pool, q := r.pools[0], r.Queues[0]
		peer := w.wire(t)
		host, far := w.mac(t, w.host, dev), w.mac(t, w.peer, peerDev)
		b := packet.NewBatch(r.arena.View(), 64)
		take := func() uint32 { off, _ := pool.Get(); return off }
		more := func(n int) {
			for range n {
				b.Append(packet.Desc{Off: take(), Len: 100, Flags: packet.FlagMore})
			}
			b.Append(packet.Desc{Off: take(), Len: 100})
		}
		good := take()
		copy(r.arena.Mem[good:], frame(far, host, 60, 42))
		twice := take()
		copy(r.arena.Mem[twice:], frame(far, host, 60, 43))

		b.Append(packet.Desc{Off: take(), Len: 0})
		b.Append(packet.Desc{Off: take(), Len: minFrame - 1})
		b.Append(packet.Desc{Off: take() + 1000, Len: 1049})
		b.Append(packet.Desc{Off: uint32(len(r.arena.Mem)), Len: 60})
		b.Append(packet.Desc{Off: ^uint32(0), Len: 60})
		more(maxChain)
		b.Append(packet.Desc{Off: good, Len: 60})
		b.Append(packet.Desc{Off: twice, Len: 60})
		b.Append(packet.Desc{Off: twice, Len: 60})
		b.Append(packet.Desc{Off: twice, Len: 60, Flags: packet.FlagMore})
		b.Append(packet.Desc{Off: take(), Len: 60})
		wantInvalid := uint64(9)
		more(2)
		b.D[b.Len()-1].Len = 0 // the last of a chain spoils it
		if multi == MultiBufOff {
			more(1) // any chain
			wantInvalid++
		}
		want := b.Len()
		r.audit(t, testpackets.Frames{Batch: &packet.Batch{Arena: b.Arena, D: []packet.Desc{}}}, unique(r.arena, b))
		if n, err := q.Tx(0, b); n != want || err != nil {
			t.Fatalf("Tx returned %d, %v, want %d", n, err, want)
		}
		b.Reset()
		for _, want := range []int{42, 43} {
			if got := number(peer.recv(t, isTest)); got != want {
				t.Errorf("frame %d came, want %d", got, want)
			}
		}
		if s := q.Info().Stats; s.TxInvalid != wantInvalid || s.TxPackets != wantInvalid+2 {
			t.Errorf("TxInvalid is %d and TxPackets %d, want %d and %d", s.TxInvalid, s.TxPackets, wantInvalid, wantInvalid+2)
		}
		r.audit(t)
		must(t, r.Close())
	}
}

// unique returns a batch that has one descriptor for each frame of b that lies in the arena.
func unique(a *ring.Arena, b *packet.Batch) testpackets.Frames {
	one := packet.NewBatch(b.Arena, len(b.D))
	seen := map[uint32]bool{}
	for _, d := range b.D {
		if f := a.Frame(d.Off); int(d.Off) < len(a.Mem) && !seen[f] {
			seen[f] = true
			one.Append(d)
		}
	}
	return testpackets.Frames{Batch: one}
}

func TestTxLeavesAnIncompletePacketToTheCaller(t *testing.T) {
	w := newNetwork(t, 1, 1500)
	r := w.open(t, Config{All: true, MultiBuf: MultiBufOn, Rings: Rings{Tx: 4}})
	b := packet.NewBatch(r.arena.View(), 64)
	for range 2 {
		r.append(t, b, make([]byte, 3*2048)) // three frames each; four fit the ring
	}
	if n, err := r.Queues[0].Tx(0, b); n != 3 || err != nil {
		t.Errorf("Tx returned %d, %v, want the first packet's 3", n, err)
	}
	b.Consume(3)
	r.audit(t, testpackets.Frames{Batch: b})
	r.pools[0].PutBatch(b)
}

// TestOneTxSendsMoreThanTheKernelMovesInOneCall holds the packets of one system call down to 32, as
// kernels before 6.17 do.
func TestOneTxSendsMoreThanTheKernelMovesInOneCall(t *testing.T) {
	w := newNetwork(t, 1, 1500)
	r := w.open(t, Config{All: true})
	q, peer := r.Queues[0], w.wire(t)
	_ = unix.SetsockoptInt(q.fd, unix.SOL_XDP, unix.XDP_MAX_TX_SKB_BUDGET, 32)
	host, far := w.mac(t, w.host, dev), w.mac(t, w.peer, peerDev)
	b := packet.NewBatch(r.arena.View(), 256)
	for i := range 200 {
		r.append(t, b, frame(far, host, 60, uint32(i)))
	}
	before := q.Info().Stats.Wakeups
	if n, err := q.Tx(0, b); n != 200 || err != nil {
		t.Fatalf("Tx returned %d, %v", n, err)
	}
	if n := q.Info().Stats.Wakeups - before; n != 7 {
		t.Errorf("%d system calls for 200 packets, want 7", n)
	}
	b.Reset()
	for i := range 200 {
		if got := number(peer.recv(t, isTest)); got != i {
			t.Fatalf("frame %d came as the %dth", got, i)
		}
	}
	for end := time.Now().Add(patience); q.txHeld.n > 0 && time.Now().Before(end); {
		r.poll(0, b) // Rx alone gets the frames back
		r.pools[0].PutBatch(b)
	}
	if q.txHeld.n != 0 {
		t.Errorf("the kernel keeps %d frames", q.txHeld.n)
	}
}

func TestTxSendsPacketsOfAsManyFramesAsTheKernelTakes(t *testing.T) {
	w := newNetwork(t, 1, 9000)
	r := w.open(t, Config{All: true})
	peer := w.wire(t)
	want := frame(w.mac(t, w.peer, peerDev), w.mac(t, w.host, dev), 500*maxChain, 5)
	b := packet.NewBatch(r.arena.View(), 64)
	for i := range maxChain {
		r.append(t, b, want[500*i:][:500])
		b.D[i].Flags = packet.FlagMore
	}
	b.D[maxChain-1].Flags = 0
	r.send(t, b)
	if got := peer.recv(t, isTest); !bytes.Equal(got, want) {
		t.Errorf("the peer received %d bytes, want the same %d", len(got), len(want))
	}
}

func TestReceivedPacketsHaveTheHeadroomAskedFor(t *testing.T) {
	for _, c := range []struct{ ask, want int }{{0, 256}, {100, 256}, {256, 256}, {500, 500}} {
		w := newNetwork(t, 1, 1280).silencePeer(t)
		r := w.open(t, Config{All: true, Headroom: c.ask, MultiBuf: MultiBufOff})
		w.flood(t, w.wire(t), 0, 1)
		b := packet.NewBatch(r.arena.View(), 1)
		r.recv(t, b, 1)
		if got := r.arena.Headroom(&b.D[0]); got != c.want {
			t.Errorf("headroom of %d: got %d, want %d", c.ask, got, c.want)
		}
		r.pools[0].PutBatch(b)
	}
}

func TestBatchOfAnotherArenaIsRejected(t *testing.T) {
	w := newNetwork(t, 1, 1500)
	r := w.open(t, Config{All: true})
	b := packet.NewBatch(newArena(t, 8, 2048).View(), 4)
	if _, err := r.poll(0, b); !errors.Is(err, errArena) {
		t.Errorf("Rx returned %v", err)
	}
	if _, err := r.Queues[0].Tx(0, b); !errors.Is(err, errArena) {
		t.Errorf("Tx returned %v", err)
	}
}

func TestCloseSendsWhatTxTook(t *testing.T) {
	w := newNetwork(t, 1, 1500)
	r := w.open(t, Config{All: true})
	peer := w.wire(t)
	b := packet.NewBatch(r.arena.View(), 4)
	r.append(t, b, frame(w.mac(t, w.peer, peerDev), w.mac(t, w.host, dev), 60, 9))
	r.Queues[0].enqueue(b.D) // Tx without its kick: as if the kernel had been too busy
	must(t, r.Close())
	if got := number(peer.recv(t, isTest)); got != 9 {
		t.Errorf("the peer received %d", got)
	}
}

// A queue holds as many frames as its depth asks for, once those beyond it have been used, and all of them again.
func TestDepthBoundsWhatTheKernelHolds(t *testing.T) {
	w := newNetwork(t, 1, 1500).silencePeer(t)
	r := w.open(t, Config{All: true, RxFrames: 256})
	q := r.Queues[0]
	b := packet.NewBatch(r.arena.View(), 64)
	use := func(packets int) {
		for range packets {
			whole := *q.fill.addr(q.fill.head - uint32(q.rxHeld.n))
			forge(&q.rx, func(i uint32) { *q.rx.desc(i) = unix.XDPDesc{Addr: whole, Len: 60} })
			if n, err := r.poll(0, b); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			r.pools[0].PutBatch(b)
		}
	}
	use(1)
	if q.rxHeld.n < 256-refillBatch || q.Info().RxRing != 256 {
		t.Errorf("%d frames at first, a ring of %d", q.rxHeld.n, q.Info().RxRing)
	}
	q.Info().RxDepth.Set(128)
	use(300)
	if q.rxHeld.n > 128 || q.rxHeld.n < 128-refillBatch {
		t.Errorf("%d frames with a depth of 128", q.rxHeld.n)
	}
	q.Info().RxDepth.Set(512)
	use(1)
	if q.rxHeld.n < 256-refillBatch {
		t.Errorf("%d frames with a depth beyond the ring", q.rxHeld.n)
	}
	r.audit(t)
}

// TestKernelAddressesAreChecked plays a kernel that returns addresses that it does not hold.
func TestKernelAddressesAreChecked(t *testing.T) {
	w := newNetwork(t, 1, 1500).silencePeer(t)
	r := w.open(t, Config{All: true, RxFrames: 8})
	q := r.Queues[0]
	free, _ := r.pools[0].Get()
	r.pools[0].Put(free)
	for _, addr := range []uint64{uint64(len(r.arena.Mem)), 1 << 32, ^uint64(0), uint64(free), 1<<32 | uint64(*q.fill.addr(0))} {
		forge(&q.rx, func(i uint32) { *q.rx.desc(i) = unix.XDPDesc{Addr: addr, Len: 60} })
		b := packet.NewBatch(r.arena.View(), 8)
		before := q.Info().Stats.RxInvalid
		if n, err := r.poll(0, b); n != 0 || err != nil || q.Info().Stats.RxInvalid != before+1 {
			t.Errorf("address %#x: Rx returned %d, %v", addr, n, err)
		}
		forge(&q.comp, func(i uint32) { *q.comp.addr(i) = addr })
		if q.reap(); q.Info().Stats.RxInvalid != before+2 {
			t.Errorf("address %#x was taken as sent", addr)
		}
	}
	b := packet.NewBatch(r.arena.View(), 8)
	for i, x := range []unix.XDPDesc{{Addr: 2000, Len: 49}, {Addr: 2000, Len: ^uint32(0)}, {Addr: 0, Len: 2049}} {
		x.Addr += *q.fill.addr(uint32(i)) // a frame that the kernel has, with a length that passes its end
		forge(&q.rx, func(i uint32) { *q.rx.desc(i) = x })
		if n, _ := r.poll(0, b); n != 0 {
			t.Errorf("%d bytes from %d of a frame were passed", x.Len, x.Addr&2047)
		}
	}
	whole := *q.fill.addr(3)
	forge(&q.rx, func(i uint32) { *q.rx.desc(i) = unix.XDPDesc{Addr: whole, Len: 2048} })
	if n, _ := r.poll(0, b); n != 1 || b.D[0].Len != 2048 {
		t.Error("a packet that fills its frame was not passed")
	}
	r.pools[0].PutBatch(b)
	r.audit(t)
}

// forge writes an entry into a ring as the kernel would.
func forge(x *xring, write func(i uint32)) {
	write(*x.prod)
	*x.prod++
}
