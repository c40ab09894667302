package config

import (
	"slices"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/strictyaml"
)

// need is what keys of one part of the file need elsewhere in it to have an effect. A key that is set without it is an error: an
// operator would take the file for protection, or for a limit, that is not there. Keys that state their default change nothing
// anywhere, and may stand.
type need[T any] struct {
	keys []string // paths below the part
	met  func(c *Config, part *T) bool
	why  string // what they are for, and that it is missing
	hint string
}

const leaveOut = "leave it out"

// defaults returns the schema of each key, by its path: it has the defaults.
var defaults = sync.OnceValue(func() map[string]*strictyaml.Schema {
	all := map[string]*strictyaml.Schema{}
	for _, k := range Schema().Keys() {
		if all[k.Path] == nil {
			all[k.Path] = k.Schema
		}
	}
	return all
})

// checkEffects reports keys that are set and have no effect in this file.
func (d *checker) checkEffects(c *Config) {
	if d.places.keys[""].Kind != yaml.MappingNode {
		return
	}
	effective(d, c, d.places.keys[""], "", rootNeeds, c)
	for i := range c.Devices {
		effective(d, c, d.places.devices[i].node, "devices[].", deviceNeeds, &c.Devices[i])
	}
	for i := range c.Services {
		effective(d, c, d.places.services[i].node, "services[].", serviceNeeds, &c.Services[i])
	}
	for i := range c.Inspection.Policies {
		effective(d, c, d.places.policies[i].node, "inspection.policies[].", policyNeeds, &c.Inspection.Policies[i])
	}
	for i := range c.Listeners {
		effective(d, c, d.places.listeners[i].node, "listeners[].", listenerNeeds, &c.Listeners[i])
	}
	for i := range c.Pools {
		effective(d, c, d.places.pools[i].node, "pools[].", poolNeeds, &c.Pools[i])
	}
	for i := range c.Routes {
		d.checkRouteEffects(c, &c.Routes[i], &d.places.routes[i])
	}
	d.checkUnusedPolicies(c)
}

// effective reports the keys of a part whose needs are not met.
func effective[T any](d *checker, c *Config, part *yaml.Node, prefix string, needs []need[T], v *T) {
	for i := range needs {
		n := &needs[i]
		if n.met(c, v) {
			continue
		}
		for _, key := range n.keys {
			if at := d.Find(part, key); at != nil && !d.FailedAt(at) && defaults()[prefix+key].Sets(at) {
				d.Fail(at, n.hint, "%s has no effect: %s", key, n.why)
			}
		}
	}
}

// checkRouteEffects reports keys of a route and its rules that no request meets.
func (d *checker) checkRouteEffects(c *Config, r *Route, at *routePlace) {
	effective(d, c, at.node, "routes[].", routeNeeds, r)
	for i := range r.Rules {
		u := &r.Rules[i]
		effective(d, c, at.rules[i].node, "routes[].rules[].", ruleNeeds, u)
		for k := range u.Matches {
			of := matched{r, &u.Matches[k]}
			effective(d, c, at.rules[i].matches[k].node, "routes[].rules[].matches[].", matchNeeds, &of)
		}
		for k := range u.Filters {
			if t := u.Filters[k].Type; (t == FilterRequestHeaders || t == FilterMirror) && u.answers() {
				d.Fail(at.rules[i].filters[k], map[FilterType]string{FilterRequestHeaders: "leave it out, or take ResponseHeaderModifier", FilterMirror: leaveOut}[t], "%s has no effect: the rule answers by itself", t)
			}
		}
	}
}

// checkUnusedPolicies reports policies of inspection that earlier ones leave no packet.
func (d *checker) checkUnusedPolicies(c *Config) {
	in := &c.Inspection
	if len(d.Problems) > 0 || len(in.Policies) < 2 || len(c.Services) == 0 {
		return // names may be wrong
	}
	used := make([]bool, len(in.Policies)+1)
	for i := range c.Services {
		for k := range c.Devices {
			used[in.PolicyOf(c.Services[i].Name, c.Devices[k].Name)] = true
		}
	}
	for i := range in.Policies {
		if !used[i+1] && in.Policies[i].OfPackets() {
			d.Fail(d.places.policies[i].node, "the first policy for a service and device counts: move it up, or narrow those before it",
				"policy %q has no effect: policies before it take all of its services and devices", in.Policies[i].Name)
		}
	}
}

// anyService reports whether a service has a property.
func (c *Config) anyService(has func(*Service) bool) bool {
	return slices.ContainsFunc(c.Services, func(s Service) bool { return has(&s) })
}

// answers reports whether the rule makes the response, by a filter or by files alone: no request leaves for a backend.
func (u *Rule) answers() bool {
	return (u.Static != nil || u.ConnectUDP != nil) && len(u.BackendRefs) == 0 || slices.ContainsFunc(u.Filters, func(f Filter) bool { return f.Answers() })
}

// listenersOf returns the listeners whose requests a route is for.
func (r *Route) listenersOf(c *Config) (list []*Listener) {
	for i := range c.Listeners {
		l := &c.Listeners[i]
		if len(r.Listeners) == 0 && l.Protocol.IsHTTP() || slices.Contains(r.Listeners, l.Name) {
			list = append(list, l)
		}
	}
	return list
}

// matched is a condition, and the route that it is of.
type matched struct {
	route *Route
	match *Match
}
