package config

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/l7/route"
)

// RuleRef resolves the number of a route.Rule.
type RuleRef struct {
	Route *Route
	Rule  *Rule
	Match int // of Rule.Matches; 0 also where there is none
}

// RulesOf returns the rules of the routes of a listener, one for each match, for a route.Table, and what each stands for by
// its number.
func (c *Config) RulesOf(listener string) (rules []route.Rule, refs []RuleRef) {
	for i := range c.Routes {
		r := &c.Routes[i]
		if len(r.Listeners) > 0 && !slices.Contains(r.Listeners, listener) {
			continue
		}
		for j := range r.Rules {
			u := &r.Rules[j]
			name := r.Name + "/" + u.Name
			if len(u.Matches) == 0 {
				rules = append(rules, route.Rule{Name: name, Match: route.Match{Hosts: r.Hostnames}})
				refs = append(refs, RuleRef{Route: r, Rule: u})
			}
			for k := range u.Matches {
				one := route.Rule{Name: name, Match: u.Matches[k].compiled(r.Hostnames)}
				if len(u.Matches) > 1 {
					one.Name = fmt.Sprintf("%s, match %d", name, k+1)
				}
				rules = append(rules, one)
				refs = append(refs, RuleRef{r, u, k})
			}
		}
	}
	return rules, refs
}

// StreamRules returns the routes of a listener that passes TLS or TCP through, as rules of server names, and what each
// stands for by its number.
func (c *Config) StreamRules(l *Listener) (rules []route.Rule, refs []*StreamRoute) {
	list := c.TCPRoutes
	if l.Protocol == ListenerPass {
		list = c.TLSRoutes
	}
	for i := range list {
		if r := &list[i]; slices.Contains(r.listenersOf(c, l.Protocol), l.Name) {
			rules = append(rules, route.Rule{Name: r.Name, Match: route.Match{Hosts: r.Hostnames, JA4: r.JA4, ALPN: r.ALPN, Clients: r.Clients}})
			refs = append(refs, r)
		}
	}
	return rules, refs
}

// compiled returns the match in the form of package route.
func (m *Match) compiled(hosts []string) route.Match {
	return route.Match{
		Hosts: hosts, Path: m.Path.compiled(), Method: m.Method, Fields: compiledValues(m.Headers), Query: compiledValues(m.QueryParams),
		SNI: m.SNI, JA4: m.JA4, ALPN: m.ALPN, Clients: m.Clients,
	}
}

func (p *PathMatch) compiled() route.Path {
	types := map[MatchType]route.PathType{MatchExact: route.PathExact, MatchRegexp: route.PathRegexp}
	return route.Path{Type: types[p.Type], Value: p.Value}
}

func (v *ValueMatch) compiled() route.Value {
	return route.Value{Name: v.Name, Value: v.Value, Regexp: v.Type == MatchRegexp}
}

func compiledValues(list []ValueMatch) (out []route.Value) {
	for i := range list {
		out = append(out, list[i].compiled())
	}
	return out
}

// listenersOf returns the names of the listeners that a route of streams is for.
func (r *StreamRoute) listenersOf(c *Config, protocol ListenerProtocol) (list []string) {
	if len(r.Listeners) > 0 {
		return r.Listeners
	}
	for i := range c.Listeners {
		if c.Listeners[i].Protocol == protocol {
			list = append(list, c.Listeners[i].Name)
		}
	}
	return list
}
