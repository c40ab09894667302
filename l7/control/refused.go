package control

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"

	"github.com/millrace/millrace/gateway/config"
)

// Refusal is what refuses a request before a rule answers it or a backend gets it.
type Refusal struct {
	Status int    `json:"status"` // 0: the connection ends
	By     string `json:"by"`     // the key of the configuration, and what has it
}

// refusing collects what refuses a request, in the order in which the gateway asks it.
type refusing struct {
	e   *Explanation
	cfg *config.Config
	q   *Query
}

// refuse notes the first that refuses.
func (r refusing) refuse(status int, by, of, name string) {
	if r.e.Refused == nil {
		r.e.Refused = &Refusal{Status: status, By: fmt.Sprintf("%s of %s %s", by, of, name)}
	}
}

// may notes what refuses some requests, which the query does not decide.
func (r refusing) may(by, of, name string) {
	r.e.Limits = append(r.e.Limits, fmt.Sprintf("%s of %s %s", by, of, name))
}

// listener asks what a listener asks of all requests and streams.
func (r refusing) listener(l *config.Listener, u *url.URL) {
	const of = "listener"
	if !l.Protocol.IsHTTP() {
		r.sources(&l.Sources, r.table(of, l.Name), 0, of, l.Name)
		return
	}
	if len(u.RequestURI()) > l.Limits.TargetBytes {
		r.refuse(414, "limits.target_bytes", of, l.Name)
	}
	if len(r.q.Headers)+1 > l.Limits.HeaderFields { // and Host
		r.refuse(431, "limits.header_fields", of, l.Name)
	}
	if r.q.Method == "CONNECT" {
		r.refuse(405, "the method CONNECT, which is for WebSockets alone,", of, l.Name)
	}
	r.sources(&l.Sources, r.table(of, l.Name), 403, of, l.Name)
	r.rates(l.RateLimits, of, l.Name)
	if l.Limits.BodyBytes > 0 {
		r.may("limits.body_bytes", of, l.Name)
	}
}

// inspection asks the rules that read requests of a route at a listener; nil is no route.
func (r refusing) inspection(l *config.Listener, c *config.Route) {
	if c == nil {
		c = &config.Route{}
	}
	p, mode := r.cfg.Inspects(l, c)
	switch {
	case mode != config.InspectionPrevent:
	case slices.Contains(p.Listeners, l.Name):
		r.may("inspection policy "+p.Name, "listener", l.Name)
	default:
		r.may("inspection policy "+p.Name, "route", c.Name)
	}
}

// route asks what a route asks of its requests.
func (r refusing) route(c *config.Route) {
	const of = "route"
	r.sources(&c.Sources, r.table(of, c.Name), 403, of, c.Name)
	if m := c.Maintenance; m != nil && !slices.ContainsFunc(m.Allow, func(p netip.Prefix) bool { return p.Contains(r.q.Client.Unmap()) }) {
		r.refuse(503, "maintenance", of, c.Name)
	}
	if c.Limits.BodyBytes > 0 {
		r.may("limits.body_bytes", of, c.Name)
	}
	r.rates(c.RateLimits, of, c.Name)
	if a := c.Auth; a != nil {
		switch {
		case a.Basic != nil:
			r.may("auth.basic", of, c.Name)
		case a.JWT != nil:
			r.may("auth.jwt", of, c.Name)
		default:
			r.may("auth.forward", of, c.Name)
		}
	}
	if c.Concurrency != nil {
		r.may("concurrency", of, c.Name)
	}
}

func (r refusing) rates(names []string, of, name string) {
	for _, limit := range names {
		r.may("rate limit "+limit, of, name)
	}
}

// table returns the compiled lists of a listener or route; nil where they were not read.
func (r refusing) table(of, name string) *config.SourceTable {
	switch lists := r.cfg.Lists(); {
	case lists == nil:
		return nil
	case of == "listener":
		return lists.Listeners[name]
	default:
		return lists.Routes[name]
	}
}

// sources asks lists of clients. Without them, as of a file that is not in use, prefixes alone are known; a client that the query does
// not name is in none.
func (r refusing) sources(s *config.Sources, t *config.SourceTable, status int, of, name string) {
	if len(s.Allow) == 0 && len(s.Deny) == 0 && s.Default != "deny" {
		return
	}
	inFile := func(l config.SourceList) bool { return l.File != "" }
	if !r.q.Client.IsValid() || t == nil && (slices.ContainsFunc(s.Allow, inFile) || slices.ContainsFunc(s.Deny, inFile)) {
		r.may("sources", of, name)
		return
	}
	denied := false
	if t != nil {
		denied = sourcesOf(t).Denies(r.q.Client)
	} else {
		client := r.q.Client.Unmap().WithZone("")
		denied = longest(s.Deny, client) > longest(s.Allow, client) || longest(s.Allow, client) < 0 && s.Default == "deny"
	}
	if denied {
		r.refuse(status, "sources", of, name)
	}
}

// longest returns the length of the longest prefix that has an address, -1 where none has.
func longest(list []config.SourceList, a netip.Addr) int {
	n := -1
	for _, l := range list {
		if l.Prefix.Contains(a) {
			n = max(n, l.Prefix.Bits())
		}
	}
	return n
}
