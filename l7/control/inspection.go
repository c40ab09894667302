package control

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/proxy"
)

// errNoInspection reports a policy for a listener where nothing inspects: it must not serve as if it were inspected.
var errNoInspection = errors.New("its requests are to be inspected, and there is no inspection")

// planInspection has a listener inspect by its policy. Its rules are those of planHTTP.
func (s *Set) planInspection(n *plan, l *config.Listener, out *proxy.Listener) error {
	p := n.cfg.Inspection.PolicyOfRequests(l.Name, "")
	if s.opt.Policy == nil && (p != nil || out.RulesInspect) {
		return errNoInspection
	}
	if p != nil {
		out.Inspection = &proxy.Inspection{Policy: s.opt.Policy(p.Name), Hold: p.Hold}
	}
	return nil
}

// inspectionOf returns how requests of a route are inspected where that differs from others of the listener; nil where it does not.
func (s *Set) inspectionOf(n *plan, l *config.Listener, r *config.Route) *proxy.Inspection {
	p, mode := n.cfg.Inspects(l, r)
	switch {
	case p == n.cfg.Inspection.PolicyOfRequests(l.Name, "") && (p == nil || r.Inspection == nil):
		return nil
	case p == nil || s.opt.Policy == nil: // which planInspection reports
		return &proxy.Inspection{}
	}
	i := &proxy.Inspection{Policy: s.opt.Policy(p.Name), Hold: p.Hold}
	if r.Inspection != nil {
		i.Choice = &inspect.Choice{Mode: modeOf(mode, n.cfg.Inspection.Overload), Except: map[inspect.RuleID]bool{}}
		for _, id := range r.Inspection.Except {
			i.Choice.Except[inspect.RuleID(id)] = true
		}
		i.Kind = kindOf(mode, r.Inspection.Except)
	}
	return i
}

// modeOf returns what follows from results about requests.
func modeOf(m config.InspectionMode, o config.Overload) inspect.Mode {
	switch {
	case m != config.InspectionPrevent:
		return inspect.Detect
	case o == config.OverloadPass:
		return inspect.PreventOpen
	}
	return inspect.Prevent
}

// kindOf returns a text that two choices of routes share when they are the same, whatever the order of their rules.
func kindOf(m config.InspectionMode, except []config.ExceptedRule) string {
	list := slices.Clone(except)
	slices.SortFunc(list, func(a, b config.ExceptedRule) int {
		return cmp.Or(cmp.Compare(a.GID, b.GID), cmp.Compare(a.SID, b.SID))
	})
	text := string(m)
	for _, r := range list {
		text += fmt.Sprintf(" %d:%d", r.GID, r.SID)
	}
	return text
}
