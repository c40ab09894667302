package shim

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/socket"
)

// waiting returns how many bytes are in the node's end of a socket.
func (r *relay) waiting(t *testing.T) int {
	t.Helper()
	n, err := unix.IoctlGetInt(r.fd, unix.SIOCINQ)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestConsumeLater: small requests that are answered stay in the socket for some round trips, so that the program is not woken for
// the space. What goes on without an answer, is much, or has been there for a while, is consumed, never before the loop has sent it.
func TestConsumeLater(t *testing.T) {
	request := make([]byte, 100)
	for name, test := range map[string]struct {
		prepare func(r *relay)
		bytes   int
		soon    bool
	}{
		"answered":        {func(r *relay) { r.deferral.answered = true }, len(request), false},
		"not answered":    {func(*relay) {}, len(request), true},
		"the last of all": {func(r *relay) { r.deferral = deferral{answered: true, reads: deferReads - 1} }, len(request), true},
		"one before it":   {func(r *relay) { r.deferral = deferral{answered: true, reads: deferReads - 2} }, len(request), false},
		"much":            {func(r *relay) { r.deferral.answered = true }, deferBytes, true},
		"not much":        {func(r *relay) { r.deferral.answered = true }, deferBytes - 10, false},
		"very little":     {func(*relay) {}, maxUnconsumed - 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, nil)
			p, peer := b.join(t, b.dial(t))
			k := b.sockOf(t, p.fd)
			k.conn.Do(func(in socket.LoopConn) {
				r, d := k.relayed, b.queuesOf(b.cfg.Stack.LoopOf(in)).unread
				before := r.waiting(t)
				if err := p.write(make([]byte, test.bytes)); err != nil {
					t.Fatal(err)
				}
				test.prepare(r)
				r.toStack()
				if n := r.waiting(t); n != before+test.bytes || r.unconsumed != n {
					t.Errorf("%d bytes wait, %d of them read, before the loop has sent any", n, r.unconsumed)
				}
				if test.soon != d.sends {
					t.Errorf("they are to be consumed at once: %t", d.sends)
				}
				if n := d.Poll(d.since); n != 0 || r.waiting(t) != before+test.bytes {
					t.Errorf("%d relays have consumed before the loop has sent", n)
				}
				if queued := test.bytes > maxUnconsumed; r.deferral.queued != queued {
					t.Errorf("queued %t", r.deferral.queued)
				}
			})
			until(t, "all is consumed but the guard byte", func() (done bool) {
				k.conn.Do(func(socket.LoopConn) { done = test.bytes <= maxUnconsumed || k.relayed.waiting(t) == 1 })
				return done
			})
			got := make([]byte, test.bytes)
			if _, err := peer.Read(got); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestDeferredTime: bytes are consumed a millisecond after they were read, and before the loop sleeps.
func TestDeferredTime(t *testing.T) {
	b := newBed(t, nil)
	p, _ := b.join(t, b.dial(t))
	k := b.sockOf(t, p.fd)
	for range 2 {
		k.conn.Do(func(in socket.LoopConn) {
			r, d := k.relayed, b.queuesOf(b.cfg.Stack.LoopOf(in)).unread
			before := r.waiting(t)
			defers := func() {
				if err := p.write(make([]byte, 100)); err != nil {
					t.Fatal(err)
				}
				r.deferral.answered = true
				r.toStack()
			}
			defers()
			if n := d.Poll(d.since.Add(deferTime - 1)); n != 0 || r.waiting(t) != before+100 {
				t.Errorf("%d relays before their time, %d bytes are left", n, r.waiting(t))
			}
			if n := d.Poll(d.since.Add(deferTime)); n != 1 || r.waiting(t) != 1 || len(d.relays) != 0 || r.deferral != (deferral{}) {
				t.Errorf("%d relays, %d bytes are left, %+v", n, r.waiting(t), r.deferral)
			}
			defers()
			if next := d.Arm(); next != clock.Never || r.waiting(t) != 1 {
				t.Errorf("before a sleep: %d bytes are left, poll at %v", r.waiting(t), next)
			}
		})
	}
}

// TestAnswers: bytes for the program are an answer, until it writes again.
func TestAnswers(t *testing.T) {
	b := newBed(t, nil)
	p, peer := b.join(t, b.dial(t))
	k := b.sockOf(t, p.fd)
	answered := func() (yes bool) {
		k.conn.Do(func(socket.LoopConn) { yes = k.relayed.deferral.answered })
		return yes
	}
	if answered() {
		t.Error("an answer before any")
	}
	for range 2 {
		if _, err := peer.Write([]byte("answer")); err != nil {
			t.Fatal(err)
		}
		until(t, "the program has an answer", answered)
		if err := p.write(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		until(t, "and a request", func() bool { return !answered() })
	}
}

// TestDeferredAreBounded: an iteration consumes from a bounded number of sockets, and the rest is due with the next one.
func TestDeferredAreBounded(t *testing.T) {
	d := &deferred{}
	for range consumesPerPoll + 1 {
		d.add(&relay{closed: true}, 0)
	}
	if next := d.Arm(); next != clock.Never || len(d.relays) != 1 {
		t.Fatalf("%d are left", len(d.relays))
	}
	if n := d.Poll(0); n != 1 || len(d.relays) != 0 || d.due {
		t.Errorf("%d relays, %d are left", n, len(d.relays))
	}
}

// TestEdgesOfRoundTrips: a program with an edge-triggered epoll(7) that has EPOLLOUT is woken once for each answer.
func TestEdgesOfRoundTrips(t *testing.T) {
	const rounds = deferReads - 1
	b := newBed(t, nil)
	p, peer := b.join(t, b.dial(t))
	k := b.sockOf(t, p.fd)
	next := edges(t, p.fd) // of EPOLLOUT
	echo(t, p, peer, make([]byte, 100))
	k.conn.Do(func(in socket.LoopConn) { b.queuesOf(b.cfg.Stack.LoopOf(in)).unread.consume() })
	for next(0) != 0 { // those of before
	}
	edges := 0
	k.conn.Do(func(socket.LoopConn) {
		for range rounds {
			if err := p.write(make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			k.relayed.deferral.answered = true
			k.relayed.toStack()
			if next(0) != 0 {
				edges++
			}
		}
	})
	if edges != 0 {
		t.Errorf("%d edges of EPOLLOUT in %d requests", edges, rounds)
	}
}

// TestTinyWrites: a program that writes single bytes, each of which is a buffer of the kernel, finds its socket writable again.
func TestTinyWrites(t *testing.T) {
	b := newBed(t, nil)
	p, peer := b.join(t, b.dial(t))
	const all = 4000
	done := make(chan error, 1)
	go func() {
		for range all {
			if ev := p.poll(unix.POLLOUT, limit); ev != unix.POLLOUT {
				t.Errorf("events %#x", ev)
			}
			if err := p.write([]byte("x")); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	_ = peer.SetReadDeadline(time.Now().Add(limit))
	for got, buf := 0, make([]byte, 4096); got < all; {
		n, err := peer.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got += n
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
