package datapath

import (
	"net/netip"
	"time"

	"github.com/millrace/millrace/clock"
)

// ConnInfo describes a connection.
type ConnInfo struct {
	Backend  uint32 // its number
	Proto    uint8  // IP protocol
	Client   netip.AddrPort
	Service  netip.AddrPort // the service address
	Target   netip.AddrPort // address of the backend; port 0 in direct modes
	Source   netip.AddrPort // what the backend sees; the zero value in direct modes
	State    string
	HalfOpen bool          // only one side has been seen
	Left     time.Duration // until it is forgotten without another packet
}

// stateNames are the states as a ConnInfo has them.
var stateNames = [states]string{
	stateUDP: "udp", stateSynSent: "syn_sent", stateAnswered: "syn_recv", stateMidFlow: "mid_flow",
	stateEstablished: "established", stateHalfClosed: "half_closed", stateClosing: "closing",
	stateTimeWait: "time_wait", stateReset: "reset",
}

// connPage is how many places of a table are copied at once: the loop stands still for some 50 us.
const connPage = 1024

// Conns appends the connections in the next places of the table from at on to buf. more says whether
// there are further places, from next on. Only the loop may call it.
func (h *Handler) Conns(buf []Conn, at int) (_ []Conn, next int, more bool) {
	t := h.table
	for end := min(at+connPage, t.high); at < end; at++ {
		if t.conns[at].state != stateFree {
			buf = append(buf, t.conns[at])
		}
	}
	return buf, at, at < t.high
}

// Describe says what a connection means. The snapshot is not older than the connection.
func (s *Snapshot) Describe(c *Conn, now clock.Time) ConnInfo {
	front, to := &s.VIPs[c.vip], s.Endpoints[c.endpoint]
	left := max(int32(c.deadline-ticksAt(now)), 0)
	info := ConnInfo{
		Backend: c.backend, Proto: front.Proto,
		Client:  netip.AddrPortFrom(c.client.Addr(), c.clientPort),
		Service: netip.AddrPortFrom(front.addr.Addr(), front.Port),
		Target:  netip.AddrPortFrom(to.addr.Addr(), to.Port),
		State:   stateNames[c.state], HalfOpen: c.halfSlot != 0, Left: time.Duration(left) << 24,
	}
	if to.Port != 0 {
		src := c.client
		if c.snat != 0 {
			src = s.snats[c.snat]
		}
		info.Source = netip.AddrPortFrom(src.Addr(), c.sourcePort)
	}
	return info
}
