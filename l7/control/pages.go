package control

import (
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/proxy"
)

// pagesOf returns the pages of responses of the gateway, nil for none.
func (n *plan) pagesOf(list []config.ErrorPage) proxy.Pages {
	if len(list) == 0 {
		return nil
	}
	pages := proxy.Pages{}
	for i := range list {
		p := &proxy.Page{Type: list[i].Type, Body: n.cfg.Page(list[i].File)}
		for _, status := range list[i].Statuses {
			pages[status] = p
		}
	}
	return pages
}

// hsts returns the value of Strict-Transport-Security.
func hsts(h *config.HSTS) string {
	s := "max-age=" + strconv.Itoa(int(h.MaxAge/time.Second))
	if h.Subdomains {
		s += "; includeSubDomains"
	}
	if h.Preload {
		s += "; preload"
	}
	return s
}

// boundBodies gives the rules of a listener the limits of their routes, if one has some: then that of the listener is for the others,
// and is not looked at before the rule is known.
func (n *plan) boundBodies(l *config.Listener, out *proxy.Listener, refs []config.RuleRef) {
	if !slices.ContainsFunc(refs, func(r config.RuleRef) bool { return r.Route.Limits.BodyBytes > 0 }) {
		return
	}
	out.Limits.Body = 0
	for i := range refs {
		body, rule := refs[i].Route.Limits.BodyBytes, out.Rules[i]
		if body == 0 {
			body = l.Limits.BodyBytes
		}
		if body > 0 && rule.Guard == nil {
			rule.Guard = &proxy.Guard{Counts: n.guards.routes[refs[i].Route.Name]}
		}
		if body > 0 {
			rule.Guard.Body = body
		}
	}
}
