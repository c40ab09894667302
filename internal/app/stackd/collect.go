package stackd

import (
	"cmp"
	"math"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/udp"
	"github.com/millrace/millrace/wire"
)

// deviceName returns the name of a port.
func (d *Daemon) deviceName(port uint8) string {
	if port == ip.LoopDev {
		return "lo"
	}
	if links := d.node.Links(); int(port) < len(links) {
		return links[port].Name
	}
	return ""
}

// leader calls f as the owner of the loop that speaks ARP and neighbour discovery for all.
func (d *Daemon) leader(f func(now clock.Time, h *host.Host)) {
	h := d.stack.Group().Hosts[0]
	now := h.Enter()
	defer h.Exit()
	f(now, h)
}

// remaining returns how long it is until t, nil where that is never.
func remaining(now, t clock.Time) *float64 {
	if t == clock.Never {
		return nil
	}
	s := max(0, t.Sub(now)).Seconds()
	return &s
}

// given returns a, nil where it is the zero address.
func given(a wire.Addr) *netip.Addr {
	if a == (wire.Addr{}) {
		return nil
	}
	n := a.Netip()
	return &n
}

// Addrs returns the addresses of the host.
func (d *Daemon) Addrs() (out []AddrReport) {
	links := d.node.Links()
	d.leader(func(now clock.Time, h *host.Host) {
		for _, a := range h.IP.Addrs() {
			r := AddrReport{
				Device: d.deviceName(a.Dev), Address: a.Prefix, Origin: a.Origin.String(), State: a.State,
				Valid: remaining(now, a.Valid), Preferred: remaining(now, a.Preferred),
			}
			if int(a.Dev) < len(links) {
				l := links[a.Dev]
				r.MAC, r.MTU, r.Link = macText(l.MAC), l.MTU, l.State.String()
			}
			out = append(out, r)
		}
	})
	place := func(name string) int {
		return slices.IndexFunc(links, func(l node.Link) bool { return l.Name == name })
	}
	slices.SortStableFunc(out, func(a, b AddrReport) int {
		return cmp.Or(cmp.Compare(place(a.Device), place(b.Device)), a.Address.Addr().Compare(b.Address.Addr()))
	})
	return out
}

// Routes returns the routes of the host, the longest prefix last.
func (d *Daemon) Routes() (out []RouteReport) {
	d.leader(func(_ clock.Time, h *host.Host) {
		for _, r := range h.IP.Routes() {
			out = append(out, RouteReport{
				To: r.Prefix, Via: given(r.Gateway), Device: d.deviceName(r.Dev), Metric: r.Metric,
				Source: given(r.Source), Origin: r.Origin.String(), Reject: r.Reject,
			})
		}
	})
	slices.SortStableFunc(out, func(a, b RouteReport) int {
		return cmp.Or(cmp.Compare(a.To.Addr().BitLen(), b.To.Addr().BitLen()), cmp.Compare(a.To.Bits(), b.To.Bits()),
			a.To.Addr().Compare(b.To.Addr()), cmp.Compare(a.Metric, b.Metric))
	})
	return out
}

// Neighbors returns the neighbour table.
func (d *Daemon) Neighbors() (out []NeighReport) {
	d.leader(func(now clock.Time, h *host.Host) {
		for _, n := range h.IP.Neighbors() {
			r := NeighReport{
				Address: n.Addr.Netip(), Device: d.deviceName(n.Dev), State: n.State, Since: now.Sub(n.Since).Seconds(), Router: n.Router,
			}
			if n.MAC != ([6]byte{}) {
				r.MAC = macText(n.MAC)
			}
			out = append(out, r)
		}
	})
	slices.SortFunc(out, func(a, b NeighReport) int { return a.Address.Compare(b.Address) })
	return out
}

// Sockets returns the sockets that q chooses.
func (d *Daemon) Sockets(q Query) Sockets {
	out := Sockets{Sockets: []SocketReport{}}
	add := func(r SocketReport) {
		switch {
		case !q.wants(&r):
		case len(out.Sockets) < cmp.Or(q.Limit, DefaultLimit):
			out.Sockets = append(out.Sockets, r)
		default:
			out.More++
		}
	}
	for _, l := range d.listeners() {
		a := netip.IPv6Unspecified()
		if l.Address.IsValid() {
			a = l.Address
		}
		add(SocketReport{
			Protocol: "tcp", State: "LISTEN", Local: netip.AddrPortFrom(a, l.Port),
			Remote: netip.AddrPortFrom(unspecified(a), 0), Loop: -1, Service: string(l.Kind),
		})
	}
	for _, l := range d.stack.Listeners() {
		if p := l.Process(); p != nil { // those of services are above
			at := l.Addr().(*net.TCPAddr).AddrPort()
			add(SocketReport{
				Protocol: "tcp", State: "LISTEN", Local: at, Remote: netip.AddrPortFrom(unspecified(at.Addr()), 0), Loop: -1, Process: processReport(p),
			})
		}
	}
	if s := d.shim.Load(); s != nil {
		for _, p := range s.Pairs() {
			add(SocketReport{Protocol: "tcp", State: "ESTAB", Local: p.Local, Remote: p.Remote, Loop: -1, Process: processReport(p.Process)})
		}
	}
	d.each(func(_ clock.Time, h *host.Host) {
		h.TCP.Each(func(c *tcp.Conn) { add(d.tcpSocket(h.Index(), c)) })
		h.UDP.Each(func(s *udp.Socket) { add(d.udpSocket(h.Index(), s)) })
	})
	return out
}

// processReport returns the report of a process, nil for none.
func processReport(p *socket.Process) *ProcessReport {
	if p == nil {
		return nil
	}
	return &ProcessReport{PID: p.PID, UID: p.UID, Command: p.Command, Tier: p.Tier, Seccomp: p.Seccomp}
}

