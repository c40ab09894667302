package config

import (
	"encoding/hex"

	"github.com/millrace/millrace/internal/strictyaml"
)

// checkTable reports what of the table and the loops does not fit together.
func (d *checker) checkTable(c *Config) {
	if n := d.places.halfOpen; n != nil && c.Table.HalfOpen > c.Table.Size {
		d.Fail(n, "", "half_open is %d, more than the table's size %d", c.Table.HalfOpen, c.Table.Size)
	}
	if c.Table.HalfOpen == 0 {
		c.Table.HalfOpen = max(c.Table.Size/4, 256)
	}
	if n := d.places.keys["cpus"]; n != nil && len(c.CPUs.List) > 0 && len(c.Devices) > 0 && c.Loops() != QueuesAuto && len(c.CPUs.List) != c.Loops() {
		d.Fail(n, "name one for each loop", "cpus names %d CPUs for %d loops", len(c.CPUs.List), c.Loops())
	}
}

// checkMode reports backends and keys that do not go with the service's mode.
func (d *checker) checkMode(c *Config, s *Service, at *servicePlace) {
	direct := s.Mode.Direct()
	if direct && at.source != nil {
		d.Fail(at.source, "leave it out", "source is for `mode: nat`: with mode %s backends see the client", s.Mode)
	}
	for i, b := range s.Backends {
		for j, ap := range b.Addresses {
			n := at.backends[i].addresses[j]
			switch {
			case direct && ap.Port() != 0:
				d.Fail(n, "write "+ap.Addr().String(), "backend %s has a port, but mode %s does not change ports", ap, s.Mode)
			case !direct && ap.Port() == 0 && !s.HasRange():
				d.Fail(n, addrPortHint(n.Value), "address must be an IP address and a port, not %s", strictyaml.Kind(n))
			case !direct:
				d.checkBackendPorts(s, ap, n)
			}
			if (s.Mode == ModeIPIP || s.Mode == ModeGUE) && !c.Tunnel.hasFamily(ap.Addr().Is4()) {
				d.Fail(n, "add a prefix to tunnel.source", "backend %s needs an %s tunnel source", ap.Addr(), family(ap.Addr()))
			}
		}
	}
	switch {
	case s.Unknown == UnknownPickUp && s.Balance == BalanceLeastConnections:
		d.Fail(at.unknown, "choose auto, drop or reset", "service %q cannot pick connections up: with `balance: least_connections` their backend is not known", s.Name)
	case s.Unknown == UnknownPickUp && !s.PicksUp():
		d.Fail(at.unknown, "set `source: client`, or choose auto, drop or reset", "service %q cannot pick connections up: with `source: gateway` (SNAT) only the gateway that chose a source port knows it", s.Name)
	}
	if s.Balance == BalanceLeastConnections && s.Persistence != nil {
		d.Fail(at.persistence, "leave one of them out", "persistence is by the hash, and service %q has `balance: least_connections`", s.Name)
	}
	if s.MSS != 0 && s.Protocol != "tcp" {
		d.Fail(at.mss, "", "mss is for tcp, and service %q is %s", s.Name, s.Protocol)
	}
	if direct && s.Health != nil && s.Health.Port == 0 && !s.HasRange() {
		s.Health.Port = s.firstPort()
	}
}

// firstPort returns the port of the service's first address, 0 when it has none.
func (s *Service) firstPort() uint16 {
	if len(s.Addresses) == 0 {
		return 0
	}
	return s.Addresses[0].Port()
}

// hasFamily reports whether there is an outer source address of the family.
func (t *Tunnel) hasFamily(is4 bool) bool {
	for _, p := range t.Sources {
		if p.Addr().Is4() == is4 {
			return true
		}
	}
	return false
}

// checkQUIC reports server IDs that are missing, alike, or of the wrong length. Lengths are those
// of draft-ietf-quic-load-balancers: a connection ID has at most 20 octets, the first is ours.
func (d *checker) checkQUIC(s *Service, at *servicePlace) {
	q := s.QUIC
	if q == nil {
		for i := range s.Backends {
			if n := at.backends[i].serverID; n != nil {
				d.Fail(n, "add quic to the service", "server_id is for services with quic")
			}
		}
		return
	}
	if s.Protocol != "udp" {
		d.Fail(at.quic, "set `protocol: udp`", "quic is for udp, and service %q is %s", s.Name, s.Protocol)
	}
	if q.ServerID+q.Nonce > 19 {
		d.Fail(at.quic, "", "server_id_length and nonce_length are %d together; at most 19 are allowed", q.ServerID+q.Nonce)
	}
	lines := map[string]int{}
	for i, b := range s.Backends {
		p := at.backends[i]
		switch {
		case p.serverID == nil:
			d.Fail(p.node, "", "backend %q lacks a server_id", b.Name)
		case len(b.ServerID) != q.ServerID && b.ServerID != nil:
			d.Fail(p.serverID, "", "server_id has %d octets, server_id_length says %d", len(b.ServerID), q.ServerID)
		default:
			d.unique(lines, hex.EncodeToString(b.ServerID), p.serverID, "server_id")
		}
	}
}
