package gateway

import (
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// blindACKs sends forged SYNs at a rate, each from another address, and for each an ACK with a guessed number after
// the backend has answered: it opens nothing, since it does not acknowledge the SYN+ACK.
func (m *shortConns) blindACKs(n *int, count int) {
	for range count {
		s := segment{
			src: 0xc6120000 + 0x8000 + uint32(*n%0x4000), dst: modelVIP, sport: uint16(1024 + *n/0x4000), dport: 80,
			flags: wire.FlagSYN, seq: m.rng.Uint32(),
		}
		*n++
		ack := s
		ack.flags, ack.seq, ack.ack = wire.FlagACK, s.seq+1, m.rng.Uint32()
		m.toGate[0] = append(m.toGate[0], s)
		m.settle()
		m.toGate[0] = append(m.toGate[0], ack)
		m.settle()
	}
}

// Forged handshakes with a blind ACK do not take the ports of an SNAT address from clients: none counts as open, and
// the oldest is reclaimed as half-open. 3000 a second hold all 6452 ports after 2 s. The backend may still answer the
// forged SYN then: the client resets that, and is served when it sends its SYN again, 1 s later.
func TestBlindACKsStarveNoClient(t *testing.T) {
	const forged, rate = 3000, 200
	m := newShortConns(t, "198.18.2.1", "1024-7475")
	m.hosts, m.stamps, m.backend.closesFirst = 500, true, true
	n := 0
	for step := range 8000 { // of 1 ms
		m.blindACKs(&n, forged/1000)
		if step < 6000 && step%(1000/rate) == 0 {
			m.open()
		}
		m.again()
		m.settle()
		if m.w.now>>20%64 == 0 {
			m.w.h.Tick(m.w.now)
		}
		m.w.now = m.w.now.Add(time.Millisecond)
	}
	m.w.audit()
	if len(m.waits) != m.opened {
		t.Errorf("%d of %d connections were served", len(m.waits), m.opened)
	}
	late := 0
	for _, wait := range m.waits {
		if wait > 0 {
			late++
		}
		if wait > time.Second {
			t.Fatalf("a connection waited %v", wait)
		}
	}
	if m.dropped[packet.DropPortsFull] > 0 {
		t.Errorf("dropped %v", m.dropped)
	}
	open := 0
	for a, c := range m.w.conns() {
		if ip := a.Addr().As4(); ip[1] == 0x12 && !c.HalfOpen && c.State != "reset" {
			open++
		}
	}
	if open > 0 {
		t.Errorf("%d forged connections count as open", open)
	}
	for range 10 {
		m.w.h.Tick(m.w.now)
	}
	ports := m.w.g.Status().SNAT[0]
	t.Logf("%d forged handshakes, %+v, %d of %d connections served 1 s late", n, ports, late, m.opened)
	if ports.Reclaimed.HalfOpen < 5000 {
		t.Errorf("reclaimed %+v", ports.Reclaimed)
	}
}
