package shim

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack"
)

// loopChannel is a channel that a loop watches. It does in the loop what needs no other one and does not wait: connect(2),
// names, and options of sockets without a connection or with one of its own. A wakeup of a goroutine, and the handing over of the loop to it,
// cost more than these do. For all else there is a goroutine while it lasts. The loop guards the fields.
type loopChannel struct {
	c     *channel
	fd    int
	loop  int
	watch *stack.FileWatch
	queue *userQueue
	waits bool // in queue
	busy  bool // a goroutine does a request
	ended bool

	delayed *delayed // the reply that waits for a handshake; nil without one
}

// toLoop makes a loop read the requests of the channel from now on. false is that nothing has changed.
func (c *channel) toLoop() bool {
	fd, err := c.duplicate()
	if err != nil {
		return false
	}
	l := &loopChannel{c: c, fd: fd, loop: int(c.s.nextLoop.Add(1)) % c.s.cfg.Stack.LoopCount()}
	ok := false
	c.s.cfg.Stack.EnterLoop(l.loop, func(in socket.LoopStack) { ok = l.begin(in) })
	if ok {
		c.conn.Close() // the runtime polls it no more
	} else {
		unix.Close(fd)
	}
	return ok
}

// duplicate returns the channel's socket as a descriptor that the runtime does not poll.
func (c *channel) duplicate() (fd int, err error) {
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	e := raw.Control(func(of uintptr) { fd, err = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(e, err)
}

// begin watches the channel, unless the server has been closed.
func (l *loopChannel) begin(in socket.LoopStack) bool {
	s := l.c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	var err error
	if l.watch, err = in.Watch(l.fd, stack.FileReadable, l.file); err != nil {
		return false
	}
	l.queue = s.fairQueueOf(l.loop).queueOf(l.c.user)
	l.c.onLoop = l
	return true
}

// file reads one request, if its user has not used up its quota.
func (l *loopChannel) file(in socket.LoopStack, _ stack.FileEvents) {
	switch {
	case l.busy || l.ended || l.waits || l.delayed != nil: // the process has ended meanwhile
		l.end()
	case l.c.s.fairQueueOf(l.loop).take(in, l):
		l.read(in)
	}
}

// read reads one request: the next is reported once more, after those of other channels.
func (l *loopChannel) read(in socket.LoopStack) {
	c := l.c
	n, oobn, _, _, err := unix.Recvmsg(l.fd, c.in[:], c.oob[:], unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	if err == syscall.EAGAIN || err == syscall.EINTR {
		return
	}
	fds, e := rightsIn(c.oob[:max(oobn, 0)])
	if err != nil || e != nil || n == 0 {
		l.endWith(fds)
		return
	}
	if r, ok := l.inLoop(in, c.in[:n], fds); ok {
		if l.delayed != nil {
			return
		}
		closeAll(fds) // AF_UNIX sockets of the node's: that does not wait
		if l.answer(&r) != nil {
			l.end()
		}
		return
	}
	l.busy = true
	_ = l.watch.Modify(0) // it is watched
	c.s.work.Go(func() { l.onGoroutine(n, fds) })
}

// onGoroutine does a request that may wait.
func (l *loopChannel) onGoroutine(n int, fds []int) {
	r, err := l.c.do(l.c.in[:n], fds)
	if err == nil {
		err = l.answer(&r)
	}
	l.c.s.cfg.Stack.EnterLoop(l.loop, func(socket.LoopStack) {
		l.busy = false
		if err != nil || l.ended {
			l.end()
			return
		}
		_ = l.watch.Modify(stack.FileReadable) // it is watched
	})
}

// endWith ends the channel once descriptors that came with no request are closed: it counts for its user until then.
func (l *loopChannel) endWith(fds []int) {
	if len(fds) > 0 {
		l.busy = true
		l.c.s.work.Go(func() {
			l.c.peer.closer.closeAll(l.c.s.ctx, fds)
			l.c.s.cfg.Stack.EnterLoop(l.loop, func(socket.LoopStack) {
				l.busy = false
				l.end()
			})
		})
	}
	l.end()
}

// answer sends a reply. A process that does not take its replies is no library.
func (l *loopChannel) answer(r *reply) error {
	r.encode(l.c.out[:])
	var rights []byte
	if r.memory.fd != 0 {
		defer r.memory.close()
		rights = unix.UnixRights(r.memory.fd)
	}
	_, err := unix.SendmsgN(l.fd, l.c.out[:], rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	return err
}

// end closes the channel, or lets the goroutine do so that does a request. It may be called twice.
func (l *loopChannel) end() {
	l.ended = true
	l.watch.Remove()
	if l.delayed != nil { // other processes may have the socket
		l.stopWaiting().memory.close()
	}
	if l.busy || l.fd < 0 {
		return
	}
	l.c.peer.closer.close(l.fd, l.c.free) // see channel.end
	l.fd = -1
}

// hangUp ends a channel from outside.
func (c *channel) hangUp() {
	c.conn.Close()
	c.s.mu.Lock()
	l := c.onLoop
	c.s.mu.Unlock()
	if l != nil {
		c.s.cfg.Stack.EnterLoop(l.loop, func(socket.LoopStack) { l.end() })
	}
}

// inLoop does a request in the loop. false is that it has to be done by a goroutine, and that nothing was done.
func (l *loopChannel) inLoop(in socket.LoopStack, b []byte, fds []int) (r reply, ok bool) {
	c := l.c
	q, err := decodeRequest(b)
	if err != nil || len(fds) != 1 || q.op != opConnect && q.op != opNames && q.op != opSetOption && q.op != opGetOption {
		return r, false
	}
	k, err := c.s.findNow(c, fds[0])
	if err != nil || !k.stream || k.holdsStrangers() || k.entersLoop(&q) || !k.ops.TryLock() {
		return r, false
	}
	defer k.ops.Unlock()
	defer k.unhold()
	k.asked = fds[0]
	r = reply{op: q.op, id: q.id}
	switch {
	case q.op == opNames:
		r.local, r.remote = k.names()
		r.value = c.s.instanceOf()
	case q.op == opConnect && (k.bound != nil || !q.addr.IsValid() || c.s.listensAt(q.addr.Port())), q.op != opConnect && !k.hold(in):
		return r, false
	case q.op == opConnect:
		if err = k.connect(c, &q, &r, fds[0], in.Connect, true); err == syscall.EINPROGRESS { // a listener may have come since
			k.limitSmall(in)
		}
	case q.op == opSetOption:
		err = k.setOption(int(q.level), int(q.name), q.value)
	default:
		r.value, err = k.option(int(q.level), int(q.name), q.value[:0], int(q.arg))
	}
	if err == errElsewhere {
		return r, false
	}
	c.s.stats.requests.Add(1)
	if err == errDelayed {
		l.delay(in, k, r, fds[0])
		return r, true
	}
	r.errno = errnoOf(err)
	return r, true
}

// hold makes options of the socket reachable on this loop. false is that another one has them, or all.
func (k *sock) hold(in socket.LoopStack) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.server != nil || k.state == connecting:
		return false
	case k.conn == nil: // sock.options has them
		return true
	case k.relayed == nil || k.relayed.loop != in.Index():
		return false
	}
	k.held = k.relayed.in
	return true
}

func (k *sock) unhold() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held = nil
}
