package socket

import (
	"io"
	"os"
	"testing"
	"time"
)

// reading has a goroutine read from c, and returns when it waits.
func reading(t *testing.T, c *TCPConn) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		done <- err
	}()
	eventually(t, "the reader waits", func() bool {
		c.h.Enter()
		defer c.h.Exit()
		return c.rq.head != nil
	})
	return done
}

// TestADeadlineReachesThoseWhoWait sets a deadline in the future for a read that waits without one.
func TestADeadlineReachesThoseWhoWait(t *testing.T) {
	x := newWorld(t, with{})
	c, _ := x.pair(t)
	done := reading(t, c)
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	within(t, 10*time.Second, "deadline", func() { op(t, <-done, "read", os.ErrDeadlineExceeded) })
}

// TestCloseReadReachesThoseWhoWait ends a read that waits.
func TestCloseReadReachesThoseWhoWait(t *testing.T) {
	x := newWorld(t, with{})
	c, _ := x.pair(t)
	done := reading(t, c)
	if err := c.CloseRead(); err != nil {
		t.Error(err)
	}
	within(t, 10*time.Second, "end", func() {
		if err := <-done; err != io.EOF {
			t.Errorf("%v, want the end", err)
		}
	})
}

// TestLingerIsNoReset closes with a time for data that the peer takes in it.
func TestLingerIsNoReset(t *testing.T) {
	x := newWorld(t, with{})
	c, s := x.pair(t)
	const size = 1 << 20
	go func() {
		_, _ = c.Write(make([]byte, size))
		_ = c.SetLinger(60)
		_ = c.Close()
	}()
	within(t, 20*time.Second, "all of it", func() {
		if n, err := io.Copy(io.Discard, s); n != size || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
	})
}

// TestPollerTellsOfTheEndUnasked waits for nothing but what is always told.
func TestPollerTellsOfTheEndUnasked(t *testing.T) {
	x := newWorld(t, with{})
	c, s := x.pair(t)
	p := x.a.NewPoller()
	defer p.Close()
	if err := p.Add(c, Interest{Edge: true, Data: "c"}); err != nil {
		t.Fatal(err)
	}
	_ = s.Abort()
	var events [4]Event
	n, err := p.Wait(events[:], 10*time.Second)
	if n != 1 || err != nil || events[0].Events != Closed || events[0].Data != "c" {
		t.Errorf("%v, %v", events[:n], err)
	}
}
