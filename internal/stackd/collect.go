package stackd

import (
	"cmp"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/stack"
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
	if int(port) < len(d.cfg.Devices) {
		return d.cfg.Devices[port].Name
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
	d.leader(func(now clock.Time, h *host.Host) {
		for _, a := range h.IP.Addrs() {
			r := AddrReport{
				Device: d.deviceName(a.Dev), Address: a.Prefix, Origin: a.Origin.String(), State: a.State,
				Valid: remaining(now, a.Valid), Preferred: remaining(now, a.Preferred),
			}
			if int(a.Dev) < len(d.devices) {
				info := d.devices[a.Dev].Queues[0].Info()
				r.MAC, r.MTU, r.Link = macText(info.MAC), info.MTU, d.links.of(r.Device)
			}
			out = append(out, r)
		}
	})
	slices.SortStableFunc(out, func(a, b AddrReport) int {
		return cmp.Or(cmp.Compare(d.cfg.device(a.Device), d.cfg.device(b.Device)), a.Address.Addr().Compare(b.Address.Addr()))
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
				Address: n.Addr.Netip(), Device: d.deviceName(n.Port), State: n.State, Since: now.Sub(n.Since).Seconds(), Router: n.Router,
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
	for _, dr := range d.doors {
		a := netip.IPv6Unspecified()
		if dr.Address.IsValid() {
			a = dr.Address
		}
		add(SocketReport{
			Protocol: "tcp", State: "LISTEN", Local: netip.AddrPortFrom(a, dr.Port),
			Remote: netip.AddrPortFrom(unspecified(a), 0), Loop: -1, Service: string(dr.Kind),
		})
	}
	d.each(func(_ clock.Time, h *host.Host) {
		h.TCP.Each(func(c *tcp.Conn) { add(d.tcpSocket(h.Index(), c)) })
		h.UDP.Each(func(s *udp.Socket) { add(d.udpSocket(h.Index(), s)) })
	})
	return out
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
	for _, dr := range d.doors {
		if dr.at(local) {
			return string(dr.Kind)
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
	r.Service = d.service(r.Local)
	r.TCP = &TCPReport{
		Congestion: i.Congestion, Cwnd: i.Cwnd, Ssthresh: threshold(i.Ssthresh), RTT: ms(i.RTT), RTTVar: ms(i.RTTVar), MinRTT: ms(i.MinRTT),
		RTO: ms(i.RTO), MSS: i.MSS, PathMTU: i.PathMTU, Acked: i.BytesAcked, Received: i.BytesReceived, Retransmits: i.Retransmits,
		InFlight: i.InFlight, Pacing: i.Pacing, Delivery: i.DeliveryRate, SendWindow: i.SendWindow, RecvWindow: i.ReceiveWindow,
		SendScale: i.SendScale, RecvScale: i.ReceiveScale, Timestamps: i.Timestamps, SACK: i.SACK, ECN: i.ECN, AccECN: i.AccECN, CE: i.CE,
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
	r.Service = d.service(r.Local)
	return r
}

// Stats returns the counters.
func (d *Daemon) Stats() Stats {
	var t tcp.Stats
	var u udp.Stats
	var loops stack.Stats
	d.each(func(_ clock.Time, h *host.Host) {
		addFields(&t, h.TCP.Stats())
		addFields(&u, h.UDP.Stats())
	})
	for _, l := range d.stack.Loops() {
		loops.Add(l.Stats())
	}
	s := Stats{
		Version: d.opt.Version, Started: d.started, TCP: counters(t), Engine: d.account(),
		Packets: Packets{
			Received: loops.Received, Originated: loops.Originated, Forwarded: loops.Forwarded, Delivered: loops.Delivered,
			Dropped: reasons(loops.Dropped),
		},
		UDP: UDPStats{
			Received: u.Received, Queued: u.Queued, Sent: u.Sent, Lost: u.Lost, Sockets: u.Sockets, Memory: u.Memory, Dropped: reasons(u.Dropped),
		},
	}
	for i := range d.devices {
		s.Devices = append(s.Devices, d.deviceStats(i))
	}
	for _, dr := range d.doors {
		s.Services = append(s.Services, ServiceStats{
			Service: string(dr.Kind), Address: dr.address(), Protocols: dr.protocols(), Stats: dr.server.Stats(),
		})
	}
	return s
}

func (d *Daemon) account() (a gpukern.EngineStats) {
	for _, e := range d.engines {
		a.Add(e.Info())
	}
	return a
}

// deviceStats sums the queues of a device up.
func (d *Daemon) deviceStats(i int) DeviceStats {
	s := DeviceStats{Device: d.cfg.Devices[i].Name, Driver: string(d.devices[i].Driver), Takes: takes(d.whole[i])}
	for _, q := range d.devices[i].Queues {
		n := q.Info().Stats
		s.RxPackets += n.RxPackets
		s.RxBytes += n.RxBytes
		s.RxDropped += n.RxMissed
		s.RxInvalid += n.RxInvalid
		s.TxPackets += n.TxPackets
		s.TxBytes += n.TxBytes
		s.TxInvalid += n.TxInvalid
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

// addFields adds the numbers in v, and in arrays in v, to those of sum.
func addFields[T interface{ tcp.Stats | udp.Stats }](sum *T, v T) {
	to, from := reflect.ValueOf(sum).Elem(), reflect.ValueOf(v)
	for i := range to.NumField() {
		addValue(to.Field(i), from.Field(i))
	}
}

func addValue(to, from reflect.Value) {
	switch {
	case to.Kind() == reflect.Array:
		for i := range to.Len() {
			addValue(to.Index(i), from.Index(i))
		}
	case to.CanUint():
		to.SetUint(to.Uint() + from.Uint())
	default:
		to.SetInt(to.Int() + from.Int())
	}
}

// counters returns the fields of s by their names, as JSON has them here.
func counters(s tcp.Stats) map[string]int64 {
	m := map[string]int64{}
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		f := v.Field(i)
		n := int64(0)
		if f.CanUint() {
			n = int64(f.Uint())
		} else {
			n = f.Int()
		}
		m[snake(v.Type().Field(i).Name)] = n
	}
	return m
}

// snake writes a Go name as JSON has it here: BytesIn is bytes_in.
func snake(name string) string {
	var s strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 && !unicode.IsUpper(rune(name[i-1])) {
			s.WriteByte('_')
		}
		s.WriteRune(unicode.ToLower(r))
	}
	return s.String()
}

// threshold returns the slow-start threshold, 0 where it is as large as it can be: before the first loss.
func threshold(bytes uint64) uint64 {
	if bytes >= math.MaxUint32 {
		return 0
	}
	return bytes
}
