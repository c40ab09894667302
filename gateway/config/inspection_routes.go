package config

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/strictyaml"
)

// RouteInspection changes the inspection of a route's requests beside others of their policy: the one that names the route or, without one,
// that of the listener.
type RouteInspection struct {
	Mode   RouteInspectionMode // key "mode", default the policy's
	Except []ExceptedRule      // key "exclude": rules of the policy that are not evaluated: the sid, or gid:sid
}

// RouteInspectionMode is an InspectionMode, or none.
type RouteInspectionMode string

// The values of RouteInspectionMode.
const (
	RouteInspectionDefault RouteInspectionMode = "" // that of the policy
	RouteInspectionOff     RouteInspectionMode = "off"
	RouteInspectionDetect  RouteInspectionMode = "detect"
	RouteInspectionPrevent RouteInspectionMode = "prevent"
)

// ExceptedRule names a rule of inspection.
type ExceptedRule struct{ GID, SID uint32 }

// routeInspectionPlace is where the parts of a RouteInspection stand; all are nil without one.
type routeInspectionPlace struct{ node, mode, except *yaml.Node }

// maxExcepted bounds the rules that a route excludes.
const maxExcepted = 4096

// routeInspectionDecoder reads the inspection of routes.
type routeInspectionDecoder struct{ *l7Decoder }

// routeInspectionChecker compares the inspection of routes with the rest of the file.
type routeInspectionChecker struct{ *checker }

// key reads the key of a route.
func (d routeInspectionDecoder) key(to **RouteInspection, at *routeInspectionPlace) strictyaml.Field {
	return strictyaml.Optional("inspection", func(n *yaml.Node) {
		i := &RouteInspection{}
		*to, at.node = i, n
		d.Mapping(n, "inspection",
			strictyaml.Optional("mode", func(n *yaml.Node) {
				at.mode = n
				strictyaml.Choice(d.Decoder, n, "mode", &i.Mode, RouteInspectionOff, RouteInspectionDetect, RouteInspectionPrevent)
			}),
			strictyaml.Optional("exclude", func(n *yaml.Node) {
				at.except = n
				lines := map[string]int{}
				d.OneOrMore(n, "exclude", maxExcepted, func(n *yaml.Node) {
					s := ""
					if !numberOrText(d.decoder, n, "exclude", &s) {
						return
					}
					r, ok := exceptedRule(s)
					if !ok {
						d.Fail(n, "such as 2024897, or 1:2024897", "%q is not the number of a rule", s)
						return
					}
					d.unique(lines, strconv.Itoa(int(r.GID))+":"+strconv.Itoa(int(r.SID)), n, "rule")
					i.Except = append(i.Except, r)
				})
			}),
		)
	})
}

// numberOrText reads the number of a rule, or a text with several.
func numberOrText(d *decoder, n *yaml.Node, key string, to *string) bool {
	least, most := int64(1), int64(math.MaxUint32)
	if d.Takes(strictyaml.Schema{Type: "integer", Minimum: &least, Maximum: &most}, strictyaml.Schema{Type: "string", Title: "text"}) {
		return false
	}
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" && n.Tag != "!!int" || n.Value == "" {
		d.Fail(n, "", "%s must have numbers of rules, not %s", key, strictyaml.Kind(n))
		return false
	}
	*to = n.Value
	return true
}

// exceptedRule reads sid or gid:sid. Rules without a gid have 1.
func exceptedRule(s string) (r ExceptedRule, ok bool) {
	gid, sid, both := strings.Cut(s, ":")
	if !both {
		gid, sid = "1", s
	}
	g, err1 := strconv.ParseUint(gid, 10, 32)
	n, err2 := strconv.ParseUint(sid, 10, 32)
	return ExceptedRule{uint32(g), uint32(n)}, err1 == nil && err2 == nil && g > 0 && n > 0
}

