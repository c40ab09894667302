package stack

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/millrace/millrace/clock"
)

// Serve is Run for a loop that goroutines enter (LoopLock.Enter): that of sockets. It runs on the
// calling goroutine, bound to a thread only where Config.Affinity names CPUs. Each iteration yields to
// the goroutines that it made ready, on the same processor, and what they cause in answer leaves with
// the next iteration, all at once. It sleeps in ppoll(2) where devices have a file, and on a channel
// where they have none. It ends as Run does.
func (l *Loop) Serve(ctx context.Context) error {
	if l.handler == nil {
		return errNoHandler
	}
	if len(l.cfg.Affinity) > 0 {
		release, err := lockThread(l.cfg.Affinity)
		if err != nil {
			return err
		}
		defer release()
	}
	s := newServer(l)
	defer s.close()
	defer l.extraProcessor()()
	stop := context.AfterFunc(ctx, l.notifier.notify)
	defer stop()
	l.lock.served.Store(true)
	s.run(ctx)
	l.lock.mu.Lock()
	defer l.lock.mu.Unlock()
	l.lock.served.Store(false)
	l.drain()
	return l.lastError()
}

// extraProcessor adds the processor of Config.ExtraProcessor, and returns what takes it away.
func (l *Loop) extraProcessor() (release func()) {
	if !l.cfg.ExtraProcessor {
		return func() {}
	}
	addProcessors(1)
	return func() { addProcessors(-1) }
}

// processors serializes changes of GOMAXPROCS: several loops begin and end at the same time.
var processors sync.Mutex

// addProcessors changes GOMAXPROCS by n.
func addProcessors(n int) {
	processors.Lock()
	defer processors.Unlock()
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + n)
}

// server is the runner of a loop on a goroutine.
type server struct {
	l     *Loop
	spin  spin
	sleep *sleeper
}

func newServer(l *Loop) *server {
	return &server{l, newSpin(l.cfg.Spin, l.cfg.Now()), newSleeper(l)}
}

func (s *server) close() { s.sleep.close() }

func (s *server) run(ctx context.Context) {
	for ctx.Err() == nil {
		now := s.l.cfg.Now()
		moved, ended := s.l.lock.iterate(now)
		if ended {
			return
		}
		if moved > 0 {
			s.spin.worked(now)
		}
		switch {
		case s.spin.enough(now):
			s.spin.slept = s.sleep.sleep(ctx)
			if !s.spin.slept {
				s.spin.worked(now)
			}
		case moved == 0: // a sleep leaves the CPU anyway
			offerCPU()
		}
		yield()
	}
}

// publishEvery is after how many iterations a served loop publishes its counters; it does so before
// it sleeps, too. To publish them with each iteration was an eighth of the cost of an iteration with
// one packet.
const publishEvery = 16

// iterate is Poll by the holder of the lock. ended reports a loop that will never have work again.
func (k *LoopLock) iterate(now clock.Time) (moved int, ended bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.loop
	now = max(now, l.out.now) // another holder may have read the clock later
	moved = l.poll(now)
	if l.unpublished++; l.unpublished >= publishEvery {
		l.publish()
	}
	return moved, moved == 0 && l.ended()
}

// How long Serve polls in vain before it sleeps, where Config.Spin is 0: it begins with ServeSpin and
// moves between the two others. To wake a goroutine that waits for a file costs more than to wake a
// thread in ppoll(2), and while a served loop is awake others leave their output to it; so spinning
// is worth more than DefaultSpin where packets come soon, and less where they do not. With 50 us at
// most, a peer that answers after 60 had each of its packets wait for a wakeup, and the loop took no
// less CPU time.
const (
	ServeSpin      = 20 * time.Microsecond
	ServeSpinLeast = 5 * time.Microsecond
	ServeSpinMost  = 100 * time.Microsecond
)

// wakeupTime is about what it takes from the packet that ends a sleep to the iteration that finds it.
const wakeupTime = 30 * time.Microsecond

// spin decides when a served loop sleeps. After each sleep it compares the time without work with the
// longest spin: the spin doubles where that would have outlasted it, and is halved where not.
type spin struct {
	length time.Duration
	fixed  bool
	slept  bool       // since the last work
	last   clock.Time // work
}

// newSpin begins at now. A length other than 0 is fixed.
func newSpin(length time.Duration, now clock.Time) spin {
	if length != 0 {
		return spin{length: length, fixed: true, last: now}
	}
	return spin{length: ServeSpin, last: now}
}

// worked notes that there was work at now.
func (s *spin) worked(now clock.Time) {
	if s.slept && !s.fixed {
		if now.Sub(s.last) <= ServeSpinMost+wakeupTime {
			s.length = min(2*s.length, ServeSpinMost)
		} else {
			s.length = max(s.length/2, ServeSpinLeast)
		}
	}
	s.slept, s.last = false, now
}

// enough reports whether it is time to sleep.
func (s *spin) enough(now clock.Time) bool { return now.Sub(s.last) >= s.length }
