package main

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/millrace/millrace/internal/app/stackd"
)

// showAddrs prints addresses as ip addr does, device by device.
func showAddrs(c *console, list []stackd.AddrReport) {
	last := ""
	for i := range list {
		a := &list[i]
		if i == 0 || a.Device != last {
			c.printf("%s\n", c.paint(bold, fmt.Sprintf("%s: mtu %d state %s link/ether %s", a.Device, a.MTU, strings.ToUpper(a.Link), a.MAC)))
			last = a.Device
		}
		family := "inet6"
		if a.Address.Addr().Is4() {
			family = "inet"
		}
		c.printf("    %s %s scope %s origin %s state %s\n       valid_lft %s preferred_lft %s\n",
			family, a.Address, scope(a.Address.Addr()), a.Origin, a.State, addressLifetime(a.Valid), addressLifetime(a.Preferred))
	}
}

// scope names the scope of an address.
func scope(a netip.Addr) string {
	switch {
	case a.IsLoopback():
		return "host"
	case a.IsLinkLocalUnicast():
		return "link"
	}
	return "global"
}

// addressLifetime formats seconds as ip does; nil is for ever.
func addressLifetime(s *float64) string {
	if s == nil {
		return "forever"
	}
	return fmt.Sprintf("%.0fsec", *s)
}

// routeLine formats a route as ip route does.
func routeLine(r *stackd.RouteReport) string {
	var s strings.Builder
	if r.Reject {
		s.WriteString("unreachable ")
	}
	if r.To.Bits() == 0 {
		s.WriteString("default")
	} else if r.To.IsSingleIP() {
		s.WriteString(r.To.Addr().String())
	} else {
		s.WriteString(r.To.String())
	}
	if r.Via != nil {
		fmt.Fprintf(&s, " via %s", r.Via)
	}
	fmt.Fprintf(&s, " dev %s proto %s", r.Device, r.Origin)
	if r.Via == nil {
		s.WriteString(" scope link")
	}
	if r.Source != nil {
		fmt.Fprintf(&s, " src %s", r.Source)
	}
	if r.Metric != 0 {
		fmt.Fprintf(&s, " metric %d", r.Metric)
	}
	return s.String()
}

// neighLine formats a neighbour as ip neigh does.
func neighLine(n *stackd.NeighReport) string {
	s := fmt.Sprintf("%s dev %s", n.Address, n.Device)
	if n.MAC != "" {
		s += " lladdr " + n.MAC
	}
	if n.Router {
		s += " router"
	}
	return s + " " + strings.ToUpper(n.State)
}

// showSockets prints sockets as ss does.
func showSockets(c *console, list *stackd.Sockets, details bool) {
	local, remote := len("Local Address:Port"), len("Peer Address:Port")
	for i := range list.Sockets {
		local = max(local, len(socketAddr(list.Sockets[i].Local)))
		remote = max(remote, len(socketAddr(list.Sockets[i].Remote)))
	}
	columns := fmt.Sprintf("%%-5s %%-10s %%7s %%7s  %%-%ds  %%-%ds  %%4s  %%s\n", local, remote)
	c.printf("%s", c.paint(bold, fmt.Sprintf(columns, "Netid", "State", "Recv-Q", "Send-Q", "Local Address:Port", "Peer Address:Port", "Loop", serviceHeading(list))))
	for i := range list.Sockets {
		s := &list.Sockets[i]
		loop := "all"
		if s.Loop >= 0 {
			loop = fmt.Sprint(s.Loop)
		}
		line := fmt.Sprintf(columns, s.Protocol, s.State, fmt.Sprint(s.Receive), fmt.Sprint(s.Send), socketAddr(s.Local), socketAddr(s.Remote), loop, strings.TrimSpace(s.Service+"  "+processText(s.Process)))
		c.printf("%s\n", strings.TrimRight(line, " \n"))
		if details && s.TCP != nil {
			c.printf("\t %s\n", infoLine(s.TCP))
		}
	}
	if list.More > 0 {
		c.printf("and %s more (see --limit)\n", group(uint64(list.More)))
	}
}

// serviceHeading names the last column: processes have theirs where there are any.
func serviceHeading(list *stackd.Sockets) string {
	if slices.ContainsFunc(list.Sockets, func(s stackd.SocketReport) bool { return s.Process != nil }) {
		return "Service or process"
	}
	return "Service"
}

