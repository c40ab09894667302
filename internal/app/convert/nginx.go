package convert

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// nginx translates the directives of nginx.
type nginx struct {
	s *source
	l *ledger
	m *model

	upstreams map[string]*directive
	zones     map[string]*zone      // of limit_req_zone
	connZones map[string]*directive // of limit_conn_zone
	pools     map[string]string     // names of pools, by what they are made of
	limits    map[string]string     // names of rate limits, the same
	streams   map[string]*directive // upstreams of stream
	caches    map[string]*cacheZone // by keys_zone
	maps      map[string]*directive // by variable
	geos      map[string]*directive
	servers   []*server
	schemes   map[string]bool // variables that have X-Forwarded-Proto of a proxy, or the scheme
}

// zone is the key and the rate of a limit_req_zone.
type zone struct {
	limit rateLimit
	at    pos
	known bool // the key has a counterpart
}

func convertNginx(s *source, l *ledger, m *model, by *inclusion) {
	n := &nginx{
		s: s, l: l, m: m, upstreams: map[string]*directive{}, schemes: map[string]bool{}, maps: map[string]*directive{}, geos: map[string]*directive{}, zones: map[string]*zone{}, connZones: map[string]*directive{},
		pools: map[string]string{}, limits: map[string]string{}, caches: map[string]*cacheZone{}, streams: map[string]*directive{},
	}
	list := parseNginx(s, l, 0, by)
	if n.check(list, ""); len(s.problems) > 0 {
		return
	}
	n.classify(list)
	n.constants(list)
	main := newScope(nil, list)
	if len(main.own("server"))+len(main.own("upstream")) > 0 { // a file of conf.d
		n.http(main)
	}
	for _, d := range main.own("http") {
		l.ok(d.at, "")
		n.http(newScope(main, d.block))
	}
	for _, d := range main.own("stream") {
		l.ok(d.at, "")
		n.stream(newScope(main, d.block))
	}
}

// classify notes the result of directives that the tables decide, in all blocks.
func (n *nginx) classify(list []*directive) {
	for _, d := range list {
		if why, ok := nginxUnneeded[d.name]; ok {
			n.l.unneeded(d.at, why)
			n.unneeded(d.block, why)
			continue
		}
		if g, ok := nginxLeft[d.name]; ok {
			n.l.left(d.at, g[0], g[1])
			for _, inner := range d.block {
				n.l.left(inner.at, g[0], "")
			}
			continue
		}
		n.classify(d.block)
	}
}

func (n *nginx) unneeded(list []*directive, why string) {
	for _, d := range list {
		n.l.unneeded(d.at, why)
		n.unneeded(d.block, why)
	}
}

// http translates the block of that name.
func (n *nginx) http(sc *scope) {
	for _, d := range sc.own("upstream") {
		n.upstreams[d.arg(0)] = d
		n.l.ok(d.at, "pools[]")
	}
	n.readZones(sc)
	n.readCaches(sc)
	for _, d := range sc.own("map") {
		n.readMap(d)
	}
	n.logs(sc)
	n.readResolver(sc)
	for _, d := range sc.own("geo") {
		n.geos[strings.TrimPrefix(d.arg(len(d.args)-1), "$")] = d
	}
	n.servers = nil
	for _, d := range sc.own("server") {
		n.servers = append(n.servers, n.server(d, sc))
	}
	for _, e := range n.endpoints(n.servers) {
		n.listener(e, sc)
	}
	for _, v := range n.servers {
		n.routesOf(v)
	}
	n.tablesUnused(sc)
	n.upstreamsUnused(sc)
}

// upstreamsUnused notes directives of upstreams that no location names.
func (n *nginx) upstreamsUnused(sc *scope) {
	for _, d := range sc.own("upstream") {
		for _, inner := range d.block {
			if n.l.lines[inner.at] != nil && n.l.lines[inner.at].Result == "" {
				n.l.unneeded(inner.at, "no location names the upstream")
			}
		}
	}
}

// readZones reads the zones of limits.
func (n *nginx) readZones(sc *scope) {
	for _, d := range sc.own("limit_req_zone") {
		name, z := "", &zone{at: d.at}
		z.known = n.zoneKey(d.arg(0), &z.limit)
		for _, a := range d.texts()[min(1, len(d.args)):] {
			if v, ok := strings.CutPrefix(a, "zone="); ok {
				name, _, _ = strings.Cut(v, ":")
			}
			if v, ok := strings.CutPrefix(a, "rate="); ok {
				z.limit.interval = time.Second
				if per, ok := strings.CutSuffix(v, "r/m"); ok {
					z.limit.requests, z.limit.interval = int64(atoi(per)), time.Minute
				} else {
					z.limit.requests = int64(atoi(strings.TrimSuffix(v, "r/s")))
				}
			}
		}
		z.limit.at = d.at
		switch {
		case name == "" || z.limit.requests < 1 || z.limit.requests > 1_000_000:
			n.l.left(d.at, "its zone or its rate is none", "write zone=NAME:SIZE rate=Nr/s")
			z.known, z.limit.requests = false, 0
		case !z.known:
			z.limit.by = "all"
			n.l.changed(d.at, "rate_limits[]", "the gateway does not count by "+d.arg(0)+": all requests count together")
		default:
			n.l.ok(d.at, "rate_limits[]")
		}
		n.zones[name] = z
	}
	for _, d := range sc.own("limit_conn_zone") {
		for _, a := range d.texts() {
			if v, ok := strings.CutPrefix(a, "zone="); ok {
				name, _, _ := strings.Cut(v, ":")
				n.connZones[name] = d
			}
		}
		if d.arg(0) == "$server_name" {
			n.l.ok(d.at, "routes[].concurrency")
		} else {
			n.l.changed(d.at, "routes[].concurrency", "requests at a time are not counted by "+d.arg(0)+": those of all clients count together")
		}
	}
}

