package config

import (
	"strings"
	"testing"
)

func TestEarlyDataIsReadAndChecked(t *testing.T) {
	const text = `
listeners:
- {name: a, address: "198.18.0.1:443", protocol: HTTPS, versions: ["1.1", "3"], tls: {certificates: [{cert: a.pem}]}}
- {name: b, address: "198.18.0.1:444", protocol: HTTPS, versions: ["3"], early_data: true, tls: {certificates: [{cert: b.pem}]}}
routes: [{name: r, rules: [{backend_refs: [{name: p}]}]}]
pools: [{name: p, backends: [{address: "198.18.1.1:80"}]}]
`
	c, err := Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if c.Listeners[0].EarlyData || !c.Listeners[1].EarlyData {
		t.Errorf("%v and %v, want false and true", c.Listeners[0].EarlyData, c.Listeners[1].EarlyData)
	}
	for name, c := range map[string]struct{ old, changed, want string }{
		"no HTTP/3":           {`versions: ["3"], early_data`, `versions: ["1.1", "2"], early_data`, "early_data is of HTTP/3, which listener \"b\""},
		"no HTTP":             {`protocol: HTTPS, versions: ["3"], early_data: true, tls: {certificates: [{cert: b.pem}]}}`, `protocol: TCP, early_data: true}`, "early_data is for HTTP and HTTPS"},
		"client certificates": {"{cert: b.pem}]", "{cert: b.pem}], client_auth: {ca_file: ca.pem}", "early_data and tls.client_auth"},
		"not a truth value":   {"early_data: true, tls: {cert", "early_data: some, tls: {cert", "early_data must be"},
	} {
		t.Run(name, func(t *testing.T) {
			wrong := strings.Replace(text, c.old, c.changed, 1)
			if wrong == text {
				t.Fatalf("%q is not in the text", c.old)
			}
			if _, err := Parse("f", []byte(wrong)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want an error with %q", err, c.want)
			}
		})
	}
}

// Early data goes to backends of H3 alone: crypto/tls sends none over TCP.
func TestEarlyDataOfPools(t *testing.T) {
	const file = `
listeners: [{name: a, address: "198.18.0.1:80", protocol: HTTP}]
routes: [{name: r, rules: [{backend_refs: [{name: p}]}]}]
pools: [{name: p, protocol: H3, tls: {insecure: true}, early_data: true, backends: [{address: "198.18.1.1:443"}]}]
`
	c, err := Parse("f", []byte(file))
	if err != nil || !c.Pools[0].EarlyData {
		t.Fatalf("%v, %+v", err, c)
	}
	for new, want := range map[string]string{
		"protocol: H2, tls: {insecure: true}, early_data: true":    "early data is sent to backends of H3 alone",
		"protocol: HTTPS, tls: {insecure: true}, early_data: true": "speaks HTTPS",
		"early_data: true":                    "speaks HTTP",
		"early_data: maybe":                   "early_data must be",
		"early_data: false":                   "",
		"protocol: H3, tls: {insecure: true}": "",
	} {
		text := strings.Replace(file, "protocol: H3, tls: {insecure: true}, early_data: true", new, 1)
		if c, err = Parse("f", []byte(text)); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", new, err, want)
		}
		if err == nil && c.Pools[0].EarlyData {
			t.Errorf("%s: there is early data", new)
		}
	}
}
