package convert

import (
	"slices"
	"strings"
)

// stream translates the block of that name: servers that pass TCP on, or TLS by its server name.
func (n *nginx) stream(sc *scope) {
	for _, d := range sc.own("upstream") {
		n.streams[d.arg(0)] = d
		n.l.ok(d.at, "pools[]")
	}
	n.logs(sc)
	n.readResolver(sc)
	maps := map[string]*directive{}
	for _, d := range sc.own("map") {
		if d.arg(0) == "$ssl_preread_server_name" && strings.HasPrefix(d.arg(1), "$") {
			maps[d.arg(1)] = d
			continue
		}
		n.readMap(d)
	}
	for _, d := range sc.own("server") {
		n.streamServer(d, newScope(sc, d.block), maps)
	}
	n.upstreamsUnused(sc)
}

// streamServer translates a server of stream.
func (n *nginx) streamServer(d *directive, sc *scope, maps map[string]*directive) {
	n.l.ok(d.at, "tcp_routes[]")
	x := &listener{at: d.at, protocol: protoTCP, timeouts: times{}, limits: counts{}}
	for _, l := range sc.own("listen") {
		if l.has("udp") {
			n.l.left(l.at, "listeners are of TCP", "write a service with protocol: udp, on devices (docs/gateway.md)")
			continue
		}
		if l.has("ssl") {
			n.l.left(l.at, "TLS ends at listeners of HTTP alone", "pass TLS through to the backend, or end it there")
			continue
		}
		for _, one := range n.listen(l) {
			if one.proxy {
				x.proxyFrom = []string{"0.0.0.0/0", "::/0"}
			}
			if !slices.Contains(x.addresses, one.addr) && len(x.addresses) < 64 && !n.listens(one.addr) {
				x.addresses = append(x.addresses, one.addr)
			}
		}
	}
	pass := sc.own("proxy_pass")
	if len(pass) == 0 || len(x.addresses) == 0 {
		n.l.left(d.at, "it passes nothing on, or listens nowhere", "")
		return
	}
	if t := sc.last("proxy_timeout"); t != nil {
		if v, ok := nginxTime(t.arg(0)); ok {
			x.timeouts["stream"] = min(v, longest)
			n.l.ok(t.at, "listeners[].timeouts.stream")
		}
	}
	for _, t := range sc.find("preread_timeout") {
		n.l.ok(t.at, "listeners[].timeouts.handshake")
	}
	n.streamLists(sc, x)
	preread := sc.last("ssl_preread")
	for _, p := range sc.find("ssl_preread") {
		n.l.ok(p.at, "listeners[].protocol")
	}
	if m := maps[pass[0].arg(0)]; m != nil && preread != nil && preread.arg(0) == "on" {
		n.byServerName(d, sc, x, m, pass[0])
		return
	}
	name, ok := n.streamPool(sc, pass[0].arg(0), pass[0])
	if !ok {
		return
	}
	n.l.ok(pass[0].at, "tcp_routes[].backend_refs")
	x.name = n.m.unique("listener", "tcp-"+x.addresses[0][strings.LastIndexByte(x.addresses[0], ':')+1:])
	n.m.listeners = append(n.m.listeners, x)
	n.m.tcpRoutes = append(n.m.tcpRoutes, &streamRoute{at: d.at, name: n.m.unique("route", x.name), listeners: []string{x.name}, pools: []weighted{{name, 1}}})
}

// listens reports whether a listener has the address already.
func (n *nginx) listens(addr string) bool {
	return slices.ContainsFunc(n.m.listeners, func(x *listener) bool { return slices.Contains(x.addresses, addr) })
}

