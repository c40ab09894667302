package config

import (
	"net/netip"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/suggest"
)

// checkParts reports sections that need others.
func (d *checker) checkParts(c *Config) {
	k := d.places.keys
	if k[""].Kind != yaml.MappingNode { // it could not be read
		return
	}
	stacked := c.Stack == StackDevices && k["listeners"] != nil
	switch {
	case k["services"] == nil && k["listeners"] == nil:
		d.Fail(k[""], "services are at L4, listeners at L7", "the configuration has neither services nor listeners")
	case k["devices"] == nil && k["services"] != nil:
		d.Fail(k[""], "", "the configuration lacks the key \"devices\", which services need")
	case k["devices"] == nil && stacked:
		d.Fail(k[""], "", "the configuration lacks the key \"devices\", which `stack: devices` needs")
	case k["devices"] != nil && k["services"] == nil && !stacked:
		d.Fail(k["devices"], "set `stack: devices`, or leave them out", "devices are not used: there are no services, and listeners have `stack: kernel`")
	}
	for _, key := range []string{"routes", "tls_routes", "tcp_routes", "pools", "loops", "access_log", "tracing", "rate_limits", "caches", "stack", "resolver"} {
		if k[key] != nil && k["listeners"] == nil {
			d.Fail(k[key], "add listeners, or leave it out", "%s is for listeners, and there are none", key)
		}
	}
	if k["loops"] != nil && c.Stack == StackDevices {
		d.Fail(k["loops"], "leave it out", "loops is for `stack: kernel`; with devices there is a loop for each queue")
	}
	d.checkStack(c, stacked)
	d.checkAccessLog(c)
	d.checkAdmin(c)
}

// checkStack reports addresses and routes of the userspace stack that do not fit it.
func (d *checker) checkStack(c *Config, stacked bool) {
	p := &d.places
	some := false
	for _, dev := range p.devices {
		if dev.addresses == nil {
			continue
		}
		some = true
		if c.Stack == StackKernel {
			d.Fail(dev.addresses, "set `stack: devices`", "addresses are for `stack: devices`; with the kernel's stack interfaces have those that `ip address` shows")
		}
	}
	if stacked && !some && len(p.devices) > 0 {
		d.Fail(p.devices[0].node, "", "`stack: devices` needs addresses at a device")
	}
	if p.keys["network"] != nil && c.Stack == StackKernel {
		d.Fail(p.keys["network"], "set `stack: devices`, or leave it out", "network is for `stack: devices`: the kernel has its own routes")
	}
	for i, r := range c.Network.Routes {
		if r.Device != "" && !slices.ContainsFunc(c.Devices, func(dev Device) bool { return dev.Name == r.Device }) && len(p.devices) > 0 {
			d.Fail(p.networkRoutes[i], "", "unknown device %q", r.Device)
		}
	}
}

// checkListeners reports what of listeners does not fit together, nor with services.
func (d *checker) checkListeners(c *Config, services *fronts) {
	names, lines := map[string]int{}, map[front]int{}
	for i := range c.Listeners {
		l, at := &c.Listeners[i], &d.places.listeners[i]
		d.unique(names, l.Name, at.name, "listener")
		d.checkListener(l, at)
		d.noteFiles(c, at.certificates, append(at.files, at.guard.files...))
		for j, a := range l.Addresses {
			ports := PortRange{a.Port(), a.Port()}
			for _, proto := range l.Networks() {
				key := front{AddrPortsFrom(a.Addr(), ports), proto}
				if line, ok := lines[key]; ok {
					d.Fail(at.addresses[j], "", "address %s/%s is already of a listener on line %d", a, proto, line)
					continue
				}
				lines[key] = at.addresses[j].Line
				if line, ok := services.of(a.Addr(), ports, proto); ok {
					d.Fail(at.addresses[j], "", "address %s/%s is already served on line %d", a, proto, line)
				}
			}
			if c.Stack == StackDevices && !d.places.has(a.Addr()) {
				d.Fail(at.addresses[j], "add it to the addresses of a device", "address %s is of no device", a.Addr())
			}
		}
	}
}

// Networks returns the transport protocols of the listener: "tcp", and "udp" with HTTP/3.
func (l *Listener) Networks() (list []string) {
	if !l.HTTP3() || len(l.Versions) > 1 {
		list = append(list, "tcp")
	}
	if l.HTTP3() {
		list = append(list, "udp")
	}
	return list
}

// has reports whether a device has the address, which may be the unspecified one.
func (p *places) has(a netip.Addr) bool {
	return a.IsUnspecified() || slices.ContainsFunc(p.devices, func(dev devicePlace) bool {
		return slices.ContainsFunc(dev.value.Addresses, func(own netip.Prefix) bool { return own.Addr() == a })
	})
}

