package control

import (
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/proxy"
	"github.com/millrace/millrace/l7/rewrite"
)

var collidings = map[config.CollidingFields]proxy.Colliding{
	config.CollidingDrop: proxy.DropColliding, config.CollidingReject: proxy.RejectColliding, config.CollidingAllow: proxy.AllowColliding,
}

// listenerNames returns the names of the fields of requests that a listener of HTTP reads, sets, adds or removes beside those of
// every gateway, in any number of repetitions. Where rules of inspection read its requests they include what those read.
func (n *plan) listenerNames(l *config.Listener, refs []config.RuleRef) []string {
	names := n.guardNames(namesOf(n, refs), l.RateLimits)
	if l.RequestID != "" {
		names = append(names, l.RequestID)
	}
	return append(names, n.inspectedNames(l, refs)...)
}

// inspectedNames returns the names of the fields that rules of inspection read of requests of a listener; nil where none do.
func (n *plan) inspectedNames(l *config.Listener, refs []config.RuleRef) (names []string) {
	policies := map[*config.InspectionPolicy]bool{n.cfg.Inspection.PolicyOfRequests(l.Name, ""): true}
	for _, ref := range refs {
		p, _ := n.cfg.Inspects(l, ref.Route)
		policies[p] = true
	}
	delete(policies, nil)
	for p := range policies {
		if n.fieldNames != nil {
			names = append(names, n.fieldNames(p.Name)...)
		}
		names = append(names, rewrite.Inspected()...)
	}
	return names
}

// namesOf returns the names of the fields of requests that rules and their pools read, set, add or remove.
func namesOf(n *plan, refs []config.RuleRef) (names []string) {
	for _, ref := range refs {
		names = n.authNames(n.guardNames(names, ref.Route.RateLimits), ref.Route)
		if ref.Rule.Cache != nil {
			names = append(names, ref.Rule.Cache.KeyHeaders...)
		}
		if len(ref.Rule.Matches) > 0 {
			for _, h := range ref.Rule.Matches[ref.Match].Headers {
				names = append(names, h.Name)
			}
		}
		for i := range ref.Rule.Filters {
			if f := &ref.Rule.Filters[i]; f.Type == config.FilterRequestHeaders {
				names = append(names, f.Remove...)
				for _, list := range [][]config.Header{f.Set, f.Add} {
					for _, h := range list {
						names = append(names, h.Name)
					}
				}
			}
		}
		for _, b := range ref.Rule.BackendRefs {
			if a := n.pools[b.Name].proxy.Affinity; a != nil && a.Key.By == rewrite.ByHeader {
				names = append(names, a.Key.Name)
			}
			if k := n.pools[b.Name].proxy.Key; k != nil && k.By == rewrite.ByHeader {
				names = append(names, k.Name)
			}
		}
	}
	return names
}
