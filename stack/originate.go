package stack

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
)

// Reserve passes n free frames of the pool to the caller, who writes packets straight into them and
// gives them to Originate for the same port at once. It is all or nothing: nil says that the port's
// queue, after a try to send, or the pool has no room for so many now. The slice is the pool's: it is
// valid until the next call of any method of the loop. Like Send it belongs to the holder of the loop.
func (l *Loop) Reserve(port uint8, n int) []uint32 {
	if int(port) >= len(l.ports) {
		return nil
	}
	q := l.ports[port].out
	if q.Room() < n {
		l.transmit(l.now, int(port))
	}
	if q.Room() < n || l.cfg.Pool.Free() < n {
		return nil
	}
	return l.cfg.Pool.GetBatch(n)
}

// Originate transmits packets that no packet caused, in frames that Reserve gave: it takes them and puts
// them behind what waits for the port already. They leave at the end of the turn, or at Exit.
func (l *Loop) Originate(port uint8, d []packet.Desc) {
	for i := range d {
		d[i].Port, d[i].Verdict, d[i].Stamp = port, packet.Forward, uint32(l.now)
	}
	l.count.Originated += packet.Packets(d)
	l.enqueue(l.now, int(port), d)
}

// ReserveLocal is Reserve for Local.
func (l *Loop) ReserveLocal(n int) []uint32 {
	if l.local.Room() < n || l.cfg.Pool.Free() < n {
		return nil
	}
	return l.cfg.Pool.GetBatch(n)
}

// Local has packets that were made here come to the loop's own handler in the next turn, as if they had
// been received, with the findings that are in d: no engine looks at them. It takes the frames, which
// ReserveLocal gave. They count as Originated.
func (l *Loop) Local(d []packet.Desc) {
	for i := range d {
		d[i].Verdict, d[i].Stamp = packet.Undecided, uint32(l.now)
	}
	l.count.Originated += packet.Packets(d)
	l.local.D = append(l.local.D, d...)
}

// comeBack has the handler decide what was made here for it. What that causes in turn waits for the next
// turn, so that two ends which answer each other do not keep the loop from its ports.
func (l *Loop) comeBack(now clock.Time) int {
	n := l.local.Len()
	if n == 0 {
		return 0
	}
	l.local, l.coming = l.coming, l.local
	b := l.coming
	b.Base = int64(now)
	for at := 0; at < n; {
		part := packet.Batch{Arena: b.Arena, Base: b.Base, D: b.D[at : at+packet.Whole(b.D[at:], l.cfg.Burst)]}
		l.handle(now, &part)
		at += len(part.D)
	}
	b.Reset()
	return n
}

// Again has Tick run in this turn, or the next where it has run already, whatever it said.
func (l *Loop) Again() { l.tick = 0 }

// Arena borrows the memory that the frames of the loop lie in.
func (l *Loop) Arena() *packet.Arena { return l.cfg.Pool.Arena().View() }

// Self returns the loop's place in its mesh, 0 without one.
func (l *Loop) Self() int { return l.self }

// Holds implements ring.Holder: the frames that wait in the loop, between two turns, to be sent or to
// come back to the handler. The loop must stand still.
func (l *Loop) Holds(visit func(off uint32)) {
	for i := range l.ports {
		for _, d := range l.ports[i].out.D {
			visit(d.Off)
		}
	}
	for _, d := range l.local.D {
		visit(d.Off)
	}
}
