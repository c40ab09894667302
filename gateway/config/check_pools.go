package config

import (
	"strings"

	"github.com/millrace/millrace/gateway/health"
)

// checkPools reports what of pools does not fit together.
func (d *checker) checkPools(c *Config) {
	lines := map[string]int{}
	for i := range c.Services {
		if n := d.places.services[i].name; n != nil {
			lines[c.Services[i].Name] = n.Line
		}
	}
	for i := range c.Pools {
		p, at := &c.Pools[i], &d.places.pools[i]
		d.unique(lines, p.Name, at.name, "pool or service")
		d.checkPool(p, at)
		d.checkFastCGI(p, at)
		d.checkAffinity(p, at)
		d.noteFiles(c, at.certificates, at.files)
		d.checkPoolBackends(p, at)
		d.checkSockets(c, p, at)
		d.checkPoolHealth(p, at)
	}
	if n := len(c.Names()); n > maxNames {
		d.Fail(d.places.keys["pools"], "", "pools have %d names of backends; at most %d are allowed", n, maxNames)
	}
}

// checkPool reports keys that do not go with each other.
func (d *checker) checkPool(p *Pool, at *poolPlace) {
	switch {
	case p.Protocol.HasTLS() && p.TLS == nil:
		d.Fail(at.node, "tls names the server: server_name", "pool %q lacks the key \"tls\": its protocol is %s", p.Name, p.Protocol)
	case !p.Protocol.HasTLS() && p.TLS != nil:
		d.Fail(at.tls, "set `protocol: HTTPS`, H2 or H3", "pool %q speaks %s without TLS", p.Name, p.Protocol)
	case p.TLS != nil && at.serverName == nil && !p.TLS.Insecure:
		d.Fail(at.tls, "the name that certificates of backends have; `insecure: true` takes any certificate", "tls of pool %q lacks the key \"server_name\"", p.Name)
	case p.TLS != nil && p.TLS.Insecure && len(p.TLS.CAFiles) > 0:
		d.Fail(at.tls, "leave one of them out", "ca_file is not used: insecure takes any certificate")
	}
	if at.hash != nil && p.Balance != PoolConsistentHash {
		d.Fail(at.hash, "set `balance: consistent_hash`", "hash is for consistent_hash, and pool %q has %s", p.Name, p.Balance)
	}
	switch named := p.Hash.By == HashHeader || p.Hash.By == HashCookie || p.Hash.By == HashQuery; {
	case at.hash == nil:
	case named && at.hashName == nil:
		d.Fail(at.hash, "name the "+string(p.Hash.By), "hash by %s lacks the key \"name\"", p.Hash.By)
	case !named && at.hashName != nil:
		d.Fail(at.hashName, "leave it out", "name is not for a hash by %s", p.Hash.By)
	case p.Protocol == PoolTCP && p.Hash.By != HashClient:
		d.Fail(at.hash, "set `by: client`", "pool %q passes TCP through: there is no %s", p.Name, p.Hash.By)
	}
	if p.Protocol == PoolTCP && p.Sticky != nil {
		d.Fail(at.sticky, "set `balance: consistent_hash`", "pool %q passes TCP through: there is no cookie", p.Name)
	}
	if p.FieldNames == FieldNamesPreserve && !p.Protocol.IsHTTP1() {
		d.Fail(at.fieldNames, "leave it out", "pool %q speaks %s, which has no upper case in field names", p.Name, p.Protocol)
	}
	if p.EarlyData && p.Protocol != PoolH3 { // crypto/tls sends none over TCP
		d.Fail(at.earlyData, "leave it out", "pool %q speaks %s: early data is sent to backends of H3 alone", p.Name, p.Protocol)
	}
	switch {
	case at.queued != nil && p.Limits.Queued > 0 && p.Protocol == PoolTCP:
		d.Fail(at.queued, "limits.pending bounds the connections that wait", "pool %q passes TCP through: there are no requests", p.Name)
	case at.queued != nil && p.Limits.Queued > 0 && p.Limits.Requests == 0:
		d.Fail(at.queued, "add limits.requests, which they wait for", "queued has no effect: pool %q takes any number of requests", p.Name)
	}
	if p.Protocol == PoolH3 && p.ProxyProtocol != ProxyNone {
		d.Fail(at.proxyProtocol, "leave it out", "proxy_protocol is of TCP, and pool %q speaks HTTP/3", p.Name)
	}
}

