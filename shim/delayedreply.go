package shim

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
)

// connectWait is the time that the reply to a connect(2) that waits may be delayed. In a local network the handshake is complete
// by then, and the reply reports it at once: its socket need not be made unwritable, it does not wait in poll(2), and is
// woken once, not twice. A signal of the program is delayed by as much.
const connectWait = time.Millisecond

// errDelayed is that the reply follows.
var errDelayed = errors.New("delayed")

// delayed is a connect(2) whose reply waits for the handshake. It belongs to the loop of its channel, which is that of the
// connection.
type delayed struct {
	l *loopChannel
	k *sock
	r reply
	p int // the program's end
}

// delay keeps the reply r for a socket whose handshake has begun. It takes p.
func (l *loopChannel) delay(in socket.LoopStack, k *sock, r reply, p int) {
	d := &delayed{l: l, k: k, r: r, p: p}
	l.delayed = d
	k.mu.Lock()
	k.answer = func(err error) { l.connected(d, err) }
	k.mu.Unlock()
	l.c.s.queuesOf(in).replies.add(in.Now(), d)
}

// over implements expiring.
func (d *delayed) over() bool { return d.l.delayed != d }

// expire implements expiring.
func (d *delayed) expire() { d.l.reply(d.l.stopWaiting()) }

// connected is called at the end of the handshake.
func (l *loopChannel) connected(d *delayed, err error) {
	if l.delayed != d {
		return
	}
	l.delayed = nil
	unix.Close(d.p)
	d.r.errno = errnoOf(err)
	l.reply(&d.r)
}

// stopWaiting makes the program's end unwritable until the handshake is complete, and returns the reply that says that this goes on.
func (l *loopChannel) stopWaiting() *reply {
	d := l.delayed
	l.delayed = nil
	d.r.errno = errnoOf(d.k.fillLate(d.p))
	unix.Close(d.p)
	return &d.r
}

// reply sends a reply that was delayed.
func (l *loopChannel) reply(r *reply) {
	if l.answer(r) != nil {
		l.end()
	}
}

// fillLate is fill during a handshake. Without an error of it the result is EINPROGRESS, and nil where the handshake has ended.
func (k *sock) fillLate(p int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.answer = nil
	switch k.state {
	case connecting:
	case connected: // and the answer is about to be sent (finish)
		return nil
	default: // the program has shut it down
		return syscall.ENETDOWN
	}
	filled, err := fill(p)
	k.refilled += filled
	if err != nil {
		return err
	}
	return syscall.EINPROGRESS
}

// takeAnswer returns what awaits the end of the handshake, nil if nothing does.
func (k *sock) takeAnswer() func(error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.answer
	k.answer = nil
	return f
}