// zoneKey translates the key of a zone.
func (n *nginx) zoneKey(key string, to *rateLimit) bool {
	name := strings.Trim(strings.TrimPrefix(key, "$"), "{}")
	switch {
	case key == "$binary_remote_addr" || key == "$remote_addr":
		to.prefix6 = 128 // nginx counts whole addresses
	case strings.HasPrefix(key, "$http_") && validToken(name[5:]):
		to.by, to.key = "header", strings.ReplaceAll(name[5:], "_", "-")
	case strings.HasPrefix(key, "$cookie_") && validToken(name[7:]):
		to.by, to.key = "cookie", name[7:]
	case strings.HasPrefix(key, "$arg_") && validToken(name[4:]):
		to.by, to.key = "query", name[4:]
	case key == "$server_name":
		to.by, to.key = "value", "${hostname}"
	default:
		e := (&scope{}).expand(key, "")
		if e.unknown != "" || !strings.Contains(e.text, "${") || strings.Contains(e.text, "${request_id}") || !validValue(e.text) {
			return false
		}
		to.by, to.key = "value", e.text
	}
	return true
}

func validToken(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

// readMap notes the result of a map: that of Upgrade is what the gateway does by itself.
func (n *nginx) readMap(d *directive) {
	if d.arg(0) == "$http_upgrade" {
		n.l.unneeded(d.at, "WebSocket is passed on by every route")
		n.unneeded(d.block, "WebSocket is passed on by every route")
		return
	}
	if d.arg(0) == "$http_x_forwarded_proto" && strings.HasPrefix(d.arg(1), "$") && slices.ContainsFunc(d.block, func(e *directive) bool { return e.name == "default" && e.arg(0) == "$scheme" }) {
		n.schemes[d.arg(1)] = true
		n.l.changed(d.at, "listeners[].forwarded", "what proxies in forwarded.trusted say is continued")
		n.unneeded(d.block, "it is what the gateway does")
		return
	}
	n.maps[strings.TrimPrefix(d.arg(1), "$")] = d
}

// tablesUnused notes maps and geo blocks that no translated condition has used.
func (n *nginx) tablesUnused(sc *scope) {
	for _, d := range slices.Concat(sc.own("map"), sc.own("geo")) {
		if line := n.l.lines[d.at]; line == nil || line.Result != "" {
			continue
		}
		n.l.left(d.at, "the gateway has no tables of values", "write routes or rules for the cases, with matches by host, path, header, query or clients")
		for _, inner := range d.block {
			n.l.left(inner.at, "it is of a table", "")
		}
	}
}

// table notes that a condition is made of a map or a geo block.
func (n *nginx) table(d *directive) {
	n.l.ok(d.at, "routes[].rules[].matches[]")
	for _, inner := range d.block {
		n.l.ok(inner.at, "routes[].rules[].matches[]")
	}
}

// readResolver translates the name servers.
func (n *nginx) readResolver(sc *scope) {
	var walk func(list []*directive)
	walk = func(list []*directive) {
		for _, d := range list {
			if d.name != "resolver" {
				walk(d.block)
				continue
			}
			n.l.ok(d.at, "resolver.servers")
			for _, a := range d.texts() {
				if v, ok := strings.CutPrefix(a, "valid="); ok {
					if t, ok := nginxTime(v); ok {
						n.m.maxTTL = min(max(t, time.Second), 7*24*time.Hour)
					}
					continue
				}
				if strings.Contains(a, "=") {
					continue
				}
				host, port, ok := hostPort(a, "53")
				ip, err := netip.ParseAddr(host)
				if !ok || err != nil || ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast() || ip.Is4In6() {
					n.l.changed(d.at, "resolver.servers", "name servers are addresses: "+shorten(a)+" is left out")
					continue
				}
				if addr := netip.AddrPortFrom(ip, uint16(atoi(port))).String(); !slices.Contains(n.m.resolvers, addr) && len(n.m.resolvers) < 16 {
					n.m.resolvers = append(n.m.resolvers, addr)
				}
			}
		}
	}
	walk(sc.list)
}

// constants notes `set`: variables with one value are replaced by it where they are used.
func (n *nginx) constants(list []*directive) {
	for _, d := range list {
		switch {
		case d.name != "set":
			n.constants(d.block)
		case len(d.args) == 2 && len(pieces(d.arg(1))) == 1 && strings.HasPrefix(d.arg(0), "$"):
			n.l.ok(d.at, "")
		case d.arg(1) == "$fastcgi_path_info":
			n.l.ok(d.at, "") // PATH_INFO
		default:
			n.l.left(d.at, "rules have no variables of their own", "write rules for the cases")
		}
	}
}