// unspecified returns the unspecified address of a's family.
func unspecified(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// service returns what is at a local address.
func (d *Daemon) service(local netip.AddrPort) string {
	for _, l := range d.listeners() {
		if l.at(local) {
			return string(l.Kind)
		}
	}
	return ""
}

// serviceThatHas returns the service because of which a program cannot bind to a local address, "" for none.
func (d *Daemon) serviceThatHas(local netip.AddrPort) string {
	for _, l := range d.listeners() {
		if l.at(local) || local.Addr().IsUnspecified() && l.Port == local.Port() {
			return string(l.Kind)
		}
	}
	return ""
}

func ends(t wire.Tuple) (local, remote netip.AddrPort) {
	return netip.AddrPortFrom(t.Local.Netip(), t.LocalPort), netip.AddrPortFrom(t.Remote.Netip(), t.RemotePort)
}

func (d *Daemon) tcpSocket(loop int, c *tcp.Conn) SocketReport {
	i := c.Info()
	ms := func(t time.Duration) float64 { return float64(t) / float64(time.Millisecond) }
	r := SocketReport{Protocol: "tcp", State: stateName(i.State), Receive: i.ReceiveQueue, Send: i.SendQueue, Loop: loop}
	r.Local, r.Remote = ends(i.Tuple)
	r.Service, r.Process = d.service(r.Local), processReport(socket.ProcessOfTCP(c.Owner()))
	r.TCP = &TCPReport{
		Congestion: i.Congestion, Cwnd: i.Cwnd, Ssthresh: threshold(i.Ssthresh), RTT: ms(i.RTT), RTTVar: ms(i.RTTVar), MinRTT: ms(i.MinRTT),
		RTO: ms(i.RTO), MSS: i.MSS, PathMTU: i.PathMTU, Acked: i.BytesAcked, Received: i.BytesReceived, Retransmits: i.Retransmits,
		InFlight: i.InFlight, Pacing: i.Pacing, Delivery: i.DeliveryRate, SendWindow: i.SendWindow, RecvWindow: i.ReceiveWindow,
		SendScale: i.SendScale, RecvScale: i.ReceiveScale, Timestamps: i.Timestamps, SACK: i.SACK, ECN: i.ECN, AccECN: i.AccECN, CE: i.CE,
		Recovery: i.Recovery.String(), Sent: i.BytesSent, Retransmitted: i.BytesRetransmitted, Unsent: i.Unsent, SegmentsIn: i.SegmentsIn, SegmentsOut: i.SegmentsOut,
		OutOfOrder: i.OutOfOrder, Duplicates: i.Duplicates, Reorderings: i.Reorderings, Timeouts: i.Timeouts, DeliveredCE: i.DeliveredCE,
		Busy: ms(i.Busy), WindowLimited: ms(i.WindowLimited), BufferLimited: ms(i.BufferLimited),
	}
	return r
}

func (d *Daemon) udpSocket(loop int, s *udp.Socket) SocketReport {
	t := s.Tuple()
	r := SocketReport{Protocol: "udp", State: "UNCONN", Receive: s.Queued(), Loop: loop}
	if t.RemotePort != 0 {
		r.State = "ESTAB"
	}
	r.Local, r.Remote = ends(t)
	r.Service, r.Process = d.service(r.Local), processReport(socket.ProcessOfUDP(s.Owner()))
	return r
}

// Stats returns the counters.
func (d *Daemon) Stats() Stats {
	t, u := d.stack.Stats()
	c := d.node.Counters()
	s := Stats{
		Version: d.opt.Build.Version, Started: d.node.Started(), TCP: counters(t), Engine: d.node.Engine(),
		Packets: Packets{
			Received: c.Received, Originated: c.Originated, Forwarded: c.Forwarded, Delivered: c.Delivered, Dropped: c.Dropped,
		},
		UDP: UDPStats{
			Received: u.Received, Queued: u.Queued, Sent: u.Sent, Lost: u.Lost, Sockets: u.Sockets, Memory: u.Memory, Dropped: reasons(u.Dropped),
		},
	}
	s.Programs = d.shimStats()
	for i, dev := range d.node.DeviceCounters() {
		s.Devices = append(s.Devices, DeviceStats{DeviceCounters: dev, Takes: takes(d.node.TakesAll(i))})
	}
	for _, l := range d.listeners() {
		s.Services = append(s.Services, ServiceStats{
			Service: string(l.Kind), Address: l.address(), Protocols: l.protocols(), Stats: l.server.Stats(),
		})
	}
	return s
}

// reasons names the reasons for which anything was dropped.
func reasons(n [packet.Verdicts]uint64) map[string]uint64 {
	m := map[string]uint64{}
	for v, k := range n {
		if k > 0 && packet.Verdict(v).Dropped() {
			m[packet.Verdict(v).String()] = k
		}
	}
	return m
}

// counters returns the numbers of a struct by the names of their fields, as JSON has them here.
func counters(s any) map[string]int64 {
	m := map[string]int64{}
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		name := socket.SnakeCase(v.Type().Field(i).Name)
		switch f := v.Field(i); {
		case f.CanUint():
			m[name] = int64(f.Uint())
		case f.CanInt():
			m[name] = f.Int()
		}
	}
	return m
}

// threshold returns the slow-start threshold, 0 where it is as large as it can be: before the first loss.
func threshold(bytes uint64) uint64 {
	if bytes >= math.MaxUint32 {
		return 0
	}
	return bytes
}

// macText writes a link address as people do.
func macText(mac [6]byte) string { return net.HardwareAddr(mac[:]).String() }
