package dashboard

import (
	"context"
	"sync"
	"time"
)

// sharedFor is the greatest age of a state that a request gets.
const sharedFor = time.Second

// shared keeps the last rendering of the state. Requests that come while it is made wait for it.
type shared struct {
	mu   sync.Mutex
	at   time.Time
	text []byte
}

func (s *shared) get(make func() ([]byte, error)) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.text != nil && time.Since(s.at) < sharedFor {
		return s.text, nil
	}
	text, err := make()
	if err == nil {
		s.at, s.text = time.Now(), text
	}
	return text, err
}

// forget has the next request get a new state: a command has changed it.
func (s *shared) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = nil
}

// flight runs a function for all requests that come while it runs. It ends when the last of them has left.
type flight struct {
	mu  sync.Mutex
	now *trip
}

// trip is a run of the function.
type trip struct {
	done    chan struct{}
	text    []byte
	err     error
	waiting int // guarded by flight.mu
	stop    context.CancelFunc
}

func (f *flight) get(ctx context.Context, run func(context.Context) ([]byte, error)) ([]byte, error) {
	f.mu.Lock()
	t := f.now
	if t == nil {
		inner, stop := context.WithCancel(context.Background())
		t = &trip{done: make(chan struct{}), stop: stop}
		f.now = t
		go func() {
			t.text, t.err = run(inner)
			f.mu.Lock()
			if f.now == t {
				f.now = nil
			}
			f.mu.Unlock()
			stop()
			close(t.done)
		}()
	}
	t.waiting++
	f.mu.Unlock()
	select {
	case <-t.done:
		return t.text, t.err
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if t.waiting--; t.waiting == 0 {
		if t.stop(); f.now == t {
			f.now = nil
		}
	}
	return nil, ctx.Err()
}