// streamLists translates allow and deny, for connections.
func (n *nginx) streamLists(sc *scope, x *listener) {
	s := &site{n: n}
	var g guard
	s.lists(&loc{sc: sc}, &g)
	x.sources = g.sources
	for _, d := range sc.find("limit_conn") {
		x.limits["connections"] = int64(atoi(d.arg(1)))
		n.l.changed(d.at, "listeners[].limits.connections", "connections of all clients count together, which refuses more")
		if x.limits["connections"] == 0 {
			x.sources = n.l.closeSources(d.at, "its number is none", "write listeners[].limits.connections")
		}
	}
	if d := s.unexpressed(&loc{sc: sc}); d != nil {
		why := guardReason(d)
		x.sources = n.l.closeSources(d.at, why[0], why[1])
	}
}

// byServerName translates a map of server names to upstreams.
func (n *nginx) byServerName(d *directive, sc *scope, x *listener, m, pass *directive) {
	x.protocol = protoTLS
	x.name = n.m.unique("listener", "tls-"+x.addresses[0][strings.LastIndexByte(x.addresses[0], ':')+1:])
	routes := 0
	n.l.ok(m.at, "tls_routes[]")
	n.l.ok(pass.at, "tls_routes[].backend_refs")
	seen := map[string]bool{}
	for _, e := range m.block {
		var hosts []string
		name := strings.ToLower(e.name)
		switch rest, dotted := strings.CutPrefix(name, "."); {
		case name == "default":
		case name == "hostnames" || name == "volatile":
			n.l.ok(e.at, "")
			continue
		case dotted && validHost(rest):
			hosts = []string{rest, "*." + rest}
		case validHost(name):
			hosts = []string{name}
		default:
			n.l.left(e.at, "it is no server name, or a regular expression", "list the names, or take *.name for all names below one")
			continue
		}
		hosts = slices.DeleteFunc(hosts, func(h string) bool { return seen[h] })
		if len(hosts) == 0 && name != "default" || name == "default" && seen[""] {
			n.l.unneeded(e.at, "the name has a route already")
			continue
		}
		for _, h := range hosts {
			seen[h] = true
		}
		seen[""] = seen[""] || name == "default"
		pool, ok := n.streamPool(sc, e.arg(0), e)
		if !ok {
			continue
		}
		n.l.ok(e.at, "tls_routes[]")
		routes++
		n.m.tlsRoutes = append(n.m.tlsRoutes, &streamRoute{at: e.at, name: n.m.unique("route", name), listeners: []string{x.name}, hosts: hosts, pools: []weighted{{pool, 1}}})
	}
	if routes == 0 {
		n.l.left(d.at, "no server name leads anywhere", "")
		return
	}
	n.m.listeners = append(n.m.listeners, x)
}

// streamPool returns the pool of a target of TCP.
func (n *nginx) streamPool(sc *scope, to string, d *directive) (string, bool) {
	p := &pool{at: d.at, protocol: protoTCP, idle: -1, timeouts: times{}}
	wish := to
	if up := n.streams[to]; up != nil {
		p.at = up.at
		n.upstream(p, up, "")
		if p.hashBy != "" && p.hashBy != "client" {
			p.hashBy, p.hashName, p.balance = "", "", ""
			n.l.left(up.at, "connections are hashed by their client alone", "")
		}
		p.sticky = ""
	} else if addr, ok := backendAddress(to, ""); ok {
		p.backends = []backend{{address: addr, weight: -1}}
	}
	if len(p.backends) == 0 {
		n.l.left(d.at, "it is no address of a server with a port", "")
		return "", false
	}
	if t := sc.last("proxy_connect_timeout"); t != nil {
		if v, ok := nginxTime(t.arg(0)); ok {
			p.timeouts["connect"] = min(v, longest)
			n.l.ok(t.at, "pools[].timeouts.connect")
		}
	}
	if t := sc.last("proxy_protocol"); t != nil {
		if t.arg(0) == "on" {
			p.proxy = "v1"
		}
		n.l.ok(t.at, "pools[].proxy_protocol")
	}
	if t := sc.last("proxy_ssl"); t != nil && t.arg(0) == "on" {
		n.l.left(t.at, "TLS towards backends is of HTTP alone", "")
		return "", false
	}
	return n.enter(p, wish), true
}
