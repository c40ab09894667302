package control

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/proxy"
)

const pathForms = `
listeners: [{name: web, address: "198.18.0.1:80", protocol: HTTP}]
routes:
- {name: admin, rules: [{matches: [{path: {value: /admin}}], filters: [{type: FixedResponse, status_code: 403}]}]}
- {name: keys, forward_path: raw, rules: [{matches: [{path: {value: /keys}}], backend_refs: [{name: p}]}]}
- {name: all, rules: [{backend_refs: [{name: p}]}]}
pools: [{name: p, backends: [{address: "198.18.1.1:80"}]}]
`

func TestRulesHaveThePathFormOfTheirRoute(t *testing.T) {
	cfg, err := config.Parse("f", []byte(pathForms))
	if err != nil {
		t.Fatal(err)
	}
	_, refs := cfg.RulesOf("web")
	n := &plan{cfg: cfg, pools: map[string]*pooled{"p": {}}}
	for i, want := range []proxy.PathForm{proxy.NormalPath, proxy.RawPath, proxy.NormalPath} {
		if got := n.rule("r", nil, &refs[i]).PathForm; got != want {
			t.Errorf("route %s: form %d, want %d", refs[i].Route.Name, got, want)
		}
	}
}

// Explain refuses the paths that the gateway refuses.
func TestExplainRefusesAmbiguousPaths(t *testing.T) {
	cfg, err := config.Parse("f", []byte(pathForms))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/admin%2Fx": "", "/x/..;/admin": "", "/keys/../x": "all", "/keys/a/../b": "", "/keys//a": "keys", "/x//a": "all", "/keys/%7ea": "keys", "/admin/..": "all", "/x/../admin": "admin",
	} {
		e, err := Explain(cfg, Query{URL: "http://198.18.0.1" + path})
		switch {
		case want == "" && !errors.Is(err, ErrQuery):
			t.Errorf("%s: %+v, %v; want an error", path, e, err)
		case want != "" && (err != nil || e.Route != want):
			t.Errorf("%s: %+v, %v; want route %s", path, e, err, want)
		}
	}
}

// Explain refuses what the gateway refuses: a field or a parameter whose values lead to different rules.
func TestExplainOfRepeatedFields(t *testing.T) {
	cfg, err := config.Parse("f", []byte(`
listeners: [{name: web, address: "198.18.0.1:80", protocol: HTTP}]
routes:
- {name: field, rules: [{matches: [{headers: [{name: X-Role, value: admin}]}], backend_refs: [{name: p}]}]}
- {name: query, rules: [{matches: [{query_params: [{name: role, value: admin}]}], backend_refs: [{name: p}]}]}
- {name: all, rules: [{backend_refs: [{name: p}]}]}
pools: [{name: p, backends: [{address: "198.18.1.1:80"}]}]
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		query  string
		values []string
		want   string // route, "" for an error
	}{
		{"", []string{"admin"}, "field"},
		{"", []string{"admin", "admin"}, "field"},
		{"", []string{"other", "admin"}, ""},
		{"?role=admin", nil, "query"},
		{"?role=x&role=admin", nil, ""},
		{"?role=x&role=y", []string{"x", "y"}, "all"},
	} {
		q := Query{URL: "http://198.18.0.1/" + c.query}
		for _, v := range c.values {
			q.Headers = append(q.Headers, Field{Name: "x-role", Value: v})
		}
		e, err := Explain(cfg, q)
		if c.want == "" && !errors.Is(err, ErrQuery) || c.want != "" && (err != nil || e.Route != c.want) {
			t.Errorf("%s %q: %+v, %v; want %q", c.query, c.values, e, err, c.want)
		}
	}
}
