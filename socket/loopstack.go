package socket

import (
	"net/netip"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/wire"
)

// LoopStack is a Stack for callbacks of one of its loops. Its methods do not block. They belong to whoever holds that
// loop: a callback of it, or the function of EnterLoop or QueueOnLoop.
type LoopStack struct {
	s *Stack
	h *host.Host
}

// LoopCount returns how many loops the Stack has.
func (s *Stack) LoopCount() int { return len(s.group.Hosts) }

// EnterLoop calls f on the calling goroutine, which holds loop i for that time. The caller holds no loop.
func (s *Stack) EnterLoop(i int, f func(in LoopStack)) {
	h := s.group.Hosts[i]
	h.Enter()
	defer h.Exit()
	f(LoopStack{s, h})
}

// QueueOnLoop makes loop i call f soon. Any goroutine may call it, and callbacks of any loop. False means that too many
// functions wait there. Once the loop has ended, f does not run.
func (s *Stack) QueueOnLoop(i int, f func(in LoopStack)) bool {
	h := s.group.Hosts[i]
	return h.Do(func() {
		f(LoopStack{s, h})
		h.RequestTick()
	})
}

// LoopOf returns the loop of a connection of the Stack, in a callback of it.
func (s *Stack) LoopOf(in LoopConn) LoopStack { return LoopStack{s, in.c.h} }

// Stack returns the Stack.
func (in LoopStack) Stack() *Stack { return in.s }

// Index returns which of the loops it is.
func (in LoopStack) Index() int { return in.h.Index() }

// Now returns the time of the loop's iteration.
func (in LoopStack) Now() clock.Time { return in.h.Now() }

// Watch makes the loop call f when a file of the kernel, such as an AF_UNIX socket, is ready. The caller keeps the file,
// and removes the watch before closing it. What f writes to connections of this loop leaves with the same iteration.
// See stack.Loop.Watch.
func (in LoopStack) Watch(fd int, want stack.FileEvents, f func(in LoopStack, ev stack.FileEvents)) (*stack.FileWatch, error) {
	return in.h.Watch(fd, want, func(ev stack.FileEvents) { f(in, ev) })
}

// AddPoller adds memory that is shared with another process to what the loop polls. See stack.Poller.
func (in LoopStack) AddPoller(p stack.Poller) { in.h.AddPoller(p) }

// DeviceOf returns the number of the device that has an address of the stack, as Message.Interface has it; 0 is none.
func (in LoopStack) DeviceOf(a wire.Addr) uint32 {
	if dev, ok := in.h.IP.DevOf(a); ok {
		return uint32(dev) + 1
	}
	return 0
}

// After makes the loop call f once it has sent what this iteration causes: see stack.Loop.After.
func (in LoopStack) After(f func()) { in.h.After(f) }

// Connect begins to connect, as Stack.Connect does, and f is not called before it returns. Without a local port in d the
// connection is one of this loop, unless no port of it is free.
func (in LoopStack) Connect(d *Dialer, to netip.AddrPort, f func(in LoopConn, err error)) (*Connecting, error) {
	k, err := in.s.newConnecting(d, to, f)
	if err == nil {
		k.tuple, err = in.s.tupleOn(in.h, d, to)
	}
	if err == nil {
		err = in.s.takeBound(d)
	}
	if err != nil {
		return nil, k.opError(err)
	}
	if err := k.startIn(in.h); err != nil {
		d.dropBound(in.h)
		return nil, k.opError(err)
	}
	in.h.RequestTick()
	return k, nil
}

// fullQueueRetry is the time that a function waits for a loop whose command queue is full.
const fullQueueRetry = time.Millisecond

// passTo makes loop h call f soon. The caller may hold any loop.
func passTo(h *host.Host, f func(h *host.Host)) {
	queued := h.Do(func() {
		f(h)
		h.RequestTick()
	})
	if !queued {
		time.AfterFunc(fullQueueRetry, func() { passTo(h, f) })
	}
}
