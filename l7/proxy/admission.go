package proxy

import (
	"net/netip"
	"sync/atomic"
)

// Admission counts the connections of clients at a listener: of all workers, at all its addresses and of all versions of HTTP. The
// workers of a proxy share it, so that a limit holds for them together, and a reload keeps it. The zero value is valid.
type Admission struct {
	open    atomic.Int64
	refused [Denials]atomic.Uint64
}

// Denial is the reason why a connection was refused as soon as it came.
type Denial uint8

// Values of Denial.
const (
	DeniedLimit    Denial = iota // Limits.Connections
	DeniedDraining               // the listener was removed, or serves HTTP/3 alone from now on, or the gateway stops
	Denials                      // how many there are
)

// String returns a name for labels.
func (d Denial) String() string { return [...]string{"limit", "draining"}[d] }

// Open returns how many connections are open. Any goroutine may call it.
func (a *Admission) Open() int64 { return a.open.Load() }

// Refused returns how many connections were refused. Any goroutine may call it.
func (a *Admission) Refused(d Denial) uint64 { return a.refused[d].Load() }

// admit counts a connection, or its refusal if there are limit already; 0 is no limit. Each one that is admitted leaves. It adds first
// and compares then: workers that compared first could admit one each where there is one place.
func (a *Admission) admit(limit int64) bool {
	if n := a.open.Add(1); limit > 0 && n > limit {
		a.open.Add(-1)
		a.deny(DeniedLimit)
		return false
	}
	return true
}

// leave counts the end of a connection that was admitted.
func (a *Admission) leave() { a.open.Add(-1) }

// deny counts a refusal.
func (a *Admission) deny(d Denial) { a.refused[d].Add(1) }

// full counts a refusal and reports true if there is no room. It admits nothing: admit decides, once what comes before has been
// paid for.
func (a *Admission) full(limit int64) bool {
	if limit == 0 || a.open.Load() < limit {
		return false
	}
	a.deny(DeniedLimit)
	return true
}

// admit decides on a connection of a client. One that it refuses is in the access log.
func (l *listening) admit(from netip.AddrPort, protocol string) bool {
	switch {
	case l.draining(), protocol == "TCP" && l.current.onlyHTTP3():
		l.admission.deny(DeniedDraining)
		l.w.recordDenied(l, from, protocol, DeniedDraining)
	case !l.admission.admit(l.current.Limits.Connections):
		l.w.recordDenied(l, from, protocol, DeniedLimit)
	default:
		return true
	}
	return false
}

// recordDenied reports a connection that was refused as soon as it came to the access log. The lines of a second are bounded: clients
// that open connections without end must not fill it. All are counted by the Admission.
func (w *Worker) recordDenied(l *listening, from netip.AddrPort, protocol string, d Denial) {
	if !w.linesDenied.take(w.Now) {
		return
	}
	c := &clientInfo{at: l, addr: from}
	c.use(l.current)
	w.recordRefused(c, protocol, 0, [...]*failure{errLimit, errUnavailable}[d].name, d.String())
}
