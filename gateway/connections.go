package gateway

import (
	"net/netip"
	"time"

	"github.com/millrace/millrace/clock"
)

// Connection is an entry of a table, for people and programs.
type Connection struct {
	Loop     int             `json:"loop"`
	Service  string          `json:"service"`
	Protocol string          `json:"protocol"`
	Client   netip.AddrPort  `json:"client"`
	Address  netip.AddrPort  `json:"address"` // of the service
	Backend  string          `json:"backend"`
	Target   netip.AddrPort  `json:"target"`           // address of the backend; port 0 in direct modes
	Source   *netip.AddrPort `json:"source,omitempty"` // what the backend sees; absent in direct modes
	State    string          `json:"state"`
	Expires  float64         `json:"expires_seconds"` // without another packet
}

// stateNames are the states as a Connection has them.
var stateNames = [states]string{
	stateUDP: "udp", stateSynSent: "syn_sent", stateAnswered: "answered",
	stateEstablished: "established", stateClosing: "closing",
}

// page is how many places of a table are copied at once: the loop stands still for some 50 us.
const page = 1024

// Connections calls yield with the connections of all loops, until it returns false. Each loop's table is
// copied in pieces on its own thread: on(i, f) has f run there and returns when it has, false if
// the loop runs no more. A connection that opens or ends meanwhile may be missing.
func (g *Gateway) Connections(now clock.Time, on func(loop int, f func()) bool, yield func(Connection) bool) {
	g.mu.Lock()
	labels := g.reg.labels // it only ever grows
	g.mu.Unlock()
	buf := make([]conn, 0, page)
	for i, h := range g.handlers {
		for at, more := 0, true; more; {
			if !on(i, func() { buf, at, more = h.table.copy(buf[:0], at) }) {
				break
			}
			s := g.snap.Load() // not older than the connections
			for j := range buf {
				if c := &buf[j]; int(c.backend) < len(labels) && !yield(s.connection(c, &labels[c.backend], i, ticksAt(now))) {
					return
				}
			}
		}
	}
}

// copy appends the connections in the next places from at on to buf.
func (t *table) copy(buf []conn, at int) (_ []conn, next int, more bool) {
	end := min(at+page, t.high)
	for ; at < end; at++ {
		if t.conns[at].state != stateFree {
			buf = append(buf, t.conns[at])
		}
	}
	return buf, at, at < t.high
}

// connection returns what c means.
func (s *snapshot) connection(c *conn, b *label, loop int, now ticks) Connection {
	front, to := &s.fronts[c.front], s.endpoints[c.endpoint]
	left := max(int32(c.deadline-now), 0)
	one := Connection{
		Loop: loop, Service: s.services[s.backends[c.backend].service].name, Protocol: protoName(front.proto),
		Client:  netip.AddrPortFrom(c.client.Addr(), c.clientPort),
		Address: netip.AddrPortFrom(front.addr.Addr(), front.port),
		Backend: b.Name, Target: netip.AddrPortFrom(to.addr.Addr(), to.port),
		State: stateNames[c.state], Expires: (time.Duration(left) << 24).Seconds(),
	}
	if to.port != 0 {
		src := c.client
		if c.snat != 0 {
			src = s.snats[c.snat]
		}
		seen := netip.AddrPortFrom(src.Addr(), c.sourcePort)
		one.Source = &seen
	}
	return one
}

// protoName is the inverse of protoOf.
func protoName(proto uint8) string {
	if proto == protoOf("udp") {
		return "udp"
	}
	return "tcp"
}
