package control

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/gateway/config"
)

// Explain has hosts in the form that the gateway compares.
func TestExplainNormalizesHosts(t *testing.T) {
	cfg, err := config.Parse("f", []byte(`
listeners: [{name: web, address: "198.18.0.1:80", protocol: HTTP}]
routes:
- {name: admin, hostnames: [admin.test, "[2001:db8::1]"], rules: [{filters: [{type: FixedResponse, status_code: 403}]}]}
- {name: all, rules: [{backend_refs: [{name: p}]}]}
pools: [{name: p, backends: [{address: "198.18.1.1:80"}]}]
`))
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{"admin.test": "admin", "ADMIN.test.": "admin", "[2001:DB8::0:1]": "admin", "a": "all", "admin.test..": ""} {
		e, err := Explain(cfg, Query{URL: "http://" + host + "/", Listener: "web"})
		if (want == "") != errors.Is(err, ErrQuery) || want != "" && (err != nil || e.Route != want) {
			t.Errorf("%s: %+v, %v; want route %s", host, e, err, want)
		}
	}
}
