package conformance

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
)

// readable waits until poll(2) says that fd is readable.
func readable(fd int, wait time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for end := time.Now().Add(wait); ; {
		n, err := unix.Poll(fds, max(0, int(time.Until(end)/time.Millisecond)))
		if n > 0 {
			return true
		}
		if !errors.Is(err, unix.EINTR) || time.Now().After(end) {
			return false
		}
	}
}

func infoIsComplete(t testing.TB, s *Subject) {
	b := open(t, s, 64, 0, nil)
	i := b.Queue.Info()
	if i.Caps != s.Caps {
		t.Errorf("it says that it can do %q, and promised %q", i.Caps, s.Caps)
	}
	if (i.FD >= 0) != polled(s) {
		t.Errorf("FD is %d of a queue that can do %q", i.FD, i.Caps)
	}
	if i.Driver == "" || i.Device == "" || i.Negotiated == "" {
		t.Errorf("it does not say what it is: %+v", i)
	}
	if i.MTU != 0 && i.MTU+14 != s.longest() {
		t.Errorf("MTU %d of a wire for %d bytes", i.MTU, s.longest())
	}
	if i.Queue != 0 {
		t.Errorf("the only queue is number %d", i.Queue)
	}
}

func idleDoesNothing(t testing.TB, s *Subject) {
	b := open(t, s, 64, 1, fixed(100))
	before := b.Queue.Info().Stats
	if n := b.send(b.batch(8)); n != 0 {
		t.Errorf("Tx = %d of an empty batch", n)
	}
	if n := b.rx(b.batch(0)); n != 0 {
		t.Errorf("Rx = %d into a batch of no room", n)
	}
	if b.Send != nil {
		if n := b.rx(b.batch(8)); n != 0 {
			t.Errorf("Rx = %d, and nothing was sent", n)
		}
	}
	after := b.Queue.Info().Stats
	before.Wakeups, after.Wakeups = 0, 0
	if before != after {
		t.Errorf("Stats were %+v and are %+v", before, after)
	}
	b.offer(1)
	b.receiveAll(1)
}

func infoFromAnyGoroutine(t testing.TB, s *Subject) {
	const total = 400
	b := open(t, s, 256, total, fixed(300))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var last [2]pmd.Stats
	for w := range 2 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				i := b.Queue.Info()
				if i.Stats.RxPackets < last[w].RxPackets || i.Stats.TxPackets < last[w].TxPackets {
					t.Errorf("counters go back: %+v, %+v", last[w], i.Stats)
				}
				last[w] = i.Stats
				select {
				case <-stop:
					return
				case <-time.After(50 * time.Microsecond):
				}
			}
		}()
	}
	out := b.batch(64)
	for b.got.n < total {
		b.offer(min(InFlight, total-b.sent))
		b.add(out, 300)
		b.sendAll(out)
		b.receiveAll(b.sent)
	}
	b.waitFarTotal(int(b.number))
	if !b.closed {
		b.close()
	}
	close(stop)
	wg.Wait()
}

func allocatesNothing(t testing.TB, s *Subject) {
	b := open(t, s, 512, 96, fixed(shortest))
	offered := b.offer(96)
	moved, batch, now := 0, b.batch(8), b.now()
	var failed error
	round := func() {
		n, err := b.Queue.Rx(now, batch)
		if err != nil && b.Send != nil {
			failed = err
		}
		moved += n
		b.tx.TxPackets += uint64(batch.Len())
		sent, err := b.Queue.Tx(now, batch)
		if err != nil {
			failed = err
		}
		b.tx.TxPackets -= uint64(batch.Len() - sent)
		batch.Consume(sent)
		b.release(batch)
	}
	b.eventually("packets to be moved", func() bool {
		if n := testing.AllocsPerRun(50, round); n != 0 || failed != nil {
			t.Fatalf("%v allocations a round, %d of %d packets moved, %v", n, moved, offered, failed)
		}
		return moved >= offered
	})
	b.got.all += uint64(moved)
	b.got.bytes += uint64(moved * shortest)
	b.tx.TxBytes += b.tx.TxPackets * shortest
}

