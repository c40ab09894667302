package config

import (
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/strictyaml"
)

// Inspection selects which packets of services and requests of listeners are inspected by rules, and what follows from a match. Files are relative to the
// configuration file's folder; package l4/inspection reads them.
type Inspection struct {
	Policies []InspectionPolicy // key "policies": of several that name a service and device the first counts

	Variables      []string // key "variables": NAME=VALUE, what rules call $NAME
	VariablesFile  string   // key "variables_file": a suricata.yaml, or its address-groups and port-groups
	Classification string   // key "classification": a classification.config; the default is that beside the first file of rules

	Flows    int      // key "flows": followed at once by each policy, of all loops together, default 65536
	Memory   int      // key "memory": bytes for streams and messages that each policy holds, of all loops together and with the space that the garbage collector needs, default 268435456
	Overload Overload // key "overload": what `prevent` does at these bounds, default "drop"

	Alerts  InspectionAlerts  // key "alerts"
	Packets InspectionPackets // key "packets"
}

// Overload selects whether a packet that cannot be inspected passes.
type Overload string

// The values of Overload.
const (
	OverloadDrop Overload = "drop" // fail closed
	OverloadPass Overload = "pass" // fail open
)

// InspectionMode defines what a match leads to.
type InspectionMode string

// The values of InspectionMode.
const (
	InspectionDetect  InspectionMode = "detect"  // to an alert
	InspectionPrevent InspectionMode = "prevent" // and rules whose action is drop or reject do that
)

// InspectionPolicy is rules, and the packets that they are for.
type InspectionPolicy struct {
	Name      string         // key "name", required and unique
	Mode      InspectionMode // key "mode", default "detect"
	Services  []string       // key "services": by name, default all; none where the policy names listeners or routes
	Listeners []string       // key "listeners": of HTTP and HTTPS, by name, whose requests are inspected; default none
	Routes    []string       // key "routes": by name, whose requests are inspected by this policy in place of that of their listener; default none
	Devices   []string       // key "devices": that clients' packets come by, default all
	Rules     []string       // key "rules": files of rules in Suricata's syntax
	Access    []string       // key "access": files of rules on addresses and ports: the first that matches a packet of a client decides
	Capture   string         // key "capture": a packet filter expression: packets that match are written to Packets
	Hold      int            // key "hold": with `prevent`, bytes of the content of a message of a listener that wait until all of it was inspected, default 65536
	Lenient   bool           // key "lenient": leave out rules with unsupported options, which are an error otherwise
	Overlaps  Overload       // key "overlaps": with `prevent`, packets whose bytes contradict earlier ones: default "drop"
	Urgent    Urgent         // key "urgent": TCP segments with urgent data, default "strip"
}

// Urgent is the policy for urgent data of TCP: a receiver may take the byte that the urgent pointer names out of the stream,
// so that it reads other bytes than those that were inspected (RFC 6093 3.4).
type Urgent string

// The values of Urgent.
const (
	UrgentStrip Urgent = "strip" // clear the flag and the pointer: the receiver reads the byte in the stream, as inspection does
	UrgentDrop  Urgent = "drop"  // with `prevent`: drop the segment
)

// InspectionAlerts configures where alerts are written.
type InspectionAlerts struct {
	File    string // key "file": a line of JSON each, or "-", the standard output; "" (default) is nowhere
	Buffer  int    // key "buffer": bytes that may wait, default 4194304
	Payload int    // key "payload": bytes of the payload that an alert shows, default 256
}

// InspectionPackets configures where the packets of alerts are written, and those that policies capture.
type InspectionPackets struct {
	File string // key "file": a pcapng; "" (default) is nowhere
	Size int    // key "size": bytes of it at most, default 67108864
}

func newInspection() Inspection {
	return Inspection{
		Flows: 1 << 16, Memory: 256 << 20, Overload: OverloadDrop,
		Alerts: InspectionAlerts{Buffer: 4 << 20, Payload: 256}, Packets: InspectionPackets{Size: 64 << 20},
	}
}

func newInspectionPolicy() InspectionPolicy {
	return InspectionPolicy{Mode: InspectionDetect, Hold: 64 << 10, Overlaps: OverloadDrop, Urgent: UrgentStrip}
}

