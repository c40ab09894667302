package stack

import (
	"context"
	"runtime"

	"github.com/millrace/millrace/clock"
)

// Serve is Run for a loop that goroutines enter (Enter): that of sockets. It is not bound to a thread: a
// turn that gave something to other goroutines yields to them, and what they do in answer leaves with
// the next turn, all at once. It sleeps in the runtime's poller where ports have a file, and for a bell
// where they have none. It ends as Run does.
func (l *Loop) Serve(ctx context.Context) error {
	p, err := newParker(l)
	if err != nil {
		return err
	}
	defer p.close()
	stop := context.AfterFunc(ctx, l.mail.ring)
	defer stop()
	pace := newPace(l.cfg.Spin, l.cfg.Now())
	l.token.served.Store(true)
	for ctx.Err() == nil {
		now := l.cfg.Now()
		moved, ended := l.turn(now)
		if ended {
			break
		}
		if moved > 0 {
			pace.worked(now)
		}
		if pace.enough(now) {
			pace.slept = p.park(ctx)
			if !pace.slept {
				pace.worked(now)
			}
		}
		runtime.Gosched()
	}
	l.token.mu.Lock()
	defer l.token.mu.Unlock()
	l.token.served.Store(false)
	l.drain()
	return l.lastError()
}

// showEvery is after how many turns a served loop publishes its counters; it does so before it sleeps, too. To
// publish them with each turn was an eighth of the cost of a turn with one packet.
const showEvery = 16

// turn is Poll with the token. ended is for a loop that will never have anything to do again.
func (l *Loop) turn(now clock.Time) (moved int, ended bool) {
	l.token.mu.Lock()
	defer l.token.mu.Unlock()
	now = max(now, l.now) // another owner may have read the clock later
	moved = l.poll(now)
	if l.unshown++; l.unshown >= showEvery {
		l.publish()
	}
	return moved, moved == 0 && l.ended()
}