// named reports a route of a policy that is not there, or has a policy: by has those of policies before.
func (d routeInspectionChecker) named(c *Config, by map[string]string, policy, name string, at *yaml.Node) {
	switch {
	case !slices.ContainsFunc(c.Routes, func(r Route) bool { return r.Name == name }):
		d.Fail(at, "name routes of HTTP", "policy %s is for a route %q, which is not there", policy, name)
	case by[name] != "":
		d.Fail(at, "a route has one policy", "the route %q has the policy %s already", name, by[name])
	}
	by[name] = policy
}

// check reports choices of routes that nothing follows from.
func (d routeInspectionChecker) check(c *Config) {
	for i := range c.Routes {
		r, at := &c.Routes[i], &d.places.routes[i].inspection
		if r.Inspection == nil || at.mode != nil && d.FailedAt(at.mode) || at.except != nil && d.FailedAt(at.except) {
			continue
		}
		named := slices.ContainsFunc(c.Inspection.Policies, func(p InspectionPolicy) bool { return slices.Contains(p.Routes, r.Name) })
		switch off := r.Inspection.Mode == RouteInspectionOff; {
		case at.mode == nil && at.except == nil:
			d.Fail(at.node, "set mode or exclude, or leave it out", "inspection of route %q chooses nothing", r.Name)
		case len(c.policiesOf(r)) == 0:
			d.Fail(at.node, "name the route or a listener of it in a policy of inspection, or leave it out", "inspection of route %q has no effect: no policy is for its requests", r.Name)
		case off && named:
			d.Fail(at.mode, "leave one of them out", "inspection of route %q is off, and a policy names the route", r.Name)
		case off && at.except != nil:
			d.Fail(at.except, "leave one of them out", "exclude has no effect: mode is off")
		}
	}
}

// PolicyOfRequests returns the policy for the requests of a route at a listener, nil for none; route "" is that of requests which no
// route is for.
func (i *Inspection) PolicyOfRequests(listener, route string) *InspectionPolicy {
	for k := range i.Policies {
		if route != "" && slices.Contains(i.Policies[k].Routes, route) {
			return &i.Policies[k]
		}
	}
	for k := range i.Policies {
		if slices.Contains(i.Policies[k].Listeners, listener) {
			return &i.Policies[k]
		}
	}
	return nil
}

// policiesOf returns the policies that requests of a route may be inspected by.
func (c *Config) policiesOf(r *Route) (list []*InspectionPolicy) {
	for _, l := range r.listenersOf(c) {
		if p := c.Inspection.PolicyOfRequests(l.Name, r.Name); p != nil {
			list = append(list, p)
		}
	}
	return list
}

// Inspects returns the policy and the mode by which requests of a route are inspected at a listener; no policy where they are not.
func (c *Config) Inspects(l *Listener, r *Route) (*InspectionPolicy, InspectionMode) {
	p := c.Inspection.PolicyOfRequests(l.Name, r.Name)
	switch {
	case p == nil || r.Inspection != nil && r.Inspection.Mode == RouteInspectionOff:
		return nil, ""
	case r.Inspection != nil && r.Inspection.Mode != RouteInspectionDefault:
		return p, InspectionMode(r.Inspection.Mode)
	}
	return p, p.Mode
}

// Excepted returns the rules that routes of a policy exclude.
func (c *Config) Excepted(policy string) (list []ExceptedRule) {
	for i := range c.Routes {
		r := &c.Routes[i]
		if r.Inspection != nil && slices.ContainsFunc(c.policiesOf(r), func(p *InspectionPolicy) bool { return p.Name == policy }) {
			list = append(list, r.Inspection.Except...)
		}
	}
	return list
}

// preventsFor reports whether some requests or packets that a policy is for end by its rules.
func (p *InspectionPolicy) preventsFor(c *Config) bool {
	return p.Mode == InspectionPrevent || slices.ContainsFunc(c.Routes, func(r Route) bool {
		return r.Inspection != nil && r.Inspection.Mode == RouteInspectionPrevent && slices.Contains(c.policiesOf(&r), p)
	})
}