// Limits of the section.
const (
	maxPolicies   = 64
	maxRuleFiles  = 1024
	maxInspected  = 1 << 24 // flows
	maxInspectMem = 1 << 40
	maxHold       = 100 << 10 // of what is longer no more is inspected
)

func (d *decoder) inspection(n *yaml.Node, c *Config) {
	i := &c.Inspection
	d.Mapping(n, "inspection",
		strictyaml.Required("policies", func(n *yaml.Node) { d.inspectionPolicies(n, i) }),
		d.several("variables", &i.Variables),
		strictyaml.Optional("variables_file", func(n *yaml.Node) { d.placedText(n, "variables_file", &i.VariablesFile) }),
		strictyaml.Optional("classification", func(n *yaml.Node) { d.placedText(n, "classification", &i.Classification) }),
		strictyaml.Optional("flows", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "flows", &i.Flows, 64, maxInspected) }),
		strictyaml.Optional("memory", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "memory", &i.Memory, 1<<20, maxInspectMem) }),
		strictyaml.Optional("overload", func(n *yaml.Node) {
			strictyaml.Choice(d.Decoder, n, "overload", &i.Overload, OverloadDrop, OverloadPass)
		}),
		strictyaml.Optional("alerts", func(n *yaml.Node) {
			a := &i.Alerts
			d.Mapping(n, "alerts",
				strictyaml.Required("file", func(n *yaml.Node) { d.Text(n, "file", &a.File) }),
				strictyaml.Optional("buffer", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "buffer", &a.Buffer, 64<<10, 1<<30) }),
				strictyaml.Optional("payload", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "payload", &a.Payload, 0, 4096) }),
			)
		}),
		strictyaml.Optional("packets", func(n *yaml.Node) {
			d.Mapping(n, "packets",
				strictyaml.Required("file", func(n *yaml.Node) { d.Text(n, "file", &i.Packets.File) }),
				strictyaml.Optional("size", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "size", &i.Packets.Size, 64<<10, maxInspectMem) }),
			)
		}),
	)
}

func (d *decoder) inspectionPolicies(n *yaml.Node, i *Inspection) {
	d.List(n, "policies", maxPolicies, func(n *yaml.Node) {
		p, at := newInspectionPolicy(), policyPlace{node: n}
		d.Mapping(n, "a policy",
			strictyaml.Required("name", func(n *yaml.Node) { at.name = n; d.name(n, "name", &p.Name) }),
			strictyaml.Optional("mode", func(n *yaml.Node) {
				strictyaml.Choice(d.Decoder, n, "mode", &p.Mode, InspectionDetect, InspectionPrevent)
			}),
			d.named("services", &p.Services, &at.services),
			d.named("listeners", &p.Listeners, &at.listeners),
			d.named("routes", &p.Routes, &at.routes),
			strictyaml.Optional("hold", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "hold", &p.Hold, 0, maxHold) }),
			d.named("devices", &p.Devices, &at.devices),
			d.several("rules", &p.Rules),
			d.several("access", &p.Access),
			strictyaml.Optional("capture", func(n *yaml.Node) { at.capture = n; d.placedText(n, "capture", &p.Capture) }),
			strictyaml.Optional("lenient", func(n *yaml.Node) { d.Truth(n, "lenient", &p.Lenient) }),
			strictyaml.Optional("overlaps", func(n *yaml.Node) {
				strictyaml.Choice(d.Decoder, n, "overlaps", &p.Overlaps, OverloadDrop, OverloadPass)
			}),
			strictyaml.Optional("urgent", func(n *yaml.Node) {
				strictyaml.Choice(d.Decoder, n, "urgent", &p.Urgent, UrgentStrip, UrgentDrop)
			}),
		)
		if n != nil && len(p.Rules) == 0 && len(p.Access) == 0 && p.Capture == "" {
			d.Fail(n, "rules or access name files, and capture is an expression", "a policy has neither rules nor access nor capture")
		}
		d.places.policies = append(d.places.policies, at)
		i.Policies = append(i.Policies, p)
	})
}

// policyPlace is where a policy stands, and what it names.
type policyPlace struct {
	node, name        *yaml.Node
	capture           *yaml.Node // nil without
	services, devices []*yaml.Node
	listeners, routes []*yaml.Node
}

