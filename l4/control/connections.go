package control

import (
	"net/netip"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l4/datapath"
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
	Kernel   bool            `json:"kernel,omitempty"` // the kernel forwards it
	Expires  float64         `json:"expires_seconds"`  // without another packet
}

// Connections calls yield with the connections of all loops, until it returns false. Each loop's table is
// copied in pieces on its own thread: on(i, f) has f run there and returns when it has, false if
// the loop runs no more. A connection that opens or ends meanwhile may be missing.
func (g *Gateway) Connections(now clock.Time, on func(loop int, f func()) bool, yield func(Connection) bool) {
	var buf []datapath.ConnCopy
	for i, h := range g.handlers {
		for at, more := 0, true; more; {
			if !on(i, func() { buf, at, more = h.Conns(buf[:0], at) }) {
				break
			}
			s := g.snap.Load() // not older than the connections
			for j := range buf {
				info, ok := s.Describe(&buf[j], now)
				if ok && !yield(connection(s, &info, i)) {
					return
				}
			}
		}
	}
}

// connection returns what programs are shown of a connection.
func connection(s *datapath.Snapshot, info *datapath.ConnInfo, loop int) Connection {
	b := s.Backends[info.Backend]
	one := Connection{
		Loop: loop, Service: s.Services[b.Service].Name, Protocol: protoName(info.Proto),
		Client: info.Client, Address: info.Service, Backend: b.Name, Target: info.Target,
		State: info.State, Kernel: info.Kernel, Expires: info.Left.Seconds(),
	}
	if info.Source.IsValid() {
		one.Source = &info.Source
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
