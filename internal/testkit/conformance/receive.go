package conformance

import (
	"testing"
	"time"
)

// InFlight is the number of packets that the far end sends at most before Rx is called. A queue that
// Open returns holds as many, whatever their lengths and however slowly they come.
const InFlight = 16

func receivesAll(t testing.TB, s *Subject) {
	const total = 2000
	b := open(t, s, 512, total, s.mixed)
	for b.got.n < total {
		b.offer(min(InFlight, total-b.sent))
		b.receiveAll(b.sent)
	}
	if st := b.Queue.Info().Stats; st.RxMissed+st.RxInvalid > 0 {
		t.Errorf("lost without need: %+v", st)
	}
}

func appends(t testing.TB, s *Subject) {
	const total = 300
	b := open(t, s, 512, total, fixed(200))
	full := b.batch(4)
	for b.got.n < total {
		b.offer(min(InFlight, total-b.sent))
		b.eventually("packets to be received", func() bool {
			to := b.batch(1 + b.rnd.IntN(9))
			if !b.s.Resident { // frames of the caller's own, in front
				for range b.rnd.IntN(cap(to.D)) {
					b.fill(to, make([]byte, shortest))
				}
			}
			own := to.Len()
			b.rx(to)
			for i := range own {
				b.pool.Put(to.D[i].Off)
			}
			to.Consume(own)
			b.release(to)
			return b.got.n >= b.sent
		})
	}
	for full.Room() > 0 && !b.s.Resident {
		b.fill(full, make([]byte, shortest))
	}
	if !b.s.Resident {
		if n := b.rx(full); n != 0 {
			t.Errorf("Rx = %d into a full batch", n)
		}
		b.pool.PutBatch(full)
	}
}

func survivesExhaustion(t testing.TB, s *Subject) {
	const frames = 64
	flood := max(300, s.Flood)
	size := 1000
	if multiFrame(s) {
		size = s.longest()
	}
	b := open(t, s, frames, 2*flood, fixed(size))
	held := b.batch(4 * frames)
	for b.Send != nil && b.sent < flood && b.offer(1) == 1 {
	}
	for quiet := 0; quiet < 20; quiet++ { // nothing is given back
		if b.rx(held) > 0 {
			quiet = 0
		}
		time.Sleep(time.Millisecond)
	}
	b.audit(held)
	b.release(held)
	if s.Flood > 0 {
		b.eventually("losses to be counted", func() bool {
			b.receive()
			return b.Queue.Info().Stats.RxMissed > 0
		})
	}
	b.accounted()
	for range 100 { // it recovers
		b.offer(1)
		b.eventually("Rx to recover", func() bool {
			b.receive()
			return b.got.all+b.uncounted() == uint64(b.sent+b.extra)
		})
	}
	if s.Flood == 0 && b.uncounted() > 0 {
		t.Errorf("lost instead of held back: %+v", b.Queue.Info().Stats)
	}
}

// uncounted is the number of packets that were sent and that the queue or the link report as lost.
func (b *harness) uncounted() uint64 {
	st := b.Queue.Info().Stats
	return st.RxMissed + st.RxInvalid + b.lost()
}

// accounted waits until every packet that the wire took is received or counted as lost.
func (b *harness) accounted() {
	b.Helper()
	b.eventually("sent = received + lost", func() bool {
		b.receive()
		return b.got.all+b.uncounted() == uint64(b.sent+b.extra)
	})
}

func passesChains(t testing.TB, s *Subject) {
	var sizes []int
	for _, around := range []int{s.frameSize(), 2 * s.frameSize(), 4 * s.frameSize()} {
		for _, n := range []int{-300, -257, -256, -255, -19, -18, -17, -1, 0, 1, 300} {
			if around+n <= s.longest() {
				sizes = append(sizes, around+n)
			}
		}
	}
	sizes = append(sizes, s.longest(), shortest, s.longest())
	b := open(t, s, 512, len(sizes), func(i int) int { return sizes[i] })
	out := b.batch(256)
	for i, size := range sizes {
		b.offer(1)
		b.receiveAll(i + 1)
		b.add(out, size)
		if i%3 == 2 {
			b.sendAll(out)
		}
	}
	b.sendAll(out)
	b.waitFarTotal(len(sizes))
}

func waitsForRoom(t testing.TB, s *Subject) {
	b := open(t, s, 512, 5, fixed(s.longest()))
	b.offer(1)
	one := b.batch(64)
	b.eventually("a packet", func() bool { return b.rx(one) > 0 })
	k := one.Len() // descriptors of a packet
	b.release(one)
	if k < 2 {
		t.Fatalf("%d bytes came in %d descriptor", s.longest(), k)
	}
	b.offer(3)
	room := b.batch(2*k - 1)
	b.eventually("the first packet", func() bool { return b.rx(room) > 0 })
	for range 20 {
		if n := b.rx(room); n != 0 {
			t.Fatalf("Rx = %d into room for %d of a packet of %d", n, room.Room(), k)
		}
		time.Sleep(time.Millisecond)
	}
	b.audit(room)
	b.release(room)
	b.eventually("the second packet", func() bool { return b.rx(room) > 0 })
	b.release(room)
	lost := b.uncounted()
	b.eventually("the third packet to be counted as invalid", func() bool {
		if n := b.rx(b.batch(k - 1)); n != 0 {
			t.Fatalf("Rx = %d of a packet of %d", n, k)
		}
		return b.Queue.Info().Stats.RxInvalid == 1 && b.uncounted() == lost+1
	})
	b.offer(1)
	b.receiveAll(4) // of five
	b.audit()
}

func wakesSleeper(t testing.TB, s *Subject) {
	b := open(t, s, 64, 3, fixed(100))
	fd := b.Queue.Info().FD
	for i := range 3 {
		b.eventually("poll(2) to sleep while nothing comes", func() bool {
			b.receive()
			return !readable(fd, 20*time.Millisecond)
		})
		done := make(chan struct{})
		go func() {
			defer close(done)
			time.Sleep(5 * time.Millisecond)
			b.offer(1)
		}()
		if !readable(fd, timeout) {
			t.Fatal("a packet is there and poll(2) did not return")
		}
		<-done
		b.receiveAll(i + 1)
	}
}
