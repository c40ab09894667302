package control

import (
	"errors"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/proxy"
)

// errNoInspection reports a policy for a listener where nothing inspects: it must not serve as if it were inspected.
var errNoInspection = errors.New("its requests are to be inspected, and there is no inspection")

// inspection has a listener inspect by its policy. Its rules are those of planHTTP.
func (n *plan) inspection(s *Set, l *config.Listener, out *proxy.Listener) error {
	p := n.cfg.Inspection.PolicyOfRequests(l.Name, "")
	if s.opt.Policy == nil && (p != nil || out.RulesInspect) {
		return errNoInspection
	}
	if p != nil {
		out.Inspection = &proxy.Inspection{Policy: s.opt.Policy(p.Name), Hold: p.Hold}
	}
	return nil
}

// inspectionOf returns the inspection of a route where it differs from that of the listener, nil where it does not.
func (n *plan) inspectionOf(s *Set, l *config.Listener, r *config.Route) *proxy.Inspection {
	p, mode := n.cfg.Inspects(l, r)
	switch {
	case p == n.cfg.Inspection.PolicyOfRequests(l.Name, "") && (p == nil || r.Inspection == nil):
		return nil
	case p == nil || s.opt.Policy == nil: // which inspection reports
		return &proxy.Inspection{}
	}
	i := &proxy.Inspection{Policy: s.opt.Policy(p.Name), Hold: p.Hold}
	if r.Inspection != nil {
		var except []proxy.InspectedRule
		for _, id := range r.Inspection.Except {
			except = append(except, proxy.InspectedRule(id))
		}
		i.Choose(mode == config.InspectionPrevent, n.cfg.Inspection.Overload == config.OverloadPass, except)
	}
	return i
}
