package config

import (
	"strings"
	"testing"
)

// Hosts of the file are in the form that requests have.
func TestHostnamesAreReadInOneForm(t *testing.T) {
	const text = `
listeners: [{name: web, address: "198.18.0.1:80", protocol: HTTP}]
routes: [{name: r, hostnames: [Shop.Example, "*.Shop.Example", "[2001:DB8:0::1]"], rules: [{backend_refs: [{name: p}]}]}]
pools: [{name: p, backends: [{address: "198.18.1.1:80"}]}]
`
	c, err := Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(c.Routes[0].Hostnames, " "); got != "shop.example *.shop.example [2001:db8::1]" {
		t.Errorf("hostnames: %s", got)
	}
	if _, err := Parse("f", []byte(strings.Replace(text, "Shop.Example,", "shop.example.,", 1))); err == nil || !strings.Contains(err.Error(), "hostname") {
		t.Errorf("a dot at the end: %v", err)
	}
}