func (d *checker) checkPoolBackends(p *Pool, at *poolPlace) {
	names, addrs, weights := map[string]int{}, map[string]int{}, 0
	for i := range p.Backends {
		b, place := &p.Backends[i], &at.backends[i]
		weights += b.Weight
		if place.name != place.node { // a default name is the address
			d.unique(names, b.Name, place.name, "backend")
		}
		if place.address == nil {
			weights++ // it could not be read
			continue
		}
		d.unique(addrs, b.Where(), place.address, "backend address")
	}
	if len(p.Backends) > 0 && weights == 0 {
		d.Fail(at.backends[0].node, "", "all weights are 0: no backend takes anything")
	}
}

// checkSockets reports backends at sockets of this machine where what the pool has is of networks.
func (d *checker) checkSockets(c *Config, p *Pool, at *poolPlace) {
	for i := range p.Backends {
		place := at.backends[i].address
		switch b := &p.Backends[i]; {
		case b.Path == "" || place == nil:
		case c.Stack == StackDevices:
			d.Fail(place, "set `stack: kernel`, or an address that the devices reach", "backend %q is a socket of this machine, which `stack: devices` does not reach", b.Name)
		case p.Protocol == PoolH3:
			d.Fail(place, "set `protocol: H2`, or an IP address", "backend %q is a socket of this machine, and HTTP/3 is over UDP", b.Name)
		case p.Health != nil && p.Health.Port != 0:
			d.Fail(at.health.at("port"), "leave it out", "backend %q is a socket of this machine: there is no port to probe", b.Name)
		case p.Health != nil && p.Health.Device != "":
			d.Fail(at.health.at("device"), "leave it out", "backend %q is a socket of this machine: no device leads there", b.Name)
		}
	}
}

// checkPoolHealth reports what of a pool's health check does not fit together.
func (d *checker) checkPoolHealth(p *Pool, at *poolPlace) {
	c := p.Health
	if c == nil {
		return
	}
	d.checkKeysOfType(c, at.health)
	d.problemsOf(c.Validate(), at.health)
	if p.Protocol == PoolH3 && c.Port == 0 && c.Type != health.TypeCommand {
		d.Fail(at.health.at(""), "name a TCP port of the backend that shows its health", "pool %q speaks HTTP/3: its %s health check needs a port", p.Name, c.Type)
	}
	d.checkProbedPort(p, at)
	d.checkDevice(c, at.health)
}

// checkProbedPort reports a check that cannot succeed at the port of the backends, which speaks what the pool does.
func (d *checker) checkProbedPort(p *Pool, at *poolPlace) {
	c := p.Health
	if c.Port != 0 || p.Protocol == PoolH3 {
		return
	}
	encrypted, plain := p.Protocol == PoolHTTPS || p.Protocol == PoolH2, p.Protocol == PoolHTTP || p.Protocol == PoolH2C || p.Protocol == PoolFastCGI
	switch {
	case (c.Type == health.TypeGRPC || c.Type == health.TypeGRPCS) && p.Protocol == PoolFastCGI:
		d.Fail(at.health.at("type"), "set `type: http`, or name a port of the backend that speaks HTTP/2", "pool %q speaks FastCGI, and gRPC is HTTP/2: its %s health check needs a port", p.Name, c.Type)
	case (c.Type == health.TypeGRPC || c.Type == health.TypeGRPCS) && p.Protocol.IsHTTP1():
		d.Fail(at.health.at("type"), "set `protocol: H2C` or H2, or name a port of the backend that speaks HTTP/2",
			"pool %q speaks HTTP/1.1, and gRPC is HTTP/2: its %s health check needs a port", p.Name, c.Type)
	case (c.Type == health.TypeHTTP || c.Type == health.TypeGRPC) && encrypted:
		d.Fail(at.health.at("type"), "set `type: "+string(c.Type)+"s`, or name a port of the backend without TLS",
			"pool %q speaks TLS: its %s health check needs a port", p.Name, c.Type)
	case (c.Type == health.TypeHTTPS || c.Type == health.TypeGRPCS) && plain:
		d.Fail(at.health.at("type"), "set `type: "+strings.TrimSuffix(string(c.Type), "s")+"`, or name a port of the backend with TLS",
			"pool %q speaks %s without TLS: its %s health check needs a port", p.Name, p.Protocol, c.Type)
	case c.Type == health.TypeUDP:
		d.Fail(at.health.at("type"), "set `type: tcp`, http or https, or name a UDP port of the backend",
			"pool %q has connections of TCP: its udp health check needs a port", p.Name)
	}
}
