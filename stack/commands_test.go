package stack

import (
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestANotificationAfterCloseWritesNothing notifies after Close, as context.AfterFunc and Do may: the
// descriptor number is another file's by then.
func TestANotificationAfterCloseWritesNothing(t *testing.T) {
	w := newWorld(t)
	fd := w.loop.notifier.fd
	for range 2 {
		if err := w.loop.Close(); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if int(f.Fd()) != fd {
		if err := unix.Dup3(int(f.Fd()), fd, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
	}
	w.loop.notifier.notify()
	if info, err := f.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("the notification wrote %d bytes into another file, %v", info.Size(), err)
	}
}

func TestACommandThatQueuesItselfDoesNotHoldTheLoop(t *testing.T) {
	w := newWorld(t)
	ran := 0
	var again func()
	again = func() {
		if ran++; ran > 10*commandQueueLen {
			t.Fatal("the iteration never ends")
		}
		w.loop.Do(again)
	}
	w.loop.Do(again)
	w.loop.Poll(0)
	if ran == 0 {
		t.Error("it did not run")
	}
}

// TestNoReaderSeesMorePacketsEndThanCome reads the counters while a loop would publish them.
func TestNoReaderSeesMorePacketsEndThanCome(t *testing.T) {
	var b published
	var stop sync.WaitGroup
	stop.Go(func() {
		var s Stats
		for range 200_000 {
			s.Received += 3
			s.Forwarded += 2
			s.Dropped[len(s.Dropped)-1]++
			b.store(&s)
		}
	})
	defer stop.Wait()
	for range 20_000 {
		s := b.load()
		if s.Forwarded+s.Delivered+s.TotalDropped() > s.Received {
			t.Fatalf("%d forwarded and %d dropped of %d received", s.Forwarded, s.TotalDropped(), s.Received)
		}
	}
}
