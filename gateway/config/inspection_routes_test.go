package config

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// inspectedRoutes is a file with routes r and s of a listener with the policy a, which have more keys, beside other policies.
func inspectedRoutes(policies, r, s string) string {
	text := strings.Replace(checked("HTTP", "drain: 9s"), "name: r,", "name: r,"+r, 1)
	text = strings.Replace(text, "routes: [", "routes: [{name: s,"+s+" hostnames: s.example, rules: [{backend_refs: [{name: p}]}]}, ", 1)
	return "inspection: {policies: [{name: a, listeners: l, rules: x}" + policies + "], alerts: {file: '-'}}\n" + text
}

// What a route chooses of inspection and nothing follows from is an error at its place.
func TestInspectionOfRoutesIsChecked(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{inspectedRoutes("", " inspection: {},", ""), `inspection of route "r" chooses nothing`},
		{inspectedRoutes("", ` inspection: {mode: "off", exclude: 5},`, ""), "exclude has no effect: mode is off"},
		{inspectedRoutes(", {name: b, routes: r, rules: x}", ` inspection: {mode: "off"},`, ""), "is off, and a policy names the route"},
		{strings.Replace(inspectedRoutes("", " inspection: {mode: detect},", ""), "listeners: l, rules", "routes: s, rules", 1), "no policy is for its requests"},
		{inspectedRoutes(", {name: b, routes: none, rules: x}", "", ""), `a route "none", which is not there`},
		{inspectedRoutes(", {name: b, routes: r, rules: x}, {name: c, routes: [s, r], rules: x}", "", ""), `the route "r" has the policy b already`},
		{inspectedRoutes(", {name: b, routes: r, capture: tcp}", "", ""), "routes has no effect: the policy has no rules"},
		{inspectedRoutes(", {name: b, routes: r, rules: x, hold: 5}", "", ""), "hold has no effect"},
		{inspectedRoutes("", " inspection: {exclude: 0},", ""), `"0" is not the number of a rule`},
		{inspectedRoutes("", " inspection: {exclude: ['1:2:3']},", ""), `"1:2:3" is not the number of a rule`},
		{inspectedRoutes("", " inspection: {exclude: [7, '1:7']},", ""), "second"},
		{inspectedRoutes("", " inspection: {exclude: {}},", ""), "exclude"},
		{inspectedRoutes("", " inspection: {mode: never},", ""), "mode"},
		{strings.Replace(checked("HTTP", "drain: 9s"), "name: r,", "name: r, waf: {rules: a, exclude: 9-8},", 1), `"9-8" is neither the ID of a rule nor a range`},
		{strings.Replace(checked("HTTP", "drain: 9s"), "name: r,", "name: r, waf: {rules: a, exclude: x},", 1), "neither the ID"},
		{strings.Replace(strings.Replace(checked("HTTP", "drain: 9s"), "name: r,", `name: r, waf: {mode: "off", exclude: 5},`, 1), "name: l,", "name: l, waf: {rules: a},", 1), "exclude has no effect: mode is off"},
	} {
		_, err := Parse("t", []byte(c.text))
		ce := new(Error)
		if !errors.As(err, &ce) || len(ce.Problems) == 0 || !strings.Contains(ce.Problems[0].Message, c.want) && !strings.Contains(ce.Problems[0].Hint, c.want) && !(c.want == "second" && strings.Contains(ce.Problems[0].Message, "1:7")) || ce.Problems[0].Line < 1 {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
	}
}

// The policy that names a route comes before that of the listener, and what the route says before both.
func TestThePolicyOfARoute(t *testing.T) {
	for _, c := range []struct {
		policies, r, policy string
		mode                InspectionMode
	}{
		{"", "", "a", InspectionDetect},
		{"", " inspection: {mode: prevent},", "a", InspectionPrevent},
		{"", ` inspection: {mode: "off"},`, "", ""},
		{", {name: b, mode: prevent, routes: r, rules: x}", "", "b", InspectionPrevent},
		{", {name: b, mode: prevent, routes: r, rules: x}", " inspection: {mode: detect},", "b", InspectionDetect},
		{", {name: b, mode: prevent, routes: s, rules: x}", " inspection: {exclude: [5, '3:6']},", "a", InspectionDetect},
	} {
		cfg, err := Parse("t", []byte(inspectedRoutes(c.policies, c.r, "")))
		if err != nil {
			t.Fatal(err)
		}
		p, mode := cfg.Inspects(&cfg.Listeners[0], &cfg.Routes[slices.IndexFunc(cfg.Routes, func(r Route) bool { return r.Name == "r" })])
		name := ""
		if p != nil {
			name = p.Name
		}
		if name != c.policy || mode != c.mode {
			t.Errorf("%+v: %q %q", c, name, mode)
		}
		for i := range cfg.Inspection.Policies {
			if p := &cfg.Inspection.Policies[i]; p.OfPackets() || !p.OfRequests() {
				t.Errorf("%+v is for packets", p)
			}
		}
		want := 0
		if strings.Contains(c.r, "exclude") {
			want = 2
		}
		if got := cfg.Excepted("a"); len(got) != want || want > 0 && (got[0] != ExceptedRule{1, 5} || got[1] != ExceptedRule{3, 6}) {
			t.Errorf("excluded: %v", got)
		}
	}
}
