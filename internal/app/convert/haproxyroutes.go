package convert

import (
	"fmt"
	"slices"
	"strings"
)

// routes makes the routes of the listeners with or without TLS. The gateway decides by the host first: each host that some item
// names gets all items that are for it, also those for every host, in their order.
func (f *frontend) routes(listeners []string, tls int) {
	var items []item
	for _, it := range f.h.l.resolved(f.items) {
		if it.atom.tls != -tls {
			items = append(items, it)
		}
	}
	hosts := []string{""}
	for _, it := range items {
		for _, h := range it.atom.hosts {
			if !slices.Contains(hosts, h) {
				hosts = append(hosts, h)
			}
		}
	}
	type group struct {
		hosts []string
		items []item
	}
	var groups []*group
	byKey := map[string]*group{}
	for _, h := range hosts {
		var list []item
		key := ""
		for i, it := range items {
			if len(it.atom.hosts) == 0 || h != "" && slices.ContainsFunc(it.atom.hosts, func(of string) bool { return covers(of, h) }) {
				list, key = append(list, it), key+fmt.Sprint(i, " ")
			}
		}
		if h == "" {
			key = "any"
		}
		if g := byKey[key]; g != nil && len(g.hosts) < mostHosts {
			g.hosts = append(g.hosts, h)
			continue
		}
		g := &group{items: list}
		if h != "" {
			g.hosts = []string{h}
		}
		byKey[key], groups = g, append(groups, g)
	}
	for _, g := range groups {
		f.route(listeners, tls, g.hosts, g.items)
	}
}

// covers reports whether a name, which may begin with "*.", is or includes a host.
func covers(of, host string) bool {
	return of == host || strings.HasPrefix(of, "*.") && strings.HasSuffix(host, of[1:]) && host != of[1:]
}

// route makes the route of some hosts.
func (f *frontend) route(listeners []string, tls int, hosts []string, items []item) {
	base := &siteRoute{at: f.p.at, listeners: listeners, hosts: hosts}
	wish := f.p.name
	if len(hosts) > 0 {
		wish = strings.TrimPrefix(hosts[0], "*.")
	}
	base.name = f.h.m.unique("route", wish)
	var routes []*siteRoute
	for _, p := range f.h.l.plan(items) {
		f.reached[p.at] = true
		r := p.rule.clone()
		r.matches = p.matches
		f.decorate(r, tls, p)
		g := p.guard
		g.rateLimits = append(slices.Clone(g.rateLimits), f.limits...)
		if g.sources == nil {
			g.sources = f.sources
		} else if f.sources != nil {
			g.sources = f.h.l.closeSources(p.at, "a route has one list of clients, and two meet", "write routes[].sources")
		}
		routes = enterRoute(routes, base, g, r, f.h.m)
	}
	f.h.m.routes = append(f.h.m.routes, routes...)
}

// decorate adds the fields of the frontend, and the rewrite of the backend where it fits the path.
func (f *frontend) decorate(r *rule, tls int, p planned) {
	front := f.request[tls].clone()
	for _, h := range r.request.set {
		front.drop(h.name)
	}
	for _, name := range r.request.remove {
		front.drop(name)
	}
	r.request.set = append(front.set, r.request.set...)
	for _, h := range front.add {
		r.request.more(h.name, h.value)
	}
	r.request.remove = append(front.remove, r.request.remove...)
	if r.fixed == nil && r.redirect == nil {
		answer := f.answer[tls]
		for _, h := range answer.set {
			r.response.put(h.name, h.value)
		}
		for _, h := range answer.add {
			r.response.more(h.name, h.value)
		}
		for _, name := range answer.remove {
			r.response.without(name)
		}
	}
	e := f.h.edits[firstPool(r)]
	if e == nil {
		return
	}
	if tls == 1 {
		for _, h := range e.tls.set {
			r.request.put(h.name, h.value)
		}
	} else if e.toTLS != nil {
		r.redirect, r.pools, r.rewrite = e.toTLS, nil, nil
		return
	}
	switch {
	case e.rewrite == nil:
	case fits(p.matches, e.prefix):
		f.h.l.ok(e.rewriteAt, "URLRewrite")
	default:
		r.rewrite = nil
		f.h.l.left(e.rewriteAt, "the rule has another prefix than the one that is replaced", "write URLRewrite with ReplacePrefixMatch in a rule for the prefix")
	}
}

// fits reports whether all matches of a rule are of a prefix, so that it can be replaced.
func fits(matches []match, prefix string) bool {
	if len(matches) == 0 {
		return prefix == ""
	}
	return !slices.ContainsFunc(matches, func(m match) bool {
		return m.kind != pathPrefix && m.kind != "" || strings.TrimSuffix(m.path, "/") != prefix
	})
}

// firstPool returns the name of the first pool of a rule.
func firstPool(r *rule) string {
	if len(r.pools) == 0 {
		return ""
	}
	return r.pools[0].name
}