// placedText reads a text, and keeps its place for errors that are found when the rules are read.
func (d *decoder) placedText(n *yaml.Node, key string, to *string) bool {
	if !d.Text(n, key, to) {
		return false
	}
	d.inspAt[*to] = d.Place(n.Line, n.Column)
	return true
}

// InspectionPlace returns a problem, without a message, where a value of the section inspection or of a firewall stands: the name of a file, a
// variable or an expression. For a value that is not there it has no place.
func (c *Config) InspectionPlace(value string) Problem { return c.inspAt[value] }

// several reads one text or several.
func (d *decoder) several(key string, to *[]string) strictyaml.Field {
	return strictyaml.Optional(key, func(n *yaml.Node) {
		d.OneOrMore(n, key, maxRuleFiles, func(n *yaml.Node) {
			if s := ""; d.placedText(n, key, &s) {
				*to = append(*to, s)
			}
		})
	})
}

// named reads one name or several, and where each stands.
func (d *decoder) named(key string, to *[]string, at *[]*yaml.Node) strictyaml.Field {
	return strictyaml.Optional(key, func(n *yaml.Node) {
		d.OneOrMore(n, key, maxServices, func(n *yaml.Node) {
			if s := ""; d.Text(n, key, &s) {
				*to, *at = append(*to, s), append(*at, n)
			}
		})
	})
}

// checkInspection reports policies with one name, packets without a file, and names of services and devices that are not there.
func (d *checker) checkInspection(c *Config) {
	lines, inspected, routes := map[string]int{}, map[string]string{}, map[string]string{}
	for i := range c.Inspection.Policies {
		p, at := &c.Inspection.Policies[i], &d.places.policies[i]
		d.unique(lines, p.Name, at.name, "policy")
		if p.Capture != "" && c.Inspection.Packets.File == "" {
			d.Fail(at.capture, "inspection.packets.file names the file", "policy %s has capture, but there is no file for packets", p.Name)
		}
		for k, name := range p.Services {
			if !slices.ContainsFunc(c.Services, func(s Service) bool { return s.Name == name }) {
				d.Fail(at.services[k], "", "policy %s is for a service %q, which is not there", p.Name, name)
			}
		}
		for k, name := range p.Listeners {
			d.checkInspected(c, inspected, p.Name, name, at.listeners[k])
		}
		for k, name := range p.Routes {
			routeInspectionChecker{d}.named(c, routes, p.Name, name, at.routes[k])
		}
		for k, name := range p.Devices {
			if !slices.ContainsFunc(c.Devices, func(dev Device) bool { return dev.Name == name }) {
				d.Fail(at.devices[k], "", "policy %s is for a device %q, which is not there", p.Name, name)
			}
		}
	}
}

// checkInspected reports a listener of a policy that is not there, has no requests, or has a policy: by has those of policies before.
func (d *checker) checkInspected(c *Config, by map[string]string, policy, name string, at *yaml.Node) {
	i := slices.IndexFunc(c.Listeners, func(l Listener) bool { return l.Name == name })
	switch {
	case i < 0:
		d.Fail(at, "", "policy %s is for a listener %q, which is not there", policy, name)
	case !c.Listeners[i].Protocol.IsHTTP():
		d.Fail(at, "name listeners of HTTP and HTTPS", "policy %s is for requests, and the listener %q passes bytes through", policy, name)
	case by[name] != "":
		d.Fail(at, "a listener has one policy", "the listener %q has the policy %s already", name, by[name])
	}
	by[name] = policy
}

// OfRequests reports whether a policy is for requests of listeners or routes.
func (p *InspectionPolicy) OfRequests() bool { return len(p.Listeners)+len(p.Routes) > 0 }

// OfPackets reports whether a policy is for packets of services: one that names listeners or routes alone is not.
func (p *InspectionPolicy) OfPackets() bool { return !p.OfRequests() || len(p.Services) > 0 }

// PolicyOf returns the place, from 1, of the policy for a service's connections whose client's packets come by a device; 0 is
// none.
func (i *Inspection) PolicyOf(service, device string) int {
	for k := range i.Policies {
		p := &i.Policies[k]
		if p.OfPackets() && (len(p.Services) == 0 || slices.Contains(p.Services, service)) && (len(p.Devices) == 0 || slices.Contains(p.Devices, device)) {
			return k + 1
		}
	}
	return 0
}