// processText formats a process: command, pid and uid; nothing for none.
func processText(p *stackd.ProcessReport) string {
	if p == nil {
		return ""
	}
	command := strings.Map(func(r rune) rune { // it may choose its name
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, p.Command)
	tier := ""
	switch {
	case p.Seccomp:
		tier = ", seccomp"
	case p.Tier > 0:
		tier = ", rings"
	}
	return fmt.Sprintf("%s(pid=%d, uid=%d%s)", command, p.PID, p.UID, tier)
}

// socketAddr formats an address and port as ss does: * is any.
func socketAddr(a netip.AddrPort) string {
	port := "*"
	if a.Port() != 0 {
		port = fmt.Sprint(a.Port())
	}
	switch addr := a.Addr(); {
	case addr == netip.IPv6Unspecified():
		return "*:" + port
	case addr.Is6():
		return "[" + addr.String() + "]:" + port
	default:
		return addr.String() + ":" + port
	}
}

// infoLine formats the TCP state of a connection as ss -i does; windows and bytes in flight are bytes here.
func infoLine(t *stackd.TCPReport) string {
	var s []string
	for _, o := range []struct {
		on   bool
		name string
	}{{t.Timestamps, "ts"}, {t.SACK, "sack"}, {t.ECN, "ecn"}, {t.AccECN, "accecn"}} {
		if o.on {
			s = append(s, o.name)
		}
	}
	s = append(s, t.Congestion,
		fmt.Sprintf("wscale:%d,%d", t.SendScale, t.RecvScale), fmt.Sprintf("rto:%.4g", t.RTO), fmt.Sprintf("rtt:%.4g/%.4g", t.RTT, t.RTTVar),
		fmt.Sprintf("mss:%d", t.MSS), fmt.Sprintf("pmtu:%d", t.PathMTU), fmt.Sprintf("cwnd:%d", t.Cwnd))
	for _, o := range []struct {
		name string
		n    uint64
	}{
		{"ssthresh", t.Ssthresh},
		{"bytes_acked", t.Acked},
		{"bytes_received", t.Received},
		{"in_flight", t.InFlight},
		{"bytes_sent", t.Sent},
		{"bytes_retrans", t.Retransmitted},
		{"notsent", uint64(t.Unsent)},
		{"segs_out", uint64(t.SegmentsOut)},
		{"segs_in", uint64(t.SegmentsIn)},
		{"retrans", t.Retransmits},
		{"rto_count", uint64(t.Timeouts)},
		{"dsack_dups", uint64(t.Duplicates)},
		{"reord_seen", uint64(t.Reorderings)},
		{"rcv_ooopack", uint64(t.OutOfOrder)},
		{"ce", uint64(t.CE)},
		{"snd_wnd", uint64(t.SendWindow)},
		{"rcv_wnd", uint64(t.RecvWindow)},
	} {
		if o.n != 0 {
			s = append(s, fmt.Sprintf("%s:%d", o.name, o.n))
		}
	}
	for _, o := range []struct {
		name string
		n    uint64
	}{{"pacing_rate", t.Pacing}, {"delivery_rate", t.Delivery}} {
		if o.n != 0 {
			s = append(s, fmt.Sprintf("%s %sbps", o.name, group(8*o.n)))
		}
	}
	for _, o := range []struct {
		name string
		ms   float64
	}{{"busy", t.Busy}, {"rwnd_limited", t.WindowLimited}, {"sndbuf_limited", t.BufferLimited}} {
		if o.ms != 0 {
			s = append(s, fmt.Sprintf("%s:%.4gms", o.name, o.ms))
		}
	}
	return strings.Join(append(s, fmt.Sprintf("minrtt:%.4g", t.MinRTT)), " ")
}

// showStackStats prints the counters.
func showStackStats(c *console, s *stackd.Stats) {
	head := func(text string) { c.printf("%s\n", c.paint(bold, text)) }
	head("packets")
	c.printf("  received %s + originated %s = sent %s + delivered %s + dropped %s\n", group(s.Packets.Received), group(s.Packets.Originated),
		group(s.Packets.Forwarded), group(s.Packets.Delivered), group(total(s.Packets.Dropped)))
	if len(s.Packets.Dropped) > 0 {
		c.printf("  dropped: %s\n", tally(s.Packets.Dropped))
	}
	head("devices")
	for _, d := range s.Devices {
		c.printf("  %s %s, takes %s: received %s (%s bytes), sent %s (%s bytes), rx missed %s, rx invalid %s, tx invalid %s\n", d.Name, d.Driver,
			d.Takes, group(d.RxPackets), group(d.RxBytes), group(d.TxPackets), group(d.TxBytes), group(d.RxMissed), group(d.RxInvalid), group(d.TxInvalid))
	}
	head("tcp")
	for _, name := range slices.Sorted(maps.Keys(s.TCP)) {
		if n := s.TCP[name]; n != 0 {
			c.printf("  %-20s %15s\n", name, group(uint64(n)))
		}
	}
	head("udp")
	c.printf("  received %s, sent %s, receive buffer errors %s, sockets %d, memory %s bytes\n", group(s.UDP.Received), group(s.UDP.Sent), group(s.UDP.Lost),
		s.UDP.Sockets, group(uint64(s.UDP.Memory)))
	if len(s.UDP.Dropped) > 0 {
		c.printf("  dropped: %s\n", tally(s.UDP.Dropped))
	}
	if s.Programs != nil {
		head("programs")
		showShim(c, s.Programs)
	}
	head("services")
	for _, v := range s.Services {
		c.printf("  %-8s %-22s %-8s connections %d now, %s total, %s rejected; datagrams %s, %s unanswered; bytes in %s, out %s\n",
			v.Service, v.Address, v.Protocols, v.Active, group(v.Accepted), group(v.Refused), group(v.Datagrams), group(v.Unanswered),
			group(v.BytesIn), group(v.BytesOut))
	}
	c.printf("%s %s (%s), up %s\n", c.paint(bold, "engine"), s.Engine.Name, s.Engine.Ops, time.Since(s.Started).Round(time.Second))
}

// showShim prints the counters of millrace exec, and what each user has.
func showShim(c *console, s *stackd.ShimStats) {
	for _, name := range slices.Sorted(maps.Keys(s.Counters)) {
		if n := s.Counters[name]; n != 0 {
			c.printf("  %-20s %15s\n", name, group(uint64(n)))
		}
	}
	for _, u := range s.Users {
		c.printf("  uid %d: sockets %d, channels %d; denied %s, beyond a limit %s\n", u.UID, u.Sockets, u.Channels, group(u.Denied), group(u.Limited))
	}
}

// total adds the values of a tally up.
func total(m map[string]uint64) (n uint64) {
	for _, v := range m {
		n += v
	}
	return n
}
