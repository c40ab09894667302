package convert

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// server is a block of that name.
type server struct {
	d       *directive
	sc      *scope
	names   []string // hosts, in the gateway's form
	first   string   // of server_name, for $server_name
	listens []listen
	parts   []part

	verified bool       // clients have shown a valid certificate
	guard    *directive // that closes the server
}

// part is some listeners of a server, at which it is the default or not.
type part struct {
	listeners []string
	fallback  bool
	plain     bool // without TLS
	names     []string
	wildcards bool // another server there has names with *
	standard  bool // ports 80 or 443, which clients leave out of Host
	port      string
}

// listen is one of the addresses of a server.
type listen struct {
	d                              *directive
	addr                           string
	ssl, h2, quic, fallback, proxy bool
}

// endpoint is an address that servers share.
type endpoint struct {
	addrs            []string
	at               pos
	ssl, h2, h3, tcp bool
	proxy            bool
	servers          []*server
	fallback         *server
	listens          []*directive
}

// server reads names and addresses.
func (n *nginx) server(d *directive, outer *scope) *server {
	v := &server{d: d, sc: newScope(outer, d.block)}
	n.l.ok(d.at, "routes[]")
	for _, d := range v.sc.own("server_name") {
		n.serverNames(v, d)
	}
	h2 := v.sc.on("http2") || v.sc.on("spdy")
	for _, name := range []string{"http2", "ssl", "spdy"} {
		for _, d := range v.sc.find(name) {
			n.l.ok(d.at, "listeners[].versions")
		}
	}
	for _, d := range v.sc.own("listen") {
		for _, l := range n.listen(d) {
			l.h2 = l.h2 || h2
			l.ssl = l.ssl || v.sc.on("ssl")
			v.listens = append(v.listens, l)
		}
	}
	if len(v.sc.own("listen")) == 0 {
		v.listens = []listen{{d: d, addr: "0.0.0.0:80"}}
	}
	return v
}

func (n *nginx) serverNames(v *server, d *directive) {
	n.l.ok(d.at, "routes[].hostnames")
	for _, a := range d.texts() {
		if v.first == "" && a != "_" {
			v.first = strings.TrimPrefix(a, ".")
		}
		host := strings.ToLower(a)
		switch rest, dotted := strings.CutPrefix(host, "."); {
		case a == "_" || a == "":
			n.l.ok(d.at, "")
		case strings.HasPrefix(a, "~"):
			n.l.left(d.at, "hosts have no regular expressions", "list the names, or take *.name for all names below one")
		case strings.HasSuffix(a, ".*"):
			n.l.left(d.at, "names cannot end with *", "list the names")
		case dotted && validHost(rest):
			v.names = append(v.names, rest, "*."+rest)
		case validHost(host):
			v.names = append(v.names, host)
		case !strings.Contains(a, "."):
			n.l.ok(d.at, "") // names such as "" and -- stand for none
		default:
			n.l.left(d.at, shorten(a)+" is no name of a host", "")
		}
	}
}

// listen reads an address. One with a range of ports is several.
func (n *nginx) listen(d *directive) (list []listen) {
	l := listen{d: d}
	for _, a := range d.texts()[min(1, len(d.args)):] {
		switch a {
		case "ssl":
			l.ssl = true
		case "http2", "spdy":
			l.h2 = true
		case "quic", "http3":
			l.quic = true
		case "default_server", "default":
			l.fallback = true
		case "proxy_protocol":
			l.proxy = true
		}
	}
	addr := d.arg(0)
	switch {
	case strings.HasPrefix(addr, "unix:"):
		n.l.left(d.at, "listeners are at addresses with a port", "listen at a port of 127.0.0.1")
		return nil
	case strings.Trim(addr, "0123456789-") == "" && addr != "":
		addr = "0.0.0.0:" + addr
	case strings.HasPrefix(addr, "*"):
		addr = "0.0.0.0" + addr[1:]
	case strings.HasPrefix(addr, "localhost"):
		addr = "127.0.0.1" + strings.TrimPrefix(addr, "localhost")
	}
	last := addr[strings.LastIndexByte(addr, ':')+1:]
	from, to, ranged := strings.Cut(last, "-")
	if ranged && atoi(to) >= atoi(from) && atoi(to)-atoi(from) < 64 {
		for port := atoi(from); port <= atoi(to); port++ {
			one := l
			if one.addr = listenAddress(strings.TrimSuffix(addr, last)+fmt.Sprint(port), "80"); one.addr == "" {
				break
			}
			list = append(list, one)
		}
	} else if l.addr = listenAddress(addr, "80"); l.addr != "" {
		list = append(list, l)
	}
	if len(list) == 0 {
		n.l.left(d.at, "it is no address of an interface with a port", "write an IP address and a port")
		return nil
	}
	n.l.ok(d.at, "listeners[]")
	return list
}