func closesUnderTraffic(t testing.TB, s *Subject) {
	b := open(t, s, 512, 2000, fixed(500))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := uint32(0); b.Send != nil; {
			select {
			case <-stop:
				return
			default:
			}
			if b.Send(newPacket(i, 500)) {
				i++
			}
		}
	}()
	mine, out := b.batch(64), b.batch(64)
	b.eventually("traffic", func() bool {
		b.release(mine)
		b.rx(mine)
		for out.Len() < 32 && b.add(out, 500) {
		}
		b.send(out)
		return b.got.n >= 200 && mine.Len() > 0
	})
	b.finalClose(mine, out)
	close(stop)
	<-done
	if b.s.Resident {
		mine.Reset() // they have become the pool's
	}
	b.audit(mine, out)
	b.release(mine)
	b.pool.PutBatch(out)
	if b.pool.Free() != b.pool.Size() {
		t.Errorf("%d of %d frames were returned", b.pool.Free(), b.pool.Size())
	}
}

// finalClose closes the queue while the caller holds batches, and uses it afterwards.
func (b *harness) finalClose(mine, out *packet.Batch) {
	b.Helper()
	b.fill(out, newPacket(b.number, 100))
	want := slices.Clone(out.D)
	for range 2 {
		if err := b.Queue.Close(); err != nil {
			b.Errorf("Close: %v", err)
		}
		if n, err := b.Queue.Rx(b.now(), mine); n != 0 || !errors.Is(err, pmd.ErrClosed) {
			b.Errorf("Rx = %d, %v of a closed queue", n, err)
		}
		if n, err := b.Queue.Tx(b.now(), out); n != 0 || !errors.Is(err, pmd.ErrClosed) || !slices.Equal(out.D, want) {
			b.Errorf("Tx = %d, %v of a closed queue", n, err)
		}
	}
	b.closed = true
}

// wantError polls until Rx returns want.
func (b *harness) wantError(want error) {
	b.Helper()
	var err error
	b.eventually("the error of Rx", func() bool {
		n, e := b.Queue.Rx(b.now(), b.received)
		packets, size := packet.Count(b.received.D[:n])
		b.got.all += packets
		b.got.bytes += size
		b.release(b.received)
		err = e
		return errors.Is(err, want)
	})
	var where *pmd.OpError
	if want != nil && (!errors.As(err, &where) || where.Device != b.Queue.Info().Device) {
		b.Errorf("%v does not say where", err)
	}
	b.wantTxError(want)
}

// wantTxError checks that Tx returns the error of Rx and takes nothing, but for a driver in which
// packets wait.
func (b *harness) wantTxError(want error) {
	b.Helper()
	if want == nil {
		return
	}
	out := b.batch(4)
	b.fill(out, newPacket(hello, shortest))
	b.fill(out, newPacket(hello, shortest))
	n, err := b.Queue.Tx(b.now(), out)
	if !errors.Is(err, want) || n != 0 && b.s.Caps&pmd.CapTimed == 0 {
		b.Errorf("Tx = %d, %v; Rx said %v", n, err, want)
	}
	packets, size := packet.Count(out.D[:n])
	b.tx.TxPackets += packets
	b.tx.TxBytes += size
	out.Consume(n)
	b.audit(out)
	b.pool.PutBatch(out)
}

func linkDown(t testing.TB, s *Subject) {
	b := open(t, s, 256, 200, fixed(100))
	for range 2 {
		if err := b.Link(false); err != nil {
			t.Fatal(err)
		}
		b.wantError(pmd.ErrDown)
		b.wantError(pmd.ErrDown) // it repeats
		if err := b.Link(true); err != nil {
			t.Fatal(err)
		}
		b.wantError(nil)
		b.waitForLink()
		fd := b.Queue.Info().FD
		b.eventually("poll(2) to sleep again", func() bool {
			b.receive()
			return fd < 0 || !readable(fd, 20*time.Millisecond)
		})
		b.offer(InFlight)
		b.receiveAll(b.sent)
	}
}

func deviceGone(t testing.TB, s *Subject) {
	b := open(t, s, 64, 0, nil)
	if err := b.Remove(); err != nil {
		t.Fatal(err)
	}
	b.wantError(pmd.ErrGone)
	b.wantError(pmd.ErrGone)
}

// closesWhileDown has the queue take what it can before it knows that the link is down.
func closesWhileDown(t testing.TB, s *Subject) {
	b := open(t, s, 256, 0, nil)
	if err := b.Link(false); err != nil {
		t.Fatal(err)
	}
	out := b.batch(64)
	for b.add(out, 300) {
	}
	for range 3 {
		n, err := b.Queue.Tx(b.now(), out)
		if err != nil && !errors.Is(err, pmd.ErrDown) {
			t.Errorf("Tx = %d, %v", n, err)
		}
		packets, size := packet.Count(out.D[:n])
		b.tx.TxPackets += packets
		b.tx.TxBytes += size
		out.Consume(n)
	}
	b.audit(out)
	b.pool.PutBatch(out)
	b.close()
}
