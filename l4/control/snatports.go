package control

import (
	"net/netip"
	"time"

	"github.com/millrace/millrace/l4/datapath"
)

// SNATStatus is the use of the source ports of an SNAT address. A port may be in use once for each backend address,
// port and protocol.
type SNATStatus struct {
	Address netip.Addr `json:"address"`
	Ports   int        `json:"ports"`        // to each backend: those of snat_ports
	Open    uint64     `json:"open_ports"`   // of open connections, to all backends
	Closed  uint64     `json:"closed_ports"` // of closed connections, to all backends: reclaimed when ports are short

	UsedPercent int             `json:"used_percent"`           // of the ports to the backend that has the most open connections, in the loop that has the most
	MostUsedBy  *netip.AddrPort `json:"most_used_by,omitempty"` // that backend, with port 0 where it has a range; none without open connections

	Reclaimed Reclaimed `json:"reclaimed_ports"`
}

// Reclaimed counts ports that were used again early because ports were short.
type Reclaimed struct {
	Resting  uint64 `json:"resting"`   // of connections that were forgotten, and that the backend may have held in TIME-WAIT
	Closed   uint64 `json:"closed"`    // of closed connections that were remembered
	HalfOpen uint64 `json:"half_open"` // of half-open connections, which were evicted for that
}

// mostSNATs bounds what status and metrics say of SNAT addresses.
const mostSNATs = 256

// snatStatus returns the use of the ports of the configuration's SNAT addresses, of the first mostSNATs. The caller
// holds g.mu.
func (g *Gateway) snatStatus(s *datapath.Snapshot) []SNATStatus {
	list := make([]SNATStatus, 0, min(len(g.cfg.SNAT), mostSNATs))
	for _, a := range g.cfg.SNAT[:cap(list)] {
		use := s.PortStats(uint16(g.reg.snats.of[a]), g.cfg.SNATPorts.Size()/len(g.handlers)/g.cfg.Gateways())
		st := SNATStatus{
			Address: a, Ports: g.cfg.SNATPorts.Size() / g.cfg.Gateways(), Open: use.Open, Closed: use.Closed,
			UsedPercent: int(100 * use.Most / use.Of),
			Reclaimed:   Reclaimed{use.ReclaimedResting, use.ReclaimedClosed, use.ReclaimedHalfOpen},
		}
		if to, port := s.EndpointAt(use.Endpoint); use.Most > 0 && !to.Free() {
			at := netip.AddrPortFrom(to.Addr(), port)
			st.MostUsedBy = &at
		}
		list = append(list, st)
	}
	return list
}

// A warning comes when open connections use more than this of the ports to a backend, and once in so long while that
// lasts.
const (
	portsShort     = 90 // percent
	portsShortLogs = time.Minute
)

// warnOfPorts reports SNAT addresses whose ports are short. The caller holds g.mu.
func (g *Gateway) warnOfPorts(now time.Time) {
	if g.opt.OnPortsShort == nil || now.Sub(g.portsWarned) < portsShortLogs {
		return
	}
	var short []SNATStatus
	for _, st := range g.snatStatus(g.snap.Load()) {
		if st.UsedPercent > portsShort {
			short = append(short, st)
		}
	}
	if len(short) > 0 {
		g.portsWarned = now
		g.opt.OnPortsShort(short)
	}
}
