package config

import (
	"slices"

	"github.com/millrace/millrace/gateway/health"
)

// typesOf are the types of checks that a key is for, where that is not all.
var typesOf = map[string][]health.Type{
	"http":    {health.TypeHTTP, health.TypeHTTPS},
	"grpc":    {health.TypeGRPC, health.TypeGRPCS},
	"udp":     {health.TypeUDP},
	"tcp":     {health.TypeTCP},
	"command": {health.TypeCommand},
}

// checkHealth reports what of a service's health check does not fit together.
func (d *checker) checkHealth(s *Service, at *servicePlace) {
	c := s.Health
	if c == nil {
		return
	}
	d.checkKeysOfType(c, at.health)
	d.problemsOf(c.Validate(), at.health)
	switch name, ok := s.portless(); {
	case ok && c.Port == 0:
		d.Fail(at.node, "name the port that shows the health of the whole range",
			"service %q needs a port for its health check: backend %q serves a range of ports", s.Name, name)
	case s.Protocol == "udp" && c.Network() == "tcp" && c.Port == 0:
		d.Fail(at.node, "name a TCP port of the backend that shows its health, or set the check's type to udp",
			"service %q is udp: its %s health check needs a port", s.Name, c.Type)
	}
	d.checkDevice(c, at.health)
}

// checkKeysOfType reports keys that are for checks of another type.
func (d *checker) checkKeysOfType(c *health.Check, k keyPlaces) {
	for key, types := range typesOf {
		if n := k[key]; n != nil && !slices.Contains(types, c.Type) {
			d.Fail(n, "set `type: "+string(types[0])+"`, or remove it", "%s is not for checks of type %s", key, c.Type)
		}
	}
}

// portless returns a backend that clients reach on several ports, so that none is the one to probe.
func (s *Service) portless() (name string, ok bool) {
	for i := range s.Backends {
		for _, a := range s.Backends[i].Addresses {
			if a.IsRange() || a.Port() == 0 && s.HasRange() {
				return s.Backends[i].Name, true
			}
		}
	}
	return "", false
}

// checkDevice reports a device of a check that is none of the gateway's. A gateway without devices may have any.
func (d *checker) checkDevice(c *health.Check, k keyPlaces) {
	if n := k["device"]; n != nil && c.Type == health.TypeCommand {
		d.Fail(n, "", "device is not for checks of type command")
	}
	var devices []string
	for _, p := range d.places.devices {
		devices = append(devices, p.value.Name)
	}
	if c.Device != "" && !slices.Contains(devices, c.Device) && len(devices) > 0 {
		d.Fail(k["device"], d.Hint(c.Device, devices), "unknown device %q", c.Device)
	}
}

// checkPassive reports what of a service's passive health does not fit together.
func (d *checker) checkPassive(s *Service, at *servicePlace) {
	if s.Passive == nil {
		return
	}
	if s.Mode.Direct() {
		d.Fail(at.passive.at(""), "take health", "passive needs `mode: nat`: with mode %s the gateway does not see what backends answer", s.Mode)
	}
	d.problemsOf(s.Passive.Validate(), at.passive)
}

// problemsOf reports problems at the places of their keys, but for keys that could not be read.
func (d *checker) problemsOf(list []health.Problem, k keyPlaces) {
	for _, p := range list {
		n := k.at(p.Key)
		if !slices.ContainsFunc(d.Problems, func(old Problem) bool { return old.Line == n.Line && old.Column == n.Column }) {
			d.Fail(n, p.Hint, "%s", p.Message)
		}
	}
}
