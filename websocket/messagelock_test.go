package websocket

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

// awaited waits until n goroutines hold the lock or wait for it.
func (l *messageLock) awaited(t *testing.T, n int32) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); l.wants.Load() != n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines want the lock, not %d", l.wants.Load(), n)
		}
	}
}

func TestMessageLockServesInOrder(t *testing.T) {
	l := newMessageLock()
	if err := l.lock(nil); err != nil {
		t.Fatal(err)
	}
	const n = 20
	var order []int
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if err := l.lock(nil); err != nil {
				t.Error(err)
			}
			order = append(order, i) // the lock guards it
			l.unlock()
		})
		l.awaited(t, int32(i)+2)
		time.Sleep(time.Millisecond) // it is counted a moment before it waits
	}
	l.unlock()
	all.Wait()
	for i, got := range order {
		if got != i {
			t.Fatalf("order %v", order)
		}
	}
	if l.wants.Load() != 0 {
		t.Errorf("%d goroutines want the lock at the end", l.wants.Load())
	}
}

func TestMessageLockExcludes(t *testing.T) {
	l := newMessageLock()
	n := 0
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 2000 {
				if err := l.lock(nil); err != nil {
					t.Error(err)
				}
				n++
				l.unlock()
			}
		})
	}
	all.Wait()
	if n != 16000 {
		t.Errorf("%d", n)
	}
}

func TestMessageLockEndsWithTheConnection(t *testing.T) {
	l := newMessageLock()
	done := make(chan struct{})
	if err := l.lock(done); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 3)
	for range 3 {
		go func() { ended <- l.lock(done) }()
	}
	l.awaited(t, 4)
	close(done)
	for range 3 {
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}
	for range 3 { // must not wait for those that gave up
		l.unlock()
	}
}

// A message that is sent whole waits for one that is sent in frames, and follows it.
func TestAWholeMessageWaitsForOneInFrames(t *testing.T) {
	client, server := connPair(t, ConnOptions{})
	defer client.CloseNow()
	defer server.CloseNow()
	w, err := server.NextWriter(Text)
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() { sent <- server.WriteMessage(Binary, []byte("whole")) }()
	server.message.awaited(t, 2)
	if _, err := w.Write([]byte("in frames")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"in frames", "whole"} {
		if _, b, err := client.ReadMessage(nil); string(b) != want || err != nil {
			t.Errorf("%q, %v; want %q", b, err, want)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}
