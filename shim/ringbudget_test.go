package shim

import (
	"bufio"
	"io"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
)

// TestRingBudget: many short connections use the budget up, it returns with time, and long connections do not use it.
func TestRingBudget(t *testing.T) {
	var b ringBudget
	now := clock.Time(time.Hour)
	takes := func(most int) (n int) {
		for n < most && b.take(now) {
			n++
		}
		return n
	}
	if n := takes(2 * ringBurst); n != ringBurst {
		t.Errorf("%d connections got rings at once, want %d", n, ringBurst)
	}
	now = now.Add(10*ringPause + ringPause/2)
	if n := takes(100); n != 10 {
		t.Errorf("%d connections got rings after 10.5 pauses, want 10", n)
	}
	now = now.Add(ringPause / 2)
	if n := takes(100); n != 1 {
		t.Errorf("%d connections got rings after half a pause more, want 1", n)
	}
	b.refund(ringWorth - 1)
	if n := takes(100); n != 0 {
		t.Errorf("%d connections got rings after the end of a short one", n)
	}
	b.refund(ringWorth)
	if n := takes(100); n != 1 {
		t.Errorf("%d connections got rings after the end of a long one, want 1", n)
	}
	now = now.Add(time.Hour)
	if n := takes(2 * ringBurst); n != ringBurst {
		t.Errorf("%d connections got rings after an hour, want %d", n, ringBurst)
	}
}

// TestNoRingsWithoutBudget: a connection beyond the budget is of tier 0, and counted.
func TestNoRingsWithoutBudget(t *testing.T) {
	b := newBed(t, nil)
	k := &sock{s: b.Server, user: b.userOf(12345)}
	p := rawSocket(t, unix.SOCK_STREAM)
	defer unix.Close(p)
	of := &ringBudget{used: ringBurst, last: clock.Never}
	if mem := k.newRings(p, of); mem.fd != 0 || b.Stats().NoRings != 1 || k.user.stats().Rings != 0 {
		t.Errorf("%+v, %+v", mem, b.Stats())
	}
}

// TestLongConnectionsPayForRings: what connections move by rings is counted for the budget of their listener.
func TestLongConnectionsPayForRings(t *testing.T) {
	b := newBed(t, nil)
	cmd := b.program(t, true, "server", nodeAddr, "7000", "3")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	_, _ = bufio.NewReader(out).ReadString('\n')
	for i, size := range []int{ringWorth / 2, 100} { // echoed
		c, err := b.peer.Dial("tcp", nodeAddr+":7000")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = c.Write(make([]byte, size))
			_ = c.(interface{ CloseWrite() error }).CloseWrite()
		}()
		if n, err := io.Copy(io.Discard, struct{ io.Reader }{c}); err != nil || n != int64(size) {
			t.Fatal(n, err)
		}
		c.Close()
		until(t, "the connection has ended", func() bool { return b.Stats().Sockets == 1 })
		if n := b.ringsUsed(); n != i {
			t.Errorf("%d of the budget are used after %d connections", n, i+1)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// ringsUsed returns what is used of the budgets of listeners.
func (b *bed) ringsUsed() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.listeners {
		l.budget.mu.Lock()
		n += l.budget.used
		l.budget.mu.Unlock()
	}
	return n
}