// listenAddress returns an address that a listener can have, "" for none.
func listenAddress(s, port string) string {
	host, p, ok := hostPort(s, port)
	a, err := netip.ParseAddr(host)
	if !ok || err != nil || a.Zone() != "" || a.IsMulticast() || a.Is4In6() || a.IsLinkLocalUnicast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return ""
	}
	return netip.AddrPortFrom(a, uint16(atoi(p))).String()
}

// endpoints joins the addresses of servers: nginx chooses among the servers of one address by the host. Addresses that have the
// same servers and settings are one listener.
func (n *nginx) endpoints(servers []*server) (list []*endpoint) {
	byAddr := map[string]*endpoint{}
	var order []*endpoint
	for _, v := range servers {
		for _, l := range v.listens {
			e := byAddr[l.addr]
			if e == nil {
				e = &endpoint{addrs: []string{l.addr}, at: l.d.at}
				byAddr[l.addr], order = e, append(order, e)
			}
			e.ssl, e.h2, e.h3, e.tcp = e.ssl || l.ssl || l.quic, e.h2 || l.h2, e.h3 || l.quic, e.tcp || !l.quic
			e.proxy = e.proxy || l.proxy
			if l.fallback && e.fallback == nil {
				e.fallback = v
			}
			if !slices.Contains(e.servers, v) {
				e.servers = append(e.servers, v)
			}
			e.listens = append(e.listens, l.d)
		}
	}
	byKey := map[string]*endpoint{}
	for _, e := range order {
		if e.fallback == nil {
			e.fallback = e.servers[0]
		}
		_, port, _ := hostPort(e.addrs[0], "")
		key := fmt.Sprintf("%s %v %v %v %v %v %p", port, e.ssl, e.h2, e.h3, e.tcp, e.proxy, e.fallback)
		for _, v := range e.servers {
			key += fmt.Sprintf(" %p", v)
		}
		if same := byKey[key]; same != nil && len(same.addrs) < 64 {
			same.addrs = append(same.addrs, e.addrs...)
			continue
		}
		byKey[key], list = e, append(list, e)
	}
	return list
}

// listener makes the listener of an endpoint, and notes for its servers where they are served.
func (n *nginx) listener(e *endpoint, sc *scope) {
	host, port, _ := hostPort(e.addrs[0], "")
	x := &listener{at: e.at, protocol: protoHTTP, addresses: e.addrs, versions: []string{"1.1"}, timeouts: times{}, limits: counts{}}
	wish := "http-" + port
	if e.ssl {
		wish = "https-" + port
	}
	if a, err := netip.ParseAddr(host); err == nil && !a.IsUnspecified() {
		wish += "-" + host
	}
	if e.ssl && !n.tls(x, e) {
		return
	}
	if e.h2 {
		x.versions = append(x.versions, "2")
	}
	if e.h3 {
		x.versions = append(x.versions, "3")
		if !e.tcp {
			x.versions = []string{"3"}
		}
	}
	x.name = n.m.unique("listener", wish)
	n.listenerKeys(x, e)
	n.m.listeners = append(n.m.listeners, x)
	taken, wildcards := map[string]bool{}, 0
	for _, v := range e.servers {
		for _, h := range v.names {
			if strings.HasPrefix(h, "*.") {
				wildcards++
			}
		}
	}
	for _, v := range e.servers {
		p := part{listeners: []string{x.name}, fallback: v == e.fallback, plain: !e.ssl, standard: port == "80" || port == "443", port: port}
		for _, h := range v.names {
			if !taken[h] {
				taken[h] = true
				p.names = append(p.names, h)
			}
		}
		p.wildcards = wildcards > 0 && len(e.servers) > 1
		n.addPart(v, p)
	}
}

// addPart joins listeners at which a server is the same.
func (n *nginx) addPart(v *server, p part) {
	for i := range v.parts {
		o := &v.parts[i]
		if o.fallback == p.fallback && o.plain == p.plain && o.wildcards == p.wildcards && o.standard == p.standard && slices.Equal(o.names, p.names) {
			o.listeners = append(o.listeners, p.listeners...)
			return
		}
	}
	v.parts = append(v.parts, p)
}

// pick is the scope of the server that decides for a listener: nginx takes what it needs before the host is known from the default
// server.
func (e *endpoint) pick() *scope { return e.fallback.sc }
