package config

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// withDemand is a file with certificates on demand.
func withDemand(keys string) string {
	return "listeners: [{name: l, address: 127.0.0.1:443, protocol: HTTPS, tls: {acme: {dir: d, agree_to_terms: true" + keys + "}}}]\n" + kinds["answers"][strings.Index(kinds["answers"], "routes:"):]
}

func TestKeysOfOnDemand(t *testing.T) {
	c, err := Parse("f", []byte(withDemand(", on_demand: {names: [A.example.], suffixes: b.example, ask: 'http://127.0.0.1:9/ask?k=v', wait: 3s, orders_per_hour: 4, certificates: 5}")))
	if err != nil {
		t.Fatal(err)
	}
	want := &OnDemand{Names: []string{"a.example"}, Suffixes: []string{"b.example"}, Ask: "http://127.0.0.1:9/ask?k=v", Wait: 3 * time.Second, OrdersPerHour: 4, Certificates: 5}
	if got := c.Listeners[0].TLS.ACME.OnDemand; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if c, err = Parse("f", []byte(withDemand(", on_demand: {names: a.example}"))); err != nil {
		t.Errorf("%v", err)
	} else if o := c.Listeners[0].TLS.ACME.OnDemand; o.Wait != 10*time.Second || o.OrdersPerHour != 20 || o.Certificates != 1000 {
		t.Errorf("%+v", o)
	}
	for _, c := range []struct{ keys, want string }{
		{"", "acme has neither names nor on_demand"},
		{", on_demand: {}", "on_demand permits no name"},
		{", on_demand: {wait: 3s}", "on_demand permits no name"},
		{", on_demand: {names: '*.example.org'}", "names has none that ACME can prove"},
		{", on_demand: {names: [a.example, A.example]}", "is already on line"},
		{", on_demand: {suffixes: example}", "suffixes has none that ACME can prove"},
		{", on_demand: {ask: 'ftp://a/'}", "ask is no URL with http or https"},
		{", on_demand: {ask: 'http:///x'}", "ask is no URL with http or https"},
		{", on_demand: {ask: 'http://a/', ca_file: f}", "ca_file has no effect"},
		{", on_demand: {names: a.example, wait: 2m}", "wait"},
		{", on_demand: {names: a.example, orders_per_hour: 0}", "orders_per_hour is 0"},
		{", on_demand: {names: a.example, certificates: 0}", "certificates is 0"},
	} {
		if _, err := Parse("f", []byte(withDemand(c.keys))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.keys, err, c.want)
		}
	}
}
