package stack

import (
	"runtime"
	"sync/atomic"

	"github.com/millrace/millrace/packet"
)

// quiet says whether a loop has anything to do but what others may still hand over: odd while it has
// not, counted up with each change, so that who looks twice knows what was in between.
type quiet struct{ changes atomic.Uint32 }

// stir is for a loop that is about to take. It is one load as long as the loop has ports.
func (q *quiet) stir() {
	if q.changes.Load()&1 == 1 {
		q.changes.Add(1)
	}
}

func (q *quiet) calm() {
	if q.changes.Load()&1 == 0 {
		q.changes.Add(1)
	}
}

// settled reports whether no loop of the mesh will ever have anything to do again. All loops are
// seen quiet, then all rings empty, then all loops unchanged: so there was a moment at which all of
// that was true together, and nothing begins by itself after it.
func (m *Mesh) settled(looks []uint32) bool {
	for i, l := range m.loops {
		if looks[i] = l.quiet.changes.Load(); looks[i]&1 == 0 {
			return false
		}
	}
	for _, l := range m.loops {
		if l.given() {
			return false
		}
	}
	for i, l := range m.loops {
		if l.quiet.changes.Load() != looks[i] {
			return false
		}
	}
	return true
}

// leave ends a loop's part in the mesh: it decides what it was given and takes back what it gave and
// nobody has looked at. It waits for no loop but one that is taking a burst just now.
func (l *Loop) leave() {
	for i := range l.peers {
		if p := l.peers[i].from; p != nil {
			p.end.Store(pipeClosing)
		}
	}
	for l.exchange(l.now) > 0 {
		for i := range l.ports {
			l.transmit(l.now, i)
		}
	}
	for i := range l.peers {
		p := &l.peers[i]
		if p.to == nil {
			continue
		}
		p.from.end.Store(pipeLeft)
		p.to.shut.Store(true)
		for p.to.taking.Load() {
			runtime.Gosched()
		}
		l.takeBack(p)
	}
	l.quiet.calm()
}

// given reports whether another loop has something for this one.
func (l *Loop) given() bool {
	for i := range l.peers {
		if p := l.peers[i].from; p != nil && p.data.Len() > 0 {
			return true
		}
	}
	return false
}

// owes reports whether a peer has frames of this loop.
func (l *Loop) owes() bool {
	for i := range l.peers {
		if l.peers[i].owed > 0 {
			return true
		}
	}
	return false
}

// Holds implements ring.Holder: the frames between two loops. The loops must stand still.
func (m *Mesh) Holds(visit func(off uint32)) {
	for _, l := range m.loops {
		for i := range l.peers {
			if p := l.peers[i].from; p != nil {
				p.holds(visit)
			}
		}
	}
}

// holds visits the frames of both rings.
func (p *pipe) holds(visit func(off uint32)) {
	p.data.Visit(func(d packet.Desc) { visit(d.Off) })
	p.paid.Visit(visit)
}