// checkListener reports keys that do not go with the listener's protocol.
func (d *checker) checkListener(l *Listener, at *listenerPlace) {
	if l.ProxyDatagrams && !l.HTTP3() {
		d.Fail(at.proxyDatagrams, "add \"3\" to versions, or leave it out", "http3 of proxy_protocol has no effect: listener %q has no HTTP/3", l.Name)
	}
	if l.Protocol == "" { // it could not be read
		return
	}
	if l.Protocol == ListenerHTTPS && at.tls == nil {
		d.Fail(at.node, "tls names the certificates", "listener %q lacks the key \"tls\"", l.Name)
	}
	if l.TLS != nil {
		d.checkVersions(l, at)
	}
	if l.TLS != nil && at.tls != nil && len(l.TLS.Certificates) == 0 && l.TLS.ACME == nil && !d.FailedAt(at.tls) {
		d.Fail(at.tls, "certificates names files, acme has an authority issue them", "tls of listener %q has neither certificates nor acme", l.Name)
	}
	if l.Protocol != ListenerHTTPS && at.tls != nil {
		hint := "set `protocol: HTTPS`, or leave it out"
		if l.Protocol == ListenerPass {
			hint = "TLS is passed through, and backends have the certificates; set `protocol: HTTPS` to end it here"
		}
		d.Fail(at.tls, hint, "tls is for HTTPS, and listener %q is %s", l.Name, l.Protocol)
	}
	if l.Protocol == ListenerHTTP && at.hsts != nil {
		d.Fail(at.hsts, "set `protocol: HTTPS`, or leave it out", "hsts has no effect: browsers ignore it without TLS, and listener %q is HTTP", l.Name)
	}
	if !l.Protocol.IsHTTP() {
		for key, n := range map[string]*yaml.Node{"versions": at.versions, "forwarded": at.forwarded, "colliding_fields": at.colliding, "request_id": at.requestID, "compression": at.compression, "alt_svc": at.altSvc, "early_data": at.earlyData, "hsts": at.hsts} {
			if n != nil {
				d.Fail(n, "leave it out", "%s is for HTTP and HTTPS, and listener %q is %s", key, l.Name, l.Protocol)
			}
		}
		return
	}
	switch {
	case l.Protocol == ListenerHTTP && l.HTTP3():
		d.Fail(at.versions, "set `protocol: HTTPS`", "HTTP/3 needs TLS, and listener %q is HTTP", l.Name)
	case at.altSvc != nil && !l.HTTP3():
		d.Fail(at.altSvc, "add \"3\" to versions", "alt_svc announces HTTP/3, which listener %q does not have", l.Name)
	case at.proxyProtocol != nil && l.HTTP3() && len(l.Versions) == 1 && !l.ProxyDatagrams:
		d.Fail(at.proxyProtocol, "set its `http3`, or leave it out", "proxy_protocol is of TCP without `http3`, and listener %q has HTTP/3 alone", l.Name)
	}
	d.checkEarlyData(l, at)
	certs := map[string]int{}
	for _, p := range at.certificates {
		d.unique(certs, p.value.Cert, p.node, "certificate")
	}
}

// checkEarlyData reports early data where there can be none. That of a client that has to show a certificate would be served before
// the certificate, which comes with the end of the handshake (RFC 8446 4.4.2).
func (d *checker) checkEarlyData(l *Listener, at *listenerPlace) {
	switch {
	case at.earlyData == nil:
	case !l.HTTP3(): // crypto/tls sends and takes none over TCP
		d.Fail(at.earlyData, "add \"3\" to versions", "early_data is of HTTP/3, which listener %q does not have", l.Name)
	case l.EarlyData && l.TLS != nil && l.TLS.ClientAuth != nil:
		d.Fail(at.earlyData, "leave one of them out", "listener %q has early_data and tls.client_auth: requests would be served before the client's certificate", l.Name)
	}
}

// The list of what could be meant is not shown where it is long, and not looked for after many errors.
const (
	mostNamed     = 16
	mostSuggested = 100
)

// nearest returns the hint of an unknown name.
func (d *checker) nearest(name string, known []string) string {
	if len(known) <= mostNamed {
		return d.Hint(name, known)
	}
	if len(d.Problems) > mostSuggested {
		return ""
	}
	if best := suggest.Nearest(name, len(name)/3, known...); best != "" {
		return "did you mean \"" + best + "\"?"
	}
	return ""
}

// checkVersions reports versions and suites of TLS with which no handshake could end.
func (d *checker) checkVersions(l *Listener, at *listenerPlace) {
	switch t := l.TLS; {
	case t.MinVersion == TLS13 && t.MaxVersion == TLS12:
		d.Fail(at.maxVersion, "leave one of them out", "max_version 1.2 is below min_version 1.3")
	case t.MaxVersion == TLS12 && l.HTTP3():
		d.Fail(at.maxVersion, "leave it out, or \"3\" of versions", "HTTP/3 has TLS 1.3, and max_version is 1.2")
	case t.MinVersion == TLS13 && len(t.Ciphers) > 0:
		d.Fail(at.ciphers, "leave it out", "ciphers has no effect: it is of TLS 1.2, and min_version is 1.3")
	}
}
