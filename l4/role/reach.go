package role

import "github.com/millrace/millrace/clock"

// A gateway reaches the clients of its addresses as long as a device has a link, and where it has addresses to watch one of them answers:
// a switch port can be lost while its carrier is not. A watched address that has never answered in this run does not count, since a
// mistake in the file must not stop the gateway.

// SetAble notes whether all devices have a link.
func (m *Machine) SetAble(now clock.Time, able bool) {
	if m.able != able {
		m.able, m.due = able, now
	}
}

// SetLinked notes whether any device has a link.
func (m *Machine) SetLinked(linked bool) { m.linked = linked }

// Reached handles that a watched address has answered.
func (m *Machine) Reached(now clock.Time) {
	if m.cutOff(now) {
		m.due = now // the peer may want to know
	}
	m.reached = now
}

// Unwatch handles that no address is watched any more.
func (m *Machine) Unwatch() { m.reached = clock.Never }

// cutOff reports whether watched addresses have ceased to answer. The bound is below the silence after which a peer takes over: one whose
// port is joined again must not find this gateway answering.
func (m *Machine) cutOff(now clock.Time) bool {
	return m.reached != clock.Never && now.Sub(m.reached) >= m.fence()
}

// reaches reports whether a watched address has answered just now, and a question may have been lost: where the watched host goes down,
// no gateway says so of itself any more when the other one finds itself cut off.
func (m *Machine) reaches(now clock.Time) bool {
	return m.reached != clock.Never && now.Sub(m.reached) < m.cfg.Lease/3
}

// isolated reports whether this gateway can reach no client.
func (m *Machine) isolated(now clock.Time) bool { return !m.linked || m.cutOff(now) }

// release leaves the addresses where an active gateway cannot serve them: to a peer that can, and also where the peer is
// not heard, since that may take over. A peer that is heard and cannot serve them either does not get them.
func (m *Machine) release(now clock.Time) {
	p := &m.peer
	ready := m.fresh(now) && p.State == Standby
	switch {
	case m.cutOff(now) && ready && p.Reaches:
		m.on(CutOff, now)
	case !m.able && ready && p.Able && !p.CutOff:
		m.on(Disabled, now)
	case m.isolated(now) && !m.heard(now):
		m.on(Isolated, now)
	}
}
