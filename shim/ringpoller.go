package shim

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack"
)

const stackWritable = stack.FileWritable

// ringPoller holds the rings that a loop polls: those that had bytes lately. The programs write no doorbell bytes for those.
type ringPoller struct {
	hot []*relay

	// asleep is 2 when the loop is about to sleep and all rings have doorbells, 1 after the poll that follows, and 0 when
	// the loop is awake again.
	asleep int
}

// pollerOf returns the poller of a loop, which is that of the caller.
func (s *Server) pollerOf(loop socket.LoopStack) *ringPoller {
	p := s.pollers[loop.Index()]
	if p == nil {
		p = &ringPoller{}
		s.pollers[loop.Index()] = p
		loop.AddPoller(p)
	}
	return p
}

// Poll implements stack.Poller.
func (p *ringPoller) Poll(now clock.Time) (n int) {
	if p.asleep > 0 {
		p.asleep--
		if p.asleep == 0 {
			p.suppress()
		}
	}
	for i := 0; i < len(p.hot); {
		r := p.hot[i]
		if r.closed || r.rings == nil || !r.rings.hot {
			p.remove(i)
			continue
		}
		if r.pollRing(now) {
			n++
		}
		i++
	}
	return n
}

// Arm implements stack.Poller.
func (p *ringPoller) Arm() clock.Time {
	p.asleep = 2
	for _, r := range p.hot {
		if r.rings != nil {
			r.rings.mem.In.Arm()
		}
	}
	return clock.Never
}

// suppress undoes Arm.
func (p *ringPoller) suppress() {
	for _, r := range p.hot {
		if r.rings != nil {
			r.rings.mem.In.Suppress()
		}
	}
}

func (p *ringPoller) remove(i int) {
	last := len(p.hot) - 1
	p.hot[i], p.hot[last] = p.hot[last], nil
	p.hot = p.hot[:last]
}

// pollRing moves what the program has written. A ring without bytes for hotTime gets a doorbell again.
func (r *relay) pollRing(now clock.Time) bool {
	g := r.rings
	n, err := g.mem.In.Len()
	switch {
	case err != nil:
		r.violated()
		return true
	case n > 0 && !g.blocked:
		r.ringToStack()
		return true
	case n == 0 && now.Sub(g.last) > hotTime && g.poller.asleep == 0:
		g.hot = false
		g.mem.In.Arm()
		if n, err := g.mem.In.Len(); err != nil || n > 0 { // before it was armed
			r.ringToStack()
			return true
		}
	}
	return false
}

// keepPolling makes the loop poll the ring, or arms its doorbell if the loop polls enough of them.
func (g *rings) keepPolling(r *relay) {
	p := g.poller
	if !g.hot && len(p.hot) < hotRings {
		g.hot, g.last = true, r.k.s.loopNow(r)
		p.hot = append(p.hot, r)
	}
	if g.hot {
		if p.asleep == 0 {
			g.mem.In.Suppress()
		}
		return
	}
	g.mem.In.Arm()
	if n, err := g.mem.In.Len(); (err != nil || n > 0) && !g.blocked {
		r.watch.Again(stack.FileReadable)
	}
}

// loopNow returns the time of the relay's loop.
func (s *Server) loopNow(r *relay) clock.Time { return s.cfg.Stack.LoopOf(r.in).Now() }
